"""Errors and speeds of vector math: ``python -m benchmarks.vector_math > docs/vector-math.md``.

Errors are in units in the last place: of f32 against f64 arithmetic on millions of numbers, of f64 against
mpmath on tens of thousands. Speeds are elements per nanosecond on one core, with data in the L1 cache.
"""

from __future__ import annotations

import ctypes
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hloom.codegen.llvm import F32, F64, I64, PTR, Module, Type, Value
from hloom.codegen.target import host
from hloom.codegen.vector_math import (
    error_function,
    exponential,
    inverse_trigonometry,
    logarithm,
    power,
    remainder,
    roots,
    trigonometry,
)
from hloom.cpu.jit import llvm
from hloom.cpu.jit.loader import LoadedObject

Array = np.ndarray[Any, Any]
SINGLES, DOUBLES = 1 << 21, 1 << 14
TIMED, ROUNDS = 4096, 200


@dataclass(frozen=True)
class Function:
    """A function to measure.

    Attributes:
        name: the opcode.
        emit: the vector code.
        double: the function in f64 arithmetic, the reference for f32.
        exact: its name in mpmath, or a function of mpmath and the arguments.
        low, high: usual arguments.
    """

    name: str
    emit: Callable[..., Value]
    double: Callable[..., Any]
    exact: str | Callable[..., Any]
    low: float
    high: float
    arguments: int = 1


def logistic(x: Array) -> Array:
    """Return 1 / (1 + e^-x) without overflow."""
    decay = np.exp(-np.abs(x))
    return np.where(x < 0, decay, 1.0) / (1.0 + decay)


def erf(x: Array) -> Array:
    """Return the error function in f64."""
    from scipy.special import erf as of_scipy

    return of_scipy(x)


FUNCTIONS = (
    Function("exponential", exponential.exponential, np.exp, "exp", -100, 90),
    Function("exponential-minus-one", exponential.exponential_minus_one, np.expm1, "expm1", -20, 20),
    Function("log", logarithm.logarithm, np.log, "log", 0, 4),
    Function("log-plus-one", logarithm.logarithm_plus_one, np.log1p, "log1p", -1, 4),
    Function("logistic", exponential.logistic, logistic, lambda m, x: 1 / (1 + m.exp(-x)), -80, 80),
    Function("sine", trigonometry.sine, np.sin, "sin", -40, 40),
    Function("cosine", trigonometry.cosine, np.cos, "cos", -40, 40),
    Function("tan", trigonometry.tangent, np.tan, "tan", -40, 40),
    Function("asin", inverse_trigonometry.arc_sine, np.arcsin, "asin", -1, 1),
    Function("acos", inverse_trigonometry.arc_cosine, np.arccos, "acos", -1, 1),
    Function("sinh", exponential.sinh, np.sinh, "sinh", -20, 20),
    Function("cosh", exponential.cosh, np.cosh, "cosh", -20, 20),
    Function("tanh", exponential.tanh, np.tanh, "tanh", -9, 9),
    Function("asinh", logarithm.asinh, np.arcsinh, "asinh", -10, 10),
    Function("acosh", logarithm.acosh, np.arccosh, "acosh", 1, 10),
    Function("atanh", logarithm.atanh, np.arctanh, "atanh", -1, 1),
    Function("erf", error_function.error_function, erf, "erf", -5, 5),
    Function(
        "rsqrt", roots.reciprocal_square_root, lambda x: 1 / np.sqrt(x), lambda m, x: 1 / m.sqrt(x), 0, 10
    ),
    Function("cbrt", roots.cube_root, np.cbrt, lambda m, x: m.sign(x) * m.cbrt(abs(x)), -10, 10),
    Function("power", power.power, np.power, "power", 0.1, 10, 2),
    Function("atan2", inverse_trigonometry.arc_tangent, np.arctan2, "atan2", -10, 10, 2),
    Function("remainder", remainder.remainder, np.fmod, lambda m, x, y: m.mpf(math.fmod(x, y)), -100, 100, 2),
)


class Kernel:
    """A compiled loop over vectors."""

    def __init__(self, function: Function, element: Type, lanes: int) -> None:
        module = Module(host())
        f = module.function("kernel", [PTR] * (function.arguments + 1) + [I64, I64], internal=False)
        *sources, result, count, rounds = f.parameters
        with f.loop(0, rounds), f.loop(0, count, lanes) as loop:
            values = [f.load(element.vector(lanes), f.offset(p, loop.index, element)) for p in sources]
            before = f.size
            made = function.emit(*values)
            self.instructions = f.size - before
            f.store(made, f.offset(result, loop.index, element))
        f.finish()
        self._loaded = LoadedObject([llvm.generate_module(module)], {}.get, module.data)
        prototype = ctypes.CFUNCTYPE(
            None, *[ctypes.c_void_p] * len(f.parameters[:-2]), ctypes.c_int64, ctypes.c_int64
        )
        self._call = prototype(self._loaded.symbols["kernel"])

    def __call__(self, *arguments: Array, rounds: int = 1) -> Array:
        """Return the results for whole vectors."""
        made = np.empty_like(arguments[0])
        self._call(*[a.ctypes.data for a in arguments], made.ctypes.data, len(made), rounds)
        return made

    def speed(self, *arguments: Array) -> float:
        """Return the best measured elements per nanosecond."""
        best = float("inf")
        for _ in range(25):
            start = time.perf_counter()
            self(*arguments, rounds=ROUNDS)
            best = min(best, time.perf_counter() - start)
        return len(arguments[0]) * ROUNDS / best / 1e9


