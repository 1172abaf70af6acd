"""Join groups that iterate over the same rows: reductions of the minor dimension and their users.

A softmax consists of two row reductions and a loop over the same rows, which become one kernel. Used by
`fusion`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from heapq import heapify, heappop, heappush

from hloom.analysis.combiners import grouping
from hloom.analysis.instructions import operation_of
from hloom.ir.affine import Index
from hloom.ir.instruction import HloInstruction
from hloom.operations.combiners import Grouping
from hloom.operations.movement import Broadcast
from hloom.operations.reduction import Reduce
from hloom.passes.fusion.group import Group
from hloom.passes.fusion.loop_operations import is_table
from hloom.passes.fusion.spans import Spans
from hloom.records import dataclass

SHORTEST_ROW = 2
"""Minimum row length, in elements, of a row kernel."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a cluster.

    Attributes:
        members: maximum number of instructions.
        work: maximum ratio of the cluster's work to the work of its groups in kernels of their own.
    """

    members: int
    work: float


def reduces_rows(group: Group) -> bool:
    """Return whether a group is a single-operand reduction of the minor dimension."""
    root = group.outputs[0]
    if not group.reduces or len(root.operands) != 2 or root.shape.is_tuple:
        return False
    rank = len(group.dimensions)
    dimensions = operation_of(root, Reduce).dimensions
    if grouping(root.called_computations[0]) is not Grouping.FREE:
        return False
    return dimensions == (rank - 1,) and rank > 0 and group.dimensions[-1] >= SHORTEST_ROW


def join_rows(
    groups: Sequence[Group], candidates: Set[int], users: Mapping[int, Sequence[Group]], limits: Limits
) -> list[list[Group]]:
    """Return the clusters of groups that become one row kernel each.

    Joining all clusters leaves the graph of groups acyclic.

    Args:
        groups: every group, consumers before producers.
        candidates: ids of the groups that may be joined.
        users: the groups that use a group's outputs, by its id.
        limits: of a cluster.
    """
    graph = _Graph(groups, users)
    free = set(candidates)
    clusters: list[list[Group]] = []
    for seed in groups:
        if id(seed) not in free or not _row_space(seed):
            continue
        cluster = _grown(graph, seed, free, limits)
        if len(cluster) > 1 and any(reduces_rows(g) for g in cluster):
            clusters.append(cluster)
            free.difference_update(map(id, cluster))
            graph.join(cluster)
    return clusters


class _Passes:
    """The passes over a row in which the groups of a cluster are evaluated.

    There is one pass for each reduction, and a last one for the results. A group is evaluated in every pass
    that reads it.
    """

    def __init__(self, seed: Group) -> None:
        self._passes: dict[int, int] = {id(seed): 1}
        """The set of passes, as bits."""
        self._repeated = self._separate = seed.work
        self._count = 1

    def may_add(self, group: Group, users: Sequence[Group], most_work: float) -> bool:
        """Return whether a cluster may get a group without exceeding its work.

        Its work, with groups repeated in several passes, may be at most ``most_work`` times the work of its
        groups. A value that is read elsewhere than at the index of its user, or looked up at any, would be
        computed for each of these reads, with the reductions of its row: then False.
        """
        if any(is_table(o) or not _reads_in_place(u, o) for u in users for o in group.outputs):
            return False
        repeated = self._repeated + group.work * self._of(group, users).bit_count()
        return repeated <= most_work * (self._separate + group.work)

    def add(self, group: Group, users: Sequence[Group]) -> None:
        """Add a group to the cluster; ``users`` are its users there."""
        passes = self._of(group, users)
        self._repeated += group.work * passes.bit_count()
        self._separate += group.work
        self._passes[id(group)] = passes
        self._count += group.reduces

    def _of(self, group: Group, users: Sequence[Group]) -> int:
        if group.reduces:
            return 1 << self._count
        passes = 0
        for user in users:
            passes |= self._passes[id(user)]
        return passes


def _grown(graph: _Graph, seed: Group, candidates: Set[int], limits: Limits) -> list[Group]:
    """Return a cluster: the seed and those of its transitive producers that may run in its kernel."""
    cluster, inside = [seed], {id(seed)}
    passes = _Passes(seed)
    count = len(seed.members)
    waiting = graph.producers(seed)
    heapify(waiting)
    done = -1
    while waiting:
        number = heappop(waiting)
        candidate = graph.groups[number]
        if number <= done or id(candidate) not in candidates or id(candidate) in inside:
            continue
        done = number
        if not _same_rows(candidate, seed.dimensions) or count + len(candidate.members) > limits.members:
            continue
        users = [u for u in graph.users(candidate) if id(u) in inside]
        if not passes.may_add(candidate, users, limits.work):
            continue
        if graph.returns(candidate, inside):
            continue
        passes.add(candidate, users)
        cluster.append(candidate)
        inside.add(id(candidate))
        count += len(candidate.members)
        for producer in graph.producers(candidate):
            heappush(waiting, producer)
    return cluster


class _Graph:
    """The use graph of the groups, updated as clusters are joined."""

    def __init__(self, groups: Sequence[Group], users: Mapping[int, Sequence[Group]]) -> None:
        self.groups, self._users = groups, users
        self._numbers = {id(g): n for n, g in enumerate(groups)}
        self._producers: dict[int, list[int]] = {id(g): [] for g in groups}
        for number, group in enumerate(groups):
            for user in users[id(group)]:
                self._producers[id(user)].append(number)
        self._ranks = self._ranked()
        self._mates: dict[int, list[Group]] = {}
        self._spans = Spans()

    def _ranked(self) -> dict[int, int]:
        """Return the position of every group in a topological order, producers first."""
        unranked_users = {id(g): len(self._users[id(g)]) for g in self.groups}
        ready = [g for g in self.groups if not unranked_users[id(g)]]
        ranks: dict[int, int] = {}
        while ready:
            group = ready.pop()
            ranks[id(group)] = len(self.groups) - len(ranks)
            for number in self._producers[id(group)]:
                producer = self.groups[number]
                unranked_users[id(producer)] -= 1
                if not unranked_users[id(producer)]:
                    ready.append(producer)
        return ranks

    def producers(self, group: Group) -> list[int]:
        """Return the numbers of the groups whose outputs a group uses."""
        return list(self._producers[id(group)])

    def users(self, group: Group) -> Sequence[Group]:
        """Return the groups that use a group's outputs."""
        return self._users[id(group)]

    def join(self, cluster: list[Group]) -> None:
        """Treat a cluster as one group in later queries."""
        ranks = [self._ranks[id(g)] for g in cluster]
        self._spans.add(min(ranks), max(ranks))
        for group in cluster:
            self._mates[id(group)] = cluster

    def returns(self, candidate: Group, cluster: Set[int]) -> bool:
        """Return whether a path leaves a candidate, by a group outside the cluster, and enters the cluster.

        Joining the candidate would close a cycle.

        Args:
            candidate: a producer of a group of the cluster.
            cluster: the ids of the cluster's groups; no path may leave the cluster and enter it again.
        """
        limit = self._spans.limit(max([self._ranks[number] for number in cluster]))
        seen = set(cluster)
        seen.add(id(candidate))
        waiting = [user for user in self._users[id(candidate)] if id(user) not in seen]
        while waiting:
            entered = waiting.pop()
            for group in self._mates.get(id(entered), [entered]):
                if id(group) in seen or self._ranks[id(group)] > limit:
                    continue
                seen.add(id(group))
                users = self._users[id(group)]
                if any(id(u) in cluster for u in users):
                    return True
                waiting.extend(users)
        return False


