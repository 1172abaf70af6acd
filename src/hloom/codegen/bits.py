"""Elements as bit patterns, and patterns as elements of another type of as many bits."""

from __future__ import annotations

from hloom.codegen.llvm import F16, F32, F64, I16, I32, I64, Value
from hloom.codegen.types import Element, from_storage, storage_type, to_storage, wrap
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


def reinterpreted(value: Element, before: ElementType, after: ElementType) -> Element:
    """Reinterpret an element as another type of the same width."""
    if isinstance(value, tuple) or before is after:
        return value
    return from_bits(bits_of(value, before), after)
