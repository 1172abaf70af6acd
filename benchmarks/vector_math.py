"""Errors and speeds of vector math: ``python -m benchmarks.vector_math > docs/vector-math.md``.

Errors are those of `benchmarks.vector_math_errors`, in units in the last place. Speeds are elements per
nanosecond on one core, with data in the L1 cache.
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

from benchmarks.vector_math_errors import (
    COUNT,
    erf,
    erfc,
    largest_error,
    logistic,
    reciprocal_square_root,
)
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
TIMED, ROUNDS = 4096, 200


@dataclass(frozen=True)
class Function:
    """A function to measure.

    Attributes:
        name: the opcode.
        emit: the vector code.
        reference: the function in the precision of its argument.
        low, high: usual arguments.
    """

    name: str
    emit: Callable[..., Value]
    reference: Callable[..., Any]
    low: float
    high: float
    arguments: int = 1


FUNCTIONS = (
    Function("exponential", exponential.exponential, np.exp, -100, 90),
    Function("exp2", exponential.exponential_base_2, np.exp2, -140, 120),
    Function("exponential-minus-one", exponential.exponential_minus_one, np.expm1, -20, 20),
    Function("log", logarithm.logarithm, np.log, 0, 4),
    Function("log2", logarithm.logarithm_base_2, np.log2, 0, 4),
    Function("log-plus-one", logarithm.logarithm_plus_one, np.log1p, -1, 4),
    Function("logistic", exponential.logistic, logistic, -80, 80),
    Function("sine", trigonometry.sine, np.sin, -40, 40),
    Function("cosine", trigonometry.cosine, np.cos, -40, 40),
    Function("tan", trigonometry.tangent, np.tan, -40, 40),
    Function("asin", inverse_trigonometry.arc_sine, np.arcsin, -1, 1),
    Function("acos", inverse_trigonometry.arc_cosine, np.arccos, -1, 1),
    Function("sinh", exponential.sinh, np.sinh, -20, 20),
    Function("cosh", exponential.cosh, np.cosh, -20, 20),
    Function("tanh", exponential.tanh, np.tanh, -9, 9),
    Function("asinh", logarithm.asinh, np.arcsinh, -10, 10),
    Function("acosh", logarithm.acosh, np.arccosh, 1, 10),
    Function("atanh", logarithm.atanh, np.arctanh, -1, 1),
    Function("erf", error_function.error_function, erf, -5, 5),
    Function("erfc", error_function.complementary_error_function, erfc, -4, 9),
    Function("rsqrt", roots.reciprocal_square_root, reciprocal_square_root, 0, 10),
    Function("cbrt", roots.cube_root, np.cbrt, -10, 10),
    Function("power", power.power, np.power, 0.1, 10, 2),
    Function("atan2", inverse_trigonometry.arc_tangent, np.arctan2, -10, 10, 2),
    Function("remainder", remainder.remainder, np.fmod, -100, 100, 2),
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


def error_of_singles(function: Function, count: int = COUNT, seed: int = 0) -> float:
    """Return the largest error of f32 results."""
    return _error(function, Kernel(function, F32, 16), np.float32, count, seed)


def error_of_doubles(function: Function, count: int = COUNT, seed: int = 0) -> float:
    """Return the largest error of f64 results."""
    return _error(function, Kernel(function, F64, 8), np.float64, count, seed)


def _error(function: Function, kernel: Kernel, dtype: Any, count: int, seed: int) -> float:
    def padded(*arguments: Array) -> Array:
        """Return the results for any number of elements; a kernel takes whole vectors."""
        rest = -len(arguments[0]) % 16
        return kernel(*[np.pad(a, (0, rest), mode="edge") for a in arguments])[: len(arguments[0])]

    limits = (function.low, function.high)
    return largest_error(padded, function.reference, dtype, limits, function.arguments, count, seed)


def bound(error: float) -> str:
    """Return a bound for the table: 10 % above the largest error, rounded up to 2 digits."""
    return f"{math.ceil(error * 110 - 1e-9) / 100:.2f}"


def row(function: Function) -> str:
    """Return a line of the table."""
    speeds: list[str] = []
    for element, lanes, dtype in ((F32, 16, np.float32), (F32, 32, np.float32), (F64, 8, np.float64)):
        kernel = Kernel(function, element, lanes)
        generator = np.random.default_rng(1)
        low, high = max(function.low, -10.0), min(function.high, 10.0)
        given = [generator.uniform(low, high, TIMED).astype(dtype) for _ in range(function.arguments)]
        speeds.append(f"{kernel.speed(*given):.1f}")
    errors = f"{bound(error_of_singles(function))} | {bound(error_of_doubles(function))}"
    return f"| {function.name} | {errors} | {' | '.join(speeds)} |"


PAGE = """\
# Vector math

hloom emits elementary functions as vector code without calls. `src/hloom/codegen/vector_math/` has one
definition of each for f32 and f64, scalars and vectors of every length. Narrower floats are converted to f32,
and the result is rounded once. `python -m benchmarks.vector_math` prints this page.

- Errors are bounds in units in the last place (ulp): 10 % above the largest error that
  `python -m benchmarks.vector_math_errors --count 3000000` finds, of f32 against f64 arithmetic and of f64
  against x86's extended format. The numbers are usual ones, small ones, ones near those where terms cancel or
  results overflow, ones of every exponent and random bit patterns; then those next to the worst ones, four
  times. Other seeds stay below the bounds. A correctly rounded result has an error of at most 0.5 ulp.
- Speeds are elements per nanosecond on one core ({machine}), with data in the L1 cache: vectors of 16 and of
  32 f32, and of 8 f64.
- Results for zeros, infinities, NaN and subnormal numbers follow IEEE 754 and C99; nothing is flushed to
  zero.
- Of f32, asinh, acosh, atanh and the core of power are computed in f64.

| operation | f32 ulp | f64 ulp | f32 × 16 | f32 × 32 | f64 × 8 |
|---|---|---|---|---|---|
{rows}

sqrt is the instruction, correctly rounded; rsqrt is a division by it without AVX-512, and 1.1 ulp with it.
Argument reduction is exact for all angles: up to 10⁵ in f32 and 10⁹ in f64 by multiples of π/2 in three
parts; a vector with larger ones takes a branch to code out of line.

Complex functions of c64 are computed in f64 and are nearly always correctly rounded in both parts. Those of
c128 are within 2.7 ulp of each part (sqrt and rsqrt 0.5; exponential, sine, cosine, tan, sinh, cosh, tanh
1.3), but for parts that nearly vanish: the real part of log next to the unit circle and those of
exponential-minus-one and logistic near their zeros are right to about 4 ulp of the modulus. Powers of c128
are off by about as many ulp as the logarithm of the result is large; small integral powers are products.

Targets without fused multiply-add, a rounding instruction, or f16 conversions get the same functions from
other instructions, with slightly larger errors.
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
    print(PAGE.format(rows="\n".join(rows), machine=machine()), end="")


if __name__ == "__main__":
    main()
