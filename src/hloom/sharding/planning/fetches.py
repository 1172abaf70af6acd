"""Fetches: the halos of operands that devices need to compute tiles of a result."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hloom.ir.instruction import HloInstruction
from hloom.ir.sharding_rule import Factor
from hloom.operations.convolution import Convolution
from hloom.operations.custom_call import CustomCall, rotation_of
from hloom.operations.movement import Concatenate, Pad, Reverse, Slice
from hloom.operations.reshaping import Reshape
from hloom.operations.window_reduction import ReduceWindow
from hloom.shape.shape import Shape
from hloom.sharding.tiling.coordinates import Column
from hloom.sharding.tiling.ranges import Halo, Window, by_device, elements
from hloom.sharding.tiling.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Fetch:
    """A halo of an operand.

    Attributes:
        operand: its number.
        dimension: the dimension of the operand.
        window: the range, and the padding of what was fetched.
    """

    operand: int
    dimension: int
    window: Window


def fetches(
    i: HloInstruction, shapes: Sequence[Shape], result: Shape, factor: Factor, cut: Tiling
) -> list[Fetch] | None:
    """Return the halos that a factor cut in a way needs; None if they cannot be expressed.

    Args:
        i: an instruction with its original operation.
        shapes, result: shapes of the whole operands and of the whole result.
    """
    if factor.kind != "halo":
        return []
    tiles = cut.tiles[0]
    operation = i.operation
    if isinstance(operation, Convolution):
        return _of_convolution(operation, shapes, result, factor, tiles)
    assert factor.result is not None
    d = factor.result
    local = -(-result.dimensions[d] // tiles)
    firsts = [p * local for p in range(tiles)]
    counts = elements_of_tiles(result.dimensions[d], tiles)
    own = factor.operands[0]
    extent = shapes[0].dimensions[own]
    match operation:
        case Reshape():
            minor = extent // factor.size
            starts = tuple(n * minor for n in firsts)
            window = Window.of(extent, 1, starts, local * minor, [n * minor for n in counts])
        case Slice(slice=ranges):
            start, stride = ranges[d].start, ranges[d].stride
            starts = tuple(start + n * stride for n in firsts)
            window = Window.of(extent, 1, starts, *_spanned(local, counts, stride, 1))
        case Pad(padding=padding):
            pad = padding[d]
            window = Window.of(extent, pad.interior + 1, tuple(n - pad.low for n in firsts), local, counts)
        case Reverse():
            starts = tuple(extent - n - local for n in firsts)
            window = Window.of(extent, 1, starts, local, [local] * tiles)
        case ReduceWindow(window=windows):
            w = windows[d]
            starts = tuple(n * w.stride - w.padding_low for n in firsts)
            spans = _spanned(local, counts, w.stride, w.dilated_size)
            window = Window.of(extent, w.base_dilation, starts, *spans)
            if window is None or any(skip % w.stride for skip in window.skips):
                return None
            return [Fetch(n, d, window) for n in range(len(shapes) // 2)]
        case CustomCall():
            rotation = rotation_of(i)
            if rotation is None:
                return None
            starts = tuple(n - rotation[1] for n in firsts)
            wrapped = Halo(extent, starts, local, counts, wraps=True)
            window = Window(wrapped, 0, 0, (0,) * tiles)
        case Concatenate():
            return _of_concatenation(shapes, d, firsts, local, counts)
        case _:
            return None
    return [Fetch(0, own, window)] if window is not None else None


def elements_of_tiles(extent: int, tiles: int) -> tuple[int, ...]:
    """Return how many elements of a dimension each tile has."""
    local = -(-extent // tiles)
    return tuple(min(max(extent - p * local, 0), local) for p in range(tiles))


def _spanned(local: int, counts: Sequence[int], stride: int, size: int) -> tuple[int, tuple[int, ...]]:
    """Return the length of the windows of a tile, and of those of the elements that each tile has."""
    return (local - 1) * stride + size, tuple((n - 1) * stride + size if n else 0 for n in counts)


def _of_concatenation(
    shapes: Sequence[Shape], d: int, firsts: list[int], local: int, counts: Sequence[int]
) -> list[Fetch]:
    found: list[Fetch] = []
    offset = 0
    for number, shape in enumerate(shapes):
        wanted = Halo(shape.dimensions[d], tuple(n - offset for n in firsts), local, tuple(counts))
        found.append(Fetch(number, d, Window(wanted, 0, 0, (0,) * len(firsts))))
        offset += shape.dimensions[d]
    return found


def _of_convolution(
    operation: Convolution, shapes: Sequence[Shape], result: Shape, factor: Factor, tiles: int
) -> list[Fetch] | None:
    """Return the range of the input below the windows of a tile, or below a part of the kernel."""
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
        window = Window.of(extent, 1, starts, length, [length] * tiles)
    else:
        local = -(-result.dimensions[factor.result] // tiles)
        counts = elements_of_tiles(result.dimensions[factor.result], tiles)
        starts = tuple(p * local * w.stride - w.padding_low for p in range(tiles))
        spans = _spanned(local, counts, w.stride, w.dilated_size)
        window = Window.of(extent, w.base_dilation, starts, *spans)
    if window is None or any(skip % w.stride for skip in window.skips):
        return None
    return [Fetch(0, d, window)]


def elements_at(i: HloInstruction, local: Sequence[int], fetch: Fetch, halos: Collection[int]) -> int:
    """Return the number of elements at each index of a halo of an operand.

    Args:
        i: an instruction with its original operation.
        local: the extents of a tile of the operand.
        fetch: the halo.
        halos: the dimensions along which the operation needs halos; a slice takes its part of others first.
    """
    extents = list(local)
    if isinstance(i.operation, Slice):
        for d, one in enumerate(i.operation.slice):
            if d not in halos and one.stride == 1:
                extents[d] = min(extents[d], one.limit - one.start)
    return elements(tuple(extents), fetch.dimension)


def from_own_tiles(
    fetch: Fetch, have: Tiling, want: Tiling, cut: Tiling, fixed: Sequence[Column]
) -> Halo | None:
    """Return the halo of an operand in other tiles than the result's, if only its own dimension differs."""
    d = fetch.dimension
    others = all(have.same_cut(e, want, e) for e in range(len(have.tiles)) if e != d)
    if have.summands is not None or not others or have.same_cut(d, want, d) or not have.cuts(d):
        return None
    return by_device(fetch.window.halo, have, d, cut.column(0), fixed)
