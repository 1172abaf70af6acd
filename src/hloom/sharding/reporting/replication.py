"""Replicated arrays, and the memory that sharding them would save."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from hloom.analysis.origin import op_name, source_line
from hloom.ir.instruction import HloInstruction
from hloom.ir.traits import shape_bytes
from hloom.operations.structure import Constant, Parameter
from hloom.records import dataclass
from hloom.sharding.partitioning.partitioner import Partitioned
from hloom.sharding.planning.decisions import Decision


@dataclass(frozen=True, slots=True)
class ReplicatedArray:
    """An array of the partitioned program of which every device has a full copy.

    Attributes:
        name, opcode: the instruction that computes the array.
        op_name, source: the framework's operation and source line; "" if not recorded.
        shape: the shape, as HLO text.
        bytes: the size on each device.
        is_annotated: True if the program states that the array is replicated.
        axis, dimension: the largest mesh axis that divides a dimension evenly, and that dimension; "" and -1
            if no axis does.
        saved: the bytes that a device saves if that axis shards the dimension.
    """

    name: str
    opcode: str
    op_name: str
    source: str
    shape: str
    bytes: int
    is_annotated: bool
    axis: str
    dimension: int
    saved: int


def replicated_arrays(
    partitioned: Partitioned, devices: int, axes: Mapping[str, int], least: float
) -> tuple[ReplicatedArray, ...]:
    """Return the replicated arrays of at least ``least`` bytes, the largest first.

    Constants and aliases are left out. ``axes`` are the sizes of the mesh axes; if empty, all devices count
    as one axis. Returns an empty tuple if ``devices``, the number of devices, is 1.
    """
    if devices == 1:
        return ()
    named = dict(axes) or {"devices": devices}
    arrays = [
        _replicated_array(i, decision, named)
        for i, decision in _computed(partitioned)
        if shape_bytes(i.shape) >= max(least, 1)
    ]
    return tuple(sorted(arrays, key=lambda array: -array.bytes))


def _computed(partitioned: Partitioned) -> Iterator[tuple[HloInstruction, Decision]]:
    """Yield the instructions whose results are replicated arrays of positive rank, each with a record.

    The record is the partitioner's; it states how and why the array is sharded. Constants, aliases and
    parameters of called computations are left out.
    """
    module = partitioned.module
    for i in module.instructions():
        decision = partitioned.decisions.get(i)
        if not isinstance(decision, Decision) or decision.instruction is not i or not i.shape.is_array:
            continue
        tiling = decision.tiling
        inner = isinstance(i.operation, Parameter) and i.parent is not module.entry
        if inner or isinstance(i.operation, Constant) or i.operation.aliases_operand or not i.shape.rank:
            continue
        if tiling is not None and tiling.is_replicated and i.shape.dimensions == decision.shape.dimensions:
            yield i, decision


def _replicated_array(i: HloInstruction, decision: Decision, axes: Mapping[str, int]) -> ReplicatedArray:
    size = shape_bytes(i.shape)
    divisible = [
        (count, axis, d)
        for axis, count in axes.items()
        for d, extent in enumerate(i.shape.dimensions)
        if count > 1 and extent and extent % count == 0
    ]
    count, axis, d = max(divisible, key=lambda candidate: candidate[0], default=(1, "", -1))
    return ReplicatedArray(
        i.name,
        i.opcode,
        op_name(i),
        source_line(i),
        i.shape.to_string(layout=False),
        size,
        decision.is_annotated,
        axis,
        d,
        size - math.ceil(size / count),
    )
