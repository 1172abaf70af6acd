"""Circular and hyperbolic functions of complex numbers."""

from __future__ import annotations

import math
from typing import Final

from hloom.codegen.llvm import Value
from hloom.codegen.vector_math.complex_exponential import LARGEST, scaled_product
from hloom.codegen.vector_math.complex_numbers import choose, in_doubles, is_finite, is_infinite
from hloom.codegen.vector_math.exponential import exponential_as_sum, exponential_parts, small_sinh_as_sum
from hloom.codegen.vector_math.reals import Pair, Reals, product_of_sums, quotient_of_sums
from hloom.codegen.vector_math.trigonometry import sine_and_cosine_as_sums

_LARGE: Final = 700.0
"""Up to it, cosh is finite in f64."""
_FLAT: Final = 22.0
"""From it on, tanh is 1 in f64."""


def cosine(z: Pair) -> Pair:
    """Return the cosine, cosh(i z)."""
    return cosh((-z[1], z[0]))


def sine(z: Pair) -> Pair:
    """Return the sine, -i sinh(i z)."""
    real, imag = sinh((-z[1], z[0]))
    r = Reals(real)
    # at endless angles 0 has the sign of y, and infinity none
    endless = z[1].compare("oeq", 0.0).select(z[1], r.absolute(real))
    return imag, is_finite(r, z[0]).select(-real, endless)


@in_doubles
def cosh(z: Pair, *, single: bool) -> Pair:
    """Return the hyperbolic cosine, cosh x cos y + i sinh x sin y."""
    r = Reals(z[0])
    hyperbolic_sine, hyperbolic_cosine, exponent = _hyperbolic(r, z[0], single=single)
    circular_sine, circular_cosine = sine_and_cosine_as_sums(z[1])
    real = _product(r, hyperbolic_cosine, circular_cosine, exponent)
    imag = _product(r, hyperbolic_sine, circular_sine, exponent)
    endless = ~is_finite(r, z[1])
    real = (is_infinite(r, z[0]) & endless).select(math.inf, real)
    # 0 times the sine of an endless angle has no sign
    return real, (z[0].compare("oeq", 0.0) & endless).select(0.0, imag)


@in_doubles
def sinh(z: Pair, *, single: bool) -> Pair:
    """Return the hyperbolic sine, sinh x cos y + i cosh x sin y."""
    r = Reals(z[0])
    hyperbolic_sine, hyperbolic_cosine, exponent = _hyperbolic(r, z[0], single=single)
    circular_sine, circular_cosine = sine_and_cosine_as_sums(z[1])
    real = _product(r, hyperbolic_sine, circular_cosine, exponent)
    imag = _product(r, hyperbolic_cosine, circular_sine, exponent)
    real = (is_infinite(r, z[0]) & ~is_finite(r, z[1])).select(math.inf, real)
    return real, imag


def _hyperbolic(r: Reals, x: Value, *, single: bool) -> tuple[Pair, Pair, Value | None]:
    """Return (s, c, n) with sinh x = s 2^n and cosh x = c 2^n, both with error terms.

    n is 0 as long as both are finite in f64, and None for f32 operands, for which they always are.
    """
    size = r.absolute(x)
    (fraction, fraction_short), multiple = exponential_as_sum(r, r.at_most(size, LARGEST[single]))
    half = r.whole(multiple) - 1
    grown, short = r.scale_normal(fraction, half), r.scale_normal(fraction_short, half)
    decayed = 0.25 / grown
    large = None if single else size.compare("ogt", _LARGE)
    if large is not None:
        grown, short = large.select(fraction, grown), large.select(fraction_short, short)
        decayed = large.select(0.0, decayed)
    c, c_lost = r.fast_two_sum(grown, decayed)
    s, s_lost = choose(size.compare("olt", 1.0), small_sinh_as_sum(r, size), r.fast_two_sum(grown, -decayed))
    s_short = size.compare("olt", 1.0).select(s_lost, s_lost + short)
    s_short = r.bits(x).compare("slt", 0).select(-s_short, s_short)
    scale = None if large is None else large.select(half, 0)
    return (r.copysign(s, x), s_short), (c, c_lost + short), scale


def _product(r: Reals, a: Pair, b: Pair, exponent: Value | None) -> Value:
    """Return a b 2^n, where 0 times anything is 0."""
    product = product_of_sums(r, a, b) if exponent is None else scaled_product(r, a, b, exponent)
    product = r.copysign(product, a[0] * b[0])  # also where the sum of the terms underflows
    zero, other_zero = a[0].compare("oeq", 0.0), b[0].compare("oeq", 0.0)
    return zero.select(_signed_zero(a[0], b[0]), other_zero.select(_signed_zero(b[0], a[0]), product))


def _signed_zero(zero: Value, factor: Value) -> Value:
    """Return 0 with the sign of the product with a factor, which need not be finite."""
    product = zero * factor
    return product.compare("uno", product).select(zero, product)


def tangent(z: Pair) -> Pair:
    """Return -i tanh(i z)."""
    real, imag = tanh((-z[1], z[0]))
    return imag, -real


@in_doubles
def tanh(z: Pair, *, single: bool) -> Pair:
    """Return (sinh x cosh x + i sin y cos y) / (sinh² x + cos² y)."""
    r = Reals(z[0])
    x, y = z
    # bounded, so that no scaling is needed
    s, c, _ = _hyperbolic(r, r.at_least(r.at_most(x, _FLAT), -_FLAT), single=True)
    sin, cos = sine_and_cosine_as_sums(y)
    first, first_short = _long_product(r, s, s)
    second, second_short = _long_product(r, cos, cos)
    total, lost = r.two_sum(first, second)
    below = total, lost + (first_short + second_short)
    real = quotient_of_sums(r, _long_product(r, s, c), below)
    imag = quotient_of_sums(r, _long_product(r, sin, cos), below)
    # far out the imaginary part is 4 sin y cos y e^-2|x|
    size = r.absolute(x)
    fraction, multiple = exponential_parts(r, r.at_least(size * -2.0, -LARGEST[single]))
    product = sin[0] * cos[0]
    decayed = (r.scale_normal if single else r.scale_far)(product * fraction * 4.0, r.whole(multiple))
    decayed = is_infinite(r, x).select(
        r.copysign(r.constant(0.0), is_finite(r, y).select(product, y)), decayed
    )
    far = size.compare("oge", _FLAT)
    real, imag = choose(far, (r.copysign(r.constant(1.0), x), decayed), (real, imag))
    defined = is_finite(r, y) | is_infinite(r, x)
    real = x.compare("oeq", 0.0).select(x, defined.select(real, math.nan))
    return real, y.compare("oeq", 0.0).select(y, imag)


def _long_product(r: Reals, a: Pair, b: Pair) -> Pair:
    product, lost = r.two_product(a[0], b[0])
    return product, r.fma(a[0], b[1], r.fma(a[1], b[0], lost))
