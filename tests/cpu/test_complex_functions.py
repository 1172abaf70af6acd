"""Functions of complex numbers by compiled code, against the evaluator's."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

from tests import agreement
from tests.compiled_operation import TARGETS, assert_as_evaluated, case, compiled, run_compiled
from tests.one_operation import apply
from tests.samples import steps_off

Array = np.ndarray[Any, Any]

FUNCTIONS = (
    "sqrt", "rsqrt", "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "sine",
    "cosine", "tan", "asin", "acos", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "sign",
)  # fmt: skip
DTYPES = {"c64": np.complex64, "c128": np.complex128}
SPECIAL = (
    0.0, -0.0, 1.0, -1.0, 0.5, -2.0, np.inf, -np.inf, np.nan, 1e-30, -1e30, 95.0, -104.5, 719.0, -750.0,
    1e-310,
)  # fmt: skip


def points(name: str, count: int = 400, scale: float = 3.0) -> Array:
    """Return random numbers, some with one part much smaller than the other, some on the unit circle."""
    generator = np.random.default_rng(count)
    real, imag = generator.normal(size=count) * scale, generator.normal(size=count) * scale
    real[: count // 4] *= 10.0 ** generator.uniform(-8, 1, count // 4)
    imag[count // 8 : count // 2] *= 10.0 ** generator.uniform(-8, 1, count // 2 - count // 8)
    angle = generator.uniform(0, 2 * np.pi, count // 8)
    real[-count // 8 :], imag[-count // 8 :] = np.cos(angle), np.sin(angle)
    return pairs(name, real, imag)


def pairs(name: str, real: Any, imag: Any) -> Array:
    """Return complex numbers of a type from their parts."""
    made = np.empty(len(real), DTYPES[name])
    made.real, made.imag = real, imag
    return made


def grid(name: str) -> Array:
    """Return all pairs of special values."""
    real, imag = np.meshgrid(SPECIAL, SPECIAL)
    return pairs(name, real.reshape(-1), imag.reshape(-1))


def relative_error(got: Array, wanted: Array) -> Array:
    """Return the error relative to the modulus, in units of its last place."""
    size = np.maximum(np.abs(wanted.real), np.abs(wanted.imag))
    return np.maximum(np.abs(got.real - wanted.real), np.abs(got.imag - wanted.imag)) / np.spacing(size)


@pytest.mark.parametrize("opcode", FUNCTIONS)
def test_single_precision_is_right_in_both_parts(opcode: str) -> None:
    z = points("c64")
    got, wanted = compiled(opcode, z), apply(opcode, z)
    assert steps_off(got.real, wanted.real).max() <= 1
    assert steps_off(got.imag, wanted.imag).max() <= 1


@pytest.mark.parametrize("opcode", FUNCTIONS)
def test_double_precision(opcode: str) -> None:
    z = points("c128")
    assert relative_error(compiled(opcode, z), apply(opcode, z)).max() <= 5


@pytest.mark.parametrize("opcode", ["asin", "acos", "asinh", "acosh", "atanh", "sqrt"])
def test_the_largest_numbers_do_not_overflow_on_the_way(opcode: str) -> None:
    greatest = float(np.finfo(np.float64).max)
    parts = [
        sign * part for part in (greatest, 0.7 * greatest, 2.0**501, 2.0**499, 256.0) for sign in (1, -1)
    ]
    real, imag = np.meshgrid(parts, parts)
    z = pairs("c128", real.reshape(-1), imag.reshape(-1))
    assert relative_error(compiled(opcode, z), apply(opcode, z)).max() <= 5


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", DTYPES)
def test_special_values(name: str, target: str) -> None:
    """Zeros, infinities, NaN and parts where exponentials overflow or underflow, in every combination.

    Signs of zeros count, too.
    """
    z = grid(name)
    cases = [case(opcode, z) for opcode in FUNCTIONS]
    for one, got in zip(cases, run_compiled(cases, 4, TARGETS[target]), strict=True):
        wanted = one.evaluated()
        for a, b in ((got.real, wanted.real), (got.imag, wanted.imag)):
            agreement.near(a, b, 16, signs=True)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", DTYPES)
def test_random_numbers_on_every_target(name: str, target: str) -> None:
    """As precise without fused multiplication and without instructions that round."""
    z = points(name)
    cases = [case(opcode, z) for opcode in FUNCTIONS]
    for one, got in zip(cases, run_compiled(cases, 4, TARGETS[target]), strict=True):
        assert relative_error(got, one.evaluated()).max() <= 5, one.opcode


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("opcode", ["exponential", "sinh", "cosh"])
def test_growth_outweighed_by_a_small_angle(opcode: str, target: str) -> None:
    """e^x overflows, but its product with the sine of the angle does not."""
    z = pairs("c128", [1440.0, 1000.0, 720.0, -700.0], [5e-324, 1e-200, 1e-310, 1e-10])
    (got,) = run_compiled([case(opcode, z)], 4, TARGETS[target])
    with mpmath.workprec(4000):
        grown = {"exponential": mpmath.exp, "sinh": mpmath.cosh, "cosh": mpmath.sinh}[opcode]
        exact = [grown(mpmath.mpf(float(a.real))) * mpmath.sin(mpmath.mpf(float(a.imag))) for a in z]
        agreement.near(got.imag, np.array([float(e) for e in exact]), 45)


def test_inverse_hyperbolic_tangent_next_to_its_poles() -> None:
    """The squared distance from the pole vanishes, the logarithm does not."""
    height = 2.0 ** np.concatenate([np.arange(-1074.0, -400.0, 7), [-1.0, -27.0, -53.0]])
    z = pairs("c128", np.resize([1.0, -1.0], len(height)), height)
    agreement.near(compiled("atanh", z), apply("atanh", z), 4)


def test_large_and_small_numbers_neither_overflow_nor_vanish() -> None:
    z = pairs("c128", [3e300, 3e-300, 1e308, 5e-324, 1e-160], [4e300, 4e-300, -1e308, 5e-324, 1e160])
    for opcode in ("abs", "sqrt", "rsqrt", "log", "sign"):
        agreement.near(compiled(opcode, z), apply(opcode, z), 8)


@pytest.mark.parametrize("name", DTYPES)
def test_quotients_are_the_evaluator_s(name: str) -> None:
    """Quotients are equal bit for bit, also for infinite parts and the divisor 0."""
    first, second = (a.reshape(-1) for a in np.meshgrid(grid(name), grid(name)))
    assert_as_evaluated(
        [case("divide", first, second), case("divide", points(name), points(name)[::-1].copy())]
    )


@pytest.mark.parametrize("name", DTYPES)
def test_the_larger_and_the_smaller(name: str) -> None:
    """Ordered by the real, then by the imaginary part; a NaN in either part wins."""
    first, second = (a.reshape(-1) for a in np.meshgrid(grid(name), grid(name)))
    assert_as_evaluated([case(opcode, first, second) for opcode in ("maximum", "minimum")])


def test_powers() -> None:
    base, exponent = points("c64", scale=1.5), points("c64", scale=1.5)[::-1].copy()
    exponent[:100] = np.random.default_rng(0).integers(-6, 7, 100)
    assert relative_error(compiled("power", base, exponent), apply("power", base, exponent)).max() <= 1


def test_integral_powers_are_products() -> None:
    base = np.array([1j, 1 + 1j, -2j, 3 + 0j, 0j, 0j], np.complex128)
    exponent = np.array([2, 4, 3, 2, 0, 3], np.complex128)
    agreement.equal(compiled("power", base, exponent), [-1, -4, 8j, 9, 1, 0])


def test_angles() -> None:
    y, x = points("c64"), points("c64")[::-1].copy()
    assert relative_error(compiled("atan2", y, x), apply("atan2", y, x)).max() <= 1
