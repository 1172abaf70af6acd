"""Generators: a seed names the same programs for good, and every option of each family is drawn."""

from __future__ import annotations

import hashlib
import json
import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hloom.evaluate.evaluator import Evaluator
from hloom.fuzzing.generators import opcodes
from hloom.fuzzing.generators.case import Case, program
from hloom.fuzzing.generators.conversion import shape_of
from hloom.fuzzing.generators.draw import COMPLEX, EVERY, NARROW_FLOATS, Array, Draw, special_values
from hloom.fuzzing.generators.families import (
    CLIENT_FAMILIES,
    FAMILY_NAMES,
    MODULES,
    draw_case,
    foldable,
    round_robin,
)
from hloom.fuzzing.generators.scope import ArrayValue, ModuleScope, ModuleText
from hloom.fuzzing.generators.shardings import sharded
from hloom.fuzzing.generators.steps import (
    conversion,
    function,
    normalization,
    product,
    reducing,
    smooth_arithmetic,
)
from hloom.ir.module import HloModule
from hloom.shape.element_type import ElementType
from tests.arrays import c64, f32

SEED = 26
NAMED = 100
"""Programs of each family whose texts are recorded."""
DRAWN = 250
"""Programs of a family in which every option is looked for."""
RECORDED = Path(__file__).with_name("named_programs.json")


@cache
def cases(family: str) -> list[Case]:
    """Return the first programs of a family."""
    count = NAMED if family == MODULES or family not in {f for f, _, _ in REACH} else DRAWN
    return [draw_case(family, number, SEED) for number in range(count)]


def fingerprint(case: Case) -> bytes:
    """Return a digest of a program and its arguments."""
    digest = hashlib.sha256(program([case]).encode())
    for argument in case.arguments:
        digest.update(
            f"{argument.dtype} {argument.shape}".encode() + np.ascontiguousarray(argument).tobytes()
        )
    return digest.digest()


def named(family: str) -> str:
    """Return one digest of the first programs of a family."""
    whole = hashlib.sha256()
    for case in cases(family)[:NAMED]:
        whole.update(f"{case} {case.dynamic} {case.devices}".encode() + fingerprint(case))
    return whole.hexdigest()[:16]


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_a_name_and_a_seed_mean_the_same_program(family: str, request: pytest.FixtureRequest) -> None:
    """Pages of findings, known examples and the folders of sessions name programs by family, number and seed.

    A generator that draws others on purpose is recorded by ``--bless``, and the changelog says so.
    """
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    if request.config.getoption("--bless"):
        recorded[family] = named(family)
        RECORDED.write_text(json.dumps(dict(sorted(recorded.items())), indent=1) + "\n")
    assert named(family) == recorded[family]


# -- the reach of generators

DIRECTIONS = {"EQ", "NE", "LT", "LE", "GT", "GE"}
BOTH = {"true", "false"}
ASYNCHRONOUS = {"copy-start", "async-start", "async-update", "async-done"}


def numbers(low: int, high: int) -> set[str]:
    """Return the numbers from one to another, as text."""
    return {str(n) for n in range(low, high + 1)}


