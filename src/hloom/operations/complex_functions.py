"""Functions of complex numbers where numpy's are inexact or have other special values than C99's Annex G."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.ir.operation import Array


def compose(real: Any, imag: Any) -> Array:
    """The complex numbers with these parts, bit by bit."""
    real, imag = np.broadcast_arrays(real, imag)
    result = np.empty(real.shape, np.result_type(real, np.complex64))
    result.real = real
    result.imag = imag
    return result


def divide(numerator: Array, denominator: Array) -> Array:
    """The quotient of c128 numbers, scaled so that nothing overflows on the way (C99, Annex G.5.1)."""
    a, b, c, d = numerator.real, numerator.imag, denominator.real, denominator.imag
    exponent = np.frexp(np.maximum(np.abs(c), np.abs(d)))[1]
    c, d = np.ldexp(c, -exponent), np.ldexp(d, -exponent)
    norm = c * c + d * d
    x = np.ldexp((a * c + b * d) / norm, -exponent)
    y = np.ldexp((b * c - a * d) / norm, -exponent)
    return compose(x, y)


def modulus(operand: Array) -> Array:
    """The absolute value; infinite if a part is, even if the other is NaN."""
    return np.hypot(operand.real, operand.imag)


def sign(operand: Array) -> Array:
    """The number of modulus 1 in the same direction; 0 of 0."""
    size = modulus(operand)
    nan = np.isnan(operand.real) | np.isnan(operand.imag)
    direction = compose(operand.real / size, operand.imag / size)
    return np.where(nan, complex(np.nan, np.nan), np.where(size == 0, operand, direction))


def power(base: Array, exponent: Array) -> Array:
    """The power, by exp(exponent * log(base))."""
    return np.power(base, exponent)


def atan2(y: Array, x: Array) -> Array:
    """-i log((x + y i) / sqrt(x² + y²))."""
    return -1j * np.log((x + 1j * y) / np.sqrt(x * x + y * y))


def reciprocal_square_root(operand: Array) -> Array:
    """1 / sqrt(operand)."""
    return divide(np.ones_like(operand), np.sqrt(operand))


def logistic(operand: Array) -> Array:
    """1 / (1 + exp(-operand))."""
    return divide(np.ones_like(operand), 1 + np.exp(-operand))


def expm1(operand: Array) -> Array:
    """exp(operand) - 1."""
    return np.expm1(operand)


def log1p(operand: Array) -> Array:
    """log(1 + operand)."""
    return np.log1p(operand)
