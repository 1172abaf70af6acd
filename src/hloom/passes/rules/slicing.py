"""Rules for slice, dynamic-slice and dynamic-update-slice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from hloom.analysis.values import start_numbers
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import PaddingDimension, SliceDimension
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.movement import Broadcast, Concatenate, Pad, Reverse, Slice, Transpose
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Iota
from hloom.passes.rewriting import RuleFamily
from hloom.passes.rules.dimensions import one_to_one, reshape_groups
from hloom.passes.writing import Writer

RULES: Final = RuleFamily("slicing")


def whole(size: int) -> SliceDimension:
    """Return the range of a whole dimension."""
    return SliceDimension(0, size)


@RULES.rewrites(Slice)
def slice_of_everything(i: HloInstruction, slice_: Slice) -> HloInstruction | None:
    """``slice(x)`` → ``x`` of the same size; strides of dimensions with one element → 1."""
    (x,) = i.operands
    if i.shape.dimensions == x.shape.dimensions:
        return x
    ranges = [
        SliceDimension(d.start, d.start + 1) if size == 1 else d
        for d, size in zip(slice_.slice, i.shape.dimensions, strict=True)
    ]
    return Writer(i).op(Slice(slice=tuple(ranges)), x) if tuple(ranges) != slice_.slice else None


@RULES.rewrites(Slice, of=Slice)
def slice_twice(i: HloInstruction, slice_: Slice, inner_slice: Slice) -> HloInstruction | None:
    """``slice(slice(x))`` → ``slice(x)``."""
    (inner,) = i.operands
    if 0 in i.shape.dimensions:
        return None
    ranges: list[SliceDimension] = []
    for a, b, size in zip(inner_slice.slice, slice_.slice, i.shape.dimensions, strict=True):
        start, stride = a.start + b.start * a.stride, a.stride * b.stride
        ranges.append(SliceDimension(start, start + (size - 1) * stride + 1, stride))
    return Writer(i).op(Slice(slice=tuple(ranges)), inner.operands[0])


@RULES.rewrites(Slice, of=Broadcast)
def slice_of_broadcast(i: HloInstruction, slice_: Slice, broadcast: Broadcast) -> HloInstruction | None:
    """``slice(broadcast(x))`` → ``broadcast(slice(x))``."""
    (spread,) = i.operands
    (x,) = spread.operands
    into = broadcast.dimensions
    ranges = tuple(slice_.slice[d] for d in into)
    w = Writer(i)
    sizes = [i.shape.dimensions[d] for d in into]
    inner = x if tuple(sizes) == x.shape.dimensions else w.op(Slice(slice=ranges), x)
    return w.broadcast(inner, i.shape.dimensions, into)


@RULES.rewrites(Slice, of=Iota)
def slice_of_iota(i: HloInstruction, slice_: Slice, iota: Iota) -> HloInstruction | None:
    """``slice(iota())`` → ``iota()`` where the range along the iota dimension starts at 0 with stride 1."""
    dimension = iota.iota_dimension
    d = slice_.slice[dimension]
    if d.start or d.stride != 1:
        return None
    return Writer(i).op(Iota(iota_dimension=dimension), shape=i.shape)


@RULES.rewrites(Slice, of=Concatenate)
def slice_of_concatenate(i: HloInstruction, slice_: Slice, concatenate: Concatenate) -> HloInstruction | None:
    """``slice(concatenate(x, y))`` → ``slice(x)`` or ``slice(y)`` where it lies within one operand."""
    (joined,) = i.operands
    (dimension,) = concatenate.dimensions
    d = slice_.slice[dimension]
    begin = 0
    for operand in joined.operands:
        end = begin + operand.shape.dimensions[dimension]
        if begin <= d.start and d.limit <= end and operand.shape.element_type is i.shape.element_type:
            inside = SliceDimension(d.start - begin, d.limit - begin, d.stride)
            ranges = (*slice_.slice[:dimension], inside, *slice_.slice[dimension + 1 :])
            return Writer(i).op(Slice(slice=ranges), operand)
        begin = end
    return None


@RULES.rewrites(Slice, of=Pad)
def slice_of_pad(i: HloInstruction, slice_: Slice, pad: Pad) -> HloInstruction | None:
    """``slice(pad(x, v))`` → ``slice(x)`` within x, ``broadcast(v)`` within the padding."""
    (padded,) = i.operands
    if padded.operands[0].shape.element_type is not i.shape.element_type:
        return None
    x, v = padded.operands
    ranges: list[SliceDimension] = []
    for d, p, size in zip(slice_.slice, pad.padding, x.shape.dimensions, strict=True):
        if d.limit <= p.low or d.start >= p.low + (size - 1) * (p.interior + 1) + 1:
            return Writer(i).broadcast(v, i.shape.dimensions) if size else None
        ranges.append(SliceDimension(d.start - p.low, d.limit - p.low, d.stride))
    if any(r.start < 0 or r.limit > size for r, size in zip(ranges, x.shape.dimensions, strict=True)):
        return None
    if any(p.interior for p in pad.padding):
        return None
    return Writer(i).op(Slice(slice=tuple(ranges)), x)


_MOST_SLICES: Final = 8
"""Maximum number of slices into which an array is divided."""
_NEAR: Final = 16
"""Maximum number of operations between a slice and the concatenation that it reads."""
_MOST_INSTRUCTIONS: Final = 500
"""Size of a computation up to which joined arrays are computed part by part.

