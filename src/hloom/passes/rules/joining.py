"""Rules for pad and concatenate."""

from __future__ import annotations

import math
from typing import Final

from hloom.analysis.instructions import operation_of, splat
from hloom.analysis.values import uniform
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.ir.window import PaddingDimension, SliceDimension
from hloom.operations.arithmetic import (
    Add,
    And,
    Divide,
    Maximum,
    Minimum,
    Multiply,
    ShiftLeft,
    ShiftRightArithmetic,
    ShiftRightLogical,
    Subtract,
)
from hloom.operations.conversion import BitcastConvert, Convert
from hloom.operations.movement import (
    Broadcast,
    Concatenate,
    Pad,
    Slice,
    Transpose,
    range_slice,
    slices_of_one,
)
from hloom.operations.reduction import Reduce
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import GetTupleElement, Parameter
from hloom.operations.unary import Abs, Negate
from hloom.passes.rewriting import RuleFamily
from hloom.passes.rules.slicing import is_short
from hloom.passes.writing import Writer
from hloom.shape.element_type import S4, S8, U4, U8, ElementType

RULES: Final = RuleFamily("joining")


# -- pad


@RULES.rewrites(Pad)
def pad_of_nothing(i: HloInstruction, pad: Pad) -> HloInstruction | None:
    """``pad(x, v)`` → ``x`` where no padding is added, ``broadcast(v)`` where x has no elements."""
    x, v = i.operands
    if not uniform(i):
        return None
    if not x.shape.element_count:
        return Writer(i).broadcast(v, i.shape.dimensions)
    sizes = zip(pad.padding, x.shape.dimensions, strict=True)
    same = all(not d.low and not d.high and (not d.interior or size == 1) for d, size in sizes)
    return x if same else None


@RULES.rewrites(Pad)
def pad_that_cuts(i: HloInstruction, pad: Pad) -> HloInstruction | None:
    """``pad(x, v)`` with negative padding → ``slice(x)``, or ``pad(slice(x), v)`` if some is positive."""
    x, v = i.operands
    if not any(d.low < 0 or d.high < 0 for d in pad.padding) or any(d.interior for d in pad.padding):
        return None
    if not uniform(i) or 0 in i.shape.dimensions:
        return None
    ranges: list[SliceDimension] = []
    paddings: list[PaddingDimension] = []
    for d, size in zip(pad.padding, x.shape.dimensions, strict=True):
        start, limit = max(0, -d.low), size - max(0, -d.high)
        if start >= limit:
            return None
        ranges.append(SliceDimension(start, limit))
        paddings.append(PaddingDimension(max(0, d.low), max(0, d.high)))
    w = Writer(i)
    cut = w.op(Slice(slice=tuple(ranges)), x)
    return w.op(Pad(padding=tuple(paddings)), cut, v) if any(d.low or d.high for d in paddings) else cut


@RULES.rewrites(Pad, of=Pad)
def pad_twice(i: HloInstruction, pad: Pad, inner_pad: Pad) -> HloInstruction | None:
    """``pad(pad(x, v), v)`` → ``pad(x, v)`` for non-negative padding, without interior in the outer pad."""
    inner, v = i.operands
    if not uniform(i) or not uniform(inner):
        return None
    x, u = inner.operands
    if u is not v and not _same_number(u, v):
        return None
    both = list(zip(inner_pad.padding, pad.padding, strict=True))
    if any(min(a.low, a.high, b.low, b.high) < 0 or b.interior for a, b in both):
        return None
    paddings = tuple(PaddingDimension(a.low + b.low, a.high + b.high, a.interior) for a, b in both)
    return Writer(i).op(Pad(padding=paddings), x, v)


@RULES.rewrites(Pad, of=Broadcast)
def pad_of_same_number(i: HloInstruction, pad: Pad, broadcast: Broadcast) -> HloInstruction | None:
    """``pad(broadcast(v), v)`` → ``broadcast(v)``."""
    x, v = i.operands
    if x.operands[0].shape.rank or not uniform(i):
        return None
    if x.operands[0] is not v and not _same_number(x.operands[0], v):
        return None
    return Writer(i).broadcast(v, i.shape.dimensions)


def _same_number(a: HloInstruction, b: HloInstruction) -> bool:
    """Return whether two constants are bitwise equal."""
    x, y = splat(a), splat(b)
    return x is not None and y is not None and x.dtype == y.dtype and x.tobytes() == y.tobytes()


