"""How values of each element type live in memory and in registers.

In memory an element takes a whole byte or more, as numpy keeps it. In registers predicates are i1, integers
keep their width (at least a byte), floats narrower than f32 are f32 values that their type can represent, and
complex numbers are a pair (real, imaginary).
"""

from __future__ import annotations

from typing import Final, TypeAlias

from hloom.cpu.llvm_text import F16, F32, F64, I1, I8, I16, I32, I64, Function, Type, Value
from hloom.errors import HloError
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType

Element: TypeAlias = "Value | tuple[Value, Value]"
"""A value in registers: a pair for complex types."""

_INTEGERS: Final = {8: I8, 16: I16, 32: I32, 64: I64}


def is_pair(element_type: ElementType) -> bool:
    """Whether values are pairs."""
    return element_type.is_complex


def storage_type(element_type: ElementType) -> Type:
    """The LLVM type of an element in memory; of one part for complex types."""
    if element_type is et.F32 or element_type is et.C64:
        return F32
    if element_type is et.F64 or element_type is et.C128:
        return F64
    if element_type is et.F16:
        return F16
    if element_type is et.BF16:
        return I16
    if element_type.is_array:
        return _INTEGERS[max(8, element_type.bits)]
    raise HloError(f"{element_type.name} has no elements", rule="cpu.element-type")


def storage_bytes(element_type: ElementType) -> int:
    """Bytes of an element in memory."""
    return storage_type(element_type).size * (2 if element_type.is_complex else 1)


def register_type(element_type: ElementType) -> Type:
    """The LLVM type of a value in registers; of one part for complex types."""
    if element_type is et.PRED:
        return I1
    if element_type.is_floating:
        return F64 if element_type is et.F64 else F32
    if element_type.is_complex:
        return F32 if element_type is et.C64 else F64
    return _INTEGERS[max(8, element_type.bits)]


def from_storage(value: Value, element_type: ElementType) -> Value:
    """A stored element (or vector of them) as a register value."""
    f = value.function
    if element_type is et.PRED:
        return value.compare("ne", 0)
    if element_type is et.BF16:
        wide = value.cast("zext", I32) << 16
        return wide.bitcast(F32.vector(value.type.lanes))
    if element_type is et.F16:
        return value.cast("fpext", F32)
    if element_type.is_floating and element_type.bits < 16:
        from hloom.cpu.small_floats import decode

        return decode(f, value, element_type)
    return value


def to_storage(value: Value, element_type: ElementType) -> Value:
    """A register value as it is stored; floats are representable in their type already."""
    if element_type is et.PRED:
        return value.cast("zext", I8)
    if element_type is et.BF16:
        bits = value.bitcast(I32.vector(value.type.lanes)).logical_shift_right(16)
        return bits.cast("trunc", I16)
    if element_type is et.F16:
        return value.cast("fptrunc", F16)
    if element_type.is_floating and element_type.bits < 16:
        from hloom.cpu.small_floats import encode

        return encode(value.function, value, element_type)
    return value


def round_to(value: Value, element_type: ElementType) -> Value:
    """An f32 result rounded (once, to nearest even) to a narrower float type, still as an f32 value."""
    if element_type is et.BF16:
        lanes = value.type.lanes
        bits = value.bitcast(I32.vector(lanes))
        odd = bits.logical_shift_right(16) & 1
        rounded = (bits + odd + 0x7FFF) & -0x10000
        quiet = (bits & -0x10000) | 0x400000
        return value.compare("uno", value).select(quiet, rounded).bitcast(value.type)
    if element_type is et.F16:
        return value.cast("fptrunc", F16).cast("fpext", F32)
    if element_type.is_floating and element_type.bits < 16:
        from hloom.cpu.small_floats import decode, encode

        return decode(value.function, encode(value.function, value, element_type), element_type)
    return value


def constant(function: Function, element_type: ElementType, value: complex, lanes: int = 0) -> Element:
    """A number as a register value; with lanes, in every one of them."""
    register = register_type(element_type).vector(lanes)
    if element_type.is_complex:
        return function.constant(register, value.real), function.constant(register, value.imag)
    if element_type.is_floating:
        return function.constant(register, float(value.real))
    return function.constant(register, int(value.real))