def _reads_in_place(user: Group, value: HloInstruction) -> bool:
    """Return whether a group reads a value only at its own index, or a value of each row at that row's."""
    sizes = value.shape.dimensions
    index = (*user.index, *[Index(0)] * len(sizes))
    own = tuple([Index(0) if size == 1 else i for i, size in zip(index, sizes, strict=False)])
    return user.evaluations.reads_only(value, own)


def _row_space(group: Group) -> bool:
    """Return whether a group may be the root of a cluster: a loop over whole rows, or a row reduction."""
    if group.hero is not None or not group.accepts or not group.dimensions:
        return False
    if group.reduces:
        return reduces_rows(group)
    plain = all(o.operation.elementwise or isinstance(o.operation, Broadcast) for o in group.outputs)
    return plain and group.dimensions[-1] >= SHORTEST_ROW


def _same_rows(group: Group, dimensions: tuple[int, ...]) -> bool:
    """Return whether a group iterates over rows of these dimensions, or computes one value per row."""
    if group.hero is not None or not group.accepts:
        return False
    if group.reduces:
        return reduces_rows(group) and group.dimensions == dimensions
    if group.dimensions == dimensions:
        return all(o.operation.elementwise or isinstance(o.operation, Broadcast) for o in group.outputs)
    one_each = math.prod(group.dimensions) == math.prod(dimensions[:-1])
    shapes = {dimensions[:-1], (*dimensions[:-1], 1)}
    return one_each and all(o.shape.dimensions in shapes for o in group.outputs)
