"""bitcast-convert: bits of elements read as elements of another type."""

from __future__ import annotations

from hloom.codegen.bits import bits_of, from_bits, reinterpreted
from hloom.codegen.elements import Elements, Indices, Steps, element_rule
from hloom.codegen.llvm import I32, I64, Type, Value, make_type
from hloom.ir.affine import Index
from hloom.ir.instruction import HloInstruction
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType


def _width(element_type: ElementType) -> Type:
    return make_type(f"i{max(8, element_type.component.bits)}")


@element_rule("bitcast-convert")
def _bitcast_convert(e: Elements, instruction: HloInstruction, indices: Indices) -> Steps:
    (operand,) = instruction.operands
    before, after = operand.shape.element_type, instruction.shape.element_type
    if before.bits == after.bits:
        return reinterpreted((yield operand, indices), before, after)
    if before.is_complex:
        return (yield from _complex_parts(e, operand, indices, after))
    if before.bits > after.bits:
        element = yield operand, indices[:-1]
        assert isinstance(element, Value)
        return from_bits(_piece(e, bits_of(element, before), indices[-1], before, after), after)
    ratio = after.bits // before.bits
    wide = _width(after)
    total: Value | None = None
    for number in range(ratio):
        part = yield operand, (*indices, Index(number))
        assert isinstance(part, Value)
        piece = bits_of(part, before).cast("zext", wide)
        piece = piece << (number * before.bits) if number else piece
        total = piece if total is None else total | piece
    assert total is not None
    return from_bits(total, after)


def _piece(e: Elements, bits: Value, number: Index, before: ElementType, after: ElementType) -> Value:
    """Return bits [number * width, (number + 1) * width) of a pattern."""
    if number.is_constant:
        moved = bits.logical_shift_right(number.constant * after.bits) if number.constant else bits
    else:
        e.pin(number)
        shift = e.index_value(number) * after.bits
        value, amount = e.together([bits, shift])
        assert isinstance(value, Value) and isinstance(amount, Value)
        scalar = value.type.scalar
        amount = amount if scalar is I64 else amount.cast("trunc", scalar)
        moved = value.logical_shift_right(amount)
    narrow = _width(after)
    if narrow is not moved.type.scalar:
        moved = moved.cast("trunc", narrow)
    return moved & ((1 << after.bits) - 1) if after.bits < 8 else moved


def _complex_parts(e: Elements, operand: HloInstruction, indices: Indices, after: ElementType) -> Steps:
    """Convert between one c128 and two c64: halves of its parts are their parts."""
    before = operand.shape.element_type
    if before is et.C128:
        components = yield operand, indices[:-1]
        assert isinstance(components, tuple)
        e.pin(indices[-1])
        second = e.index_value(indices[-1]).compare("ne", 0)
        half = e.choose(second, components[1], components[0])
        assert isinstance(half, Value)
        bits = bits_of(half, et.F64)
        low, high = bits.cast("trunc", I32), bits.logical_shift_right(32).cast("trunc", I32)
        return from_bits(low, et.F32), from_bits(high, et.F32)
    parts: list[Value] = []
    for number in range(2):
        element = yield operand, (*indices, Index(number))
        assert isinstance(element, tuple)
        low, high = (bits_of(part, et.F32).cast("zext", I64) for part in element)
        parts.append(from_bits(low | (high << 32), et.F64))
    return parts[0], parts[1]