REACH: list[tuple[str, str, set[str]]] = [
    ("compare", r"direction=(\w+)", DIRECTIONS),
    ("reduce-precision", r"exponent_bits=(\d+)", numbers(1, 12)),
    ("reduce-precision", r"mantissa_bits=(\d+)", numbers(0, 25)),
    ("concatenate", r"concatenate\((.*)\)", {", ".join(f"@p{n}" for n in range(k)) for k in range(1, 6)}),
    ("slice", r"\d:(\d)\]", numbers(1, 3)),
    ("slice", r"\[(\d):", numbers(0, 9)),
    ("pad", r"(?:=|x)(-?\d)_", {str(n) for n in range(-3, 4)}),
    ("pad", r"_(\d)(?:x|$)", numbers(0, 2)),
    ("while", r"i = get-tuple-element\(a\), index=0\n  n = \w+\[\] constant\((\d)\)", numbers(0, 5)),
    ("while", r"r = tuple\((j, .*)\)", {"j, w, x", "j, x, w", "j, y, w", "j, w, y"}),
    ("while", r"w = (\w+)\(z\)", {"call", "copy"}),
    ("conditional", r"^conditional of (\d)$", numbers(1, 4)),
    ("calls", r"^(\w+)$", {"call", "fusion", "tuple", "barrier", "dependency"}),
    ("calls", r"index=(\d)$", numbers(0, 2)),
    ("collectives", r"^([\w-]+) \w+$", {
        "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute", "replica-id"}),
    ("collectives", r"all-gather.*replica_groups=([{}\d,]+),", {
        "{}", "{{0,1,2,3}}", "{{0,1},{2,3}}", "{{3,1},{0,2}}", "{{0},{1},{2},{3}}", "{{2,0,3,1}}"}),
    ("cholesky", r"lower=(\w+)", BOTH),
    ("triangular-solve", r"left_side=(\w+)", BOTH),
    ("triangular-solve", r" lower=(\w+)", BOTH),
    ("triangular-solve", r"unit_diagonal=(\w+)", BOTH),
    ("triangular-solve", r"transpose_a=(\w+)", {"NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"}),
    ("fft", r"fft_type=(\w+)", {"FFT", "IFFT", "RFFT", "IRFFT"}),
    ("fft", r"fft_length=\{(\d+)[,}]", numbers(1, 8) | {"16", "17", "27", "60", "64", "101"}),
    ("batch-norm", r"batch-norm-(\w+)\(", {"training", "inference", "grad"}),
    ("batch-norm", r"epsilon=([\d.]+)", {"0.5", "0.25", "1"}),
    ("rng-bit-generator", r"algorithm=(\w+)", {"rng_three_fry", "rng_philox", "rng_default"}),
    ("rng-bit-generator", r"\(u64\[(\d)\]", {"2", "3"}),
    ("sort", r"is_stable=(true)", {"true"}),
    ("sort", r"before0 = .*direction=(\w+)", {"LT", "GT"}),
    ("topk", r"largest=(\w+)", BOTH),
    ("topk", r"k=(\d+)", numbers(0, 12)),
    ("map", r"p = .*direction=(\w+)", {"LT", "GE", "EQ"}),
    ("map", r"big = (\w+)", {"maximum", "minimum"}),
    ("select", r"^(\w+) ", {"select", "clamp"}),
    ("select-and-scatter", r"direction=(\w+)", {"LT", "LE", "GT", "GE"}),
    ("scan", r"is_reverse=(true)", {"true"}),
    ("scan", r"is_associative=(true)", {"true"}),
    ("ragged-dot", r"lhs_ragged_dims=\{(\d)\}", numbers(0, 2)),
    ("asynchronous", r"(copy-start|async-\w+)\(", ASYNCHRONOUS),
    ("convolution", r"feature_group_count=(\d)", {"2", "3"}),
    ("convolution", r"batch_group_count=(\d)", {"2"}),
    ("convolution", r"window=\{size=(\d)", numbers(1, 3)),
    ("reduce-window", r"(lhs_dilate|rhs_dilate)", {"lhs_dilate", "rhs_dilate"}),
    ("dot", r"lhs_contracting_dims=\{([\d,]*)\}", {"", *numbers(0, 3), "0,1", "1,0", "2,1"}),
    ("iota", r"iota_dimension=(\d)", numbers(0, 2)),
    ("gather", r"index_vector_dim=(\d)", numbers(0, 4)),
    ("scatter", r"(input_batching_dims)", {"input_batching_dims"}),
    ("dynamic", r" (\w+)$", {
        "reduce", "size", "slice", "reverse", "sort", "dot", "window", "concatenate", "whole"}),
    ("modules", r"= .* ([a-z-]+)\(", {
        "while", "conditional", "call", "fusion", "opt-barrier", "sort", "scatter", "gather", "dot",
        "reduce-window", "map", "pad", "dynamic-update-slice", "bitcast-convert", "clamp", "rsqrt"}),
]  # fmt: skip


