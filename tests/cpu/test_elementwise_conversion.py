"""Conversions by compiled code: what the evaluator gives, bit for bit, between all types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom
from hloom.operations.rounding import convert
from hloom.shape.shape import Shape
from tests.compiled_operation import assert_as_evaluated, case, compiled
from tests.evaluation import parse
from tests.one_operation import array, every
from tests.samples import ARRAY_TYPES, FLOATS, sample


@pytest.mark.parametrize("source", ARRAY_TYPES)
def test_between_all_types(source: str) -> None:
    """Floats saturate in integers and NaN is 0 there; integers wrap; everything else is rounded once."""
    assert_as_evaluated([case("convert", sample(source, 384), result=target) for target in ARRAY_TYPES])


@pytest.mark.parametrize("source", ["f16", "bf16"])
def test_every_value_of_16_bits(source: str) -> None:
    targets = ("f8e5m2", "f8e4m3fn", "f8e4m3", "f8e3m4", "f8e8m0fnu", "f4e2m1fn", "f32", "s8", "u16")
    assert_as_evaluated([case("convert", every(source), result=target) for target in targets])


NARROW = ("f8e5m2", "f8e4m3fn", "f8e4m3", "f8e3m4", "f8e4m3fnuz", "f8e8m0fnu", "f4e2m1fn", "bf16", "f16")


def nans(name: str) -> np.ndarray[Any, Any]:
    """NaNs of a type with many payloads, quiet and signalling, of both signs."""
    if name in NARROW:
        return every(name)
    width, mantissa = (32, 23) if name == "f32" else (64, 52)
    integer = np.uint32 if width == 32 else np.uint64
    payload = np.random.default_rng(0).integers(1, 1 << mantissa, 256).astype(integer)
    payload[:5] = [
        1,
        1 << (mantissa - 1),
        (1 << mantissa) - 1,
        1 << (mantissa - 2),
        (1 << (mantissa - 1)) + 1,
    ]
    exponent = integer(((1 << (width - mantissa - 1)) - 1) << mantissa)
    pattern = np.concatenate([payload | exponent, payload | exponent | integer(1 << (width - 1))])
    return pattern.view(np.float32 if width == 32 else np.float64)


@pytest.mark.parametrize("source", [*NARROW, "f32", "f64"])
def test_nan_keeps_its_sign_and_is_quiet(source: str) -> None:
    """f16, f32 and f64 keep the upper bits of the payload, narrower types have one NaN of either sign."""
    values = nans(source)
    for target in (*NARROW, "f32", "f64"):
        found, wanted = (
            np.ascontiguousarray(x).view(np.uint8)
            for x in (compiled("convert", values, result=target), evaluated(values, target))
        )
        assert (found == wanted).all(), target


def evaluated(values: np.ndarray[Any, Any], target: str) -> np.ndarray[Any, Any]:
    with np.errstate(all="ignore"):
        return convert(values, Shape.parse(f"{target}[]").element_type.numpy_dtype)


@pytest.mark.parametrize("name", NARROW[:7])
def test_what_is_moved_keeps_its_bits(name: str) -> None:
    """Signalling NaNs of eight bits too."""
    values = every(name)
    shape = f"{name}[{len(values)}]"
    text = f"x = {shape} parameter(0)\nROOT r = {shape} reverse(x), dimensions={{0}}"
    moved = hloom.compile(parse(text))(values)
    assert (np.ascontiguousarray(moved).view(np.uint8) == values[::-1].view(np.uint8)).all()


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


def test_numbers_are_rounded_once() -> None:
    module = parse("x = f32[1000] parameter(0)\nROOT r = bf16[1000] convert(x)")
    code = hloom.compile(module).to_llvm()
    stores = code.count(" store <") + code.count("call void @llvm.masked.store")
    assert code.count("i32 32767") == stores > 1  # added by rounding: in the loop, and behind it
