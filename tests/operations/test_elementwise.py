"""Rules that elementwise operations share: accepted operands and result shapes."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.ir.operation import REGISTRY
from hloom.operations.elementwise import Elementwise
from tests import agreement
from tests.arrays import f32
from tests.evaluation import evaluate, parse, refused
from tests.one_operation import apply, array, program, refusal

UNARY = sorted(o for o, c in REGISTRY.items() if issubclass(c, Elementwise) and len(c.operand_names) == 1)
BINARY = sorted(o for o, c in REGISTRY.items() if issubclass(c, Elementwise) and len(c.operand_names) == 2)
STATED = {"convert", "stochastic-convert"}


def shape_of(opcode: str, *shapes: str, attributes: str = "") -> str:
    return parse(program(opcode, *shapes, attributes=attributes)).entry.root.shape.to_string(layout=False)


def test_the_result_has_the_operands_shape() -> None:
    assert shape_of("add", "f32[2,3]", "f32[2,3]") == "f32[2,3]"
    assert shape_of("tanh", "bf16[]") == "bf16[]"
    assert shape_of("add", "f32[0,3]", "f32[0,3]") == "f32[0,3]"


@pytest.mark.parametrize(
    ("lhs", "rhs", "result"),
    [
        ("f32[<=2]", "f32[2]", "f32[<=2]"),
        ("f32[<=2]", "f32[<=2]", "f32[<=2]"),
        ("f32[?]", "f32[2]", "f32[2]"),
        ("f32[?]", "f32[<=4]", "f32[<=4]"),
        ("f32[?]", "f32[?]", "f32[?]"),
    ],
)
def test_a_dimension_is_dynamic_if_it_is_so_anywhere(lhs: str, rhs: str, result: str) -> None:
    assert shape_of("multiply", lhs, rhs) == result


@pytest.mark.parametrize(
    ("lhs", "rhs", "result"),
    [
        ("f32[2]", "bf16[2]", "f32[2]"),
        ("f16[2]", "bf16[2]", "bf16[2]"),
        ("bf16[2]", "f16[2]", "bf16[2]"),
        ("f8e5m2[2]", "f8e4m3fn[2]", "f8e5m2[2]"),
    ],
)
def test_of_two_float_types_the_one_of_larger_range_wins(lhs: str, rhs: str, result: str) -> None:
    assert shape_of("add", lhs, rhs) == result


def test_mixed_floats_are_added_in_the_wider_type() -> None:
    total = apply("add", array("f32", [1e-3]), array("bf16", [1.0]))
    agreement.equal(total, f32([1.001]))


@pytest.mark.parametrize("opcode", [*BINARY, "select", "clamp"])
def test_nothing_is_broadcast(opcode: str) -> None:
    kind = "s32" if opcode in ("and", "or", "xor", "mulhi") or opcode.startswith("shift") else "f32"
    operands = [f"{kind}[2]", f"{kind}[3]"]
    if len(REGISTRY[opcode].operand_names) == 3:
        operands.insert(0, "pred[2]" if opcode == "select" else operands[0])
    error = refusal(opcode, *operands, attributes="direction=EQ" if opcode == "compare" else "")
    assert error.rule == f"{opcode}.same-dimensions"


def test_ranks_are_equal() -> None:
    assert refusal("add", "f32[2]", "f32[]").rule == "add.same-dimensions"
    assert refusal("add", "f32[2]", "f32[2,1]").rule == "add.same-dimensions"


def test_integers_are_not_mixed() -> None:
    assert refusal("add", "s32[2]", "s16[2]").rule == "add.same-element-type"
    assert refusal("add", "f32[2]", "s32[2]").rule == "add.same-element-type"


REFUSED_TYPES = {
    "s32": "floor ceil round-nearest-even round-nearest-afz is-finite real imag sqrt rsqrt cbrt exponential "
    "exponential-minus-one log log-plus-one logistic sine cosine tan asin acos sinh cosh tanh asinh acosh "
    "atanh erf erfc",
    "f32": "not popcnt count-leading-zeros",
    "c64": "floor cbrt erf erfc is-finite not popcnt",
    "u32": "abs sign",
    "pred": "negate abs sign popcnt count-leading-zeros floor exponential",
}


@pytest.mark.parametrize(("kind", "opcodes"), REFUSED_TYPES.items())
def test_element_types_without_a_meaning_are_refused(kind: str, opcodes: str) -> None:
    for opcode in opcodes.split():
        assert refusal(opcode, f"{kind}[2]").rule == f"{opcode}.element-type"


@pytest.mark.parametrize(
    ("kind", "opcodes"),
    [
        ("pred", "subtract divide remainder power atan2 shift-left mulhi complex"),
        ("f32", "and or xor shift-left shift-right-logical shift-right-arithmetic mulhi"),
        ("s32", "atan2 complex"),
        ("bf16", "complex"),
        ("c64", "remainder and complex"),
    ],
)
def test_element_types_without_a_meaning_are_refused_in_pairs(kind: str, opcodes: str) -> None:
    for opcode in opcodes.split():
        assert refusal(opcode, f"{kind}[2]", f"{kind}[2]").rule == f"{opcode}.element-type"


def test_tuples_and_tokens_are_refused() -> None:
    assert refusal("negate", "(f32[2])").rule == "negate.operand-arrays"
    assert refusal("add", "token[]", "token[]").rule == "add.operand-arrays"


def test_a_stated_shape_must_agree() -> None:
    error = refused("x = f32[2] parameter(0)\nROOT y = f32[3] negate(x)")
    assert error.rule == "instruction.shape-matches"
    assert error.instruction == "y"


def test_dynamic_arrays_have_their_actual_size() -> None:
    text = "x = f32[<=4] parameter(0)\ny = f32[<=4] parameter(1)\nROOT z = f32[<=4] add(x, y)"
    total = evaluate(text, f32([1, 2]), f32([3, 4]))
    agreement.equal(total, f32([4, 6]))


@pytest.mark.parametrize("opcode", [o for o in UNARY if o not in STATED | {"reduce-precision"}])
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1, 1)])
def test_every_rank_and_size_works(opcode: str, shape: tuple[int, ...]) -> None:
    accepts = REGISTRY[opcode].accepts  # type: ignore[attr-defined]
    for element_type in accepts:
        operand = np.ones(shape, element_type.numpy_dtype)
        assert apply(opcode, operand).shape == shape


@pytest.mark.parametrize("opcode", [o for o in BINARY if o not in STATED])
@pytest.mark.parametrize("shape", [(), (0,), (2, 1)])
def test_every_rank_and_size_works_in_pairs(opcode: str, shape: tuple[int, ...]) -> None:
    attributes = "direction=EQ" if opcode == "compare" else ""
    for element_type in REGISTRY[opcode].accepts:  # type: ignore[attr-defined]
        operand = np.ones(shape, element_type.numpy_dtype)
        assert apply(opcode, operand, operand, attributes=attributes).shape == shape


@pytest.mark.parametrize("opcode", [o for o in UNARY if o not in STATED | {"reduce-precision"}])
def test_no_value_makes_numpy_warn_or_raise(opcode: str) -> None:
    values = [0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan, 1e38, -1e38, 1e-45, 710.0, -710.0]
    with np.errstate(all="raise"):
        for element_type in REGISTRY[opcode].accepts:  # type: ignore[attr-defined]
            if element_type.is_floating or element_type.is_complex:
                apply(opcode, array(element_type.name, values))


class TestResultAccuracy:
    """``result_accuracy`` is read, kept and printed; the evaluator is as accurate as it can be anyway."""

    def text(self, accuracy: str) -> str:
        body = f"x = f32[] parameter(0)\nROOT y = f32[] tanh(x), result_accuracy={accuracy}"
        return parse(body).to_text().split("tanh(%x)")[1].split("\n")[0]

    def test_modes(self) -> None:
        assert self.text("{mode=highest}") == ", result_accuracy={mode=highest}"
        assert self.text("{mode=HIGHEST}") == ", result_accuracy={mode=highest}"
        assert self.text("{mode=default}") == ""

    def test_tolerances(self) -> None:
        whole = ", result_accuracy={tolerance={atol=0,rtol=0.5,ulps=2}}"
        assert self.text("{tolerance={atol=0,rtol=0.5,ulps=2}}") == whole
        assert self.text("{tolerance={ulps=2, rtol=0.5}}") == whole

    @pytest.mark.parametrize(
        ("accuracy", "rule"),
        [
            ("{}", "text.syntax"),
            ("{mode=lowest}", "text.syntax"),
            ("{tolerance={ulps=1,ulps=2}}", "text.syntax"),
            ("{tolerance={precision=1}}", "text.syntax"),
            ("{tolerance={ulps=-2}}", "result-accuracy.tolerance"),
            ("{tolerance={rtol=nan}}", "result-accuracy.tolerance"),
        ],
    )
    def test_refused(self, accuracy: str, rule: str) -> None:
        error = refused(f"x = f32[] parameter(0)\nROOT y = f32[] tanh(x), result_accuracy={accuracy}")
        assert error.rule == rule
        assert error.line == 4

    def test_exact_functions_do_not_have_it(self) -> None:
        text = "x = f32[] parameter(0)\nROOT y = f32[] abs(x), result_accuracy={mode=highest}"
        assert refused(text).rule == "text.attribute"
