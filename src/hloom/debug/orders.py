"""Orders of inexact keys: which neighbours are decided, and the values that undecided ones may exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hloom.debug.bounded import Bounded, NoBound, distance
from hloom.debug.floating import Array, wide
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import WindowDimension
from hloom.operations.comparison import Compare
from hloom.operations.windows import dilated_and_padded


@dataclass(frozen=True)
class Order:
    """The order of an array along an axis.

    Attributes:
        axis: the axis, which is the last one in ``places`` and ``group``.
        places: for each place of the order, the place before sorting.
        group: numbers of runs of elements whose order among each other is undecided, different in each row.
        descending: whether the largest is first.
    """

    axis: int
    places: Array
    group: Array
    descending: bool

    def key_error(self, keys: Bounded) -> Array:
        """Return the error of each sorted key: the k-th of the numbers at one end of their intervals."""
        value, error = _rows(wide(keys.value), self.axis), _rows(keys.spread, self.axis)
        ends = [self._sorted(value + sign * error) for sign in (-1, 0, 1)]
        found = np.maximum(distance(ends[0], ends[1]), distance(ends[2], ends[1]))
        return np.moveaxis(found, -1, self.axis)

    def _sorted(self, rows: Array) -> Array:
        found = np.sort(rows, -1)
        return found[..., ::-1] if self.descending else found

    def beside(self, values: Bounded) -> Array:
        """Return the error of values that are moved along with the keys: that of all in their group."""
        value, error = (
            np.take_along_axis(_rows(x, self.axis), self.places, -1)
            for x in (wide(values.value).real, values.spread)
        )
        count = int(self.group.max(initial=-1)) + 1
        most, least = np.full(count, -np.inf), np.full(count, np.inf)
        np.maximum.at(most, self.group.reshape(-1), (value + error).reshape(-1))
        np.minimum.at(least, self.group.reshape(-1), (value - error).reshape(-1))
        sizes = np.bincount(self.group.reshape(-1), minlength=count)[self.group]
        span = np.maximum(distance(most[self.group], value), distance(least[self.group], value))
        return np.moveaxis(np.where(sizes > 1, span, error), -1, self.axis)


def order_of(keys: Bounded, axis: int, result: Any = None, *, descending: bool | None = None) -> Order | None:
    """Return the order of keys; None if a result is neither ascending nor descending."""
    rows, error = _rows(wide(keys.value), axis), _rows(keys.spread, axis)
    if np.iscomplexobj(rows) or np.isnan(rows).any():
        return None
    if descending is None:
        steps = _rows(wide(result), axis)
        rising = [bool((s * steps[..., 1:] >= s * steps[..., :-1]).all()) for s in (1, -1)]
        if not any(rising):
            return None
        descending = not rising[0]
    places = np.argsort(-rows if descending else rows, axis=-1, kind="stable")
    sign = -1 if descending else 1
    value, error = sign * np.take_along_axis(rows, places, -1), np.take_along_axis(error, places, -1)
    highest = np.maximum.accumulate(value + error, -1)[..., :-1]
    lowest = np.minimum.accumulate((value - error)[..., ::-1], -1)[..., ::-1][..., 1:]
    equal = (highest == lowest) & ~(error.any(-1, keepdims=True))
    begins = np.ones(value.shape, bool)
    begins[..., 1:] = (highest < lowest) | equal
    return Order(axis, places, np.cumsum(begins).reshape(begins.shape) - 1, descending)


def _rows(array: Array, axis: int) -> Array:
    return np.moveaxis(np.asarray(array), axis, -1)


def choice(operands: Sequence[Bounded], values: Sequence[Any], axes: tuple[int, ...]) -> list[Array] | None:
    """Return the errors of a reduction that chooses the element with the largest or smallest first part.

    None if its values are not those of one such element.
    """
    x, error = wide(operands[0].value), operands[0].spread
    if np.iscomplexobj(x) or np.isnan(x).any():
        return None
    for sign in (1, -1):
        chosen = np.ones(x.shape, bool)
        for operand, value in zip(operands, values, strict=True):
            chosen &= np.asarray(operand.value) == np.expand_dims(value, axes)
        if not (np.max(sign * x, axes) == sign * wide(values[0])).all() or not chosen.any(axes).all():
            continue
        least = np.max(sign * x - error, axes, keepdims=True)
        near = sign * x + error >= least
        found = [np.maximum(distance(np.max(sign * x + error, axes), sign * wide(values[0])),
                            distance(np.max(sign * x - error, axes), sign * wide(values[0])))]  # fmt: skip
        for operand, value in zip(operands[1:], values[1:], strict=True):
            apart = distance(operand.value, np.expand_dims(wide(value), axes)) + operand.spread
            found.append(np.max(np.where(near, apart, 0.0), axes))
        return found
    return None


def near_the_extreme(i: HloInstruction, x: Bounded, amount: Array) -> Array:
    """Return the amounts of windows at all places that a select-and-scatter may select, if several may be.

    Raises NoBound for another selection than that of the largest or smallest number.
    """
    operation: Any = i.operation
    window: tuple[WindowDimension, ...] = operation.window
    test = i.called_computations[0].root
    direction = test.operation.direction if isinstance(test.operation, Compare) else ""
    if direction not in ("GE", "GT", "LE", "LT") or test.operands[0].opcode != "parameter":
        raise NoBound(f"{i.opcode} %{i.name} selects inexact numbers by another comparison")
    swapped = test.operands[0] is not i.called_computations[0].parameters[0]
    sign = 1 if (direction[0] == "G") != swapped else -1
    index: Array = np.arange(x.value.size, dtype=np.int64)
    index = index.reshape(x.value.shape)
    base = dilated_and_padded(index, dict(enumerate(window)), np.array(-1))
    places = [
        base[tuple(
            slice(o * d.window_dilation, o * d.window_dilation + (n - 1) * d.stride + 1, d.stride)
            for o, n, d in zip(offset, amount.shape, window, strict=True)
        )]
        for offset in np.ndindex(*(d.size for d in window))
    ]  # fmt: skip
    candidates = np.stack(places)
    number, error = sign * wide(x.value).reshape(-1)[candidates], x.spread.reshape(-1)[candidates]
    least = np.max(np.where(candidates >= 0, number - error, -np.inf), axis=0)
    near = (candidates >= 0) & (number + error >= least)
    near &= near.sum(axis=0) > 1
    found: Array = np.zeros(x.value.size)
    np.add.at(found, candidates[near], np.broadcast_to(amount, candidates.shape)[near])
    return found.reshape(x.value.shape)
