"""Tilings: which tile of an array each device has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from hloom.errors import HloError
from hloom.ir.device_groups import AxisRef, DeviceList, IotaTiles, Mesh
from hloom.ir.named_sharding import NamedSharding
from hloom.ir.sharding import Sharding
from hloom.ir.tile_assignment import TileAssignment
from hloom.sharding.tiling.coordinates import Column, DeviceGroups, groups_along, refined


@dataclass(frozen=True)
class Tiling:
    """The tiles of an array: all of one size, each on one device or more.

    Attributes:
        tiles: the number of tiles along each dimension.
        columns: for each dimension the index of each device's tile.
        devices: the number of devices.
        summands: devices with the same tile hold summands of it: the number of each device's; None if they
            hold the tile itself. Devices with the same number hold the same.
    """

    tiles: tuple[int, ...]
    columns: tuple[Column, ...]
    devices: int
    summands: Column | None = None

    @staticmethod
    def replicated(rank: int, devices: int) -> Tiling:
        """Return the tiling of one tile, which every device has."""
        return Tiling((1,) * rank, (Column(devices),) * rank, devices)

    @staticmethod
    def of_places(
        tiles: Sequence[int], places: Sequence[Sequence[int]], summands: Sequence[int] = ()
    ) -> Tiling:
        """Return the tiling in which each device has the tile of an index along each dimension."""
        columns = [Column.of([place[d] for place in places]) for d in range(len(tiles))]
        return Tiling(
            tuple(tiles), tuple(columns), len(places), Column.of(summands) if any(summands) else None
        )

    @cached_property
    def is_replicated(self) -> bool:
        """Return true if every device has the whole array."""
        return self.summands is None and all(count == 1 for count in self.tiles)

    @cached_property
    def places(self) -> tuple[tuple[int, ...], ...]:
        """The tile of each device, as its index along each dimension."""
        if not self.columns:
            return ((),) * self.devices
        return tuple(zip(*(column.indices for column in self.columns), strict=True))

    def local(self, dimensions: Sequence[int]) -> tuple[int, ...]:
        """Return the dimensions of a tile of an array; the last tiles may exceed the array."""
        return tuple(-(-n // t) for t, n in zip(self.tiles, dimensions, strict=True))

    def column(self, dimension: int) -> Column:
        """Return the index of each device's tile along a dimension."""
        return self.columns[dimension]

    def select(self, sources: Sequence[int | None]) -> Tiling:
        """Return a tiling whose dimensions are cut like dimensions of this one; None is not cut.

        Devices hold tiles, not summands.
        """
        tiles = tuple(1 if s is None else self.tiles[s] for s in sources)
        columns = tuple(Column(self.devices) if s is None else self.columns[s] for s in sources)
        return Tiling(tiles, columns, self.devices)

    def without(self, dimensions: Sequence[int]) -> Tiling:
        """Return the tiling that does not cut some dimensions."""
        return self.select([None if d in dimensions else d for d in range(len(self.tiles))])

    def cuts(self, dimension: int) -> bool:
        """Return true if a dimension has several tiles."""
        return self.tiles[dimension] > 1

    def same_cut(self, dimension: int, other: Tiling, other_dimension: int) -> bool:
        """Return true if the same devices have the same tiles along a dimension of each."""
        return (
            self.tiles[dimension] == other.tiles[other_dimension]
            and self.columns[dimension] == other.columns[other_dimension]
        )

    def groups(self, dimensions: Sequence[int], fixed: Sequence[Column]) -> DeviceGroups:
        """Return groups of devices that together have all tiles along some dimensions, in row-major order.

        The devices of a group agree along the other dimensions and in some columns.
        """
        moved = [self.columns[d] for d in dimensions]
        others = [column for d, column in enumerate(self.columns) if d not in dimensions]
        found = refined((*moved, *others, *fixed))
        if found is not None:
            sizes, axes = found
            along = [k for one in axes[: len(moved)] for k in one]
            held = {k for one in axes[len(moved) :] for k in one}
            if len(set(along)) == len(along) and held.isdisjoint(along):
                return groups_along(tuple(along), sizes)
        return DeviceList(self._listed_groups(dimensions, fixed))

    def _listed_groups(
        self, dimensions: Sequence[int], fixed: Sequence[Column]
    ) -> tuple[tuple[int, ...], ...]:
        classes: dict[object, dict[tuple[int, ...], list[int]]] = {}
        others = [d for d in range(len(self.tiles)) if d not in dimensions]
        for device, place in enumerate(self.places):
            key = (tuple(column[device] for column in fixed), tuple(place[d] for d in others))
            classes.setdefault(key, {}).setdefault(tuple(place[d] for d in dimensions), []).append(device)
        found: list[tuple[int, ...]] = []
        wanted = math.prod(self.tiles[d] for d in dimensions)
        for tiles in classes.values():
            copies = min(map(len, tiles.values()))
            if len(tiles) != wanted or any(len(devices) != copies for devices in tiles.values()):
                message = "the tiles of an array are not on equally many devices each"
                raise HloError(message, rule="sharding.uneven-replicas")
            ordered = [tiles[place] for place in sorted(tiles)]
            found += [tuple(devices[copy] for devices in ordered) for copy in range(copies)]
        return tuple(sorted(found))

    def summed(self) -> Tiling:
        """Return the tiling of tiles whose summands are added."""
        return Tiling(self.tiles, self.columns, self.devices)

    def summand_groups(self, fixed: Sequence[Column]) -> DeviceGroups:
        """Return groups of devices that together have all summands of a tile; see `groups`."""
        assert self.summands is not None
        whole = Tiling((*self.tiles, self.summands.count), (*self.columns, self.summands), self.devices)
        return whole.groups([len(self.tiles)], fixed)

    # -- HLO's notation

    @staticmethod
    def of(sharding: Sharding | None, rank: int, devices: int) -> Tiling:
        """Return the tiling of a sharding of an array; what is not tiled counts as replicated.

        So does what is tiled over some of the devices only.

        Raises HloError by the rule ``sharding.device`` for a device that there is not, by
        ``sharding.reduction-sum`` for partial values that are combined otherwise than by addition.
        """
        whole = Tiling.replicated(rank, devices)
        if sharding is None:
            return whole
        if sharding.reduction != "SUM":
            raise not_a_sum(sharding.reduction)
        if sharding.named is not None:
            return _of_named(sharding.named, rank, devices)
        if sharding.kind == "unreduced":
            return Tiling(whole.tiles, whole.columns, devices, Column.along([(1, devices)], devices))
        if sharding.kind != "tiled" or sharding.tiles is None:
            return whole
        dimensions = sharding.tiles.dimensions
        highest = max(sharding.tiles.numbers) if devices != sharding.tiles.tile_count else devices - 1
        if sharding.tiles.tile_count < devices and highest < devices:
            return whole
        if highest >= devices or sharding.tiles.tile_count > devices:
            raise _unknown_device(highest, devices)
        columns = _columns(sharding.tiles)
        summand = next(
            (d for d, kind in enumerate(sharding.last_tile_dims, rank) if kind == "unreduced"), None
        )
        summands = columns[summand] if summand is not None else None
        return Tiling(tuple(dimensions[:rank]), columns[:rank], devices, summands)

    def to_sharding(self) -> Sharding:
        """Return the sharding."""
        if self.is_replicated:
            return Sharding.replicated()
        parts = self.summands.count if self.summands is not None else 1
        copies = self.devices // (math.prod(self.tiles) * parts)
        extra = [(parts, "unreduced"), (copies, "replicated")]
        last = [(count, kind) for count, kind in extra if count > 1]
        dimensions = (*self.tiles, *(count for count, _ in last))
        return Sharding.tiled(TileAssignment(dimensions, self._order()), tuple(kind for _, kind in last))

    def _order(self) -> IotaTiles | tuple[int, ...]:
        """Return the devices in the order of their tiles, then of their summands."""
        columns = (*self.columns, *((self.summands,) if self.summands is not None else ()))
        found = refined(columns)
        if found is not None:
            sizes, axes = found
            used = [k for one in axes for k in one]
            if len(set(used)) == len(used):
                rest = [k for k in range(len(sizes)) if k not in used]
                return IotaTiles.canonical(sizes, (*used, *rest))
        summands = self.summands.indices if self.summands is not None else (0,) * self.devices
        return tuple(sorted(range(self.devices), key=lambda n: (self.places[n], summands[n])))


