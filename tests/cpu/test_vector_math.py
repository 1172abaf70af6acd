"""Vector math against exact values: errors, special values, huge and tiny arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from tests import agreement
from tests.compiled_operation import TARGETS, case, compiled, run_compiled
from tests.one_operation import apply, every, numbers
from tests.samples import sample, steps_off

Array = np.ndarray[Any, Any]
LARGEST_ERROR = 2.0
"""In units of the last place."""


def _logistic(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], float, float]] = {
    # the exact function, and a range of arguments to look at closely
    "exponential": (mpmath.exp, -100, 90),
    "exponential-minus-one": (mpmath.expm1, -20, 20),
    "exp2": (lambda x: mpmath.power(2, x), -150, 130),
    "log": (mpmath.log, 0, 3),
    "log2": (lambda x: mpmath.log(x, 2) if x else -mpmath.inf, 0, 3),
    "log-plus-one": (mpmath.log1p, -1, 3),
    "logistic": (_logistic, -90, 90),
    "sine": (mpmath.sin, -50, 50),
    "cosine": (mpmath.cos, -50, 50),
    "tan": (mpmath.tan, -10, 10),
    "asin": (mpmath.asin, -1, 1),
    "acos": (mpmath.acos, -1, 1),
    "sinh": (mpmath.sinh, -20, 20),
    "cosh": (mpmath.cosh, -20, 20),
    "tanh": (mpmath.tanh, -10, 10),
    "asinh": (mpmath.asinh, -10, 10),
    "acosh": (mpmath.acosh, 1, 10),
    "atanh": (mpmath.atanh, -1, 1),
    "erf": (mpmath.erf, -6, 6),
    "erfc": (lambda x: mpmath.erfc(x) if x < 1000 else mpmath.mpf(0), -6, 11),  # mpmath's overflows
    "sqrt": (mpmath.sqrt, 0, 10),
    "rsqrt": (lambda x: 1 / mpmath.sqrt(x) if x else mpmath.inf, 0, 10),
    "cbrt": (lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), -10, 10),
}


FUNCTIONS_OF_TWO = ("power", "atan2", "remainder")


def arguments(opcode: str, name: str, count: int = 150) -> Array:
    """Numbers from the range of interest, densely near 0, and from everywhere."""
    _, low, high = FUNCTIONS[opcode]
    generator = np.random.default_rng(len(opcode))
    near = generator.uniform(low, high, count)
    small = generator.uniform(-1, 1, count) * 10.0 ** generator.uniform(-12, 0, count)
    anywhere = sample(name, count)
    return np.concatenate(
        [near.astype(name[0] + str(int(name[1:]) // 8)), small.astype(anywhere.dtype), anywhere]
    )


def error(x: Any, got: Any, exact: Callable[[Any], Any]) -> float:
    """The error of one result in units of the last place; 0 where there is no finite exact value."""
    if not np.isfinite(x):
        return 0.0
    wanted = exact(mpmath.mpf(float(x)))
    limits = np.finfo(got.dtype)
    if isinstance(wanted, mpmath.mpc) or not mpmath.isfinite(wanted) or abs(wanted) > limits.max:
        return 0.0
    unit = float(np.spacing(max(abs(got.dtype.type(float(wanted))), limits.tiny)))
    return float(abs(mpmath.mpf(float(got)) - wanted) / unit)


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("opcode", FUNCTIONS)
def test_error_in_units_of_the_last_place(opcode: str, name: str) -> None:
    x = arguments(opcode, name)
    got = compiled(opcode, x)
    with mpmath.workprec(1200 if opcode in ("sine", "cosine", "tan") else 200):
        errors = [error(a, b, FUNCTIONS[opcode][0]) for a, b in zip(x, got, strict=True)]
    worst = int(np.argmax(errors))
    assert errors[worst] <= LARGEST_ERROR, (x[worst], got[worst])


@pytest.mark.parametrize("opcode", FUNCTIONS)
def test_special_values(opcode: str) -> None:
    """Signs of zeros, infinities, NaN, subnormal numbers, ends of domains: as the evaluator has them."""
    for name in ("f32", "f64"):
        x = np.concatenate([sample(name, 2000), np.array([1, -1, 0.0, -0.0], sample(name).dtype)])
        off = steps_off(compiled(opcode, x), apply(opcode, x))
        assert off.max() <= LARGEST_ERROR + 1, x[np.argmax(off)]
        zeros = np.array([0.0, -0.0], x.dtype)
        got, wanted = compiled(opcode, zeros), apply(opcode, zeros)
        defined = ~np.isnan(wanted)
        agreement.equal(np.signbit(got[defined]), np.signbit(wanted[defined]))


@pytest.mark.parametrize("opcode", FUNCTIONS)
def test_every_number_of_16_bits(opcode: str) -> None:
    """Rounded from f32: only what is nearly halfway between two numbers may fall to the other side."""
    for name in ("f16", "bf16"):
        x = every(name)
        got, wanted = compiled(opcode, x, lanes=16), apply(opcode, x)
        same = (numbers(got) == numbers(wanted)) | (np.isnan(numbers(got)) & np.isnan(numbers(wanted)))
        apart = np.abs(got.view(np.int16).astype(int) - wanted.view(np.int16).astype(int))
        assert np.count_nonzero(~same) <= 24
        assert apart[~same].max(initial=0) <= 1


@pytest.mark.parametrize("target", TARGETS)
def test_other_targets(target: str) -> None:
    """Without AVX-512, without fused multiply-add, without an instruction that rounds."""
    for name in ("f32", "f64"):
        cases = [case(opcode, arguments(opcode, name)) for opcode in FUNCTIONS]
        x, y = two_arguments(name)
        cases += [case(opcode, x, y) for opcode in FUNCTIONS_OF_TWO]
        for one, got in zip(cases, run_compiled(cases, 4, TARGETS[target]), strict=True):
            off = steps_off(got, one.evaluated())
            allowed = 0 if one.opcode == "remainder" else LARGEST_ERROR + 1
            assert off.max() <= allowed, (one.opcode, *(o[np.argmax(off)] for o in one.operands))


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_huge_angles(name: str) -> None:
    """Reduced with as many bits of π as it takes, also where an angle is next to a multiple of π/2."""
    near_multiples = [6381956970095103 * 2.0**797, 5.319372648326541e255, 1e22, 2.0**120, 1e6, 355.0, 1e300]
    x = np.array([v for v in near_multiples if name == "f64" or v < 3e38]).astype(sample(name).dtype)
    multiples = (np.random.default_rng(0).integers(1, 2**40, 100) * (np.pi / 2)).astype(x.dtype)
    x = np.concatenate([x, multiples, -x])
    with mpmath.workprec(1300):
        for opcode in ("sine", "cosine", "tan"):
            got = compiled(opcode, x)
            assert (
                max(error(a, b, FUNCTIONS[opcode][0]) for a, b in zip(x, got, strict=True)) <= LARGEST_ERROR
            )


def test_results_do_not_depend_on_neighbours() -> None:
    """One huge angle takes the whole vector through the slow path, but changes only its own lane."""
    x = np.linspace(-3, 3, 16).astype(np.float32)
    alone = compiled("sine", x)
    x[5] = 1e30
    together = compiled("sine", x)
    agreement.equal(np.delete(alone, 5), np.delete(together, 5))


def two_arguments(name: str) -> tuple[Array, Array]:
    """Random numbers, powers that are neither 0 nor infinite, and all pairs of special values."""
    generator = np.random.default_rng(3)
    base = np.exp(generator.uniform(-5, 5, 200))
    exponent = generator.uniform(-1, 1, 200) * (80 if name == "f32" else 700) / np.log(base)
    limits = np.finfo(sample(name).dtype)
    extremes = [float(limits.max), float(limits.tiny), float(limits.smallest_subnormal)]
    special = np.array([0, 1, 2, 0.5, 3, 1e30, np.inf, *extremes])
    first, second = (
        a.reshape(-1) for a in np.meshgrid([*special, *-special, np.nan], [*special, *-special, np.nan])
    )
    dtype = sample(name).dtype
    return np.concatenate([base, first]).astype(dtype), np.concatenate([exponent, second]).astype(dtype)


@pytest.mark.parametrize("name", ["f32", "f64"])
@pytest.mark.parametrize("opcode", FUNCTIONS_OF_TWO)
def test_functions_of_two_numbers(opcode: str, name: str) -> None:
    x, y = two_arguments(name)
    off = steps_off(compiled(opcode, x, y), apply(opcode, x, y))
    allowed = 0 if opcode == "remainder" else LARGEST_ERROR
    assert off.max() <= allowed, (x[np.argmax(off)], y[np.argmax(off)])


def test_powers_to_twice_the_precision() -> None:
    """The logarithm is multiplied by up to 700: it must be known much better than the result."""
    x, y = (a[:200] for a in two_arguments("f64"))
    got = compiled("power", x, y)
    with mpmath.workprec(200):
        exact = [mpmath.power(mpmath.mpf(float(a)), mpmath.mpf(float(b))) for a, b in zip(x, y, strict=True)]
    errors = [
        abs(float((mpmath.mpf(float(g)) - e) / float(np.spacing(float(e))))) for g, e in zip(got, exact)
    ]
    assert max(errors) <= LARGEST_ERROR


@pytest.mark.parametrize("exponents", [(0, 250), (-1020, 1020)])
def test_the_remainder_is_exact(exponents: tuple[int, int]) -> None:
    """Also where the quotient has hundreds of digits."""
    generator = np.random.default_rng(1)
    x, y = (generator.uniform(1, 2, 200) * 2.0 ** generator.integers(*exponents, 200) for _ in range(2))
    agreement.equal(compiled("remainder", x, y), np.fmod(x, y))


LINEAR = (
    "exponential-minus-one", "log-plus-one", "sine", "tan", "asin", "sinh", "tanh", "asinh", "atanh",
)  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_subnormal_and_negligible_arguments(name: str, target: str) -> None:
    """Functions that are x near 0 give x itself; erf and log of subnormal numbers are as precise as any."""
    dtype = sample(name).dtype
    limits = np.finfo(dtype)
    generator = np.random.default_rng(0)
    exponents = generator.integers(limits.minexp - limits.nmant, limits.minexp // 4, 200)
    x = np.ldexp(generator.uniform(1, 2, 200), exponents).astype(dtype)
    x = np.concatenate([x, [limits.tiny, limits.smallest_subnormal]]).astype(dtype)
    x = np.concatenate([x, -x])
    cases = [case(opcode, x) for opcode in (*LINEAR, "erf", "log")]
    *linear, erf, log = run_compiled(cases, 4, TARGETS[target])
    for got in linear:
        agreement.equal(got, x)
    positive = x > 0
    with mpmath.workprec(200):
        assert max(error(a, b, mpmath.erf) for a, b in zip(x, erf, strict=True)) <= 1
        pairs = zip(x[positive], log[positive], strict=True)
        assert max(error(a, b, mpmath.log) for a, b in pairs) <= 1


@pytest.mark.parametrize("name", ["f32", "f64"])
def test_where_the_exponential_vanishes(name: str) -> None:
    """Down to the last number whose exponential is not 0, next to larger and smaller neighbours."""
    dtype = sample(name).dtype
    edge = {"f32": -103.97207708, "f64": -745.13321910}[name]
    x = np.concatenate([np.linspace(edge - 0.1, edge + 0.1, 401), [edge * 2, -np.inf, np.nan, 1.0]]).astype(
        dtype
    )
    got = compiled("exponential", x)
    with np.errstate(all="ignore"):
        wanted = np.exp(x.astype(np.longdouble)).astype(dtype)
    certain = np.abs(x - edge) > 1e-4
    agreement.equal(got[certain] == 0, wanted[certain] == 0)
    assert steps_off(got, wanted).max() <= LARGEST_ERROR
