"""Exponential functions, logarithms and powers of complex numbers."""

from __future__ import annotations

import math
from typing import Final

from hloom.codegen.llvm import I64, Value
from hloom.codegen.vector_math import exponential as real_exponential
from hloom.codegen.vector_math.complex_numbers import (
    choose,
    divide,
    in_doubles,
    is_finite,
    is_infinite,
    multiply,
    square_sum,
)
from hloom.codegen.vector_math.exponential import exponential_as_sum
from hloom.codegen.vector_math.inverse_trigonometry import arc_tangent
from hloom.codegen.vector_math.logarithm import exponent_as_float, exponent_of, log_of_one_plus, log_parts
from hloom.codegen.vector_math.power import power as real_power
from hloom.codegen.vector_math.reals import Pair, Reals, any_lane, product_of_sums
from hloom.codegen.vector_math.trigonometry import cosine, sine, sine_and_cosine_as_sums

LARGEST: Final = {True: 300.0, False: 1500.0}
"""An x of which e^x overflows, and e^-x vanishes, even if multiplied by the sine of the smallest angle, or
divided by it; by whether the operands are f32 numbers."""
_SQUARED_ROUNDS: Final = 7
_SMALL_POWER: Final = 100.0
"""Below it, powers with integral exponents are products."""


def _exponential(z: Pair, *, single: bool) -> Pair:
    """Return e^z = e^x cos y + i e^x sin y."""
    r = Reals(z[0])
    x, y = z
    fraction, multiple = exponential_as_sum(r, r.at_least(r.at_most(x, LARGEST[single]), -LARGEST[single]))
    sin, cos = sine_and_cosine_as_sums(y)
    if single:
        real, imag = (r.scale_normal(product_of_sums(r, fraction, part), multiple[1]) for part in (cos, sin))
    else:
        real, imag = (scaled_product(r, fraction, part, r.whole(multiple)) for part in (cos, sin))
    endless = is_infinite(r, x) & ~is_finite(r, y)
    positive = x.compare("ogt", 0.0)
    real = endless.select(positive.select(r.constant(math.inf), 0.0), real)
    imag = endless.select(positive.select(math.nan, r.copysign(r.constant(0.0), y)), imag)
    return real, y.compare("oeq", 0.0).select(y, imag)


exponential = in_doubles(_exponential)


def scaled_product(r: Reals, a: Pair, b: Pair, n: Value) -> Value:
    """Return a b 2^n for a about 1 and |b| <= 1; b is scaled up first if n is positive.

    The product of a and a subnormal b would be rounded to the few bits of b.
    """
    f = r.function
    ahead = f.intrinsic("smin", f.intrinsic("smax", n, f.constant(n.type, 0)), f.constant(n.type, r.bias))
    factor = r.power_of_two(ahead)
    return r.scale_far(product_of_sums(r, a, (b[0] * factor, b[1] * factor)), n - ahead)


@in_doubles
def exponential_minus_one(z: Pair, *, single: bool) -> Pair:
    """Return e^z - 1, with real part expm1(x) cos y - 2 sin²(y / 2) and imaginary part e^x sin y."""
    r = Reals(z[0])
    x, y = z
    grown = real_exponential.exponential_minus_one(x)
    half = sine(y * 0.5)
    lessened = half * half * -2.0
    # without growth the part is negative, also where it underflows
    real = grown.compare("oeq", 0.0).select(lessened, r.fma(grown, lessened + 1.0, lessened))
    power, imag = _exponential(z, single=single)
    # for large parts and for parts that are not finite, 1 is negligible or e^z is
    near = r.absolute(x).compare("olt", 40.0) & is_finite(r, y)
    real = near.select(real, power - 1.0)
    return y.compare("oeq", 0.0).select(grown, real), imag


@in_doubles
def logistic(z: Pair, *, single: bool) -> Pair:
    """Return 1 / (1 + e^-z), as e^z / (e^z + 1) if the real part of z is negative.

    Divide by 1 + e^z = expm1(x) cos y + 2 cos²(y / 2) + i e^x sin y (x <= 0), exact near its zeros.
    """
    r = Reals(z[0])
    negative = z[0].compare("olt", 0.0)
    x = -r.absolute(z[0])
    decay = _exponential((x, negative.select(z[1], -z[1])), single=single)
    half = cosine(z[1] * 0.5)
    doubled = half * half * 2.0
    below = r.fma(real_exponential.exponential_minus_one(x), doubled - 1.0, doubled)
    below = is_finite(r, z[1]).select(below, decay[0] + 1.0)
    one, zero = r.constant(1.0), r.constant(0.0)
    real, imag = divide(choose(negative, decay, (one, zero)), (below, decay[1]))
    # e^z is the quotient where it is too small to change 1, and its parts may underflow to signed zeros
    real = (negative & real.compare("oeq", 0.0)).select(r.copysign(real, decay[0]), real)
    return real, r.copysign(imag, negative.select(decay[1], -decay[1]))


# -- logarithms


def exponential_base_2(z: Pair) -> Pair:
    """Return 2^z = e^(z log 2)."""
    return exponential((z[0] * math.log(2), z[1] * math.log(2)))


def logarithm_base_2(z: Pair) -> Pair:
    """Return log z / log 2."""
    real, imag = logarithm(z)
    return real * (1 / math.log(2)), imag * (1 / math.log(2))


