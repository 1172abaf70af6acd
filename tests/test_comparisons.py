"""Comparisons can fail: oracles refuse corrupted values, and tests compare arrays through oracles only."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hloom.debug.error_analysis import ErrorAnalysis
from hloom.errors import NoBound
from tests import agreement
from tests.agreement import Toothless
from tests.arrays import c64, f32, f64, s32, s64, u8
from tests.evaluation import parse
from tests.reducers import with_reducers

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

VALUES: tuple[Any, ...] = (
    f32([1, -2, 3.5]), s32([1, -2, 3]), np.array([1, 2, -3], ml_dtypes.bfloat16), f32([np.nan, 1, np.inf]),
    np.array([True, False, True]), c64([1 + 2j, -1, 2j]), np.float64(3), u8([0, 255]),
    np.array([1, -2, 3], ml_dtypes.int4), np.array([0.5, 2, 4], ml_dtypes.float8_e8m0fnu), f32([]),
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
        (f32([1, 2]), f32([1, 3])), (f32([0.0]), f32([-0.0])), (f32([np.nan]), f32([1])),
        (f32([1]), f32([np.nan])),
        (f32([np.inf]), f32([-np.inf])), (f32([1]), f64([1])), (f32([1]), f32([[1]])), ((f32(1),), f32(1)),
        ((f32(1),), (f32(1), f32(2))), (None, f32(1)), (s64([2**60 + 1]), s64([2**60])),
        (c64([complex(0, 0.0)]), c64([complex(0, -0.0)])),
    ],
)  # fmt: skip
def test_other_values_are_not_the_same(got: Any, wanted: Any) -> None:
    with pytest.raises(AssertionError):
        agreement.same(got, wanted)


@pytest.mark.parametrize(
    ("got", "wanted", "units", "good"),
    [
        (f32([1 + 2**-23]), f32([1]), 1, True), (f32([1 + 2**-22]), f32([1]), 1, False),
        (f32([np.inf]), f32([3e38]), 1, False), (f32([np.inf]), f32([np.finfo(f32).max]), 1, True),
        (f32([0, 1]), f32([1e-45, 1]), 1, True), (f32([0, 1]), f32([1e-40, 1]), 1, False),
        (np.array([1.0078125], ml_dtypes.bfloat16), f64([1.004]), 1, True),
        (c64([1 + 1e-7j]), c64([1]), 1, True),
        (c64([1 + 1e-6j]), c64([1]), 1, False),
        (c64([complex(np.inf, 2)]), c64([complex(np.inf, 1)]), 1, False),
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
        (f32([1e-7, -1e-7, 2e-7]), 1e-5),  # zeros pass
        (np.array([0.5, -0.25, 1], ml_dtypes.bfloat16), 1.0),  # negated values pass
        (f32([10, 20, 30]), 25.0),  # shuffled values pass
        (f32([1, 2, 3]), np.inf),
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
    value = f32([4, 1, 8, 2])
    with pytest.raises(Toothless):
        agreement.hold(oracle, value, value, ())


# -- bounds of programs


def bound(text: str, *arguments: Any) -> Any:
    return ErrorAnalysis(parse(text)).run([np.asarray(a) for a in arguments])[1]


DOT = """x = f32[2,3] parameter(0)
y = f32[3] parameter(1)
ROOT r = f32[2] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""


def test_bounds_follow_the_magnitudes_of_the_terms() -> None:
    eps = np.finfo(f32).eps
    found = bound(DOT, f32([[1e6, -1e6, 1], [1e-6, 1e-6, 1e-6]]), f32([1, 1, 1]))
    agreement.near(found, 2 * 3 * eps * f64([2e6 + 1, 3e-6]), 2**30)
    assert (
        bound("x = f32[3] parameter(0)\nROOT r = f32[3] reverse(x), dimensions={0}", f32([1, 2, 3])).sum()
        == 0
    )
    assert bound("x = s32[3] parameter(0)\nROOT r = s32[3] add(x, x)", s32([1, 2, 3])).sum() == 0


