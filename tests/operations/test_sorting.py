"""Sort by any comparator, and topk."""

from __future__ import annotations

from functools import cmp_to_key

import ml_dtypes
import numpy as np
import pytest

from hloom.shape.element_type import ElementType
from tests import agreement, oracle
from tests.evaluation import evaluate, refused
from tests.reducers import binary, comparison

INF, NAN = np.inf, np.nan


def sort_text(arrays: list[np.ndarray], comparator: str, dimension: int = 0) -> str:
    """A program of one sort; the comparator's parameters are called a0, b0, a1, b1 ..."""
    names = [ElementType.from_dtype(a.dtype).name for a in arrays]
    pairs = [
        f"{letter}{i} = {name}[] parameter({2 * i + k})"
        for i, name in enumerate(names)
        for k, letter in enumerate("ab")
    ]
    parameters = [
        f"p{i} = {name}[{','.join(map(str, a.shape))}] parameter({i})"
        for i, (name, a) in enumerate(zip(names, arrays, strict=True))
    ]
    operands = ", ".join(f"p{i}" for i in range(len(arrays)))
    sort = f"ROOT r = sort({operands}), dimensions={{{dimension}}}, to_apply=before"
    return "\n".join(
        ["HloModule sort", "before {", *pairs, comparator, "}", "ENTRY e {", *parameters, sort, "}"]
    )


def sort(
    *arrays: np.ndarray, comparator: str = "ROOT c = pred[] compare(a0, b0), direction=LT", dimension: int = 0
):
    """Evaluate a sort."""
    return evaluate(sort_text(list(arrays), comparator, dimension), *arrays)


# The page.


def test_three_operands_move_together() -> None:
    result = sort(np.array([3, 1], np.int32), np.array([42, 50], np.int32), np.array([-3.0, 1.1], np.float32))
    assert result[0].tolist() == [1, 3]
    assert result[1].tolist() == [50, 42]
    assert result[2].tolist() == [np.float32(1.1), -3.0]


@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_every_line_is_sorted_by_itself(dimension: int) -> None:
    values = np.random.default_rng(0).integers(0, 50, (4, 5, 6)).astype(np.int32)
    agreement.equal(sort(values, dimension=dimension), np.sort(values, dimension))


# Comparators.

PLAIN = "ROOT c = pred[] compare(a0, b0), direction={}"
BY_SQUARE = """aa = f32[] multiply(a0, a0)
bb = f32[] multiply(b0, b0)
ROOT c = pred[] compare(aa, bb), direction=LT"""
LEXICOGRAPHIC = """first = pred[] compare(a0, b0), direction=LT
equal = pred[] compare(a0, b0), direction=EQ
second = pred[] compare(a1, b1), direction=GT
both = pred[] and(equal, second)
ROOT c = pred[] or(first, both)"""
JAX = """zero = f32[] constant(0)
quiet = f32[] constant(nan)
az = pred[] compare(a0, zero), direction=EQ
an = pred[] compare(a0, a0), direction=NE
a1 = f32[] select(az, zero, a0)
a2 = f32[] select(an, quiet, a1)
bz = pred[] compare(b0, zero), direction=EQ
bn = pred[] compare(b0, b0), direction=NE
b1 = f32[] select(bz, zero, b0)
b2 = f32[] select(bn, quiet, b1)
ROOT c = pred[] compare(a2, b2), direction=LT, type=TOTALORDER"""


@pytest.mark.parametrize("count", [1, 2, 3, 7, 31, 33, 64, 100, 1000])
def test_any_number_of_elements(count: int) -> None:
    values = np.random.default_rng(count).integers(-20, 20, count).astype(np.float32)
    agreement.equal(sort(values), np.sort(values))
    agreement.equal(sort(values, comparator=PLAIN.format("GT")), np.sort(values)[::-1])
    by_square = values[np.argsort(values**2, kind="stable")]
    agreement.equal(sort(values, comparator=BY_SQUARE), by_square)


