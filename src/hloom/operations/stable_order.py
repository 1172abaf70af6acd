"""The stable order of lines of elements under any comparator, in few calls on whole arrays.

Most comparators compare one operand, or several lexicographically, in ascending or descending order.
Therefore the orders of numpy's sorts are tried first: an order is the stable one if no element precedes its
predecessor and equal elements keep their order, which two calls of the comparator verify. For other
comparators, a merge sort merges all pairs of runs of all lines in one step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from hloom.ir.operation import Array, Run
from hloom.operations.comparison import total_order_key
from hloom.operations.rounding import widen
from hloom.shape.element_type import ElementType

_SMALL = 32
"""Maximum length of a line that is merge sorted without trying likely orders first."""


class Comparator:
    """The comparator of a sort, on arrays.

    Attributes:
        used: numbers of the operands whose elements it reads.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        computation = run.instruction.called_computations[0]
        live = [bool(p.users) or p is computation.root for p in computation.parameters]
        self.used = [i for i in range(len(live) // 2) if live[2 * i] or live[2 * i + 1]]

    def before(self, rows: Sequence[Array], first: Array, second: Array) -> Array:
        """Return for each pair of indices whether the element at ``first`` precedes that at ``second``."""
        arguments: list[Array] = []
        for number, row in enumerate(rows):
            if number in self.used:
                arguments += [np.take_along_axis(row, first, -1), np.take_along_axis(row, second, -1)]
            else:
                arguments += [row[0, 0], row[0, 0]]
        result = self.run.map(0, *arguments)
        return np.broadcast_to(np.asarray(result), first.shape)


def stable_order(rows: Sequence[Array], comparator: Comparator) -> Array:
    """Return for each line the indices of its elements in stable order.

    Args:
        rows: for each operand an array of (lines, elements), none of them 0.
        comparator: of these operands.
    """
    length = rows[0].shape[-1]
    if length > _SMALL:
        for order in _likely_orders([rows[number] for number in comparator.used]):
            if _is_stable_order(rows, order, comparator):
                return order
    return _merge_sort(rows, comparator)


def order_keys(values: Array, *, merge_equal: bool = False) -> Array:
    """Return integers in the order of the values: numbers by value, floats in total order.

    Args:
        values: of any real type.
        merge_equal: treat -0 as 0 and every NaN as one that is greater than all others.
    """
    if merge_equal and ElementType.from_dtype(values.dtype).is_floating:
        values = widen(values)
        values = values + values.dtype.type(0)
        values[np.isnan(values)] = np.nan
    return total_order_key(values)


def _likely_orders(keys: Sequence[Array]) -> Iterator[Array]:
    """Yield the orders by these keys lexicographically, ascending and descending."""
    if not keys or any(ElementType.from_dtype(key.dtype).is_complex for key in keys):
        return
    for merge_equal in (True, False):
        numbers = [order_keys(key, merge_equal=merge_equal) for key in keys]
        for ascending in (numbers, [~number for number in numbers]):
            if len(ascending) == 1:
                yield np.argsort(ascending[0], -1, kind="stable")
            else:
                yield np.lexsort(ascending[::-1], -1)


def _is_stable_order(rows: Sequence[Array], order: Array, comparator: Comparator) -> bool:
    first, second = order[:, :-1], order[:, 1:]
    if comparator.before(rows, second, first).any():
        return False
    return bool((comparator.before(rows, first, second) | (first < second)).all())


def _merge_sort(rows: Sequence[Array], comparator: Comparator) -> Array:
    """Merge runs of 1, 2, 4 ... elements in pairs.

    A binary search gives, for every element of the right run, the number of left elements that are not after
    it. The elements of the left run take the remaining positions. For a comparator that is not a weak order
    the result is still a permutation.
    """
    lines, length = rows[0].shape
    places = np.arange(length, dtype=np.int64)
    order: Array = np.broadcast_to(places, (lines, length)).copy()
    width = 1
    while width < length:
        right: Array = places[places // width % 2 == 1]
        left_start: Array = (right // width - 1) * width
        low: Array = np.zeros((lines, len(right)), np.int64)
        high: Array = np.full((lines, len(right)), width)
        element: Array = order[:, right]
        for _ in range(width.bit_length()):
            open_ = low < high
            middle = (low + high) // 2
            probe: Array = np.take_along_axis(order, left_start + np.minimum(middle, width - 1), -1)
            earlier = comparator.before(rows, element, probe)
            high = np.where(open_ & earlier, middle, high)
            low = np.where(open_ & ~earlier, middle + 1, low)
        target: Array = np.maximum.accumulate(left_start + low, -1) + right - left_start - width
        merged: Array = np.empty_like(order)
        free = np.ones((lines, length), np.bool_)
        np.put_along_axis(free, target, False, -1)
        merged[free] = order[:, places // width % 2 == 0].reshape(-1)
        np.put_along_axis(merged, target, element, -1)
        order = merged
        width *= 2
    return order
