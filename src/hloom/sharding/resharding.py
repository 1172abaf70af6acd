"""Resharding: instructions that turn tiles of one tiling into those of another."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np

from hloom.ir.device_groups import DeviceList
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.operations.arithmetic import Add
from hloom.operations.collectives import AllGather, AllReduce, PartitionId
from hloom.operations.comparison import Select
from hloom.operations.dynamic_slicing import DynamicSlice
from hloom.operations.exchanges import CollectiveBroadcast
from hloom.operations.movement import Reshape
from hloom.operations.structure import AfterAll, Constant
from hloom.passes.writing import Writer
from hloom.shape.element_type import S32, U32
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape
from hloom.sharding.tiling import Tiling

Region: TypeAlias = "tuple[tuple[tuple[int, ...], ...], ...]"
"""The manual regions around a value, outermost first: each device's place along the axes of each."""
Groups: TypeAlias = "tuple[tuple[int, ...], ...]"


class Resharder:
    """Writes collectives and slices."""

    def __init__(self, module: HloModule) -> None:
        used = [getattr(i.operation, "channel_id", None) or 0 for i in module.instructions()]
        self._channels: Final = itertools.count(max(used, default=0) + 1)

    def channel(self) -> int:
        """Return a channel that no collective of the module uses."""
        return next(self._channels)

    def reshard(
        self, value: HloInstruction, shape: Shape, have: Tiling, want: Tiling, region: Region
    ) -> HloInstruction:
        """Return the tiles of an array of a shape in another tiling.

        Summands are added first; dimensions that are cut differently are gathered, then sliced. If devices
        are to hold summands, the first of each group holds the tile, the others hold zeros.
        """
        if have.summands and (have.summands != want.summands or have.tiles != want.tiles):
            groups = have.summand_groups(fixed(region, have.devices))
            value, have = self.all_reduce(value, Add(), groups), have.summed()
        changed = [d for d in range(shape.rank) if not have.same_cut(d, want, d)]
        for d in changed:
            if have.cuts(d):
                value = self._gather(value, have, d, region)
                have = have.without([d])
        cut = [d for d in changed if want.cuts(d)]
        value = self._slice(value, want, cut) if cut else value
        return self._first_summand(value, want) if want.summands != have.summands else value

    def _first_summand(self, value: HloInstruction, tiling: Tiling) -> HloInstruction:
        writer = Writer(value)
        number = self._of_device(writer, tiling.summands)
        first = writer.compare(number, "EQ", writer.scalar(0, S32))
        zeros = writer.full(0, value.shape)
        chosen = writer.broadcast(first, value.shape.dimensions)
        return writer.op(Select(), chosen, value, zeros, shape=value.shape)

    def _gather(self, value: HloInstruction, tiling: Tiling, d: int, region: Region) -> HloInstruction:
        operation = AllGather(
            all_gather_dimensions=(d,),
            replica_groups=DeviceList(tiling.groups([d], fixed(region, tiling.devices))),
            channel_id=self.channel(),
            use_global_device_ids=True,
            constrain_layout=False,
        )
        extents = list(value.shape.dimensions)
        extents[d] *= tiling.tiles[d]
        return Writer(value).op(operation, value, shape=Shape(value.shape.element_type, tuple(extents)))

    def _slice(self, value: HloInstruction, tiling: Tiling, cut: Sequence[int]) -> HloInstruction:
        writer = Writer(value)
        extents = list(value.shape.dimensions)
        starts: list[HloInstruction] = []
        for d in range(value.shape.rank):
            if d not in cut:
                starts.append(writer.scalar(0, S32))
                continue
            extents[d] //= tiling.tiles[d]
            starts.append(self._of_device(writer, [n * extents[d] for n in tiling.column(d)]))
        shape = Shape(value.shape.element_type, tuple(extents))
        return writer.op(DynamicSlice(dynamic_slice_sizes=shape.dimensions), value, *starts, shape=shape)

    def _of_device(self, writer: Writer, numbers: Sequence[int]) -> HloInstruction:
        """Return the number of this device from a table."""
        table = np.asarray(numbers, np.int32)
        literal = Literal(table, Shape(S32, table.shape))
        constant = writer.op(Constant(literal=literal), shape=literal.shape)
        device = writer.op(PartitionId(), shape=Shape(U32, ()))
        one = writer.op(DynamicSlice(dynamic_slice_sizes=(1,)), constant, device, shape=Shape(S32, (1,)))
        return writer.reshape(one, ())

    def all_reduce(self, value: HloInstruction, combiner: Operation, groups: Groups) -> HloInstruction:
        """Return what the devices of each group have, combined."""
        writer = Writer(value)
        operation = AllReduce(
            replica_groups=DeviceList(groups),
            channel_id=self.channel(),
            use_global_device_ids=True,
            constrain_layout=False,
        )
        computation = writer.combiner(combiner, value.shape.element_type)
        return writer.op(operation, value, shape=value.shape, computations=[computation])

    def broadcast(self, value: HloInstruction, source: int, devices: int) -> HloInstruction:
        """Return an array of one device on all devices."""
        group = (source, *(n for n in range(devices) if n != source))
        operation = CollectiveBroadcast(replica_groups=DeviceList((group,)), channel_id=self.channel())
        return Writer(value).op(operation, value, shape=value.shape)

    def renamed(self, value: HloInstruction) -> HloInstruction:
        """Return an instruction of its own with the same value."""
        if value.shape.is_array:
            return Writer(value).op(Reshape(), value, shape=value.shape)
        return Writer(value).op(AfterAll(), value, shape=value.shape)


def fixed(region: Region, devices: int) -> list[object]:
    """Return what the devices of a group must agree in, for each device."""
    return [tuple(layer[device] for layer in region) for device in range(devices)]
