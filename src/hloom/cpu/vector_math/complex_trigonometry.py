"""Circular and hyperbolic functions of complex numbers."""

from __future__ import annotations

import math
from typing import Final

from hloom.cpu.llvm_text import Value
from hloom.cpu.vector_math.complex_numbers import choose, in_doubles, is_finite, is_infinite
from hloom.cpu.vector_math.exponential import exponential_parts, small_sinh
from hloom.cpu.vector_math.reals import Pair, Reals
from hloom.cpu.vector_math.trigonometry import sine_and_cosine

_LARGE: Final = 700.0
"""Up to it, cosh is finite in f64."""
_FLAT: Final = 22.0
"""From it on, tanh is 1 in f64."""


def cosh(z: Pair) -> Pair:
    """The hyperbolic cosine, cosh x cos y + i sinh x sin y."""
    return in_doubles(_cosh, z)


def sinh(z: Pair) -> Pair:
    """The hyperbolic sine, sinh x cos y + i cosh x sin y."""
    return in_doubles(_sinh, z)


def cosine(z: Pair) -> Pair:
    """The cosine, cosh(i z)."""
    return cosh((-z[1], z[0]))


def sine(z: Pair) -> Pair:
    """-i sinh(i z)."""
    real, imag = sinh((-z[1], z[0]))
    r = Reals(real)
    # at endless angles 0 has the sign of y, and infinity none
    endless = z[1].compare("oeq", 0.0).select(z[1], r.absolute(real))
    return imag, is_finite(r, z[0]).select(-real, endless)


def _cosh(z: Pair, *, single: bool) -> Pair:
    r = Reals(z[0])
    hyperbolic_sine, hyperbolic_cosine, exponent = _hyperbolic(r, z[0])
    circular_sine, circular_cosine = sine_and_cosine(z[1])
    real = _product(r, hyperbolic_cosine, circular_cosine, exponent)
    imag = _product(r, hyperbolic_sine, circular_sine, exponent)
    real = (is_infinite(r, z[0]) & ~is_finite(r, z[1])).select(math.inf, real)
    return real, imag


def _sinh(z: Pair, *, single: bool) -> Pair:
    r = Reals(z[0])
    hyperbolic_sine, hyperbolic_cosine, exponent = _hyperbolic(r, z[0])
    circular_sine, circular_cosine = sine_and_cosine(z[1])
    real = _product(r, hyperbolic_sine, circular_cosine, exponent)
    imag = _product(r, hyperbolic_cosine, circular_sine, exponent)
    real = (is_infinite(r, z[0]) & ~is_finite(r, z[1])).select(math.inf, real)
    return real, imag


def _hyperbolic(r: Reals, x: Value) -> tuple[Value, Value, Value]:
    """(s, c, n) with sinh x = s 2^n, cosh x = c 2^n; n is 0 up to where both are finite."""
    size = r.absolute(x)
    fraction, exponent = exponential_parts(r, r.at_most(size, 2.0 * _LARGE))
    half = exponent - 1
    large = size.compare("ogt", _LARGE)
    grown = large.select(fraction, r.scale(fraction, half))
    decayed = large.select(0.0, 0.25 / grown)
    near = size.compare("olt", 1.0).select(small_sinh(r, size), grown - decayed)
    return r.copysign(near, x), grown + decayed, large.select(half, 0)


def _product(r: Reals, a: Value, b: Value, exponent: Value) -> Value:
    """The product a b 2^n, where 0 times anything is 0."""
    product = r.scale(a * b, exponent)
    zero, other_zero = a.compare("oeq", 0.0), b.compare("oeq", 0.0)
    undefined = product.compare("uno", product)
    return (undefined & zero).select(a, (undefined & other_zero).select(b, product))


def tanh(z: Pair) -> Pair:
    """(b s sqrt(1 + s²) + i t) / (1 + b s²) with t = tan y, b = 1 + t², s = sinh x.

    Kahan, "Branch cuts for complex elementary functions", in The State of the Art in Numerical Analysis
    (1987).
    """
    return in_doubles(_tanh, z)


def tangent(z: Pair) -> Pair:
    """-i tanh(i z)."""
    real, imag = tanh((-z[1], z[0]))
    return imag, -real


def _tanh(z: Pair, *, single: bool) -> Pair:
    r = Reals(z[0])
    x, y = z
    s, c, _ = _hyperbolic(r, r.at_least(r.at_most(x, _FLAT), -_FLAT))
    sin, cos = sine_and_cosine(y)
    t = sin / cos
    b = r.fma(t, t, 1.0)
    below = r.fma(b * s, s, 1.0)
    real, imag = b * c * s / below, t / below
    # far out the imaginary part is 4 sin y cos y e^-2|x|
    size = r.absolute(x)
    fraction, exponent = exponential_parts(r, r.at_least(size * -2.0, -1400.0))
    decayed = r.scale(sin * cos * fraction * 4.0, exponent)
    decayed = is_infinite(r, x).select(
        r.copysign(r.constant(0.0), is_finite(r, y).select(sin * cos, y)), decayed
    )
    far = size.compare("oge", _FLAT)
    real, imag = choose(far, (r.copysign(r.constant(1.0), x), decayed), (real, imag))
    defined = is_finite(r, y) | is_infinite(r, x)
    real = x.compare("oeq", 0.0).select(x, defined.select(real, math.nan))
    return real, y.compare("oeq", 0.0).select(y, imag)