@pytest.mark.parametrize("count", [10, 200])
@pytest.mark.parametrize(
    "comparator",
    [PLAIN.format("LT"), PLAIN.format("GT"), BY_SQUARE, LEXICOGRAPHIC],
    ids=["LT", "GT", "square", "two"],
)
def test_equal_elements_keep_their_order(count: int, comparator: str) -> None:
    random = np.random.default_rng(count)
    keys = random.integers(-3, 4, count).astype(np.float32)
    second = random.integers(0, 3, count).astype(np.int32)
    keys, second, place = sort(keys, second, np.arange(count, dtype=np.int32), comparator=comparator)
    order = {PLAIN.format("LT"): keys, PLAIN.format("GT"): -keys, BY_SQUARE: keys**2}.get(comparator)
    ranks = list(zip(keys, -second, strict=True)) if order is None else list(zip(order, strict=True))
    assert all((*a, p) < (*b, q) for a, b, p, q in zip(ranks, ranks[1:], place, place[1:], strict=False))


@pytest.mark.parametrize("count", [8, 80])
def test_jaxs_order_of_floats(count: int) -> None:
    """-0 equals 0, and every NaN comes last, all in the order that they came in."""
    values = np.array([0.0, NAN, -0.0, 1, -INF, -NAN, INF, -1] * (count // 8), np.float32)
    result = sort(values, comparator=JAX)

    def compare(a: np.float32, b: np.float32) -> int:
        if np.isnan(a) or np.isnan(b):
            return int(np.isnan(a)) - int(np.isnan(b))
        return int(a > b) - int(a < b)

    expected = np.array(sorted(values, key=cmp_to_key(compare)), np.float32)
    agreement.equal(result.view(np.int32), expected.view(np.int32))


def test_total_order() -> None:
    values = np.array([0.0, NAN, -0.0, 1, -INF, -NAN, INF, -1] * 5, np.float32)
    result = sort(values, comparator=PLAIN.format("LT") + ", type=TOTALORDER")
    expected = np.repeat(np.array([-NAN, -INF, -1, -0.0, 0.0, 1, INF, NAN], np.float32), 5)
    agreement.equal(result.view(np.int32), expected.view(np.int32))


def test_nan_under_a_partial_order_loses_nothing() -> None:
    values = np.array([3, NAN, 1, 2, NAN, 0] * 10, np.float32)
    result = sort(values)
    agreement.equal(np.sort(result), np.sort(values))


def test_a_comparator_of_nothing_changes_nothing() -> None:
    values = np.random.default_rng(0).normal(size=50).astype(np.float32)
    agreement.equal(sort(values, comparator="ROOT c = pred[] constant(false)"), values)


@pytest.mark.parametrize(
    "dtype",
    [np.bool_, np.int8, np.uint64, ml_dtypes.int4, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.float64],
)
def test_every_type(dtype: type) -> None:
    values = np.random.default_rng(0).integers(0, 2, 40).astype(dtype)
    result = sort(values)
    assert result.dtype == values.dtype
    agreement.equal(result.astype(float), np.sort(values.astype(float)))


def test_the_extremes_of_integers() -> None:
    values = np.array([2**63 - 1, 0, -(2**63), -1] * 10, np.int64)
    agreement.equal(sort(values), np.sort(values))
    agreement.equal(sort(values, comparator=PLAIN.format("GT")), np.sort(values)[::-1])


def test_complex_numbers_by_their_real_parts() -> None:
    values = np.array([2 + 1j, 1 + 5j, 2 - 1j, 0 + 0j] * 10, np.complex64)
    by_real = "a = f32[] real(a0)\nb = f32[] real(b0)\nROOT c = pred[] compare(a, b), direction=LT"
    agreement.equal(sort(values, comparator=by_real), values[np.argsort(values.real, kind="stable")])


def test_a_comparator_may_be_more_precise_than_the_operand() -> None:
    values = np.array([3, 1, 2] * 20, np.float16)
    text = sort_text([values], PLAIN.format("LT")).replace("f16[]", "f32[]")
    agreement.equal(evaluate(text, values), np.sort(values))


def test_nothing_to_sort() -> None:
    assert sort(np.zeros((0, 3), np.float32)).shape == (0, 3)
    pair = sort(np.zeros((3, 0), np.float32), np.zeros((3, 0), np.int32))
    assert [a.shape for a in pair] == [(3, 0), (3, 0)]


def test_a_million_elements_take_seconds() -> None:
    values = np.random.default_rng(0).normal(size=1_000_000).astype(np.float32)
    agreement.equal(sort(values, comparator=JAX), np.sort(values))


def test_the_second_opinion() -> None:
    random = np.random.default_rng(3)
    arrays = [
        random.integers(0, 9, (7, 60)).astype(np.float32),
        random.integers(0, 9, (7, 60)).astype(np.int32),
    ]
    text = sort_text(arrays, LEXICOGRAPHIC, 1).replace("dimensions={1},", "dimensions={1}, is_stable=true,")
    for mine, other in zip(evaluate(text, *arrays), oracle.run(text, *arrays), strict=True):
        agreement.equal(mine, other)


# topk.


def topk(values: np.ndarray, k: int, largest: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate a topk."""
    name = ElementType.from_dtype(values.dtype).name
    shape = f"{name}[{','.join(map(str, values.shape))}]"
    return evaluate(
        f"a = {shape} parameter(0)\nROOT r = topk(a), k={k}, largest={str(largest).lower()}", values
    )


def test_the_largest_and_the_smallest() -> None:
    values = np.array([[1, 5, 3, 5], [7, 0, 7, 7]], np.int32)
    top, where = topk(values, 3)
    assert top.tolist() == [[5, 5, 3], [7, 7, 7]]
    assert where.tolist() == [[1, 3, 2], [0, 2, 3]]
    assert where.dtype == np.int32
    bottom, where = topk(values, 2, largest=False)
    assert bottom.tolist() == [[1, 3], [0, 7]]
    assert where.tolist() == [[0, 2], [1, 0]]


def test_nan_is_the_largest() -> None:
    values = np.array([1, NAN, INF, -0.0, 0.0, -NAN, NAN, -INF], np.float32)
    assert topk(values, 8)[1].tolist() == [1, 6, 2, 0, 4, 3, 7, 5]
    assert topk(values, 8, largest=False)[1].tolist() == [5, 7, 3, 4, 0, 2, 1, 6]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
def test_extremes(dtype: type) -> None:
    info = np.iinfo(dtype)
    values = np.array([0, info.max, info.min, 1], dtype)
    assert topk(values, 2)[0].tolist() == [info.max, 1]
    assert topk(values, 1, largest=False)[0].tolist() == [info.min]


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, ml_dtypes.int4, np.bool_])
def test_topk_of_narrow_types(dtype: type) -> None:
    values = np.array([0, 1, 0, 1], dtype)
    top, where = topk(values, 3)
    assert top.dtype == values.dtype
    assert where.tolist() == [1, 3, 0]


def test_none_of_them() -> None:
    assert [a.shape for a in topk(np.zeros((2, 5), np.float32), 0)] == [(2, 0), (2, 0)]
    assert [a.shape for a in topk(np.zeros((0, 5), np.float32), 2)] == [(0, 2), (0, 2)]


# What is refused.

BEFORE = (
    comparison("LT", name="before")
    + binary("add", name="sum")
    + comparison("LT", "s32", name="integers")
    + """
ENTRY e {
 a = f32[3,4] parameter(0)
 b = f32[4,3] parameter(1)
 t = (f32[3]) parameter(2)
 s = f32[] parameter(3)
 z = c64[3] parameter(4)
 ROOT r = """
)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("sort.operands", "() sort(), dimensions={0}, to_apply=before"),
        ("sort.operand-array", "f32[3] sort(t), dimensions={0}, to_apply=before"),
        ("sort.same-dimensions", "sort(a, b), dimensions={0}, to_apply=before"),
        ("sort.one-dimension", "f32[3,4] sort(a), dimensions={0,1}, to_apply=before"),
        ("sort.dimension-range", "f32[3,4] sort(a), dimensions={2}, to_apply=before"),
        ("sort.dimension-range", "f32[] sort(s), dimensions={0}, to_apply=before"),
        ("sort.comparator-result", "f32[3,4] sort(a), dimensions={0}, to_apply=sum"),
        ("sort.comparator-arity", "sort(a, a), dimensions={0}, to_apply=before"),
        ("sort.comparator-parameters", "f32[3,4] sort(a), dimensions={0}, to_apply=integers"),
        ("topk.operand-array", "topk(t), k=1, largest=true"),
        ("topk.rank", "topk(s), k=1, largest=true"),
        ("topk.element-type", "topk(z), k=1, largest=true"),
        ("topk.k", "topk(a), k=5, largest=true"),
        ("topk.k", "topk(a), k=-1, largest=true"),
    ],
)
def test_refused(rule: str, text: str) -> None:
    assert refused(BEFORE + text + "\n}").rule == rule
