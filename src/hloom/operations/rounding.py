"""In which types operations compute, and how results are rounded to the element type that was asked for.

Floats narrower than f32 are computed in f32 and rounded once: but for subnormal results of bf16 that is the
correctly rounded value of + - * / and sqrt. Integers narrower than a byte are computed in a byte and wrapped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.ir.operation import Array
from hloom.shape.element_type import ElementType


def widen(array: Array) -> Array:
    """The array in the type it is computed in: at least f32 for floats, at least a byte for integers."""
    element_type = ElementType.from_dtype(array.dtype)
    if element_type.is_floating and element_type.bits < 32:
        return array.astype(np.float32)
    if element_type.is_integer and element_type.bits < 8:
        return array.astype(np.int8 if element_type.is_signed else np.uint8)
    return array


def double(array: Array) -> Array:
    """The array in f64 or c128, which every float or complex type fits exactly."""
    complex_ = ElementType.from_dtype(array.dtype).is_complex
    return array.astype(np.complex128 if complex_ else np.float64)


def narrow(array: Any, dtype: np.dtype[Any]) -> Array:
    """The array in the result's type: floats rounded to nearest even, integers wrapped."""
    result = np.asarray(array)
    if result.dtype == dtype:
        return result
    target = ElementType.from_dtype(dtype)
    if target.is_integer and target.bits < 8:
        return wrap(result, target.bits, target.is_signed).astype(dtype)
    if target.is_floating and target.bits < 32:
        return round_float(result, dtype)
    return result.astype(dtype)


def wrap(array: Array, bits: int, signed: bool) -> Array:
    """The low ``bits`` bits of integers, sign-extended if signed, as s8 or u8; ``bits`` is less than 8."""
    low = array.astype(np.uint8) & np.uint8((1 << bits) - 1)
    if not signed:
        return low
    sign = np.uint8(1 << (bits - 1))
    return ((low ^ sign) - sign).view(np.int8)


def round_float(array: Array, dtype: np.dtype[Any]) -> Array:
    """Floats rounded once to a type narrower than f32, to nearest, ties to even."""
    if array.dtype == np.float64 and dtype != np.float16:
        array = round_to_odd(array)
    return array.astype(dtype)


def round_to_odd(array: Array) -> Array:
    """The values of f64 in f32, such that rounding to fewer than 23 bits gives what rounding f64 gives.

    Towards zero, with the last bit set where that is inexact: neither tie nor exactness is feigned
    (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to
    odd", IEEE Transactions on Computers 57(4), 2008).
    """
    single = array.astype(np.float32)
    back = single.astype(np.float64)
    bits = single.view(np.uint32)
    inexact = (back != array) & ~np.isnan(array)
    truncated = bits - (inexact & (np.abs(back) > np.abs(array))).astype(np.uint32)
    return np.where(inexact, truncated | np.uint32(1), bits).view(np.float32)
