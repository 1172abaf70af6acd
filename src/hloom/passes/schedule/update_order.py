"""The order of updates: instructions that update a value in place run after all others that read it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import pairwise

from hloom.analysis.purity import communicates
from hloom.analysis.subviews import is_consecutive
from hloom.analysis.updates import Leaf, Updates, readers, size
from hloom.ir.instruction import HloInstruction
from hloom.operations.dynamic_slicing import DynamicSlice

After = dict[HloInstruction, list[HloInstruction]]
"""The instructions after which an instruction runs."""


def update_order(order: Sequence[HloInstruction], updates: Updates) -> tuple[list[HloInstruction], After]:
    """Move updates behind the readers of what they overwrite, as far as dependences allow.

    Args:
        order: a topological order of a computation; only updates and their users move.
        updates: the updates of the module.

    Returns:
        The order, and for each update the readers before it, which an update in place must not overtake.
    """
    last = updates.last(order)
    awaited = _awaited(last, readers(order)) if last else {}
    if not awaited:
        return list(order), {}
    sizes = {update: size(leaf) for leaf, update in last.items()}
    result = _Order(order, awaited, sizes).run()
    position = {i: n for n, i in enumerate(result)}
    after = {u: [r for r in before if position[r] < position[u]] for u, before in awaited.items()}
    return result, after


def _awaited(
    last: Mapping[Leaf, HloInstruction], read: Mapping[Leaf, Iterable[HloInstruction]]
) -> dict[HloInstruction, dict[HloInstruction, None]]:
    """Return, for each update, the instructions that read the memory it overwrites.

    They include readers of slices that share this memory.

    Args:
        last: for each leaf of a value, the update that overwrites it.
        read: for each leaf, its readers.
    """
    awaited: dict[HloInstruction, dict[HloInstruction, None]] = {}
    for leaf, update in last.items():
        others = dict.fromkeys(r for r in read.get(leaf, ()) if r is not update)
        for reader in list(others):
            if isinstance(reader.operation, DynamicSlice) and is_consecutive(reader):
                others.update(dict.fromkeys(r for r in read.get((reader, ()), ()) if r is not update))
        if others:
            awaited.setdefault(update, {}).update(others)
    return awaited


class _Order:
    """A topological sort in which updates wait for the readers of what they overwrite, if others can run."""

    def __init__(
        self,
        order: Sequence[HloInstruction],
        awaited: Mapping[HloInstruction, dict[HloInstruction, None]],
        sizes: Mapping[HloInstruction, int],
    ) -> None:
        self.sizes = sizes
        self.position = {i: n for n, i in enumerate(order)}
        self.order = order
        self.awaited = {u: set(before) for u, before in awaited.items()}
        self.waiting: dict[HloInstruction, list[HloInstruction]] = {}
        for update, before in awaited.items():
            for reader in before:
                self.waiting.setdefault(reader, []).append(update)
        self.next = self._chained(order)
        """The successor of each communicating instruction, whose order is fixed."""
        self.missing = {i: len({*i.operands, *i.control_predecessors}) for i in order}
        for follower in self.next.values():
            self.missing[follower] += 1
        self.ready: list[tuple[int, HloInstruction]] = []
        self.blocked: list[tuple[int, int, HloInstruction]] = []
        """Updates that wait for readers only; if nothing else can run, the smallest one copies its array."""

    @staticmethod
    def _chained(order: Sequence[HloInstruction]) -> dict[HloInstruction, HloInstruction]:
        ordered = [i for i in order if communicates(i)]
        return dict(pairwise(ordered))

    def run(self) -> list[HloInstruction]:
        """Return the order."""
        result: dict[HloInstruction, None] = {}
        for i in self.order:
            if not self.missing[i]:
                self.offer(i)
        while self.ready or self.blocked:
            *_, i = heappop(self.ready) if self.ready else heappop(self.blocked)
            if i in result:
                continue
            result[i] = None
            for update in self.waiting.get(i, ()):
                self.awaited[update].discard(i)
                if not self.missing[update]:
                    self.offer(update)
            for follower in dict.fromkeys((*i.users, *i.control_successors)):
                self.release(follower)
            if i in self.next:
                self.release(self.next[i])
        return list(result)

    def release(self, follower: HloInstruction) -> None:
        """Record one dependence of an instruction as met."""
        self.missing[follower] -= 1
        if not self.missing[follower]:
            self.offer(follower)

    def offer(self, i: HloInstruction) -> None:
        """Add an instruction whose dependences are met to those that may run next."""
        if self.awaited.get(i):
            heappush(self.blocked, (self.sizes[i], self.position[i], i))
        else:
            heappush(self.ready, (self.position[i], i))
