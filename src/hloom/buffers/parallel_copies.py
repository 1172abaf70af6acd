"""Sequentialization of parallel copies: no source is overwritten before all copies that read it.

Buffers may share bytes of the arena, so that the target of one copy may overlap the source of another. A
copy waits for the copies whose source its target overwrites. A cycle is broken by spilling one source: to the
stack if it is small, else after the end of the arena.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import accumulate

from hloom.buffers.buffers import ALIGNMENT, SMALL, Buffer

Pair = tuple[Buffer, Buffer]
"""Source and target."""


def in_order(copies: Sequence[Pair], room: int) -> list[Pair]:
    """Return a sequence of copies that is equivalent to the given parallel copies.

    Sources are spilled to new buffers, of kind ``stack`` or, if large, ``temp`` from the offset ``room`` on.
    """
    return _Order([(s, t) for s, t in copies if s is not t and s.size], room).run()


class _Order:
    def __init__(self, copies: list[Pair], room: int) -> None:
        self.copies = copies
        self.room = room
        self.of_source: dict[int, set[int]] = {}
        """The numbers of the pending copies of each source, by the source's id."""
        for number, (source, _) in enumerate(copies):
            self.of_source.setdefault(id(source), set()).add(number)
        self.waiting = [0] * len(copies)
        """The number of sources that each copy waits for."""
        self.released: dict[int, list[int]] = {}
        """The numbers of the copies that wait for each source, by the source's id."""
        self.ready: list[int] = []
        self.overlaps = _Overlaps([s for s, _ in copies])
        for number, (source, target) in enumerate(copies):
            for other in self.overlaps.sources(target):
                if other is not source:
                    self.waiting[number] += 1
                    self.released.setdefault(id(other), []).append(number)
            if not self.waiting[number]:
                heappush(self.ready, number)
        self.made: list[Pair] = []

    def run(self) -> list[Pair]:
        """Emit ready copies; if none is ready, spill a source that the first pending copy waits for."""
        done = [False] * len(self.copies)
        first = 0
        while first < len(self.copies):
            if done[first]:
                first += 1
                continue
            if not self.ready:
                self.put_aside(self.obstacle(first))
                continue
            number = heappop(self.ready)
            source, target = self.copies[number]
            if target.shares_bytes(source):
                self.put_aside(source)
                source = self.copies[number][0]
            self.made.append((source, target))
            done[number] = True
            remaining = self.of_source[id(source)]
            remaining.discard(number)
            if not remaining:
                self.release(source)
        return self.made

    def obstacle(self, number: int) -> Buffer:
        """Return a source for which the pending copy ``number`` waits."""
        source, target = self.copies[number]
        return next(s for s in self.overlaps.sources(target) if s is not source and self.of_source.get(id(s)))

    def put_aside(self, source: Buffer) -> None:
        """Spill a source; its pending copies then read the spilled value."""
        aside = Buffer(source.size, "stack")
        if source.size > SMALL:
            aside = Buffer(source.size, "temp", offset=self.room)
            self.room += -(-source.size // ALIGNMENT) * ALIGNMENT
        self.made.append((source, aside))
        numbers = self.of_source.pop(id(source))
        self.of_source[id(aside)] = numbers
        for number in numbers:
            self.copies[number] = aside, self.copies[number][1]
        self.release(source)

    def release(self, source: Buffer) -> None:
        """Permit overwriting a source that all copies have read.

        Copies that waited for it alone become ready.
        """
        for number in self.released.pop(id(source), ()):
            self.waiting[number] -= 1
            if not self.waiting[number]:
                heappush(self.ready, number)


class _Overlaps:
    """Index of sources by their byte ranges in the arena; a subview counts as the whole buffer around it."""

    def __init__(self, sources: Sequence[Buffer]) -> None:
        distinct = list({id(s): s for s in sources}.values())
        self._fixed: dict[int, list[Buffer]] = {}
        """Sources outside the arena, by the id of their memory."""
        for source in distinct:
            self._fixed.setdefault(id(source.memory), []).append(source)
        in_arena = (s for s in distinct if s.memory.kind == "temp")
        self._temps = sorted(in_arena, key=lambda s: s.memory.offset)
        self._starts = [s.memory.offset for s in self._temps]
        self._reach = list(accumulate((s.memory.offset + s.memory.size for s in self._temps), max))
        """The maximum end offset, in bytes, of each temporary and all before it."""

    def sources(self, target: Buffer) -> list[Buffer]:
        """Return the sources that overlap a buffer in memory."""
        if target.kind != "temp":
            return self._fixed.get(id(target), [])
        found: list[Buffer] = []
        place = bisect_left(self._starts, target.offset + target.size)
        while place and self._reach[place - 1] > target.offset:
            place -= 1
            if target.shares_bytes(self._temps[place]):
                found.append(self._temps[place])
        return found
