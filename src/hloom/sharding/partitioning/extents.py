"""Padding, cropping and masking of tiles; copies."""

from __future__ import annotations

from hloom.ir.instruction import HloInstruction
from hloom.ir.window import PaddingDimension, SliceDimension
from hloom.operations.comparison import Select
from hloom.operations.movement import Pad, Slice
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import AfterAll, Iota
from hloom.passes.writing import Inserter
from hloom.shape.element_type import S32
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.device_constants import device_constant, device_coordinate
from hloom.sharding.tiling.coordinates import Coordinate
from hloom.sharding.tiling.tiling import Tiling


def with_extent(shape: Shape, d: int, extent: int) -> Shape:
    """Return a copy of an array shape with the given extent in dimension ``d``, without layout."""
    return Shape(shape.element_type, (*shape.dimensions[:d], extent, *shape.dimensions[d + 1 :]))


def padded(
    value: HloInstruction, d: int, low: int, high: int, fill: HloInstruction | None = None
) -> HloInstruction:
    """Emit a pad of both ends of dimension ``d`` by ``low`` and ``high`` elements; return the padded value.

    Negative amounts crop. ``fill`` is the scalar to pad with; None for 0.
    """
    if low == 0 and high == 0:
        return value
    inserter = Inserter(value)
    padding = [PaddingDimension(0, 0, 0)] * value.shape.rank
    padding[d] = PaddingDimension(low, high, 0)
    shape = with_extent(value.shape, d, value.shape.dimensions[d] + low + high)
    zero = fill or inserter.scalar(0, value.shape.element_type)
    return inserter.op(Pad(padding=tuple(padding)), value, zero, shape=shape)


def resized(value: HloInstruction, d: int, extent: int) -> HloInstruction:
    """Emit a pad that crops dimension ``d`` at its end to ``extent``, or extends it with zeros; return it."""
    return padded(value, d, 0, extent - value.shape.dimensions[d])


def cropped(value: HloInstruction, d: int, low: int, high: int) -> HloInstruction:
    """Return ``value`` cut to the range [low, high) of dimension ``d``; emit a slice unless that is all."""
    dimensions = value.shape.dimensions
    if (low, high) == (0, dimensions[d]):
        return value
    ranges = [SliceDimension(0, n) for n in dimensions]
    ranges[d] = SliceDimension(low, high)
    return Inserter(value).op(
        Slice(slice=tuple(ranges)), value, shape=with_extent(value.shape, d, high - low)
    )


def masked(
    value: HloInstruction, d: int, tiling: Tiling, extent: int, fill: HloInstruction
) -> HloInstruction:
    """Emit a select that replaces the padding of a tile along dimension ``d`` by a scalar; return the result.

    Args:
        value: the tile.
        d: the dimension.
        tiling: the tiling of the array; the last tiles along the dimension may have padding.
        extent: the extent of the dimension in the global array.
        fill: the scalar.
    """
    local = value.shape.dimensions[d]
    if local * tiling.tiles[d] == extent:
        return value
    inserter = Inserter(value)
    dimensions = value.shape.dimensions
    index = inserter.op(Iota(iota_dimension=d), shape=Shape(S32, dimensions))
    ends = [min(max(extent - p * local, 0), local) for p in tiling.coordinates[d].indices]
    end = inserter.broadcast(device_constant(inserter, ends), dimensions)
    inside = inserter.compare(index, "LT", end)
    return inserter.op(Select(), inside, value, inserter.broadcast(fill, dimensions), shape=value.shape)


def on_first_device(value: HloInstruction, number: Coordinate, identity: float = 0) -> HloInstruction:
    """Emit code that yields ``value`` on devices whose ``number`` is 0, and ``identity`` on all others.

    ``number`` has an index for each device, such as the index of its partial sum. ``identity`` is the neutral
    element of the reduction that later combines the devices' values, so that ``value`` counts once.
    """
    inserter = Inserter(value)
    is_first = inserter.compare(device_coordinate(inserter, number), "EQ", inserter.scalar(0, S32))
    mask = inserter.broadcast(is_first, value.shape.dimensions)
    return inserter.op(Select(), mask, value, inserter.full(identity, value.shape), shape=value.shape)


def copied(value: HloInstruction) -> HloInstruction:
    """Emit a copy of an array or token, so that the copy can be recorded with another tiling; return it."""
    if value.shape.is_array:
        return Inserter(value).op(Reshape(), value, shape=value.shape)
    return Inserter(value).op(AfterAll(), value, shape=value.shape)
