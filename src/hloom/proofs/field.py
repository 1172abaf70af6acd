"""Arithmetic on arrays of integers modulo a prime of 61 bits, in which programs are compared.

Two polynomials of degree d that are not equal have equal values at random arguments with a probability of at
most d / PRIME (Schwartz 1980, Zippel 1979). Residues are uint64 numbers in [0, PRIME).

The prime was drawn at random, so that it divides no difference of the constants of programs. Modulo 2^61 - 1
arithmetic is a little faster, but 2^61 is 1, the largest s64 is 3, and two shifts by 61 bits
in all are none.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np

PRIME: Final = 2303315389096541087
BITS: Final = 60
"""PRIME exceeds 2**BITS, and is less than twice that."""
Residues: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"

_PRIME: Final = np.uint64(PRIME)
_INVERSE: Final = (1 - 2.0**-50) / PRIME
_HALF: Final = np.uint64(31)
_LOW_HALF: Final = np.uint64((1 << 31) - 1)
_WRAPPING: Final = np.errstate(over="ignore")
"""Numpy warns where scalars wrap, though not where elements of arrays do."""
ONE: Final[Residues] = np.ones((), np.uint64)
_LIMB: Final = 21
_LIMBS: Final = 3
_BLOCK: Final = 1 << 14
"""Number of elements of a block of large arrays."""
_MOST_TERMS: Final = 1 << 11
"""Sums of so many products of two limbs are exact in f64."""


@_WRAPPING
def _folded(x: Residues) -> Residues:
    """Return x modulo the prime, for x below twice the prime.

    Where x < PRIME, x - PRIME wraps to a larger number than x.
    """
    return np.minimum(x, x - _PRIME)


def add(a: Residues, b: Residues) -> Residues:
    """Return a + b."""
    return _folded(a + b)


def _in_blocks(function: Callable[..., Residues], *arrays: Residues) -> Residues:
    """Return an elementwise function of arrays, computed block by block to stay in the cache."""
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    size = math.prod(shape)
    if size <= 2 * _BLOCK:
        return function(*arrays)
    flat = [a if not a.ndim else np.broadcast_to(a, shape).reshape(-1) for a in arrays]
    result = np.empty(size, np.uint64)
    for start in range(0, size, _BLOCK):
        block = slice(start, start + _BLOCK)
        result[block] = function(*(a[block] if a.ndim else a for a in flat))
    return result.reshape(shape)


@_WRAPPING
def negate(a: Residues) -> Residues:
    """Return -a."""
    return np.where(a == 0, a, _PRIME - a)


@_WRAPPING
def subtract(a: Residues, b: Residues) -> Residues:
    """Return a - b."""
    return _folded(a + (_PRIME - b))


def multiply(a: Residues, b: Residues) -> Residues:
    """Return a * b."""
    return _in_blocks(_multiplied, a, b)


def _multiplied(a: Residues, b: Residues) -> Residues:
    """Return a * b modulo the prime: b times the two halves, of 31 bits, of a."""
    high = _scaled(_scaled(b, a >> _HALF), number(1 << 31))
    return _folded(_folded(_folded(high) + _folded(_scaled(b, a & _LOW_HALF))))


@_WRAPPING
def _scaled(x: Residues, factor: Residues) -> Residues:
    """Return x * factor modulo the prime, or this plus the prime, for x < 2^62 and factor < 2^32.

    The quotient by the prime is computed in f64: it is too small by one at most, as its error is below 2^-16.
    """
    quotient = (x.astype(np.float64) * (factor.astype(np.float64) * _INVERSE)).astype(np.uint64)
    return x * factor - quotient * _PRIME


def power(a: Residues, exponent: int) -> Residues:
    """Return a to the power of an integer; 1 / a for -1."""
    if exponent < 0:
        a, exponent = inverse(a), -exponent
    result = np.ones_like(a)
    while exponent:
        if exponent & 1:
            result = multiply(result, a)
        exponent >>= 1
        if exponent:
            a = multiply(a, a)
    return result


def inverse(a: Residues) -> Residues:
    """Return 1 / a, and 0 where a is 0. Only the product of all elements is inverted."""
    flat = np.where(a == 0, np.uint64(1), a).reshape(-1)
    levels = [flat]
    while levels[-1].size > 1:
        level = levels[-1]
        if level.size % 2:
            level = levels[-1] = np.append(level, np.uint64(1))
        levels.append(multiply(level[0::2], level[1::2]))
    inverted = np.asarray([pow(x, -1, PRIME) for x in levels[-1].tolist()], np.uint64)
    for level in reversed(levels[:-1]):
        inverted = np.repeat(inverted, 2)[: level.size]
        inverted = multiply(inverted, level.reshape(-1, 2)[:, ::-1].reshape(-1))
    return np.where(a == 0, np.uint64(0), inverted[: a.size].reshape(a.shape))


def total(a: Residues, axis: int = 0) -> Residues:
    """Return the sum along an axis."""
    low = np.asarray(np.sum(a & _LOW_HALF, axis=axis, dtype=np.uint64))
    high = np.asarray(np.sum(a >> _HALF, axis=axis, dtype=np.uint64))
    return add(low % _PRIME, multiply(high % _PRIME, number(1 << 31)))


def product(a: Residues) -> Residues:
    """Return the product along axis 0."""
    while a.shape[0] > 1:
        even = a.shape[0] // 2 * 2
        a = np.concatenate([multiply(a[0:even:2], a[1:even:2]), a[even:]])
    return a[0] if a.shape[0] else np.ones(a.shape[1:], np.uint64)


def matmul(a: Residues, b: Residues) -> Residues:
    """Return the products of stacks of matrices, exactly: products of 21-bit limbs are sums in f64."""
    if a.shape[-1] > _MOST_TERMS:
        half = a.shape[-1] // 2
        return add(
            matmul(a[..., :half], b[..., :half, :]),
            matmul(a[..., half:], b[..., half:, :]),
        )
    lefts, rights = _limbs(a), _limbs(b)
    result = np.zeros((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), np.uint64)
    for weight in reversed(range(2 * _LIMBS - 1)):
        result = multiply(result, number(1 << _LIMB))
        for n in range(max(0, weight - _LIMBS + 1), min(weight, _LIMBS - 1) + 1):
            result = add(result, (lefts[n] @ rights[weight - n]).astype(np.uint64))
    return result


def _limbs(a: Residues) -> list[Any]:
    mask = np.uint64((1 << _LIMB) - 1)
    return [((a >> np.uint64(_LIMB * n)) & mask).astype(np.float64) for n in range(_LIMBS)]


def number(value: int) -> Residues:
    """Return a number in [0, PRIME)."""
    return np.asarray(value, np.uint64)


# -- random functions


def mix(salt: int, *arrays: Residues) -> Residues:
    """Return a random function of the elements of some arrays; the salt chooses the function."""
    return _in_blocks(partial(_mixed, np.uint64(salt & 0xFFFFFFFFFFFFFFFF)), *arrays)


@_WRAPPING
def _mixed(state: Any, *arrays: Residues) -> Residues:
    for array in arrays:
        state = _scrambled(np.bitwise_xor(array * np.uint64(0x9E3779B97F4A7C15), state))
    return _folded(np.asarray(_scrambled(state)) >> np.uint64(3))


def _scrambled(x: Any) -> Any:
    """Return a bijection of 64-bit numbers (the finalizer of SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (x ^ (x >> np.uint64(31))) + np.uint64(0x9E3779B97F4A7C15)


def salt_of(*words: object) -> int:
    """Return a hash, of 64 bits, of the texts of some objects."""
    text = "\0".join(map(str, words)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def sequence(salt: int, a: Residues) -> Residues:
    """Return, for each line along axis 0, a random function of its elements in order."""
    steps = np.arange(a.shape[0], dtype=np.uint64).reshape(-1, *[1] * (a.ndim - 1))
    return total(mix(salt, a, np.broadcast_to(steps, a.shape)))


# -- numbers


def of_integers(values: Any) -> Residues:
    """Return the residues of integers of any numpy type."""
    array = np.asarray(values)
    if array.dtype == np.uint64:
        return array % _PRIME
    return (array.astype(np.int64) % np.int64(PRIME)).astype(np.uint64)


def of_floats(values: Any) -> Residues:
    """Return the residues of floats, exact fractions m 2^e.

    Those of infinities and NaN are random numbers.
    """
    array = np.asarray(values).astype(np.float64)
    finite = np.isfinite(array)
    mantissa, exponent = np.frexp(np.where(finite, array, 0.0))
    integers = of_integers((mantissa * 2.0**53).astype(np.int64))
    residues = multiply(integers, _POWERS[exponent.astype(np.int64) - _SMALLEST_EXPONENT])
    special = np.where(np.isnan(array), _NAN, np.where(array > 0, INFINITY, negate(INFINITY)))
    return np.where(finite, residues, special)


_SMALLEST_EXPONENT: Final = -1073
_POWERS: Final = np.asarray([pow(2, n - 53, PRIME) for n in range(_SMALLEST_EXPONENT, 1025)], np.uint64)
"""The powers of 2 by which integers of 53 bits are multiplied, from that of the smallest subnormal number."""
_NAN: Final = mix(salt_of("nan"), np.zeros((), np.uint64))
INFINITY: Final = mix(salt_of("infinity"), np.zeros((), np.uint64))
