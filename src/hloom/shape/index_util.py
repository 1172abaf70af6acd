"""XLA's names for indices into arrays in memory: class IndexUtil of index_util.h.

Thin functions over `hloom.shape.index`; `docs/xla-names.md` has the table. Unlike XLA's, they handle tiles
and padding: a position in the padding has no index.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from hloom.errors import ShapeError
from hloom.shape.index import linear_index, multi_index, physical_form
from hloom.shape.shape import Shape


def MultidimensionalIndexToLinearIndex(shape: Shape, multi: Sequence[int]) -> int:
    """Return the position in memory, in elements, of the element at an index; see `linear_index`."""
    return linear_index(shape, multi)


def LinearIndexToMultidimensionalIndex(shape: Shape, linear: int) -> tuple[int, ...] | None:
    """Return the index of the element at a position in memory, None in padding; see `multi_index`."""
    return multi_index(shape, linear)


def IndexInBounds(shape: Shape, index: Sequence[int]) -> bool:
    """Return whether an index has one number for each dimension, from 0 to the dimension's size."""
    numbers = _integers(index)
    return len(numbers) == shape.rank and all(
        0 <= number < size for number, size in zip(numbers, shape.dimensions, strict=True)
    )


def BumpIndices(shape: Shape, indices: Sequence[int]) -> tuple[int, ...] | None:
    """Return the next index in row-major order, independent of the layout; None after the last one.

    Raises ShapeError for an index that is not in the array.
    """
    if not IndexInBounds(shape, indices):
        raise ShapeError(f"{list(indices)} is not an index into {shape}", rule="index.in-bounds")
    numbers = list(_integers(indices))
    for dimension in reversed(range(shape.rank)):
        if numbers[dimension] + 1 < shape.dimensions[dimension]:
            numbers[dimension] += 1
            return tuple(numbers)
        numbers[dimension] = 0
    return None


def GetDimensionStride(shape: Shape, dimension: int) -> int:
    """Return how many elements of memory lie between neighbours along a dimension of an untiled array.

    Raises ShapeError for tiled arrays, where the distance varies.
    """
    form = physical_form(shape)
    if form.tilings:
        raise ShapeError(f"neighbours in {shape} have no one distance in memory", rule="index.untiled")
    stride = 1
    for number, size in zip(reversed(form.major_to_minor), reversed(form.padded), strict=True):
        if number == shape.axis(dimension):
            break
        stride *= size
    return stride


def CompareIndices(lhs: Sequence[int], rhs: Sequence[int]) -> int:
    """Return -1, 0 or 1: the lexicographic order of two indices of one length.

    Raises ShapeError for indices of different lengths.
    """
    first, second = _integers(lhs), _integers(rhs)
    if len(first) != len(second):
        message = f"indices of one length are compared, got {list(first)} and {list(second)}"
        raise ShapeError(message, rule="index.same-length")
    return (first > second) - (first < second)


def _integers(index: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(map(operator.index, index))
    except TypeError:
        raise ShapeError(
            f"an index is a sequence of integers, got {index!r}", rule="index.integers"
        ) from None
