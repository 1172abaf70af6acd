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
    """Which device owns which tile along one dimension, for a halo exchange with an index range per device.

    Attributes:
        tiles: the number of tiles along the dimension.
        tile_of: the index of the tile that each device owns, by device id.
        class_of: for each device, by id, an integer; devices exchange elements only with devices of the same
            integer (their exchange class).
    """

    tiles: int
    tile_of: tuple[int, ...]
    class_of: tuple[int, ...]

    def by_tile(self) -> dict[tuple[int, int], list[int]]:
        """Return the ids of the devices that own each tile, by (exchange class, tile index).

        Devices exchange elements only with devices of the same exchange class.
        """
        owners: dict[tuple[int, int], list[int]] = {}
        for device, key in enumerate(zip(self.class_of, self.tile_of, strict=True)):
            owners.setdefault(key, []).append(device)
        return owners


@dataclass(frozen=True, slots=True)
class Halo:
    """The index ranges of a sharded dimension that devices need; a range may span several tiles.

    Attributes:
        extent: the extent of the dimension in the global array.
        starts: the first global index of each range, which may be out of bounds. There is one range per tile,
            which all owners of the tile need, or one per device if ``owners`` is set.
        length: the number of indices in every range.
        needed: for each range, the number of indices from its start that are used; the others are not
            fetched.
        owners: the owners of the tiles, if there is one range per device; None if there is one per tile.
        wraps: True if indices are taken modulo the extent, as for a rotation.
    """

    extent: int
    starts: tuple[int, ...]
    length: int
    needed: tuple[int, ...]
    owners: TileOwners | None = None
    wraps: bool = False

    @property
    def local(self) -> int:
        """The extent of a tile along the halo's dimension: the global extent per tile, rounded up."""
        return -(-self.extent // (self.owners.tiles if self.owners is not None else len(self.starts)))

    def rounds(self) -> tuple[ExchangeRound, ...]:
        """Return the rounds of communication that bring all parts of each index range to who needs it.

        Each round is one collective-permute, except that the first may hold the parts that devices already
        own.
        """
        return _rounds(self)

    def segments(self) -> Iterator[tuple[int, HaloSegment]]:
        """Yield (index of the range, segment) for each intersection of an index range and a tile.

        The sender of the segment is an owner of the tile: the receiver itself if possible, else the owner
        that sends the fewest elements so far.
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
        """Yield the non-empty intersections of the needed index ranges and the tiles.

        Each is (index of the range, tile index, first and exclusive end index in the global dimension, offset
        in the range).
        """
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
        """Return the total extent, along the halo's dimension, of the slices that a device sends."""
        return sum(exchange.length for exchange in self.rounds() if exchange.is_sent)


MOST_DEVICES: Final = 256
"""Maximum number of devices for halos with one range per device."""
_MOST_ROUNDS: Final = 8
"""Maximum number of rounds of halos with one range per device."""


def by_device(halo: Halo, have: Tiling, d: int, need: Coordinate, fixed: Sequence[Coordinate]) -> Halo | None:
    """Convert a halo with one index range per tile to a halo with one index range per device.

    Devices then fetch their ranges directly from the current tiles, whose number may differ from that of the
    ranges. Returns None if there are too many devices or rounds of communication, or if a set of devices that
    may exchange elements does not own all tiles together.

    Args:
        halo: a halo with one range per tile of the new tiling.
        have: the current tiling of the array.
        d: the dimension.
        need: for each device, the index in ``halo.starts`` of the range that it needs.
        fixed: coordinates (one index per device); devices with different indices must not exchange data.
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
    """Assign the segments of a halo to rounds: a device sends and receives at most one segment per round.

    A segment is the part of a needed index range that one tile holds. The longest segments are assigned
    first, each to the first round in which its sender and its receiver are free. Segments that the receiver
    owns form a first round without communication.
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
    """The part of an index range of a halo that lies within one tile.

    Attributes:
        source: the sender: a tile index if the halo has one range per tile, else a device id.
        tile: the index of the tile.
        low, high: the first index of the segment and its exclusive end, in the global dimension.
        at: the offset of the segment from the start of the range.
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
    """One round of a halo exchange: segments that one collective-permute delivers, or that are local already.

    Attributes:
        segments: the segment that each receiver gets, by receiver: a tile index if the halo has one range per
            tile, else a device id.
    """

    segments: Mapping[int, HaloSegment]

    @property
    def is_sent(self) -> bool:
        """True if the round needs a collective-permute, as a segment comes from a different device."""
        return any(p != segment.source for p, segment in self.segments.items())

    @property
    def length(self) -> int:
        """The length of the longest segment; all devices send slices of this length in the round."""
        return max(segment.length for segment in self.segments.values())

    def first(self, segment: HaloSegment, local: int) -> int:
        """Return the offset, in the sender's tile, of the slice that is sent for ``segment``.

        All slices of a round have the length of the longest segment. The slice starts with the segment, or
        earlier if it would pass the end of the tile, whose extent is ``local``.
        """
        return min(segment.low - segment.tile * local, local - self.length)


@dataclass(frozen=True, slots=True)
class PaddedHalo:
    """Index ranges of a dilated, padded dimension: the elements to fetch, and the padding to apply to them.

    Attributes:
        halo: the index ranges of the elements to fetch, before dilation.
        low, high: the padding at both ends of the fetched and dilated elements; negative to crop.
        skips: for each range, the number of leading elements to drop after padding.
    """

    halo: Halo
    low: int
    high: int
    skips: tuple[int, ...]

    @staticmethod
    def of(
        extent: int, dilation: int, starts: tuple[int, ...], length: int, needed: Sequence[int]
    ) -> PaddedHalo | None:
        """Convert index ranges of a dilated dimension, one per tile, to ranges of its elements and padding.

        Returns None if a range lies between two elements and so contains none. The padding is the same for
        all ranges: if they start at different distances from their first element, all get the largest
        padding, and some drop leading elements (``skips``).

        Args:
            extent: the extent before dilation.
            dilation: the distance between adjacent elements after dilation; 1 for no dilation.
            starts: the first index of each range, after dilation; may be out of bounds.
            length: the length of every range, after dilation.
            needed: for each range, the number of indices from its start that are used.
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
    """Return the number of indices in each tile of a dimension, without padding.

    It is 0 for a tile that is all padding. ``extent`` is the extent of the dimension, ``tiles`` the number of
    tiles.
    """
    local = -(-extent // tiles)
    return tuple(min(max(extent - p * local, 0), local) for p in range(tiles))


def elements_per_index(dimensions: tuple[int, ...], d: int) -> int:
    """Return the number of array elements at one index of dimension ``d``: the product of other extents."""
    return math.prod(n for e, n in enumerate(dimensions) if e != d)
