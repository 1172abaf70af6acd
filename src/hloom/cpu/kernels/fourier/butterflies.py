"""Butterflies: Fourier transforms of a few elements in registers, and radices of lengths.

Elements are pairs of vectors (real, imaginary). Longer transforms are Stockham passes of butterflies; see
Van Loan, Computational Frameworks for the Fast Fourier Transform (1992), section 1.7.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Sequence
from typing import Final, TypeAlias

from hloom.codegen.llvm import Function, Value

Pair: TypeAlias = tuple[Value, Value]
_POWERS: Final = {
    1: [2],
    2: [4],
    3: [8],
    4: [16],
    5: [8, 4],
    6: [8, 8],
    7: [16, 8],
    8: [16, 16],
    9: [8, 8, 8],
}
_HALF: Final = math.sqrt(0.5)


def radices(n: int, first: int = 0) -> list[int] | None:
    """Return the radices of the passes of a transform of ``n`` elements; None if a prime factor exceeds 43.

    ``first``, if not 0, is the required first radix; the result is also None if it does not divide ``n``.
    """
    if first:
        factors = radices(n // first) if n % first == 0 else None
        return None if factors is None else [first, *factors]
    exponent = 0
    while n % 2 == 0 and n:
        n, exponent = n // 2, exponent + 1
    radix_list: list[int] = []
    while exponent > 9:
        radix_list.append(16)
        exponent -= 4
    radix_list += _POWERS.get(exponent, [])
    for prime in (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43):
        while n % prime == 0 and n:
            radix_list.append(prime)
            n //= prime
    return radix_list if n == 1 else None


def add(a: Pair, b: Pair) -> Pair:
    """Emit the sum a + b of complex vectors."""
    return a[0] + b[0], a[1] + b[1]


def subtract(a: Pair, b: Pair) -> Pair:
    """Emit the difference a - b of complex vectors."""
    return a[0] - b[0], a[1] - b[1]


def minus_i(a: Pair) -> Pair:
    """Emit the product -i * a of a complex vector."""
    return a[1], -a[0]


def multiply(f: Function, a: Pair, w: Pair) -> Pair:
    """Emit the product a * w of complex vectors."""
    return f.fma(a[0], w[0], -(a[1] * w[1])), f.fma(a[0], w[1], a[1] * w[0])


def rotated(f: Function, a: Pair, numerator: int, denominator: int) -> Pair:
    """Emit the product a * exp(-2 pi i numerator / denominator) of a complex vector and a constant."""
    eighths, remainder = divmod(8 * numerator, denominator)
    if remainder == 0:
        quarter, half_step = divmod(eighths % 8, 2)
        if half_step:
            a = (a[0] + a[1]) * _HALF, (a[1] - a[0]) * _HALF
        for _ in range(quarter):
            a = minus_i(a)
        return a
    w = cmath.exp(-2j * math.pi * numerator / denominator)
    return f.fma(a[0], w.real, a[1] * -w.imag), f.fma(a[0], w.imag, a[1] * w.real)


def transform(f: Function, x: Sequence[Pair]) -> list[Pair]:
    """Emit the discrete Fourier transform of a few complex vectors; return its elements in natural order.

    Each lane has its own transform.
    """
    n = len(x)
    if n == 1:
        return list(x)
    if n == 2:
        return [add(x[0], x[1]), subtract(x[0], x[1])]
    if n == 4:
        return _four(x)
    if n % 2 == 0:
        return _composite(f, x, 4 if n % 4 == 0 and n > 8 else 2)
    return _odd(f, x)


def _four(x: Sequence[Pair]) -> list[Pair]:
    a, b = add(x[0], x[2]), subtract(x[0], x[2])
    c, d = add(x[1], x[3]), minus_i(subtract(x[1], x[3]))
    return [add(a, c), add(b, d), subtract(a, c), subtract(b, d)]


def _composite(f: Function, x: Sequence[Pair], first: int) -> list[Pair]:
    """Emit the transform of n = first * second elements, as transforms of columns, then of rows.

    The elements are multiplied by twiddle factors in between. Each lane has its own transform.
    """
    n = len(x)
    second = n // first
    columns = [transform(f, [x[j + first * k] for k in range(second)]) for j in range(first)]
    outputs: list[Pair | None] = [None] * n
    for k in range(second):
        row = transform(f, [rotated(f, columns[j][k], j * k, n) for j in range(first)])
        for j in range(first):
            outputs[k + second * j] = row[j]
    return [pair for pair in outputs if pair is not None]


def _odd(f: Function, x: Sequence[Pair]) -> list[Pair]:
    """Emit a transform of an odd number of elements, from sums and differences of x[k] and x[n - k]."""
    n = len(x)
    half = n // 2
    sums = [add(x[k], x[n - k]) for k in range(1, half + 1)]
    differences = [subtract(x[k], x[n - k]) for k in range(1, half + 1)]
    zeroth = x[0]
    for pair in sums:
        zeroth = add(zeroth, pair)
    outputs = [zeroth] * n

    def plus_scaled(total: Pair, pair: Pair, factor: float) -> Pair:
        return f.fma(pair[0], factor, total[0]), f.fma(pair[1], factor, total[1])

    for j in range(1, half + 1):
        total, odd = x[0], None
        for k in range(1, half + 1):
            angle = 2 * math.pi * (j * k % n) / n
            cosine, sine = math.cos(angle), math.sin(angle)
            total = plus_scaled(total, sums[k - 1], cosine)
            if odd is None:
                odd = (differences[0][0] * sine, differences[0][1] * sine)
            else:
                odd = plus_scaled(odd, differences[k - 1], sine)
        assert odd is not None
        turned = minus_i(odd)
        outputs[j], outputs[n - j] = add(total, turned), subtract(total, turned)
    return outputs
