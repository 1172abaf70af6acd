"""Comparisons can fail: oracles refuse corrupted values, and tests compare arrays through oracles only."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import agreement
from agreement import Toothless
from evaluation import parse
from hloom.debug.error_analysis import ErrorAnalysis, NoBound

TESTS = Path(__file__).parent
FORBIDDEN = {
    "allclose", "isclose", "assert_allclose", "approx", "assert_almost_equal", "assert_array_almost_equal",
    "assert_approx_equal", "assert_array_almost_equal_nulp", "assert_array_max_ulp", "assert_array_equal",
}  # fmt: skip
"""Comparisons of numpy and pytest: their tolerances belong to no element and never see corruptions."""


def test_arrays_are_compared_by_oracles_only() -> None:
    found: list[str] = []
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            name = (
                node.attr
                if isinstance(node, ast.Attribute)
                else node.id
                if isinstance(node, ast.Name)
                else ""
            )
            if name in FORBIDDEN:
                found.append(f"{path.relative_to(TESTS)}:{node.lineno}: {name}")  # type: ignore[attr-defined]
    assert not found, "use tests/agreement.py:\n" + "\n".join(found)


# -- values that oracles accept and refuse

F = np.float32
VALUES: tuple[Any, ...] = (
    F([1, -2, 3.5]), np.int32([1, -2, 3]), np.array([1, 2, -3], ml_dtypes.bfloat16), F([np.nan, 1, np.inf]),
    np.array([True, False, True]), np.complex64([1 + 2j, -1, 2j]), np.float64(3), np.uint8([0, 255]),
    np.array([1, -2, 3], ml_dtypes.int4), np.array([0.5, 2, 4], ml_dtypes.float8_e8m0fnu), F([]),
)  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda v: f"{np.asarray(v).dtype}")
def test_equal_values_agree(value: Any) -> None:
    agreement.same(value, value)
    agreement.equal(value, value)
    if np.asarray(value).dtype != ml_dtypes.float8_e8m0fnu:  # without mantissa one unit is the number itself
        agreement.near(value, value)
    agreement.same((value, (value, None)), (value, (value, None)))


@pytest.mark.parametrize(
    ("got", "wanted"),
    [
        (F([1, 2]), F([1, 3])), (F([0.0]), F([-0.0])), (F([np.nan]), F([1])), (F([1]), F([np.nan])),
        (F([np.inf]), F([-np.inf])), (F([1]), np.float64([1])), (F([1]), F([[1]])), ((F(1),), F(1)),
        ((F(1),), (F(1), F(2))), (None, F(1)), (np.int64([2**60 + 1]), np.int64([2**60])),
        (np.complex64([complex(0, 0.0)]), np.complex64([complex(0, -0.0)])),
    ],
)  # fmt: skip
def test_other_values_are_not_the_same(got: Any, wanted: Any) -> None:
    with pytest.raises(AssertionError):
        agreement.same(got, wanted)


@pytest.mark.parametrize(
    ("got", "wanted", "units", "good"),
    [
        (F([1 + 2**-23]), F([1]), 1, True), (F([1 + 2**-22]), F([1]), 1, False),
        (F([np.inf]), F([3e38]), 1, False), (F([np.inf]), F([np.finfo(F).max]), 1, True),
        (F([0, 1]), F([1e-45, 1]), 1, True), (F([0, 1]), F([1e-40, 1]), 1, False),
        (np.array([1.0078125], ml_dtypes.bfloat16), np.float64([1.004]), 1, True),
        (np.complex64([1 + 1e-7j]), np.complex64([1]), 1, True),
        (np.complex64([1 + 1e-6j]), np.complex64([1]), 1, False),
        (np.complex64([complex(np.inf, 2)]), np.complex64([complex(np.inf, 1)]), 1, False),
    ],
)  # fmt: skip
def test_units_in_the_last_place(got: Any, wanted: Any, units: float, good: bool) -> None:
    if good:
        agreement.near(got, wanted, units)
        return
    with pytest.raises(AssertionError):
        agreement.near(got, wanted, units)


@pytest.mark.parametrize(
    ("wanted", "bound"),
    [
        (F([1e-7, -1e-7, 2e-7]), 1e-5),  # zeros pass
        (np.array([0.5, -0.25, 1], ml_dtypes.bfloat16), 1.0),  # negated values pass
        (F([10, 20, 30]), 25.0),  # shuffled values pass
        (F([1, 2, 3]), np.inf),
    ],
)  # fmt: skip
def test_bounds_that_let_errors_through_are_refused(wanted: Any, bound: float) -> None:
    with pytest.raises(Toothless):
        agreement.within(wanted, wanted, bound)


@pytest.mark.parametrize("name", ["all", "any", "norm", "unordered", "finite"])
def test_oracles_that_overlook_elements_are_refused(name: str) -> None:
    """Each of these compares values as a whole, or ignores some."""
    oracle = {
        "all": lambda g, w, b: np.ones(w.shape, bool),
        "any": lambda g, w, b: np.full(w.shape, bool((g == w).any())),
        "norm": lambda g, w, b: np.abs(g - w) <= 0.5 * np.abs(w).max(),
        "unordered": lambda g, w, b: np.sort(g) == np.sort(w),
        "finite": lambda g, w, b: (g == w) | ~np.isfinite(g),
    }[name]
    value = F([4, 1, 8, 2])
    with pytest.raises(Toothless):
        agreement.hold(oracle, value, value, ())


# -- bounds of programs


def bound(text: str, *arguments: Any) -> Any:
    return ErrorAnalysis(parse(text)).run([np.asarray(a) for a in arguments])[1]


DOT = """x = f32[2,3] parameter(0)
y = f32[3] parameter(1)
ROOT r = f32[2] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""


