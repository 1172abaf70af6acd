"""Halos: elements along a cut dimension that devices get from their neighbors, placed by masks."""

from __future__ import annotations

from collections.abc import Sequence
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
from hloom.sharding.partitioning.communication import Communication, Region, fixed
from hloom.sharding.tiling.ranges import Halo, Piece
from hloom.sharding.tiling.tiling import Tiling


def halo(
    value: HloInstruction,
    d: int,
    tiling: Tiling,
    wanted: Halo,
    fill: HloInstruction,
    resharder: Communication,
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
    groups = tiling.groups([d], fixed(region)).groups if wanted.holders is None else ()
    column = tiling.column(d).indices if wanted.holders is None else range(tiling.devices)
    position = writer.op(Iota(iota_dimension=d), shape=Shape(S32, shape.dimensions))
    width, local = wanted.length, wanted.local
    for move in wanted.parts():
        firsts = {piece.source: move.first(piece, local) for piece in move.pieces.values()}
        part = _taken(value, d, move.length, [firsts.get(p) for p in column], resharder)
        if move.is_sent:
            pairs = [(g[piece.source], g[p]) for g in groups for p, piece in move.pieces.items()]
            pairs = pairs or [(piece.source, p) for p, piece in move.pieces.items()]
            part = resharder.permute(part, pairs)
        held = {p: n.at - (n.low - n.tile * local - firsts[n.source]) for p, n in move.pieces.items()}
        limit = width + move.length
        start = [min(max(width - held.get(p, 0), 0), limit) for p in column]
        part = _sliced(resharder.window(part, d, width, width), d, width, start, resharder)
        inside = [_inside(move.pieces.get(p)) for p in column]
        result = _placed(writer, result, part, position, inside, resharder)
    return result


def _taken(
    value: HloInstruction, d: int, length: int, firsts: Sequence[int | None], resharder: Communication
) -> HloInstruction:
    """Return a range of each tile, by the first index on each device; None where any will do."""
    known = [first for first in firsts if first is not None]
    if len(set(known)) == 1:
        return cropped(value, d, known[0], known[0] + length)
    return _sliced(value, d, length, [first or 0 for first in firsts], resharder)


def _sliced(
    value: HloInstruction, d: int, length: int, firsts: Sequence[int], resharder: Communication
) -> HloInstruction:
    """Return a range of each tile, by the first index on each device."""
    writer = Writer(value)
    dimensions = value.shape.dimensions
    shape = Shape(value.shape.element_type, (*dimensions[:d], length, *dimensions[d + 1 :]))
    starts = [writer.scalar(0, S32)] * shape.rank
    starts[d] = resharder.of_device(writer, firsts)
    return writer.op(DynamicSlice(dynamic_slice_sizes=shape.dimensions), value, *starts, shape=shape)


def _inside(piece: Piece | None) -> tuple[int, int]:
    """Return the part of a range that a piece fills."""
    return (0, 0) if piece is None else (piece.at, piece.at + piece.length)


def _placed(
    writer: Writer,
    result: HloInstruction,
    part: HloInstruction,
    position: HloInstruction,
    inside: Sequence[tuple[int, int]],
    resharder: Communication,
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
    value: HloInstruction, d: int, tiling: Tiling, extent: int, fill: HloInstruction, resharder: Communication
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