A tree of joined arrays has the more instructions the deeper it is.
"""


def is_divided(x: HloInstruction) -> bool:
    """Return whether an array is read by few slices alone that have no more elements than the array."""
    slices = {u.operation: u.shape.element_count for u in x.users if isinstance(u.operation, Slice)}
    apart = all(isinstance(u.operation, Slice) for u in x.users) and not x.is_root
    return apart and len(slices) <= _MOST_SLICES and sum(slices.values()) <= x.shape.element_count


def is_short(i: HloInstruction) -> bool:
    """Return whether the computation of an instruction has few instructions."""
    return i.parent is not None and len(i.parent) <= _MOST_INSTRUCTIONS


def _is_joined_nearby(x: HloInstruction) -> bool:
    """Return whether elementwise operations and movement of few operands lead from a concatenation to x."""
    visited, pending = {x}, [x]
    while pending and len(visited) <= _NEAR:
        i = pending.pop(0)
        if isinstance(i.operation, Concatenate):
            return True
        if i.operation.elementwise or isinstance(i.operation, Transpose | Reshape):
            pending += [o for o in i.operands if o.shape.rank and o not in visited]
            visited |= set(i.operands)
    return False


@RULES.rewrites(Slice)
def slice_of_elementwise(i: HloInstruction, slice_: Slice) -> HloInstruction | None:
    """``slice(f(x, y))`` → ``f(slice(x), slice(y))`` where slices alone read it, and x joins small arrays.

    A system of equations stacks its components, scales and adds the stack, and takes it apart again.
    """
    (x,) = i.operands
    if not x.operation.elementwise or not x.operands or not is_short(i):
        return None
    if not is_divided(x) or not _is_joined_nearby(x):
        return None
    w = Writer(i)
    operands = [w.op(slice_, o) if o.shape.rank else o for o in x.operands]
    return w.op(x.operation, *operands)


@RULES.rewrites(Slice, of=Transpose)
def slice_of_transpose(i: HloInstruction, slice_: Slice, transpose: Transpose) -> HloInstruction | None:
    """``slice(transpose(x))`` → ``transpose(slice(x))``, which moves less, if slices alone read it."""
    (moved,) = i.operands
    if not is_divided(moved):
        return None
    order = transpose.dimensions
    ranges = [whole(0)] * len(order)
    for position, d in enumerate(order):
        ranges[d] = slice_.slice[position]
    w = Writer(i)
    return w.op(Transpose(dimensions=order), w.op(Slice(slice=tuple(ranges)), moved.operands[0]))


@RULES.rewrites(Slice, of=Reverse)
def slice_of_reverse(i: HloInstruction, slice_: Slice, reverse: Reverse) -> HloInstruction | None:
    """``slice(reverse(x))`` → ``reverse(slice(x))`` of the mirrored range, for a single user."""
    (mirrored,) = i.operands
    if len(mirrored.users) > 1 or 0 in i.shape.dimensions:
        return None
    (x,) = mirrored.operands
    ranges = list(slice_.slice)
    for d in reverse.dimensions:
        r, size = ranges[d], x.shape.dimensions[d]
        last = r.start + (i.shape.dimensions[d] - 1) * r.stride
        ranges[d] = SliceDimension(size - 1 - last, size - r.start, r.stride)
    w = Writer(i)
    return w.op(Reverse(dimensions=reverse.dimensions), w.op(Slice(slice=tuple(ranges)), x))


@RULES.rewrites(Slice, of=Reshape)
def element_of_reshape(i: HloInstruction, slice_: Slice, reshape: Reshape) -> HloInstruction | None:
    """``slice(reshape(x))`` → ``reshape(slice(x))`` of one element."""
    (inner,) = i.operands
    if len(inner.users) > 1 or i.shape.element_count != 1:
        return None
    (x,) = inner.operands
    position = np.ravel_multi_index([r.start for r in slice_.slice], inner.shape.dimensions)
    indices = np.unravel_index(position, x.shape.dimensions)
    w = Writer(i)
    one = Slice(slice=tuple(SliceDimension(int(n), int(n) + 1) for n in indices))
    return w.reshape(w.op(one, x), i.shape.dimensions)


@RULES.rewrites(Slice, of=Reshape)
def slice_of_reshape(i: HloInstruction, slice_: Slice, reshape: Reshape) -> HloInstruction | None:
    """``slice(reshape(x))`` → ``reshape(slice(x))`` where the reshape only adds or removes sizes of 1."""
    (inner,) = i.operands
    if len(inner.users) > 1 or 0 in i.shape.dimensions:
        return None
    (x,) = inner.operands
    groups = reshape_groups(inner.shape.dimensions, x.shape.dimensions)
    positions = one_to_one(groups) if groups is not None else None
    if positions is None:
        return None
    ranges = [whole(size) for size in x.shape.dimensions]
    for d, target in positions.items():
        ranges[target] = slice_.slice[d]
    w = Writer(i)
    return w.reshape(w.op(Slice(slice=tuple(ranges)), x), i.shape.dimensions)


# -- slices at dynamic start indices


def _room(x: HloInstruction, sizes: Sequence[int]) -> list[int]:
    return [size - part for size, part in zip(x.shape.dimensions, sizes, strict=True)]


@RULES.rewrites(DynamicSlice, DynamicUpdateSlice)
def start_indices_one_by_one(
    i: HloInstruction, operation: DynamicSlice | DynamicUpdateSlice
) -> HloInstruction | None:
    """A vector of start indices → one scalar per dimension."""
    first = 1 if isinstance(operation, DynamicSlice) else 2
    indices = i.operands[first:]
    if len(indices) != 1 or not indices[0].shape.rank:
        return None
    w = Writer(i)
    scalars = [
        w.reshape(w.op(Slice(slice=(SliceDimension(n, n + 1),)), indices[0]), ())
        for n in range(indices[0].shape.dimensions[0])
    ]
    clone = i.clone(w.module.unique_name(i.opcode), operands=[*i.operands[:first], *scalars])
    return w.computation.add(clone)


@RULES.rewrites(DynamicSlice)
def dynamic_slice_at_constant(i: HloInstruction, dynamic_slice: DynamicSlice) -> HloInstruction | None:
    """``dynamic-slice(x, c)`` → ``slice(x)`` at the constant, clamped so that the slice is in bounds."""
    x, *indices = i.operands
    starts = start_numbers(indices, _room(x, i.shape.dimensions))
    if starts is None:
        return None
    ranges = [SliceDimension(s, s + size) for s, size in zip(starts, i.shape.dimensions, strict=True)]
    return Writer(i).op(Slice(slice=tuple(ranges)), x)


@RULES.rewrites(DynamicSlice, of=Broadcast)
def dynamic_slice_of_broadcast(
    i: HloInstruction, dynamic_slice: DynamicSlice, broadcast: Broadcast
) -> HloInstruction | None:
    """``dynamic-slice(broadcast(x), i, j)`` → ``broadcast(dynamic-slice(x, i))``."""
    spread, *indices = i.operands
    if len(indices) != i.shape.rank:
        return None
    (x,) = spread.operands
    into = broadcast.dimensions
    sizes = tuple(i.shape.dimensions[d] for d in into)
    w = Writer(i)
    if sizes != x.shape.dimensions:
        x = w.op(DynamicSlice(dynamic_slice_sizes=sizes), x, *(indices[d] for d in into))
    return w.broadcast(x, i.shape.dimensions, into)


@RULES.rewrites(Slice, of=DynamicUpdateSlice)
def slice_of_update(i: HloInstruction, slice_: Slice, update: DynamicUpdateSlice) -> HloInstruction | None:
    """``slice(dynamic-update-slice(x, u, 2))`` → ``slice(u)`` within u, for a constant position."""
    x, u, *indices = i.operands[0].operands
    starts = start_numbers(indices, _room(x, u.shape.dimensions))
    if starts is None or 0 in i.shape.dimensions:
        return None
    ranges = [
        SliceDimension(r.start - start, r.limit - start, r.stride)
        for r, start in zip(slice_.slice, starts, strict=True)
    ]
    if any(r.start < 0 or r.limit > size for r, size in zip(ranges, u.shape.dimensions, strict=True)):
        return None
    return Writer(i).op(Slice(slice=tuple(ranges)), u)


@RULES.rewrites(DynamicUpdateSlice)
def update_of_everything(
    i: HloInstruction, dynamic_update_slice: DynamicUpdateSlice
) -> HloInstruction | None:
    """``dynamic-update-slice(x, u)`` → ``u`` of the same size; ``x`` where u has no elements."""
    x, u = i.operands[:2]
    if u.shape.element_count == 0:
        return x
    return u if u.shape.dimensions == x.shape.dimensions else None


@RULES.rewrites(DynamicUpdateSlice)
def update_with_what_is_there(
    i: HloInstruction, dynamic_update_slice: DynamicUpdateSlice
) -> HloInstruction | None:
    """``dynamic-update-slice(x, dynamic-slice(x, i), i)`` → ``x``."""
    x, u, *indices = i.operands
    same = isinstance(u.operation, DynamicSlice) and u.operands[0] is x and u.operands[1:] == indices
    return x if same else None


@RULES.rewrites(DynamicUpdateSlice, of=Broadcast)
def update_at_constant_of_one_number(
    i: HloInstruction, dynamic_update_slice: DynamicUpdateSlice, broadcast: Broadcast
) -> HloInstruction | None:
    """``dynamic-update-slice(broadcast(v), u, c)`` → ``pad(u, v)``."""
    x, u, *indices = i.operands
    if x.operands[0].shape.rank:
        return None
    room = _room(x, u.shape.dimensions)
    starts = start_numbers(indices, room)
    if starts is None or u.shape.element_type is not x.shape.element_type:
        return None
    paddings = [PaddingDimension(s, r - s) for s, r in zip(starts, room, strict=True)]
    return Writer(i).op(Pad(padding=tuple(paddings)), u, x.operands[0])
