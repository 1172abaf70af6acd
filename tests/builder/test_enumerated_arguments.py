"""Enumerated arguments are checked when the program is built, in every spelling that users know."""

from __future__ import annotations

import enum
from typing import Any, cast

import pytest

from hloom import HloError, XlaBuilder, XlaOp
from hloom.ir.codec import REQUIRED, EnumCodec
from hloom.ir.operation import REGISTRY
from hloom.proto.schema import xla_data_pb2 as xla
from tests.builder.building import built, ops


def rule_of(function: Any, *shapes: str) -> str:
    with pytest.raises(HloError) as caught:
        built(function, *shapes)
    return caught.value.rule


FUNCTIONS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "fft_type": (lambda word, x: ops.Fft(x, word, [4]), ("c64[4]",)),
    "transpose_a": (lambda word, a: ops.TriangularSolve(a, a, True, True, False, word), ("f32[2,2]",)),
    "direction": (lambda word, x: ops.Compare(x, x, None, word), ("f32[]",)),
    "short direction": (lambda word, x: ops.Compare(x, x, word), ("f32[]",)),
    "compare_type": (lambda word, x: ops.Compare(x, x, None, "LT", word), ("f32[]",)),
    "precision of Dot": (lambda word, x: ops.Dot(x, x, word), ("f32[2]",)),
    "precision of one operand": (lambda word, x: ops.Dot(x, x, ["high", word]), ("f32[2]",)),
    "precision of Conv": (
        lambda word, x: ops.Conv(x, x, [1], "SAME", precision_config=word), ("f32[2,2,3]",)
    ),
    "RNG algorithm": (lambda word, s: ops.RngBitGenerator(word, s, "u32[4]"), ("u64[2]",)),
    "fusion kind": (lambda word, x: ops.Fusion([x], built(ops.Sin, "f32[]"), word), ("f32[]",)),
    "schedule": (lambda word, x: ops.CustomCall("t", x, shape="f32[]", schedule=word), ("f32[]",)),
    "api version": (lambda word, x: ops.CustomCall("t", x, shape="f32[]", api_version=word), ("f32[]",)),
    "operand_precision of emit": (
        lambda word, x: x.builder.emit(
            "dot", [x, x], lhs_contracting_dims=(0,), rhs_contracting_dims=(0,), operand_precision=[word] * 2
        ),
        ("f32[2]",),
    ),
}  # fmt: skip


WORDS = ("foo", "DCT", "XX", "no transpose", "", 99, -1)


@pytest.mark.parametrize(
    ("name", "word"),
    [(n, w) for n in FUNCTIONS for w in WORDS if (n, w) != ("compare_type", "")],  # "": that of the elements
)
def test_unknown_words_are_refused(name: str, word: Any) -> None:
    function, shapes = FUNCTIONS[name]
    assert rule_of(lambda *operands: function(word, *operands), *shapes) == "builder.enum-value"


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - {"short direction"}))
@pytest.mark.parametrize("word", [[1, 2, 3], 2.5, object()])
def test_other_kinds_are_refused(name: str, word: Any) -> None:
    function, shapes = FUNCTIONS[name]
    assert rule_of(lambda *operands: function(word, *operands), *shapes) in (
        "builder.argument",
        "builder.enum-value",
        "builder.integers",
    )


ENUMERATIONS = [
    (opcode, attribute)
    for opcode, declared in sorted(REGISTRY.items())
    for attribute in declared.attributes
    if isinstance(attribute.codec, EnumCodec)
]


@pytest.mark.parametrize(("opcode", "attribute"), ENUMERATIONS, ids=lambda v: getattr(v, "name", v))
def test_every_declared_enumeration_is_checked(opcode: str, attribute: Any) -> None:
    required = [a.field for a in REGISTRY[opcode].attributes if a.default is REQUIRED]
    others = dict.fromkeys((field for field in required if field != attribute.field), 0)
    with pytest.raises(HloError) as caught:
        XlaBuilder("f").emit(opcode, **{**others, attribute.field: "no word of it"})
    assert caught.value.rule == "builder.enum-value"
    assert f"{opcode}: {attribute.name} is one of" in caught.value.message


class Direction(enum.Enum):
    LT = 2


@pytest.mark.parametrize("word", ["LT", "lt", "kLt", "Lt", Direction.LT])
def test_spellings_of_a_direction(word: Any) -> None:
    assert "direction=LT" in built(lambda x: ops.Compare(x, x, word), "f32[]").to_text()


@pytest.mark.parametrize(
    ("function", "shape", "text"),
    [
        (lambda x: ops.Fft(x, "fft", [4]), "c64[4]", "fft_type=FFT"),
        (lambda x: ops.Fft(x, xla.IRFFT, [4]), "c64[3]", "fft_type=IRFFT"),
        (lambda a: ops.TriangularSolve(a, a, True, True, False, "no_transpose"), "f32[2,2]", "=NO_TRANSPOSE"),
        (lambda a: ops.TriangularSolve(a, a, True, True, False, "kAdjoint"), "f32[2,2]", "=ADJOINT"),
        (lambda s: ops.RngBitGenerator("RNG_THREE_FRY", s, "u32[4]"), "u64[2]", "=rng_three_fry"),
        (lambda s: ops.RngBitGenerator("philox", s, "u32[4]"), "u64[2]", "=rng_philox"),
        (lambda x: ops.Dot(x, x, "HIGHEST"), "f32[2]", "operand_precision={highest,highest}"),
        (lambda x: ops.Dot(x, x, xla.PrecisionConfig.HIGH), "f32[2]", "operand_precision={high,high}"),
        (
            lambda x: ops.Dot(x, x, xla.PrecisionConfig(operand_precision=cast("Any", [1, 2]))),
            "f32[2]",
            "operand_precision={high,highest}",
        ),
        (lambda x: ops.ConvertElementType(x, xla.BF16), "f32[2]", "bf16[2]{0} convert"),
    ],
)
def test_spellings_of_other_words(function: Any, shape: str, text: str) -> None:
    assert text in built(function, shape).to_text()


@pytest.mark.parametrize("word", ["three_fry", "threefry", "ThreeFry", "rng_three_fry", 1])
def test_spellings_of_an_algorithm(word: Any) -> None:
    text = built(lambda s: ops.RngBitGenerator(word, s, "u32[4]"), "u64[2]").to_text()
    assert "algorithm=rng_three_fry" in text


@pytest.mark.parametrize("kind", ["may-alias", "MUST_ALIAS", "kMayAlias"])
def test_kinds_of_aliases(kind: str) -> None:
    b = XlaBuilder("f")
    x = ops.Parameter(b, 0, "f32[2]")
    b.setup_alias((), 0, (), kind)
    text = b.build(ops.Sin(x)).to_text()
    assert ("must-alias" if "MUST" in kind else "may-alias") in text
    with pytest.raises(HloError) as caught:
        XlaBuilder("g").setup_alias((), 0, (), "shall-alias")
    assert caught.value.rule == "builder.enum-value"


@pytest.mark.parametrize("flag", ["upper", "no", 2, [True], 0.5])
def test_flags_are_true_or_false(flag: Any) -> None:
    def solve(a: XlaOp) -> XlaOp:
        return ops.TriangularSolve(a, a, flag, True, False)

    for function in (solve, lambda a: a.builder.emit("cholesky", [a], lower=flag)):
        assert rule_of(function, "f32[2,2]") == "builder.argument"
    assert "lower=true" in built(lambda a: ops.Cholesky(a, 1), "f32[2,2]").to_text()