@pytest.mark.parametrize(("family", "pattern", "options"), REACH, ids=[f"{f} {p}" for f, p, _ in REACH])
def test_every_option_of_a_family_is_drawn(family: str, pattern: str, options: set[str]) -> None:
    """Of many programs some have each option; except of sizes and of opcodes, no other is drawn."""
    expression = re.compile(pattern, re.MULTILINE)
    texts = ("\n".join([c.operation, *c.computations, *c.lines]) for c in cases(family))
    matches = {match for text in texts for match in expression.findall(text)}
    assert options <= matches
    if family not in ("dot", MODULES):
        assert matches == options


# -- values of modules

INEXACT = (function, smooth_arithmetic, normalization, conversion, product, reducing)
"""Steps whose results have rounding errors."""


def inexact_values(number: int) -> tuple[Case, list[ArrayValue]]:
    """Return a program of inexact steps on whole numbers, and its values that have bounds."""
    draw = Draw(SEED, "bounds", number)
    s = ModuleScope(ModuleText(draw, 600, (2, 3, 5)))
    arguments = [draw.small_values("f32", sizes) for sizes in ((3, 5), (5, 2), (3, 5))]
    s.values = [ArrayValue(f"@p{n}", "f32", a.shape) for n, a in enumerate(arguments)]
    for _ in range(12):
        draw.one(INEXACT)(s)
    bounded = [v for v in s.values if not v.exact]
    return Case(
        f"bounds/{number}", "module", tuple(shape_of("f32", a.shape) for a in arguments), tuple(arguments),
        tuple(s.lines), tuple(v.name for v in bounded), tuple(s.writer.computations),
    ), bounded  # fmt: skip


def test_errors_of_values_are_within_their_bounds() -> None:
    """Compared with the same program in f64."""
    count = 0
    for number in range(30):
        case, values = inexact_values(number)
        if not values:
            continue
        text = program([case])
        wide = re.sub(r"\b(f32|bf16|f16)(?=\[)", "f64", text)
        results: Any = Evaluator().run(HloModule.from_text(text).entry, case.arguments)
        arguments = [a.astype(np.float64) for a in case.arguments]
        precise: Any = Evaluator().run(HloModule.from_text(wide).entry, arguments)
        for value, result, real in zip(values, results, precise, strict=True):
            assert (np.abs(real) <= value.limit + value.error).all(), (case, value)
            assert (np.abs(result.astype(np.float64) - real) <= value.error).all(), (case, value)
            count += 1
    assert count > 100


def test_values_that_are_summed_are_small_whole_numbers_without_negative_zeros() -> None:
    draw = Draw(SEED)
    s = ModuleScope(ModuleText(draw, 600, (3,)))
    x = f32([-0.0, 0.4, -0.4, 2.5, 3.5, -100, np.inf, -np.inf, np.nan, 1e-40])
    tamed = s.tamed(ArrayValue("@p0", "f32", x.shape))
    assert tamed.exact
    case = Case("taming/0", "module", ("f32[10]",), (x,), tuple(s.lines), (tamed.name,))
    results: Any = Evaluator().run(case.module.entry, [x])
    (result,) = results
    assert result.tolist() == [0, 0, 0, 2, 4, -4, 1, 1, 1, 0]
    assert not np.signbit(result[result == 0]).any()


@pytest.mark.parametrize(("limit", "lines"), [(15.9, 0), (16.0, 0), (16.1, 1), (math.inf, 1)])
def test_values_above_16_are_bounded_by_their_hyperbolic_tangent(limit: float, lines: int) -> None:
    s = ModuleScope(ModuleText(Draw(SEED), 600, (3,)))
    value = s.bounded(ArrayValue("@p0", "f32", (3,), limit, 0.5))
    assert len(s.lines) == lines
    assert value.limit == (1.0 if lines else limit)
    assert value.error == (0.5 + 2.0**-20 if lines else 0.5)


# -- numbers