# -- concatenate


@RULES.rewrites(Concatenate)
def concatenate_of_few(i: HloInstruction, concatenate: Concatenate) -> HloInstruction | None:
    """``concatenate(x)`` → ``x``; operands without elements → none."""
    if not uniform(i):
        return None
    real = [o for o in i.operands if o.shape.element_count]
    if len(real) == 1:
        return real[0]
    if len(real) == len(i.operands) or not real:
        return None
    return Writer(i).op(Concatenate(dimensions=concatenate.dimensions), *real)


@RULES.rewrites(Concatenate)
def concatenate_flattened(i: HloInstruction, concatenate: Concatenate) -> HloInstruction | None:
    """``concatenate(concatenate(x, y), z)`` → ``concatenate(x, y, z)`` where the inner has one use."""
    inner = [o.operation == i.operation and len(o.users) == 1 and uniform(o) for o in i.operands]
    if not any(inner) or not uniform(i):
        return None
    operands = [
        x for o, nested in zip(i.operands, inner, strict=True) for x in (o.operands if nested else [o])
    ]
    return Writer(i).op(Concatenate(dimensions=concatenate.dimensions), *operands)


@RULES.rewrites(Concatenate)
def concatenate_of_neighbours(i: HloInstruction, concatenate: Concatenate) -> HloInstruction | None:
    """``concatenate(x[0:3], x[3:5])`` → ``x[0:5]``."""
    (dimension,) = concatenate.dimensions
    operands = [i.operands[0]]
    for operand in i.operands[1:]:
        joined = _joined(operands[-1], operand, dimension)
        if joined is None:
            operands.append(operand)
            continue
        operands[-1] = Writer(i).op(Slice(slice=joined), operand.operands[0])
    if len(operands) == len(i.operands):
        return None
    if len(operands) == 1:
        return operands[0]
    return Writer(i).op(Concatenate(dimensions=(dimension,)), *operands)


def _joined(a: HloInstruction, b: HloInstruction, dimension: int) -> tuple[SliceDimension, ...] | None:
    """Return the ranges of one slice equal to two adjacent ones; None if they are not adjacent."""
    if not isinstance(a.operation, Slice) or not isinstance(b.operation, Slice):
        return None
    if a.operands[0] is not b.operands[0]:
        return None
    first, second = list(a.operation.slice), list(b.operation.slice)
    x, y = first[dimension], second[dimension]
    if x.stride != 1 or y.stride != 1 or x.limit != y.start:
        return None
    first[dimension] = second[dimension] = SliceDimension(x.start, y.limit)
    return tuple(first) if first == second else None


@RULES.rewrites(Concatenate)
def concatenate_of_one_number(i: HloInstruction, concatenate: Concatenate) -> HloInstruction | None:
    """``concatenate(broadcast(v), x)`` → ``pad(x, v)``; same for a broadcast after x."""
    if len(i.operands) != 2 or not uniform(i):
        return None
    (dimension,) = concatenate.dimensions
    for position, spread in enumerate(i.operands):
        other = i.operands[1 - position]
        if isinstance(spread.operation, Broadcast) and not spread.operands[0].shape.rank:
            size = spread.shape.dimensions[dimension]
            amount = PaddingDimension(size, 0) if position == 0 else PaddingDimension(0, size)
            none = PaddingDimension(0, 0)
            paddings = tuple(amount if d == dimension else none for d in range(i.shape.rank))
            return Writer(i).op(Pad(padding=paddings), other, spread.operands[0])
    return None


