"""The remainder of floats."""

from __future__ import annotations

import math

from hloom.codegen.llvm import I64, Value
from hloom.codegen.vector_math.reals import Reals

_SPARE_BITS = 8
"""Bits of precision that quotients leave unused, so that their products with the divisor are exact sums."""


def remainder(x: Value, y: Value) -> Value:
    """Return the exact x - y n with n = x / y truncated and the sign of x; NaN for y = 0 or infinite x.

    A step subtracts a multiple of y 2^k, with k such that the quotient fits a float; nearly always k is 0 and
    one step is enough. The number of steps is that of the lane that needs most.
    """
    r = Reals(x)
    f = r.function
    divisor = r.absolute(y)
    digits = r.precision - _SPARE_BITS
    smallest = _exponent(r, divisor)
    rounds = _largest(_exponent(r, r.absolute(x)) - smallest)
    rounds = f.intrinsic("smax", rounds, f.constant(I64, 0)).unsigned_divide(digits - 1) + 1
    with f.loop(0, rounds, 1, [r.absolute(x)]) as loop:
        (rest,) = loop.values
        excess = _exponent(r, rest) - smallest - digits
        shift = f.intrinsic("smax", excess, f.constant(excess.type, 0))
        scaled = r.scale_far(divisor, shift)
        quotient = r.truncate(rest / scaled)
        left = _left(r, rest, quotient, scaled)
        # the rounded quotient may be one too large
        loop.next(left.compare("olt", 0.0).select(left + scaled, left))
    result = loop.values[0]
    unchanged = divisor.compare("oeq", math.inf) & r.absolute(x).compare("olt", math.inf)
    return unchanged.select(x, r.copysign(result, x))


def _left(r: Reals, rest: Value, quotient: Value, scaled: Value) -> Value:
    """Return rest - quotient * scaled, which is exact."""
    if r.fuses:
        return r.fma(-quotient, scaled, rest)
    product, lost = r.two_product(quotient, scaled)
    return (rest - product) - lost


def _exponent(r: Reals, size: Value) -> Value:
    """Return the biased exponent of a positive number, extended below the least one for subnormal numbers."""
    field = r.bits(size).logical_shift_right(r.mantissa_bits)
    scaled = r.bits(size * 2.0**r.mantissa_bits).logical_shift_right(r.mantissa_bits)
    return field.compare("eq", 0).select(scaled - r.mantissa_bits, field)


def _largest(value: Value) -> Value:
    """Return the largest lane of signed integers, as i64."""
    f = value.function
    if value.type.lanes:
        value = f.intrinsic("vector.reduce.smax", value, result=value.type.scalar)
    return value.cast("sext", I64)
