"""Halos: elements along a cut dimension that devices get from their neighbors.

`Halo` says which range of an array every device needs. A `Part` is one permutation, of a range of tiles that
others need; parts are placed by masks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

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
    """

    extent: int
    starts: tuple[int, ...]
    length: int

    def parts(self) -> list[Part]:
        """Return what tiles give each other: a part for each distance between tiles, merged where possible.

        Distances share a permutation if they move the same range, and no tile sends or receives twice.
        """
        merged: list[Part] = []
        for distance, part in sorted(self._by_distance().items()):
            for n, other in enumerate(merged):
                if distance and other.is_sent and other.fits(part):
                    merged[n] = Part({**other.sources, **part.sources}, part.low, part.high)
                    break
            else:
                merged.append(part)
        return merged

    def _by_distance(self) -> dict[int, Part]:
        tiles = len(self.starts)
        local = -(-self.extent // tiles)
        found: dict[int, Part] = {}
        for p, start in enumerate(self.starts):
            first, end = max(start, 0), min(start + self.length, self.extent)
            for q in range(max(first, 0) // local, -(-end // local)) if first < end else ():
                low, high = max(first - q * local, 0), min(end - q * local, local)
                old = found.get(q - p, Part({}, low, high))
                found[q - p] = Part({**old.sources, p: q}, min(old.low, low), max(old.high, high))
        return found

    def sent(self) -> int:
        """Return how many elements along the dimension a device sends."""
        return sum(part.high - part.low for part in self.parts() if part.is_sent)


@dataclass(frozen=True, slots=True)
class Part:
    """A range of tiles that other tiles need.

    Attributes:
        sources: by tile the one that it needs the range of.
        low, high: the range within each tile.
    """

    sources: Mapping[int, int]
    low: int
    high: int

    @property
    def is_sent(self) -> bool:
        """True if tiles need ranges of others, not their own."""
        return any(p != q for p, q in self.sources.items())

    def fits(self, other: Part) -> bool:
        """Return true if one permutation can move both parts."""
        same_range = (self.low, self.high) == (other.low, other.high)
        sources = set(self.sources.values()).isdisjoint(other.sources.values())
        return same_range and sources and self.sources.keys().isdisjoint(other.sources)


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
    local = -(-wanted.extent // tiling.tiles[d])
    groups = tiling.groups([d], fixed(region)).groups
    column = tiling.column(d).indices
    position = writer.op(Iota(iota_dimension=d), shape=Shape(S32, shape.dimensions))
    for move in wanted.parts():
        low, high = move.low, move.high
        part = cropped(value, d, low, high)
        if move.is_sent:
            part = resharder.permute(part, [(g[q], g[p]) for g in groups for p, q in move.sources.items()])
        offsets = [move.sources.get(p, p) * local + low - wanted.starts[p] for p in column]
        width = wanted.length
        part = resharder.window(part, d, width, width)
        limit = width + high - low
        start = [min(max(width - offset, 0), limit) for offset in offsets]
        starts = [writer.scalar(0, S32)] * shape.rank
        starts[d] = resharder.of_device(writer, start)
        part = writer.op(DynamicSlice(dynamic_slice_sizes=shape.dimensions), part, *starts, shape=shape)
        tiles = [(p, move.sources.get(p, -1)) for p in column]
        result = _placed(writer, result, part, position, wanted, tiles, resharder)
    return result


def _placed(
    writer: Writer,
    result: HloInstruction,
    part: HloInstruction,
    position: HloInstruction,
    wanted: Halo,
    tiles: list[tuple[int, int]],
    resharder: Resharder,
) -> HloInstruction:
    """Take from a part what belongs to its tile: ``tiles`` are for each device its own and the source."""
    count = len(wanted.starts)
    local = -(-wanted.extent // count)
    lows: list[int] = []
    highs: list[int] = []
    for own, source in tiles:
        start = wanted.starts[own]
        is_tile = 0 <= source < count
        lows.append(source * local - start if is_tile else 0)
        highs.append(min((source + 1) * local, wanted.extent) - start if is_tile else 0)
    dimensions = result.shape.dimensions
    if all(low <= 0 for low in lows) and all(high >= wanted.length for high in highs):
        return part
    low, high = (writer.broadcast(resharder.of_device(writer, t), dimensions) for t in (lows, highs))
    inside = writer.op(
        And(),
        writer.compare(position, "GE", low),
        writer.compare(position, "LT", high),
        shape=Shape(PRED, dimensions),
    )
    return writer.op(Select(), inside, part, result, shape=result.shape)


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
    """

    halo: Halo
    low: int
    high: int

    @staticmethod
    def of(extent: int, dilation: int, starts: tuple[int, ...], length: int) -> Window | None:
        """Return how to get ranges of a dilated dimension; None if they begin at different phases."""
        phases = {-start % dilation for start in starts}
        if len(phases) != 1 or length < 1:
            return None
        (low,) = phases
        if low >= length:
            return None
        count = -(-(length - low) // dilation)
        firsts = tuple(-(-start // dilation) for start in starts)
        high = length - low - ((count - 1) * dilation + 1)
        return Window(Halo(extent, firsts, count), low, high)


def elements(dimensions: tuple[int, ...], d: int) -> int:
    """Return the number of elements at one index of a dimension."""
    return math.prod(n for e, n in enumerate(dimensions) if e != d)
