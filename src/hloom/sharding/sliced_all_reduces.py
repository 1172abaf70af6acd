"""All-reduces of which each device uses a part only: a reduce-scatter sends half as much."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from hloom.ir.device_groups import IotaDeviceList
from hloom.ir.instruction import HloInstruction
from hloom.operations.collectives import Collective, PartitionId
from hloom.operations.dynamic_slicing import DynamicSlice
from hloom.operations.structure import Constant

_OPERATORS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "add": int.__add__,
    "subtract": int.__sub__,
    "multiply": int.__mul__,
    "divide": int.__floordiv__,
    "remainder": int.__mod__,
}
_SAME: Final = ("convert", "reshape", "bitcast", "copy")


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
    starts = [_number(user.operands[1 + d], member) for member in members]
    return (
        d if sorted(s for s in starts if s is not None) == [n * extent for n in range(len(members))] else None
    )


def _number(i: HloInstruction, device: int) -> int | None:
    """Return the value of a scalar on a device; None unless it follows from the number of the device."""
    if isinstance(i.operation, PartitionId):
        return device
    if isinstance(i.operation, Constant) and i.shape.element_count == 1:
        return int(i.operation.literal.array.reshape(-1)[0])
    numbers = [_number(operand, device) for operand in _scalars(i)]
    if not numbers or None in numbers:
        return None
    known = [number for number in numbers if number is not None]
    if i.opcode in _SAME:
        return known[0]
    if isinstance(i.operation, DynamicSlice):
        table = i.operands[0]
        if isinstance(table.operation, Constant) and table.shape.rank == 1 and i.shape.element_count == 1:
            return int(table.operation.literal.array[min(max(known[0], 0), table.shape.dimensions[0] - 1)])
        return None
    operator = _OPERATORS.get(i.opcode)
    return operator(*known) if operator is not None and len(known) == 2 else None


def _scalars(i: HloInstruction) -> Iterator[HloInstruction]:
    """Yield the operands that are numbers; of a slice its start."""
    yield from i.operands[1:] if isinstance(i.operation, DynamicSlice) else i.operands
