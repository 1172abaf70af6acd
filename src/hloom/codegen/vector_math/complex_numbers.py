"""Arithmetic of complex numbers as pairs of a real and an imaginary part.

Functions of c64 are computed in f64, whose range covers all squares of f32 numbers and whose precision
compensates most cancellation. Special values are those of C99's Annex G.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Final

from hloom.codegen.llvm import F32, F64, I1, Operand, Value
from hloom.codegen.vector_math.reals import Pair, Reals, quotient_of_sums

_FAR: Final = 2.0**500
"""Numbers beyond this, and below its reciprocal, are scaled before they are squared."""


def in_doubles(function: Callable[..., Pair]) -> Callable[..., Pair]:
    """Decorate a function of pairs of f64 so that it takes f32 too; its result has the operands' type.

    The function's argument ``single`` says that operands are f32 numbers, whose products neither overflow nor
    underflow in f64.
    """

    @wraps(function)
    def evaluated(*operands: Pair) -> Pair:
        if operands[0][0].type.scalar is F64:
            return function(*operands, single=False)
        real, imag = function(*map(widened, operands), single=True)
        return real.cast("fptrunc", F32), imag.cast("fptrunc", F32)

    return evaluated


def widened(z: Pair) -> Pair:
    """Convert a pair to f64."""
    return z[0].cast("fpext", F64), z[1].cast("fpext", F64)


def choose(condition: Value, yes: tuple[Operand, Operand], no: Pair) -> Pair:
    """Select ``yes`` if the condition holds, else ``no``."""
    return condition.select(yes[0], no[0]), condition.select(yes[1], no[1])


def is_infinite(r: Reals, *parts: Value) -> Value:
    """Return whether one of the parts is infinite."""
    infinite = [r.absolute(part).compare("oeq", math.inf) for part in parts]
    return infinite[0] if len(infinite) == 1 else infinite[0] | infinite[1]


def is_finite(r: Reals, part: Value) -> Value:
    """Return whether a part is neither infinite nor NaN."""
    return r.absolute(part).compare("olt", math.inf)


# -- product and quotient


def add(a: Pair, b: Pair) -> Pair:
    """Return the sum."""
    return a[0] + b[0], a[1] + b[1]


def subtract(a: Pair, b: Pair) -> Pair:
    """Return the difference."""
    return a[0] - b[0], a[1] - b[1]


def multiply(a: Pair, b: Pair) -> Pair:
    """Return (ac - bd) + (ad + bc) i, with each operation rounded."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


@in_doubles
def divide(numerator: Pair, denominator: Pair, *, single: bool) -> Pair:
    """Return (ac + bd) / (c² + d²) + (bc - ad) / (c² + d²) i; if that is NaN, the value of Annex G.5.1."""
    r = Reals(numerator[0])
    if single:
        quotient = _plain_quotient(numerator, denominator)
    else:
        (above, scale), (below, divisor_scale) = _normalized(r, numerator), _normalized(r, denominator)
        real, imag = _plain_quotient(above, below)
        difference = scale - divisor_scale
        quotient = r.scale_far(real, difference), r.scale_far(imag, difference)
    return _special_quotient(r, numerator, denominator, quotient)


def _plain_quotient(numerator: Pair, denominator: Pair) -> Pair:
    (a, b), (c, d) = numerator, denominator
    norm = c * c + d * d
    return (a * c + b * d) / norm, (b * c - a * d) / norm


def _normalized(r: Reals, z: Pair) -> tuple[Pair, Value]:
    """Return the parts scaled by the power of two that puts the larger one in [1/2, 1), and its exponent."""
    x, y = r.absolute(z[0]), r.absolute(z[1])
    # a part that is NaN does not count
    larger = (x.compare("ogt", y) | y.compare("uno", y)).select(x, y)
    tiny = larger.compare("olt", 2.0**-1022)
    field = r.bits(tiny.select(larger * 2.0**52, larger)).logical_shift_right(52)
    exponent = field - tiny.select(r.function.constant(r.integer, 1022 + 52), 1022)
    ordinary = larger.compare("ogt", 0.0) & larger.compare("olt", math.inf)
    exponent = ordinary.select(exponent, 0)
    return (r.scale_far(z[0], -exponent), r.scale_far(z[1], -exponent)), exponent