def arguments(function: Function, dtype: Any, count: int, seed: int = 0) -> list[Array]:
    """Return usual numbers, small ones of every magnitude, and random bit patterns."""
    generator = np.random.default_rng([seed, count])
    bits = np.dtype(f"u{np.dtype(dtype).itemsize}")
    found: list[Array] = []
    for _ in range(function.arguments):
        usual = generator.uniform(function.low, function.high, count // 2)
        small = generator.uniform(-1, 1, count // 4) * 10.0 ** generator.uniform(-9, 0, count // 4)
        patterns = generator.integers(0, np.iinfo(bits).max, count // 4, dtype=bits).view(dtype)
        found.append(np.concatenate([usual.astype(dtype), small.astype(dtype), patterns]))
    return found


def error_of_singles(function: Function) -> float:
    """Return the largest error of f32 results."""
    given = arguments(function, np.float32, SINGLES)
    with np.errstate(all="ignore"):
        got = Kernel(function, F32, 16)(*given).astype(np.float64)
        wanted = function.double(*[a.astype(np.float64) for a in given])
        size = np.maximum(np.abs(wanted.astype(np.float32)), np.finfo(np.float32).tiny)
        errors = np.abs(got - wanted) / np.spacing(size)
    return float(np.max(errors[np.isfinite(errors)]))


def error_of_doubles(function: Function) -> float:
    """Return the largest error of f64 results."""
    import mpmath

    given = arguments(function, np.float64, DOUBLES)
    got = Kernel(function, F64, 8)(*given)
    exact = function.exact
    evaluate = getattr(mpmath, exact) if isinstance(exact, str) else lambda *x: exact(mpmath, *x)
    largest = 0.0
    with (
        mpmath.workprec(1300 if function.name in ("sine", "cosine", "tan", "remainder") else 160),
        np.errstate(all="ignore"),
    ):
        near = function.double(*given)
        for number, result in enumerate(got):
            if np.isfinite(near[number]) and near[number] and np.isfinite(result):
                wanted = evaluate(*[mpmath.mpf(float(a[number])) for a in given])
                unit = float(np.spacing(max(abs(near[number]), np.finfo(np.float64).tiny)))
                largest = max(largest, float(abs(mpmath.mpf(float(result)) - wanted) / unit))
    return largest


def row(function: Function) -> str:
    """Return a line of the table."""
    speeds: list[str] = []
    for element, lanes, dtype in ((F32, 16, np.float32), (F32, 32, np.float32), (F64, 8, np.float64)):
        kernel = Kernel(function, element, lanes)
        generator = np.random.default_rng(1)
        low, high = max(function.low, -10.0), min(function.high, 10.0)
        given = [generator.uniform(low, high, TIMED).astype(dtype) for _ in range(function.arguments)]
        speeds.append(f"{kernel.speed(*given):.1f}")
    errors = f"{error_of_singles(function):.2f} | {error_of_doubles(function):.2f}"
    return f"| {function.name} | {errors} | {' | '.join(speeds)} |"


PAGE = """\
# Vector math

hloom has its own elementary functions: vector code without calls, written once in
`src/hloom/codegen/vector_math/` for f32 and f64, scalars and vectors of every length. Narrower floats go
through f32 and are rounded once. `python -m benchmarks.vector_math` measures this page's table.

- Errors are in units in the last place (ulp): the largest of {singles} f32 numbers against f64 arithmetic
  and of {doubles} f64 numbers against mpmath. Half of the numbers are usual ones, a quarter is small, a
  quarter is arbitrary patterns of bits. A correctly rounded result is at most 0.5 off.
- Speeds are elements a nanosecond on one core ({machine}), data in its first cache: vectors of 16 and of 32
  f32, and of 8 f64.
- Zeros, infinities, NaN and subnormal numbers come out as IEEE 754 and C99 want them; nothing is flushed.
- Of f32, asinh, acosh, atanh and the core of power are computed in f64.

| operation | f32 ulp | f64 ulp | f32 × 16 | f32 × 32 | f64 × 8 |
|---|---|---|---|---|---|
{rows}

sqrt is the instruction, correctly rounded. Angles are reduced exactly, however large: up to 10⁵ in f32 and
10⁹ in f64 by multiples of π/2 in three parts; a vector with larger ones takes a branch to code out of line.

Complex functions of c64 are computed in f64 and are nearly always correctly rounded in both parts. Those of
c128 are within 2.7 ulp of each part (sqrt and rsqrt 0.5; exponential, sine, cosine, tan, sinh, cosh, tanh
1.3), but for parts that nearly vanish: the real part of log next to the unit circle and those of
exponential-minus-one and logistic near their zeros are right to about 4 ulp of the modulus. Powers of c128
are off by about as many ulp as the logarithm of the result is large; small integral powers are products.

Targets without fused multiply-add, without an instruction that rounds, or without conversions of f16 have the
same functions from other instructions, with errors that are a little larger.
"""


def machine() -> str:
    """Return the processor's name."""
    with open("/proc/cpuinfo") as lines:
        return next(
            (line.split(":")[1].strip() for line in lines if line.startswith("model name")), "this machine"
        )


def main() -> None:
    """Print the page."""
    rows = [row(function) for function in FUNCTIONS if len(sys.argv) < 2 or function.name in sys.argv[1:]]
    print(PAGE.format(rows="\n".join(rows), singles=SINGLES, doubles=DOUBLES, machine=machine()), end="")


if __name__ == "__main__":
    main()
