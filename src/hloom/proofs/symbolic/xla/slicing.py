"""Rules for slice, dynamic-slice and dynamic-update-slice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import Add
from hloom.proofs.symbolic.rules import RuleBook, Sketch
from hloom.shape.element_type import F32, S32

RULES: Final = RuleBook("slicing")
Programs = Iterator[HloInstruction]


# -- slice


@RULES.state(axes="N")
def slice_of_everything(w: Sketch) -> Programs:
    """Slice(A) ⇒ A, of every element."""
    n = w.sizes("n", "N")
    a = w.array("A", *n)
    yield w.slice(a, [0] * len(n), n)
    yield a


@RULES.state(axes="N")
def slice_of_constant(w: Sketch) -> Programs:
    """Slice(Const) ⇒ Const."""
    n, start, limit, stride = w.sizes("n start limit stride", "N")
    part = w.slice(w.constant(3, *n), start, limit, stride)
    yield part
    yield w.constant(3, *part.shape.dimensions)


@RULES.state(axes="NM")
def slice_of_broadcast(w: Sketch) -> Programs:
    """Slice(Broadcast(A)) ⇒ Broadcast(Slice(A))."""
    n, start, limit, stride = w.sizes("n start limit stride", "N")
    m, low, high, step = w.sizes("m low high step", "M")
    a, into = w.array("A", *n), range(len(n))
    part = w.slice(w.op_broadcast(a, (*n, *m), into), (*start, *low), (*limit, *high), (*stride, *step))
    yield part
    yield w.op_broadcast(w.slice(a, start, limit, stride), part.shape.dimensions, into)


@RULES.state(axes="NM")
def slice_of_repetition(w: Sketch) -> Programs:
    """Slice(Broadcast(A)) ⇒ Broadcast(A), along the new dimensions."""
    n = w.sizes("n", "N")
    m, low, high, step = w.sizes("m low high step", "M")
    a, into, none = w.array("A", *n), range(len(n)), [0] * len(n)
    spread = w.op_broadcast(a, (*n, *m), into)
    part = w.slice(spread, (*none, *low), (*n, *high), (*(1 for _ in n), *step))
    yield part
    yield w.op_broadcast(a, part.shape.dimensions, into)


@RULES.state(axes="N", most=2)
def slice_back_of_pad(w: Sketch) -> Programs:
    """Slice(Pad(A, v)) ⇒ A, of the elements of A."""
    n, low, high, holes = w.sizes("n low high holes", "N")
    w.require(size >= 1 for size in n)
    a, v = w.array("A", *n), w.array("v")
    limits = [x + (size - 1) * (h + 1) + 1 for x, size, h in zip(low, n, holes, strict=True)]
    yield w.slice(w.pad(a, v, low, high, holes), low, limits, [h + 1 for h in holes])
    yield a


@RULES.state(axes="NM", most=1)
def slice_of_padding(w: Sketch) -> Programs:
    """Slice(Pad(A, v)) ⇒ Broadcast(v), within the padding of a dimension."""
    n, holes, start, limit, stride = w.sizes("n holes start limit stride", "N")
    low, high = w.integers("low high", "N")
    m, first, last = w.sizes("m first last", "M")
    size, before, behind, gaps, begin, end, step = w.sizes("size left right gaps begin end step")
    w.require(size >= 1, end <= before or begin >= before + (size - 1) * (gaps + 1) + 1)
    a, v = w.array("A", *n, size, *m), w.array("v")
    none = [0] * len(m)
    padded = w.pad(a, v, (*low, before, *none), (*high, behind, *none), (*holes, gaps, *none))
    part = w.slice(padded, (*start, begin, *first), (*limit, end, *last), (*stride, step, *(1 for _ in m)))
    yield part
    yield w.broadcast(v, part.shape.dimensions)


@RULES.state(axes="N", most=2)
def slice_within_pad(w: Sketch) -> Programs:
    """Slice(Pad(A, v)) ⇒ Slice(A), within A."""
    n, low, high, start, limit, stride = w.sizes("n low high start limit stride", "N")
    for size, before, first, last in zip(n, low, start, limit, strict=True):
        w.require(before <= first, last <= before + size)
    a, v = w.array("A", *n), w.array("v")
    yield w.slice(w.pad(a, v, low, high), start, limit, stride)
    yield w.slice(a, _less(start, low), _less(limit, low), stride)


def _less(values: Sequence[int], amounts: Sequence[int]) -> list[int]:
    return [value - amount for value, amount in zip(values, amounts, strict=True)]


@RULES.state(axes="N", most=1)
def slice_twice(w: Sketch) -> Programs:
    """Slice(Slice(A)) ⇒ Slice(A), the outer one without strides."""
    n, start, limit, stride, first, last = w.sizes("n start limit stride first last", "N")
    w.require(b > f for f, b in zip(first, last, strict=True))
    a = w.array("A", *n)
    yield w.slice(w.slice(a, start, limit, stride), first, last)
    starts = [s + f * p for s, f, p in zip(start, first, stride, strict=True)]
    limits = [s + (b - 1) * p + 1 for s, b, p in zip(start, last, stride, strict=True)]
    yield w.slice(a, starts, limits, stride)


def _joined(w: Sketch, count: int) -> tuple[list[HloInstruction], int, list[int], list[int], list[list[int]]]:
    """Return arrays, their joined dimension, their sizes along it, and ranges of the other dimensions."""
    n, start, limit, stride = w.sizes("n start limit stride", "N")
    m, low, high, step = w.sizes("m low high step", "M")
    names = "abc"[:count]
    sizes = w.sizes(" ".join(names))
    arrays = [w.array(name.upper(), *n, s, *m) for name, s in zip(names, sizes, strict=True)]
    return arrays, len(n), sizes, [*start, *low], [[*start], [*limit], [*stride], [*low], [*high], [*step]]


def _range(
    parts: list[list[int]], first: int, last: int, step: int
) -> tuple[list[int], list[int], list[int]]:
    start, limit, stride, low, high, steps = parts
    return [*start, first, *low], [*limit, last, *high], [*stride, step, *steps]


@RULES.state(axes="NM", most=2)
def slice_of_last_operand(w: Sketch) -> Programs:
    """Slice(Concat(A, B)) ⇒ B, of the elements of B."""
    arrays, at, (a, b), _, parts = _joined(w, 2)
    yield w.slice(w.concatenate(*arrays, dimension=at), *_range(parts, a, a + b, 1))
    yield w.slice(arrays[1], *_range(parts, 0, b, 1))


@RULES.state(axes="NM", most=2)
def slice_of_first_operand(w: Sketch) -> Programs:
    """Slice(Concat(A, B)) ⇒ Slice(A), where it ends within A."""
    arrays, at, (a, _), _, parts = _joined(w, 2)
    first, last, step = w.sizes("first last step")
    w.require(last <= a)
    yield w.slice(w.concatenate(*arrays, dimension=at), *_range(parts, first, last, step))
    yield w.slice(arrays[0], *_range(parts, first, last, step))


@RULES.state(axes="NM", most=2)
def slice_of_second_operand(w: Sketch) -> Programs:
    """Slice(Concat(A, B)) ⇒ Slice(B), where it begins within B."""
    arrays, at, (a, _), _, parts = _joined(w, 2)
    first, last, step = w.sizes("first last step")
    w.require(first >= a)
    yield w.slice(w.concatenate(*arrays, dimension=at), *_range(parts, first, last, step))
    yield w.slice(arrays[1], *_range(parts, first - a, last - a, step))


@RULES.state(axes="NM", most=1)
def slice_of_later_operands(w: Sketch) -> Programs:
    """Slice(Concat(A, B, C)) ⇒ Slice(Concat(B, C)), where it begins after A."""
    arrays, at, (a, _, _), _, parts = _joined(w, 3)
    first, last, step = w.sizes("first last step")
    w.require(first >= a)
    yield w.slice(w.concatenate(*arrays, dimension=at), *_range(parts, first, last, step))
    yield w.slice(w.concatenate(*arrays[1:], dimension=at), *_range(parts, first - a, last - a, step))


@RULES.state(axes="NM", most=2)
def slice_of_reverse(w: Sketch) -> Programs:
    """Slice(Reverse(A)) ⇒ Reverse(Slice(A)), of the mirrored range."""
    n, start, limit, stride = w.sizes("n start limit stride", "N")
    m, low, high, step = w.sizes("m low high step", "M")
    a, mirrored = w.array("A", *n, *m), range(len(n))
    part = w.slice(w.reverse(a, mirrored), (*start, *low), (*limit, *high), (*stride, *step))
    w.require(size >= 1 for size in part.shape.dimensions)
    yield part
    counts = part.shape.dimensions[: len(n)]
    starts = [size - 1 - s - (c - 1) * p for size, s, c, p in zip(n, start, counts, stride, strict=True)]
    limits = [size - s for size, s in zip(n, start, strict=True)]
    yield w.reverse(w.slice(a, (*starts, *low), (*limits, *high), (*stride, *step)), mirrored)


# -- dynamic-slice


@RULES.state(axes="N")
def dynamic_slice_at_constant(w: Sketch) -> Programs:
    """DynamicSlice(A, c) ⇒ Slice(A), where c is in bounds; here c is 1 in every dimension."""
    n, size = w.sizes("n size", "N")
    w.require(s + 1 <= d for s, d in zip(size, n, strict=True))
    a = w.array("A", *n)
    yield w.dynamic_slice(a, [w.constant(1, kind=S32) for _ in n], size)
    yield w.slice(a, [1] * len(n), [s + 1 for s in size])


@RULES.state(axes="N")
def dynamic_slice_of_everything(w: Sketch) -> Programs:
    """DynamicSlice(A, i) ⇒ A, of the same size."""
    n = w.sizes("n", "N")
    a, at = w.array("A", *n), w.indices("i", len(n))
    yield w.dynamic_slice(a, at, n)
    yield a


@RULES.state(axes="NM")
def dynamic_slice_of_broadcast(w: Sketch) -> Programs:
    """DynamicSlice(Broadcast(A), i) ⇒ Broadcast(DynamicSlice(A, i))."""
    n, size = w.sizes("n size", "N")
    m, part = w.sizes("m part", "M")
    a, into = w.array("A", *n), range(len(n))
    at, other = w.indices("i", len(n)), w.indices("j", len(m))
    yield w.dynamic_slice(w.op_broadcast(a, (*n, *m), into), [*at, *other], (*size, *part))
    yield w.op_broadcast(w.dynamic_slice(a, at, size), (*size, *part), into)


@RULES.state(axes="NM")
def dynamic_slice_of_transpose(w: Sketch) -> Programs:
    """DynamicSlice(Transpose(A), i) ⇒ Transpose(DynamicSlice(A, i))."""
    n, size = w.sizes("n size", "N")
    m, part = w.sizes("m part", "M")
    a, order = w.array("A", *n, *m), (*range(len(n), len(n) + len(m)), *range(len(n)))
    at, other = w.indices("i", len(n)), w.indices("j", len(m))
    yield w.dynamic_slice(w.transpose(a, order), [*other, *at], (*part, *size))
    yield w.transpose(w.dynamic_slice(a, [*at, *other], (*size, *part)), order)


@RULES.state(axes="N", most=2)
def dynamic_slice_twice(w: Sketch) -> Programs:
    """DynamicSlice(DynamicSlice(A, i), j) ⇒ DynamicSlice(A, i + j), where both are in bounds."""
    n, outer, inner = w.sizes("n outer inner", "N")
    a = w.array("A", *n)
    first, second = w.indices("i", len(n)), w.indices("j", len(n))
    w.require(k <= o <= size for k, o, size in zip(inner, outer, n, strict=True))
    w.require(size < 1 << 31 for size in n)
    starts = [_clamped(w, i, size - o) for i, size, o in zip(first, n, outer, strict=True)]
    offsets = [_clamped(w, j, o - k) for j, o, k in zip(second, outer, inner, strict=True)]
    yield w.dynamic_slice(w.dynamic_slice(a, starts, outer), offsets, inner)
    sums = [w.op(Add(), s, o) for s, o in zip(starts, offsets, strict=True)]
    yield w.dynamic_slice(a, sums, inner)


def _clamped(w: Sketch, index: HloInstruction, most: int) -> HloInstruction:
    """Return an index limited to [0, most], which are numbers of 31 bits."""
    w.require(most < 1 << 31)
    zero = w.constant(0, kind=S32)
    return w.clamp(zero, index, w.length(most))


# -- dynamic-update-slice


@RULES.state(F32, S32, axes="N", most=2)
def add_of_update(w: Sketch) -> Programs:
    """Add(A, DynamicUpdateSlice(0, B, i)) ⇒ DynamicUpdateSlice(A, Add(B, DynamicSlice(A, i)), i)."""
    n, size = w.sizes("n size", "N")
    a, b, at = w.array("A", *n), w.array("B", *size), w.indices("i", len(n))
    yield w.op(Add(), a, w.update(w.constant(0, *n), b, at))
    yield w.update(a, w.op(Add(), b, w.dynamic_slice(a, at, size)), at)


@RULES.state(axes="N", most=2)
def update_of_constant(w: Sketch) -> Programs:
    """DynamicUpdateSlice(Broadcast(v), A, c) ⇒ Pad(A, v), here c is 1 in every dimension."""
    n, size = w.sizes("n size", "N")
    w.require(s + 1 <= d for s, d in zip(size, n, strict=True))
    a, v = w.array("A", *size), w.array("v")
    yield w.update(w.broadcast(v, n), a, [w.constant(1, kind=S32) for _ in n])
    yield w.pad(a, v, [1] * len(n), [d - s - 1 for s, d in zip(size, n, strict=True)])


@RULES.state(axes="N")
def update_of_everything(w: Sketch) -> Programs:
    """DynamicUpdateSlice(A, B, i) ⇒ B, of the same size."""
    n = w.sizes("n", "N")
    a, b, at = w.array("A", *n), w.array("B", *n), w.indices("i", len(n))
    yield w.update(a, b, at)
    yield b


@RULES.state(axes="N", most=2)
def update_of_update(w: Sketch) -> Programs:
    """Update(A, Update(DynamicSlice(A, i), B, j), i) ⇒ Update(A, B, i + j), where both are in bounds."""
    n, outer, inner = w.sizes("n outer inner", "N")
    a, b = w.array("A", *n), w.array("B", *inner)
    first, second = w.indices("i", len(n)), w.indices("j", len(n))
    w.require(k <= o <= size < 1 << 31 for k, o, size in zip(inner, outer, n, strict=True))
    starts = [_clamped(w, i, size - o) for i, size, o in zip(first, n, outer, strict=True)]
    offsets = [_clamped(w, j, o - k) for j, o, k in zip(second, outer, inner, strict=True)]
    part = w.update(w.dynamic_slice(a, starts, outer), b, offsets)
    yield w.update(a, part, starts)
    sums = [w.op(Add(), s, o) for s, o in zip(starts, offsets, strict=True)]
    yield w.update(a, b, sums)
