"""Reduce-window and select-and-scatter."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hloom.ir.window import WindowCodec, WindowDimension
from tests import oracle
from tests.arrays import f32, s8
from tests.one_operation import array, same
from tests.reducers import ARGMAX, LATER, apply, binary, comparison, program, refusal
from tests.work import growth

ADD, MAX, MIN = binary("add"), binary("maximum"), binary("minimum")
VECTOR = "f {\n x = f32[2] parameter(0)\n y = f32[] parameter(1)\n ROOT z = f32[] add(y, y)\n}\n"
LARGEST = np.finfo(f32).max


def windowed(window: str, values: object, computation: str = ADD, init: object = f32(0)) -> Any:
    return apply(computation, f"reduce-window(@), window={{{window}}}, to_apply=f", values, init)


# Reduce-window: the page's examples.


def test_the_pages_maxima() -> None:
    values = np.arange(24, dtype=f32).reshape(4, 6)
    assert windowed("size=2x3 stride=2x3", values, MAX, -LARGEST).tolist() == [[8, 11], [20, 23]]


def test_the_pages_minima() -> None:
    values = f32([10000, 1000, 100, 10, 1])
    assert windowed("size=3 stride=2", values, MIN, LARGEST).tolist() == [100, 1]
    assert windowed("size=3 stride=2 pad=1_1", values, MIN, LARGEST).tolist() == [1000, 10, 1]


# Windows of all kinds, against nested loops.

dimensions = st.builds(
    WindowDimension,
    size=st.integers(1, 7),
    stride=st.integers(1, 3),
    padding_low=st.integers(-2, 3),
    padding_high=st.integers(-2, 3),
    window_dilation=st.integers(1, 2),
    base_dilation=st.integers(1, 3),
)


def base_area(values: np.ndarray[Any, Any], window: list[WindowDimension], fill: int) -> np.ndarray[Any, Any]:
    """Dilated and padded, element by element."""
    sizes = [
        max(0, (s - 1) * d.base_dilation + 1 if s else 0) + d.padding_low + d.padding_high
        for s, d in zip(values.shape, window)
    ]
    base = np.full([max(0, s) for s in sizes], fill, values.dtype)
    for index in np.ndindex(*values.shape):
        place = tuple(i * d.base_dilation + d.padding_low for i, d in zip(index, window))
        if all(0 <= p < s for p, s in zip(place, base.shape)):
            base[place] = values[index]
    return base


@given(st.lists(dimensions, max_size=3), st.data())
@settings(max_examples=60)
def test_every_window(window: list[WindowDimension], data: st.DataObject) -> None:
    sizes = [data.draw(st.integers(0, 5)) for _ in window]
    values = np.arange(1, 1 + int(np.prod(sizes)), dtype=np.int32).reshape(sizes)
    base = base_area(values, window, 1000)
    counts = [d.output_size(s) for d, s in zip(window, sizes)]
    wanted = np.full(counts, 1000, np.int32)
    for position in np.ndindex(*counts):
        for element in itertools.product(*(range(d.size) for d in window)):
            wanted[position] += base[
                tuple(p * d.stride + e * d.window_dilation for p, e, d in zip(position, element, window))
            ]
    text = WindowCodec().text(tuple(window))
    operation = f"reduce-window(@), window={text}, to_apply=f" if window else "reduce-window(@), to_apply=f"
    same(apply(binary("add", "s32"), operation, values, np.int32(1000)), wanted)


# Long windows.


@pytest.mark.parametrize("size", [1, 2, 31, 32, 33, 63, 64, 65, 100])
def test_windows_keep_the_order_of_their_elements(size: int) -> None:
    values = np.arange(120, dtype=f32)
    same(windowed(f"size={size}", values, LATER), values[size - 1 :])


def test_reversed_windows() -> None:
    values = np.arange(120, dtype=f32)
    same(windowed("size=50 rhs_reversal=1", values, LATER), values[: 120 - 49])
    same(windowed("size=5 rhs_reversal=1", values, LATER), values[: 120 - 4])


def test_a_cumulative_sum_as_one_long_window() -> None:
    values = np.random.default_rng(0).integers(-9, 9, 2000).astype(f32)
    same(windowed("size=2000 pad=1999_0", values), np.cumsum(values))


def test_a_long_cumulative_sum_takes_no_quadratic_time() -> None:
    def total(count: int) -> int:
        size = f"size={count} pad={count - 1}_0"
        return int(windowed(size, np.ones(count, np.int64), binary("add", "s64"), np.int64(0))[-1])

    assert total(100_000) == 100_000  # windows of 10^10 elements in all would not fit
    assert growth(lambda count: lambda: total(count), 50_000) < 1.2


def test_cumulative_maxima_pass_nan_on() -> None:
    values = f32([1, 3, 2, np.nan, 5])
    same(windowed("size=5 pad=4_0", values, MAX, f32(-np.inf)), [1, 3, 3, np.nan, np.nan])


# Several arrays, types, sizes.


def test_several_arrays_at_once() -> None:
    values, keys = f32([1, 5, 2, 7]), np.arange(4, dtype=np.int32)
    operation = "(f32[3], s32[3]) reduce-window(@), window={size=2}, to_apply=f"
    best, where = apply(ARGMAX, operation, values, keys, f32(-np.inf), np.int32(-1))
    assert (best.tolist(), where.tolist()) == ([5, 5, 7], [1, 1, 3])


def test_a_scalar_without_a_window() -> None:
    assert apply(ADD, "reduce-window(@), to_apply=f", f32(3), f32(4)) == 7


def test_empty_arrays() -> None:
    assert windowed("size=2", np.ones(1, f32)).shape == (0,)
    same(windowed("size=1x2 pad=0_0x1_1", np.ones((2, 0), f32), init=f32(3)), [[9], [9]])
    assert windowed("size=1x1", np.ones((0, 4), f32)).shape == (0, 4)


def test_narrow_floats_are_not_summed_narrowly() -> None:
    ones = array("bf16", np.ones(600))
    assert windowed("size=600", ones, binary("add", "bf16"), array("bf16", 0)).tolist() == [600]


@pytest.mark.parametrize(
    ("computation", "window", "shapes", "rule"),
    [
        (ADD, "size=2x2", ["f32[4]", "f32[]"], "reduce-window.window-rank"),
        (ADD, "size=0", ["f32[4]", "f32[]"], "reduce-window.window-size"),
        (ADD, "size=2 stride=0", ["f32[4]", "f32[]"], "reduce-window.window-stride"),
        (ADD, "size=2 lhs_dilate=0", ["f32[4]", "f32[]"], "reduce-window.window-base-dilation"),
        (ADD, "size=2 rhs_dilate=0", ["f32[4]", "f32[]"], "reduce-window.window-window-dilation"),
        (ADD, "size=2", ["f32[4]"], "reduce-window.operand-count"),
        (ARGMAX, "size=2", ["f32[4]", "s32[5]", "f32[]", "s32[]"], "reduce-window.same-dimensions"),
        (ARGMAX, "size=2", ["f32[4]", "f32[]"], "reduce-window.computation-parameters"),
        (comparison("GE", name="f"), "size=2", ["f32[4]", "f32[]"], "reduce-window.computation-types"),
        (ADD.replace("f32[]", "f32[2]"), "size=2", ["f32[4]", "f32[2]"], "reduce-window.computation-result"),
        (VECTOR, "size=2",
         ["f32[4]", "f32[]"], "reduce-window.computation-scalars"),
        (ADD, "size=2", ["f32[4]", "f32[1]"], "reduce-window.init-value"),
    ],
)  # fmt: skip
def test_reduce_window_refuses(computation: str, window: str, shapes: list[str], rule: str) -> None:
    operation = f"reduce-window(@), window={{{window}}}, to_apply=f"
    assert refusal(computation, operation, *shapes).rule == rule


# Select-and-scatter.

POOLING_GRADIENT = comparison("GE") + ADD


def scattered(
    window: str, operand: object, source: object, init: object = f32(0), text: str = POOLING_GRADIENT
) -> Any:
    operation = f"select-and-scatter(@), window={{{window}}}, select=g, scatter=f"
    return apply(text, operation, operand, source, init)


def test_the_gradient_of_max_pooling() -> None:
    operand = f32([[7, 2, 5, 3, 10, 2], [3, 8, 9, 3, 4, 2], [1, 5, 7, 5, 6, 1], [0, 6, 2, 7, 2, 8]])
    result = scattered("size=2x3 stride=2x3", operand, f32([[2, 6], [3, 1]]))
    assert result.tolist() == [[0, 0, 0, 0, 6, 0], [0, 0, 2, 0, 0, 0], [0, 0, 3, 0, 0, 0], [0, 0, 0, 0, 0, 1]]


def test_overlapping_windows_meet_in_one_place() -> None:
    """As in the page's second figure, two windows select the 9 and their 2 and 6 make 8."""
    operand = f32([[7, 2, 5, 3, 8], [3, 8, 9, 3, 4], [1, 5, 7, 5, 6], [0, 6, 2, 10, 2]])
    result = scattered("size=2x3 stride=2x2", operand, f32([[2, 6], [3, 1]]))
    assert result.tolist() == [[0, 0, 0, 0, 0], [0, 0, 8, 0, 0], [0, 0, 3, 0, 0], [0, 0, 0, 1, 0]]


