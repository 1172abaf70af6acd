"""Halos: the range of a sharded dimension that each device needs, and the permutations that deliver it.

A `Halo` has one range per tile, if the range of a device depends only on its tile, or one per device
(`TileOwners`). A `HaloSegment` is the part of a range within one tile. An `ExchangeRound` is one permutation,
in which each device sends and receives at most one segment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from hloom.records import dataclass
from hloom.sharding.tiling.coordinates import Coordinate
from hloom.sharding.tiling.tiling import Tiling


@dataclass(frozen=True, slots=True)
class TileOwners:
    """The tile of a dimension that each device owns, for halos with one range per device.

    Attributes:
        tiles: the number of tiles.
        tile_of: the tile index of each device.
        class_of: the number of the class of each device; devices exchange segments within their class only.
    """

    tiles: int
    tile_of: tuple[int, ...]
    class_of: tuple[int, ...]

    def by_tile(self) -> dict[tuple[int, int], list[int]]:
        """Return the devices that own each tile, by (class, tile)."""
        owners: dict[tuple[int, int], list[int]] = {}
        for device, key in enumerate(zip(self.class_of, self.tile_of, strict=True)):
            owners.setdefault(key, []).append(device)
        return owners


@dataclass(frozen=True, slots=True)
class Halo:
    """The ranges of a sharded dimension that devices need, all of one length, in elements.

    Attributes:
        extent: the extent of the dimension in the global array.
        starts: the first index of each range, which may be out of bounds; one range per tile or per device.
        length: the length of every range.
        needed: the length of the prefix of each range that is used.
        owners: the owners of the tiles, for one range per device; None for one range per tile.
        wraps: indices are taken modulo the extent.
    """

    extent: int
    starts: tuple[int, ...]
    length: int
    needed: tuple[int, ...]
    owners: TileOwners | None = None
    wraps: bool = False

    @property
    def local(self) -> int:
        """The extent of a tile."""
        return -(-self.extent // (self.owners.tiles if self.owners is not None else len(self.starts)))

    def rounds(self) -> tuple[ExchangeRound, ...]:
        """Return the rounds that deliver all segments.

        The first one may hold segments without communication.
        """
        return _rounds(self)

    def segments(self) -> Iterator[tuple[int, HaloSegment]]:
        """Yield (range number, segment) for all ranges.

        Of several devices that own a tile, the one with the fewest elements sent so far becomes the sender.
        """
        owners = self.owners.by_tile() if self.owners is not None else {}
        load: dict[int, int] = {}
        for p, q, low, high, at in self._intersections():
            source = q
            if self.owners is not None:
                devices = owners[self.owners.class_of[p], q]
                source = p if p in devices else min(devices, key=lambda n: load.get(n, 0))
            if source != p:
                load[source] = load.get(source, 0) + high - low
            yield p, HaloSegment(source, q, low, high, at)

    def _intersections(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield (range, tile, low, high, offset in the range) for each intersection of a range and a tile."""
        for p, (start, needed) in enumerate(zip(self.starts, self.needed, strict=True)):
            first, end = start, start + needed
            if not self.wraps:
                first, end = max(first, 0), min(end, self.extent)
            while first < end:
                base = first // self.extent * self.extent
                stop = min(end - base, self.extent)
                for q in range((first - base) // self.local, -(-stop // self.local)):
                    low, high = max(first - base, q * self.local), min(stop, (q + 1) * self.local)
                    yield p, q, low, high, base + low - start
                first = base + stop

    def sent(self) -> int:
        """Return the number of indices of the dimension that a device sends, summed over all rounds."""
        return sum(exchange.length for exchange in self.rounds() if exchange.is_sent)


MOST_DEVICES: Final = 256
"""Maximum number of devices for halos with one range per device."""
_MOST_ROUNDS: Final = 8
"""Maximum number of rounds of halos with one range per device."""


def by_device(halo: Halo, have: Tiling, d: int, need: Coordinate, fixed: Sequence[Coordinate]) -> Halo | None:
    """Convert a halo with one range per tile to one with one range per device.

    Devices fetch these ranges from the tiles of the current tiling, which need not be that of the ranges.
    Returns None for too many devices or rounds, or if a class of devices does not own all tiles.

    Args:
        halo: a halo with one range per tile.
        have: the current tiling of the array.
        d: the dimension.
        need: the range number of each device.
        fixed: coordinates in which the devices of a group must agree.
    """
    if have.devices > MOST_DEVICES:
        return None
    others = [coordinate.indices for e, coordinate in enumerate(have.coordinates) if e != d]
    keys = zip(*others, *(coordinate.indices for coordinate in fixed), [()] * have.devices, strict=True)
    numbers: dict[object, int] = {}
    class_of = tuple(numbers.setdefault(key, len(numbers)) for key in keys)
    owners = TileOwners(have.tiles[d], have.coordinates[d].indices, class_of)
    if len(owners.by_tile()) != len(numbers) * have.tiles[d]:
        return None
    starts = tuple(halo.starts[p] for p in need.indices)
    needed = tuple(halo.needed[p] for p in need.indices)
    owned = replace(halo, starts=starts, needed=needed, owners=owners)
    return owned if len(owned.rounds()) <= _MOST_ROUNDS else None


@lru_cache(maxsize=1024)
def _rounds(halo: Halo) -> tuple[ExchangeRound, ...]:
    """Assign the segments of a halo to rounds.

    The longest segments come first; each goes to the first round in which its sender and receiver are idle.
    """
    local: dict[int, HaloSegment] = {}
    sent: list[dict[int, HaloSegment]] = []
    senders: list[set[int]] = []
    longest_first = sorted(
        halo.segments(), key=lambda item: (-item[1].length, item[1].source - item[0], item[0])
    )
    for p, segment in longest_first:
        if segment.source == p:
            local[p] = segment
            continue
        for segments, sources in zip(sent, senders, strict=True):
            if p not in segments and segment.source not in sources:
                break
        else:
            segments, sources = dict[int, HaloSegment](), set[int]()
            sent.append(segments)
            senders.append(sources)
        segments[p] = segment
        sources.add(segment.source)
    return tuple(ExchangeRound(segments) for segments in (local, *sent) if segments)


@dataclass(frozen=True, slots=True)
class HaloSegment:
    """The part of a range within one tile, in elements.

    Attributes:
        source: the sender: the tile, or a device if there is one range per device.
        tile: the tile index.
        low, high: the bounds of the segment in the global dimension.
        at: the offset of the segment in the range.
    """

    source: int
    tile: int
    low: int
    high: int
    at: int

    @property
    def length(self) -> int:
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class ExchangeRound:
    """One round of a halo exchange: the segments that one permutation delivers, or that need no permutation.

    Attributes:
        segments: the segment of each receiver, by tile or by device.
    """

    segments: Mapping[int, HaloSegment]

    @property
    def is_sent(self) -> bool:
        """True if any segment comes from another device."""
        return any(p != segment.source for p, segment in self.segments.items())

    @property
    def length(self) -> int:
        """The length of the longest segment; shorter ones are extended to it."""
        return max(segment.length for segment in self.segments.values())

    def first(self, segment: HaloSegment, local: int) -> int:
        """Return the index within a tile of the first element that the round sends for a segment.

        All devices send ranges of the same length; that of a shorter segment is longer than the segment, and
        begins before it where it would pass the end of the tile, whose extent is ``local``.
        """
        return min(segment.low - segment.tile * local, local - self.length)


@dataclass(frozen=True, slots=True)
class PaddedHalo:
    """Ranges of a dilated and padded dimension: the elements to fetch, and the padding to apply to them.

    Attributes:
        halo: the elements to fetch.
        low, high: the padding at both ends after dilation; negative to crop.
        skips: for each tile, the number of leading elements of the padded range to drop.
    """

    halo: Halo
    low: int
    high: int
    skips: tuple[int, ...]

    @staticmethod
    def of(
        extent: int, dilation: int, starts: tuple[int, ...], length: int, needed: Sequence[int]
    ) -> PaddedHalo | None:
        """Return the elements and the padding for ranges of a dilated dimension, one range per tile.

        Returns None if a range lies between two elements. If ranges start at different phases of the
        dilation, all get the largest padding, and some skip elements.

        Args:
            extent: the extent before dilation.
            dilation: the distance of elements after dilation.
            starts: the first index of each range, after dilation.
            length: the length of every range, after dilation.
            needed: the length of the prefix of each range that is used.
        """
        lows = [-start % dilation for start in starts]
        if max(lows) >= length:
            return None
        low, least = max(lows), min(lows)
        count = -(-(length - least) // dilation)
        firsts = tuple(-(-start // dilation) for start in starts)
        counts = tuple(max(-(-(n - before) // dilation), 0) for n, before in zip(needed, lows, strict=True))
        skips = tuple(low - before for before in lows)
        high = length - least - ((count - 1) * dilation + 1)
        return PaddedHalo(Halo(extent, firsts, count, counts), low, high, skips)


def elements_of_tiles(extent: int, tiles: int) -> tuple[int, ...]:
    """Return the number of indices in each tile of a dimension, padding excluded; 0 for a tile of padding."""
    local = -(-extent // tiles)
    return tuple(min(max(extent - p * local, 0), local) for p in range(tiles))


def elements_per_index(dimensions: tuple[int, ...], d: int) -> int:
    """Return the number of elements at one index of dimension ``d``: the product of the other extents."""
    return math.prod(n for e, n in enumerate(dimensions) if e != d)
