"""The page "Operation semantics" on conversions: BitcastConvertType, ConvertElementType, ReducePrecision."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hloom import ops
from tests.arrays import f32
from tests.pages.both import dtype, rule_of, shape_of, value

# -- BitcastConvertType


def test_a_bitcast_keeps_the_bytes() -> None:
    bits = np.array([0x3F800000, -1, 0x7F800001, 0], np.int32)
    found = value(lambda x: ops.BitcastConvertType(x, "f32"), bits)
    assert found.tobytes() == bits.tobytes()
    assert value(lambda x: ops.BitcastConvertType(x, "s32"), bits.view(f32)).tolist() == bits.tolist()


@pytest.mark.parametrize(
    ("before", "after", "operand", "result"),
    [
        ("f32", "f16", "[10]", "[10,2]"), ("f32", "f16", "[]", "[2]"), ("f16", "f32", "[10,2]", "[10]"),
        ("s32", "s8", "[3]", "[3,4]"), ("u8", "u64", "[2,8]", "[2]"), ("u64", "u8", "[2]", "[2,8]"),
        ("s32", "f32", "[2,3]", "[2,3]"), ("s16", "s4", "[5]", "[5,4]"), ("u4", "u32", "[8]", "[]"),
        ("f32", "f16", "[0]", "[0,2]"),
    ],
)  # fmt: skip
def test_the_last_dimension_has_the_ratio_of_the_widths(
    before: str, after: str, operand: str, result: str
) -> None:
    assert shape_of(lambda x: ops.BitcastConvertType(x, after), before + operand) == after + result
    back = shape_of(
        lambda x: ops.BitcastConvertType(ops.BitcastConvertType(x, after), before), before + operand
    )
    assert back == before + operand


@pytest.mark.parametrize("operand", ["f16[10,3]", "f16[10]", "f16[]", "f16[2,10]"])
def test_a_wider_type_needs_a_last_dimension_of_the_ratio(operand: str) -> None:
    assert rule_of(lambda x: ops.BitcastConvertType(x, "f32"), operand) == "bitcast-convert.last-dimension"


def test_bytes_of_other_widths_are_those_of_memory() -> None:
    x = np.array([1.5, -2.25, np.inf], f32)
    halves = value(lambda x: ops.BitcastConvertType(x, "u16"), x)
    assert (halves == x.view(np.uint16).reshape(3, 2)).all()
    assert (value(lambda h: ops.BitcastConvertType(h, "f32"), halves) == x).all()
    octets = value(lambda x: ops.BitcastConvertType(x, "u8"), np.array([[1, -2]], np.int64))
    assert (octets == np.array([[1, -2]], np.int64).view(np.uint8).reshape(1, 2, 8)).all()


def test_tuples_are_not_converted() -> None:
    for function in (ops.BitcastConvertType, ops.ConvertElementType):
        assert rule_of(lambda x, f=function: f(ops.Tuple([x]), "f32"), "f32[]")
        assert rule_of(lambda x, f=function: f(x, "tuple"), "f32[]")


# -- ConvertElementType


def test_conversion_is_element_by_element_as_a_static_cast() -> None:
    x = np.array([[0, 1, -2], [2**24 + 1, -(2**31), 2**31 - 1]], np.int32)
    assert (value(lambda x: ops.ConvertElementType(x, "f32"), x) == x.astype(f32)).all()
    assert value(lambda x: ops.ConvertElementType(x, "s32"), f32([1.9, -1.9, 0.5])).tolist() == [1, -1, 0]
    assert shape_of(lambda x: ops.ConvertElementType(x, "bf16"), "s8[2,3]") == "bf16[2,3]"


@pytest.mark.parametrize("target", ["f32", "f16", "bf16"])
def test_integers_round_to_the_nearest_float_ties_to_even(target: str) -> None:
    mantissa = int(ml_dtypes.finfo(dtype(target)).nmant) + 1
    ties = np.array([(1 << mantissa) + 1, (1 << mantissa) + 3, -(1 << mantissa) - 1], np.int32)
    wanted = [1 << mantissa, (1 << mantissa) + 4, -(1 << mantissa)]
    found = value(lambda x: ops.ConvertElementType(x, target), ties)
    assert found.astype(np.float64).tolist() == wanted


# -- ReducePrecision


def reduced(values: object, exponent_bits: int, mantissa_bits: int) -> np.ndarray:
    return value(lambda x: ops.ReducePrecision(x, mantissa_bits, exponent_bits), np.asarray(values))


@pytest.mark.parametrize(("exponent_bits", "mantissa_bits", "name"), [(5, 10, "f16"), (8, 7, "bf16")])
def test_reduced_numbers_are_those_of_the_narrow_format(
    exponent_bits: int, mantissa_bits: int, name: str
) -> None:
    x = np.random.default_rng(0).integers(0, 1 << 32, 4000, np.uint64).astype(np.uint32).view(f32)
    smallest = float(ml_dtypes.finfo(dtype(name)).smallest_normal)
    x = x[(np.abs(x) >= smallest) & ~np.isnan(x)]
    with np.errstate(over="ignore"):
        wanted = x.astype(dtype(name)).astype(f32)
    assert (reduced(x, exponent_bits, mantissa_bits) == wanted).all()


def test_ties_go_to_the_even_mantissa_and_large_numbers_to_infinity() -> None:
    assert reduced(f32([1.125, 1.375, -1.125]), 8, 2).tolist() == [1.0, 1.5, -1.0]
    assert reduced(f32([65519, 65520, -1e30, np.inf]), 5, 10).tolist() == [65504, np.inf, -np.inf, np.inf]
    assert np.isnan(reduced(f32([np.nan, -np.nan]), 5, 10)).all()


def test_more_bits_than_the_type_has_change_nothing() -> None:
    x = np.array([1.1, -3e38, 1e-45, 0.0], f32)
    assert reduced(x, 11, 52).tobytes() == x.tobytes()
    assert reduced(x, 8, 30).tobytes() == x.tobytes()
    wide = reduced(np.array([1.1, 1e300]), 11, 23)
    assert wide[0] == f32(1.1)
    assert abs(wide[1] / 1e300 - 1) <= 2.0**-24


def test_a_format_has_an_exponent_and_a_mantissa_that_is_not_negative() -> None:
    assert rule_of(lambda x: ops.ReducePrecision(x, 3, 0), "f32[2]").startswith("reduce-precision.")
    assert rule_of(lambda x: ops.ReducePrecision(x, -1, 5), "f32[2]").startswith("reduce-precision.")
    assert rule_of(lambda x: ops.ReducePrecision(x, 3, 5), "s32[2]").startswith("reduce-precision.")
    assert reduced(f32([1.4, 1.6, 3.5]), 8, 0).tolist() == [1, 2, 4]
