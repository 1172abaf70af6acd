"""All-reduces of which each device uses a part only: a reduce-scatter sends half as much."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.analysis.device_numbers import number_on
from hloom.ir.device_groups import IotaDeviceList
from hloom.ir.instruction import HloInstruction
from hloom.operations.collectives import Collective
from hloom.operations.dynamic_slicing import DynamicSlice


def sliced_dimension(all_reduce: HloInstruction) -> int | None:
    """Return the dimension along which each device of a group takes its own part of a sum; None if none.

    All uses must be slices into as many equal parts as the group has devices, and each device of the group
    must take another one.
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
    found = {_part(user, all_reduce, members) for user in all_reduce.users}
    return found.pop() if len(found) == 1 and not all_reduce.is_root else None


def _part(user: HloInstruction, whole: HloInstruction, members: Sequence[int]) -> int | None:
    """Return the dimension along which a slice takes another part on each member."""
    if not isinstance(user.operation, DynamicSlice) or user.operands[0] is not whole or len(members) < 2:
        return None
    pairs = zip(whole.shape.dimensions, user.shape.dimensions, strict=True)
    cut = [d for d, (before, after) in enumerate(pairs) if before != after]
    if len(cut) != 1:
        return None
    (d,) = cut
    extent = user.shape.dimensions[d]
    if extent * len(members) != whole.shape.dimensions[d]:
        return None
    starts = [number_on(user.operands[1 + d], member) for member in members]
    known = sorted(start for start in starts if start is not None)
    return d if known == [n * extent for n in range(len(members))] else None