def test_bounds_hold_for_sums_in_any_order() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 300)).astype(f32), rng.normal(size=300).astype(f32)
    text = DOT.replace("3]", "300]")
    allowed, exact = bound(text, x, y), x.astype(np.float64) @ y.astype(np.float64)
    for order in (np.arange(300), rng.permutation(300), np.argsort(x[0] * y)):
        total = np.zeros(2, f32)
        for k in order:
            total += x[:, k] * y[k]
        agreement.within(total, exact, allowed)


def test_errors_grow_through_operations() -> None:
    text = DOT + "\ne = f32[2] exponential(r)\nROOT s = f32[2] multiply(e, e)"
    text = text.replace("ROOT r", "r")
    one, two = f32([[1, 1, 1], [2, 2, 2]]), f32([1, 1, 1])
    summed = bound(DOT, one, two)
    value = np.exp(f64([3, 6])) ** 2
    assert (bound(text, one, two) > 2 * summed * value).all()
    assert (bound(text, one, two) < 4 * summed * value + 64 * np.finfo(f32).eps * value).all()


def test_asynchronous_sums_have_no_bound() -> None:
    text = with_reducers("""HloModule m
    ENTRY e { x = f32[3] parameter(0)
      s = f32[3] all-reduce-start(x), replica_groups={}, to_apply=add
      ROOT d = f32[3] all-reduce-done(s) }""")
    with pytest.raises(NoBound, match="all-reduce-start %s is asynchronous"):
        ErrorAnalysis(parse(text)).run([f32([1, 2, 3])])


def test_decisions_by_rounded_numbers_may_go_either_way() -> None:
    text = DOT.replace("ROOT r", "r") + "\nq = f32[2] reverse(r), dimensions={0}\n"
    less = text + "ROOT c = pred[2] compare(r, q), direction=LT"
    assert bound(less, f32([[1, 1, 1]] * 2), f32([1, 1, 1])).tolist() == [1, 1]
    assert bound(less, f32([[1, 1, 1], [2, 1, 1]]), f32([1, 1, 1])).tolist() == [0, 0]
    same = text + "ROOT c = pred[2] compare(r, r), direction=NE"
    assert bound(same, f32([[1, 1, 1]] * 2), f32([1, 1, 1])).tolist() == [0, 0]
    integers = text + "ROOT c = s32[2] convert(r)"
    assert bound(integers, f32([[1.25, 1, 1], [1, 1, 1]]), f32([1, 1, 1])).tolist() == [0, 1]
    floor = text + "ROOT c = f32[2] floor(r)"
    assert bound(floor, f32([[1.25, 1, 1], [1, 1, 1]]), f32([1, 1, 1])).tolist() == [0, 1]


def test_a_selection_by_an_undecided_predicate_may_be_either_value() -> None:
    text = (
        DOT.replace("ROOT r", "r")
        + """
q = f32[2] reverse(r), dimensions={0}
c = pred[2] compare(r, q), direction=LT
n = pred[2] not(c)
a = f32[2] constant({1, 2})
b = f32[2] constant({11, 22})
ROOT s = f32[2] select(n, a, b)"""
    )
    assert bound(text, f32([[1, 1, 1]] * 2), f32([1, 1, 1])).tolist() == [10, 20]
    assert bound(text, f32([[1, 1, 1], [5, 1, 1]]), f32([1, 1, 1])).tolist() == [0, 0]


def test_an_array_is_equal_to_its_maximum_at_one_place() -> None:
    """Its maximum is one of the elements, so that only elements within its errors are undecided."""
    whole = with_reducers("""HloModule m
ENTRY e {
  x = f32[2,3] parameter(0)
  e = f32[2,3] exponential(x)
  n = f32[] constant(-inf)
  m = f32[2] reduce(e, n), dimensions={1}, to_apply=maximum
  b = f32[2,3] broadcast(m), dimensions={0}
  ROOT c = pred[2,3] compare(e, b), direction=EQ
}""")
    found = bound(whole, f32([[1, 2, 3], [3, 3, 1]]))
    assert found.tolist() == [[0, 0, 0], [1, 1, 0]]


