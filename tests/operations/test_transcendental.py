"""Rounded functions of one number, against Python's math: all values of narrow types, samples of others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests import agreement
from tests.arrays import f32, f64
from tests.one_operation import FLOAT_TYPES, apply, every, nearest, numbers, same


def guarded(function: Callable[[float], float], poles: dict[float, float]) -> Callable[[float], float]:
    """A function of Python's math with IEEE 754's results where that raises: NaN, or the value at a pole."""

    def call(value: float) -> float:
        if value in poles:
            return math.copysign(poles[value], value) if value == 0 else poles[value]
        try:
            return function(value)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return call


def odd(function: Callable[[float], float]) -> Callable[[float], float]:
    """A function with f(-x) = -f(x), for overflow to the right side."""
    return lambda value: math.copysign(guarded(function, {})(abs(value)), value)


INF = math.inf
FUNCTIONS: dict[str, Callable[[float], float]] = {
    "sqrt": guarded(math.sqrt, {}),
    "cbrt": odd(math.cbrt),
    "exponential": guarded(math.exp, {}),
    "exponential-minus-one": guarded(math.expm1, {}),
    "exp2": guarded(math.exp2, {}),
    "log2": lambda v: guarded(math.log2, {})(v) if v else -INF,
    "log": lambda v: guarded(math.log, {})(v) if v else -INF,
    "log-plus-one": lambda v: guarded(math.log1p, {-1.0: -INF})(v),
    "logistic": lambda v: math.exp(v) / (1 + math.exp(v)) if v < 0 else 1 / (1 + math.exp(-v)),
    "sine": guarded(math.sin, {}),
    "cosine": guarded(math.cos, {}),
    "tan": guarded(math.tan, {}),
    "asin": guarded(math.asin, {}),
    "acos": guarded(math.acos, {}),
    "sinh": odd(math.sinh),
    "cosh": guarded(math.cosh, {}),
    "tanh": guarded(math.tanh, {}),
    "asinh": guarded(math.asinh, {}),
    "acosh": guarded(math.acosh, {}),
    "atanh": guarded(math.atanh, {1.0: INF, -1.0: -INF}),
    "erf": guarded(math.erf, {}),
    "erfc": guarded(math.erfc, {}),
    "rsqrt": lambda v: 1 / guarded(math.sqrt, {})(v) if v else math.copysign(INF, v),
}


def reference(opcode: str, values: Any) -> Any:
    return np.array([FUNCTIONS[opcode](v) for v in numbers(values).tolist()])


@pytest.mark.parametrize("opcode", FUNCTIONS)
@pytest.mark.parametrize("kind", FLOAT_TYPES)
def test_every_narrow_float_is_correctly_rounded(opcode: str, kind: str) -> None:
    values = every(kind)
    same(apply(opcode, values), nearest(reference(opcode, values), kind))


@pytest.mark.parametrize("opcode", FUNCTIONS)
def test_samples_of_f32_are_correctly_rounded(opcode: str) -> None:
    values = np.random.default_rng(1).integers(0, 2**32, 4000, np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        wanted = reference(opcode, values).astype(np.float32)
    same(apply(opcode, values), wanted)


@pytest.mark.parametrize("opcode", FUNCTIONS)
def test_samples_of_f64_err_by_few_units_of_the_last_place(opcode: str) -> None:
    generator = np.random.default_rng(2)
    values = np.concatenate([generator.normal(size=2000), 10.0 ** generator.uniform(-20, 20, 500)])
    got, wanted = apply(opcode, values), reference(opcode, values)
    agreement.equal(np.isnan(got), np.isnan(wanted))
    finite = np.isfinite(wanted)
    same(got[~finite], wanted[~finite])
    units = 4 if opcode == "cbrt" else 2  # some C libraries' cbrt errs by 3 units itself
    agreement.near(got[finite], wanted[finite], units)


def test_special_values() -> None:
    same(apply("rsqrt", f32([0, -0.0, np.inf, -1])), [np.inf, -np.inf, 0, np.nan])
    same(apply("sqrt", f32([-0.0, -1e-45, np.inf])), [-0.0, np.nan, np.inf])
    same(apply("cbrt", f32([-8, -0.0])), [-2, -0.0])
    same(apply("logistic", f32([-1000, 1000, 0, np.nan])), [0, 1, 0.5, np.nan])
    same(apply("log", apply("exponential", f32([89]))), [np.inf])


def test_small_results_keep_their_digits() -> None:
    tiny = f64([1e-300, -1e-300])
    same(apply("exponential-minus-one", tiny), tiny)
    same(apply("log-plus-one", tiny), tiny)
    agreement.near(apply("logistic", f64([-700])), [math.exp(-700)], 2)
