"""Rounding, packing and unpacking of floats narrower than f32.

In registers they are f32 values. They are rounded there, so that packing is needed only at stores: adding and
subtracting a power of two keeps as many bits as the format has. Packing multiplies by the power of two that
aligns the format's exponent field, and so its subnormal numbers, with f32's.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import F32, I32, Type, Value
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType
from hloom.shape.float_format import FloatFormat, float_format

SIGN: Final = -0x80000000
_MAGNITUDE: Final = 0x7FFFFFFF
_EXPONENT: Final = 0x7F800000
_NAN: Final = 0x7FC00000
_ONE: Final = 127


def _scale(kind: FloatFormat) -> float:
    """Return the factor that converts between the exponent biases of f32 and of a format.

    After multiplication, exponent fields and subnormal numbers coincide with those of f32.
    """
    return 2.0 ** (-126 - kind.smallest_exponent)


def round_small(value: Value, element_type: ElementType) -> Value:
    """Round f32 values to nearest, ties to even, as ml_dtypes does; the result is f32.

    A NaN keeps only its sign, and becomes 0 in formats without NaN.
    """
    if element_type is et.F8E8M0FNU:
        return _round_scale(value)
    kind = float_format(element_type)
    f = value.function
    integer = I32.vector(value.type.lanes)
    size = f.intrinsic("fabs", value)
    # so that the power of two does not overflow; larger values exceed the largest number anyway
    size = size.compare("ogt", 2.0 * kind.largest).select(2.0 * kind.largest, size)
    smallest = f.constant(integer, (kind.smallest_exponent + _ONE) << 23)
    power = f.intrinsic("umax", size.bitcast(integer) & _EXPONENT, smallest) + (
        (23 - kind.mantissa_bits) << 23
    )
    aligned = power.bitcast(value.type)
    rounded = (size + aligned) - aligned
    beyond = float("inf") if kind.has_infinity else float("nan") if kind.has_nan else kind.largest
    rounded = rounded.compare("ogt", kind.largest).select(beyond, rounded)
    signed = f.intrinsic("copysign", rounded, value)
    if not kind.has_nan:
        return value.compare("ord", value).select(signed, 0.0)
    if not kind.has_negative_zero:
        return rounded.compare("oeq", 0.0).select(0.0, signed)
    if kind.has_infinity and element_type is not et.F16:
        return value.compare("ord", value).select(signed, quiet_nan(value))
    return signed


def quiet_nan(value: Value) -> Value:
    """Return a quiet NaN with the sign of an f32 value and without payload."""
    integer = I32.vector(value.type.lanes)
    return ((value.bitcast(integer) & SIGN) | _NAN).bitcast(value.type)


def _round_scale(value: Value) -> Value:
    """Round to a power of two, ties to the larger one; NaN for numbers that are not positive."""
    integer = I32.vector(value.type.lanes)
    bits = value.bitcast(integer)
    power = (bits + 0x400000) & _EXPONENT
    # 2^-127, the smallest one, is subnormal in f32; it replaces everything below, and itself
    power = bits.compare("ule", 0x400000).select(0x400000, power)
    in_range = value.compare("ogt", 0.0) & power.compare("ult", _EXPONENT)
    return in_range.select(power, _NAN).bitcast(value.type)


def pack(value: Value, element_type: ElementType, stored: Type) -> Value:
    """Return the bit patterns of f32 values representable in the format."""
    lanes = value.type.lanes
    integer = I32.vector(lanes)
    if element_type is et.F8E8M0FNU:
        return value.bitcast(integer).logical_shift_right(23).cast("trunc", stored)
    kind = float_format(element_type)
    f = value.function
    bits = value.bitcast(integer)
    scaled = (f.intrinsic("fabs", value) * _scale(kind)).bitcast(integer)
    magnitude = scaled.logical_shift_right(23 - kind.mantissa_bits)
    if kind.has_infinity:
        # the multiplication would make a signaling NaN quiet; moved elements keep their bits
        absent = (bits & _MAGNITUDE).logical_shift_right(23 - kind.mantissa_bits)
        magnitude = value.compare("uno", value).select(absent, magnitude) & kind.magnitude
    elif kind.has_nan and kind.has_negative_zero:
        magnitude = value.compare("uno", value).select(kind.magnitude, magnitude)
    sign = bits.logical_shift_right(32 - kind.bits) & (kind.magnitude + 1)
    pattern = magnitude | sign
    if not kind.has_negative_zero:
        pattern = value.compare("uno", value).select(kind.magnitude + 1, pattern)
    return pattern.cast("trunc", stored)


def unpack(stored: Value, element_type: ElementType) -> Value:
    """Return the f32 values of bit patterns."""
    lanes = stored.type.lanes
    real = F32.vector(lanes)
    bits = stored.cast("zext", I32)
    if element_type is et.F8E8M0FNU:
        power = bits << 23
        power = bits.compare("eq", 0).select(0x400000, power)
        return bits.compare("eq", 255).select(_NAN, power).bitcast(real)
    kind = float_format(element_type)
    magnitude = bits & kind.magnitude
    value = (magnitude << (23 - kind.mantissa_bits)).bitcast(real) * (1.0 / _scale(kind))
    pattern = value.bitcast(I32.vector(lanes))
    sign = (bits << (32 - kind.bits)) & SIGN
    if kind.has_infinity:
        infinity = ((1 << (kind.bits - 1 - kind.mantissa_bits)) - 1) << kind.mantissa_bits
        pattern = magnitude.compare("uge", infinity).select(pattern | _EXPONENT, pattern)
    elif kind.has_nan and not kind.has_negative_zero:
        pattern = bits.compare("eq", kind.magnitude + 1).select(_NAN, pattern)
    elif kind.has_nan:
        pattern = magnitude.compare("eq", kind.magnitude).select(_NAN, pattern)
    return (pattern | sign).bitcast(real)
