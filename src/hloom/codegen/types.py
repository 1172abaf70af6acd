"""Representation of element types in memory and in registers.

In memory an element takes at least a byte, as in numpy. In registers predicates are i1, integers keep their
width (at least a byte), floats narrower than f32 are f32 values representable in their type, and complex
numbers are a pair (real, imaginary).
"""

from __future__ import annotations

from typing import Final, TypeAlias

from hloom.codegen.llvm import F16, F32, F64, I1, I8, I16, I32, I64, Function, Type, Value
from hloom.codegen.small_floats import pack, round_small, unpack
from hloom.codegen.target import converts_half
from hloom.errors import HloError
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType

Element: TypeAlias = "Value | tuple[Value, Value]"
"""A value in registers: a pair for complex types."""

_INTEGERS: Final = {8: I8, 16: I16, 32: I32, 64: I64}


def storage_type(element_type: ElementType) -> Type:
    """Return the LLVM type of an element in memory; of one part for complex types."""
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
    """Return the bytes of an element in memory."""
    return storage_type(element_type).size * (2 if element_type.is_complex else 1)


def register_type(element_type: ElementType) -> Type:
    """Return the LLVM type of a value in registers; of one part for complex types."""
    if element_type is et.PRED:
        return I1
    if element_type.is_floating:
        return F64 if element_type is et.F64 else F32
    if element_type.is_complex:
        return F32 if element_type is et.C64 else F64
    return _INTEGERS[max(8, element_type.bits)]


def parts(*elements: Element) -> tuple[Value, ...]:
    """Return elements that are known not to be pairs."""
    values = tuple([e for e in elements if isinstance(e, Value)])
    assert len(values) == len(elements)
    return values


def wrap(value: Value, element_type: ElementType) -> Value:
    """Wrap an integer of a sub-byte type held in a byte: keep its low bits, sign-extended if signed."""
    if not element_type.is_integer or element_type.bits >= 8:
        return value
    spare = 8 - element_type.bits
    moved = value << spare
    return moved >> spare if element_type.is_signed else moved.logical_shift_right(spare)


def from_storage(value: Value, element_type: ElementType) -> Value:
    """Convert a stored element (or a vector of them) to a register value."""
    if element_type is et.PRED:
        return value.compare("ne", 0)
    if element_type is et.BF16:
        wide = value.cast("zext", I32) << 16
        return wide.bitcast(F32.vector(value.type.lanes))
    if element_type is et.F16 and converts_half(value.function.target):
        return value.cast("fpext", F32)
    if is_small(element_type):
        return unpack(_as_integer(value), element_type)
    # the other bits of the byte are unspecified
    return wrap(value, element_type)


def to_storage(value: Value, element_type: ElementType) -> Value:
    """Convert a register value to its stored form; floats are representable in their type already."""
    if element_type is et.PRED:
        return value.cast("zext", I8)
    if element_type is et.BF16:
        bits = value.bitcast(I32.vector(value.type.lanes)).logical_shift_right(16)
        return bits.cast("trunc", I16)
    if element_type is et.F16:
        if converts_half(value.function.target):
            return value.cast("fptrunc", F16)
        return pack(value, element_type, I16).bitcast(F16.vector(value.type.lanes))
    if is_small(element_type):
        return pack(value, element_type, I8)
    if element_type.is_signed and element_type.bits < 8:
        return value & ((1 << element_type.bits) - 1)
    return value


def is_small(element_type: ElementType) -> bool:
    """Return whether a type is a float type other than bf16 that is narrower than f32."""
    return element_type.is_floating and element_type.bits < 32 and element_type is not et.BF16


def _as_integer(value: Value) -> Value:
    return value.bitcast(I16.vector(value.type.lanes)) if value.type.is_float else value


def round_to(value: Value, element_type: ElementType) -> Value:
    """Round a float result once, to nearest even, to an element type; it stays in that type's registers."""
    if element_type is et.F64:
        return value.cast("fpext", F64)
    if value.type.scalar is F64:
        value = value.cast("fptrunc", F32) if element_type is et.F32 else round_to_odd(value)
    if element_type is et.BF16:
        bits = value.bitcast(I32.vector(value.type.lanes))
        rounded = bits + (bits.logical_shift_right(16) & 1) + 0x7FFF
        # adding might carry a NaN over into infinity
        absent = (bits & -0x80000000) | 0x7FC00000
        result = value.compare("uno", value).select(absent, rounded)
        return (result & -0x10000).bitcast(value.type)
    if element_type is et.F16 and converts_half(value.function.target):
        return value.cast("fptrunc", F16).cast("fpext", F32)
    return round_small(value, element_type) if is_small(element_type) else value


def round_to_odd(value: Value) -> Value:
    """Convert f64 to f32 so that rounding to fewer bits gives the same result as from the f64 values.

    Round towards zero and set the last bit if that is inexact (Boldo and Melquiond, "Emulation of FMA and
    correctly rounded sums: proved algorithms using rounding to odd", IEEE Trans. on Computers 57(4), 2008).
    """
    f = value.function
    single = value.cast("fptrunc", F32)
    back = single.cast("fpext", F64)
    integer = I32.vector(value.type.lanes)
    bits = single.bitcast(integer)
    above = f.intrinsic("fabs", back).compare("ogt", f.intrinsic("fabs", value)).cast("sext", I32)
    odd = (bits + above) | 1
    return back.compare("one", value).select(odd, bits).bitcast(single.type)


def constant(function: Function, element_type: ElementType, value: complex, lanes: int = 0) -> Element:
    """Return a number as a register value; with lanes, in every lane."""
    register = register_type(element_type).vector(lanes)
    if element_type.is_complex:
        return function.constant(register, value.real), function.constant(register, value.imag)
    if element_type.is_floating:
        return function.constant(register, float(value.real))
    return function.constant(register, int(value.real))
