"""Powers of floats and of integers."""

from __future__ import annotations

import math
from typing import Final

from hloom.codegen.llvm import F32, F64, I1, I64, Function, Value
from hloom.codegen.vector_math.exponential import RANGE, exponential_parts
from hloom.codegen.vector_math.logarithm import EXPONENT_UNIT, log_as_sum, normalized
from hloom.codegen.vector_math.reals import Reals, coefficients

_HUGE: Final = 2.0**80
"""A power of this size is 0, 1 or infinite."""


# log2(1 + f) / s in s², s = f / (2 + f); relative error 2^-37.8
_LOG2: Final = coefficients("""
    2.8853900817901486 0.9617966732750547 0.5770835962395058 0.41167210829097695 0.3407404539930948
""")
# (2^r - 1) / r for |r| <= 1/2; relative error of 2^r: 2^-28.5
_EXP2: Final = coefficients("""
    0.6931472150107111 0.24022652787003912 0.05550310469098957 0.009617692419869144 0.001340667366221073
    0.000155948087187209
""")


def power(x: Value, y: Value) -> Value:
    """Return x^y = exp(y log |x|), with IEEE 754's special cases."""
    r = Reals(x)
    size = r.absolute(x)
    bounded = r.at_least(r.at_most(y, _HUGE), -_HUGE)
    if r.is_double:
        result = _power_of_doubles(r, size, bounded)
    else:
        result = _power_of_singles(size.cast("fpext", F64), bounded.cast("fpext", F64)).cast("fptrunc", F32)
    return _with_special_cases(r, x, y, size, result)


def _power_of_doubles(r: Reals, size: Value, exponent: Value) -> Value:
    """Compute the power by the logarithm to twice the precision."""
    log_high, log_low = log_as_sum(r, *normalized(r, size))
    product, correction = r.two_product(exponent, log_high)
    correction = r.absolute(product).compare("olt", 1000.0).select(r.fma(exponent, log_low, correction), 0.0)
    limits = RANGE[True]
    lasts = product.compare("uge", limits.vanishing)
    bounded = lasts.select(r.at_most(product, limits.highest), 0.0)
    return lasts.select(r.scale(*exponential_parts(r, bounded, correction)), 0.0)


def _power_of_singles(size: Value, exponent: Value) -> Value:
    """Compute 2^(y log2 |x|) of f32 numbers in f64, to f32's precision."""
    r = Reals(size)
    fraction, scaled = normalized(r, size, subnormal=False)
    s = fraction / (fraction + 2.0)
    logarithm = r.fma(s, r.polynomial(s * s, _LOG2), scaled * (1 / EXPONENT_UNIT[True]))
    product = r.at_least(r.at_most(exponent * logarithm, 140.0), -160.0)
    multiple, n = r.nearest_multiple(product, 1.0)
    remainder = product - multiple
    fraction = r.fma(remainder, r.polynomial(remainder, _EXP2), 1.0)
    return r.scale_normal(fraction, n)


def _with_special_cases(r: Reals, x: Value, y: Value, size: Value, result: Value) -> Value:
    zero, infinite = size.compare("oeq", 0.0), size.compare("oeq", math.inf)
    vanishes = zero ^ y.compare("olt", 0.0)
    result = (zero | infinite).select(vanishes.select(r.constant(0.0), math.inf), result)
    integral = r.round_even(y).compare("oeq", y)
    half = y * 0.5
    odd = integral & r.round_even(half).compare("one", half)
    negative = r.bits(x).compare("slt", 0)
    result = (odd & negative).select(-result, result)
    # a negative number other than -0 and -infinity has no power that is not integral
    undefined = x.compare("olt", 0.0) & ~(integral | infinite)
    result = (undefined | x.compare("uno", y)).select(math.nan, result)
    return (y.compare("oeq", 0.0) | x.compare("oeq", 1.0)).select(1.0, result)


def integer_power(base: Value, exponent: Value, signed: bool) -> Value:
    """Return base^exponent modulo 2^width, by squaring, with a step per bit of the largest exponent.

    Negative exponents give the truncated fraction: 1 for 1, 1 or -1 for -1, 0 for all others.
    """
    f = Function.of(base)
    one = f.constant(base.type, 1)
    with f.loop(0, _significant_bits(exponent, signed), 1, [one, base, exponent]) as loop:
        result, square, remaining = loop.values
        product = (remaining & 1).compare("ne", 0).select(result * square, result)
        loop.next(product, square * square, remaining.logical_shift_right(1))
    result = loop.values[0]
    if not signed:
        return result
    of_minus_one = (exponent & 1).compare("ne", 0).select(base, one)
    fraction = base.compare("eq", 1).select(1, base.compare("eq", -1).select(of_minus_one, 0))
    return exponent.compare("slt", 0).select(fraction, result)


def _significant_bits(exponent: Value, signed: bool) -> Value:
    """Return the significant bits of the largest exponent of all lanes, ignoring negative ones, as i64."""
    f = exponent.function
    zero = f.constant(exponent.type, 0)
    largest = f.intrinsic("smax", exponent, zero) if signed else exponent
    if exponent.type.lanes:
        largest = f.intrinsic("vector.reduce.umax", largest, result=exponent.type.scalar)
    zeros = f.intrinsic("ctlz", largest, f.constant(I1, 0))
    return (8 * exponent.type.size - zeros).cast("zext", I64)
