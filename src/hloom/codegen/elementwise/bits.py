"""Integers as patterns of bits: logic, shifts, counts, the high half of a product."""

from __future__ import annotations

from hloom.codegen.elementwise.registry import LoweringContext, lowering
from hloom.codegen.llvm import I1, I16, I32, I64, Value
from hloom.codegen.types import wrap
from hloom.shape.element_type import ElementType


@lowering("and", exact=True)
def _and(c: LoweringContext, a: Value, b: Value) -> Value:
    return a & b


@lowering("or", exact=True)
def _or(c: LoweringContext, a: Value, b: Value) -> Value:
    return a | b


@lowering("xor", exact=True)
def _xor(c: LoweringContext, a: Value, b: Value) -> Value:
    return a ^ b


@lowering("not")
def _not(c: LoweringContext, a: Value) -> Value:
    return ~a


def _pattern(value: Value, element_type: ElementType) -> Value:
    """Return the bits of an integer with those above its width cleared."""
    if element_type.bits >= 8 or not element_type.is_signed:
        return value
    return value & ((1 << element_type.bits) - 1)


@lowering("shift-left")
def _shift_left(c: LoweringContext, a: Value, count: Value) -> Value:
    """Shift left; LLVM leaves shifts by the width or more undefined, so their results are replaced by 0."""
    count = _pattern(count, c.kind)
    return count.compare("ult", c.kind.bits).select(a << count, 0)


@lowering("shift-right-logical")
def _shift_right_logical(c: LoweringContext, a: Value, count: Value) -> Value:
    a, count = _pattern(a, c.kind), _pattern(count, c.kind)
    return count.compare("ult", c.kind.bits).select(a.logical_shift_right(count), 0)


@lowering("shift-right-arithmetic")
def _shift_right_arithmetic(c: LoweringContext, a: Value, count: Value) -> Value:
    """Shift right with copies of the sign bit, for unsigned types too."""
    spare = max(0, 8 - c.kind.bits)
    if spare and not c.kind.is_signed:
        a = (a << spare) >> spare
    count = _pattern(count, c.kind)
    last = count.function.constant(count.type, c.kind.bits - 1)
    return a >> count.function.intrinsic("umin", count, last)


@lowering("popcnt")
def _population_count(c: LoweringContext, a: Value) -> Value:
    return a.function.intrinsic("ctpop", _pattern(a, c.kind))


@lowering("count-leading-zeros")
def _count_leading_zeros(c: LoweringContext, a: Value) -> Value:
    zeros = a.function.intrinsic("ctlz", _pattern(a, c.kind), a.function.constant(I1, 0))
    return zeros - (8 - c.kind.bits) if c.kind.bits < 8 else zeros


_TWICE = {1: I16, 2: I32, 4: I64}


@lowering("mulhi")
def _multiply_high(c: LoweringContext, a: Value, b: Value) -> Value:
    bits, signed = c.kind.bits, c.kind.is_signed
    if bits == 64:
        return _high_half(a, b, signed)
    extend = "sext" if signed else "zext"
    wide = a.cast(extend, _TWICE[a.type.size]) * b.cast(extend, _TWICE[a.type.size])
    return wrap(wide.logical_shift_right(bits).cast("trunc", a.type.scalar), c.kind)


def _high_half(x: Value, y: Value, signed: bool) -> Value:
    """Return the upper 64 bits of a product by halves, corrected by 2^64 for each negative factor."""
    low = 0xFFFFFFFF
    a, b, c, d = x.logical_shift_right(32), x & low, y.logical_shift_right(32), y & low
    middle = a * d + (b * d).logical_shift_right(32)
    high = a * c + middle.logical_shift_right(32) + (b * c + (middle & low)).logical_shift_right(32)
    return high - ((x >> 63) & y) - ((y >> 63) & x) if signed else high