def test_bounds_follow_the_magnitudes_of_the_terms() -> None:
    eps = np.finfo(F).eps
    found = bound(DOT, F([[1e6, -1e6, 1], [1e-6, 1e-6, 1e-6]]), F([1, 1, 1]))
    agreement.near(found, 2 * 3 * eps * np.float64([2e6 + 1, 3e-6]), 2**30)
    assert (
        bound("x = f32[3] parameter(0)\nROOT r = f32[3] reverse(x), dimensions={0}", F([1, 2, 3])).sum() == 0
    )
    assert bound("x = s32[3] parameter(0)\nROOT r = s32[3] add(x, x)", np.int32([1, 2, 3])).sum() == 0


def test_bounds_hold_for_sums_in_any_order() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 300)).astype(F), rng.normal(size=300).astype(F)
    text = DOT.replace("3]", "300]")
    allowed, exact = bound(text, x, y), x.astype(np.float64) @ y.astype(np.float64)
    for order in (np.arange(300), rng.permutation(300), np.argsort(x[0] * y)):
        total = np.zeros(2, F)
        for k in order:
            total += x[:, k] * y[k]
        agreement.within(total, exact, allowed)


def test_errors_grow_through_operations() -> None:
    text = DOT + "\ne = f32[2] exponential(r)\nROOT s = f32[2] multiply(e, e)"
    text = text.replace("ROOT r", "r")
    one, two = F([[1, 1, 1], [2, 2, 2]]), F([1, 1, 1])
    summed = bound(DOT, one, two)
    value = np.exp(np.float64([3, 6])) ** 2
    assert (bound(text, one, two) > 2 * summed * value).all()
    assert (bound(text, one, two) < 4 * summed * value + 64 * np.finfo(F).eps * value).all()


def test_asynchronous_sums_have_no_bound() -> None:
    text = """HloModule m
    add { a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT c = f32[] add(a, b) }
    ENTRY e { x = f32[3] parameter(0)
      s = f32[3] all-reduce-start(x), replica_groups={}, to_apply=add
      ROOT d = f32[3] all-reduce-done(s) }"""
    with pytest.raises(NoBound, match="all-reduce-start %s is asynchronous"):
        ErrorAnalysis(parse(text)).run([F([1, 2, 3])])


def test_decisions_by_rounded_numbers_have_no_bound() -> None:
    text = DOT.replace("ROOT r", "r") + "\nROOT c = pred[2] compare(r, r), direction=LT"
    with pytest.raises(NoBound):
        bound(text, F([[1, 1, 1]] * 2), F([1, 1, 1]))
    integers = DOT.replace("ROOT r", "r") + "\nROOT c = s32[2] convert(r)"
    assert bound(integers, F([[1.25, 1, 1]] * 2), F([1, 1, 1])).sum() == 0
    with pytest.raises(NoBound):
        bound(integers, F([[1, 1, 1]] * 2), F([1, 1, 1]))
