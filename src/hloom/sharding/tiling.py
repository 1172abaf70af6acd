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
    """

    tiles: tuple[int, ...]
    places: tuple[tuple[int, ...], ...]

    @staticmethod
    def replicated(rank: int, devices: int) -> Tiling:
        """Return the tiling of one tile, which every device has."""
        return Tiling((1,) * rank, ((0,) * rank,) * devices)

    @cached_property
    def is_replicated(self) -> bool:
        """Return true if every device has the whole array."""
        return all(count == 1 for count in self.tiles)

    @property
    def devices(self) -> int:
        """Return the number of devices."""
        return len(self.places)

    def fits(self, dimensions: Sequence[int]) -> bool:
        """Return true if the tiles divide an array of these dimensions evenly."""
        pairs = zip(self.tiles, dimensions, strict=True)
        return len(self.tiles) == len(dimensions) and all(n % t == 0 for t, n in pairs)

    def local(self, dimensions: Sequence[int]) -> tuple[int, ...]:
        """Return the dimensions of a tile of an array."""
        return tuple(n // t for t, n in zip(self.tiles, dimensions, strict=True))

    def column(self, dimension: int) -> tuple[int, ...]:
        """Return the index of each device's tile along a dimension."""
        return tuple(place[dimension] for place in self.places)

    def select(self, sources: Sequence[int | None]) -> Tiling:
        """Return a tiling whose dimensions are cut like dimensions of this one; None is not cut."""
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

    # -- HLO's notation

    @staticmethod
    def of(sharding: Sharding | None, rank: int, devices: int) -> Tiling:
        """Return the tiling of a sharding of an array; what is not tiled counts as replicated.

        Raises HloError by the rules ``sharding.unreduced`` for arrays that devices hold summands of, and
        ``sharding.device`` for a device that there is not.
        """
        whole = Tiling.replicated(rank, devices)
        if sharding is None:
            return whole
        if sharding.kind == "unreduced" or "unreduced" in sharding.last_tile_dims:
            message = "unreduced shardings are not implemented"
            raise HloError(message, rule="sharding.unreduced")
        if sharding.kind != "tiled" or sharding.tiles is None:
            return whole
        dimensions = sharding.tiles.dimensions
        numbers = np.asarray(sharding.tiles.numbers).reshape(dimensions)
        if numbers.max() >= devices:
            message = f"a sharding names device {numbers.max()}, the program runs on {devices}"
            raise HloError(message, rule="sharding.device")
        places: list[tuple[int, ...]] = [(0,) * rank] * devices
        for index in np.ndindex(*dimensions):
            places[int(numbers[index])] = index[:rank]
        return Tiling(tuple(dimensions[:rank]), tuple(places))

    def to_sharding(self) -> Sharding:
        """Return the sharding."""
        if self.is_replicated:
            return Sharding.replicated()
        tiles: dict[tuple[int, ...], list[int]] = {}
        for device, place in enumerate(self.places):
            tiles.setdefault(place, []).append(device)
        order = [device for place in np.ndindex(*self.tiles) for device in tiles[tuple(place)]]
        copies = self.devices // math.prod(self.tiles)
        if copies == 1:
            return Sharding.tiled(TileAssignment(self.tiles, tuple(order)))
        return Sharding.tiled(TileAssignment((*self.tiles, copies), tuple(order)), ("replicated",))
