"""Shortest path between two regular tilings, by Dijkstra's algorithm.

A state is the axes of each dimension, major axis first. The moves are the steps of `plans.py`: an all-to-all
moves minor axes of one dimension to the end of another, an all-gather drops minor axes, a slice appends an
unused axis, a permutation assigns other axes with the same numbers of tiles. Tilings of many axes are not
searched.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from heapq import heappop, heappush
from itertools import permutations
from typing import Final, TypeAlias

from hloom.records import dataclass

State: TypeAlias = "tuple[tuple[int, ...], ...]"
"""The axes of each dimension, major axis first."""

MOST_AXES: Final = 5
"""Maximum number of axes of a search: 5 axes and 3 dimensions have about 5,000 states."""
_PERMUTED_EVERYWHERE: Final = 4
"""Maximum number of axes for which any move may be a permutation; else only the first and the last may."""


@dataclass(frozen=True, slots=True)
class Move:
    """A step of resharding, as a transition between states of the search.

    A state has, for each dimension, the mesh axes that shard the dimension, major axis first.

    Attributes:
        kind: "permute", "all-to-all", "all-gather" or "slice".
        after: the state after the move.
        source, target: the dimensions that an all-to-all moves axes from and to; for an all-gather ``source``
            is the gathered dimension. -1 if not applicable.
        axes: the axes that an all-to-all moves; empty for other kinds.
    """

    kind: str
    after: State
    source: int = -1
    target: int = -1
    axes: tuple[int, ...] = ()


def merged(
    sizes: Sequence[int], orders: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Merge mesh axes that always occur together; return the new sizes and ``orders``, with new axis numbers.

    Axes k and k + 1 are merged if each list in ``orders`` either has k directly followed by k + 1, or has
    neither of them.

    Args:
        sizes: the size of each axis.
        orders: lists of axis numbers, such as the axes that shard each dimension.
    """

    def are_one(k: int) -> bool:
        """Return true if each list in ``orders`` has axis k directly before k + 1, or has neither of them."""
        return all(
            (k in order) == (k + 1 in order) and (k not in order or order.index(k) + 1 == order.index(k + 1))
            for order in orders
        )

    groups: list[list[int]] = []
    for k in range(len(sizes)):
        if groups and are_one(k - 1):
            groups[-1].append(k)
        else:
            groups.append([k])
    number = {group[0]: n for n, group in enumerate(groups)}
    merged_orders = [tuple(number[k] for k in order if k in number) for order in orders]
    return tuple(math.prod(sizes[k] for k in group) for group in groups), merged_orders


@dataclass(frozen=True, slots=True)
class Search:
    """A search for the resharding steps that send the fewest elements and, among those, for the fewest steps.

    A state has, for each dimension, the mesh axes that shard the dimension, major axis first.

    Attributes:
        dimensions: the dimensions of the global array.
        sizes: the size of each axis.
        start, target: the states before and after resharding.
        fixed: the axes along which no data may move.
        limit: the steps found must send fewer elements per device than this.
    """

    dimensions: Sequence[int]
    sizes: Sequence[int]
    start: State
    target: State
    fixed: Collection[int]
    limit: int

    @property
    def movable(self) -> list[int]:
        return [k for k in range(len(self.sizes)) if k not in self.fixed]

    def shortest(self) -> list[Move] | None:
        """Return the resharding steps from ``start`` to ``target`` that send the fewest elements.

        Returns None if every path sends ``limit`` elements or more, or if there are more than `MOST_AXES`
        mesh axes.
        """
        if len(self.sizes) > MOST_AXES:
            return None
        best: dict[State, tuple[int, int]] = {self.start: (0, 0)}
        previous: dict[State, tuple[State, Move]] = {}
        heap: list[tuple[int, int, State]] = [(0, 0, self.start)]
        while heap:
            cost, count, state = heappop(heap)
            if state == self.target:
                return self._path(previous)
            if best[state] < (cost, count):
                continue
            for move, sent in self._moves(state):
                after = (cost + sent, count + 1)
                if after[0] < self.limit and after < best.get(move.after, (self.limit, 0)):
                    best[move.after] = after
                    previous[move.after] = (state, move)
                    heappush(heap, (*after, move.after))
        return None

    def _path(self, previous: dict[State, tuple[State, Move]]) -> list[Move]:
        moves: list[Move] = []
        state = self.target
        while state != self.start:
            state, move = previous[state]
            moves.append(move)
        return moves[::-1]

    def _count(self, axes: Sequence[int]) -> int:
        return math.prod(self.sizes[k] for k in axes)

    def _local(self, state: State) -> int:
        pairs = zip(self.dimensions, state, strict=True)
        return math.prod(-(-n // self._count(axes)) for n, axes in pairs)

    def _divides(self, d: int, axes: Sequence[int]) -> bool:
        return self.dimensions[d] % self._count(axes) == 0

    def _moves(self, state: State) -> Iterator[tuple[Move, int]]:
        """Yield each resharding step possible in a state, with the number of elements that a device sends.

        A state has, for each dimension, the mesh axes that shard the dimension. The steps are slices,
        all-gathers, all-to-alls and collective-permutes.
        """
        local = self._local(state)
        yield from self._slices(state)
        for d, axes in enumerate(state):
            for split in range(len(axes)):
                moved = axes[split:]
                if any(k in self.fixed for k in moved) or not self._divides(d, axes):
                    continue
                count = self._count(moved)
                yield Move("all-gather", _with(state, d, axes[:split]), d), local * (count - 1)
                for e, others in enumerate(state):
                    if e != d and self._divides(e, (*others, *moved)):
                        after = _with(_with(state, d, axes[:split]), e, (*others, *moved))
                        yield Move("all-to-all", after, d, e, moved), local * (count - 1) // count
        if state == self.start or len(self.sizes) <= _PERMUTED_EVERYWHERE:
            yield from ((Move("permute", after), local) for after in self._arrangements(state))
        elif self._counts(state) == self._counts(self.target):
            yield Move("permute", self.target), local

    def _counts(self, state: State) -> list[int]:
        return [self._count(axes) for axes in state]

    def _slices(self, state: State) -> Iterator[tuple[Move, int]]:
        used = {k for axes in state for k in axes}
        needed = {k for axes in self.target for k in axes}
        for k in self.movable:
            if k in used or k not in needed:
                continue
            for d, axes in enumerate(state):
                if self._divides(d, (*axes, k)):
                    yield Move("slice", _with(state, d, (*axes, k))), 0

    def _arrangements(self, state: State) -> Iterator[State]:
        """Yield the states to which one collective-permute can convert ``state``.

        A state has, for each dimension, the mesh axes that shard the dimension. The new states have the same
        number of tiles along each dimension. Dimensions sharded over a fixed axis keep their axes.
        """
        for order in permutations(self.movable):
            unassigned = list(order)
            arranged: list[tuple[int, ...]] = []
            for axes in state:
                if any(k in self.fixed for k in axes):
                    arranged.append(axes)
                    continue
                assigned: list[int] = []
                while unassigned and self._count(assigned) < self._count(axes):
                    assigned.append(unassigned.pop(0))
                arranged.append(tuple(assigned))
            after = tuple(arranged)
            if after != state and self._counts(after) == self._counts(state):
                yield after


def _with(state: State, d: int, axes: tuple[int, ...]) -> State:
    return (*state[:d], axes, *state[d + 1 :])
