"""The page "Operation semantics" on Reduce, ReduceWindow, SelectAndScatter, Sort: beyond its examples."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hloom import XlaOp, ops
from tests.arrays import f32, s32
from tests.builder.building import ADD, ADD_S32, GE, LT, MAX, MIN, scalar
from tests.pages.both import rule_of, shape_of, value

LOWEST, LARGEST = np.finfo(f32).min, np.finfo(f32).max


# -- Reduce


@pytest.mark.parametrize("count", range(5))
def test_reduce_over_any_dimensions_in_any_order(count: int) -> None:
    x = np.arange(2 * 3 * 4 * 5, dtype=s32).reshape(2, 3, 4, 5)
    for dimensions in itertools.permutations(range(4), count):
        found = value(lambda x, d=dimensions: ops.Reduce(x, s32(3), ADD_S32, d), x)
        assert found.shape == tuple(s for d, s in enumerate(x.shape) if d not in dimensions)
        assert (found == x.sum(tuple(dimensions)) + 3).all()


def test_an_array_without_elements_reduces_to_the_initial_value() -> None:
    assert value(lambda x: ops.Reduce(x, f32(7), ADD, [1]), np.zeros((3, 0), f32)).tolist() == [7, 7, 7]
    assert value(lambda x: ops.Reduce(x, f32(7), ADD, [0]), np.zeros((3, 0), f32)).shape == (0,)


def test_reductions_of_several_arrays_take_and_give_tuples() -> None:
    def sum_and_largest(a: XlaOp, b: XlaOp, x: XlaOp, y: XlaOp) -> XlaOp:
        return ops.Tuple([a + x, ops.Max(b, y)])

    computation = scalar(sum_and_largest, "s32", "f32", "s32", "f32")
    x, y = np.arange(12, dtype=s32).reshape(3, 4), f32(np.arange(12) * 7 % 5).reshape(3, 4)
    for axis in (0, 1):
        first, second = value(
            lambda x, y, d=axis: ops.Reduce([x, y], [s32(0), f32(-1)], computation, [d]), x, y
        )
        assert (first == x.sum(axis)).all()
        assert (second == y.max(axis)).all()


def argmax(values: Any) -> tuple[float, int]:
    """The page's recursion f_0, f_1, …: of equal values the last is kept."""
    best, place = -np.inf, -1
    for number, v in enumerate(values):
        if v >= best:
            best, place = v, number
    return float(best), place


def keep_the_last(best: XlaOp, place: XlaOp, v: XlaOp, number: XlaOp) -> XlaOp:
    larger = v >= best
    return ops.Tuple([ops.Select(larger, v, best), ops.Select(larger, number, place)])


COUNTS = (1, 5, 16, 40, 100, 1000)
VALUES = {
    "equal": lambda n: np.ones(n), "mixed": lambda n: np.arange(n) * 7 % 5, "rising": lambda n: np.arange(n)
}  # fmt: skip


def last_of_the_largest(values: XlaOp, places: XlaOp) -> XlaOp:
    computation = scalar(keep_the_last, "f32", "s32", "f32", "s32")
    return ops.Reduce([values, places], [f32(-np.inf), s32(-1)], computation, [0])


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", VALUES)
def test_the_variadic_argmax_is_the_pages_recursion(count: int, kind: str) -> None:
    values = VALUES[kind](count)
    found = value(last_of_the_largest, f32(values), np.arange(count, dtype=s32))
    assert tuple(e.item() for e in found) == argmax(values)


@pytest.mark.parametrize(("count", "kind"), itertools.product(COUNTS, VALUES))
def test_the_variadic_argmax_over_sequential_indices(count: int, kind: str) -> None:
    values = VALUES[kind](count)
    found = value(lambda v: last_of_the_largest(v, ops.Iota(v.builder, f"s32[{count}]", 0)), f32(values))
    assert tuple(e.item() for e in found) == argmax(values)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x, y: ops.Reduce([x, y], [0.0, 0.0], ADD, [0]), ("f32[4]", "f32[4]")),
        (lambda x, y: ops.Reduce([x, y], [0.0], ADD, [0]), ("f32[4]", "f32[4]")),
        (lambda x: ops.Reduce(x, 0, ADD, [1]), ("f32[4]",)),
        (lambda x: ops.Reduce(x, 0, ADD, [0, 0]), ("f32[4]",)),
        (lambda x: ops.Reduce(x, x, ADD, [0]), ("f32[4]",)),
        (lambda x: ops.Reduce(x, 0, ADD_S32, [0]), ("f32[4]",)),
        (lambda x, y: ops.Reduce([x, y], [0.0, 0.0], scalar(keep_the_last, "f32", "s32", "f32", "s32"), [0]),
         ("f32[4]", "f32[4]")),
        (lambda x, y: ops.Reduce([x, y], [0.0, 0], scalar(keep_the_last, "f32", "s32", "f32", "s32"), [0]),
         ("f32[4]", "s32[5]")),
    ],
)  # fmt: skip
def test_rules_of_reduce(function: Any, shapes: Sequence[str]) -> None:
    assert rule_of(function, *shapes).startswith("reduce.")


