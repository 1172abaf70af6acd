"""Orders for copies that happen at once: no source is overwritten before all copies of it are made.

Buffers that are not needed at the same time may share bytes of the arena, and where values move from one step
to the next both are. A copy waits for those whose source its target would overwrite; of copies that wait for
each other, one source is put aside first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import accumulate

from hloom.buffers.buffers import Buffer

Pair = tuple[Buffer, Buffer]
"""Source and target."""


def in_order(copies: Sequence[Pair]) -> list[Pair]:
    """Return copies that, one after the other, do what the given ones do at once.

    Targets that are not among the given ones are new, of kind ``stack``: places where sources are put aside.
    """
    return _Order([(s, t) for s, t in copies if s is not t and s.size]).run()


class _Order:
    def __init__(self, copies: list[Pair]) -> None:
        self.copies = copies
        self.of_source: dict[int, set[int]] = {}
        """The copies of a source that are still to be made, by the source's id."""
        for number, (source, _) in enumerate(copies):
            self.of_source.setdefault(id(source), set()).add(number)
        self.waiting = [0] * len(copies)
        """For how many sources each copy waits."""
        self.released: dict[int, list[int]] = {}
        """Which copies wait for a source."""
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
        """Make what waits for nothing; where everything waits, put aside what the first copy waits for."""
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
        """Return a source that a copy waits for."""
        source, target = self.copies[number]
        return next(s for s in self.overlaps.sources(target) if s is not source and self.of_source.get(id(s)))

    def put_aside(self, source: Buffer) -> None:
        """Let all copies of a source read a copy of it."""
        aside = Buffer(source.size, "stack")
        self.made.append((source, aside))
        numbers = self.of_source.pop(id(source))
        self.of_source[id(aside)] = numbers
        for number in numbers:
            self.copies[number] = aside, self.copies[number][1]
        self.release(source)

    def release(self, source: Buffer) -> None:
        """Note that a source may be overwritten."""
        for number in self.released.pop(id(source), ()):
            self.waiting[number] -= 1
            if not self.waiting[number]:
                heappush(self.ready, number)


class _Overlaps:
    """Looks up sources by the bytes that they lie in."""

    def __init__(self, sources: Sequence[Buffer]) -> None:
        distinct = {id(s): s for s in sources}
        self._all = distinct
        self._temps = sorted((s for s in distinct.values() if s.kind == "temp"), key=lambda s: s.offset)
        self._starts = [s.offset for s in self._temps]
        self._reach = list(accumulate((s.offset + s.size for s in self._temps), max))
        """Up to where a source and all before it reach."""

    def sources(self, target: Buffer) -> list[Buffer]:
        """Return the sources that share bytes with a buffer."""
        if target.kind != "temp":
            return [self._all[id(target)]] if id(target) in self._all else []
        found: list[Buffer] = []
        place = bisect_left(self._starts, target.offset + target.size)
        while place and self._reach[place - 1] > target.offset:
            place -= 1
            if target.shares_bytes(self._temps[place]):
                found.append(self._temps[place])
        return found
