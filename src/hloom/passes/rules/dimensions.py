"""Correspondence between the dimensions of a reshape's operand and result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

Groups: TypeAlias = list[tuple[tuple[int, ...], tuple[int, ...]]]
"""Minimal groups of operand and result dimensions that hold the same elements."""


def squeezed(dimensions: Iterable[int]) -> tuple[int, ...]:
    """Return the sizes that are not 1."""
    return tuple(size for size in dimensions if size != 1)


def true_dimensions(dimensions: Sequence[int]) -> list[int]:
    """Return the numbers of the dimensions whose size is not 1."""
    return [number for number, size in enumerate(dimensions) if size != 1]


def reshape_groups(before: Sequence[int], after: Sequence[int]) -> Groups | None:
    """Return the groups of dimensions that a reshape splits or merges, without dimensions of size 1.

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
    """Return a map of operand to result dimensions; None if a dimension is split or merged."""
    if any(len(mine) > 1 or len(theirs) > 1 for mine, theirs in groups):
        return None
    return {mine[0]: theirs[0] for mine, theirs in groups}


def inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    """Return the inverse permutation."""
    result = [0] * len(permutation)
    for position, number in enumerate(permutation):
        result[number] = position
    return tuple(result)
