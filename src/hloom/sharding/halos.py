"""Halos: elements along a cut dimension that devices get from their neighbors.

`Halo` says which range of an array every device needs. Its pieces are the parts of ranges that are in one
tile; a `Part` is one permutation, in which every tile sends and receives at most one piece. Parts are placed
by masks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from hloom.ir.instruction import HloInstruction
from hloom.ir.window import SliceDimension
from hloom.operations.arithmetic import And
from hloom.operations.comparison import Select
from hloom.operations.dynamic_slicing import DynamicSlice
from hloom.operations.movement import Slice
from hloom.operations.structure import Iota
from hloom.passes.writing import Writer
from hloom.shape.element_type import PRED, S32
from hloom.shape.shape import Shape
from hloom.sharding.resharding import Region, Resharder, fixed
from hloom.sharding.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Halo:
    """The ranges of a dimension that devices need.

    Attributes:
        extent: the extent of the whole dimension.
        starts: the first index for each tile; it may be outside of the array.
        length: the length of each range.
        needed: how many elements of each range are needed, the first ones; the others have any value.
    """

    extent: int
    starts: tuple[int, ...]
    length: int
    needed: tuple[int, ...]

    @property
    def local(self) -> int:
        """Return the extent of a tile."""
        return -(-self.extent // len(self.starts))

    def parts(self) -> tuple[Part, ...]:
        """Return what tiles keep and what they give each other, in few elements (found greedily)."""
        return _parts(self)

    def pieces(self) -> Iterator[tuple[int, Piece]]:
        """Yield the pieces that tiles need, with the number of the tile."""
        for p, (start, needed) in enumerate(zip(self.starts, self.needed, strict=True)):
            first, end = max(start, 0), min(start + needed, self.extent)
            for q in range(first // self.local, -(-end // self.local)) if first < end else ():
                yield p, Piece(q, max(first, q * self.local), min(end, (q + 1) * self.local))

    def sent(self) -> int:
        """Return how many elements along the dimension a device sends."""
        return sum(part.length for part in self.parts() if part.is_sent)


@lru_cache(maxsize=1024)
def _parts(halo: Halo) -> tuple[Part, ...]:
    """Put long pieces first into parts in which their tiles neither send nor receive yet."""
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
        source: the tile.
        low, high: the range, in indices of the whole dimension.
    """

    source: int
    low: int
    high: int

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
        return min(piece.low - piece.source * local, local - self.length)


def halo(
    value: HloInstruction,
    d: int,
    tiling: Tiling,
    wanted: Halo,
    fill: HloInstruction,
    resharder: Resharder,
    region: Region,
) -> HloInstruction:
    """Return each device's range of an array cut along a dimension, with ``fill`` outside of the array.

    Args:
        tiling: the tiles of the array.
    """
    writer = Writer(value)
    extents = list(value.shape.dimensions)
    extents[d] = wanted.length
    shape = Shape(value.shape.element_type, tuple(extents))
    result = writer.broadcast(fill, shape.dimensions)
    groups = tiling.groups([d], fixed(region)).groups
    column = tiling.column(d).indices
    position = writer.op(Iota(iota_dimension=d), shape=Shape(S32, shape.dimensions))
    width, local = wanted.length, wanted.local
    for move in wanted.parts():
        firsts = {piece.source: move.first(piece, local) for piece in move.pieces.values()}
        part = _taken(value, d, move.length, [firsts.get(p) for p in column], resharder)
        if move.is_sent:
            pairs = [(g[piece.source], g[p]) for g in groups for p, piece in move.pieces.items()]
            part = resharder.permute(part, pairs)
        held = {p: n.source * local + firsts[n.source] - wanted.starts[p] for p, n in move.pieces.items()}
        limit = width + move.length
        start = [min(max(width - held.get(p, 0), 0), limit) for p in column]
        part = _sliced(resharder.window(part, d, width, width), d, width, start, resharder)
        inside = [_inside(move.pieces.get(p), wanted, p) for p in column]
        result = _placed(writer, result, part, position, inside, resharder)
    return result


def _taken(
    value: HloInstruction, d: int, length: int, firsts: Sequence[int | None], resharder: Resharder
) -> HloInstruction:
    """Return a range of each tile, by the first index on each device; None where any will do."""
    known = [first for first in firsts if first is not None]
    if len(set(known)) == 1:
        return cropped(value, d, known[0], known[0] + length)
    return _sliced(value, d, length, [first or 0 for first in firsts], resharder)


def _sliced(
    value: HloInstruction, d: int, length: int, firsts: Sequence[int], resharder: Resharder
) -> HloInstruction:
    """Return a range of each tile, by the first index on each device."""
    writer = Writer(value)
    dimensions = value.shape.dimensions
    shape = Shape(value.shape.element_type, (*dimensions[:d], length, *dimensions[d + 1 :]))
    starts = [writer.scalar(0, S32)] * shape.rank
    starts[d] = resharder.of_device(writer, firsts)
    return writer.op(DynamicSlice(dynamic_slice_sizes=shape.dimensions), value, *starts, shape=shape)


def _inside(piece: Piece | None, wanted: Halo, p: int) -> tuple[int, int]:
    """Return the range of a tile's range that a piece fills."""
    return (0, 0) if piece is None else (piece.low - wanted.starts[p], piece.high - wanted.starts[p])


def _placed(
    writer: Writer,
    result: HloInstruction,
    part: HloInstruction,
    position: HloInstruction,
    inside: Sequence[tuple[int, int]],
    resharder: Resharder,
) -> HloInstruction:
    """Take from a part what is in the range of each device."""
    dimensions = result.shape.dimensions
    d = cast("Iota", position.operation).iota_dimension
    if all(each == (0, dimensions[d]) for each in inside):
        return part
    lows, highs = zip(*inside, strict=True)
    low, high = (writer.broadcast(resharder.of_device(writer, t), dimensions) for t in (lows, highs))
    chosen = writer.op(
        And(),
        writer.compare(position, "GE", low),
        writer.compare(position, "LT", high),
        shape=Shape(PRED, dimensions),
    )
    return writer.op(Select(), chosen, part, result, shape=result.shape)


def masked(
    value: HloInstruction, d: int, tiling: Tiling, extent: int, fill: HloInstruction, resharder: Resharder
) -> HloInstruction:
    """Return a tile in which elements beyond the end of the array are replaced."""
    local = value.shape.dimensions[d]
    if local * tiling.tiles[d] == extent:
        return value
    writer = Writer(value)
    dimensions = value.shape.dimensions
    position = writer.op(Iota(iota_dimension=d), shape=Shape(S32, dimensions))
    ends = resharder.of_device(
        writer, [min(max(extent - p * local, 0), local) for p in tiling.column(d).indices]
    )
    inside = writer.compare(position, "LT", writer.broadcast(ends, dimensions))
    return writer.op(Select(), inside, value, writer.broadcast(fill, dimensions), shape=value.shape)


def cropped(value: HloInstruction, d: int, low: int, high: int) -> HloInstruction:
    """Return a range of a dimension."""
    dimensions = value.shape.dimensions
    if (low, high) == (0, dimensions[d]):
        return value
    ranges = [SliceDimension(0, n) for n in dimensions]
    ranges[d] = SliceDimension(low, high)
    shape = Shape(value.shape.element_type, (*dimensions[:d], high - low, *dimensions[d + 1 :]))
    return Writer(value).op(Slice(slice=tuple(ranges)), value, shape=shape)


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
