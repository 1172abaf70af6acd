"""Largest errors of vector math: ``python -m benchmarks.vector_math_errors [--count N] [--seed S] [NAME]``.

Prints the largest error of each function in units in the last place (ulp), f32 and f64, over N drawn numbers
and neighbours of those with the largest errors. The reference of f32 is f64 arithmetic, that of f64 x86's
extended format of 64-bit significands, whose own errors are below 0.02 ulp of f64.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Function = Callable[..., Array]

COUNT = 3_000_000
"""Numbers drawn for each function."""
CLIMBS, KEPT = 4, 2048
"""Rounds of search around the numbers with the largest errors, and how many of these are kept."""
EXTENDED = np.longdouble
PART = 1 << 18
"""Numbers whose errors are computed at once."""


def erf(x: Array) -> Array:
    """Return erf(x) = 2/√π e^-x² Σ 2^n x^(2n+1) / (2n+1)!! in extended precision; every term is positive."""
    size = np.minimum(np.abs(x), EXTENDED(6.5))
    head = size.astype(np.float32).astype(EXTENDED)  # its square is exact
    decay = np.exp(-head * head) * np.exp(-(size - head) * (size + head))
    square, term = 2 * size * size, size.copy()
    total = term.copy()
    for n in range(1, 160):
        term = term * square / EXTENDED(2 * n + 1)
        total += term
    two_over_root_pi = 2 / np.sqrt(np.arctan2(EXTENDED(0), EXTENDED(-1)))
    return np.copysign(two_over_root_pi * decay * total, x)


def erfc(x: Array) -> Array:
    """Return erfc(x) in the precision of x: 1 - erf(x) up to 1, beyond it by a continued fraction."""
    size = np.clip(np.abs(x), 1, 30)
    head = size.astype(np.float16).astype(x.dtype)  # its square is exact
    decay = np.exp(-head * head) * np.exp(-(size - head) * (size + head))
    fraction = size
    for n in range(300, 0, -1):
        fraction = size + x.dtype.type(n) / 2 / fraction
    far = decay / fraction / np.sqrt(np.arctan2(x.dtype.type(0), x.dtype.type(-1)))
    near = 1 - erf(x.astype(EXTENDED)).astype(x.dtype)
    return np.where(np.abs(x) < 1, near, np.where(x < 0, 2 - far, far))


def logistic(x: Array) -> Array:
    """Return 1 / (1 + e^-x) without overflow, in the precision of x."""
    decay = np.exp(-np.abs(x))
    return np.where(x < 0, decay, 1) / (1 + decay)


def reciprocal_square_root(x: Array) -> Array:
    """Return 1 / √x in the precision of x."""
    return 1 / np.sqrt(x)


SPECIAL = (0.0, 1.0, 0.5, 2.0, np.pi / 2, np.pi, np.e, 0.3466, 0.6931, 0.3333, 1.5, 20.0, 88.7, 709.7, 745.0)
"""Numbers near which terms cancel, formulas change, or results overflow."""


def drawn(
    dtype: type[np.floating[Any]], count: int, limits: tuple[float, float], arguments: int, seed: int
) -> list[Array]:
    """Return arguments: usual, small, near special numbers, of every exponent, and random bit patterns."""
    random = np.random.default_rng([seed, count])
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    part = count // 5
    found: list[Array] = []
    for _ in range(arguments):
        usual = random.uniform(*limits, part)
        small = random.uniform(-1, 1, part) * 10.0 ** random.uniform(-9, 0, part)
        sign = random.choice([-1.0, 1.0], part)
        near = sign * random.choice(SPECIAL, part) + random.uniform(-1, 1, part) * 2.0 ** -random.uniform(
            0, 60, part
        )
        scaled = sign * random.uniform(1, 2, part) * 2.0 ** random.uniform(-30, 10, part)
        patterns = random.integers(0, np.iinfo(bits).max, count - 4 * part, dtype=bits).view(dtype)
        parts = [each.astype(dtype) for each in (usual, small, near, scaled)]
        found.append(random.permutation(np.concatenate([*parts, patterns])))
    return found


def errors(computed: Function, reference: Function, given: Sequence[Array]) -> Array:
    """Return the errors of computed results in ulp; 0 where the result is not finite."""
    dtype = given[0].dtype
    wide = EXTENDED if dtype == np.float64 else np.float64
    found: list[Array] = []
    with np.errstate(all="ignore"):
        for first in range(0, len(given[0]), PART):
            arguments = [np.ascontiguousarray(a[first : first + PART]) for a in given]
            got = computed(*arguments)
            wanted = reference(*[a.astype(wide) for a in arguments])
            rounded = wanted.astype(dtype)
            unit = np.spacing(np.maximum(np.abs(rounded), np.finfo(dtype).tiny)).astype(wide)
            error = (np.abs(got.astype(wide) - wanted) / unit).astype(np.float64)
            valid = np.isfinite(got) & np.isfinite(rounded) & np.isfinite(error)
            found.append(np.where(valid, error, 0.0))
    return np.concatenate(found)


def largest_error(
    computed: Function, reference: Function, dtype: type[np.floating[Any]], limits: tuple[float, float],
    arguments: int = 1, count: int = COUNT, seed: int = 0,
) -> float:  # fmt: skip
    """Return the largest error in ulp among drawn numbers and neighbours of the worst of them."""
    if np.finfo(EXTENDED).nmant < 63:
        raise SystemExit("numpy's longdouble has no 64-bit significand on this machine")
    random = np.random.default_rng([seed, 1])
    given = drawn(dtype, count, limits, arguments, seed)
    found = errors(computed, reference, given)
    largest = float(found.max())
    bits = np.dtype(f"i{np.dtype(dtype).itemsize}")
    for spread in range(CLIMBS):
        worst = np.argsort(found)[-KEPT:]
        repeated = [np.repeat(a[worst], 32) for a in given]
        reach = 1 << (8 * bits.itemsize // 2 - 6 * spread if bits.itemsize == 8 else 14 - 3 * spread)
        moved = [
            (a.view(bits) + random.integers(-reach, reach, a.size, dtype=bits)).view(dtype) for a in repeated
        ]
        given, found = moved, errors(computed, reference, moved)
        largest = max(largest, float(found.max()))
    return largest


def main() -> None:
    """Print the errors of all functions, or of those that are named."""
    from benchmarks.vector_math import FUNCTIONS, error_of_doubles, error_of_singles

    parser = argparse.ArgumentParser(prog="python -m benchmarks.vector_math_errors", description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for function in FUNCTIONS:
        if not options.names or function.name in options.names:
            singles = error_of_singles(function, options.count, options.seed)
            doubles = error_of_doubles(function, options.count, options.seed)
            print(f"{function.name:24} {singles:8.3f} {doubles:8.3f}", flush=True)


if __name__ == "__main__":
    main()