# -- ReduceWindow


def windows(
    x: Any, size: Any, stride: Any, pads: Any, base: Any, window: Any, start: Any, combine: Any
) -> Any:
    """The page's definition: dilate the base, pad it with the initial value, then reduce every window."""
    for axis, (d, (low, high)) in enumerate(zip(base, pads, strict=True)):
        shape = [s if a != axis else (max((s - 1) * d + 1, 0) if s else 0) for a, s in enumerate(x.shape)]
        spread = np.full(shape, start, x.dtype)
        spread[(slice(None),) * axis + (slice(None, None, d),)] = x
        x = np.pad(
            spread, [(low, high) if a == axis else (0, 0) for a in range(x.ndim)], constant_values=start
        )
    extent = [(s - 1) * d + 1 for s, d in zip(size, window, strict=True)]
    counts = [max((n - e) // t + 1, 0) for n, e, t in zip(x.shape, extent, stride, strict=True)]
    result = np.empty(counts, x.dtype)
    for index in np.ndindex(*counts):
        part = x[
            tuple(
                slice(i * t, i * t + e, d) for i, t, e, d in zip(index, stride, extent, window, strict=True)
            )
        ]
        result[index] = combine(part, start)
    return result


@pytest.mark.parametrize(
    ("size", "stride", "pads", "base", "window"),
    [
        ((2, 3), (2, 3), ((0, 0), (0, 0)), (1, 1), (1, 1)),
        ((2, 3), (1, 1), ((1, 0), (2, 1)), (1, 1), (1, 1)),
        ((1, 1), (3, 2), ((0, 0), (0, 0)), (1, 1), (1, 1)),
        ((2, 2), (1, 2), ((0, 1), (1, 1)), (2, 3), (1, 1)),
        ((2, 2), (1, 1), ((0, 0), (0, 0)), (1, 1), (2, 3)),
        ((3, 2), (2, 1), ((2, 2), (0, 3)), (2, 1), (1, 4)),
        ((4, 6), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)),
        ((5, 1), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)),
    ],
)
@pytest.mark.parametrize("combiner", ["max", "add", "min"])
def test_reduce_window(size: Any, stride: Any, pads: Any, base: Any, window: Any, combiner: str) -> None:
    x = f32(np.random.default_rng(0).integers(-9, 9, (4, 6)))
    computation, start, combine = {
        "max": (MAX, LOWEST, lambda part, start: max(part.max(), start)),
        "min": (MIN, LARGEST, lambda part, start: min(part.min(), start)),
        "add": (ADD, f32(0), lambda part, start: part.sum() + start),
    }[combiner]
    found = value(lambda x: ops.ReduceWindow(x, start, computation, size, stride, pads, base, window), x)
    wanted = windows(x, size, stride, pads, base, window, start, combine)
    assert found.shape == wanted.shape
    assert (found == wanted).all()


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 5, 6])
def test_same_padding_keeps_the_shape_for_stride_1_and_valid_pads_nothing(
    size: int, stride: int, count: int
) -> None:
    x = np.arange(1, count + 1, dtype=f32)
    same = value(lambda x: ops.ReduceWindow(x, LOWEST, MAX, [size], [stride], "SAME"), x)
    assert same.shape == (-(-count // stride),)
    valid = value(lambda x: ops.ReduceWindow(x, LOWEST, MAX, [size], [stride], "VALID"), x)
    assert valid.tolist() == [i + size for i in range(0, count - size + 1, stride)]


def test_windows_over_several_arrays() -> None:
    computation = scalar(keep_the_last, "f32", "s32", "f32", "s32")
    x, places = f32([3, 1, 4, 4, 5, 9, 2, 6]), np.arange(8, dtype=s32)
    best, where = value(
        lambda v, k: ops.ReduceWindow([v, k], [f32(-np.inf), s32(-1)], computation, [3], [2], "VALID"),
        x,
        places,
    )
    wanted = [argmax(x[i : i + 3]) for i in range(0, 6, 2)]
    assert best.tolist() == [v for v, _ in wanted]
    assert where.tolist() == [2 * n + k for n, (_, k) in enumerate(wanted)]


# -- SelectAndScatter


@pytest.mark.parametrize(
    ("size", "stride", "padding"),
    [
        ((2, 3), (2, 3), "VALID"),
        ((2, 3), (2, 2), "VALID"),
        ((3, 2), (1, 2), "SAME"),
        ((2, 2), (2, 2), "SAME"),
    ],
)
def test_select_and_scatter_is_the_composition(size: Any, stride: Any, padding: str) -> None:
    rng = np.random.default_rng(2)
    operand = f32(rng.permutation(30).reshape(5, 6))
    positions = shape_of(lambda x: ops.ReduceWindow(x, LOWEST, MAX, size, stride, padding), "f32[5,6]")
    counts = [int(n) for n in positions[4:-1].split(",")]
    source = f32(rng.integers(1, 9, counts))
    found = value(
        lambda o, s: ops.SelectAndScatter(o, GE, size, stride, padding, s, f32(100), ADD), operand, source
    )
    lows = [
        max((n - 1) * t + e - full, 0) // 2 if padding == "SAME" else 0
        for n, t, e, full in zip(counts, stride, size, operand.shape, strict=True)
    ]
    wanted = np.full((5, 6), 100, f32)
    for index in np.ndindex(*counts):
        inside = [
            place
            for place in (
                tuple(i * t - low + w for i, t, low, w in zip(index, stride, lows, window, strict=True))
                for window in np.ndindex(*size)
            )
            if all(0 <= p < full for p, full in zip(place, operand.shape, strict=True))
        ]
        wanted[max(inside, key=lambda place: operand[place])] += source[index]
    assert (found == wanted).all()


def test_select_sees_the_lexicographically_smaller_index_first() -> None:
    operand, source = np.zeros((2, 4), f32), f32([[1, 2]])
    first = value(
        lambda o, s: ops.SelectAndScatter(o, GE, [2, 2], [2, 2], "VALID", s, 0, ADD), operand, source
    )
    assert first.tolist() == [[1, 0, 2, 0], [0, 0, 0, 0]]
    greater = scalar(ops.Gt, "f32", "f32")
    last = value(
        lambda o, s: ops.SelectAndScatter(o, greater, [2, 2], [2, 2], "VALID", s, 0, ADD), operand, source
    )
    assert last.tolist() == [[0, 0, 0, 0], [0, 1, 0, 2]]


def test_scatter_gets_the_current_value_and_the_source() -> None:
    computation = scalar(lambda current, update: current * 10 + update, "f32", "f32")
    found = value(
        lambda o, s: ops.SelectAndScatter(o, GE, [3], [3], "VALID", s, f32(4), computation),
        f32([1, 9, 2]),
        f32([7]),
    )
    assert found.tolist() == [4, 47, 4]
    assert rule_of(
        lambda o, s: ops.SelectAndScatter(o, GE, [2], [2], "VALID", s, 0, ADD), "f32[4]", "f32[3]"
    ).startswith("select-and-scatter.")


# -- Sort


@pytest.mark.parametrize("dimension", [0, 1, 2, -1])
def test_sort_along_one_dimension(dimension: int) -> None:
    x = f32(np.random.default_rng(0).permutation(60).reshape(3, 4, 5))
    assert (value(lambda x: ops.Sort([x], LT, dimension), x) == np.sort(x, dimension)).all()
    descending = scalar(ops.Gt, "f32", "f32")
    found = value(lambda x: ops.Sort([x], descending, dimension), x)
    assert (found == -np.sort(-x, dimension)).all()


def test_by_default_the_last_dimension_is_sorted() -> None:
    x = f32(np.random.default_rng(0).permutation(12).reshape(3, 4))
    assert (value(lambda x: ops.Sort([x], LT), x) == np.sort(x, 1)).all()
    assert "is_stable" not in str(shape_of(lambda x: ops.Sort([x], LT), "f32[4]"))


@pytest.mark.parametrize("count", [0, 1, 2, 7, 100, 1000])
def test_sorted_neighbours_are_in_order_and_equals_keep_theirs(count: int) -> None:
    rng = np.random.default_rng(count)
    keys, order = rng.integers(0, 10, count).astype(s32), np.arange(count, dtype=s32)
    by_key = scalar(lambda a, b, *others: a < b, "s32", "s32", "s32", "s32", "f32", "f32")
    sorted_keys, places, third = value(
        lambda k, i, v: ops.Sort([k, i, v], by_key, 0, True), keys, order, f32(keys) * 2
    )
    assert places.tolist() == sorted(range(count), key=lambda i: keys[i])
    assert (sorted_keys == keys[places]).all()
    assert (third == 2 * sorted_keys).all()


def test_the_comparator_sees_parameters_2k_and_2k_plus_1() -> None:
    ties = scalar(lambda a, b, c, d: ops.Or(a < b, ops.And(ops.Eq(a, b), c > d)), "s32", "s32", "f32", "f32")
    keys, values = s32([1, 0, 1, 0, 1]), f32([1, 2, 3, 4, 5])
    first, second = value(lambda k, v: ops.Sort([k, v], ties, 0), keys, values)
    assert (first.tolist(), second.tolist()) == ([0, 0, 1, 1, 1], [4, 2, 5, 3, 1])


def test_sorted_arrays_have_the_same_dimensions() -> None:
    by_first = scalar(lambda a, b, c, d: a < b, "f32", "f32", "f32", "f32")
    assert rule_of(lambda x, y: ops.Sort([x, y], by_first, 0), "f32[4]", "f32[5]").startswith("sort.")
    assert rule_of(lambda x, y: ops.Sort([x, y], LT, 0), "f32[4]", "f32[4]").startswith("sort.")
    assert rule_of(lambda x: ops.Sort([x], LT, 1), "f32[4]")
