"""Inverse trigonometric and hyperbolic functions of complex numbers.

They use square roots of 1 - z and 1 + z, whose products have no cancellation (Kahan, "Branch cuts for complex
elementary functions", in The State of the Art in Numerical Analysis, 1987). Infinite parts are replaced by a
number so large that finite parts are negligible, which gives the correct angles; moduli are set to infinity
afterwards.
"""

from __future__ import annotations

import math
from typing import Final

from hloom.codegen.llvm import Value
from hloom.codegen.vector_math.complex_numbers import choose, in_doubles, is_infinite, square_root
from hloom.codegen.vector_math.inverse_trigonometry import arc_tangent
from hloom.codegen.vector_math.logarithm import asinh, logarithm_plus_one
from hloom.codegen.vector_math.reals import Pair, Reals

_ENDLESS: Final = 2.0**200
"""Substitute for infinity."""

_LARGE: Final = 2.0**500
"""Beyond this, products of square roots may overflow, and asinh(x) is log(2x)."""

_LOG_2: Final = math.log(2.0)


def _replaced(r: Reals, z: Pair) -> tuple[Pair, Value]:
    """Replace infinite parts; return the number and whether there were any."""
    endless = is_infinite(r, *z)

    def replaced(part: Value) -> Value:
        large = r.copysign(r.constant(_ENDLESS), part)
        small = r.copysign(r.constant(0.0), part)
        finite = part.compare("uno", part).select(part, small)
        return endless.select(is_infinite(r, part).select(large, finite), part)

    return (replaced(z[0]), replaced(z[1])), endless


def _roots(z: Pair) -> tuple[Pair, Pair]:
    """Return sqrt(1 - z) and sqrt(1 + z)."""
    x, y = z
    return square_root((1.0 - x, -y)), square_root((x + 1.0, y))


def _fraction(r: Reals, z: Pair, *, single: bool) -> tuple[Value, Value]:
    """Return 1/4 for large z, so that products of the roots do not overflow, and log 4; otherwise 1 and 0."""
    if single:
        return r.constant(1.0), r.constant(0.0)
    is_large = r.absolute(z[0]).compare("ogt", _LARGE) | r.absolute(z[1]).compare("ogt", _LARGE)
    return is_large.select(r.constant(0.25), 1.0), is_large.select(r.constant(2 * _LOG_2), 0.0)


def _height(a: Pair, b: Pair, more: Value) -> Value:
    """Return |asinh(Im(conj(a) b))| + ``more``, which makes up for a fraction in a."""
    r = Reals(more)
    return r.absolute(asinh(a[0] * b[1] - a[1] * b[0])) + more


@in_doubles
def arc_sine(z: Pair, *, single: bool) -> Pair:
    """Return atan(x / Re(sqrt(1 - z) sqrt(1 + z))) + i asinh(Im(conj(sqrt(1 - z)) sqrt(1 + z)))."""
    r = Reals(z[0])
    (x, y), endless = _replaced(r, z)
    minus, plus = _roots((x, y))
    fraction, more = _fraction(r, (x, y), single=single)
    minus = minus[0] * fraction, minus[1] * fraction
    real = arc_tangent(x * fraction, minus[0] * plus[0] - minus[1] * plus[1])
    imag = r.copysign(_height(minus, plus, more), y)
    return _with_undefined_parts(r, z, real, endless.select(r.copysign(r.constant(math.inf), y), imag))


def _with_undefined_parts(r: Reals, z: Pair, real: Value, imag: Value) -> Pair:
    """Return the arc sine if a part is NaN: a part that does not depend on it is kept."""
    x, y = z
    x_undefined, y_undefined = x.compare("uno", x), y.compare("uno", y)
    real = (x_undefined | y_undefined).select(math.nan, real)
    real = (x.compare("oeq", 0.0) & y_undefined).select(x, real)
    imag = (x_undefined | y_undefined).select(math.nan, imag)
    imag = (is_infinite(r, x) & y_undefined).select(math.inf, imag)
    return real, (x_undefined & is_infinite(r, y)).select(y, imag)


@in_doubles
def arc_cosine(z: Pair, *, single: bool) -> Pair:
    """Return 2 atan(Re(sqrt(1 - z)) / Re(sqrt(1 + z))) + i asinh(Im(conj(sqrt(1 + z)) sqrt(1 - z)))."""
    r = Reals(z[0])
    (x, y), endless = _replaced(r, z)
    minus, plus = _roots((x, y))
    real = arc_tangent(minus[0], plus[0]) * 2.0
    fraction, more = _fraction(r, (x, y), single=single)
    imag = r.copysign(_height((plus[0] * fraction, plus[1] * fraction), minus, more), -y)
    imag = endless.select(r.copysign(r.constant(math.inf), -y), imag)
    undefined = z[0].compare("uno", z[1])
    real, imag = choose(undefined, (math.nan, math.nan), (real, imag))
    imag = (undefined & endless).select(r.copysign(r.constant(math.inf), -z[1]), imag)
    return (z[0].compare("oeq", 0.0) & undefined).select(math.pi / 2, real), imag


def inverse_hyperbolic_sine(z: Pair) -> Pair:
    """Return -i asin(i z)."""
    real, imag = arc_sine((-z[1], z[0]))
    return imag, -real


def inverse_hyperbolic_cosine(z: Pair) -> Pair:
    """Return i acos(z) or -i acos(z), whichever has a real part that is not negative."""
    real, imag = arc_cosine(z)
    r = Reals(real)
    return r.absolute(imag), r.copysign(real, z[1])


