"""Tilings: the tile of an array on each device."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import cached_property, lru_cache

import numpy as np

from hloom.errors import HloError
from hloom.ir.device_groups import AxisRef, DeviceList, IotaTiles, Mesh
from hloom.ir.named_sharding import NamedSharding
from hloom.ir.sharding import Sharding
from hloom.ir.tile_assignment import TileAssignment
from hloom.records import dataclass
from hloom.sharding.tiling.coordinates import Coordinate, DeviceGroups, are_independent, groups_along, refined


@dataclass(frozen=True)
class Tiling:
    """A division of an array into tiles of one size, each on one or more devices.

    Attributes:
        tiles: the number of tiles along each dimension.
        coordinates: for each dimension, the tile index of each device along it.
        devices: the number of devices.
        unreduced: None if devices hold tiles. If they hold partial sums of tiles (an unreduced array), the
            index of the partial sum on each device; a tile is the sum over all these indices, and devices
            with equal indices hold copies.
    """

    tiles: tuple[int, ...]
    coordinates: tuple[Coordinate, ...]
    devices: int
    unreduced: Coordinate | None = None

    @staticmethod
    def replicated(rank: int, devices: int) -> Tiling:
        """Return the tiling of an array of the given rank of which every device has a full copy."""
        return Tiling((1,) * rank, (Coordinate(devices),) * rank, devices)

    @staticmethod
    def product(tilings: Sequence[Tiling]) -> Tiling:
        """Return the tiling whose dimension n is sharded like ``tilings[n]``, each of rank 1.

        ``tilings`` must not be empty.
        """
        tiles = tuple(tiling.tiles[0] for tiling in tilings)
        return Tiling(tiles, tuple(tiling.coordinates[0] for tiling in tilings), tilings[0].devices)

    @staticmethod
    def from_tile_indices(
        tiles: Sequence[int], tile_indices: Sequence[Sequence[int]], unreduced: Sequence[int] = ()
    ) -> Tiling:
        """Return the tiling in which each device has the tile with the given index.

        Args:
            tiles: the number of tiles along each dimension.
            tile_indices: for each device, the index of its tile along each dimension.
            unreduced: the index of the partial sum on each device; empty or all 0 for an array without
                partial sums.
        """
        coordinates = [Coordinate.of([index[d] for index in tile_indices]) for d in range(len(tiles))]
        sums = Coordinate.of(unreduced) if any(unreduced) else None
        return Tiling(tuple(tiles), tuple(coordinates), len(tile_indices), sums)

    @cached_property
    def is_replicated(self) -> bool:
        """True if every device holds the full array, and not a partial sum of it."""
        return self.unreduced is None and all(count == 1 for count in self.tiles)

    @property
    def is_even(self) -> bool:
        """True if every tile is on the same number of devices, at least one."""
        return are_independent(self.coordinates)

    @cached_property
    def tile_indices(self) -> tuple[tuple[int, ...], ...]:
        """For each device, in order of id, the index of its tile along each dimension."""
        if not self.coordinates:
            return ((),) * self.devices
        return tuple(zip(*(coordinate.indices for coordinate in self.coordinates), strict=True))

    def local(self, dimensions: Sequence[int]) -> tuple[int, ...]:
        """Return the dimensions of a tile of an array with the given global dimensions, rounded up.

        All tiles have this size; the last ones are padded.
        """
        return tuple(-(-n // t) for t, n in zip(self.tiles, dimensions, strict=True))

    def select(self, sources: Sequence[int | None]) -> Tiling:
        """Return the tiling whose dimension n is sharded like dimension ``sources[n]`` of this tiling.

        A dimension whose source is None is replicated. The result has no partial sums.
        """
        tiles = tuple(1 if s is None else self.tiles[s] for s in sources)
        coordinates = tuple(Coordinate(self.devices) if s is None else self.coordinates[s] for s in sources)
        return Tiling(tiles, coordinates, self.devices)

    def without(self, dimensions: Sequence[int]) -> Tiling:
        """Return this tiling with the given dimensions replicated, and without partial sums."""
        return self.select([None if d in dimensions else d for d in range(len(self.tiles))])

    def replaced(self, d: int, along: Tiling) -> Tiling:
        """Return this tiling with dimension ``d`` sharded by ``along``, and without partial sums.

        ``along`` is a tiling of rank 1.
        """
        tiles = (*self.tiles[:d], *along.tiles, *self.tiles[d + 1 :])
        coordinates = (*self.coordinates[:d], *along.coordinates, *self.coordinates[d + 1 :])
        return Tiling(tiles, coordinates, self.devices)

    def is_sharded(self, dimension: int) -> bool:
        """Return true if ``dimension`` is divided into more than one tile."""
        return self.tiles[dimension] > 1

    def is_sharded_like(self, dimension: int, other: Tiling, other_dimension: int) -> bool:
        """Return true if ``dimension`` is divided as ``other_dimension`` is in the tiling ``other``.

        The two must have equal numbers of tiles, and each device the same tile index along both.
        """
        return (
            self.tiles[dimension] == other.tiles[other_dimension]
            and self.coordinates[dimension] == other.coordinates[other_dimension]
        )

    def groups(self, dimensions: Sequence[int], fixed: Sequence[Coordinate]) -> DeviceGroups:
        """Return the device groups for a collective that gathers or exchanges tiles along ``dimensions``.

        A group has one device for each tile along ``dimensions``, in row-major order of the tile indices. Its
        devices have equal tile indices in the other dimensions, and equal indices in each of the ``fixed``
        coordinates. Raises HloError (rule ``sharding.uneven-replicas``) if tiles have different numbers of
        copies.
        """
        moved = [self.coordinates[d] for d in dimensions]
        others = [coordinate for d, coordinate in enumerate(self.coordinates) if d not in dimensions]
        basis = refined((*moved, *others, *fixed))
        if basis is not None:
            sizes, axes = basis
            along = [k for axes_of_dimension in axes[: len(moved)] for k in axes_of_dimension]
            constant = {k for axes_of_coordinate in axes[len(moved) :] for k in axes_of_coordinate}
            if len(set(along)) == len(along) and constant.isdisjoint(along):
                return groups_along(tuple(along), sizes)
        return DeviceList(self._listed_groups(dimensions, fixed))

    def _listed_groups(
        self, dimensions: Sequence[int], fixed: Sequence[Coordinate]
    ) -> tuple[tuple[int, ...], ...]:
        classes: dict[object, dict[tuple[int, ...], list[int]]] = {}
        others = [d for d in range(len(self.tiles)) if d not in dimensions]
        for device, index in enumerate(self.tile_indices):
            key = (tuple(coordinate[device] for coordinate in fixed), tuple(index[d] for d in others))
            classes.setdefault(key, {}).setdefault(tuple(index[d] for d in dimensions), []).append(device)
        groups: list[tuple[int, ...]] = []
        tile_count = math.prod(self.tiles[d] for d in dimensions)
        for tiles in classes.values():
            copies = min(map(len, tiles.values()))
            if len(tiles) != tile_count or any(len(devices) != copies for devices in tiles.values()):
                message = "the tiles of an array are not on equally many devices each"
                raise HloError(message, rule="sharding.uneven-replicas")
            ordered = [tiles[index] for index in sorted(tiles)]
            groups += [tuple(devices[copy] for devices in ordered) for copy in range(copies)]
        return tuple(sorted(groups))

    def reduced(self) -> Tiling:
        """Return this tiling without partial sums."""
        return Tiling(self.tiles, self.coordinates, self.devices)

    def reduction_groups(self, fixed: Sequence[Coordinate]) -> DeviceGroups:
        """Return the device groups for an all-reduce of the partial sums that devices hold.

        A group holds all partial sums of one tile. Its devices have equal indices in each of the ``fixed``
        coordinates (one index per device).
        """
        assert self.unreduced is not None
        stacked = Tiling(
            (*self.tiles, self.unreduced.count), (*self.coordinates, self.unreduced), self.devices
        )
        return stacked.groups([len(self.tiles)], fixed)

    # -- HLO's notation

    @staticmethod
    def of(sharding: Sharding | None, rank: int, devices: int) -> Tiling:
        """Convert HLO's sharding of an array of the given rank to a tiling over ``devices`` devices.

        Returns the replicated tiling if ``sharding`` is None, does not tile the array, or tiles it over a
        subset of the devices. Raises HloError (rule ``sharding.device``) for a device id out of range, and
        (rule ``sharding.reduction-sum``) for an unreduced array whose reduction is not addition.
        """
        replicated = Tiling.replicated(rank, devices)
        if sharding is None:
            return replicated
        if sharding.named is not None:
            return Tiling.of_named(sharding.named, rank, devices)
        _require_sum(sharding.reduction)
        if sharding.kind == "unreduced":
            every_device = Coordinate.along([(1, devices)], devices)
            return Tiling(replicated.tiles, replicated.coordinates, devices, every_device)
        if sharding.kind != "tiled" or sharding.tiles is None:
            return replicated
        dimensions = sharding.tiles.dimensions
        highest = max(sharding.tiles.numbers) if devices != sharding.tiles.tile_count else devices - 1
        if sharding.tiles.tile_count < devices and highest < devices:
            return replicated
        if highest >= devices or sharding.tiles.tile_count > devices:
            raise _unknown_device(highest, devices)
        coordinates = _coordinates(sharding.tiles)
        subgroups = enumerate(sharding.last_tile_dims, rank)
        unreduced = next((coordinates[d] for d, kind in subgroups if kind == "unreduced"), None)
        return Tiling(tuple(dimensions[:rank]), coordinates[:rank], devices, unreduced)

    @staticmethod
    def of_named(
        named: NamedSharding, rank: int, devices: int, only: Collection[str] | None = None
    ) -> Tiling:
        """Convert a sharding over mesh axes to a tiling of an array of the given rank.

        The tiling is over the axes with the names ``only``, or over all axes if that is None. Raises HloError
        (rule ``sharding.device``) for a device id out of range, and (rule ``sharding.reduction-sum``) for an
        unreduced array whose reduction is not addition.
        """
        mesh = named.mesh
        _require_sum(named.reduction)
        if len(mesh.numbers) > devices:
            raise _unknown_device(len(mesh.numbers) - 1, devices)
        if len(mesh.numbers) < devices or not mesh.axes:
            return Tiling.replicated(rank, devices)

        def along(axes: Sequence[AxisRef]) -> Coordinate:
            selected = [axis for axis in axes if only is None or mesh.axes[axis.axis][0] in only]
            return coordinate_in_mesh(mesh, selected, devices)

        axes_of = [dimension.axes for dimension in named.dimensions[:rank]]
        axes_of += [()] * (rank - len(axes_of))
        coordinates = tuple(map(along, axes_of))
        unreduced = along(named.unreduced_axes)
        tiles = tuple(coordinate.count for coordinate in coordinates)
        return Tiling(tiles, coordinates, devices, unreduced if unreduced.count > 1 else None)

    def to_sharding(self) -> Sharding:
        """Return this tiling as a sharding in HLO's notation, such as ``{devices=[2,1,4]<=[8] ...}``."""
        if self.is_replicated:
            return Sharding.replicated()
        parts = self.unreduced.count if self.unreduced is not None else 1
        copies = self.devices // (math.prod(self.tiles) * parts)
        extra = [(parts, "unreduced"), (copies, "replicated")]
        last = [(count, kind) for count, kind in extra if count > 1]
        dimensions = (*self.tiles, *(count for count, _ in last))
        return Sharding.tiled(TileAssignment(dimensions, self._order()), tuple(kind for _, kind in last))

    def _order(self) -> IotaTiles | tuple[int, ...]:
        """Return all device ids ordered by row-major tile index, then by the index of the partial sum.

        This is the device order of HLO's tile assignment: in iota form if possible, else a list.
        """
        coordinates = (*self.coordinates, *((self.unreduced,) if self.unreduced is not None else ()))
        basis = refined(coordinates)
        if basis is not None:
            sizes, axes = basis
            used = [k for axes_of_dimension in axes for k in axes_of_dimension]
            if len(set(used)) == len(used):
                unused = [k for k in range(len(sizes)) if k not in used]
                return IotaTiles.canonical(sizes, (*used, *unused))
        unreduced = self.unreduced.indices if self.unreduced is not None else (0,) * self.devices
        return tuple(sorted(range(self.devices), key=lambda n: (self.tile_indices[n], unreduced[n])))


