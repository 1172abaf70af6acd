"""Tilings: which tile of an array each device has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hloom.errors import HloError
from hloom.ir.sharding import Sharding
from hloom.ir.tile_assignment import TileAssignment


@dataclass(frozen=True)
class Tiling:
    """The tiles of an array: all of one size, each on one device or more.

    Attributes:
        tiles: the number of tiles along each dimension.
        places: the tile of each device, as its index along each dimension.
        summands: devices with the same tile hold summands of it: the number of each device's; empty if they
            hold the tile itself. Devices with the same number hold the same.
    """

    tiles: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]
    summands: tuple[int, ...] = ()

    @staticmethod
    def replicated(rank: int, devices: int) -> Tiling:
        """Return the tiling of one tile, which every device has."""
        return Tiling((1,) * rank, ((0,) * rank,) * devices)

    @cached_property
    def is_replicated(self) -> bool:
        """Return true if every device has the whole array."""
        return not self.summands and all(count == 1 for count in self.tiles)

    @property
    def devices(self) -> int:
        """Return the number of devices."""
        return len(self.places)

    def local(self, dimensions: Sequence[int]) -> tuple[int, ...]:
        """Return the dimensions of a tile of an array; the last tiles may exceed the array."""
        return tuple(-(-n // t) for t, n in zip(self.tiles, dimensions, strict=True))

    def column(self, dimension: int) -> tuple[int, ...]:
        """Return the index of each device's tile along a dimension."""
        return tuple(place[dimension] for place in self.places)

    def select(self, sources: Sequence[int | None]) -> Tiling:
        """Return a tiling whose dimensions are cut like dimensions of this one; None is not cut.

        Devices hold tiles, not summands.
        """
        tiles = tuple(1 if s is None else self.tiles[s] for s in sources)
        places = tuple(tuple(0 if s is None else place[s] for s in sources) for place in self.places)
        return Tiling(tiles, places)

    def without(self, dimensions: Sequence[int]) -> Tiling:
        """Return the tiling that does not cut some dimensions."""
        return self.select([None if d in dimensions else d for d in range(len(self.tiles))])

    def cuts(self, dimension: int) -> bool:
        """Return true if a dimension has several tiles."""
        return self.tiles[dimension] > 1

    def same_cut(self, dimension: int, other: Tiling, other_dimension: int) -> bool:
        """Return true if the same devices have the same tiles along a dimension of each."""
        return self.tiles[dimension] == other.tiles[other_dimension] and self.column(
            dimension
        ) == other.column(other_dimension)

    def groups(self, dimensions: Sequence[int], fixed: Sequence[object]) -> tuple[tuple[int, ...], ...]:
        """Return groups of devices that together have all tiles along some dimensions, in row-major order.

        The devices of a group agree along the other dimensions, and in ``fixed``, which has an entry for
        each device.
        """
        classes: dict[object, dict[tuple[int, ...], list[int]]] = {}
        others = [d for d in range(len(self.tiles)) if d not in dimensions]
        for device, place in enumerate(self.places):
            key = (fixed[device], tuple(place[d] for d in others))
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
        return Tiling(self.tiles, self.places)

    def summand_groups(self, fixed: Sequence[object]) -> tuple[tuple[int, ...], ...]:
        """Return groups of devices that together have all summands of a tile; see `groups`."""
        places = tuple((*place, n) for place, n in zip(self.places, self.summands, strict=True))
        count = max(self.summands) + 1
        return Tiling((*self.tiles, count), places).groups([len(self.tiles)], fixed)

    # -- HLO's notation

    @staticmethod
    def of(sharding: Sharding | None, rank: int, devices: int) -> Tiling:
        """Return the tiling of a sharding of an array; what is not tiled counts as replicated.

        So does what is tiled over some of the devices only.

        Raises HloError by the rule ``sharding.device`` for a device that there is not.
        """
        whole = Tiling.replicated(rank, devices)
        if sharding is None:
            return whole
        if sharding.kind == "unreduced":
            return Tiling(whole.tiles, whole.places, tuple(range(devices)))
        if sharding.kind != "tiled" or sharding.tiles is None:
            return whole
        dimensions = sharding.tiles.dimensions
        numbers = np.asarray(sharding.tiles.numbers).reshape(dimensions)
        if numbers.size < devices and numbers.max() < devices:
            return whole
        if numbers.max() >= devices:
            message = (
                f"a sharding names device {numbers.max()}, the program runs on {devices}; state the number "
                "of devices: num_partitions in the header or of hloom.compile, or --mesh x=N"
            )
            raise HloError(message, rule="sharding.device")
        places: list[tuple[int, ...]] = [(0,) * rank] * devices
        summand = next(
            (d for d, kind in enumerate(sharding.last_tile_dims, rank) if kind == "unreduced"), None
        )
        summands = [0] * devices if summand is not None else []
        for index in np.ndindex(*dimensions):
            device = int(numbers[index])
            places[device] = index[:rank]
            if summand is not None:
                summands[device] = index[summand]
        return Tiling(tuple(dimensions[:rank]), tuple(places), tuple(summands))

    def to_sharding(self) -> Sharding:
        """Return the sharding."""
        if self.is_replicated:
            return Sharding.replicated()
        summands = self.summands or (0,) * self.devices
        order = sorted(range(self.devices), key=lambda n: (self.places[n], summands[n]))
        parts = max(summands) + 1
        copies = self.devices // (math.prod(self.tiles) * parts)
        extra = [(parts, "unreduced"), (copies, "replicated")]
        last = [(count, kind) for count, kind in extra if count > 1]
        assignment = TileAssignment((*self.tiles, *(count for count, _ in last)), tuple(order))
        return Sharding.tiled(assignment, tuple(kind for _, kind in last))