def test_ge_keeps_the_first_of_equals_and_gt_the_last() -> None:
    operand, source = f32([5, 5, 5]), f32([1])
    assert scattered("size=3", operand, source).tolist() == [1, 0, 0]
    assert scattered("size=3", operand, source, text=comparison("GT") + ADD).tolist() == [0, 0, 1]


def test_padding_is_never_selected() -> None:
    result = scattered("size=3 stride=2 pad=1_1", f32([-5, -6, -7]), f32([1, 2]), f32(10))
    assert result.tolist() == [11, 12, 10]


def test_a_window_in_the_padding_scatters_nothing() -> None:
    assert scattered("size=1 pad=1_1", f32([4]), f32([1, 2, 3])).tolist() == [2]


def test_sources_are_combined_in_their_order() -> None:
    text = comparison("GE") + LATER
    assert scattered("size=3", f32([0, 1, 9, 1, 0]), f32([1, 2, 3]), text=text).tolist() == [0, 0, 3, 0, 0]


def test_select_and_scatter_of_a_scalar_and_of_nothing() -> None:
    operation = "select-and-scatter(@), select=g, scatter=f"
    assert apply(POOLING_GRADIENT, operation, f32(1), f32(2), f32(3)) == 5
    assert scattered("size=1x1", np.ones((0, 2), f32), np.ones((0, 2), f32)).shape == (0, 2)
    same(scattered("size=3", np.ones(2, f32), np.ones(0, f32), f32(4)), [4, 4])


