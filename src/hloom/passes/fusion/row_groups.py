"""Groups that go along the same rows, joined: reductions of the minor dimension with what is made of them.

A softmax is two row reductions and a loop over the same rows; together they are one kernel. Used by `fusion`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from hloom.analysis.scalar_computations import commutes
from hloom.ir.instruction import HloInstruction

SHORTEST_ROW = 2
"""Rows of fewer elements are not worth a kernel of their own kind."""


class Group(Protocol):
    """What a fusion's group must have to be joined."""

    dimensions: tuple[int, ...]
    members: dict[HloInstruction, None]
    outputs: list[HloInstruction]
    hero: HloInstruction | None
    accepts: bool
    reduces: bool
    rows: bool


G = TypeVar("G", bound=Group)


def reduces_rows(group: Group) -> bool:
    """Whether a group is one plain reduction of the minor dimension of its operand."""
    root = group.outputs[0]
    if not group.reduces or len(root.operands) != 2 or root.shape.is_tuple:
        return False
    rank = len(group.dimensions)
    operation: Any = root.operation
    dimensions: tuple[int, ...] = operation.dimensions
    if not commutes(root.called_computations[0]):
        return False
    return dimensions == (rank - 1,) and rank > 0 and group.dimensions[-1] >= SHORTEST_ROW


def join_rows(
    groups: Sequence[G],
    users: Callable[[G], Sequence[G]],
    reaches: Callable[[Sequence[G], set[int]], bool],
    limit: int,
) -> list[list[G]]:
    """Clusters of groups that become one row kernel each.

    Args:
        groups: every group, consumers before producers.
        users: the groups that use a group's outputs.
        reaches: whether one of some groups leads, directly or not, into a set of groups (given by their ids).
        limit: most instructions in a cluster.
    """
    taken: set[int] = set()
    clusters: list[list[G]] = []
    for seed in groups:
        if id(seed) in taken or not _row_space(seed):
            continue
        cluster = [seed]
        dimensions = seed.dimensions
        inside = {id(seed)}
        for candidate in groups:
            if id(candidate) in inside or id(candidate) in taken:
                continue
            mine = users(candidate)
            if not any(id(u) in inside for u in mine) or not _same_rows(candidate, dimensions):
                continue
            if sum(len(g.members) for g in cluster) + len(candidate.members) > limit:
                continue
            outside = [u for u in mine if id(u) not in inside]
            if outside and reaches(outside, inside):
                continue
            cluster.append(candidate)
            inside.add(id(candidate))
        if len(cluster) > 1 and any(reduces_rows(g) for g in cluster):
            clusters.append(cluster)
            taken |= inside
    return clusters


def _row_space(group: Group) -> bool:
    """Whether a group may be the end of a cluster: a loop over whole rows, or a reduction of them."""
    if group.hero is not None or not group.accepts or not group.dimensions:
        return False
    if group.reduces:
        return reduces_rows(group)
    plain = all(o.operation.elementwise or o.opcode == "broadcast" for o in group.outputs)
    return plain and group.dimensions[-1] >= SHORTEST_ROW


def _same_rows(group: Group, dimensions: tuple[int, ...]) -> bool:
    """Whether a group goes along these rows, or makes one value for each."""
    if group.hero is not None or not group.accepts:
        return False
    if group.reduces:
        return reduces_rows(group) and group.dimensions == dimensions
    if group.dimensions == dimensions:
        return all(o.operation.elementwise or o.opcode == "broadcast" for o in group.outputs)
    one_each = math.prod(group.dimensions) == math.prod(dimensions[:-1])
    shapes = {dimensions[:-1], (*dimensions[:-1], 1)}
    return one_each and all(o.shape.dimensions in shapes for o in group.outputs)
