"""Powers of floats and of integers."""

from __future__ import annotations

import math
from typing import Final

from hloom.cpu.llvm_text import F32, F64, I1, I64, Value
from hloom.cpu.vector_math.exponential import EXP_SHORT, RANGE, exponential_parts
from hloom.cpu.vector_math.logarithm import LOG_SHORT, log_as_sum, log_parts, normalized
from hloom.cpu.vector_math.reals import Reals

_HUGE: Final = 2.0**80
"""A power of this size is 0, 1 or infinite."""


def power(x: Value, y: Value) -> Value:
    """x^y = exp(y log |x|), with IEEE 754's special cases."""
    if x.type.scalar is F32:
        return power_in_double(x.cast("fpext", F64), y.cast("fpext", F64), short=True).cast("fptrunc", F32)
    return power_in_double(x, y, short=False)


def power_in_double(x: Value, y: Value, *, short: bool) -> Value:
    """x^y of f64 numbers; ``short``: they are f32 numbers, and the result is to be rounded to f32."""
    r = Reals(x)
    size = r.absolute(x)
    bounded = r.at_least(r.at_most(y, _HUGE), -_HUGE)
    fraction, exponent = normalized(r, size, subnormal=not short)
    if short:
        argument, rest = bounded * log_parts(r, fraction, exponent, coefficients=LOG_SHORT), None
    else:
        log_high, log_low = log_as_sum(r, fraction, exponent)
        argument, rest = r.two_product(bounded, log_high)
        rest = r.absolute(argument).compare("olt", 1000.0).select(r.fma(bounded, log_low, rest), 0.0)
    lowest, highest, _ = RANGE[True]
    argument = r.at_least(r.at_most(argument, highest), lowest)
    result = r.scale(*exponential_parts(r, argument, rest, coefficients=EXP_SHORT if short else ()))
    return _with_special_cases(r, x, y, size, result)


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
    """base^exponent modulo 2^width, by squaring, with as many rounds as the largest exponent has bits.

    Negative exponents leave the truncated fraction: 1 of 1, 1 or -1 of -1, 0 of all others.
    """
    f = base.function
    one = f.constant(base.type, 1)
    with f.loop(0, _significant_bits(exponent, signed), 1, [one, base, exponent]) as loop:
        result, square, rest = loop.values
        taken = (rest & 1).compare("ne", 0).select(result * square, result)
        loop.next(taken, square * square, rest.logical_shift_right(1))
    result = loop.values[0]
    if not signed:
        return result
    of_minus_one = (exponent & 1).compare("ne", 0).select(base, one)
    fraction = base.compare("eq", 1).select(1, base.compare("eq", -1).select(of_minus_one, 0))
    return exponent.compare("slt", 0).select(fraction, result)


def _significant_bits(exponent: Value, signed: bool) -> Value:
    """Bits of the largest exponent of all lanes, negative ones not counted, as i64."""
    f = exponent.function
    zero = f.constant(exponent.type, 0)
    largest = f.intrinsic("smax", exponent, zero) if signed else exponent
    if exponent.type.lanes:
        largest = f.intrinsic("vector.reduce.umax", largest, result=exponent.type.scalar)
    zeros = f.intrinsic("ctlz", largest, Value(f, I1, "false"))
    return (8 * exponent.type.size - zeros).cast("zext", I64)