def _special_quotient(r: Reals, numerator: Pair, denominator: Pair, quotient: Pair) -> Pair:
    """Return the quotient; if both parts are NaN (rare, in a branch), the value of Annex G.5.1."""
    f = r.function
    undefined = quotient[0].compare("uno", quotient[0]) & quotient[1].compare("uno", quotient[1])
    places = [f.allocate(part.type) for part in quotient]
    for part, slot in zip(quotient, places, strict=True):
        f.store(part, slot)
    some = f.intrinsic("vector.reduce.or", undefined, result=I1) if undefined.type.lanes else undefined
    with f.when(some):
        defined = _defined_quotient(r, numerator, denominator, quotient, undefined)
        for part, slot in zip(defined, places, strict=True):
            f.store(part, slot)
    return f.load(quotient[0].type, places[0]), f.load(quotient[1].type, places[1])


def _defined_quotient(r: Reals, numerator: Pair, denominator: Pair, quotient: Pair, undefined: Value) -> Pair:
    """Return the quotient by 0, of infinity by a finite number, and of a finite number by infinity."""
    (a, b), (c, d) = numerator, denominator
    has_number = a.compare("ord", a) | b.compare("ord", b)
    by_zero = undefined & has_number & c.compare("oeq", 0.0) & d.compare("oeq", 0.0)
    above = undefined & is_infinite(r, a, b) & is_finite(r, c) & is_finite(r, d)
    below = undefined & is_infinite(r, c, d) & is_finite(r, a) & is_finite(r, b)
    p, q = _unit_of_infinity(r, a), _unit_of_infinity(r, b)
    defined = choose(above, ((p * c + q * d) * math.inf, (q * c - p * d) * math.inf), quotient)
    p, q = _unit_of_infinity(r, c), _unit_of_infinity(r, d)
    defined = choose(below, ((a * p + b * q) * 0.0, (b * p - a * q) * 0.0), defined)
    infinity = r.copysign(r.constant(math.inf), c)
    return choose(by_zero, (infinity * a, infinity * b), defined)


def _unit_of_infinity(r: Reals, part: Value) -> Value:
    """Return 1 for infinity and 0 otherwise, with the sign of the number."""
    return r.copysign(is_infinite(r, part).select(r.constant(1.0), 0.0), part)


# -- modulus and direction


def modulus(z: Pair) -> Value:
    """Return sqrt(x² + y²) without overflow; infinite if a part is, even if the other is NaN."""
    r = Reals(z[0])
    size = _exact_modulus_of(r, z) if r.is_double else _quick_modulus(r, z)
    return is_infinite(r, *z).select(math.inf, size)


def _exact_modulus_of(r: Reals, z: Pair) -> Value:
    scaled, factor = _moderate(r, z)
    return _exact_modulus(r, scaled) / factor


def _quick_modulus(r: Reals, z: Pair) -> Value:
    """Return the modulus to less than an ulp: the root halves the errors of the squares and their sum."""
    x, y = r.absolute(z[0]), r.absolute(z[1])
    larger = x.compare("ogt", y).select(x, y)
    large, small = larger.compare("ogt", 2.0**60), larger.compare("olt", 2.0**-40)
    down = large.select(2.0**-70, small.select(r.constant(2.0**100), 1.0))
    up = large.select(2.0**70, small.select(r.constant(2.0**-100), 1.0))
    x, y = x * down, y * down
    return r.sqrt(r.fma(x, x, y * y)) * up


def _moderate(r: Reals, z: Pair) -> tuple[Pair, Value]:
    """Scale a number so that its square is in range; return it and the factor: 2^-600, 1 or 2^600."""
    x, y = r.absolute(z[0]), r.absolute(z[1])
    larger = x.compare("ogt", y).select(x, y)
    large, small = larger.compare("ogt", _FAR), larger.compare("olt", 1 / _FAR)
    factor = large.select(2.0**-600, small.select(r.constant(2.0**600), 1.0))
    return (z[0] * factor, z[1] * factor), factor


def _times_root(r: Reals, z: Pair, factor: Value, sign: int) -> Pair:
    """Multiply a number by the root of a factor of `_moderate`, or divide it (sign -1)."""
    up, down = 2.0 ** (300 * sign), 2.0 ** (-300 * sign)
    root = factor.compare("oeq", 1.0).select(1.0, factor.compare("ogt", 1.0).select(r.constant(up), down))
    return z[0] * root, z[1] * root


def square_sum(r: Reals, z: Pair) -> Pair:
    """Return x² + y² and its error term."""
    x, y = r.absolute(z[0]), r.absolute(z[1])
    swapped = y.compare("ogt", x)
    larger, smaller = swapped.select(y, x), swapped.select(x, y)
    first, first_rest = r.two_product(larger, larger)
    second, second_rest = r.two_product(smaller, smaller)
    total, lost = r.fast_two_sum(first, second)
    return total, lost + (first_rest + second_rest)


