"""Statistics of the elements of arrays, and values as text."""

from __future__ import annotations

import numpy as np

from hloom.error_bounds.floating import Array, wide
from hloom.errors import plural
from hloom.ir.value import Value
from hloom.records import dataclass
from hloom.shape.shape import Shape


@dataclass(frozen=True, slots=True)
class ArrayStatistics:
    """Statistics of the elements of an array.

    Attributes:
        shape: the shape, as text.
        elements: the number of elements.
        minimum, maximum, mean: statistics of the finite elements, of their magnitudes in a complex array;
            None if no element is finite.
        nans, infinities, zeros: the number of elements that are NaN, that are infinite, that are zero.
    """

    shape: str
    elements: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    nans: int
    infinities: int
    zeros: int

    def __str__(self) -> str:
        parts = [plural(self.elements, "element")]
        if self.minimum is not None:
            parts.append(f"min {self.minimum:.6g}, max {self.maximum:.6g}, mean {self.mean:.6g}")
        counts = {"NaN": self.nans, "inf": self.infinities}
        return ", ".join([*parts, *(f"{count} {name}" for name, count in counts.items() if count)])


def statistics_of(value: Array) -> ArrayStatistics:
    """Compute the minimum, maximum and mean of an array, and count its NaNs, infinities and zeros."""
    array = np.asarray(value)
    shape = Shape.of(array).to_string(layout=False)
    with np.errstate(all="ignore"):
        numbers: Array = np.abs(wide(array)) if array.dtype.kind == "c" else wide(array)
        finite = numbers[np.isfinite(numbers)]
        nans, infinities = int(np.isnan(numbers).sum()), int(np.isinf(numbers).sum())
        zeros = int((numbers == 0).sum())
        if not finite.size:
            return ArrayStatistics(shape, array.size, None, None, None, nans, infinities, zeros)
        least, most, mean = float(finite.min()), float(finite.max()), float(finite.mean())
    return ArrayStatistics(shape, array.size, least, most, mean, nans, infinities, zeros)


def flat(value: Value) -> list[Array]:
    """Return the arrays of a value in a list; the value is an array, a token or a nested tuple of these.

    Tokens are left out.
    """
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in flat(part)]
    return [] if value is None else [value]


def summary(value: Value) -> str:
    """Return a value as text: the elements of arrays of at most 8 elements, the statistics of larger ones.

    Tuples are in parentheses.
    """
    if isinstance(value, tuple):
        return "(" + ", ".join(summary(part) for part in value) + ")"
    if value is None:
        return "token"
    array = np.asarray(value)
    if array.size <= 8:
        return np.array2string(array, separator=", ", max_line_width=200).replace("\n", "")
    return str(statistics_of(array))
