"""Rules for slice, dynamic-slice and dynamic-update-slice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloom.analysis.instructions import attributes
from hloom.analysis.values import number
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import PaddingDimension, SliceDimension
from hloom.passes.rewriting import Family
from hloom.passes.rules.dimensions import one_to_one, reshape_groups
from hloom.passes.rules.reshaping import dimensions_of
from hloom.passes.writing import Writer

RULES: Final = Family("slicing")


def ranges_of(i: HloInstruction) -> tuple[SliceDimension, ...]:
    """The ranges of a slice."""
    operation = attributes(i)
    return operation.slice


def whole(size: int) -> SliceDimension:
    """The range of a dimension that is not cut."""
    return SliceDimension(0, size)


@RULES.rewrites("slice")
def slice_of_everything(i: HloInstruction) -> HloInstruction | None:
    """``slice(x)`` → ``x`` of the same size; strides of dimensions with one element are 1."""
    (x,) = i.operands
    if i.shape.dimensions == x.shape.dimensions:
        return x
    ranges = [
        SliceDimension(d.start, d.start + 1) if size == 1 else d
        for d, size in zip(ranges_of(i), i.shape.dimensions, strict=True)
    ]
    return Writer(i).op("slice", x, slice=tuple(ranges)) if tuple(ranges) != ranges_of(i) else None


@RULES.rewrites("slice")
def slice_twice(i: HloInstruction) -> HloInstruction | None:
    """``slice(slice(x))`` → ``slice(x)``."""
    (inner,) = i.operands
    if inner.opcode != "slice" or 0 in i.shape.dimensions:
        return None
    ranges: list[SliceDimension] = []
    for a, b, size in zip(ranges_of(inner), ranges_of(i), i.shape.dimensions, strict=True):
        start, stride = a.start + b.start * a.stride, a.stride * b.stride
        ranges.append(SliceDimension(start, start + (size - 1) * stride + 1, stride))
    return Writer(i).op("slice", inner.operands[0], slice=tuple(ranges))


@RULES.rewrites("slice")
def slice_of_broadcast(i: HloInstruction) -> HloInstruction | None:
    """``slice(broadcast(x))`` → ``broadcast(slice(x))``."""
    (spread,) = i.operands
    if spread.opcode != "broadcast":
        return None
    (x,) = spread.operands
    into = dimensions_of(spread)
    ranges = tuple(ranges_of(i)[d] for d in into)
    w = Writer(i)
    sizes = [i.shape.dimensions[d] for d in into]
    inner = x if tuple(sizes) == x.shape.dimensions else w.op("slice", x, slice=ranges)
    return w.broadcast(inner, i.shape.dimensions, into)


@RULES.rewrites("slice")
def slice_of_iota(i: HloInstruction) -> HloInstruction | None:
    """``slice(iota())`` → ``iota()`` where the numbers are cut from 0 on only."""
    (iota,) = i.operands
    if iota.opcode != "iota":
        return None
    dimension: int = attributes(iota).iota_dimension
    d = ranges_of(i)[dimension]
    if d.start or d.stride != 1:
        return None
    return Writer(i).op("iota", shape=i.shape, iota_dimension=dimension)


@RULES.rewrites("slice")
def slice_of_concatenate(i: HloInstruction) -> HloInstruction | None:
    """``slice(concatenate(x, y))`` → ``slice(x)`` or ``slice(y)`` where all of it comes from one."""
    (joined,) = i.operands
    if joined.opcode != "concatenate":
        return None
    (dimension,) = dimensions_of(joined)
    d = ranges_of(i)[dimension]
    begin = 0
    for operand in joined.operands:
        end = begin + operand.shape.dimensions[dimension]
        if begin <= d.start and d.limit <= end and operand.shape.element_type is i.shape.element_type:
            inside = SliceDimension(d.start - begin, d.limit - begin, d.stride)
            ranges = (*ranges_of(i)[:dimension], inside, *ranges_of(i)[dimension + 1 :])
            return Writer(i).op("slice", operand, slice=ranges)
        begin = end
    return None


@RULES.rewrites("slice")
def slice_of_pad(i: HloInstruction) -> HloInstruction | None:
    """``slice(pad(x, v))`` → ``slice(x)`` where it lies within x; ``broadcast(v)`` where it lies outside."""
    (padded,) = i.operands
    if padded.opcode != "pad" or padded.operands[0].shape.element_type is not i.shape.element_type:
        return None
    x, v = padded.operands
    ranges: list[SliceDimension] = []
    for d, p, size in zip(ranges_of(i), paddings_of(padded), x.shape.dimensions, strict=True):
        if d.limit <= p.low or d.start >= p.low + (size - 1) * (p.interior + 1) + 1:
            return Writer(i).broadcast(v, i.shape.dimensions) if size else None
        ranges.append(SliceDimension(d.start - p.low, d.limit - p.low, d.stride))
    if any(r.start < 0 or r.limit > size for r, size in zip(ranges, x.shape.dimensions, strict=True)):
        return None
    if any(p.interior for p in paddings_of(padded)):
        return None
    return Writer(i).op("slice", x, slice=tuple(ranges))


def paddings_of(i: HloInstruction) -> tuple[PaddingDimension, ...]:
    """The paddings of a pad."""
    operation = attributes(i)
    return operation.padding


@RULES.rewrites("slice")
def slice_of_transpose(i: HloInstruction) -> HloInstruction | None:
    """``slice(transpose(x))`` → ``transpose(slice(x))``, which moves less, where nothing else uses it."""
    (moved,) = i.operands
    if moved.opcode != "transpose" or len(moved.users) > 1:
        return None
    order = dimensions_of(moved)
    ranges = [whole(0)] * len(order)
    for place, d in enumerate(order):
        ranges[d] = ranges_of(i)[place]
    w = Writer(i)
    return w.op("transpose", w.op("slice", moved.operands[0], slice=tuple(ranges)), dimensions=order)


@RULES.rewrites("slice")
def slice_of_reverse(i: HloInstruction) -> HloInstruction | None:
    """``slice(reverse(x))`` → ``reverse(slice(x))`` of the mirrored range, where nothing else uses it."""
    (mirrored,) = i.operands
    if mirrored.opcode != "reverse" or len(mirrored.users) > 1 or 0 in i.shape.dimensions:
        return None
    (x,) = mirrored.operands
    ranges = list(ranges_of(i))
    for d in dimensions_of(mirrored):
        r, size = ranges[d], x.shape.dimensions[d]
        last = r.start + (i.shape.dimensions[d] - 1) * r.stride
        ranges[d] = SliceDimension(size - 1 - last, size - r.start, r.stride)
    w = Writer(i)
    return w.op("reverse", w.op("slice", x, slice=tuple(ranges)), dimensions=dimensions_of(mirrored))


@RULES.rewrites("slice")
def slice_of_reshape(i: HloInstruction) -> HloInstruction | None:
    """``slice(reshape(x))`` → ``reshape(slice(x))`` where the reshape only adds or drops sizes of 1."""
    (inner,) = i.operands
    if inner.opcode != "reshape" or len(inner.users) > 1 or 0 in i.shape.dimensions:
        return None
    (x,) = inner.operands
    groups = reshape_groups(inner.shape.dimensions, x.shape.dimensions)
    place = one_to_one(groups) if groups is not None else None
    if place is None:
        return None
    ranges = [whole(size) for size in x.shape.dimensions]
    for d, target in place.items():
        ranges[target] = ranges_of(i)[d]
    w = Writer(i)
    return w.reshape(w.op("slice", x, slice=tuple(ranges)), i.shape.dimensions)


# -- slices at computed places


def start_numbers(indices: Sequence[HloInstruction], limits: Sequence[int]) -> list[int] | None:
    """Start indices that are constants, each held to between 0 and its limit; None if one is not known."""
    if len(indices) != len(limits):
        return None
    starts: list[int] = []
    for index, limit in zip(indices, limits, strict=True):
        value = 0 if not limit else number(index)
        if value is None:
            return None
        starts.append(min(max(int(value), 0), limit))
    return starts


def _room(x: HloInstruction, sizes: Sequence[int]) -> list[int]:
    return [size - part for size, part in zip(x.shape.dimensions, sizes, strict=True)]


@RULES.rewrites("dynamic-slice", "dynamic-update-slice")
def start_indices_one_by_one(i: HloInstruction) -> HloInstruction | None:
    """A vector of start indices → one scalar for each dimension."""
    first = 1 if i.opcode == "dynamic-slice" else 2
    indices = i.operands[first:]
    if len(indices) != 1 or not indices[0].shape.rank:
        return None
    w = Writer(i)
    scalars = [
        w.reshape(w.op("slice", indices[0], slice=(SliceDimension(n, n + 1),)), ())
        for n in range(indices[0].shape.dimensions[0])
    ]
    made = i.clone(w.module.unique_name(i.opcode), operands=[*i.operands[:first], *scalars])
    return w.computation.add(made)


@RULES.rewrites("dynamic-slice")
def dynamic_slice_at_constant(i: HloInstruction) -> HloInstruction | None:
    """``dynamic-slice(x, c)`` → ``slice(x)`` at the constant, held to the range in which the slice fits."""
    x, *indices = i.operands
    starts = start_numbers(indices, _room(x, i.shape.dimensions))
    if starts is None:
        return None
    ranges = [SliceDimension(s, s + size) for s, size in zip(starts, i.shape.dimensions, strict=True)]
    return Writer(i).op("slice", x, slice=tuple(ranges))


@RULES.rewrites("dynamic-slice")
def dynamic_slice_of_broadcast(i: HloInstruction) -> HloInstruction | None:
    """``dynamic-slice(broadcast(x), i, j)`` → ``broadcast(dynamic-slice(x, i))``."""
    spread, *indices = i.operands
    if spread.opcode != "broadcast" or len(indices) != i.shape.rank:
        return None
    (x,) = spread.operands
    into = dimensions_of(spread)
    sizes = tuple(i.shape.dimensions[d] for d in into)
    w = Writer(i)
    if sizes != x.shape.dimensions:
        x = w.op("dynamic-slice", x, *(indices[d] for d in into), dynamic_slice_sizes=sizes)
    return w.broadcast(x, i.shape.dimensions, into)


@RULES.rewrites("dynamic-update-slice")
def update_of_everything(i: HloInstruction) -> HloInstruction | None:
    """``dynamic-update-slice(x, u)`` → ``u`` of the same size; ``x`` where u has no elements."""
    x, u = i.operands[:2]
    if u.shape.element_count == 0:
        return x
    return u if u.shape.dimensions == x.shape.dimensions else None


@RULES.rewrites("dynamic-update-slice")
def update_with_what_is_there(i: HloInstruction) -> HloInstruction | None:
    """``dynamic-update-slice(x, dynamic-slice(x, i), i)`` → ``x``."""
    x, u, *indices = i.operands
    same = u.opcode == "dynamic-slice" and u.operands[0] is x and u.operands[1:] == indices
    return x if same else None


@RULES.rewrites("dynamic-update-slice")
def update_at_constant_of_one_number(i: HloInstruction) -> HloInstruction | None:
    """``dynamic-update-slice(broadcast(v), u, c)`` → ``pad(u, v)``."""
    x, u, *indices = i.operands
    if x.opcode != "broadcast" or x.operands[0].shape.rank:
        return None
    room = _room(x, u.shape.dimensions)
    starts = start_numbers(indices, room)
    if starts is None or u.shape.element_type is not x.shape.element_type:
        return None
    paddings = [PaddingDimension(s, r - s) for s, r in zip(starts, room, strict=True)]
    return Writer(i).op("pad", u, x.operands[0], padding=tuple(paddings))
