"""The types in which operations compute, and rounding and conversion to an element type.

Floats narrower than f32 are computed in f32 and rounded once: but for subnormal results of bf16 that is the
correctly rounded value of + - * / and sqrt. Integers narrower than a byte are computed in a byte and wrapped.
"""

from __future__ import annotations

import numpy as np

from hloom.ir.operation import Array
from hloom.shape.element_type import ElementType
from hloom.shape.float_format import float_format


def widen(array: Array) -> Array:
    """Widen to the type of computation: at least f32 for floats, at least a byte for integers."""
    if array.dtype.isbuiltin == 1 and array.dtype.char != "e":
        return array  # of numpy's own types only f16 is narrow
    element_type = ElementType.from_dtype(array.dtype)
    if element_type.is_floating and element_type.bits < 32:
        return array.astype(np.float32)
    if element_type.is_integer and element_type.bits < 8:
        return array.astype(np.int8 if element_type.is_signed else np.uint8)
    return array


def _quiet(array: Array) -> Array:
    """Return the f32 array with quiet NaNs."""
    absent = np.isnan(array)
    if not absent.any():
        return array
    bits = np.ascontiguousarray(array).view(np.uint32).reshape(array.shape)
    return np.where(absent, bits | np.uint32(0x400000), bits).view(np.float32)


def double(array: Array) -> Array:
    """Convert to f64 or c128, which hold every float or complex type exactly."""
    complex_ = ElementType.from_dtype(array.dtype).is_complex
    return array.astype(np.complex128 if complex_ else np.float64)


def narrow(array: object, dtype: np.dtype) -> Array:
    """Convert to the result's type: round floats to nearest even, wrap integers.

    In a type without NaN it becomes +0: the sign of a NaN that an operation makes is the processor's choice.
    """
    result = np.asarray(array)
    if result.dtype == dtype:
        return result
    target = ElementType.from_dtype(dtype)
    if target.is_integer and target.bits < 8:
        return wrap(result, target.bits, target.is_signed).astype(dtype)
    if target.is_floating and target.bits < 32:
        if not float_format(target).has_nan:
            result = np.where(np.isnan(result), result.dtype.type(0), result)
        return round_float(result, dtype)
    return result.astype(dtype)


def wrap(array: Array, bits: int, signed: bool) -> Array:
    """Return the low ``bits`` (less than 8) bits of integers as s8 or u8, sign-extended if signed."""
    low = array.astype(np.uint8) & np.uint8((1 << bits) - 1)
    if not signed:
        return low
    sign = np.uint8(1 << (bits - 1))
    return ((low ^ sign) - sign).view(np.int8)


def round_float(array: Array, dtype: np.dtype) -> Array:
    """Round floats once to a type narrower than f32, to nearest, ties to even."""
    if dtype == np.float16:
        return _quiet_half(array)
    if array.dtype == np.float64:
        array = round_to_odd(array)
    return array.astype(dtype)


def _quiet_half(array: Array) -> Array:
    """Round floats to f16; a NaN is quieted and keeps the upper bits of its payload (IEEE 754)."""
    half = np.asarray(array.astype(np.float16))
    absent = np.isnan(array)
    if absent.any():
        wide = np.uint64 if array.dtype == np.float64 else np.uint32
        bits = np.ascontiguousarray(array).view(wide).reshape(array.shape) >> (
            42 if wide is np.uint64 else 13
        )
        sign = np.signbit(array).astype(np.uint16) << 15
        quiet = sign | np.uint16(0x7E00) | (bits & 0x3FF).astype(np.uint16)
        half = np.where(absent, quiet, half.view(np.uint16)).view(np.float16)
    return half


def round_to_odd(array: Array) -> Array:
    """Round f64 to odd in f32, so that rounding on to fewer than 23 bits equals rounding f64 directly.

    Rounds towards zero and sets the last bit of an inexact result, which preserves ties and inexactness
    (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to
    odd", IEEE Transactions on Computers 57(4), 2008).
    """
    single = array.astype(np.float32)
    back = single.astype(np.float64)
    bits = single.view(np.uint32)
    inexact = (back != array) & ~np.isnan(array)
    truncated = bits - (inexact & (np.abs(back) > np.abs(array))).astype(np.uint32)
    return np.where(inexact, truncated | np.uint32(1), bits).view(np.float32)


def convert(array: Array, dtype: np.dtype) -> Array:
    """Convert the values to another element type, rounding once.

    Floats are truncated to integers, saturating, with NaN as 0; integers wrap; anything but 0 is true;
    imaginary parts are dropped or 0.
    """
    if array.dtype == dtype:
        return array
    target = ElementType.from_dtype(dtype)
    with np.errstate(all="ignore"):
        array = _quiet(widen(array)) if array.dtype.char == "e" else widen(array)
        if target.is_predicate:
            return array != 0
        if target.is_complex:
            return array.astype(dtype)
        if array.dtype.kind == "c":
            array = array.real
        if target.is_integer and array.dtype.kind == "f":
            return saturate(array, target)
        if target.is_floating and target.bits < 32:
            return round_float(integer_to_odd(array) if array.dtype.kind in "iu" else array, dtype)
        return narrow(array, dtype)


def saturate(array: Array, target: ElementType) -> Array:
    """Truncate floats to integers of a type, saturating; NaN becomes 0."""
    lowest = -(1 << (target.bits - 1)) if target.is_signed else 0
    end = 1 << (target.bits - 1 if target.is_signed else target.bits)
    truncated = np.trunc(array)
    above, below = truncated >= end, truncated < lowest
    inside = np.where(above | below | np.isnan(truncated), 0, truncated)
    wide = inside.astype(np.int64 if target.is_signed else np.uint64)
    limited = np.where(above, wide.dtype.type(end - 1), np.where(below, wide.dtype.type(lowest), wide))
    return narrow(limited, target.numpy_dtype)


def integer_to_odd(array: Array) -> Array:
    """Convert integers to f64, exactly up to 2^53, above with the last bit set if inexact."""
    if array.dtype.itemsize < 8:
        return array.astype(np.float64)
    eleven = array.dtype.type(11)
    tail = array & array.dtype.type(2047)
    odd = ((array >> eleven) | (tail != 0).astype(array.dtype)).astype(np.float64) * 2048.0
    small = (array < 1 << 53) & (array > -(1 << 53) if array.dtype.kind == "i" else np.True_)
    return np.where(small, array.astype(np.float64), odd)
