"""Halo exchange: permutations deliver the segments of a range, and masks select their elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import And
from hloom.operations.comparison import Select
from hloom.operations.dynamic_slicing import DynamicSlice
from hloom.operations.structure import Iota
from hloom.passes.writing import Inserter
from hloom.shape.element_type import PRED, S32
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.collectives import CollectiveWriter
from hloom.sharding.partitioning.device_constants import device_constant
from hloom.sharding.partitioning.extents import cropped, padded, with_extent
from hloom.sharding.tiling.coordinates import Coordinate
from hloom.sharding.tiling.ranges import Halo, HaloSegment
from hloom.sharding.tiling.tiling import Tiling


def exchange_halo(
    value: HloInstruction,
    d: int,
    tiling: Tiling,
    ranges: Halo,
    fill: HloInstruction,
    collectives: CollectiveWriter,
    fixed: Sequence[Coordinate],
) -> HloInstruction:
    """Emit a halo exchange; return an array with the index range of dimension ``d`` that each device needs.

    Collective-permutes deliver the segments of the range from the devices that have them, selects merge them.

    Args:
        value: the device's tile.
        d: the dimension.
        tiling: the tiling of the array.
        ranges: the index range that each tile or each device needs, and who has the elements.
        fill: the scalar for elements out of the bounds of the global array.
        collectives: emits the permutes.
        fixed: coordinates (one index per device); devices with different indices must not exchange data.
    """
    inserter = Inserter(value)
    width, local = ranges.length, ranges.local
    shape = with_extent(value.shape, d, width)
    result = inserter.broadcast(fill, shape.dimensions)
    groups = tiling.groups([d], fixed).groups if ranges.owners is None else ()
    receiver_of = tiling.coordinates[d].indices if ranges.owners is None else range(tiling.devices)
    index = inserter.op(Iota(iota_dimension=d), shape=Shape(S32, shape.dimensions))
    for exchange in ranges.rounds():
        segments = exchange.segments
        firsts = {segment.source: exchange.first(segment, local) for segment in segments.values()}
        part = _sent_part(value, d, exchange.length, [firsts.get(p) for p in receiver_of])
        if exchange.is_sent:
            pairs = [(g[segment.source], g[p]) for g in groups for p, segment in segments.items()]
            pairs = pairs or [(segment.source, p) for p, segment in segments.items()]
            part = collectives.permute(part, pairs)
        offsets = {p: s.at - (s.low - s.tile * local - firsts[s.source]) for p, s in segments.items()}
        limit = width + exchange.length
        starts = [min(max(width - offsets.get(p, 0), 0), limit) for p in receiver_of]
        part = _sliced(padded(part, d, width, width), d, width, starts)
        result = _merged(inserter, result, part, index, [_bounds(segments.get(p)) for p in receiver_of])
    return result


def _sent_part(value: HloInstruction, d: int, length: int, firsts: Sequence[int | None]) -> HloInstruction:
    """Emit a slice of extent ``length`` along dimension ``d`` of the device's tile, to be sent.

    ``firsts`` has the start of the slice for each device; None for a device that sends nothing.
    """
    distinct = {first for first in firsts if first is not None}
    if len(distinct) == 1:
        (first,) = distinct
        return cropped(value, d, first, first + length)
    return _sliced(value, d, length, [first or 0 for first in firsts])


def _sliced(value: HloInstruction, d: int, length: int, firsts: Sequence[int]) -> HloInstruction:
    """Emit a dynamic-slice of extent ``length`` along dimension ``d``; return it.

    ``firsts`` has the start index for each device.
    """
    inserter = Inserter(value)
    shape = with_extent(value.shape, d, length)
    starts = [inserter.scalar(0, S32)] * shape.rank
    starts[d] = device_constant(inserter, firsts)
    return inserter.op(DynamicSlice(dynamic_slice_sizes=shape.dimensions), value, *starts, shape=shape)


def _bounds(segment: HaloSegment | None) -> tuple[int, int]:
    """Return the start and the exclusive end of a segment within its halo range; (0, 0) if it is None."""
    return (0, 0) if segment is None else (segment.at, segment.at + segment.length)


def _merged(
    inserter: Inserter,
    result: HloInstruction,
    part: HloInstruction,
    index: HloInstruction,
    bounds: Sequence[tuple[int, int]],
) -> HloInstruction:
    """Emit a select that takes ``part`` within a device's bounds along a dimension, ``result`` elsewhere.

    ``index`` is the iota along that dimension, ``bounds`` has (start, exclusive end) for each device.
    """
    dimensions = result.shape.dimensions
    d = cast("Iota", index.operation).iota_dimension
    if all(each == (0, dimensions[d]) for each in bounds):
        return part
    lows, highs = zip(*bounds, strict=True)
    low, high = (inserter.broadcast(device_constant(inserter, t), dimensions) for t in (lows, highs))
    inside = inserter.op(
        And(),
        inserter.compare(index, "GE", low),
        inserter.compare(index, "LT", high),
        shape=Shape(PRED, dimensions),
    )
    return inserter.op(Select(), inside, part, result, shape=result.shape)
