"""Emission of resharding plans as instructions."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence

from hloom.ir.device_groups import DeviceList
from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import Add, Subtract
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.movement import Concatenate, Transpose
from hloom.passes.writing import Inserter
from hloom.shape.element_type import S32
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.collectives import CollectiveWriter
from hloom.sharding.partitioning.device_constants import device_constant, device_coordinate
from hloom.sharding.partitioning.extents import on_first_device, resized, with_extent
from hloom.sharding.partitioning.halos import exchange_halo
from hloom.sharding.planning.partial_sums import scattered_dimension, tiles_as_partial_sums
from hloom.sharding.planning.plans import (
    AllGatherStep,
    AllToAllStep,
    BroadcastStep,
    HaloStep,
    PermuteStep,
    SliceStep,
    Step,
    plan,
)
from hloom.sharding.tiling.coordinates import MOST_LISTED, Coordinate, DeviceGroups, group_size
from hloom.sharding.tiling.tiling import Tiling


class Resharder:
    """Emits the instructions that reshard arrays.

    Attributes:
        collectives: emits the collectives.
        slices: the dynamic-slices that were emitted, each with the tiling of its result.
    """

    def __init__(self, collectives: CollectiveWriter) -> None:
        self.collectives = collectives
        self.slices: MutableMapping[HloInstruction, Tiling] = {}

    def reshard(
        self,
        value: HloInstruction,
        shape: Shape,
        have: Tiling,
        want: Tiling,
        fixed: tuple[Coordinate, ...],
    ) -> HloInstruction:
        """Emit the instructions that convert a device's tile to its tile in a new tiling; return the latter.

        Partial sums are reduced first. If only the new tiling has partial sums, each device pads its tile
        with zeros if that suffices; else the devices with partial sum 0 keep the tile, the others get zeros.

        Args:
            value: the tile.
            shape: the global shape.
            have, want: the old and the new tiling.
            fixed: coordinates (one index per device); devices with different indices must not exchange data.
        """
        dimensions = shape.dimensions
        if have.unreduced and (have.unreduced != want.unreduced or have.tiles != want.tiles):
            d = scattered_dimension(have.reduced(), [have.unreduced], want, dimensions)
            if d is not None:
                return self.collectives.reduce_scatter(value, Add(), d, want.groups([d], fixed))
            value = self.collectives.all_reduce(value, Add(), have.reduction_groups(fixed))
            return self.reshard(value, shape, have.reduced(), want, fixed)
        if placed := tiles_as_partial_sums(have, want):
            return _in_zeros(value, shape, have, placed)
        steps, _ = plan(dimensions, have.reduced(), want.reduced(), fixed)
        before = have
        for step in steps:
            value = self._step(value, shape, before, step)
            before = step.after
        if want.unreduced is None or want.unreduced == have.unreduced:
            return value
        return on_first_device(value, want.unreduced)

    def _step(self, value: HloInstruction, shape: Shape, before: Tiling, step: Step) -> HloInstruction:
        local = step.after.local(shape.dimensions)
        match step:
            case PermuteStep(pairs=pairs):
                return self.collectives.permute(value, pairs)
            case AllToAllStep(source=d, target=e, groups=groups):
                value = self._all_to_all(resized(value, e, local[e] * group_size(groups)), d, e, groups)
            case AllGatherStep(dimension=d, groups=groups):
                value = self.collectives.all_gather(value, d, groups)
            case BroadcastStep(dimension=d, groups=groups, tiles=tiles):
                value = self._broadcasts(value, d, groups, tiles)
            case HaloStep(dimension=d, halo=ranges):
                zero = Inserter(value).scalar(0, value.shape.element_type)
                return exchange_halo(value, d, before, ranges, zero, self.collectives, ())
            case SliceStep():
                return self._slice(value, shape, before, step.after)
        return resized(value, d, local[d])

    def _all_to_all(self, value: HloInstruction, d: int, e: int, groups: DeviceGroups) -> HloInstruction:
        """Emit an all-to-all that shards dimension ``e`` in place of dimension ``d``.

        Dimension ``e`` is split, part n goes to device n of the group, and received parts are concatenated
        along ``d``.
        """
        inserter, count = Inserter(value), group_size(groups)
        dimensions = list(value.shape.dimensions)
        split = [*dimensions[:e], count, dimensions[e] // count, *dimensions[e + 1 :]]
        value = self.collectives.all_to_all(inserter.reshape(value, split), e, groups)
        others = [n for n in range(len(split)) if n != e]
        position = others.index(d if d < e else d + 1)
        order = (*others[:position], e, *others[position:])
        shape = Shape(value.shape.element_type, tuple(split[n] for n in order))
        value = inserter.op(Transpose(dimensions=order), value, shape=shape)
        dimensions[e] //= count
        dimensions[d] *= count
        return inserter.reshape(value, dimensions)

    def _broadcasts(self, value: HloInstruction, d: int, groups: DeviceGroups, tiles: int) -> HloInstruction:
        """Emit a broadcast of each of the first ``tiles`` tiles of a group; join the results along ``d``."""
        parts: list[HloInstruction] = []
        for n in range(tiles):
            rotated = DeviceList(tuple((g[n], *g[:n], *g[n + 1 :]) for g in groups.groups)) if n else groups
            parts.append(self.collectives.broadcast(value, rotated))
        if tiles == 1:
            return parts[0]
        shape = with_extent(value.shape, d, tiles * value.shape.dimensions[d])
        return Inserter(value).op(Concatenate(dimensions=(d,)), *parts, shape=shape)

    def _slice(self, value: HloInstruction, shape: Shape, have: Tiling, want: Tiling) -> HloInstruction:
        """Emit a dynamic-slice that cuts a tile in the finer tiling ``want`` from one in tiling ``have``.

        ``shape`` is the global shape.
        """
        inserter = Inserter(value)
        before, after = have.local(shape.dimensions), want.local(shape.dimensions)
        starts: list[HloInstruction] = []
        for d, extent in enumerate(after):
            ratio = want.tiles[d] // have.tiles[d]
            if ratio == 1:
                starts.append(inserter.scalar(0, S32))
                continue
            value = resized(value, d, extent * ratio)
            fine, coarse = (want.coordinates[d], extent), (have.coordinates[d], before[d])
            starts.append(_slice_start(inserter, fine, coarse))
        local = Shape(value.shape.element_type, after)
        tile = inserter.op(DynamicSlice(dynamic_slice_sizes=after), value, *starts, shape=local)
        self.slices[tile] = want
        return tile


def _slice_start(
    inserter: Inserter, fine: tuple[Coordinate, int], coarse: tuple[Coordinate, int]
) -> HloInstruction:
    """Emit the s32 offset of the device's fine tile within its coarse tile, along one dimension.

    ``fine`` and ``coarse`` are (tile index of each device, extent of a tile).
    """
    (new, extent), (old, old_extent) = fine, coarse
    if new.devices <= MOST_LISTED or new.listed or old.listed:
        pairs = zip(new.indices, old.indices, strict=True)
        return device_constant(inserter, [p * extent - q * old_extent for p, q in pairs])
    first = device_coordinate(inserter, new, extent)
    return inserter.op(Subtract(), first, device_coordinate(inserter, old, old_extent), shape=first.shape)


def _in_zeros(value: HloInstruction, shape: Shape, have: Tiling, along: Sequence[int]) -> HloInstruction:
    """Pad a tile with zeros to the full extent of dimensions ``along``; return the padded tile.

    The tile lies where it does in the global array. ``shape`` is the global shape, ``have`` the tiling.
    """
    inserter = Inserter(value)
    tile = value.shape.dimensions
    dimensions = tuple(n * have.tiles[d] if d in along else n for d, n in enumerate(tile))
    starts = [
        device_coordinate(inserter, have.coordinates[d], n) if d in along else inserter.scalar(0, S32)
        for d, n in enumerate(tile)
    ]
    padded = Shape(value.shape.element_type, dimensions)
    value = inserter.op(DynamicUpdateSlice(), inserter.full(0, padded), value, *starts, shape=padded)
    for d in along:
        value = resized(value, d, shape.dimensions[d])
    return value