@in_doubles
def inverse_hyperbolic_tangent(z: Pair, *, single: bool) -> Pair:
    """log1p(4x / ((1 - x)² + y²)) / 4 + i atan2(2y, (1 - x) (1 + x) - y²) / 2."""
    r = Reals(z[0])
    x, y = z
    size, height = r.absolute(x), r.absolute(y)
    less = 1.0 - size
    real = _atanh_modulus(r, size, less, height, single=single)
    imag = arc_tangent(height + height, r.fma(less, size + 1.0, -(height * height))) * 0.5
    # far out: x / |z|² and π/2
    far = size.compare("ogt", 2.0**54) | height.compare("ogt", 2.0**54)
    larger = size.compare("ogt", height).select(size, height)
    ratio = size / larger
    other = height / larger
    vanishing = ratio / larger / r.fma(ratio, ratio, other * other)
    vanishing = larger.compare("oeq", math.inf).select(0.0, vanishing)
    real, imag = choose(far, (vanishing, math.pi / 2), (real, imag))
    endless = is_infinite(r, x, y)
    undefined = x.compare("uno", y)
    y_endless = is_infinite(r, y)
    imag = (undefined & ~y_endless).select(math.nan, imag)
    real = (undefined & ~endless & ~x.compare("oeq", 0.0)).select(math.nan, real)
    real = (undefined & (endless | x.compare("oeq", 0.0))).select(0.0, real)
    return r.copysign(real, x), r.copysign(imag, y)


def _atanh_modulus(r: Reals, size: Value, less: Value, height: Value, *, single: bool) -> Value:
    """Return log1p(4x / (less² + y²)) / 4; next to 1, where y² would underflow in f64, log(2 / y) / 2."""
    argument = size * 4.0 / r.fma(less, less, height * height)
    if single:
        return logarithm_plus_one(argument) * 0.25
    next_to_pole = less.compare("oeq", 0.0) & height.compare("olt", 2.0**-500)
    # the quotient is scaled, since it overflows for subnormal y
    argument = next_to_pole.select(2.0 / (height * 2.0**100), argument)
    factor = next_to_pole.select(r.constant(0.5), 0.25)
    return r.fma(logarithm_plus_one(argument), factor, next_to_pole.select(r.constant(50.0 * _LOG_2), 0.0))


@in_doubles
def inverse_tangent(y: Pair, x: Pair, *, single: bool) -> Pair:
    """Return -i log((x + y i) / sqrt(x² + y²)); the real angle if both are real.

    With p = x + y i and m = x - y i it is (arg p - arg m) / 2 + k π - i log(|p| / |m|) / 2, where k is 1 or
    -1 if arg p + arg m is beyond the branch cut of the root of p m, else 0.
    """
    r = Reals(x[0])
    original = y, x
    if not single:
        y, x = _jointly_scaled(r, y, x)
    plus, minus = (x[0] - y[1], x[1] + y[0]), (x[0] + y[1], x[1] - y[0])
    angle = _complex_angle(r, y, x, arc_tangent(plus[1], plus[0]), arc_tangent(minus[1], minus[0]))
    # |p|² - |m|² is 4 (Im x Re y - Re x Im y)
    product, lost = r.two_product(x[1], y[0])
    difference = r.fma(-x[0], y[1], product) + lost
    norm = r.fma(minus[0], minus[0], minus[1] * minus[1])
    imag = -(logarithm_plus_one(difference * 4.0 / norm) * 0.25)
    undefined = imag.compare("uno", imag) | _is_zero(plus) | _is_zero(minus)
    angle = undefined.select(math.nan, angle)
    y, x = original
    real = x[1].compare("oeq", 0.0) & y[1].compare("oeq", 0.0)
    return choose(real, (arc_tangent(y[0], x[0]), y[1]), (angle, imag))


def _is_zero(z: Pair) -> Value:
    return z[0].compare("oeq", 0.0) & z[1].compare("oeq", 0.0)


def _jointly_scaled(r: Reals, y: Pair, x: Pair) -> tuple[Pair, Pair]:
    """Scale both by one power of two, so that their squares neither overflow nor underflow."""
    largest = r.absolute(x[0])
    for part in (x[1], *y):
        size = r.absolute(part)
        largest = size.compare("ogt", largest).select(size, largest)
    small = largest.compare("olt", 2.0**-450).select(r.constant(2.0**600), 1.0)
    factor = largest.compare("ogt", 2.0**450).select(2.0**-600, small)
    return (y[0] * factor, y[1] * factor), (x[0] * factor, x[1] * factor)


def _complex_angle(r: Reals, y: Pair, x: Pair, first: Value, second: Value) -> Value:
    """Return (arg p - arg m) / 2 + k π, half the angle of p conj(m) up to multiples of π."""
    total = first + second
    # the sign of the imaginary part of x² + y² determines the side of the branch cut of its root
    below = r.bits((x[0] * x[1] + x[1] * x[0]) + (y[0] * y[1] + y[1] * y[0])).compare("slt", 0)
    over = total.compare("ogt", math.pi / 2) & (below | total.compare("ogt", 1.5 * math.pi))
    under = total.compare("olt", -math.pi / 2) & (~below | total.compare("olt", -1.5 * math.pi))
    turned = over.select(math.pi, under.select(r.constant(-math.pi), 0.0))
    rough = r.fma(first - second, 0.5, turned)
    sum_of_products = r.fma(x[0], y[0], x[1] * y[1])
    difference = (x[0] * x[0] - y[1] * y[1]) + (x[1] * x[1] - y[0] * y[0])
    exact = arc_tangent(sum_of_products + sum_of_products, difference) * 0.5
    turns = r.absolute(r.round_even((rough - exact) * (1 / math.pi)))
    # a half turn goes to the side on which the angle is at most π
    return exact + turns * exact.compare("ogt", 0.0).select(r.constant(-math.pi), math.pi)
