"""Elementwise operations whose compiled results are those of the evaluator, bit for bit, in every type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import hloom
from hloom.ir.operation import REGISTRY
from hloom.shape.element_type import ElementType
from tests import agreement
from tests.compiled_operation import Case, assert_as_evaluated, case
from tests.evaluation import parse
from tests.samples import ARRAY_TYPES, INTEGERS, sample

EXACT = (
    "add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "clamp", "negate", "abs",
    "sign", "floor", "ceil", "round-nearest-afz", "round-nearest-even", "is-finite", "sqrt", "real", "imag",
    "complex", "and", "or", "xor", "not", "shift-left", "shift-right-logical", "shift-right-arithmetic",
    "popcnt", "count-leading-zeros", "mulhi",
)  # fmt: skip
ROUNDED_FOR_COMPLEX = ("abs", "sign", "sqrt")


def examples(opcode: str, names: Iterator[str] | tuple[str, ...]) -> list[Case]:
    """The operation on samples of those types among the names for which its results are exact."""
    found: list[Case] = []
    operation: Any = REGISTRY[opcode]
    for name in names:
        kind = ElementType.parse(name)
        if kind in operation.accepts and not (kind.is_complex and opcode in ROUNDED_FOR_COMPLEX):
            count = len(operation.operand_names)
            found.append(case(opcode, *[sample(name, seed=k) for k in range(count)]))
    return found


@pytest.mark.parametrize("opcode", EXACT)
def test_every_type(opcode: str) -> None:
    """All special values of a type meet each other: zeros, infinities, NaN, subnormal, largest numbers."""
    assert_as_evaluated(examples(opcode, ARRAY_TYPES))


@pytest.mark.parametrize("name", [n for n in ARRAY_TYPES if n.startswith("f8")])
def test_results_in_registers_are_numbers_of_their_type(name: str) -> None:
    """Rounding up may leave a narrow type: 15.5 of f8e3m4 becomes infinity at once."""
    lines = [f"x = {name}[256] parameter(0)"]
    opcodes = ("negate", "abs", "ceil", "floor", "round-nearest-afz", "round-nearest-even")
    for number, opcode in enumerate(opcodes):
        lines.append(f"y{number} = {name}[256] {opcode}(x)")
        lines.append(f"z{number} = f32[256] convert(y{number})")
    results = ", ".join(f"z{number}" for number in range(len(opcodes)))
    lines.append(f"ROOT t = ({', '.join(['f32[256]'] * len(opcodes))}) tuple({results})")
    module = parse("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}")
    x = np.arange(256, dtype=np.uint8).view(ElementType.parse(name).numpy_dtype)
    agreement.same(hloom.compile(module)(x), hloom.compile(module, backend="evaluator")(x))


@pytest.mark.parametrize("lanes", [0, 2, 4, 32])
def test_any_number_of_lanes(lanes: int) -> None:
    names = ("s4", "u8", "s32", "u64", "f8e4m3fn", "bf16", "f16", "f32", "f64")
    for opcode in ("divide", "remainder", "maximum", "floor", "shift-left", "mulhi"):
        assert_as_evaluated(examples(opcode, names), lanes)


@pytest.mark.parametrize("lanes", [0, 8])
def test_integer_power(lanes: int) -> None:
    """Every bit of the exponent counts, and negative exponents leave a fraction."""
    assert_as_evaluated([case("power", sample(n, 256), sample(n, 256, seed=1)) for n in INTEGERS], lanes)


@pytest.mark.parametrize("direction", ["EQ", "NE", "GE", "GT", "LE", "LT"])
def test_comparisons(direction: str) -> None:
    names = [n for n in ARRAY_TYPES if direction in ("EQ", "NE") or not ElementType.parse(n).is_complex]
    attributes = f"direction={direction}"
    assert_as_evaluated(
        [case("compare", sample(n, 256), sample(n, 256, seed=1), attributes=attributes) for n in names]
    )


@pytest.mark.parametrize("direction", ["EQ", "GE", "LT"])
def test_total_order(direction: str) -> None:
    """-NaN < -infinity < ... < -0 < +0 < ... < infinity < NaN."""
    attributes = f"direction={direction}, type=TOTALORDER"
    assert_as_evaluated(
        [
            case("compare", sample(n), sample(n)[::-1].copy(), attributes=attributes)
            for n in ("bf16", "f32", "f64")
        ]
    )


def test_select_passes_on_bits() -> None:
    pred = sample("pred", 256)
    assert_as_evaluated([case("select", pred, sample(n, 256), sample(n, 256, seed=1)) for n in ARRAY_TYPES])


@pytest.mark.parametrize("pair", [("f32", "bf16"), ("f16", "f64"), ("f8e4m3fn", "bf16"), ("f64", "f32")])
def test_floats_of_two_types(pair: tuple[str, str]) -> None:
    """The result has the type of larger range or width, and is rounded once."""
    lhs, rhs = sample(pair[0]), sample(pair[1], seed=1)
    opcodes = ("add", "multiply", "divide", "maximum", "remainder")
    assert_as_evaluated([case(opcode, lhs, rhs) for opcode in opcodes])


def test_integer_division_does_not_trap() -> None:
    """By 0 all bits are set and the remainder is the dividend; MIN / -1 is MIN."""
    cases: list[Case] = []
    for name in INTEGERS:
        kind = ElementType.parse(name)
        low = kind.limits[0]
        lhs = np.array([low, low, 1, 1, low], np.int64).astype(kind.numpy_dtype)
        rhs = np.array([0, -1 if kind.is_signed else 1, 0, 1, 1], np.int64).astype(kind.numpy_dtype)
        cases += [case(opcode, lhs, rhs) for opcode in ("divide", "remainder")]
    for lanes in (0, 4):
        assert_as_evaluated(cases, lanes)


def test_every_pair_of_narrow_floats() -> None:
    """All pairs of 8-bit floats, rounded once from f32."""
    cases: list[Case] = []
    for name in ("f8e5m2", "f8e4m3fn", "f8e4m3b11fnuz", "f8e3m4", "f4e2m1fn"):
        values = sample(name, 256)
        lhs, rhs = (a.reshape(-1) for a in np.meshgrid(values, values))
        cases += [case(opcode, lhs, rhs) for opcode in ("add", "multiply", "divide")]
    assert_as_evaluated(cases)