def test_integers_are_selected_and_scattered() -> None:
    text = comparison("LE", "s8") + binary("add", "s8")
    result = scattered("size=2", s8([3, 1, 2]), s8([100, 100]), np.int8(0), text)
    assert result.tolist() == [0, -56, 0]


@pytest.mark.parametrize(
    ("text", "shapes", "rule"),
    [
        (POOLING_GRADIENT, ["f32[4]", "f32[4]", "f32[]"], "select-and-scatter.source"),
        (POOLING_GRADIENT, ["f32[4,4]", "f32[3]", "f32[]"], "select-and-scatter.window-rank"),
        (POOLING_GRADIENT, ["token[]", "f32[3]", "f32[]"], "select-and-scatter.operand-arrays"),
        (binary("add", name="g") + ADD, ["f32[4]", "f32[3]", "f32[]"], "select-and-scatter.select"),
        (POOLING_GRADIENT, ["s32[4]", "f32[3]", "f32[]"], "select-and-scatter.select-types"),
        (comparison("GE", "s32") + ADD, ["s32[4]", "f32[3]", "f32[]"], "select-and-scatter.scatter-type"),
        (POOLING_GRADIENT, ["f32[4]", "f32[3]", "s32[]"], "select-and-scatter.init-value"),
        (comparison("GE") + ARGMAX, ["f32[4]", "f32[3]", "f32[]"],
         "select-and-scatter.computation-parameters"),
        (comparison("GE") + comparison("GE", name="f"), ["f32[4]", "f32[3]", "f32[]"],
         "select-and-scatter.computation-types"),
        (comparison("GE") + ADD.replace("f32[]", "f32[2]"), ["f32[4]", "f32[3]", "f32[2]"],
         "select-and-scatter.computation-result"),
        (comparison("GE") + VECTOR,
         ["f32[4]", "f32[3]", "f32[]"], "select-and-scatter.computation-scalars"),
    ],
)  # fmt: skip
def test_select_and_scatter_refuses(text: str, shapes: list[str], rule: str) -> None:
    operation = "select-and-scatter(@), window={size=2}, select=g, scatter=f"
    assert refusal(text, operation, *shapes).rule == rule


