"""The elements that updates of a scatter may replace, where its indices depend on the program's arguments.

An element that a scatter updates is a polynomial: for each place at which an update may replace it, its
change there times a predicate, whether the update is there, that is, whether its indices equal those of the
element. So a scatter is equal to a selection by comparisons with an iota.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np

from hloom.ir.operation import Array
from hloom.operations.gather_scatter import Scatter
from hloom.proofs import field
from hloom.proofs.addressing import others, starts_of
from hloom.proofs.degrees import Degree, largest, product, total
from hloom.proofs.field import Residues
from hloom.proofs.prints import Prints
from hloom.records import dataclass

MOST_DESTINATIONS: Final = 1 << 12
"""Maximum number of destinations of updates that are looked at."""
MOST_CHANGES: Final = 1 << 24
"""Maximum number of elements of all of them."""

Equality: TypeAlias = Callable[[Residues, Residues], Residues]
"""Returns whether integers are equal to known numbers."""

Combine: TypeAlias = Callable[[Prints, Prints], Prints]
"""Combines elements with their updates."""


@dataclass(frozen=True, slots=True)
class Destination:
    """Elements that updates may replace, each by at most one of them.

    Attributes:
        region: the elements.
        updates: the numbers of their updates along each dimension of the updates, or 0 along it.
        is_there: whether the updates are there, which depends on the indices.
    """

    region: tuple[slice, ...]
    updates: tuple[Array, ...]
    is_there: Residues

    def change(self, old: Prints, updates: Prints, combine: Combine) -> tuple[Residues, Degree]:
        """Return how the elements change, by 0 if the updates are not there; and the degree of new ones."""
        before = old.moved(lambda array: array[self.region])
        update = updates.moved(lambda array: np.broadcast_to(array[self.updates], before.shape))
        after = combine(before, update)
        difference = field.subtract(after.residues, before.residues)
        return field.multiply(*np.broadcast_arrays(self.is_there, difference)), after.degree


class Places:
    """The places of the updates of a scatter.

    Args:
        operation: the scatter.
        sizes: the dimensions of the array that is updated.
        indices: the residues of the start indices of the updates.
        updates: the dimensions of the updates.
    """

    def __init__(
        self, operation: Scatter, sizes: Sequence[int], indices: Residues, updates: Sequence[int]
    ) -> None:
        rank, vector_axis = len(sizes), operation.index_vector_dim
        batching = dict(
            zip(operation.input_batching_dims, operation.scatter_indices_batching_dims, strict=True)
        )
        axes = sorted(operation.update_window_dims)
        window = others(rank, (*operation.inserted_window_dims, *operation.input_batching_dims))
        self.sizes = tuple(sizes)
        self.starts = starts_of(indices, vector_axis, operation.scatter_dims_to_operand_dims, batching)
        self.components = operation.scatter_dims_to_operand_dims
        self.axes = dict(zip(window, axes, strict=True))
        self.batch = others(len(updates), axes)
        self.paired = {axis - (axis > vector_axis): d for d, axis in batching.items()}
        self.widths = [updates[self.axes[d]] if d in self.axes else 1 for d in range(rank)]
        self.free = {n: updates[a] for n, a in enumerate(self.batch) if n not in self.paired}
        self.wide = {d: sizes[d] - self.widths[d] + 1 for d in self.components if self.widths[d] > 1}
        self.count = math.prod(self.free.values()) * math.prod(self.wide.values())

    @property
    def window_count(self) -> int:
        """The number of windows of updates."""
        return math.prod(self.free.values()) * math.prod(self.sizes[d] for d in self.paired.values())

    @property
    def fits(self) -> bool:
        """Return whether no window exceeds the array in any dimension."""
        return all(width <= size for width, size in zip(self.widths, self.sizes, strict=True))

    @property
    def count_of_firsts(self) -> int:
        """The number of positions at which a window may begin."""
        return math.prod(self.sizes[d] - self.widths[d] + 1 for d in self.components)

    def firsts(self) -> list[Residues]:
        """Return the start indices of the only window."""
        zero = np.zeros((), np.uint64)
        return [self.starts[d].reshape(()) if d in self.starts else zero for d in range(len(self.sizes))]

    @property
    def are_few(self) -> bool:
        """Return whether the destinations, and the elements of all, are within their limits."""
        return self.count <= MOST_DESTINATIONS and self.count * math.prod(self.sizes) <= MOST_CHANGES

    def each(self, equal: Equality) -> Iterator[Destination]:
        """Yield each destination.

        There is one for every slice that batch dimensions of the array do not number, and for every first
        position of slices that are wider than one element.
        """
        for numbers in itertools.product(*map(range, (*self.free.values(), *self.wide.values()))):
            slices, firsts = numbers[: len(self.free)], numbers[len(self.free) :]
            number = {n: np.asarray(k) for n, k in zip(self.free, slices, strict=True)}
            number |= {n: self._along(d, 0, self.sizes[d]) for n, d in self.paired.items()}
            chosen = tuple([number[n] for n in range(len(self.batch))])
            positions = dict(zip(self.batch, chosen, strict=True))
            positions |= {axis: self._along(d, 0, self.widths[d]) for d, axis in self.axes.items()}
            first = dict(zip(self.wide, firsts, strict=True))
            yield Destination(
                tuple([self._range(d, first) for d in range(len(self.sizes))]),
                tuple([positions[axis] for axis in range(len(positions))]),
                self._is_there(first, chosen, equal),
            )

    def changed(self, old: Prints, updates: Prints, combine: Combine, equal: Equality) -> Prints:
        """Return an array with the changes of all destinations."""
        residues, degrees = old.residues.copy(), [old.degree]
        for destination in self.each(equal):
            change, degree = destination.change(old, updates, combine)
            residues[destination.region] = field.add(residues[destination.region], change)
            degrees.append(degree)
        terms = total([largest(degrees)], self.count + 1)
        return Prints(residues, degree=product([terms, Degree(len(self.components))]))

    def _range(self, d: int, first: dict[int, int]) -> slice:
        """Return the elements along a dimension."""
        if d in self.paired.values() or (d in self.components and d not in first):
            return slice(0, self.sizes[d])
        return slice(first.get(d, 0), first.get(d, 0) + self.widths[d])

    def _is_there(self, first: dict[int, int], chosen: tuple[Array, ...], equal: Equality) -> Residues:
        """Return whether the slices of some numbers begin at each first position."""
        result = np.asarray(field.ONE)
        for d in self.components:
            start = self.starts[d][chosen]
            begin = self._along(d, *((first[d], first[d] + 1) if d in first else (0, self.sizes[d])))
            begin, start = np.broadcast_arrays(begin.astype(np.uint64), start)
            is_known = start < np.uint64(self.sizes[d])
            same = np.where(is_known, (begin == start).astype(np.uint64), equal(start, begin))
            result = field.multiply(*np.broadcast_arrays(result, same))
        return result

    def _along(self, d: int, start: int, stop: int) -> Array:
        """Return numbers along a dimension of the array."""
        return np.arange(start, stop).reshape([-1 if d == e else 1 for e in range(len(self.sizes))])
