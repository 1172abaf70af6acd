"""Live spans of values in a program with branches.

Time passes through the branches of a conditional in sequence, but only one branch runs. A value whose last
read is in branch 2 is dead in branch 0 after its last read there: its live span has a hole, in which other
values may use its memory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import field
from typing import TypeAlias

from hloom.records import dataclass

Span: TypeAlias = tuple[int, int]
"""First and last time, inclusive, in half steps."""


@dataclass(slots=True)
class BranchSpan:
    """A branch: its first and last time, and the conditionals directly inside of it, in order."""

    first: int
    last: int = 0
    conditionals: list[Branches] = field(default_factory=list["Branches"])


@dataclass(slots=True)
class Branches:
    """A conditional: the time at which it is entered, and its branches in order."""

    first: int
    branches: list[BranchSpan] = field(default_factory=list[BranchSpan])

    @property
    def last(self) -> int:
        return self.branches[-1].last


def live_spans(births: Sequence[int], reads: Sequence[int], conditionals: Sequence[Branches]) -> list[Span]:
    """Return the live spans of a buffer, in order.

    A value is live from its birth, the write, to the last read before the next birth, without holes.

    Args:
        births, reads: the times of writes and of reads, ascending.
        conditionals: the outermost conditionals, in order.
    """
    spans: list[Span] = []
    for number, birth in enumerate(births):
        next_birth = births[number + 1] if number + 1 < len(births) else None
        low = bisect_left(reads, birth)
        high = len(reads) if next_birth is None else bisect_left(reads, next_birth)
        spans += _without_holes(birth, reads, low, high, conditionals)
    return spans


def _without_holes(
    birth: int, reads: Sequence[int], low: int, high: int, conditionals: Sequence[Branches]
) -> list[Span]:
    """Return the live spans of one value, whose reads are ``reads[low:high]``."""
    spans: list[Span] = []
    waiting = [(birth, low, high, conditionals)]
    while waiting:
        first, low, high, level = waiting.pop()
        if low == high:
            spans.append((first, first))
            continue
        last = reads[high - 1]
        inside = _containing(level, last)
        while inside is not None and inside.first < first:  # the value is born in the same conditional
            branch = _branch_at(inside, last)
            inside = _containing(branch.conditionals, last) if branch.first <= first else None
        if inside is None:
            spans.append((first, last))
            continue
        spans.append((first, inside.first))
        for branch in inside.branches:
            begin, end = (
                bisect_left(reads, branch.first, low, high),
                bisect_right(reads, branch.last, low, high),
            )
            if begin < end:
                waiting.append((branch.first, begin, end, branch.conditionals))
    return sorted(spans)


def _containing(conditionals: Sequence[Branches], time: int) -> Branches | None:
    """Return the conditional that contains a time; None if there is none."""
    number = bisect_right(conditionals, time, key=lambda c: c.first) - 1
    return conditionals[number] if number >= 0 and time <= conditionals[number].last else None


def _branch_at(conditional: Branches, time: int) -> BranchSpan:
    """Return the branch of a conditional that contains a time."""
    return conditional.branches[bisect_right(conditional.branches, time, key=lambda b: b.first) - 1]
