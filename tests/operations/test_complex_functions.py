"""Functions of complex numbers, against exact fractions, identities, cmath, and C99's special values."""

from __future__ import annotations

import cmath
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests import agreement
from tests.arrays import c64, c128
from tests.one_operation import apply, same

INF, NAN = math.inf, math.nan


def parts(result: Any, wanted: list[complex]) -> None:
    """Assert equality part by part, with the signs of zeros."""
    same(result.real, [w.real for w in wanted])
    same(result.imag, [w.imag for w in wanted])


def close(result: Any, wanted: Any, units: float) -> None:
    """Assert that each part errs by at most a number of units of the last place of f64."""
    agreement.near(result.real, np.real(wanted), units)
    agreement.near(result.imag, np.imag(wanted), units)


moderate = st.floats(1e-100, 1e100) | st.floats(-1e100, -1e-100) | st.just(0.0)
complex_numbers = st.builds(complex, moderate, moderate)


@given(complex_numbers, complex_numbers)
def test_quotients_err_by_a_few_roundings(a: complex, b: complex) -> None:
    assume(b != 0)
    x, y = (Fraction(v) for v in (a.real, a.imag))
    c, d = (Fraction(v) for v in (b.real, b.imag))
    norm = c * c + d * d
    exact = ((x * c + y * d) / norm, (y * c - x * d) / norm)
    size = max(abs(part) for part in exact)
    assume(size == 0 or Fraction(2) ** -1000 < size < Fraction(2) ** 1000)
    result = apply("divide", c128([a]), c128([b]))[0]
    for got, wanted in zip((result.real, result.imag), exact, strict=True):
        assert abs(Fraction(float(got)) - wanted) <= 6 * size / 2**53


def test_quotients_do_not_overflow_or_vanish_on_the_way() -> None:
    large, small = 1.7e308 * (1 + 1j), 1e-320 * (1 + 1j)
    close(apply("divide", c128([large, small, 1]), c128([large, small, large])),
          np.array([1, 1, 0.5 / 1.7e308 * (1 - 1j)]), 4)  # fmt: skip


def test_special_quotients() -> None:
    numerator = c64([1, 1 + 1j, complex(INF, NAN), complex(INF, 1), 1 + 1j, 0])
    denominator = c64([0, 0, 2, 2, complex(INF, INF), 0])
    wanted = [
        complex(INF, NAN),
        complex(INF, INF),
        complex(INF, NAN),
        complex(INF, NAN),
        0j,
        complex(NAN, NAN),
    ]
    parts(apply("divide", numerator, denominator), wanted)


def test_products_are_rounded_operation_by_operation() -> None:
    generator = np.random.default_rng(0)
    for kind in (np.complex64, np.complex128):
        a, b = (generator.normal(size=100) + 1j * generator.normal(size=100) for _ in range(2))
        a, b = a.astype(kind), b.astype(kind)
        result = apply("multiply", a, b)
        same(result.real, a.real * b.real - a.imag * b.imag)
        same(result.imag, a.real * b.imag + a.imag * b.real)


def test_special_powers() -> None:
    base = c64([1, 1, INF, INF, 0, 0, 0, 4, 1j])
    exponent = c64([INF, NAN, 1, 2, 0, 2, -1, 0.5, 2])
    wanted = [1 + 0j, 1 + 0j, complex(INF, 0), complex(INF, 0), 1 + 0j, 0j, complex(INF, 0), 2 + 0j, -1 + 0j]
    parts(apply("power", base, exponent), wanted)


def test_powers_agree_with_products() -> None:
    generator = np.random.default_rng(1)
    base = generator.normal(size=200) + 1j * generator.normal(size=200)
    agreement.near(apply("power", base, np.full(200, 2 + 0j)), base * base, 4)
    inverse = apply("power", base, np.full(200, -1 + 0j))
    agreement.near(inverse * base, np.ones(200), 4)


def test_log_plus_one() -> None:
    near = c128([1e-200 + 1e-180j, -1e-9 + 4.4721359549995793e-05j, -2 + 1e-10j, -1, 0])
    result = apply("log-plus-one", near)
    wanted = [1e-200 + 1e-180j, complex(NAN, NAN), 1j * math.pi, complex(-INF, 0), 0]
    close(result[[0, 4]], np.array(wanted)[[0, 4]], 1)
    # (1 + x)² + y² - 1 = 2x + x² + y², exactly
    x, y = Fraction(float(near[1].real)), Fraction(float(near[1].imag))
    excess = float(2 * x + x * x + y * y)
    close(result[1:2].real, np.array([math.log1p(excess) / 2]), 2)
    parts(result[3:4], wanted[3:4])
    same(apply("log-plus-one", c128([1.7e308 + 1.7e308j])).imag, [math.pi / 4])
    assert apply("log-plus-one", c64([3e38 + 3e38j]))[0].real == np.float32(math.log(3e38 * math.sqrt(2)))


