"""Resharding: instructions that turn tiles of one tiling into those of another."""

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
from hloom.operations.arithmetic import Add, Divide, Multiply, Remainder, Subtract
from hloom.operations.collectives import AllGather, AllReduce, PartitionId, ReduceScatter
from hloom.operations.comparison import Select
from hloom.operations.conversion import Convert
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.exchanges import AllToAll, CollectiveBroadcast, CollectivePermute
from hloom.operations.movement import Concatenate, Pad, Reshape, Transpose
from hloom.operations.structure import AfterAll, Constant
from hloom.passes.writing import Writer
from hloom.shape.element_type import S32, U32
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape
from hloom.sharding.columns import MOST_LISTED, Column, DeviceGroups, group_size
from hloom.sharding.decisions import Cause
from hloom.sharding.plans import Cut, Exchange, Gather, Permute, Spread, Step, plan
from hloom.sharding.summands import parts_as_summands, scattered_dimension
from hloom.sharding.tiling import Tiling

Region: TypeAlias = "tuple[tuple[Column, ...], ...]"
"""The manual regions around a value, outermost first: the places of devices along the axes of each."""


class Resharder:
    """Writes collectives and slices.

    Attributes:
        causes: why each collective was written, where that is known.
        cuts: the tiling that each slice of larger tiles gives.
    """

    def __init__(self, module: HloModule) -> None:
        self.causes: dict[HloInstruction, Cause] = {}
        self.cuts: dict[HloInstruction, Tiling] = {}
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

    def _collective(
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

    def reshard(
        self, value: HloInstruction, shape: Shape, have: Tiling, want: Tiling, region: Region
    ) -> HloInstruction:
        """Return the tiles of an array of a shape in another tiling.

        Summands are added first. If devices are to hold summands, the first of each group holds the tile,
        the others hold zeros.
        """
        if have.summands and (have.summands != want.summands or have.tiles != want.tiles):
            d = scattered_dimension(have.summed(), [have.summands], want, shape.dimensions)
            if d is not None:
                return self.reduce_scatter(value, Add(), d, want.groups([d], fixed(region)))
            groups = have.summand_groups(fixed(region))
            value, have = self.all_reduce(value, Add(), groups), have.summed()
        parts = parts_as_summands(have, want)
        if parts:
            return self._placed(value, shape, have, parts)
        steps, _ = plan(shape.dimensions, have.summed(), want.summed(), fixed(region))
        before = have
        for step in steps:
            value = self._step(value, shape, before, step)
            before = step.after
        return self.first_summand(value, want) if want.summands != have.summands else value

    def _step(self, value: HloInstruction, shape: Shape, before: Tiling, step: Step) -> HloInstruction:
        match step:
            case Permute(pairs=pairs):
                return self.permute(value, pairs)
            case Exchange(source=d, target=e, groups=groups):
                value = self.padded(value, e, step.after.local(shape.dimensions)[e] * group_size(groups))
                value = self._exchange(value, d, e, groups)
            case Gather(dimension=d, groups=groups):
                value = self._gather(value, d, groups)
            case Spread(dimension=d, groups=groups, tiles=tiles):
                value = self._spread(value, d, groups, tiles)
            case Cut():
                return self._slice(value, shape, before, step.after)
        return self.trimmed(value, d, step.after.local(shape.dimensions)[d])

    def permute(self, value: HloInstruction, pairs: Sequence[tuple[int, int]]) -> HloInstruction:
        """Return what the source of each pair has, on its target; zeros on devices that are no target."""
        operation = CollectivePermute(channel_id=self.channel(), source_target_pairs=tuple(pairs))
        return self._collective(operation, value, value.shape)

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

    def _exchange(self, value: HloInstruction, d: int, e: int, groups: DeviceGroups) -> HloInstruction:
        """Cut dimension ``e`` into parts, send each to its device, and join what arrives along ``d``."""
        writer, count = Writer(value), group_size(groups)
        extents = list(value.shape.dimensions)
        parts = [*extents[:e], count, extents[e] // count, *extents[e + 1 :]]
        value = writer.reshape(value, parts)
        operation = AllToAll(
            channel_id=self.channel(),
            replica_groups=groups,
            constrain_layout=False,
            split_dimension=(e,),
        )
        value = self._collective(operation, value, value.shape)
        rest = [n for n in range(len(parts)) if n != e]
        place = rest.index(d if d < e else d + 1)
        order = (*rest[:place], e, *rest[place:])
        shape = Shape(value.shape.element_type, tuple(parts[n] for n in order))
        value = writer.op(Transpose(dimensions=order), value, shape=shape)
        extents[e] //= count
        extents[d] *= count
        return writer.reshape(value, extents)

    def first_summand(self, value: HloInstruction, tiling: Tiling) -> HloInstruction:
        """Return the value on the first device of each group that holds summands, zeros on the others."""
        writer = Writer(value)
        assert tiling.summands is not None
        number = self.of_column(writer, tiling.summands)
        first = writer.compare(number, "EQ", writer.scalar(0, S32))
        zeros = writer.full(0, value.shape)
        chosen = writer.broadcast(first, value.shape.dimensions)
        return writer.op(Select(), chosen, value, zeros, shape=value.shape)

    def _gather(self, value: HloInstruction, d: int, groups: DeviceGroups) -> HloInstruction:
        operation = AllGather(
            all_gather_dimensions=(d,),
            replica_groups=groups,
            channel_id=self.channel(),
            use_global_device_ids=True,
            constrain_layout=False,
        )
        extents = list(value.shape.dimensions)
        extents[d] *= group_size(groups)
        return self._collective(operation, value, Shape(value.shape.element_type, tuple(extents)))

    def _spread(self, value: HloInstruction, d: int, groups: DeviceGroups, tiles: int) -> HloInstruction:
        """Send the first tiles of each group to all of it, and join them along a dimension."""
        parts: list[HloInstruction] = []
        for n in range(tiles):
            sources = (
                groups if n == 0 else DeviceList(tuple((g[n], *g[:n], *g[n + 1 :]) for g in groups.groups))
            )
            operation = CollectiveBroadcast(replica_groups=sources, channel_id=self.channel())
            parts.append(self._collective(operation, value, value.shape))
        if tiles == 1:
            return parts[0]
        extents = list(value.shape.dimensions)
        extents[d] *= tiles
        shape = Shape(value.shape.element_type, tuple(extents))
        return Writer(value).op(Concatenate(dimensions=(d,)), *parts, shape=shape)

    def _placed(
        self, value: HloInstruction, shape: Shape, have: Tiling, parts: Sequence[int]
    ) -> HloInstruction:
        """Return tiles at their places in zeros, whole along some dimensions."""
        writer = Writer(value)
        extents = [n * have.tiles[d] if d in parts else n for d, n in enumerate(value.shape.dimensions)]
        starts = [
            self.of_column(writer, have.column(d), n) if d in parts else writer.scalar(0, S32)
            for d, n in enumerate(value.shape.dimensions)
        ]
        whole = Shape(value.shape.element_type, tuple(extents))
        value = writer.op(DynamicUpdateSlice(), writer.full(0, whole), value, *starts, shape=whole)
        for d in parts:
            value = self.trimmed(value, d, shape.dimensions[d])
        return value

    def _slice(self, value: HloInstruction, shape: Shape, have: Tiling, want: Tiling) -> HloInstruction:
        """Return each device's part of what it has."""
        writer = Writer(value)
        extents = list(want.local(shape.dimensions))
        starts: list[HloInstruction] = []
        old = have.local(shape.dimensions)
        for d, extent in enumerate(extents):
            ratio = want.tiles[d] // have.tiles[d]
            if ratio == 1:
                starts.append(writer.scalar(0, S32))
                continue
            value = self.padded(value, d, extent * ratio)
            starts.append(self._first(writer, (want.column(d), extent), (have.column(d), old[d])))
        local = Shape(value.shape.element_type, tuple(extents))
        cut = DynamicSlice(dynamic_slice_sizes=local.dimensions)
        made = writer.op(cut, value, *starts, shape=local)
        self.cuts[made] = want
        return made

    def _first(self, writer: Writer, want: tuple[Column, int], have: tuple[Column, int]) -> HloInstruction:
        """Return where a part begins in what a device has; the pairs are columns and the extents of tiles."""
        (new, extent), (old, before) = want, have
        if new.devices <= MOST_LISTED or new.listed or old.listed:
            pairs = zip(new.indices, old.indices, strict=True)
            return self.of_device(writer, [p * extent - q * before for p, q in pairs])
        first = self.of_column(writer, new, extent)
        return writer.op(Subtract(), first, self.of_column(writer, old, before), shape=first.shape)

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
        return self._collective(operation, value, shape, [computation])

    def all_reduce(self, value: HloInstruction, combiner: Operation, groups: DeviceGroups) -> HloInstruction:
        """Return what the devices of each group have, combined."""
        operation = AllReduce(
            replica_groups=groups,
            channel_id=self.channel(),
            use_global_device_ids=True,
            constrain_layout=False,
        )
        computation = Writer(value).combiner(combiner, value.shape.element_type)
        return self._collective(operation, value, value.shape, [computation])

    def broadcast(self, value: HloInstruction, source: int, devices: int) -> HloInstruction:
        """Return an array of one device on all devices."""
        group = (source, *(n for n in range(devices) if n != source))
        operation = CollectiveBroadcast(replica_groups=DeviceList((group,)), channel_id=self.channel())
        return self._collective(operation, value, value.shape)

    def renamed(self, value: HloInstruction) -> HloInstruction:
        """Return an instruction of its own with the same value."""
        if value.shape.is_array:
            return Writer(value).op(Reshape(), value, shape=value.shape)
        return Writer(value).op(AfterAll(), value, shape=value.shape)


def fixed(region: Region) -> tuple[Column, ...]:
    """Return the columns in which the devices of a group must agree."""
    return tuple(column for layer in region for column in layer)