def not_a_sum(reduction: str) -> HloError:
    """Return the error for an unreduced value whose parts are combined otherwise than by addition."""
    message = f"an unreduced value by {reduction.lower()}; the partitioner takes those whose parts are added"
    return HloError(message, rule="sharding.reduction-sum")


def _unknown_device(device: int, devices: int) -> HloError:
    """Return the error for a device of a sharding that there is not."""
    message = (
        f"a sharding names device {device}, the program runs on {devices}; state the number "
        "of devices: num_partitions in the header or of hloom.compile, or --mesh x=N"
    )
    return HloError(message, rule="sharding.device")


def _of_named(named: NamedSharding, rank: int, devices: int) -> Tiling:
    """Return the tiling of a sharding over the axes of a mesh."""
    whole, count = Tiling.replicated(rank, devices), len(named.mesh.numbers)
    if count > devices:
        raise _unknown_device(count - 1, devices)
    if count < devices or not named.mesh.axes:
        return whole
    cuts = [one.axes for one in named.dimensions[:rank]]
    cuts += [()] * (rank - len(cuts))
    columns = tuple(_along(named.mesh, axes) for axes in cuts)
    summands = _along(named.mesh, named.unreduced_axes) if named.unreduced_axes else None
    return Tiling(tuple(column.count for column in columns), columns, devices, summands)