def test_exponential_minus_one() -> None:
    values = c128([1e-200 + 1e-180j, 0, complex(-INF, 3), complex(2, -0.0)])
    result = apply("exponential-minus-one", values)
    close(result[:1], values[:1], 1)
    parts(result[1:2], [0j])
    assert result[2].real == -1
    parts(result[3:], [complex(math.expm1(2), -0.0)])


@pytest.mark.skipif(np.finfo(np.longdouble).nmant <= 52, reason="no extended precision on this machine")
def test_exponential_minus_one_where_its_terms_cancel() -> None:
    # the real part of exp(z) - 1 is 0 near x = -log(cos(y))
    y = np.linspace(0.1, 1.4, 50)
    x = -np.log(np.cos(y))
    result = apply("exponential-minus-one", x + 1j * y)
    wanted = np.exp(x.astype(np.longdouble)) * np.cos(y.astype(np.longdouble)) - 1
    assert (np.abs(result.real - wanted) <= 2.0**-62).all()


def test_logistic() -> None:
    values = c128([-800 + 1j, 800 + 1j, 0, 1 + 1j])
    result = apply("logistic", values)
    close(result[:1], np.array([cmath.exp(-800 + 1j)]), 4)
    close(result[1:], np.array([1 - cmath.exp(-800 - 1j), 0.5, 1 / (1 + cmath.exp(-1 - 1j))]), 4)


def test_reciprocal_roots() -> None:
    values = c64([4, -4, 0, complex(INF, 0), complex(INF, NAN)])
    result = apply("rsqrt", values)
    parts(result[:2], [complex(0.5, -0.0), complex(0, -0.5)])
    assert result[2].real == INF
    assert (result[3:] == 0).all()


def test_angles_of_complex_numbers() -> None:
    y, x = c128([0, 1, 0.3 + 0.4j]), c128([0, -1, 0.5 - 0.2j])
    result = apply("atan2", y, x)
    parts(result[:2], [0j, complex(3 * math.pi / 4, 0)])
    wanted = -1j * cmath.log((x[2] + 1j * y[2]) / cmath.sqrt(x[2] ** 2 + y[2] ** 2))
    close(result[2:], np.array([wanted]), 8)


CMATH = {
    "sqrt": cmath.sqrt, "exponential": cmath.exp, "log": cmath.log, "sine": cmath.sin, "cosine": cmath.cos,
    "tan": cmath.tan, "sinh": cmath.sinh, "cosh": cmath.cosh, "tanh": cmath.tanh, "asin": cmath.asin,
    "acos": cmath.acos, "asinh": cmath.asinh, "acosh": cmath.acosh, "atanh": cmath.atanh,
}  # fmt: skip


@pytest.mark.parametrize("opcode", CMATH)
def test_the_others_agree_with_cmath(opcode: str) -> None:
    generator = np.random.default_rng(3)
    values = generator.normal(size=300) + 1j * generator.normal(size=300)
    wanted = np.array([CMATH[opcode](v) for v in values.tolist()])
    close(apply(opcode, values), wanted, 32)
    narrow = values.astype(np.complex64)
    wanted = np.array([CMATH[opcode](v) for v in narrow.astype(np.complex128).tolist()]).astype(np.complex64)
    agreement.near(apply(opcode, narrow).view(np.float32), wanted.view(np.float32))


@pytest.mark.parametrize(
    ("opcode", "value", "wanted"),
    [
        ("sqrt", complex(NAN, INF), complex(INF, INF)),
        ("sqrt", complex(-INF, 1), complex(0, INF)),
        ("sqrt", complex(-4, -0.0), complex(0, -2)),
        ("log", complex(0, 0), complex(-INF, 0)),
        ("log", complex(-1, -0.0), complex(0, -math.pi)),
        ("log", complex(INF, NAN), complex(INF, NAN)),
        ("exponential", complex(-INF, 1), complex(0, 0)),
        ("exponential", complex(INF, 0), complex(INF, 0)),
        ("tanh", complex(INF, 1), complex(1, 0)),
        ("tanh", complex(1000, 1), complex(1, 0)),
        ("tan", complex(1, 1000), complex(0, 1)),
        ("cosh", complex(0, -0.0), complex(1, -0.0)),
        ("atanh", complex(0, INF), complex(0, math.pi / 2)),
        ("asinh", complex(INF, INF), complex(INF, math.pi / 4)),
        ("acos", complex(2, 0.0), complex(0, -math.acosh(2))),
        ("acosh", complex(-1, 0.0), complex(0, math.pi)),
    ],
)
def test_special_values(opcode: str, value: complex, wanted: complex) -> None:
    result = apply(opcode, c128([value]))
    for got, exact in [(result.real[0], wanted.real), (result.imag[0], wanted.imag)]:
        agreement.near(got, exact, 4, signs=True)