@RULES.rewrites(Concatenate)
def concatenate_of_nibbles(i: HloInstruction, concatenate: Concatenate) -> HloInstruction | None:
    """``concatenate(p & 15, p >> 4)`` → ``convert(bitcast-convert(p))`` to pairs of 4-bit integers.

    The halves of bytes are in a new last dimension; ``(p << 4) >> 4`` with signs too. Converts, and additions
    of one number, that both halves go through come behind it.
    """
    sizes = [o.shape.dimensions[concatenate.dimensions[0]] for o in i.operands]
    if concatenate.dimensions != (i.shape.rank - 1,) or sizes != [1, 1] or not uniform(i):
        return None
    low, high = map(_reshaped, i.operands)
    alike: list[HloInstruction] = []
    while (shared := _shared(low, high)) is not None:
        alike.append(low)
        low, high = map(_reshaped, shared)
    halves = _halves(low, high)
    if halves is None:
        return None
    p, narrow = halves
    w = Writer(i)
    pairs = p.shape.with_dimensions((*p.shape.dimensions, 2)).with_element_type(narrow)
    result = w.convert(w.op(BitcastConvert(), p, shape=pairs), low.shape.element_type)
    for step in reversed(alike):
        numbers = [w.broadcast(_scalar(w, o), pairs.dimensions) for o in step.operands[1:]]
        shape = step.shape.with_dimensions(pairs.dimensions)
        result = w.op(step.operation, result, *numbers, shape=shape)
    return w.reshape(result, i.shape.dimensions)


def _reshaped(i: HloInstruction) -> HloInstruction:
    """Return the array that an instruction reshapes, or the instruction."""
    while isinstance(i.operation, Reshape):
        (i,) = i.operands
    return i


def _shared(a: HloInstruction, b: HloInstruction) -> tuple[HloInstruction, HloInstruction] | None:
    """Return the operands of two converts, or of two sums with the same number; None for others."""
    if a.operation != b.operation or a.shape.element_type is not b.shape.element_type:
        return None
    is_sum = isinstance(a.operation, Add | Subtract) and _same_number(a.operands[1], b.operands[1])
    if not is_sum and not isinstance(a.operation, Convert):
        return None
    return a.operands[0], b.operands[0]


def _halves(low: HloInstruction, high: HloInstruction) -> tuple[HloInstruction, ElementType] | None:
    """Return the bytes of which two arrays are the low and the high bits, and the type of these; or None."""
    byte = low.shape.element_type
    if not byte.is_integer or byte.bits != 8 or high.shape.element_type is not byte:
        return None
    if _is_by(low, And, 15):
        masked = _is_by(high, And, 15)
        shift, narrow = high.operands[0] if masked else high, U4
        is_high = _is_by(shift, ShiftRightLogical, 4) or (masked and _is_by(shift, ShiftRightArithmetic, 4))
    else:
        shift, narrow = high, S4
        is_high = all(_is_by(x, ShiftRightArithmetic, 4) for x in (low, high))
        low = low.operands[0] if is_high else low
        is_high = is_high and _is_by(low, ShiftLeft, 4)
    if not is_high or low.operands[0] is not shift.operands[0]:
        return None
    (p, _) = low.operands
    if isinstance(p.operation, Convert) and p.operands[0].shape.element_type in (S8, U8):
        (p,) = p.operands
    return p, narrow


def _is_by(i: HloInstruction, kind: type[Operation], number: int) -> bool:
    """Return whether an instruction is an operation of an array and a number."""
    value = splat(i.operands[1]) if isinstance(i.operation, kind) else None
    return value is not None and int(value) == number


def _scalar(w: Writer, number: HloInstruction) -> HloInstruction:
    value = splat(number)
    assert value is not None
    return w.scalar(value, number.shape.element_type)


_MOST_PARTS: Final = 8
"""Maximum number of operands of a concatenation whose elements are computed one by one."""


@RULES.rewrites(Add, Subtract, Multiply, operands=((Concatenate, Broadcast), (Concatenate, Broadcast)))
def elementwise_of_concatenates(
    i: HloInstruction,
    operation: Add | Subtract | Multiply,
    a: Concatenate | Broadcast,
    b: Concatenate | Broadcast,
) -> HloInstruction | None:
    """``f(concatenate(x, y), concatenate(u, v))`` → ``concatenate(f(x, u), f(y, v))``; same for scalars."""
    joined = [o for o in i.operands if isinstance(o.operation, Concatenate)]
    scalars = [o for o in i.operands if isinstance(o.operation, Broadcast) and not o.operands[0].shape.rank]
    if (
        not joined
        or len(joined) + len(scalars) < 2
        or not is_short(i)
        or not all(map(_has_few_parts, joined))
    ):
        return None
    if len(joined) == 1 and not any(map(_joins, (o for u in i.users for o in u.operands if o is not i))):
        return None
    parts = [[p.shape.dimensions for p in o.operands] for o in joined]
    if any(o.operation != joined[0].operation for o in joined) or parts[0] != parts[-1]:
        return None
    w = Writer(i)
    results: list[HloInstruction] = []
    for number, sizes in enumerate(parts[0]):
        operands = [
            o.operands[number] if o in joined else w.broadcast(o.operands[0], sizes) for o in i.operands
        ]
        results.append(w.op(operation, *operands))
    return w.op(joined[0].operation, *results)


