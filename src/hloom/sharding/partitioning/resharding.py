"""Resharding: instructions that turn tiles of one tiling into those of another."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.ir.device_groups import DeviceList
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.arithmetic import Add, Subtract
from hloom.operations.collectives import AllGather
from hloom.operations.comparison import Select
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.exchanges import AllToAll
from hloom.operations.movement import Concatenate, Transpose
from hloom.operations.rooted_collectives import CollectiveBroadcast
from hloom.passes.writing import Writer
from hloom.shape.element_type import S32
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.communication import Communication, Region, fixed
from hloom.sharding.partitioning.halos import halo
from hloom.sharding.planning.partial_sums import parts_as_summands, scattered_dimension
from hloom.sharding.planning.plans import Cut, Exchange, Gather, Permute, Retile, Spread, Step, plan
from hloom.sharding.tiling.coordinates import MOST_LISTED, Column, DeviceGroups, group_size
from hloom.sharding.tiling.tiling import Tiling


class Resharder(Communication):
    """Writes the steps of reshardings.

    Attributes:
        cuts: the tiling that each slice of larger tiles gives.
    """

    def __init__(self, module: HloModule) -> None:
        super().__init__(module)
        self.cuts: dict[HloInstruction, Tiling] = {}

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
            case Retile(dimension=d, halo=wanted):
                zero = Writer(value).scalar(0, value.shape.element_type)
                return halo(value, d, before, wanted, zero, self, ())
            case Cut():
                return self._slice(value, shape, before, step.after)
        return self.trimmed(value, d, step.after.local(shape.dimensions)[d])

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
        value = self.collective(operation, value, value.shape)
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
        return self.collective(operation, value, Shape(value.shape.element_type, tuple(extents)))

    def _spread(self, value: HloInstruction, d: int, groups: DeviceGroups, tiles: int) -> HloInstruction:
        """Send the first tiles of each group to all of it, and join them along a dimension."""
        parts: list[HloInstruction] = []
        for n in range(tiles):
            sources = (
                groups if n == 0 else DeviceList(tuple((g[n], *g[:n], *g[n + 1 :]) for g in groups.groups))
            )
            operation = CollectiveBroadcast(replica_groups=sources, channel_id=self.channel())
            parts.append(self.collective(operation, value, value.shape))
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
