"""Halos of the operands of windows, slices, pads, concatenations and reshapes with sharded factors."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hloom.ir.instruction import HloInstruction
from hloom.ir.sharding_rule import Factor
from hloom.operations.convolution import Convolution
from hloom.operations.custom_call import CustomCall, rotation_of
from hloom.operations.movement import Concatenate, Pad, Reverse, Slice
from hloom.operations.reshaping import Reshape
from hloom.operations.window_reduction import ReduceWindow
from hloom.records import dataclass
from hloom.shape.shape import Shape
from hloom.sharding.tiling.coordinates import Coordinate
from hloom.sharding.tiling.ranges import Halo, PaddedHalo, by_device, elements_of_tiles, elements_per_index
from hloom.sharding.tiling.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Fetch:
    """The halo of an operand along one dimension: elements that devices need beyond their tiles.

    Attributes:
        operand, dimension: the operand number, and the dimension of the operand.
        window: the index ranges to fetch, and the padding to apply to them.
    """

    operand: int
    dimension: int
    window: PaddedHalo


def fetches(
    i: HloInstruction, shapes: Sequence[Shape], result: Shape, factor: Factor, tiling: Tiling
) -> list[Fetch] | None:
    """Return the halos of operands that devices must fetch if a factor of an instruction is sharded.

    A factor is an index of the operation, such as a spatial dimension of a window. Returns an empty list if
    each device's own tiles suffice, None if sharding the factor is not supported.

    Args:
        i: the instruction, with its operation on global arrays.
        shapes, result: the global shapes of the operands and of the result.
        factor: the factor; only factors of kind "halo" have halos.
        tiling: the tiling of the factor, of rank 1.
    """
    if factor.kind != "halo":
        return []
    tiles = tiling.tiles[0]
    operation = i.operation
    if isinstance(operation, Convolution):
        return _of_convolution(operation, shapes, result, factor, tiles)
    assert factor.result is not None
    d = factor.result
    local = -(-result.dimensions[d] // tiles)
    firsts = [p * local for p in range(tiles)]
    counts = elements_of_tiles(result.dimensions[d], tiles)
    operand_dimension = factor.operands[0]
    extent = shapes[0].dimensions[operand_dimension]
    match operation:
        case Reshape():
            minor = extent // factor.size
            starts = tuple(n * minor for n in firsts)
            window = PaddedHalo.of(extent, 1, starts, local * minor, [n * minor for n in counts])
        case Slice(slice=ranges):
            start, stride = ranges[d].start, ranges[d].stride
            starts = tuple(start + n * stride for n in firsts)
            window = PaddedHalo.of(extent, 1, starts, *_spanned(local, counts, stride, 1))
        case Pad(padding=padding):
            pad = padding[d]
            window = PaddedHalo.of(
                extent, pad.interior + 1, tuple(n - pad.low for n in firsts), local, counts
            )
        case Reverse():
            starts = tuple(extent - n - local for n in firsts)
            window = PaddedHalo.of(extent, 1, starts, local, [local] * tiles)
        case ReduceWindow(window=windows):
            w = windows[d]
            starts = tuple(n * w.stride - w.padding_low for n in firsts)
            spans = _spanned(local, counts, w.stride, w.dilated_size)
            window = PaddedHalo.of(extent, w.base_dilation, starts, *spans)
            if window is None or any(skip % w.stride for skip in window.skips):
                return None
            return [Fetch(n, d, window) for n in range(len(shapes) // 2)]
        case CustomCall():
            rotation = rotation_of(i)
            if rotation is None:
                return None
            starts = tuple(n - rotation[1] for n in firsts)
            wrapped = Halo(extent, starts, local, counts, wraps=True)
            window = PaddedHalo(wrapped, 0, 0, (0,) * tiles)
        case Concatenate():
            return _of_concatenation(shapes, d, firsts, local, counts)
        case _:
            return None
    return [Fetch(0, operand_dimension, window)] if window is not None else None


def _spanned(local: int, counts: Sequence[int], stride: int, size: int) -> tuple[int, tuple[int, ...]]:
    """Return the input extents that windows span: (for a full tile of windows, for each actual tile).

    Args:
        local: the number of windows of a full output tile, at least 1.
        counts: the number of windows of each output tile; a tile without windows spans 0 elements.
        stride: the distance between the starts of adjacent windows, in elements.
        size: the extent of a window, in elements.
    """
    return (local - 1) * stride + size, tuple((n - 1) * stride + size if n else 0 for n in counts)


def _of_concatenation(
    shapes: Sequence[Shape], d: int, firsts: list[int], local: int, counts: Sequence[int]
) -> list[Fetch]:
    halos: list[Fetch] = []
    offset = 0
    for number, shape in enumerate(shapes):
        ranges = Halo(shape.dimensions[d], tuple(n - offset for n in firsts), local, tuple(counts))
        halos.append(Fetch(number, d, PaddedHalo(ranges, 0, 0, (0,) * len(firsts))))
        offset += shape.dimensions[d]
    return halos


def _of_convolution(
    operation: Convolution, shapes: Sequence[Shape], result: Shape, factor: Factor, tiles: int
) -> list[Fetch] | None:
    """Return the input elements that each tile needs if a convolution is cut along a spatial dimension.

    ``factor`` is that dimension: of the output or, if the result lacks it, of the kernel; ``tiles`` is the
    number of tiles. The list has one `Fetch`, of the input along the dimension. Returns None if a tile would
    begin between two input elements that base dilation spreads apart, or if a tile would have to drop leading
    input elements whose number is not a multiple of the window's stride.
    """
    labels = operation.dim_labels
    d = factor.operands[0]
    number = labels.input_spatial_dimensions.index(d)
    w, extent = operation.window[number], shapes[0].dimensions[d]
    if factor.result is None:
        part = -(-w.size // tiles)
        firsts = [w.size - (p + 1) * part if w.window_reversal else p * part for p in range(tiles)]
        starts = tuple(n * w.window_dilation - w.padding_low for n in firsts)
        count = result.dimensions[labels.output_spatial_dimensions[number]]
        length = (count - 1) * w.stride + (part - 1) * w.window_dilation + 1
        window = PaddedHalo.of(extent, 1, starts, length, [length] * tiles)
    else:
        local = -(-result.dimensions[factor.result] // tiles)
        counts = elements_of_tiles(result.dimensions[factor.result], tiles)
        starts = tuple(p * local * w.stride - w.padding_low for p in range(tiles))
        spans = _spanned(local, counts, w.stride, w.dilated_size)
        window = PaddedHalo.of(extent, w.base_dilation, starts, *spans)
    if window is None or any(skip % w.stride for skip in window.skips):
        return None
    return [Fetch(0, d, window)]


def elements_at(i: HloInstruction, local: Sequence[int], fetch: Fetch, halos: Collection[int]) -> int:
    """Return the number of elements in a slice of extent 1 along the dimension of a halo, as devices send it.

    Args:
        i: the instruction, with its operation on global arrays.
        local: the dimensions of a tile of the operand.
        fetch: the halo, which states the dimension.
        halos: all dimensions with halos. If ``i`` is a slice, the operand is sliced along all other
            dimensions before the halo exchange, so that fewer elements are sent.
    """
    extents = list(local)
    if isinstance(i.operation, Slice):
        for d, bounds in enumerate(i.operation.slice):
            if d not in halos and bounds.stride == 1:
                extents[d] = min(extents[d], bounds.limit - bounds.start)
    return elements_per_index(tuple(extents), fetch.dimension)


def halo_of_current_tiles(
    fetch: Fetch, have: Tiling, want: Tiling, factor_tiling: Tiling, fixed: Sequence[Coordinate]
) -> Halo | None:
    """Return the halo with which devices fetch elements from the current tiles, without prior resharding.

    Returns None if that is not possible: the tilings must differ along the dimension of the halo only, and
    the current tiling must shard that dimension.

    Args:
        fetch: the halo, with one index range per tile of the factor (the sharded index of the operation).
        have, want: the current tiling of the operand, and the tiling that the operation requires.
        factor_tiling: the tiling of the sharded factor, of rank 1.
        fixed: coordinates (one index per device); devices with different indices must not exchange data.
    """
    d = fetch.dimension
    others = all(have.is_sharded_like(e, want, e) for e in range(len(have.tiles)) if e != d)
    if have.unreduced is not None or not others or have.is_sharded_like(d, want, d) or not have.is_sharded(d):
        return None
    return by_device(fetch.window.halo, have, d, factor_tiling.coordinates[0], fixed)
