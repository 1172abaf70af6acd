"""Ranges of a sharded dimension that devices need, and the permutations that deliver them.

`Halo` states the range of an array that each device needs. A `HaloSegment` is the part of a range within one
tile; an `ExchangeRound` is one permutation, in which each device sends and receives at most one segment. If
the range depends only on the tile that a device owns, tiles stand for devices; otherwise each device stands
for itself (`TileOwners`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from hloom.sharding.tiling.coordinates import Coordinate
from hloom.sharding.tiling.tiling import Tiling


@dataclass(frozen=True, slots=True)
class TileOwners:
    """The tiles of a dimension, by device.

    Attributes:
        tiles: the number of tiles.
        tile_of: the tile of each device.
        class_of: the class of each device; devices exchange segments within their class.
    """

    tiles: int
    tile_of: tuple[int, ...]
    class_of: tuple[int, ...]

    def by_tile(self) -> dict[tuple[int, int], list[int]]:
        """Return the owners of each tile, by class and tile."""
        owners: dict[tuple[int, int], list[int]] = {}
        for device, key in enumerate(zip(self.class_of, self.tile_of, strict=True)):
            owners.setdefault(key, []).append(device)
        return owners


@dataclass(frozen=True, slots=True)
class Halo:
    """The ranges of a dimension that devices need, all of one length.

    Attributes:
        extent: of the dimension of the global array.
        starts: the first index of each range, by tile or by device; may be out of bounds.
        length: of each range.
        needed: the number of elements of each range whose value matters, from its start.
        owners: the owners of the tiles; None if ranges are numbered by tile.
        wraps: indices are modulo the extent.
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
        """Return the exchange rounds, chosen greedily to send few elements; the first one may be local."""
        return _rounds(self)

    def segments(self) -> Iterator[tuple[int, HaloSegment]]:
        """Yield the segments of each range, with the number of the range."""
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
        """Yield range, tile, first and last index of their intersection, and its offset in the range."""
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
        """Return the number of elements along the dimension that a device sends."""
        return sum(exchange.length for exchange in self.rounds() if exchange.is_sent)


MOST_DEVICES: Final = 256
"""Number of devices up to which ranges may be stated by device."""
_MOST_ROUNDS: Final = 8
"""Number of permutations that may deliver ranges stated by device."""


def by_device(halo: Halo, have: Tiling, d: int, need: Coordinate, fixed: Sequence[Coordinate]) -> Halo | None:
    """Return ranges numbered by tile as ranges of devices that own other tiles; None if too expensive.

    Args:
        halo: the ranges, by tile.
        have: the current tiling.
        d: the dimension.
        need: the range of each device.
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
    """Assign segments to rounds, long ones first, each to the first round in which both ends are free."""
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
    """The part of a range within one tile.

    Attributes:
        source: the sender: a tile, or a device if ranges are stated by device.
        tile: the tile.
        low, high: bounds of the segment in the global dimension.
        at: offset of the segment in the range.
    """

    source: int
    tile: int
    low: int
    high: int
    at: int

    @property
    def length(self) -> int:
        """The number of elements."""
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class ExchangeRound:
    """Segments that one permutation delivers, or that stay local.

    Attributes:
        segments: by receiver; at most one each.
    """

    segments: Mapping[int, HaloSegment]

    @property
    def is_sent(self) -> bool:
        """True unless every receiver is the sender."""
        return any(p != segment.source for p, segment in self.segments.items())

    @property
    def length(self) -> int:
        """The length of the longest segment, to which the others are extended."""
        return max(segment.length for segment in self.segments.values())

    def first(self, segment: HaloSegment, local: int) -> int:
        """Return the index in its tile from which a segment is sent, extended to the round's length."""
        return min(segment.low - segment.tile * local, local - self.length)


@dataclass(frozen=True, slots=True)
class PaddedHalo:
    """Ranges of a dimension with base dilation: the elements to fetch, and the padding around them.

    Attributes:
        halo: the elements to fetch.
        low, high: padding at both ends of the dilated elements; negative to crop.
        skips: the number of leading elements of the padded range that do not belong to each tile's range.
    """

    halo: Halo
    low: int
    high: int
    skips: tuple[int, ...]

    @staticmethod
    def of(
        extent: int, dilation: int, starts: tuple[int, ...], length: int, needed: Sequence[int]
    ) -> PaddedHalo | None:
        """Return elements and padding for ranges of a dilated dimension; None if a range has no element.

        If the ranges begin at different phases of the dilation, all get the largest padding, and some skip
        elements.
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
    """Return the number of elements in each tile of a dimension, padding excluded."""
    local = -(-extent // tiles)
    return tuple(min(max(extent - p * local, 0), local) for p in range(tiles))


def elements(dimensions: tuple[int, ...], d: int) -> int:
    """Return the number of elements at one index of a dimension."""
    return math.prod(n for e, n in enumerate(dimensions) if e != d)
