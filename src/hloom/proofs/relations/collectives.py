"""Collectives on terms: they move elements between devices, or combine those of a group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hloom.ir.affine import Index, Variable
from hloom.ir.device_groups import DeviceList
from hloom.ir.instruction import HloInstruction
from hloom.operations.collectives import AllGather, AllReduce, Collective, ReduceScatter
from hloom.operations.device_ids import PartitionId, ReplicaId
from hloom.operations.exchanges import AllToAll, CollectivePermute
from hloom.operations.rooted_collectives import CollectiveBroadcast
from hloom.proofs.relations.laws import Laws
from hloom.proofs.relations.mesh import AxisGroup, DeviceAxes, NoRelation, groups_of, sources
from hloom.proofs.relations.terms import Term, Terms
from hloom.proofs.relations.totals import Totals
from hloom.proofs.sums import combining
from hloom.shape.element_type import U32
from hloom.shape.shape import Shape


class Collectives:
    """Evaluates collectives.

    Args:
        terms: the terms of the proof.
        laws: the laws of elementwise operations.
        totals: combines terms.
        axes: the digits of device ids.
    """

    def __init__(self, terms: Terms, laws: Laws, totals: Totals, axes: DeviceAxes) -> None:
        self.terms = terms
        self.laws = laws
        self.totals = totals
        self.axes = axes

    def value(self, i: HloInstruction, operands: Sequence[Any]) -> Any:
        """Return the value of a collective, or of a device number."""
        operation = i.operation
        replica = self.terms.quotients.divide(self.axes.device, self.axes.partitions)
        match operation:
            case PartitionId():
                return self.laws.number(self.axes.device - replica * self.axes.partitions, U32)
            case ReplicaId():
                return self.laws.number(replica, U32)
            case AllReduce():
                return _alone([self._reduced(i, o, n) for n, o in enumerate(operands)])
            case ReduceScatter():
                return _alone([self._scattered(i, operation, o, n) for n, o in enumerate(operands)])
            case AllGather():
                return _alone([self._gathered(i, operation, o, n) for n, o in enumerate(operands)])
            case AllToAll():
                return self._exchanged(i, operation, operands)
            case CollectivePermute(slice_sizes=(), source_target_pairs=pairs):
                return _alone([self._sent(i, pairs, o, n) for n, o in enumerate(operands)])
            case CollectiveBroadcast(has_dynamic_root=False):
                pairs = [(row[0], device) for row in self._rows(i) for device in row]
                return _alone([self._sent(i, pairs, o, n) for n, o in enumerate(operands)])
            case _:
                raise NoRelation(f"{i.opcode} has no relation")

    def _group(self, i: HloInstruction) -> AxisGroup:
        return self.axes.group(self._groups(i))

    def _rows(self, i: HloInstruction) -> list[list[int]]:
        """Return the devices of each group, the root first."""
        return groups_of(self._groups(i), math.prod(self.axes.sizes)).tolist()

    def _groups(self, i: HloInstruction) -> object:
        assert isinstance(i.operation, Collective)
        mode, partitions = i.operation.group_mode, self.axes.partitions
        replicas = math.prod(self.axes.sizes) // partitions
        if mode != "flattened_id" and replicas > 1 and partitions > 1:
            raise NoRelation("groups of replicas or partitions in a program of both")
        if (mode == "cross_replica" and partitions > 1) or (mode == "cross_partition" and replicas > 1):
            return DeviceList(tuple([(n,) for n in range(replicas * partitions)]))
        return i.operation.replica_groups

    def _axis(self, shape: Shape, d: int) -> Variable:
        """Return the variable of a dimension."""
        (term,) = self.terms.axes(shape.dimensions)[d].terms
        return term[0]

    def _reduced(self, i: HloInstruction, term: Term, n: int) -> Term:
        kind, reducer = i.operands[n].shape.element_type, i.called_computations[0]
        operation = combining(reducer)
        if operation is None or reducer.root.shape.element_type != kind:
            raise NoRelation(f"the reducer of {i.opcode} has no relation")
        if not self.totals.is_free(operation(), kind):
            raise NoRelation(f"{i.opcode} rounds sums in some order")
        group = self.axes.group(self._groups(i), ordered=False)
        bound = {v: Variable(v.extent, "b") for v in group.weights}
        body = self.terms.at(term, {v: Index.of(b) for v, b in bound.items()})
        variables = list(bound.values())
        return self.totals.combine(operation(), kind, variables, body, frozenset(variables))

    def _scattered(self, i: HloInstruction, operation: ReduceScatter, term: Term, n: int) -> Term:
        total = self._reduced(i, term, n)
        (d,) = operation.scatter_dimensions
        before = i.operands[n].shape
        return self._tile(
            total, before, d, self._group(i).member, before.dimensions[d] // self._group(i).size
        )

    def _tile(self, term: Term, shape: Shape, d: int, member: Index, size: int) -> Term:
        """Return the tile number ``member`` of a dimension."""
        dimensions = list(shape.dimensions)
        dimensions[d] = size
        before, after = self.terms.axes(shape.dimensions), self.terms.axes(dimensions)
        moved = {before[d].terms[0][0]: member * size + after[d]} if before[d].terms else {}
        return self.terms.at(term, moved)

    def _gathered(self, i: HloInstruction, operation: AllGather, term: Term, n: int) -> Term:
        (d,) = operation.all_gather_dimensions
        before = i.operands[n].shape
        size = before.dimensions[d]
        group = self._group(i)
        after = self.terms.axes((*before.dimensions[:d], size * group.size, *before.dimensions[d + 1 :]))
        member = self.terms.quotients.divide(after[d], size)
        renaming = group.at(member, self.terms.quotients)
        if size > 1:
            renaming[self._axis(before, d)] = after[d] - member * size
        return self.terms.at(term, renaming)

    def _exchanged(self, i: HloInstruction, operation: AllToAll, operands: Sequence[Term]) -> Any:
        group = self._group(i)
        if not operation.split_dimension:
            return tuple([self._received(group, operands, n) for n in range(len(operands))])
        (d,) = operation.split_dimension
        shape = i.operands[0].shape
        size = shape.dimensions[d] // group.size
        axis = self.terms.axes(shape.dimensions)[d]
        member = self.terms.quotients.divide(axis, size)
        renaming = group.at(member, self.terms.quotients)
        if axis.terms:
            renaming[axis.terms[0][0]] = group.member * size + (axis - member * size)
        return self.terms.at(operands[0], renaming)

    def _received(self, group: AxisGroup, operands: Sequence[Term], member: int) -> Term:
        """Return what a member of the group sends: the operand whose number is that of this device."""
        digits = group.at(Index(member), self.terms.quotients)
        *others, result = [self.terms.at(o, digits) for o in operands]
        for number, other in reversed(list(enumerate(others))):
            result = self.terms.choose(group.member * -1 + number, other, result)
        return result

    def _sent(self, i: HloInstruction, pairs: Sequence[tuple[int, int]], term: Term, n: int) -> Term:
        """Return what each device receives: from the source of a pair if it is its target, else zeros."""
        digits, conditions = sources(self.axes, pairs)
        zero = self.laws.constant(0, i.operands[n].shape.element_type)
        return self.terms.every(conditions, self.terms.at(term, digits), zero)


def _alone(values: Sequence[Term]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)
