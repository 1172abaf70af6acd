"""Replication: arrays that every device has whole, and what it would save to cut them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hloom.analysis.origin import op_name, source_line
from hloom.ir.instruction import HloInstruction
from hloom.ir.traits import shape_bytes
from hloom.operations.structure import Constant, Parameter
from hloom.sharding.partitioning.partitioner import Partitioned
from hloom.sharding.planning.decisions import Decision


@dataclass(frozen=True, slots=True)
class WholeArray:
    """An array that every device has whole.

    Attributes:
        name, opcode: of the instruction.
        op_name, source: the framework's operation and source line; "" if not recorded.
        shape: of the array.
        bytes: on each device.
        is_stated: the program states that it is whole; otherwise it is so silently.
        axis, dimension: the largest axis of the mesh that divides a dimension, and that dimension; "" and -1
            if none does.
        saved: bytes that a device would save if it were cut so.
    """

    name: str
    opcode: str
    op_name: str
    source: str
    shape: str
    bytes: int
    is_stated: bool
    axis: str
    dimension: int
    saved: int


def whole_arrays(
    partitioned: Partitioned, devices: int, axes: Mapping[str, int], least: float
) -> tuple[WholeArray, ...]:
    """Return arrays of at least some bytes that every device has whole, the largest first.

    Constants are left out, and values that consist of other arrays. Without axes, all devices are one.
    """
    if devices == 1:
        return ()
    named = dict(axes) or {"devices": devices}
    found = [
        _whole_array(i, decision, named)
        for i, decision in _computed(partitioned)
        if shape_bytes(i.shape) >= max(least, 1)
    ]
    return tuple(sorted(found, key=lambda array: -array.bytes))


def _computed(partitioned: Partitioned) -> Iterator[tuple[HloInstruction, Decision]]:
    """Yield the instructions of the program that compute whole arrays of rank 1 or more."""
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


def _whole_array(i: HloInstruction, decision: Decision, axes: Mapping[str, int]) -> WholeArray:
    size = shape_bytes(i.shape)
    cuts = [
        (count, axis, d)
        for axis, count in axes.items()
        for d, extent in enumerate(i.shape.dimensions)
        if count > 1 and extent and extent % count == 0
    ]
    count, axis, d = max(cuts, key=lambda cut: cut[0], default=(1, "", -1))
    return WholeArray(
        i.name,
        i.opcode,
        op_name(i),
        source_line(i),
        i.shape.to_string(layout=False),
        size,
        decision.is_stated,
        axis,
        d,
        size - math.ceil(size / count),
    )
