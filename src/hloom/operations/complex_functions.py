"""Functions of complex numbers that numpy lacks or computes with avoidable error.

Special values are those of C99's Annex G. Formulas whose terms nearly cancel are evaluated in numpy's
extended precision, which on most machines has 64 mantissa bits and an exponent range in which no intermediate
result overflows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.ir.operation import Array


def compose(real: Any, imag: Any) -> Array:
    """Combine these parts bit by bit into complex numbers: c64 of f32, else c128."""
    real, imag = np.broadcast_arrays(real, imag)
    result: Array = np.empty(real.shape, np.complex64 if real.dtype == np.float32 else np.complex128)
    result.real = real
    result.imag = imag
    return result


def extended(operand: Array) -> Array:
    """Return the numbers in extended precision."""
    return operand.astype(np.clongdouble)


def divide(numerator: Array, denominator: Array) -> Array:
    """Return the quotient of c128 numbers.

    (ac + bd) / (c² + d²) + (bc - ad) / (c² + d²) i, with both numbers scaled by powers of two so that nothing
    overflows or vanishes on the way. Where that is NaN, zeros and infinities decide (C99, Annex G.5.1).
    """
    numerator, denominator = np.broadcast_arrays(numerator, denominator)
    a, b, scale = _scaled(numerator)
    c, d, divisor_scale = _scaled(denominator)
    norm = c * c + d * d
    scale = scale - divisor_scale
    real, imag = np.ldexp((a * c + b * d) / norm, scale), np.ldexp((b * c - a * d) / norm, scale)
    undefined = np.isnan(real) & np.isnan(imag)
    if undefined.any():
        for condition, x, y in _special_quotients(numerator, denominator):
            is_case = undefined & condition
            real, imag, undefined = (
                np.where(is_case, x, real),
                np.where(is_case, y, imag),
                undefined & ~is_case,
            )
    return compose(real, imag)


def _scaled(number: Array) -> tuple[Array, Array, Array]:
    """Return the parts over the power of two that makes the larger one about 1, and its exponent."""
    exponent = np.frexp(np.fmax(np.abs(number.real), np.abs(number.imag)))[1]
    return np.ldexp(number.real, -exponent), np.ldexp(number.imag, -exponent), exponent


def _special_quotients(numerator: Array, denominator: Array) -> list[tuple[Array, Array, Array]]:
    """Return (condition, quotient) pairs for division by 0, infinite dividends and infinite divisors."""
    a, b, c, d = numerator.real, numerator.imag, denominator.real, denominator.imag
    infinity = np.copysign(np.inf, c)
    by_zero = (c == 0) & (d == 0) & ~(np.isnan(a) & np.isnan(b))
    above = (np.isinf(a) | np.isinf(b)) & np.isfinite(c) & np.isfinite(d)
    p, q = _unit_of_infinity(a), _unit_of_infinity(b)
    below = (np.isinf(c) | np.isinf(d)) & np.isfinite(a) & np.isfinite(b)
    r, s = _unit_of_infinity(c), _unit_of_infinity(d)
    return [
        (by_zero, infinity * a, infinity * b),
        (above, np.inf * (p * c + q * d), np.inf * (q * c - p * d)),
        (below, 0.0 * (a * r + b * s), 0.0 * (b * r - a * s)),
    ]


def _unit_of_infinity(part: Array) -> Array:
    """Return ±1 for infinities and ±0 for everything else."""
    return np.copysign(np.isinf(part).astype(np.float64), part)


def modulus(operand: Array) -> Array:
    """Return the absolute value; infinite if a part is, even if the other is NaN."""
    return np.hypot(operand.real.astype(np.float64), operand.imag.astype(np.float64))


def sign(operand: Array) -> Array:
    """Return the number of modulus 1 with the same argument; 0 for 0."""
    size = np.abs(extended(operand))
    direction = compose(operand.real / size, operand.imag / size)
    undefined = np.isnan(operand.real) | np.isnan(operand.imag)
    return np.where(undefined, complex(np.nan, np.nan), np.where(size == 0, operand, direction))


def power(base: Array, exponent: Array) -> Array:
    """Return exp(exponent * log(base)), or the real power of real operands; 1 if the exponent is 0."""
    base, exponent = np.broadcast_arrays(base, exponent)
    result = np.power(extended(base), extended(exponent)).astype(np.complex128)
    # C's product of infinite numbers is infinite even where a part of it is not a number
    endless = np.exp(extended(exponent) * np.log(extended(base))).astype(np.complex128)
    result = np.where(np.isfinite(base) & np.isfinite(exponent) | (base == 0), result, endless)
    real = (base.imag == 0) & (base.real >= 0) & (exponent.imag == 0)
    result = np.where(real, compose(np.power(base.real, exponent.real), base.imag), result)
    return np.where(exponent == 1, base, np.where(exponent == 0, 1.0, result))


def atan2(y: Array, x: Array) -> Array:
    """Return -i log((x + y i) / sqrt(x² + y²)); the real angle for real operands.

    At the poles y = ±i x the modulus is infinite and the angle NaN.
    The logarithm determines the number of half turns. The digits come from half the angle between x + y i and
    x - y i, and from the ratio of their moduli, because the logarithm's terms nearly cancel.
    """
    y, x = np.broadcast_arrays(y, x)
    p, q = extended(x), extended(y)
    point, mirrored = _turned(p, q), _turned(p, -q)
    rough: Array = np.log(point / np.sqrt(p * p + q * q))
    half: Array = (
        np.arctan2(
            2 * (p.real * q.real + p.imag * q.imag),
            (p.real - q.imag) * (p.real + q.imag) + (p.imag - q.real) * (p.imag + q.real),
        )
        / 2
    )
    pi = 4 * np.arctan(np.longdouble(1))
    turns: Array = np.abs(np.rint((rough.imag - half) / pi))
    # a half turn goes to the side on which the angle is at most π
    angle = half - np.copysign(turns * pi, np.where(half > 0, 1, -1))
    difference = 4 * (p.imag * q.real - p.real * q.imag)
    smaller = np.where(difference < 0, _square(point), _square(mirrored))
    imag = -np.copysign(np.log1p(np.abs(difference) / smaller), difference) / 4
    finite = np.isfinite(angle) & np.isfinite(imag)
    result = compose(np.where(finite, angle, rough.imag), np.where(finite, imag, -rough.real))
    result = np.where((point == 0) | (mirrored == 0), compose(np.full_like(imag, np.nan), imag), result)
    real = (x.imag == 0) & (y.imag == 0)
    return np.where(real, compose(np.arctan2(y.real, x.real), y.imag), result)


def _turned(x: Array, y: Array) -> Array:
    """Return the number x + y i."""
    result: Array = np.empty_like(x)
    result.real, result.imag = x.real - y.imag, x.imag + y.real
    return result


def _square(operand: Array) -> Array:
    """Return the square of the modulus."""
    return operand.real * operand.real + operand.imag * operand.imag


def reciprocal_square_root(operand: Array) -> Array:
    """Return the conjugate of the root over the modulus; 0 at infinity, infinity at 0."""
    root: Array = np.sqrt(extended(operand))
    size = np.abs(extended(operand))
    real = np.where(np.isinf(size), np.copysign(0.0, root.real), root.real / size)
    imag = np.where(np.isinf(size), np.copysign(0.0, -root.imag), -root.imag / size)
    return compose(np.where(size == 0, np.inf, real), imag)


def logistic(operand: Array) -> Array:
    """Compute 1 / (1 + exp(-x)); for a negative real part, exp(x) / (exp(x) + 1).

    The imaginary part has the sign of the sine, also where it is 0; a real part that underflows has the sign
    of the cosine.
    """
    negative = operand.real < 0
    decay: Array = np.exp(np.where(negative, extended(operand), -extended(operand)))
    value: Array = (np.where(negative, decay, 1) / (1 + decay)).astype(np.complex128)
    real = np.where(negative & (value.real == 0), np.copysign(value.real, decay.real), value.real)
    return compose(real, np.copysign(value.imag, np.where(negative, decay.imag, -decay.imag)))


def expm1(operand: Array) -> Array:
    """Compute expm1(x) cos y - 2 sin²(y / 2) for the real part and exp(x) sin y for the imaginary part."""
    x, y = operand.real.astype(np.longdouble), operand.imag.astype(np.longdouble)
    half = np.sin(y / 2)
    real = np.expm1(x) * np.cos(y) - 2 * half * half
    imag = np.exp(x) * np.sin(y)
    plain = np.exp(operand) - 1
    finite = np.isfinite(operand.real) & np.isfinite(operand.imag)
    zero = operand.imag == 0
    return np.where(
        finite | zero,
        compose(np.where(zero, np.expm1(x), real), np.where(zero, operand.imag, imag)),
        plain,
    )


def log1p(operand: Array) -> Array:
    """Return log(1 + x + iy); near modulus 1 the real part is log1p(2x + x² + y²) / 2."""
    x, y = operand.real, operand.imag
    far: Array = np.log(compose(1 + x, y))
    near = np.hypot(1 + x, y)
    excess = sum_of_products((x, 2.0), (x, x), (y, y))
    real = np.where((near > 0.5) & (near < 2), 0.5 * np.log1p(excess), far.real)
    return compose(real, far.imag)


def sum_of_products(*pairs: tuple[Array, Any]) -> Array:
    """Return the sum of the products of f64 numbers with an error of about the square of the precision.

    Every product and every sum yields its rounding error too (Dekker, "A floating-point technique for
    extending the available precision", Numerische Mathematik 18, 1971).
    """
    total: Any = 0.0
    rest: Any = 0.0
    for a, b in pairs:
        product, error = _exact_product(a, np.asarray(b))
        new = total + product
        virtual = new - total
        rest = rest + error + ((total - (new - virtual)) + (product - virtual))
        total = new
    return total + rest


def _exact_product(a: Array, b: Array) -> tuple[Array, Array]:
    """Return a product and its rounding error."""
    product = a * b
    (high_a, low_a), (high_b, low_b) = _halves(a), _halves(b)
    return product, ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b


def _halves(number: Array) -> tuple[Array, Array]:
    """Split a number into a sum of two of half the precision."""
    scaled = number * 134217729.0
    high = scaled - (scaled - number)
    return high, number - high