def _has_few_parts(joined: HloInstruction) -> bool:
    moves = Slice, Transpose
    is_computed_with = all(u.operation.elementwise or isinstance(u.operation, moves) for u in joined.users)
    few = len(joined.operands) <= _MOST_PARTS and slices_of_one(joined) is None
    return few and is_computed_with and uniform(joined) and not joined.is_root


def _joins(x: HloInstruction) -> bool:
    """Return whether an array is a concatenation, or one with a scalar."""
    operands = x.operands if x.operation.elementwise else ()
    return any(isinstance(o.operation, Concatenate) for o in (x, *operands))


_LEAST_PART: Final = 64
"""Fewest elements of a part that a loop of its own computes."""


@RULES.rewrites(Add, Subtract, Multiply, Divide, Maximum, Minimum, Negate, Abs)
def elementwise_of_stack(i: HloInstruction, operation: Operation) -> HloInstruction | None:
    """``f(concatenate(x, y), z)`` → ``concatenate(f(x, z[0]), f(y, z[1]))`` along the first dimension.

    Loops of the parts compute and store f(x, z[0]) and f(y, z[1]) in their places; otherwise one loop would
    store the concatenation, and another one read it.
    """
    joined = [o for o in i.operands if isinstance(o.operation, Concatenate)]
    if not joined or not is_short(i) or not uniform(i) or not all(map(_is_stack, joined)):
        return None
    first = joined[0]
    sizes = [part.shape.dimensions for part in first.operands]
    alike = [
        o.operation == first.operation and [p.shape.dimensions for p in o.operands] == sizes for o in joined
    ]
    if not all(alike) or not all(o in joined or _is_read_in_parts(o) for o in i.operands):
        return None
    (d,) = operation_of(first, Concatenate).dimensions
    w, results, start = Writer(i), list[HloInstruction](), 0
    for number, part in enumerate(sizes):
        operands = [
            o.operands[number] if o in joined else _part(w, o, d, start, start + part[d]) for o in i.operands
        ]
        results.append(w.op(operation, *operands))
        start += part[d]
    return w.op(first.operation, *results)


def _is_stack(x: HloInstruction) -> bool:
    """Return whether an array joins few large parts, each contiguous in it, and is computed with alone."""
    (d,) = operation_of(x, Concatenate).dimensions
    is_contiguous = math.prod(x.shape.dimensions[:d]) == 1 and x.shape.is_static and uniform(x)
    if not is_contiguous or not 1 < len(x.operands) <= _MOST_PARTS or slices_of_one(x) is not None:
        return False
    is_large = all(part.shape.element_count >= _LEAST_PART for part in x.operands)
    return is_large and not x.is_root and all(_reads_parts(user, d) for user in x.users)


def _reads_parts(user: HloInstruction, d: int) -> bool:
    """Return whether an instruction can read the parts of a concatenation along dimension ``d``."""
    sums_up = isinstance(user.operation, Reduce) and user.operation.dimensions == (d,)
    return user.operation.elementwise or sums_up or isinstance(user.operation, Slice)


def _is_read_in_parts(z: HloInstruction) -> bool:
    """Return whether parts of an operand cost no more than the whole."""
    return z.operation.elementwise or isinstance(z.operation, Broadcast | Parameter | GetTupleElement)


def _part(w: Writer, z: HloInstruction, d: int, start: int, limit: int) -> HloInstruction:
    """Return a range of an operand, of which the parts are computed if nothing else reads it."""
    if isinstance(z.operation, Broadcast) and d not in z.operation.dimensions:
        sizes = z.shape.dimensions
        return w.broadcast(
            z.operands[0], (*sizes[:d], limit - start, *sizes[d + 1 :]), z.operation.dimensions
        )
    if z.operation.elementwise and z.operands and len(z.users) == 1 and not z.is_root and uniform(z):
        return w.op(z.operation, *(_part(w, o, d, start, limit) for o in z.operands))
    return w.op(range_slice(z, d, start, limit), z)
