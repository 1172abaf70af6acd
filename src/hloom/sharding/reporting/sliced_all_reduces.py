"""Detection of all-reduces of which each device uses a slice only.

A reduce-scatter would send half the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.analysis.device_numbers import number_on
from hloom.ir.device_groups import IotaDeviceList
from hloom.ir.instruction import HloInstruction
from hloom.operations.collectives import Collective
from hloom.operations.dynamic_slicing import DynamicSlice


def sliced_dimension(all_reduce: HloInstruction) -> int | None:
    """Return the dimension along which each device uses only its own slice of an all-reduce's result.

    All users must slice the result into as many equal parts as the group has devices. Returns None if they do
    not, or if the instruction is not an all-reduce of one array.
    """
    operation = all_reduce.operation
    if (
        not isinstance(operation, Collective)
        or operation.kind != "all-reduce"
        or len(all_reduce.operands) != 1
    ):
        return None
    groups = operation.replica_groups
    members = groups.first if isinstance(groups, IotaDeviceList) else next(iter(groups.groups), ())
    dimensions = {_partitioned_dimension(user, all_reduce, members) for user in all_reduce.users}
    return dimensions.pop() if len(dimensions) == 1 and not all_reduce.is_root else None


def _partitioned_dimension(user: HloInstruction, total: HloInstruction, members: Sequence[int]) -> int | None:
    """Return the dimension along which ``user`` slices ``total`` such that each device gets its own part.

    ``members`` are the device ids of a group. The parts must have equal size and together cover ``total``.
    Returns None if ``user`` is no such slice.
    """
    if not isinstance(user.operation, DynamicSlice) or user.operands[0] is not total or len(members) < 2:
        return None
    pairs = zip(total.shape.dimensions, user.shape.dimensions, strict=True)
    sliced = [d for d, (before, after) in enumerate(pairs) if before != after]
    if len(sliced) != 1:
        return None
    (d,) = sliced
    extent = user.shape.dimensions[d]
    if extent * len(members) != total.shape.dimensions[d]:
        return None
    starts = [number_on(user.operands[1 + d], member) for member in members]
    constant = sorted(start for start in starts if start is not None)
    return d if constant == [n * extent for n in range(len(members))] else None
