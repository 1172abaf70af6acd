"""Values with error bounds: their leaves, values, errors and distances."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

from hloom.error_bounds.floating import Array, wide
from hloom.ir.value import Value
from hloom.records import dataclass
from hloom.shape.element_type import ElementType

MOST_STEPS: Final = 2.0**31 - 1
"""An integer with an error at least this large is undecided: its error counts as infinite."""


@dataclass(frozen=True)
class Bounded:
    """An array (or token) and the largest error of each element in f64; None if all are exact.

    The error of a predicate is 1 where rounding decides it; the error of an integer is a distance.
    """

    value: Any
    error: Array | None = None

    @property
    def spread(self) -> Array:
        """Return the errors as an array, zeros if the value is exact."""
        return np.zeros(np.shape(self.value)) if self.error is None else self.error


Tree: TypeAlias = "Bounded | tuple[Tree, ...]"
"""A value with error bounds: an array, or a tuple of values."""
Bounds: TypeAlias = "Array | float | tuple[Bounds, ...]"
"""The largest error of each element of a value, in the form of the value; a number holds for all elements."""


def leaves(value: Tree) -> list[Bounded]:
    """Return the arrays of a value."""
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, tuple) else [value]


def plain(value: Tree) -> Value:
    """Return a value without its bounds."""
    return tuple([plain(part) for part in value]) if isinstance(value, tuple) else value.value


def exact(value: Any) -> Tree:
    """Return a value whose errors are 0."""
    return tuple([exact(part) for part in parts_of(value)]) if isinstance(value, tuple) else Bounded(value)


def errors(value: Tree) -> Bounds:
    """Return the bounds of a value in its form; 0 where it is exact."""
    return tuple([errors(part) for part in value]) if isinstance(value, tuple) else value.spread


def parts_of(value: Any) -> tuple[Any, ...]:
    """Return the elements of a tuple."""
    return value


def finite(array: object) -> Array:
    """Return magnitudes in f64; infinities and NaN, which must match for any bound, count as 0."""
    return np.nan_to_num(np.abs(wide(np.asarray(array))), nan=0.0, posinf=0.0)


def distance(a: object, b: object) -> Array:
    """Return the distance of numbers in f64: 0 for equal ones and two NaN, infinite for one NaN."""
    x, y = wide(a), wide(b)
    apart = np.abs(x - y)
    return np.where(
        (x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.nan_to_num(apart, nan=np.inf, posinf=np.inf)
    )


def is_inexact_type(array: Any) -> bool:
    """Return whether an array is of floats or complex numbers."""
    if not hasattr(array, "dtype"):
        return False
    kind = ElementType.from_dtype(array.dtype)
    return kind.is_floating or kind.is_complex


def bounded(value: Any, error: Any) -> Bounded:
    """Return a value with its errors, exact if all are 0; an unknown (NaN) error is infinite."""
    spread = np.broadcast_to(np.nan_to_num(error, nan=np.inf, posinf=np.inf), np.shape(value))
    if np.asarray(value).dtype.kind in "iu":
        spread = np.where(spread >= MOST_STEPS, np.inf, spread)
    return Bounded(value, spread if spread.any() else None)