@pytest.mark.parametrize("kind", EVERY)
def test_values_of_each_type(kind: str) -> None:
    """Small values are few whole numbers; any values have special ones, extremes and random bits, too."""
    draw, element = Draw(SEED, kind), ElementType.parse(kind)
    small = draw.small_values(kind, (400,))
    assert small.dtype == element.numpy_dtype
    parts = [small.real, small.imag] if element.is_complex else [small]
    for part in parts:
        values = set(np.unique(part.astype(np.float64)).tolist())
        if element.is_predicate:
            assert values == {0, 1}
        elif kind == "f8e8m0fnu":
            assert values == {0.25, 0.5, 1, 2, 4}
        else:
            low = 0 if element.is_unsigned else -4
            if element.is_integer:
                low = max(low, int(element.limits[0]))
            high = min(4, int(element.limits[1])) if element.is_integer else 4
            assert values == set(range(low, high + 1))
    every = draw.any_values(kind, (3000,))
    assert every.dtype == element.numpy_dtype
    if not element.is_predicate and not element.is_complex:
        patterns = set(
            every.reshape(-1).view(np.uint8 if element.bytes == 1 else f"u{element.bytes}").tolist()
        )
        special = special_values(element).reshape(-1).view(f"u{element.bytes}").tolist()
        assert set(special) <= patterns
        assert len(patterns) == 1 << element.bits if element.bits <= 4 else len(patterns) > 200


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("s4", [0, 1, 2, 3, -8, -7, 7, 6, 3, 3, 4, 5, -1, -2, -4]),
        ("u2", [0, 1, 2, 3, 0, 1, 3, 2, 1, 1, 2, 3]),
        ("u8", [0, 1, 2, 3, 0, 1, 255, 254, 127, 7, 8, 9]),
        ("s8", [0, 1, 2, 3, -128, -127, 127, 126, 63, 7, 8, 9, -1, -2, -8]),
    ],
)
def test_special_integers_are_limits_widths_and_their_neighbours(kind: str, values: list[int]) -> None:
    assert special_values(ElementType.parse(kind)).tolist() == values


def test_sizes_are_within_their_limits_and_reach_them() -> None:
    draw = Draw(SEED)
    sizes = [draw.sizes(low=1, high=3, largest=5, most=30) for _ in range(400)]
    assert {len(s) for s in sizes} == {1, 2, 3}
    assert {n for s in sizes for n in s} == {0, 1, 2, 3, 4, 5}
    assert max(math.prod(s) for s in sizes) == 30
    assert {draw.integer(2, 4) for _ in range(50)} == {2, 3, 4}
    assert {len(draw.subset("ab")) for _ in range(50)} == {0, 1, 2}
    assert sorted(draw.permutation(4)) == [0, 1, 2, 3]


def test_types_are_limited_where_a_generator_can_have_them() -> None:
    draw = Draw(SEED, types=("s8", "f64"))
    assert {draw.element_type(EVERY) for _ in range(40)} == {"s8", "f64"}
    assert {draw.element_type(("f32", "f16")) for _ in range(40)} == {"f32", "f16"}


# -- opcodes


@pytest.mark.parametrize(
    ("opcode", "kind", "exact", "rounding"),
    [
        ("add", "f32", True, True), ("multiply", "bf16", True, True), ("add", "s32", True, False),
        ("maximum", "f64", True, False), ("and", "pred", True, False), ("tanh", "f32", False, True),
        ("multiply", "c64", True, True), ("divide", "c64", False, True), ("add", "c64", True, True),
        ("power", "s32", True, False),
    ],
)  # fmt: skip
def test_what_rounds(opcode: str, kind: str, exact: bool, rounding: bool) -> None:
    """Exact operations have one result; those that round have one for each order of their elements."""
    assert opcodes.is_exact(opcode, kind) is exact
    assert opcodes.rounds(opcode, kind) is rounding


@pytest.mark.parametrize(
    ("kind", "reducers", "differences"),
    [
        ("pred", {"add", "and", "maximum", "minimum", "multiply", "or", "xor"}, set[str]()),
        ("s32", {"add", "and", "maximum", "minimum", "multiply", "or", "xor"}, {"subtract"}),
        ("f32", {"add", "maximum", "minimum", "multiply"}, {"subtract"}),
        ("c64", {"add", "multiply"}, {"subtract"}),
    ],
)
def test_associative_opcodes(kind: str, reducers: set[str], differences: set[str]) -> None:
    assert set(opcodes.reducers(kind)) == reducers
    assert set(opcodes.arithmetic(kind)) == reducers | differences


