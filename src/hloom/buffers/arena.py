"""Offsets of temporaries in the arena.

Buffers are placed in descending order of size, each into the lowest gap that is free during its live spans. A
segment tree over time finds the occupied addresses, so that n buffers take O(n log n) steps if few gaps are
tried.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from hloom.buffers.buffers import ALIGNMENT, Buffer

LARGE: Final = 1 << 20
PAGE: Final = 4096
"""Size from which buffers are whole pages, so that loops over them may store past the caches; of a page."""


def assign_offsets(buffers: Sequence[Buffer]) -> int:
    """Assign arena offsets such that buffers with intersecting live spans are disjoint.

    Returns the size of the arena in bytes.
    """
    last = max((buffer.spans[-1][1] for buffer in buffers if buffer.spans), default=0)
    occupied = _Occupied(last)
    total = 0
    for buffer in sorted(buffers, key=lambda b: (-b.size, b.spans)):
        alignment = PAGE if buffer.size >= LARGE else ALIGNMENT
        end = -(-buffer.size // alignment) * alignment
        buffer.offset = occupied.lowest_gap(buffer.spans, buffer.size)
        occupied.add(buffer.spans, buffer.offset, buffer.offset + end)
        total = max(total, buffer.offset + end)
    return total


class _Ranges:
    """Disjoint address ranges in ascending order; adjacent ranges are joined."""

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
        """Return the end of the first range that intersects [start, start + size), 0 if there is none."""
        number = bisect_right(self.ends, start)
        if number < len(self.ends) and self.starts[number] < start + size:
            return self.ends[number]
        return 0


class _Occupied:
    """The occupied addresses at each time, as a segment tree.

    Node 1 stands for all times up to ``last``, nodes 2n and 2n + 1 for the halves of node n's span. A live
    span is the union of O(log last) nodes.
    """

    def __init__(self, last: int) -> None:
        self._leaves = 1 << last.bit_length()
        self._throughout: dict[int, _Ranges] = {}
        """By node, the addresses occupied at all of its times."""
        self._at_some_time: dict[int, _Ranges] = {}
        """By node, the addresses occupied at some of its times."""

    def lowest_gap(self, spans: Sequence[tuple[int, int]], size: int) -> int:
        """Return the lowest aligned address with ``size`` free bytes during the given spans."""
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
        """Occupy the addresses [start, end) during the given spans."""
        for nodes, above in self._nodes(spans):
            for node in nodes:
                self._throughout.setdefault(node, _Ranges()).add(start, end)
                self._at_some_time.setdefault(node, _Ranges()).add(start, end)
            for node in above:
                self._at_some_time.setdefault(node, _Ranges()).add(start, end)

    def _nodes(self, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[list[int], set[int]]]:
        """Yield, for each span, the nodes whose union it is, and the ancestors of these nodes."""
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