def _logarithm(z: Pair, *, single: bool) -> Pair:
    """Return log |z| + i arg z."""
    return log_modulus(Reals(z[0]), z, single=single), arc_tangent(z[1], z[0])


logarithm = in_doubles(_logarithm)


def log_modulus(r: Reals, z: Pair, *, single: bool) -> Value:
    """Return half the logarithm of x² + y², computed to twice the precision for results near 0."""
    doublings = None
    scaled = z
    if not single:
        scaled, doublings = _halved_range(r, z)
    total, lost = square_sum(r, scaled)
    shift = exponent_of(r, total)
    inverse = r.from_bits(r.function.constant(r.integer, r.pattern_of(1.0)) - shift)
    fraction = r.fma(lost, inverse, r.from_bits(r.bits(total) - shift) - 1.0)
    exponent = exponent_as_float(r, shift)
    if doublings is not None:
        exponent = r.fma(doublings, 2.0 * 2.0**20, exponent)
    result = log_parts(r, fraction, exponent) * 0.5
    result = total.compare("oeq", 0.0).select(-math.inf, result)
    result = z[0].compare("uno", z[1]).select(math.nan, result)
    return is_infinite(r, *z).select(math.inf, result)


def _halved_range(r: Reals, z: Pair) -> tuple[Pair, Value]:
    """Scale by a power of two so that squares are in range; return the number and the removed exponent."""
    x, y = r.absolute(z[0]), r.absolute(z[1])
    larger = x.compare("ogt", y).select(x, y)
    large, small = larger.compare("ogt", 2.0**500), larger.compare("olt", 2.0**-500)
    factor = large.select(2.0**-600, small.select(r.constant(2.0**600), 1.0))
    shift = large.select(600.0, small.select(r.constant(-600.0), 0.0))
    return (z[0] * factor, z[1] * factor), shift


@in_doubles
def logarithm_plus_one(z: Pair, *, single: bool) -> Pair:
    """Return log(1 + z); for |1 + z| near 1 the real part is log1p(2x + x² + y²) / 2."""
    r = Reals(z[0])
    x, y = z
    moved = x + 1.0
    far = log_modulus(r, (moved, y), single=single)
    # 2x + x² + y² = x (2 + x) + y², to twice the precision
    bounded_x, bounded_y = r.at_least(r.at_most(x, 4.0), -4.0), r.at_least(r.at_most(y, 4.0), -4.0)
    total, total_rest = r.two_sum(bounded_x, r.constant(2.0))
    first, first_rest = r.two_product(bounded_x, total)
    second, second_rest = r.two_product(bounded_y, bounded_y)
    excess, lost = r.two_sum(first, second)
    excess = excess + (lost + r.fma(bounded_x, total_rest, first_rest + second_rest))
    near = log_of_one_plus(r, excess, excess + 1.0) * 0.5
    inside = excess.compare("ogt", -0.75) & excess.compare("olt", 3.0) & x.compare("olt", 4.0)
    inside = inside & r.absolute(y).compare("olt", 4.0)
    return inside.select(near, far), arc_tangent(y, moved)


# -- powers


@in_doubles
def power(base: Pair, exponent: Pair, *, single: bool) -> Pair:
    """Return exp(exponent * log(base)); products for small integral exponents, the real power for reals."""
    r = Reals(base[0])
    log = _logarithm(base, single=single)
    power = _exponential(multiply(exponent, log), single=single)
    zero_base = base[0].compare("oeq", 0.0) & base[1].compare("oeq", 0.0)
    of_zero = exponent[0].compare("ogt", 0.0).select(r.constant(0.0), math.nan)
    power = choose(zero_base, (of_zero, of_zero), power)
    real_exponent = exponent[1].compare("oeq", 0.0)
    small = r.absolute(exponent[0]).compare("olt", _SMALL_POWER)
    integral = real_exponent & small & r.round_even(exponent[0]).compare("oeq", exponent[0])
    power = choose(integral & ~zero_base, _small_power(r, base, exponent[0]), power)
    real = real_exponent & base[1].compare("oeq", 0.0) & base[0].compare("oge", 0.0)
    power = choose(real, (real_power(base[0], exponent[0]), base[1]), power)
    power = choose(real_exponent & exponent[0].compare("oeq", 1.0), base, power)
    return choose(real_exponent & exponent[0].compare("oeq", 0.0), (1.0, 0.0), power)


def _small_power(r: Reals, base: Pair, exponent: Value) -> Pair:
    """Return base^n for integers |n| < 100, by squaring; the reciprocal for negative ones."""
    f = r.function
    size = r.at_most(r.absolute(exponent), _SMALL_POWER)
    # adding 2^52 leaves the integer in the low bits of the pattern; NaN and fractions are not used
    count = r.bits(size + 2.0**52) & 127
    one, zero = r.constant(1.0), r.constant(0.0)
    used = any_lane(count.compare("ugt", 0)).cast("zext", I64) * _SQUARED_ROUNDS
    with f.loop(0, used, 1, [one, zero, *base, count]) as loop:
        real, imag, x, y, digits = loop.values
        is_odd = (digits & 1).compare("ne", 0)
        product = choose(is_odd, multiply((real, imag), (x, y)), (real, imag))
        loop.next(*product, *multiply((x, y), (x, y)), digits.logical_shift_right(1))
    real, imag = loop.values[:2]
    return choose(exponent.compare("olt", 0.0), divide((one, zero), (real, imag)), (real, imag))
