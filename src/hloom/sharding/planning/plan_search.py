"""Search for the cheapest moves between two regular tilings, by Dijkstra's algorithm.

A state is the axes that cut each dimension, major first. Moves are those of `plans.py`: an exchange
moves the last axes of a dimension behind those of another, a gather drops the last axes of a
dimension, a slice puts an axis that cuts nothing behind those of a dimension, a permutation puts other axes
in their places, with the same number of tiles. Few axes have few states; for many, there is no search.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import permutations
from typing import Final, TypeAlias

State: TypeAlias = "tuple[tuple[int, ...], ...]"
"""For each dimension the axes that cut it, major first."""

MOST_AXES: Final = 5
"""Number of axes up to which states are searched: 5 axes of 3 dimensions have some 5,000 states."""
_PERMUTED_EVERYWHERE: Final = 4
"""Number of axes up to which a permutation may be any of the moves; of more only the first or the last."""


@dataclass(frozen=True, slots=True)
class Move:
    """A step between states.

    Attributes:
        kind: "permute", "exchange", "gather" or "slice".
        after: the state after it.
        source, target: the dimensions of an exchange; a gather has only the source.
        axes: the axes that an exchange moves.
    """

    kind: str
    after: State
    source: int = -1
    target: int = -1
    axes: tuple[int, ...] = ()


def merged(
    sizes: Sequence[int], orders: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Return axes that join neighbors which stand side by side in all orders, and the orders of these."""

    def are_one(k: int) -> bool:
        """Return true if axis k is always followed by the next one, which never stands without it."""
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
    made = [tuple(number[k] for k in order if k in number) for order in orders]
    return tuple(math.prod(sizes[k] for k in group) for group in groups), made


@dataclass(frozen=True, slots=True)
class Search:
    """A search for the moves that send the fewest elements, the fewest among equals.

    Attributes:
        dimensions: those of the whole array.
        sizes: the size of each axis.
        start, want: the states.
        held: axes that stay where they are.
        limit: the elements that a device may send, exclusive.
    """

    dimensions: Sequence[int]
    sizes: Sequence[int]
    start: State
    want: State
    held: Collection[int]
    limit: int

    @property
    def movable(self) -> list[int]:
        """Return the axes that may move."""
        return [k for k in range(len(self.sizes)) if k not in self.held]

    def found(self) -> list[Move] | None:
        """Return the moves; None if there are none, or too many axes."""
        if len(self.sizes) > MOST_AXES:
            return None
        best: dict[State, tuple[int, int]] = {self.start: (0, 0)}
        came: dict[State, tuple[State, Move]] = {}
        heap: list[tuple[int, int, State]] = [(0, 0, self.start)]
        while heap:
            cost, count, state = heappop(heap)
            if state == self.want:
                return self._path(came)
            if best[state] < (cost, count):
                continue
            for move, more in self._moves(state):
                after = (cost + more, count + 1)
                if after[0] < self.limit and after < best.get(move.after, (self.limit, 0)):
                    best[move.after] = after
                    came[move.after] = (state, move)
                    heappush(heap, (*after, move.after))
        return None

    def _path(self, came: dict[State, tuple[State, Move]]) -> list[Move]:
        moves: list[Move] = []
        state = self.want
        while state != self.start:
            state, move = came[state]
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
        """Yield the moves from a state, with the elements that a device sends."""
        local = self._local(state)
        yield from self._slices(state)
        for d, axes in enumerate(state):
            for kept in range(len(axes)):
                moved = axes[kept:]
                if any(k in self.held for k in moved) or not self._divides(d, axes):
                    continue
                count = self._count(moved)
                yield Move("gather", _with(state, d, axes[:kept]), d), local * (count - 1)
                for e, others in enumerate(state):
                    if e != d and self._divides(e, (*others, *moved)):
                        after = _with(_with(state, d, axes[:kept]), e, (*others, *moved))
                        yield Move("exchange", after, d, e, moved), local * (count - 1) // count
        if state == self.start or len(self.sizes) <= _PERMUTED_EVERYWHERE:
            yield from ((Move("permute", after), local) for after in self._arrangements(state))
        elif self._counts(state) == self._counts(self.want):
            yield Move("permute", self.want), local

    def _counts(self, state: State) -> list[int]:
        return [self._count(axes) for axes in state]

    def _slices(self, state: State) -> Iterator[tuple[Move, int]]:
        used = {k for axes in state for k in axes}
        wanted = {k for axes in self.want for k in axes}
        for k in self.movable:
            if k in used or k not in wanted:
                continue
            for d, axes in enumerate(state):
                if self._divides(d, (*axes, k)):
                    yield Move("slice", _with(state, d, (*axes, k))), 0

    def _arrangements(self, state: State) -> Iterator[State]:
        """Yield the other states of as many tiles along each dimension."""
        for order in permutations(self.movable):
            rest = list(order)
            made: list[tuple[int, ...]] = []
            for axes in state:
                if any(k in self.held for k in axes):
                    made.append(axes)
                    continue
                taken: list[int] = []
                while rest and self._count(taken) < self._count(axes):
                    taken.append(rest.pop(0))
                made.append(tuple(taken))
            found = tuple(made)
            if found != state and self._counts(found) == self._counts(state):
                yield found


def _with(state: State, d: int, axes: tuple[int, ...]) -> State:
    return (*state[:d], axes, *state[d + 1 :])
