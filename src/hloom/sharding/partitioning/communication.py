"""Communication: collectives, and what depends on the number of the device."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

import numpy as np

from hloom.ir.computation import HloComputation
from hloom.ir.device_groups import DeviceList
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.ir.window import PaddingDimension
from hloom.operations.arithmetic import Add, Divide, Multiply, Remainder
from hloom.operations.collectives import AllReduce, ReduceScatter
from hloom.operations.conversion import Convert
from hloom.operations.device_ids import PartitionId
from hloom.operations.dynamic_slicing import DynamicSlice
from hloom.operations.exchanges import CollectivePermute
from hloom.operations.movement import Pad
from hloom.operations.reshaping import Reshape
from hloom.operations.rooted_collectives import CollectiveBroadcast
from hloom.operations.structure import AfterAll, Constant
from hloom.passes.writing import Writer
from hloom.shape.element_type import S32, U32
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape
from hloom.sharding.planning.decisions import Cause
from hloom.sharding.tiling.coordinates import MOST_LISTED, Column, DeviceGroups, group_size

Region: TypeAlias = "tuple[tuple[Column, ...], ...]"
"""The manual regions around a value, outermost first: the places of devices along the axes of each."""


class Communication:
    """Writes collectives and slices.

    Attributes:
        causes: why each collective was written, where that is known.
    """

    def __init__(self, module: HloModule) -> None:
        self.causes: dict[HloInstruction, Cause] = {}
        self._cause: Cause | None = None
        used = [getattr(i.operation, "channel_id", None) or 0 for i in module.instructions()]
        self._channels: Final = itertools.count(max(used, default=0) + 1)

    @contextmanager
    def because(self, cause: Cause) -> Generator[None]:
        """Record a cause for the collectives that are written inside the ``with`` statement."""
        before, self._cause = self._cause, cause
        try:
            yield
        finally:
            self._cause = before

    def collective(
        self,
        operation: Operation,
        value: HloInstruction,
        shape: Shape,
        computations: Sequence[HloComputation] = (),
    ) -> HloInstruction:
        """Write a collective and record its cause."""
        made = Writer(value).op(operation, value, shape=shape, computations=computations)
        if self._cause is not None:
            self.causes[made] = self._cause
        return made

    def channel(self) -> int:
        """Return a channel that no collective of the module uses."""
        return next(self._channels)

    def permute(self, value: HloInstruction, pairs: Sequence[tuple[int, int]]) -> HloInstruction:
        """Return what the source of each pair has, on its target; zeros on devices that are no target."""
        operation = CollectivePermute(channel_id=self.channel(), source_target_pairs=tuple(pairs))
        return self.collective(operation, value, value.shape)

    def padded(self, value: HloInstruction, d: int, extent: int) -> HloInstruction:
        """Return a tile with zeros behind it along a dimension, up to an extent."""
        missing = extent - value.shape.dimensions[d]
        return self.window(value, d, 0, missing) if missing else value

    def trimmed(self, value: HloInstruction, d: int, extent: int) -> HloInstruction:
        """Return the first elements of a tile along a dimension."""
        return self.window(value, d, 0, extent - value.shape.dimensions[d])

    def window(
        self, value: HloInstruction, d: int, low: int, high: int, fill: HloInstruction | None = None
    ) -> HloInstruction:
        """Return a tile padded, or cut if negative, at both ends of a dimension; with zeros by default."""
        if low == 0 and high == 0:
            return value
        writer = Writer(value)
        zero = fill or writer.scalar(0, value.shape.element_type)
        pads = [PaddingDimension(0, 0, 0)] * value.shape.rank
        pads[d] = PaddingDimension(low, high, 0)
        extents = list(value.shape.dimensions)
        extents[d] += low + high
        shape = Shape(value.shape.element_type, tuple(extents))
        return writer.op(Pad(padding=tuple(pads)), value, zero, shape=shape)

    def of_column(self, writer: Writer, column: Column, factor: int = 1) -> HloInstruction:
        """Return this device's index in a column, times a factor.

        A table would grow with the devices: for many of them, compute the index from the digits.
        """
        if column.devices <= MOST_LISTED or column.listed:
            return self.of_device(writer, [index * factor for index in column.indices])
        device = writer.op(Convert(), writer.op(PartitionId(), shape=Shape(U32, ())), shape=Shape(S32, ()))
        total = writer.scalar(0, S32)
        for stride, size in reversed(column.digits):
            digit = device
            for operation, number in ((Divide(), stride), (Remainder(), size), (Multiply(), factor)):
                digit = writer.op(operation, digit, writer.scalar(number, S32), shape=digit.shape)
            total = writer.op(Add(), total, digit, shape=digit.shape)
            factor *= size
        return total

    def of_device(self, writer: Writer, numbers: Sequence[int]) -> HloInstruction:
        """Return the number of this device from a table."""
        if len(set(numbers)) == 1:
            return writer.scalar(numbers[0], S32)
        table = np.asarray(numbers, np.int32)
        literal = Literal(table, Shape(S32, table.shape))
        constant = writer.op(Constant(literal=literal), shape=literal.shape)
        device = writer.op(PartitionId(), shape=Shape(U32, ()))
        one = writer.op(DynamicSlice(dynamic_slice_sizes=(1,)), constant, device, shape=Shape(S32, (1,)))
        return writer.reshape(one, ())

    def reduce_scatter(
        self, value: HloInstruction, combiner: Operation, d: int, groups: DeviceGroups
    ) -> HloInstruction:
        """Return what the devices of each group have, combined; each gets a part along a dimension."""
        operation = ReduceScatter(
            replica_groups=groups,
            channel_id=self.channel(),
            use_global_device_ids=True,
            constrain_layout=False,
            scatter_dimensions=(d,),
        )
        extents = list(value.shape.dimensions)
        extents[d] //= group_size(groups)
        shape = Shape(value.shape.element_type, tuple(extents))
        computation = Writer(value).combiner(combiner, value.shape.element_type)
        return self.collective(operation, value, shape, [computation])

    def all_reduce(self, value: HloInstruction, combiner: Operation, groups: DeviceGroups) -> HloInstruction:
        """Return what the devices of each group have, combined."""
        operation = AllReduce(
            replica_groups=groups,
            channel_id=self.channel(),
            use_global_device_ids=True,
            constrain_layout=False,
        )
        computation = Writer(value).combiner(combiner, value.shape.element_type)
        return self.collective(operation, value, value.shape, [computation])

    def broadcast(self, value: HloInstruction, source: int, devices: int) -> HloInstruction:
        """Return an array of one device on all devices."""
        group = (source, *(n for n in range(devices) if n != source))
        operation = CollectiveBroadcast(replica_groups=DeviceList((group,)), channel_id=self.channel())
        return self.collective(operation, value, value.shape)

    def renamed(self, value: HloInstruction) -> HloInstruction:
        """Return an instruction of its own with the same value."""
        if value.shape.is_array:
            return Writer(value).op(Reshape(), value, shape=value.shape)
        return Writer(value).op(AfterAll(), value, shape=value.shape)


def fixed(region: Region) -> tuple[Column, ...]:
    """Return the columns in which the devices of a group must agree."""
    return tuple(column for layer in region for column in layer)
