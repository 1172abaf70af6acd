"""Offsets of temporaries in the arena.

Buffers are laid out one after the other, the largest first, each into the lowest gap that is free during its
whole life. Which addresses are taken during a span of time is read from a segment tree over time, so that the
layout of n buffers takes O(n log n) steps where few gaps are left.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from hloom.buffers.buffers import ALIGNMENT, Buffer


def assign_offsets(buffers: Sequence[Buffer]) -> int:
    """Assign arena offsets so that temporaries with intersecting live spans do not overlap.

    Return the size of the arena in bytes.
    """
    last = max((buffer.spans[-1][1] for buffer in buffers if buffer.spans), default=0)
    occupied = _Occupied(last)
    total = 0
    for buffer in sorted(buffers, key=lambda b: (-b.size, b.spans)):
        end = -(-buffer.size // ALIGNMENT) * ALIGNMENT
        buffer.offset = occupied.lowest_gap(buffer.spans, buffer.size)
        occupied.add(buffer.spans, buffer.offset, buffer.offset + end)
        total = max(total, buffer.offset + end)
    return total


class _Ranges:
    """Disjoint ranges of addresses, ascending; ranges that touch are joined."""

    __slots__ = ("ends", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        first, behind = bisect_left(self.ends, start), bisect_right(self.starts, end)
        if first < behind:
            start, end = min(start, self.starts[first]), max(end, self.ends[behind - 1])
        self.starts[first:behind] = [start]
        self.ends[first:behind] = [end]

    def obstacle(self, start: int, size: int) -> int:
        """Return the end of the first range that intersects ``size`` bytes from an address on, or 0."""
        number = bisect_right(self.ends, start)
        if number < len(self.ends) and self.starts[number] < start + size:
            return self.ends[number]
        return 0


class _Occupied:
    """The addresses that are taken at each time.

    A node of the tree stands for a span of time: node 1 for all of it, nodes 2n and 2n + 1 for the halves of
    node n. A span is the union of O(log) nodes.

    Args:
        last: the last time.
    """

    def __init__(self, last: int) -> None:
        self._leaves = 1 << last.bit_length()
        self._throughout: dict[int, _Ranges] = {}
        """Taken during the whole span of a node, by a span that was split into that node."""
        self._at_some_time: dict[int, _Ranges] = {}
        """Taken at some time of the span of a node, by a span that was split into it or nodes below it."""

    def lowest_gap(self, spans: Sequence[tuple[int, int]], size: int) -> int:
        """Return the lowest aligned address from which ``size`` bytes are free during some spans."""
        occupied: list[_Ranges] = []
        for below, above in self._nodes(spans):
            occupied += [self._at_some_time[n] for n in below if n in self._at_some_time]
            occupied += [self._throughout[n] for n in above if n in self._throughout]
        start, free = 0, False
        while not free:
            free = True
            for ranges in occupied:
                while end := ranges.obstacle(start, size):
                    start, free = end, False
        return start

    def add(self, spans: Sequence[tuple[int, int]], start: int, end: int) -> None:
        """Take the addresses from ``start`` to ``end`` during some spans."""
        for nodes, above in self._nodes(spans):
            for node in nodes:
                self._throughout.setdefault(node, _Ranges()).add(start, end)
                self._at_some_time.setdefault(node, _Ranges()).add(start, end)
            for node in above:
                self._at_some_time.setdefault(node, _Ranges()).add(start, end)

    def _nodes(self, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[list[int], set[int]]]:
        """Yield, for each span, the nodes that it is the union of, and the nodes above these."""
        for first, last in spans:
            nodes: list[int] = []
            low, high = first + self._leaves, last + self._leaves + 1
            while low < high:
                if low & 1:
                    nodes.append(low)
                if high & 1:
                    nodes.append(high - 1)
                low, high = (low + 1) >> 1, high >> 1
            above: set[int] = set()
            for node in nodes:
                while (node := node >> 1) and node not in above:
                    above.add(node)
            yield nodes, above