ORDERED = """HloModule m
order {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}
ENTRY e {
  x = f32[5] parameter(0)
  y = f32[5] exponential(x)
  i = s32[5] iota(), iota_dimension=0
  ROOT s = (f32[5], s32[5]) sort(y, i), dimensions={0}, to_apply=order
}"""


def test_sorted_values_move_by_their_errors_and_undecided_neighbours_may_change_places() -> None:
    keys, places = bound(ORDERED, f32([3, 1, 1, 2, 1]))
    value = np.exp(np.sort(f32([3, 1, 1, 2, 1])))
    assert places.tolist() == [3, 2, 3, 0, 0]  # 1, 2 and 4 are undecided
    assert (keys <= 8 * np.finfo(f32).eps * value).all() and (keys > 0).all()
    assert bound(ORDERED, f32([5, 4, 3, 2, 1]))[1].tolist() == [0] * 5


ARGMAX = """HloModule m
larger {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GT
  e = pred[] compare(a, b), direction=EQ
  f = pred[] compare(i, j), direction=LT
  t = pred[] and(e, f)
  c = pred[] or(g, t)
  v = f32[] select(c, a, b)
  k = s32[] select(c, i, j)
  ROOT r = (f32[], s32[]) tuple(v, k)
}
ENTRY e {
  x = f32[2,4] parameter(0)
  y = f32[2,4] exponential(x)
  i = s32[2,4] iota(), iota_dimension=1
  n = f32[] constant(-inf)
  z = s32[] constant(0)
  r = (f32[2], s32[2]) reduce(y, i, n, z), dimensions={1}, to_apply=larger
  k = s32[2] get-tuple-element(r), index=1
  table = f32[4] constant({10, 20, 40, 80})
  g = f32[2] gather(table, k), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={1}
  ROOT t = (s32[2], f32[2]) tuple(k, g)
}"""


def test_the_place_of_a_maximum_may_be_that_of_any_as_large_as_it() -> None:
    places, rows = bound(ARGMAX, f32([[1, 2, 3, 4], [1, 5, 2, 5]]))
    assert places.tolist() == [0, 2]
    assert rows.tolist() == [0, 70]  # any row of the table


POOLED = with_reducers("""HloModule m
larger {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE
}
ENTRY e {
  x = f32[4] parameter(0)
  y = f32[4] exponential(x)
  s = f32[2] constant({10, 20})
  n = f32[] constant(0)
  ROOT r = f32[4] select-and-scatter(y, s, n), window={size=2 stride=2}, select=larger, scatter=add
}""")


def test_what_is_scattered_to_an_undecided_selection_may_be_at_either_place() -> None:
    found = bound(POOLED, f32([1, 2, 3, 3]))
    assert (found[:2] < 1e-4).all() and (found[2:] >= 20).all() and (found[2:] < 20.1).all()


def test_a_branch_that_rounding_decides_may_be_either() -> None:
    text = """HloModule m
plus {
  a = f32[] parameter(0)
  ROOT r = f32[] add(a, a)
}
minus {
  b = f32[] parameter(0)
  ROOT r = f32[] negate(b)
}
ENTRY e {
  x = f32[] parameter(0)
  y = f32[] exponential(x)
  one = f32[] constant(1)
  p = pred[] compare(y, one), direction=GT
  ROOT c = f32[] conditional(p, x, one), true_computation=plus, false_computation=minus
}"""
    assert bound(text, f32(0)) == 1 and bound(text, f32(1)) == 0


def test_a_loop_that_rounding_ends_has_no_bound() -> None:
    text = """HloModule m
body {
  a = f32[] parameter(0)
  ROOT r = f32[] exponential(a)
}
less {
  b = f32[] parameter(0)
  n = f32[] constant(2.718281746)
  ROOT r = pred[] compare(b, n), direction=LT
}
ENTRY e {
  x = f32[] parameter(0)
  ROOT w = f32[] while(x), condition=less, body=body
}"""
    assert bound(text, f32(0.5)) < 1e-4
    with pytest.raises(NoBound):
        bound(text, f32(0))
