"""How the dimensions of one array correspond to those of another with the same elements in the same order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

Groups: TypeAlias = list[tuple[tuple[int, ...], tuple[int, ...]]]
"""Dimension numbers before, and those after, that hold the same elements: as few as can be in each group."""


def squeezed(dimensions: Iterable[int]) -> tuple[int, ...]:
    """The sizes that are not 1."""
    return tuple(size for size in dimensions if size != 1)


def true_dimensions(dimensions: Sequence[int]) -> list[int]:
    """The numbers of the dimensions whose size is not 1."""
    return [number for number, size in enumerate(dimensions) if size != 1]


def reshape_groups(before: Sequence[int], after: Sequence[int]) -> Groups | None:
    """What a reshape does, group by group; dimensions of size 1 are in none.

    None for arrays without elements.
    """
    if 0 in before:
        return None
    a, b = true_dimensions(before), true_dimensions(after)
    groups: Groups = []
    i = j = 0
    while i < len(a) and j < len(b):
        mine, theirs = [a[i]], [b[j]]
        m, n = before[a[i]], after[b[j]]
        i, j = i + 1, j + 1
        while m != n:
            if m < n:
                m *= before[a[i]]
                mine.append(a[i])
                i += 1
            else:
                n *= after[b[j]]
                theirs.append(b[j])
                j += 1
        groups.append((tuple(mine), tuple(theirs)))
    return groups


def one_to_one(groups: Groups) -> dict[int, int] | None:
    """Before → after, if no dimension but those of size 1 is split or joined."""
    if any(len(mine) > 1 or len(theirs) > 1 for mine, theirs in groups):
        return None
    return {mine[0]: theirs[0] for mine, theirs in groups}


def inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes another."""
    result = [0] * len(permutation)
    for place, number in enumerate(permutation):
        result[number] = place
    return tuple(result)
