"""Elements as bit patterns, and patterns as elements of another type of as many bits."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.codegen.llvm import F16, F32, F64, I16, I32, I64, Value, make_type
from hloom.codegen.types import Element, from_storage, parts, storage_type, to_storage, wrap
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType

_INTEGER_OF = {F16: I16, F32: I32, F64: I64}


def bits_of(value: Value, element_type: ElementType) -> Value:
    """Return the bits of a register value (of one part, if complex) as an integer of at least a byte."""
    stored = value if element_type.is_complex else to_storage(value, element_type)
    if stored.type.is_float:
        stored = stored.bitcast(_INTEGER_OF[stored.type.scalar].vector(stored.type.lanes))
    if element_type.bits < 8:
        stored = stored & ((1 << element_type.bits) - 1)
    return stored


def from_bits(bits: Value, element_type: ElementType) -> Value:
    """Return the register value of a bit pattern, an integer of the width of the stored type."""
    stored = storage_type(element_type)
    if element_type.is_integer and element_type.bits < 8:
        return wrap(bits, element_type)
    value = bits.bitcast(stored.vector(bits.type.lanes)) if stored.is_float else bits
    return value if element_type.is_complex else from_storage(value, element_type)


def lowest(bits: Value, element_type: ElementType) -> Value:
    """Truncate a bit pattern to the width of an element type."""
    narrow = make_type(f"i{max(8, element_type.bits)}")
    if narrow is not bits.type.scalar:
        bits = bits.cast("trunc", narrow)
    return bits & ((1 << element_type.bits) - 1) if element_type.bits < 8 else bits


def joined(elements: Sequence[Element], before: ElementType, after: ElementType) -> Element:
    """Join the bits of some elements, the lowest first, to one of a wider or as wide a type."""
    if len(elements) == 1:
        return reinterpreted(elements[0], before, after)
    if before is et.C64:
        real, imaginary = [joined(e, et.F32, et.F64) for e in elements if isinstance(e, tuple)]
        assert isinstance(real, Value) and isinstance(imaginary, Value)
        return real, imaginary
    wide = make_type(f"i{after.bits}")
    first, *others = [bits_of(part, before).cast("zext", wide) for part in parts(*elements)]
    for number, piece in enumerate(others, 1):
        first = first | (piece << (number * before.bits))
    return from_bits(first, after)


def reinterpreted(value: Element, before: ElementType, after: ElementType) -> Element:
    """Reinterpret an element as another type of the same width."""
    if isinstance(value, tuple) or before is after:
        return value
    return from_bits(bits_of(value, before), after)
