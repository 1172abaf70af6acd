"""Elementwise operations of two numbers, against Python's integers and exact fractions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloom.shape.element_type import ElementType
from tests import agreement
from tests.arrays import c64, f32
from tests.one_operation import apply, array, every, nearest, same

INTEGER_TYPES = ("s1", "s2", "s4", "s8", "s16", "s32", "s64", "u1", "u2", "u4", "u8", "u16", "u32", "u64")


def bounds(kind: ElementType) -> tuple[int, int]:
    if kind.is_signed:
        return -(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1
    return 0, (1 << kind.bits) - 1


def wrapped(value: int, kind: ElementType) -> int:
    """The integer of the type that is congruent to the value."""
    lowest, _ = bounds(kind)
    return (value - lowest) % (1 << kind.bits) + lowest


@st.composite
def integer_pairs(draw: Any) -> tuple[ElementType, list[tuple[int, int]]]:
    """Pairs of integers of one type, small ones and the ends of the range more often than chance has them."""
    kind = ElementType.parse(draw(st.sampled_from(INTEGER_TYPES)))
    lowest, highest = bounds(kind)
    near = st.integers(-9, 70).map(lambda value: wrapped(value, kind))
    ends = st.sampled_from([lowest, lowest + 1, highest - 1, highest]).map(lambda value: wrapped(value, kind))
    value = st.one_of(st.integers(lowest, highest), near, ends)
    return kind, draw(st.lists(st.tuples(value, value), min_size=1, max_size=12))


def check(opcode: str, drawn: tuple[ElementType, list[tuple[int, int]]], meaning: Any) -> None:
    kind, pairs = drawn
    lhs, rhs = (np.array([int(p[i]) for p in pairs], object).astype(kind.numpy_dtype) for i in (0, 1))
    result = apply(opcode, lhs, rhs)
    assert result.dtype == kind.numpy_dtype
    assert [int(r) for r in result] == [wrapped(meaning(a, b, kind), kind) for a, b in pairs]


def unsigned(value: int, kind: ElementType) -> int:
    return value % (1 << kind.bits)


def quotient(a: int, b: int, kind: ElementType) -> int:
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int, kind: ElementType) -> int:
    return a if b == 0 else a - b * quotient(a, b, kind)


def integer_power(a: int, b: int, kind: ElementType) -> int:
    if b >= 0:
        return pow(a, b, 1 << kind.bits)
    return {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)


def shifted_left(a: int, b: int, kind: ElementType) -> int:
    return a << unsigned(b, kind) if unsigned(b, kind) < kind.bits else 0


def shifted_right(a: int, b: int, kind: ElementType) -> int:
    return unsigned(a, kind) >> min(unsigned(b, kind), kind.bits)


def shifted_with_sign(a: int, b: int, kind: ElementType) -> int:
    pattern = unsigned(a, kind)
    negative = pattern - (1 << kind.bits) if pattern >> (kind.bits - 1) else pattern
    return negative >> min(unsigned(b, kind), kind.bits)


MEANINGS = {
    "add": lambda a, b, kind: a + b,
    "subtract": lambda a, b, kind: a - b,
    "multiply": lambda a, b, kind: a * b,
    "divide": quotient,
    "remainder": remainder,
    "maximum": lambda a, b, kind: max(a, b),
    "minimum": lambda a, b, kind: min(a, b),
    "power": integer_power,
    "and": lambda a, b, kind: a & b,
    "or": lambda a, b, kind: a | b,
    "xor": lambda a, b, kind: a ^ b,
    "shift-left": shifted_left,
    "shift-right-logical": shifted_right,
    "shift-right-arithmetic": shifted_with_sign,
    "mulhi": lambda a, b, kind: (a * b) >> kind.bits,
}


@pytest.mark.parametrize("opcode", MEANINGS)
@given(drawn=integer_pairs())
def test_integers(opcode: str, drawn: tuple[ElementType, list[tuple[int, int]]]) -> None:
    check(opcode, drawn, MEANINGS[opcode])


def test_integer_division_never_traps() -> None:
    lhs, rhs = array("s32", [7, -(2**31), -7, -7]), array("s32", [0, -1, 2, -2])
    assert apply("divide", lhs, rhs).tolist() == [-1, -(2**31), -3, 3]
    assert apply("remainder", lhs, rhs).tolist() == [7, 0, -1, -1]
    assert apply("divide", array("u8", [7]), array("u8", [0])).tolist() == [255]
    assert apply("remainder", array("u8", [7]), array("u8", [0])).tolist() == [7]


def test_integer_powers_use_every_bit_of_the_exponent() -> None:
    powers = apply("power", array("s32", [3, -1, -1, 1, 2, 0]), array("s32", [2**30 + 1, -3, -4, -5, -1, 0]))
    assert powers.tolist() == [wrapped(pow(3, 2**30 + 1, 2**32), ElementType.parse("s32")), -1, 1, 1, 0, 1]


def test_predicates() -> None:
    lhs, rhs = np.array([False, False, True, True]), np.array([False, True, False, True])
    either, both = [False, True, True, True], [False, False, False, True]
    for opcode in ("add", "or", "maximum"):
        assert apply(opcode, lhs, rhs).tolist() == either
    for opcode in ("multiply", "and", "minimum"):
        assert apply(opcode, lhs, rhs).tolist() == both
    assert apply("xor", lhs, rhs).tolist() == [False, True, True, False]


@pytest.mark.parametrize("opcode", ["add", "subtract", "multiply", "divide"])
@pytest.mark.parametrize("kind", ["f8e5m2", "f8e4m3fn", "f8e4m3", "f8e3m4"])
def test_narrow_floats_are_rounded_once(opcode: str, kind: str) -> None:
    lhs, rhs = np.meshgrid(every(kind), every(kind))
    exact = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide}[opcode]
    with np.errstate(all="ignore"):
        wanted = nearest(exact(lhs.astype(np.float64), rhs.astype(np.float64)), kind)
    same(apply(opcode, lhs, rhs), wanted)


@given(st.lists(st.tuples(*[st.floats(width=16)] * 2), min_size=1, max_size=50))
def test_halves_are_rounded_once(pairs: list[tuple[float, float]]) -> None:
    lhs, rhs = (array("f16", [p[i] for p in pairs]) for i in (0, 1))
    for opcode, exact in [("add", np.add), ("multiply", np.multiply), ("divide", np.divide)]:
        with np.errstate(all="ignore"):
            wanted = nearest(exact(lhs.astype(np.float64), rhs.astype(np.float64)), "f16")
        same(apply(opcode, lhs, rhs), wanted)


@given(st.lists(st.tuples(*[st.floats(width=32)] * 2), min_size=1, max_size=20))
def test_remainders_of_floats_are_exact(pairs: list[tuple[float, float]]) -> None:
    lhs, rhs = (array("f32", [p[i] for p in pairs]) for i in (0, 1))
    for a, b, r in zip(lhs.tolist(), rhs.tolist(), apply("remainder", lhs, rhs).tolist(), strict=True):
        if math.isinf(a) or b == 0 or math.isnan(a) or math.isnan(b):
            assert math.isnan(r)
        else:
            same(r, math.fmod(a, b))


def test_the_larger_and_the_smaller_of_zeros_and_nans() -> None:
    lhs, rhs = f32([0.0, -0.0, -0.0, np.nan, 1]), f32([-0.0, 0.0, -0.0, 1, np.nan])
    for kind in ("f32", "f64", "bf16", "f16"):
        same(apply("maximum", array(kind, lhs), array(kind, rhs)), [0.0, 0.0, -0.0, np.nan, np.nan])
        same(apply("minimum", array(kind, lhs), array(kind, rhs)), [-0.0, -0.0, -0.0, np.nan, np.nan])


def test_complex_numbers_are_ordered_by_their_parts() -> None:
    lhs, rhs = c64([1 + 5j, 2 + 1j]), c64([2 + 0j, 2 + 3j])
    assert apply("maximum", lhs, rhs).tolist() == [2 + 0j, 2 + 3j]
    assert apply("minimum", lhs, rhs).tolist() == [1 + 5j, 2 + 1j]


def test_powers_of_floats_have_the_special_cases_of_ieee_754() -> None:
    base = f32([0, -0.0, 1, np.nan, -1, -8, 2, np.inf, -np.inf, 0])
    exponent = f32([0, -3, np.nan, 0, np.inf, 1 / 3, 200, -1, 3, -1])
    wanted = [1, -np.inf, 1, 1, 1, np.nan, np.inf, 0, -np.inf, np.inf]
    same(apply("power", base, exponent), wanted)


def test_powers_of_floats_are_correctly_rounded() -> None:
    generator = np.random.default_rng(0)
    base = generator.uniform(0.1, 10, 500).astype(np.float32)
    exponent = generator.uniform(-20, 20, 500).astype(np.float32)
    wanted = [math.pow(a, b) for a, b in zip(base.tolist(), exponent.tolist(), strict=True)]
    agreement.equal(apply("power", base, exponent), f32(wanted))


def test_angles() -> None:
    y, x = f32([0, 0.0, -0.0, 1, -1, np.inf, 0]), f32([0, -1, -1, 0, 0, np.inf, -0.0])
    wanted = f32([0, np.pi, -np.pi, np.pi / 2, -np.pi / 2, np.pi / 4, np.pi])
    same(apply("atan2", y, x), wanted)


def test_complex_numbers_keep_the_bits_of_their_parts() -> None:
    made = apply("complex", f32([-0.0, np.inf, np.nan]), f32([np.inf, -0.0, 1]))
    assert made.dtype == np.complex64
    same(made.real, [-0.0, np.inf, np.nan])
    same(made.imag, [np.inf, -0.0, 1])
    assert apply("complex", np.float64(1), np.float64(2)).dtype == np.complex128


def test_mulhi_is_the_upper_half_of_the_whole_product() -> None:
    assert apply("mulhi", array("u64", [2**64 - 1]), array("u64", [2**64 - 1])).tolist() == [2**64 - 2]
    assert apply("mulhi", array("s64", [-(2**63)]), array("s64", [-(2**63)])).tolist() == [2**62]
