"""Orders of inexact keys: runs of keys in undecided order, and the errors of the values they permute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hloom.error_bounds.bounded import Bounded, distance
from hloom.error_bounds.floating import Array, wide
from hloom.records import dataclass


@dataclass(frozen=True)
class Order:
    """The order of an array along an axis.

    Attributes:
        axis: the sorted dimension, moved to the end in ``permutation`` and ``group``.
        permutation: for each position after sorting, the position before.
        group: the number of the run of mutually undecided elements; numbers differ between rows.
        descending: whether the largest element is first.
    """

    axis: int
    permutation: Array
    group: Array
    descending: bool

    def key_error(self, keys: Bounded) -> Array:
        """Return the error of each sorted key, from the keys sorted at both ends of their intervals."""
        value, error = _rows(wide(keys.value), self.axis), _rows(keys.spread, self.axis)
        ends = [self._sorted(value + sign * error) for sign in (-1, 0, 1)]
        errors = np.maximum(distance(ends[0], ends[1]), distance(ends[2], ends[1]))
        return np.moveaxis(errors, -1, self.axis)

    def _sorted(self, rows: Array) -> Array:
        ascending = np.sort(rows, -1)
        return ascending[..., ::-1] if self.descending else ascending

    def beside(self, values: Bounded) -> Array:
        """Return the error of values permuted with the keys: the span of their group."""
        value, error = (
            np.take_along_axis(_rows(x, self.axis), self.permutation, -1)
            for x in (wide(values.value).real, values.spread)
        )
        count = int(self.group.max(initial=-1)) + 1
        most, least = np.full(count, -np.inf), np.full(count, np.inf)
        np.maximum.at(most, self.group.reshape(-1), (value + error).reshape(-1))
        np.minimum.at(least, self.group.reshape(-1), (value - error).reshape(-1))
        sizes = np.bincount(self.group.reshape(-1), minlength=count)[self.group]
        span = np.maximum(distance(most[self.group], value), distance(least[self.group], value))
        return np.moveaxis(np.where(sizes > 1, span, error), -1, self.axis)


def order_of(
    keys: Bounded, axis: int, result: object = None, *, descending: bool | None = None
) -> Order | None:
    """Return the order of keys; None for NaN, complex keys, and results neither ascending nor descending."""
    rows, error = _rows(wide(keys.value), axis), _rows(keys.spread, axis)
    if np.iscomplexobj(rows) or np.isnan(rows).any():
        return None
    if descending is None:
        steps = _rows(wide(result), axis)
        rising = [bool((s * steps[..., 1:] >= s * steps[..., :-1]).all()) for s in (1, -1)]
        if not any(rising):
            return None
        descending = not rising[0]
    permutation = np.argsort(-rows if descending else rows, axis=-1, kind="stable")
    sign = -1 if descending else 1
    value, error = (
        sign * np.take_along_axis(rows, permutation, -1),
        np.take_along_axis(error, permutation, -1),
    )
    highest = np.maximum.accumulate(value + error, -1)[..., :-1]
    lowest = np.minimum.accumulate((value - error)[..., ::-1], -1)[..., ::-1][..., 1:]
    equal = (highest == lowest) & ~(error.any(-1, keepdims=True))
    begins = np.ones(value.shape, bool)
    begins[..., 1:] = (highest < lowest) | equal
    return Order(axis, permutation, np.cumsum(begins).reshape(begins.shape) - 1, descending)


def _rows(array: Array, axis: int) -> Array:
    return np.moveaxis(np.asarray(array), axis, -1)


def choice(operands: Sequence[Bounded], values: Sequence[Any], axes: tuple[int, ...]) -> list[Array] | None:
    """Return the errors of a reduction that selects the element with the largest or smallest key (argmax).

    The first operand is the key. Returns None if the values are not the parts of one such element.
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
        ends = [np.max(sign * x + s * error, axes) for s in (1, -1)]
        errors = [np.maximum(*(distance(end, sign * wide(values[0])) for end in ends))]
        for operand, value in zip(operands[1:], values[1:], strict=True):
            apart = distance(operand.value, np.expand_dims(wide(value), axes)) + operand.spread
            errors.append(np.max(np.where(near, apart, 0.0), axes))
        return errors
    return None