@pytest.mark.parametrize(
    ("field", "rule"),
    [
        ("size=0", "size"),
        ("size=2 stride=0", "stride"),
        ("size=2 lhs_dilate=0", "base-dilation"),
        ("size=2 rhs_dilate=0", "window-dilation"),
    ],
)
def test_select_and_scatter_refuses_windows(field: str, rule: str) -> None:
    operation = f"select-and-scatter(@), window={{{field}}}, select=g, scatter=f"
    error = refusal(POOLING_GRADIENT, operation, "f32[4]", "f32[3]", "f32[]")
    assert error.rule == f"select-and-scatter.window-{rule}"


# A second opinion.


@pytest.mark.parametrize(
    "window",
    ["size=2x3", "size=3x1 stride=2x1 pad=1_1x0_0", "size=2x2 rhs_dilate=2x1", "size=40x1 pad=39_0x0_0"],
)
def test_xla_agrees_on_windows(window: str) -> None:
    values = np.random.default_rng(1).integers(-99, 99, (40, 6)).astype(f32)
    operation = f"reduce-window(@), window={{{window}}}, to_apply=f"
    (wanted,) = oracle.run(program(ADD, operation, "f32[40,6]", "f32[]"), values, f32(0))
    same(apply(ADD, operation, values, f32(0)), wanted)


@pytest.mark.parametrize("window", ["size=2x3 stride=1x2", "size=3x3 stride=2x2 pad=1_1x1_1"])
def test_xla_agrees_on_scattering(window: str) -> None:
    rng = np.random.default_rng(2)
    operand = rng.integers(0, 9, (7, 7)).astype(f32)
    parts = dict(part.split("=") for part in window.split())
    size, stride = (tuple(map(int, parts[key].split("x"))) for key in ("size", "stride"))
    pad = 2 if "pad" in parts else 0
    source = rng.integers(1, 9, [(7 + pad - w) // s + 1 for w, s in zip(size, stride)]).astype(f32)
    operation = f"select-and-scatter(@), window={{{window}}}, select=g, scatter=f"
    shapes = ("f32[7,7]", f"f32[{source.shape[0]},{source.shape[1]}]", "f32[]")
    (wanted,) = oracle.run(program(POOLING_GRADIENT, operation, *shapes), operand, source, f32(1))
    same(apply(POOLING_GRADIENT, operation, operand, source, f32(1)), wanted)
