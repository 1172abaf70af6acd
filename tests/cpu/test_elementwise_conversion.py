"""Conversions by compiled code: what the evaluator gives, bit for bit, between all types."""

from __future__ import annotations

import numpy as np
import pytest

from compiled_operation import assert_as_evaluated, case, compiled
from one_operation import array, every
from samples import ARRAY_TYPES, FLOATS, sample


@pytest.mark.parametrize("source", ARRAY_TYPES)
def test_between_all_types(source: str) -> None:
    """Floats saturate in integers and NaN is 0 there; integers wrap; everything else is rounded once."""
    assert_as_evaluated([case("convert", sample(source, 384), result=target) for target in ARRAY_TYPES])


@pytest.mark.parametrize("source", ["f16", "bf16"])
def test_every_value_of_16_bits(source: str) -> None:
    targets = ("f8e5m2", "f8e4m3fn", "f8e4m3", "f8e3m4", "f8e8m0fnu", "f4e2m1fn", "f32", "s8", "u16")
    assert_as_evaluated([case("convert", every(source), result=target) for target in targets])


def test_f64_is_rounded_once() -> None:
    """A little more than half of the last place: rounding to f32 first would make it a tie."""
    halves = [1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-11 + 2.0**-40, -1 - 2.0**-8 - 2.0**-40, 448.0 + 16 + 1e-9]
    values = np.array(halves)
    assert_as_evaluated([case("convert", values, result=target) for target in ("bf16", "f16", "f8e4m3fn")])
    assert compiled("convert", values[:1], result="bf16")[0] == array("bf16", [1 + 2.0**-7])[0]


def test_long_integers_are_rounded_once() -> None:
    values = np.array(
        [2**24 + 1, 2**31 - 1, 257, -(2**24) - 2**16 - 1, 2**62 + 2**54 + 1, -(2**63)], np.int64
    )
    sources = [values, values.astype(np.uint64), values.astype(np.int32), values.astype(np.uint32)]
    targets = ("bf16", "f16", "f32", "f64")
    assert_as_evaluated([case("convert", source, result=target) for source in sources for target in targets])


@pytest.mark.parametrize(
    "bits", [(5, 10), (8, 7), (4, 3), (1, 2), (11, 0), (2, 0), (8, 23), (11, 52), (3, 5)]
)
def test_reduce_precision(bits: tuple[int, int]) -> None:
    """Ties go to the even pattern, what is too large becomes infinite, what is too small 0."""
    attributes = f"exponent_bits={bits[0]}, mantissa_bits={bits[1]}"
    assert_as_evaluated([case("reduce-precision", sample(name), attributes=attributes) for name in FLOATS])


@pytest.mark.parametrize("name", ["f64", "f32", "bf16", "f16", "f8e5m2"])
def test_stochastic_convert(name: str) -> None:
    bits = {"f64": 64, "f32": 32, "bf16": 16, "f16": 16, "f8e5m2": 8}[name]
    random = sample(f"u{bits}", seed=1)
    targets = ("bf16", "f8e4m3fn", "f32", "s8", "u32", "s4")
    assert_as_evaluated(
        [case("stochastic-convert", sample(name), random, result=target) for target in targets]
    )
