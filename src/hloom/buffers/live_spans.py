"""Live spans of values in a program with branches.

The walk over a program visits the branches of a conditional one after the other, but only one of them runs. A
value that is read for the last time in branch 2 is dead in branch 0 after its last read there: the span from
its birth to its last read has a hole, in which its memory may hold other values.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Span: TypeAlias = tuple[int, int]
"""First and last time, inclusive, in half steps."""


@dataclass(slots=True)
class BranchSpan:
    """A branch of a conditional: its first and last time, and the conditionals in it, in order."""

    first: int
    last: int = 0
    conditionals: list[Branches] = field(default_factory=list["Branches"])


@dataclass(slots=True)
class Branches:
    """The branches of a conditional, in order; ``first`` is the time at which the conditional is entered."""

    first: int
    branches: list[BranchSpan] = field(default_factory=list[BranchSpan])

    @property
    def last(self) -> int:
        """Return the end of the last branch."""
        return self.branches[-1].last


def live_spans(births: Sequence[int], reads: Sequence[int], conditionals: Sequence[Branches]) -> list[Span]:
    """Return the spans in which a buffer holds a value that is read later, in order.

    A value lives from its birth to its last read before the next birth, without the holes described above.

    Args:
        births, reads: times at which values are written and read, ascending.
        conditionals: those outside of all others, in order.
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
    """Return the spans of one value, whose reads are ``reads[low:high]``."""
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
    """Return the conditional that runs at a time."""
    number = bisect_right(conditionals, time, key=lambda c: c.first) - 1
    return conditionals[number] if number >= 0 and time <= conditionals[number].last else None


def _branch_at(conditional: Branches, time: int) -> BranchSpan:
    """Return the branch that contains a time."""
    return conditional.branches[bisect_right(conditional.branches, time, key=lambda b: b.first) - 1]
