"""What counts as equal: bit for bit (any NaN for any NaN), or within some units in the last place."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from hloom.shape.element_type import ElementType

from .case import EXACT, Tolerance
from .draw import Array


def differs(ours: Array, theirs: Array, tolerance: Tolerance, sizes: Array | None = None) -> Array:
    """Where two arrays of one type and shape are not equal, within a tolerance.

    Args:
        sizes: where the tolerance has terms, the sum of the terms' sizes for each element.
    """
    kind = ElementType.from_dtype(ours.dtype)
    different = ~same_bits(ours, theirs)
    if not (kind.is_floating or kind.is_complex) or tolerance == EXACT:
        return different
    with np.errstate(all="ignore"):
        base = tolerance.terms * unit(bounded(sizes), kind.component) if sizes is not None else 0.0
        allowed = base + tolerance.ulps * unit(np.abs(wide(ours)), kind.component)
        if tolerance.whole and ours.size:
            largest = np.max(np.nan_to_num(np.abs(wide(ours)), posinf=0.0))
            allowed = allowed + tolerance.whole * unit(largest, kind.component)
        near = np.abs(wide(ours) - wide(theirs)) <= allowed
        if kind.is_complex:
            # Where one part is infinite or NaN, the number has no size: each part counts by itself.
            parts = [
                differs(a, b, tolerance) for a, b in ((ours.real, theirs.real), (ours.imag, theirs.imag))
            ]
            near |= ~(parts[0] | parts[1])
        else:
            near |= just_overflowed(ours, theirs, allowed) | just_overflowed(theirs, ours, allowed)
    return different & ~near


def same_bits(ours: Array, theirs: Array) -> Array:
    """Where bits are equal, or both are NaN."""
    if ours.dtype.kind == "c":
        return same_bits(ours.real, theirs.real) & same_bits(ours.imag, theirs.imag)
    kind = ElementType.from_dtype(ours.dtype)
    if not kind.is_floating:
        return np.asarray(ours == theirs)
    unsigned: Any = np.dtype(f"u{kind.bytes}")
    bits = [np.ascontiguousarray(a).view(unsigned).reshape(a.shape) for a in (ours, theirs)]
    return np.asarray((bits[0] == bits[1]) | (np.isnan(wide(ours)) & np.isnan(wide(theirs))))


def wide(array: Array) -> Array:
    """In f64 or c128."""
    with np.errstate(all="ignore"):
        return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def unit(sizes: Array, kind: ElementType) -> Array:
    """The unit in the last place of a float type at numbers of these sizes."""
    information: Any = ml_dtypes.finfo(kind.numpy_dtype)
    bounded = np.clip(np.nan_to_num(sizes, nan=0.0, posinf=0.0), 0, float(information.max))
    exponent = np.maximum(np.frexp(bounded)[1] - 1, int(information.minexp))
    return np.ldexp(1.0, exponent - int(information.nmant))


def bounded(sizes: Array) -> Array:
    """Sums of sizes in f64, overflowed ones as the largest number."""
    largest = ElementType.from_dtype(sizes.dtype).component.limits[1]
    return np.nan_to_num(np.abs(wide(sizes)), nan=largest, posinf=largest)


def just_overflowed(one: Array, other: Array, allowed: Array) -> Array:
    """Where one is infinite (or NaN, in a type without infinity) and the other nearly the largest number."""
    kind = ElementType.from_dtype(one.dtype)
    value, number = wide(one), wide(other)
    slack = np.maximum(allowed, unit(np.abs(number), kind))
    beyond = np.isinf(value) & (np.sign(value) == np.sign(number))
    if not np.isinf(wide(np.array(np.inf).astype(one.dtype))):
        beyond |= np.isnan(value)
    return beyond & np.isfinite(number) & (kind.limits[1] - np.abs(number) <= slack)