def _exact_modulus(r: Reals, z: Pair) -> Value:
    """Return the root of the sum of squares, corrected by the error terms of sum and root."""
    root, short = _modulus_as_sum(r, z)
    return root + short


def _modulus_as_sum(r: Reals, z: Pair) -> Pair:
    return _root_as_sum(r, square_sum(r, z))


def _root_as_sum(r: Reals, x: Pair) -> Pair:
    """Return the root of a positive number; both are a value with an error term."""
    root = r.sqrt(x[0])
    short = (x[1] - r.product_rest(root, root, x[0])) / (root + root)
    return root, x[0].compare("oeq", 0.0).select(0.0, short)


@in_doubles
def sign(z: Pair, *, single: bool) -> Pair:
    """Return z / |z|; 0 for 0, and NaN in both parts if one is NaN."""
    r = Reals(z[0])
    scaled = z if single else _moderate(r, z)[0]
    size = _exact_modulus(r, scaled)
    size = is_infinite(r, *z).select(math.inf, size)
    nothing = z[0].compare("oeq", 0.0) & z[1].compare("oeq", 0.0)
    sign = choose(nothing, z, (scaled[0] / size, scaled[1] / size))
    return choose(z[0].compare("uno", z[1]), (math.nan, math.nan), sign)


# -- roots


@in_doubles
def square_root(z: Pair, *, single: bool) -> Pair:
    """Return the root whose real part is not negative."""
    r = Reals(z[0])
    scaled, factor = (z, None) if single else _moderate(r, z)
    t, _ = _half_angle(r, scaled)
    height = r.absolute(scaled[1])
    other = quotient_of_sums(r, (height, r.constant(0.0)), (t[0] + t[0], t[1] + t[1]))
    root = _in_half_plane(r, z, t[0] + t[1], t[0].compare("oeq", 0.0).select(0.0, other))
    if factor is not None:
        root = _times_root(r, root, factor, -1)
    return _endless_root(r, z, root)


def _half_angle(r: Reals, z: Pair) -> tuple[Pair, Pair]:
    """Return t = sqrt((|x| + |z|) / 2), the larger part of the root, and |z|, both with error terms."""
    size = _modulus_as_sum(r, z)
    total, lost = r.two_sum(r.absolute(z[0]), size[0])
    return _root_as_sum(r, (total * 0.5, (lost + size[1]) * 0.5)), size


def _in_half_plane(r: Reals, z: Pair, larger: Value, smaller: Value) -> Pair:
    """Return the root with these parts; the real part is the larger one unless z is in the left half."""
    negative = r.bits(z[0]).compare("slt", 0)
    return negative.select(smaller, larger), r.copysign(negative.select(larger, smaller), z[1])


def _endless_root(r: Reals, z: Pair, root: Pair) -> Pair:
    """Return the root; its value by Annex G where a part of z is infinite."""
    x, y = z
    # 0, or NaN if the imaginary part is NaN
    nothing = r.absolute(y - y)
    right = x.compare("ogt", 0.0)
    real = right.select(r.constant(math.inf), nothing)
    imag = r.copysign(right.select(nothing, math.inf), y)
    root = choose(is_infinite(r, x), (real, imag), root)
    return choose(is_infinite(r, y), (math.inf, y), root)


@in_doubles
def reciprocal_square_root(z: Pair, *, single: bool) -> Pair:
    """Return the conjugate of the root divided by the modulus; 0 at infinity, infinity at 0."""
    r = Reals(z[0])
    scaled, factor = (z, None) if single else _moderate(r, z)
    t, size = _half_angle(r, scaled)
    zero = r.constant(0.0)
    product, lost = r.two_product(t[0], size[0])
    lost = r.fma(t[0], size[1], r.fma(t[1], size[0], lost))
    other = quotient_of_sums(r, (r.absolute(scaled[1]), zero), (product + product, lost + lost))
    real, imag = _in_half_plane(r, z, quotient_of_sums(r, t, size), other)
    if factor is not None:
        real, imag = _times_root(r, (real, imag), factor, 1)
    root = _endless_root(r, z, (real, imag))
    endless = is_infinite(r, *z)
    real, imag = choose(endless, (r.copysign(zero, root[0]), r.copysign(zero, -root[1])), (real, -imag))
    nothing = z[0].compare("oeq", 0.0) & z[1].compare("oeq", 0.0)
    return nothing.select(math.inf, real), imag
