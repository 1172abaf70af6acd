"""Arithmetic on arrays of integers modulo the prime 2^61 - 1, in which programs are compared.

Two polynomials of degree d that are not equal have equal values at random arguments with a probability of at
most d / 2^61 (Schwartz 1980, Zippel 1979). Residues are uint64 numbers in [0, PRIME).
"""

from __future__ import annotations

import hashlib
from typing import Any, Final, TypeAlias

import numpy as np

PRIME: Final = (1 << 61) - 1
BITS: Final = 61
Residues: TypeAlias = "np.ndarray[Any, np.dtype[np.uint64]]"

_PRIME: Final = np.uint64(PRIME)
_WRAPPING: Final = np.errstate(over="ignore")
"""Numpy warns where scalars wrap, though not where elements of arrays do."""
ONE: Final[Residues] = np.ones((), np.uint64)
_LIMB: Final = 16
_LIMBS: Final = 4
_MOST_TERMS: Final = 1 << 20
"""Sums of so many products of two limbs are exact in f64."""


@_WRAPPING
def _folded(x: Residues) -> Residues:
    """Reduce numbers below 2^63."""
    x = (x & _PRIME) + (x >> np.uint64(BITS))
    return np.where(x >= _PRIME, x - _PRIME, x)


def add(a: Residues, b: Residues) -> Residues:
    """Return a + b."""
    return _folded(a + b)


@_WRAPPING
def negate(a: Residues) -> Residues:
    """Return -a."""
    return np.where(a == 0, a, _PRIME - a)


@_WRAPPING
def subtract(a: Residues, b: Residues) -> Residues:
    """Return a - b."""
    return _folded(a + (_PRIME - b))


@_WRAPPING
def multiply(a: Residues, b: Residues) -> Residues:
    """Return a * b, from products of halves of 31 and 30 bits: 2^61 = 1."""
    low, half = np.uint64((1 << 31) - 1), np.uint64(31)
    a_high, a_low, b_high, b_low = a >> half, a & low, b >> half, b & low
    middle = _folded(a_high * b_low + a_low * b_high)
    shifted = ((middle & np.uint64((1 << 30) - 1)) << half) + (middle >> np.uint64(30))
    return _folded(_folded(a_high * b_high * np.uint64(2) + a_low * b_low) + shifted)


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
    """Return 1 / a, and 0 for 0: of all elements from one inverse of their product."""
    flat = np.where(a == 0, np.uint64(1), a).reshape(-1)
    levels = [flat]
    while levels[-1].size > 1:
        level = levels[-1]
        if level.size % 2:
            level = levels[-1] = np.append(level, np.uint64(1))
        levels.append(multiply(level[0::2], level[1::2]))
    inverted = power(levels[-1], PRIME - 2)
    for level in reversed(levels[:-1]):
        inverted = np.repeat(inverted, 2)[: level.size]
        inverted = multiply(inverted, level.reshape(-1, 2)[:, ::-1].reshape(-1))
    return np.where(a == 0, np.uint64(0), inverted[: a.size].reshape(a.shape))


def total(a: Residues, axis: int = 0) -> Residues:
    """Return the sum along an axis."""
    low = np.asarray(np.sum(a & np.uint64(0xFFFFFFFF), axis=axis, dtype=np.uint64))
    high = np.asarray(np.sum(a >> np.uint64(32), axis=axis, dtype=np.uint64))
    return add(_folded(low), multiply(_folded(high), number(1 << 32)))


def product(a: Residues) -> Residues:
    """Return the product along axis 0."""
    while a.shape[0] > 1:
        even = a.shape[0] // 2 * 2
        a = np.concatenate([multiply(a[0:even:2], a[1:even:2]), a[even:]])
    return a[0] if a.shape[0] else np.ones(a.shape[1:], np.uint64)


def matmul(a: Residues, b: Residues) -> Residues:
    """Return the products of stacks of matrices, exactly: products of 16-bit limbs are sums in f64."""
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
            result = add(result, _folded((lefts[n] @ rights[weight - n]).astype(np.uint64)))
    return result


def _limbs(a: Residues) -> list[Any]:
    mask = np.uint64((1 << _LIMB) - 1)
    return [((a >> np.uint64(_LIMB * n)) & mask).astype(np.float64) for n in range(_LIMBS)]


def number(value: int) -> Residues:
    """Return a number in [0, PRIME)."""
    return np.asarray(value, np.uint64)


# -- random functions


@_WRAPPING
def mix(salt: int, *arrays: Residues) -> Residues:
    """Return a random function of some residues, chosen by the salt: the same for the same arguments."""
    state = np.uint64(salt & 0xFFFFFFFFFFFFFFFF)
    for array in arrays:
        state = _scrambled(np.bitwise_xor(array * np.uint64(0x9E3779B97F4A7C15), state))
    return _folded(np.asarray(_scrambled(state)) >> np.uint64(2))


def _scrambled(x: Any) -> Any:
    """Return a bijection of 64-bit numbers (the finalizer of SplitMix64)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (x ^ (x >> np.uint64(31))) + np.uint64(0x9E3779B97F4A7C15)


def salt_of(*words: object) -> int:
    """Return a number that depends on the text of some objects."""
    text = "\0".join(map(str, words)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def sequence(salt: int, a: Residues) -> Residues:
    """Return a random function of the sequences along axis 0."""
    steps = np.arange(a.shape[0], dtype=np.uint64).reshape(-1, *[1] * (a.ndim - 1))
    return total(mix(salt, a, np.broadcast_to(steps, a.shape)))


# -- numbers


@_WRAPPING
def of_integers(values: Any) -> Residues:
    """Return the residues of integers of any numpy type."""
    array = np.asarray(values)
    if array.dtype == np.uint64:
        return _folded(_folded(array & np.uint64((1 << 62) - 1)) + (array >> np.uint64(62)) * np.uint64(2))
    signed = array.astype(np.int64)
    return np.where(
        signed < 0, negate(_folded(np.abs(signed).astype(np.uint64))), _folded(signed.astype(np.uint64))
    )


def of_floats(values: Any) -> Residues:
    """Return the residues of the dyadic fractions m 2^e; infinities and NaN are random constants."""
    array = np.asarray(values).astype(np.float64)
    finite = np.isfinite(array)
    mantissa, exponent = np.frexp(np.where(finite, array, 0.0))
    integers = of_integers((mantissa * 2.0**53).astype(np.int64))
    residues = multiply(integers, _POWERS[(exponent.astype(np.int64) - 53) % BITS])
    special = np.where(np.isnan(array), _NAN, np.where(array > 0, _INFINITY, negate(_INFINITY)))
    return np.where(finite, residues, special)


_POWERS: Final = np.asarray([1 << n for n in range(BITS)], np.uint64)
_NAN: Final = mix(salt_of("nan"), np.zeros((), np.uint64))
_INFINITY: Final = mix(salt_of("infinity"), np.zeros((), np.uint64))