@pytest.mark.parametrize(
    ("opcode", "kind", "value"),
    [
        ("add", "f32", 0), ("multiply", "s8", 1), ("maximum", "s8", -128), ("minimum", "u8", 255),
        ("maximum", "f32", -math.inf), ("and", "u8", 255), ("multiply", "c64", 1), ("add", "c64", 0),
    ],
)  # fmt: skip
def test_neutral_elements(opcode: str, kind: str, value: float) -> None:
    neutral = opcodes.neutral(opcode, kind)
    assert neutral.dtype == ElementType.parse(kind).numpy_dtype
    assert neutral == value
    assert not np.signbit(neutral.real) or value < 0


def test_opcodes_that_stablehlo_lacks() -> None:
    pairs = opcodes.beyond_stablehlo()
    assert len(pairs) == len(set(pairs))
    assert {"acosh", "sinh", "mulhi", "log2"} <= {opcode for opcode, _ in pairs}
    assert {kind for opcode, kind in pairs if opcode == "real"} == {"bf16", "f16", *NARROW_FLOATS}
    assert {kind for opcode, kind in pairs if opcode == "maximum"} == set(COMPLEX)
    for opcode, kind in pairs:
        assert kind not in opcodes.types_of(opcode)


# -- families


def test_families_take_turns_by_weight() -> None:
    """Every case is drawn once, however a session is divided into groups."""
    families = ("unary", "select", "sort")
    assert [f for f, _ in round_robin(families, 9)] == ["unary"] * 6 + ["select"] + ["sort"] * 2
    assert round_robin(families, 12)[7:] == [
        ("sort", 0), ("sort", 1), ("unary", 6), ("unary", 7), ("unary", 8)]  # fmt: skip
    assert round_robin(families, 5) + round_robin(families, 7, 5) == round_robin(families, 12)


def test_families_beyond_the_client() -> None:
    beyond = {"functions", "scan", "ragged-dot", "stochastic-convert", "asynchronous", "sizes"}
    assert set(FAMILY_NAMES) - set(CLIENT_FAMILIES) == beyond


def case_of_argument(argument: Array, **changes: object) -> Case:
    fields: dict[str, object] = {"operation": "negate f32", "lines": ("@v0 = negate(@p0)",)}
    shape = shape_of(ElementType.from_dtype(argument.dtype).name, argument.shape)
    return Case("by hand/0", parameters=(shape,), arguments=(argument,), roots=("@v0",), **fields | changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("case", "in_corners", "else_"),
    [
        (case_of_argument(f32([1, np.nan])), True, True),
        (case_of_argument(c64([1 + 1e37j])), True, True),
        (case_of_argument(c64([1 + 1e38j])), False, False),
        (case_of_argument(c64([complex(1, np.nan)])), False, False),
        (case_of_argument(np.ones(1, ml_dtypes.float8_e8m0fnu)), False, False),
        (case_of_argument(f32([1]), replicas=2), False, False),
        (case_of_argument(f32([1]), dynamic=True), False, False),
        (case_of_argument(f32([1]), operation="divide s4"), True, False),
        (case_of_argument(f32([1]), operation="convert c64 f32"), True, False),
    ],
)
def test_cases_whose_arguments_may_be_constants(case: Case, in_corners: bool, else_: bool) -> None:
    assert foldable(case, Draw(SEED, restricted=False)) is in_corners
    assert foldable(case, Draw(SEED)) is else_


def test_few_cases_have_constants_and_more_of_the_corners() -> None:
    def folded(family: str) -> int:
        return sum(draw_case(family, number, SEED).folded for number in range(200))

    assert 10 <= folded("reverse") <= 40
    assert 50 <= folded("corners") <= 90


# -- shardings


def test_shardings_are_tilings_of_every_mesh() -> None:
    case = draw_case("modules", 3, SEED, fusions=False)
    partitions = set[int]()
    for seed in range(12):
        one = sharded(case, seed)
        partitions.add(one.partitions)
        stated = [i for i in one.module.instructions() if i.sharding is not None]
        assert stated
        assert one.lines == sharded(case, seed).lines
        one.module.verify()
    assert partitions == {2, 4}
