"""Ranges of a cut dimension that devices need, and the permutations that bring their pieces.

`Halo` says which range of an array every device needs. Its pieces are the parts of ranges that are in one
tile; a `Part` is one permutation, in which everyone sends and receives at most one piece. If devices need
ranges by the tile that they hold, tiles stand for the devices, else each device for itself (`Holders`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from hloom.sharding.tiling.coordinates import Column
from hloom.sharding.tiling.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Holders:
    """The tiles of a dimension that devices hold.

    Attributes:
        tiles: the number of tiles.
        held: the tile of each device.
        classes: the number of the class of each device; devices give each other pieces within a class.
    """

    tiles: int
    held: tuple[int, ...]
    classes: tuple[int, ...]

    def by_tile(self) -> dict[tuple[int, int], list[int]]:
        """Return the devices that hold a tile, by class and tile."""
        found: dict[tuple[int, int], list[int]] = {}
        for device, place in enumerate(zip(self.classes, self.held, strict=True)):
            found.setdefault(place, []).append(device)
        return found


@dataclass(frozen=True, slots=True)
class Halo:
    """The ranges of a dimension that devices need.

    Attributes:
        extent: the extent of the whole dimension.
        starts: the first index for each tile, or for each device; it may be outside of the array.
        length: the length of each range.
        needed: how many elements of each range are needed, the first ones; the others have any value.
        holders: the tiles of the devices; None if the devices that need a range hold the tile of its number.
        wraps: behind the last index comes the first one, and before the first one the last.
    """

    extent: int
    starts: tuple[int, ...]
    length: int
    needed: tuple[int, ...]
    holders: Holders | None = None
    wraps: bool = False

    @property
    def local(self) -> int:
        """Return the extent of a tile."""
        return -(-self.extent // (self.holders.tiles if self.holders is not None else len(self.starts)))

    def parts(self) -> tuple[Part, ...]:
        """Return what tiles keep and what they give each other, in few elements (found greedily)."""
        return _parts(self)

    def pieces(self) -> Iterator[tuple[int, Piece]]:
        """Yield the pieces that tiles or devices need, with the number of each."""
        having = self.holders.by_tile() if self.holders is not None else {}
        load: dict[int, int] = {}
        for p, q, low, high, at in self._in_tiles():
            source = q
            if self.holders is not None:
                devices = having[self.holders.classes[p], q]
                source = p if p in devices else min(devices, key=lambda n: load.get(n, 0))
            if source != p:
                load[source] = load.get(source, 0) + high - low
            yield p, Piece(source, q, low, high, at)

    def _in_tiles(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield for each range and tile their numbers, what they share, and where it is in the range."""
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
        """Return how many elements along the dimension a device sends."""
        return sum(part.length for part in self.parts() if part.is_sent)


MOST_DEVICES: Final = 256
"""Number of devices up to which each fetches ranges for itself."""
_MOST_PERMUTATIONS: Final = 8
"""Number of permutations that may bring the ranges of devices for themselves."""


def by_device(halo: Halo, have: Tiling, d: int, need: Column, fixed: Sequence[Column]) -> Halo | None:
    """Return the ranges that tiles need, for devices that hold other tiles; None if that takes too much.

    Args:
        halo: the ranges, by the number of the tile.
        have: the tiles that devices hold.
        d: the dimension.
        need: for each device the number of its range.
        fixed: columns in which devices that work together must agree.
    """
    if have.devices > MOST_DEVICES:
        return None
    others = [column.indices for e, column in enumerate(have.columns) if e != d]
    keys = list(zip(range(have.devices), *others, *(column.indices for column in fixed), strict=True))
    numbers: dict[object, int] = {}
    classes = tuple(numbers.setdefault(key[1:], len(numbers)) for key in keys)
    holders = Holders(have.tiles[d], have.column(d).indices, classes)
    if len(holders.by_tile()) != len(numbers) * have.tiles[d]:
        return None
    starts, needed = ([numbers[p] for p in need.indices] for numbers in (halo.starts, halo.needed))
    found = replace(halo, starts=tuple(starts), needed=tuple(needed), holders=holders)
    return found if len(found.parts()) <= _MOST_PERMUTATIONS else None


@lru_cache(maxsize=1024)
def _parts(halo: Halo) -> tuple[Part, ...]:
    """Put long pieces first into parts in which their ends neither send nor receive yet."""
    kept: dict[int, Piece] = {}
    sent: list[dict[int, Piece]] = []
    senders: list[set[int]] = []
    for p, piece in sorted(halo.pieces(), key=lambda one: (-one[1].length, one[1].source - one[0], one[0])):
        if piece.source == p:
            kept[p] = piece
            continue
        for pieces, sources in zip(sent, senders, strict=True):
            if p not in pieces and piece.source not in sources:
                break
        else:
            pieces, sources = dict[int, Piece](), set[int]()
            sent.append(pieces)
            senders.append(sources)
        pieces[p] = piece
        sources.add(piece.source)
    return tuple(Part(pieces) for pieces in (kept, *sent) if pieces)


@dataclass(frozen=True, slots=True)
class Piece:
    """A range of a dimension, in one tile.

    Attributes:
        source: the number of the device that gives it; that of the tile, if tiles stand for devices.
        tile: the tile.
        low, high: the range, in indices of the whole dimension.
        at: where it begins in the range that is needed.
    """

    source: int
    tile: int
    low: int
    high: int
    at: int

    @property
    def length(self) -> int:
        """Return the number of elements."""
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class Part:
    """Pieces that tiles need, at most one each.

    Attributes:
        pieces: by tile the piece that it needs.
    """

    pieces: Mapping[int, Piece]

    @property
    def is_sent(self) -> bool:
        """True if tiles need pieces of others, not their own."""
        return any(p != piece.source for p, piece in self.pieces.items())

    @property
    def length(self) -> int:
        """Return the length of the longest piece: all are sent in as many elements."""
        return max(piece.length for piece in self.pieces.values())

    def first(self, piece: Piece, local: int) -> int:
        """Return where in its tile what is sent of a piece begins: as many elements as of the longest fit."""
        return min(piece.low - piece.tile * local, local - self.length)


@dataclass(frozen=True, slots=True)
class Window:
    """A range of a dilated dimension: elements to fetch, and padding of what was fetched.

    Attributes:
        halo: the elements to fetch.
        low, high: padding before and behind the dilated elements; negative if elements are to be dropped.
        skips: how many padded elements stand before the range of each tile.
    """

    halo: Halo
    low: int
    high: int
    skips: tuple[int, ...]

    @staticmethod
    def of(
        extent: int, dilation: int, starts: tuple[int, ...], length: int, needed: Sequence[int]
    ) -> Window | None:
        """Return how to get ranges of a dilated dimension; None if one has no element.

        Where ranges begin at different phases, all are padded as much as one needs, and some skip elements.
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
        return Window(Halo(extent, firsts, count, counts), low, high, skips)


def elements(dimensions: tuple[int, ...], d: int) -> int:
    """Return the number of elements at one index of a dimension."""
    return math.prod(n for e, n in enumerate(dimensions) if e != d)