def _along(mesh: Mesh, axes: Sequence[AxisRef]) -> Column:
    """Return the places of devices along axes of a mesh, the first of which is the major one."""
    digits: list[tuple[int, int]] = []
    for reference in axes:
        full = mesh.sizes[reference.axis]
        before, size = reference.sub_axis or (1, full)
        behind = math.prod(mesh.sizes[reference.axis + 1 :])
        digits.append((behind * (full // (before * size)), size))
    column = Column.along(digits, math.prod(mesh.sizes))
    if mesh.device_ids is None:
        return column
    places = dict(zip(mesh.numbers, column.indices, strict=True))
    return Column.of([places[device] for device in range(column.devices)])


def manual_columns(sharding: Sharding) -> tuple[Column, ...]:
    """Return the places of the devices along the manual subgroups of a sharding; none if it has none."""
    if sharding.named is not None and sharding.named.manual_axes:
        return (_along(sharding.named.mesh, sharding.named.manual_axes),)
    if sharding.tiles is None:
        return ()
    kinds, columns = sharding.last_tile_dims, _columns(sharding.tiles)
    return tuple(column for column, kind in zip(columns[::-1], kinds[::-1], strict=False) if kind == "manual")


@lru_cache(maxsize=4096)
def _columns(tiles: TileAssignment) -> tuple[Column, ...]:
    """Return for each dimension of an assignment the index of each device."""
    devices, dimensions = tiles.tile_count, tiles.dimensions
    split = tiles.factors()
    if split is not None:
        sizes, groups = split
        strides = [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
        return tuple(Column.along([(strides[k], sizes[k]) for k in group], devices) for group in groups)
    places = np.empty((devices, len(dimensions)), np.int64)
    places[list(tiles.numbers)] = np.stack(np.unravel_index(np.arange(devices), dimensions), axis=1)
    return tuple(Column.of(places[:, d].tolist()) for d in range(len(dimensions)))
