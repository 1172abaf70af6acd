"""Collectives with a root: collective-broadcast sends its operands, collective-reduce gives it the results.

The page "CollectiveBroadcast". The root is the first device of its group. With ``has_dynamic_root`` the last
operand is a vector of s32 that has, for each of the others, the place of its root in the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeVar

import numpy as np

from hloom.error_bounds.rules import linear
from hloom.errors import EvaluationError, ShapeError, plural
from hloom.ir.codec import flag
from hloom.ir.device import Pending
from hloom.ir.device_groups import ReplicaGroups, channel_id, members_of, replica_groups
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, ProgramShape, Run, Value, operation
from hloom.ir.xla_version import V0_11
from hloom.operations.collectives import Collective, Contributions, Reducing, alone
from hloom.shape.element_type import S32
from hloom.shape.shape import Shape

T = TypeVar("T")


class _Rooted(Collective):
    """Common to both; zeros on a device that is in no group."""

    __slots__ = ()
    equal_groups: ClassVar[bool] = False
    has_dynamic_root: bool

    def data_of(self, operands: Sequence[T]) -> Sequence[T]:
        """Return the operands without the roots."""
        return operands[:-1] if self.has_dynamic_root else operands

    def checked_data(self, operands: Sequence[Shape]) -> Sequence[Shape]:
        """Return the shapes of the operands without the roots, whose shape is checked."""
        self.check_groups()
        self.check_arrays(operands)
        data = self.data_of(operands)
        if not self.has_dynamic_root:
            return data
        roots = operands[-1]
        if not data or roots.rank != 1 or roots.element_type is not S32 or roots.dimensions[0] != len(data):
            message = (
                f"with has_dynamic_root the last operand is s32[{len(data)}], a root for each of the other "
                f"{len(data)}, got {roots}"
            )
            raise ShapeError(message, rule=f"{self.opcode}.roots")
        return data

    def begin(self, run: Run, *operands: Array) -> Pending:
        """Contribute; a device in no group does not wait."""
        if members_of(self.replica_groups.groups, self.group_mode, run.device) is None:
            return Pending(lambda: alone([np.zeros_like(o) for o in self.data_of(operands)]))
        return Collective.begin(self, run, *operands)

    def roots(self, run: Run, values: Contributions) -> list[int]:
        """Return the place of the root of each operand in the group.

        Raise EvaluationError if devices name different roots, or a place that the group does not have.
        """
        if not self.has_dynamic_root:
            return [0] * len(values[0])
        named = [[int(root) for root in operands[-1]] for operands in values]
        if any(roots != named[0] for roots in named):
            message = f"the devices of a group name different roots: {named}"
            raise EvaluationError(message, rule="collective.same-root", instruction=run.instruction.name)
        for root in named[0]:
            if not 0 <= root < len(values):
                message = (
                    f"root {root} of a group of {plural(len(values), 'device')}; "
                    "roots are places in the group"
                )
                raise EvaluationError(message, rule="collective.root-range", instruction=run.instruction.name)
        return named[0]


@operation("collective-broadcast", "*operands")
class CollectiveBroadcast(_Rooted):
    """Every device gets the operands of the root of its group; zeros where it is in no group.

    Arguments:
        operands: one or more arrays, then the roots if ``has_dynamic_root``.
        replica_groups, channel_id: the groups; with a channel of partitions, without one of replicas.
        has_dynamic_root: the last operand is a vector of s32 with the place in the group of the root of each
            of the others; otherwise the root is the first device.
    """

    errors = linear
    channel_id: int | None = channel_id()
    replica_groups: ReplicaGroups = replica_groups()
    has_dynamic_root: bool = flag(default=False, always=True, since=V0_11)

    def infer(self, *operands: Shape) -> Shape:
        return Shape.maybe_tuple(self.checked_data(operands))

    def combine(self, run: Run, values: Contributions, position: int) -> Value:
        return alone([values[root][n] for n, root in enumerate(self.roots(run, values))])


@operation("collective-reduce", "*operands", computations=["to_apply"])
class CollectiveReduce(_Rooted, Reducing):
    """Reduces arrays across the devices of each group; the root gets the result, all others zeros.

    XLA leaves open what the other devices get.

    Arguments:
        operands: one or more arrays, then the roots if ``has_dynamic_root``.
        to_apply: the reduction of two scalars.
        replica_groups, channel_id, use_global_device_ids: the groups, as for all-reduce.
        has_dynamic_root: the last operand is a vector of s32 with the place in the group of the root of each
            of the others; otherwise the root is the first device.
    """

    channel_id: int | None = channel_id()
    replica_groups: ReplicaGroups = replica_groups()
    use_global_device_ids: bool = flag()
    has_dynamic_root: bool = flag(default=False, always=True, since=V0_11)

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """Return the shapes of the operands."""
        data = self.checked_data(operands)
        self.check_reducer(data, computations)
        return Shape.maybe_tuple(data)

    def combine(self, run: Run, values: Contributions, position: int) -> Value:
        """Return the reduced operands of which this device is the root."""
        roots = self.roots(run, values)
        data = [self.data_of(operands) for operands in values]
        results = self.reduced(run, data) if position in roots else data[position]
        return alone([r if root == position else np.zeros_like(r) for r, root in zip(results, roots)])


def has_first_root(i: HloInstruction) -> bool:
    """Return whether an instruction broadcasts one array from the first device of each group."""
    operation = i.operation
    return isinstance(operation, CollectiveBroadcast) and len(i.operands) == 1
