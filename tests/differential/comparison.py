"""Equality of results: bit for bit (any NaN for any NaN), or within a bound of each element."""

from __future__ import annotations

import numpy as np

from hloom.error_bounds.floating import just_overflowed, same_bits, ulp, wide
from hloom.shape.element_type import ElementType

from .case import EXACT, Tolerance
from .draw import Array


def differs(
    ours: Array, theirs: Array, tolerance: Tolerance, sizes: Array | None = None, bound: Array | None = None
) -> Array:
    """Return a mask of the elements in which two arrays of one type and shape differ beyond a tolerance.

    Args:
        sizes: the sum of the terms' magnitudes for each element, if the tolerance has terms.
        bound: the possible error of each element, if the tolerance is analysed.
    """
    kind = ElementType.from_dtype(ours.dtype)
    different = ~same_bits(ours, theirs)
    if not (kind.is_floating or kind.is_complex) or tolerance == EXACT:
        return different
    with np.errstate(all="ignore"):
        allowed = tolerance.ulps * ulp(np.abs(wide(ours)), ours.dtype) + (0.0 if bound is None else bound)
        if sizes is not None:
            allowed = allowed + tolerance.terms * ulp(bounded(sizes), ours.dtype)
        near = np.abs(wide(ours) - wide(theirs)) <= allowed
        if kind.is_complex:
            # A number with an infinite or NaN part has no magnitude: each part is compared separately.
            parts = [
                differs(a, b, tolerance) for a, b in ((ours.real, theirs.real), (ours.imag, theirs.imag))
            ]
            near |= ~(parts[0] | parts[1])
        else:
            near |= just_overflowed(ours, theirs, allowed) | just_overflowed(theirs, ours, allowed)
    return different & ~near


def bounded(sizes: Array) -> Array:
    """Return sums of magnitudes in f64, overflowed ones as the largest number."""
    largest = ElementType.from_dtype(sizes.dtype).component.limits[1]
    return np.nan_to_num(np.abs(wide(sizes)), nan=largest, posinf=largest)