def _require_sum(reduction: str) -> None:
    """Raise HloError (rule ``sharding.reduction-sum``) unless ``reduction`` is "SUM".

    ``reduction`` is the kind of reduction of an unreduced value.
    """
    if reduction != "SUM":
        message = f"a value is unreduced by {reduction.lower()}; the partitioner supports unreduced sums only"
        raise HloError(message, rule="sharding.reduction-sum")


def _unknown_device(device: int, devices: int) -> HloError:
    """Return the HloError for a sharding that names device id ``device`` if there are ``devices`` devices."""
    message = (
        f"a sharding names device {device}, the program runs on {devices}; state the number "
        "of devices: num_partitions in the header or of hloom.compile, or --mesh x=N"
    )
    return HloError(message, rule="sharding.device")


def coordinate_in_mesh(mesh: Mesh, axes: Sequence[AxisRef], devices: int) -> Coordinate:
    """Return the row-major index of each device along some axes or sub-axes of a mesh, major axis first.

    Of the ``devices`` device ids, those that the mesh does not contain get the index 0.
    """
    digits: list[tuple[int, int]] = []
    for reference in axes:
        full = mesh.sizes[reference.axis]
        before, size = reference.sub_axis or (1, full)
        minor = math.prod(mesh.sizes[reference.axis + 1 :])
        digits.append((minor * (full // (before * size)), size))
    coordinate = Coordinate.along(digits, math.prod(mesh.sizes))
    if mesh.device_ids is None and coordinate.devices == devices:
        return coordinate
    index_of = dict(zip(mesh.numbers, coordinate.indices, strict=True))
    return Coordinate.of([index_of.get(device, 0) for device in range(devices)])


def manual_coordinates(sharding: Sharding) -> tuple[Coordinate, ...]:
    """Return coordinates (one index per device) along the manual axes or manual subgroups of a sharding.

    There is one coordinate for all manual axes of a named sharding together; for a tile assignment, there is
    one for each manual subgroup. Returns an empty tuple if nothing is manual.
    """
    if sharding.named is not None and sharding.named.manual_axes:
        mesh = sharding.named.mesh
        return (coordinate_in_mesh(mesh, sharding.named.manual_axes, len(mesh.numbers)),)
    if sharding.tiles is None:
        return ()
    kinds, coordinates = sharding.last_tile_dims, _coordinates(sharding.tiles)
    return tuple(
        coordinate
        for coordinate, kind in zip(coordinates[::-1], kinds[::-1], strict=False)
        if kind == "manual"
    )


@lru_cache(maxsize=4096)
def _coordinates(tiles: TileAssignment) -> tuple[Coordinate, ...]:
    """Return the tile index of each device along each dimension of HLO's tile assignment.

    Dimensions for subgroups (replicated, manual, unreduced) are included.
    """
    devices, dimensions = tiles.tile_count, tiles.dimensions
    split = tiles.factors()
    if split is not None:
        sizes, groups = split
        strides = [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
        return tuple(Coordinate.along([(strides[k], sizes[k]) for k in axes], devices) for axes in groups)
    places = np.empty((devices, len(dimensions)), np.int64)
    places[list(tiles.numbers)] = np.stack(np.unravel_index(np.arange(devices), dimensions), axis=1)
    return tuple(Coordinate.of(places[:, d].tolist()) for d in range(len(dimensions)))
