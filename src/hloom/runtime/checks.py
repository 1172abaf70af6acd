"""Checks of programs before a backend compiles them: sizes of arrays, groups of collectives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from hloom.buffers.buffers import leaves
from hloom.errors import HloError
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.collectives import Collective
from hloom.operations.rooted_collectives import CollectiveBroadcast, CollectiveReduce

_MOST_BYTES: Final = (1 << 63) - 1


def check_sizes(module: HloModule) -> None:
    """Refuse arrays beyond the address space; as for numpy, sizes of 0 count as 1."""
    for instruction in module.instructions():
        for _, shape in leaves(instruction.shape):
            if not shape.is_array:
                continue
            count = math.prod(max(size, 1) for size in shape.dimensions)
            if count * shape.element_type.bytes > _MOST_BYTES:
                message = f"{shape.to_string(layout=False)} is larger than the address space"
                error = HloError(message, rule="compile.array-size", instruction=instruction.name)
                raise module.locate(error)


def check_device_groups(modules: Sequence[HloModule], num_replicas: int, num_partitions: int) -> None:
    """Refuse a device that is in no group of a collective of its program, and numbers of no device.

    A collective-broadcast has a value for devices in no group. ``modules`` has the program of each device,
    replica-major. Raises HloError by the rules ``collective.device-in-group``, ``collective.device-range``.
    """
    devices: dict[HloModule, list[tuple[int, int]]] = {}
    for number, module in enumerate(modules):
        devices.setdefault(module, []).append(divmod(number, num_partitions))
    for module, module_devices in devices.items():
        checked: set[object] = set()
        for i in module.instructions():
            if not isinstance(i.operation, Collective):
                continue
            groups, mode = i.operation.replica_groups, i.operation.group_mode
            key = (type(i.operation), groups, mode)
            if key not in checked:
                checked.add(key)
                _check(i, groups.groups, mode, module_devices, (num_replicas, num_partitions))


def _check(
    i: HloInstruction,
    groups: Sequence[Sequence[int]],
    mode: str,
    devices: Iterable[tuple[int, int]],
    counts: tuple[int, int],
) -> None:
    """Check the groups of one collective for the devices, (replica, partition), that execute it."""
    replicas, partitions = counts
    sizes = {"cross_partition": partitions, "flattened_id": replicas * partitions}
    size = sizes.get(mode, replicas)
    grouped = {number for group in groups for number in group}
    beyond = [number for number in sorted(grouped) if number >= size]
    if beyond:
        message = f"replica group number {beyond[0]} is out of range: there are {size} in mode {mode}"
        _refuse(i, message, "collective.device-range")
    if not grouped or isinstance(i.operation, (CollectiveBroadcast, CollectiveReduce)):
        return
    for replica, partition in devices:
        numbers = {"cross_partition": partition, "flattened_id": replica * partitions + partition}
        number = numbers.get(mode, replica)
        if number not in grouped:
            message = f"{number} of {size} in mode {mode} is in no replica group; each needs one"
            _refuse(i, message, "collective.device-in-group")


def _refuse(i: HloInstruction, message: str, rule: str) -> None:
    assert i.parent is not None and i.parent.module is not None
    raise i.parent.module.locate(HloError(message, rule=rule, instruction=i.name))
