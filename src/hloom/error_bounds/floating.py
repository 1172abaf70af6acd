"""Floats of every type in f64: magnitudes, units in the last place, roundoff, overflow."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from hloom.shape.element_type import ElementType

Array = np.ndarray[Any, Any]

_finfo: Any = ml_dtypes.finfo


def wide(array: object) -> Array:
    """Return the numbers in f64 or c128."""
    array = np.asarray(array)
    with np.errstate(all="ignore"):
        return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def component(dtype: Any) -> ElementType:
    """Return the element type of a numpy type; for a complex one that of its parts."""
    return ElementType.from_dtype(np.dtype(dtype)).component


def eps(dtype: Any) -> float:
    """Return the distance from 1 to the next number of a float type."""
    information = _finfo(component(dtype).numpy_dtype)
    return float(information.eps)


def ulp(sizes: Any, dtype: Any) -> Array:
    """Return the unit in the last place at numbers of these magnitudes; for infinity and NaN that at 0."""
    information = _finfo(component(dtype).numpy_dtype)
    held = np.clip(np.nan_to_num(np.abs(sizes), nan=0.0, posinf=0.0), 0, float(information.max))
    exponent = np.maximum(np.frexp(held)[1] - 1, int(information.minexp))
    return np.ldexp(1.0, exponent - int(information.nmant))


def same_bits(ours: Array, theirs: Array) -> Array:
    """Return a mask of the elements with equal bits, or NaN in both."""
    if ours.dtype.kind == "c":
        return same_bits(ours.real, theirs.real) & same_bits(ours.imag, theirs.imag)
    kind = ElementType.from_dtype(ours.dtype)
    if not kind.is_floating:
        return np.asarray(ours == theirs)
    unsigned: Any = np.dtype(f"u{kind.bytes}")
    bits = [np.ascontiguousarray(a).view(unsigned).reshape(a.shape) for a in (ours, theirs)]
    equal: Array = np.asarray(bits[0] == bits[1])
    if equal.all() or not (nan := np.isnan(wide(ours))).any():
        return equal
    return np.asarray(equal | (nan & np.isnan(wide(theirs))))


def just_overflowed(one: Array, other: Array, allowed: Any) -> Array:
    """Return a mask of pairs of an infinity (or NaN, in a type without it) and almost the largest number."""
    kind = ElementType.from_dtype(one.dtype)
    value, number = wide(one), wide(other)
    slack = np.maximum(allowed, ulp(number, one.dtype))
    beyond = np.isinf(value) & (np.sign(value) == np.sign(number))
    if not np.isinf(wide(np.array(np.inf).astype(one.dtype))):
        beyond |= np.isnan(value)
    return beyond & np.isfinite(number) & (kind.limits[1] - np.abs(number) <= slack)
