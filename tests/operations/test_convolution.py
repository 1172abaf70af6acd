"""Convolution, against the page's nested loops."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hloom.ir.window import WindowDimension
from tests import oracle
from tests.arrays import f32
from tests.evaluation import parse
from tests.one_operation import apply, array, program, refusal, same


def nested_loops(
    lhs: np.ndarray[Any, Any], rhs: np.ndarray[Any, Any], window: list[WindowDimension], groups: int = 1,
    batch_groups: int = 1,
) -> np.ndarray[Any, Any]:  # fmt: skip
    """The page's pseudo-code for any number of spatial dimensions: lhs is [b, z, ...], rhs [oz, iz, ...]."""
    batch, outputs, inputs = lhs.shape[0] // batch_groups, rhs.shape[0], rhs.shape[1]
    positions = [d.output_size(size) for d, size in zip(window, lhs.shape[2:])]
    output = np.zeros((batch, outputs, *positions), lhs.dtype)
    for b, oz, *o in itertools.product(*map(range, output.shape)):
        group = oz // (outputs // groups)
        source = oz // (outputs // batch_groups) * batch + b
        for iz, *k in itertools.product(range(inputs), *(range(d.size) for d in window)):
            place = [_place(d, at, element) for d, at, element in zip(window, o, k)]
            if all(p is not None and 0 <= p < size for p, size in zip(place, lhs.shape[2:])):
                output[(b, oz, *o)] += lhs[(source, group * inputs + iz, *place)] * rhs[(oz, iz, *k)]
    return output


def _place(d: WindowDimension, position: int, element: int) -> int | None:
    """Return the index in the base dimension of a kernel element; None in a hole."""
    k = d.size - 1 - element if d.window_reversal else element
    padded = position * d.stride + k * d.window_dilation - d.padding_low
    return padded // d.base_dilation if padded % d.base_dilation == 0 else None


def text_of(window: list[WindowDimension]) -> str:
    parts = {
        "size": [d.size for d in window],
        "stride": [d.stride for d in window],
        "pad": [f"{d.padding_low}_{d.padding_high}" for d in window],
        "lhs_dilate": [d.base_dilation for d in window],
        "rhs_dilate": [d.window_dilation for d in window],
        "rhs_reversal": [int(d.window_reversal) for d in window],
    }
    return "{" + " ".join(f"{name}={'x'.join(map(str, values))}" for name, values in parts.items()) + "}"


def convolve(lhs: Any, rhs: Any, window: list[WindowDimension], more: str = "", result: str = "") -> Any:
    spatial = "".join(map(str, range(len(window))))
    attributes = f"window={text_of(window)}, " if window else ""
    attributes += f"dim_labels=bf{spatial}_oi{spatial}->bf{spatial}{more}"
    return apply("convolution", lhs, rhs, attributes=attributes, result=result)


windows = st.builds(
    WindowDimension,
    size=st.integers(1, 3),
    stride=st.integers(1, 3),
    padding_low=st.integers(-2, 3),
    padding_high=st.integers(-2, 3),
    window_dilation=st.integers(1, 2),
    base_dilation=st.integers(1, 3),
    window_reversal=st.booleans(),
)


@given(st.lists(windows, max_size=2), st.data())
@settings(max_examples=60)
def test_the_pages_pseudo_code(window: list[WindowDimension], data: st.DataObject) -> None:
    sizes = [data.draw(st.integers(0, 5)) for _ in window]
    batch, inputs, outputs = (data.draw(st.integers(0, 2)) for _ in range(3))
    lhs = np.arange(batch * inputs * int(np.prod(sizes)), dtype=np.int32).reshape(batch, inputs, *sizes)
    rhs = (1 + np.arange(outputs * inputs * int(np.prod([d.size for d in window])), dtype=np.int32)).reshape(
        outputs, inputs, *(d.size for d in window)
    )
    same(convolve(lhs, rhs, window), nested_loops(lhs, rhs, window))
    if rhs.size:  # zero times an infinite element would be NaN
        infinite = rhs.astype(f32)
        infinite.reshape(-1)[data.draw(st.integers(0, rhs.size - 1))] = np.inf
        with np.errstate(invalid="ignore"):
            wanted = nested_loops(lhs.astype(f32), infinite, window)
        same(convolve(lhs.astype(f32), infinite, window), wanted)


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_feature_groups(groups: int) -> None:
    rng = np.random.default_rng(0)
    lhs, rhs = rng.integers(-9, 9, (2, 6, 5, 4)), rng.integers(-9, 9, (6, 6 // groups, 2, 3))
    window = [WindowDimension(2, padding_low=1), WindowDimension(3, stride=2, padding_high=1)]
    result = convolve(lhs, rhs, window, f", feature_group_count={groups}")
    same(result, nested_loops(lhs, rhs, window, groups=groups))


def test_depthwise() -> None:
    lhs = f32([[[1, 2, 3], [10, 20, 30]]])
    rhs = f32([[[1, 1]], [[1, -1]]])
    result = convolve(lhs, rhs, [WindowDimension(2)], ", feature_group_count=2")
    assert result.tolist() == [[[3, 5], [-10, -10]]]


@pytest.mark.parametrize("batch_groups", [1, 2, 4])
def test_batch_groups(batch_groups: int) -> None:
    rng = np.random.default_rng(1)
    lhs, rhs = rng.integers(-9, 9, (4, 3, 5)), rng.integers(-9, 9, (8, 3, 2))
    window = [WindowDimension(2, padding_low=1)]
    result = convolve(lhs, rhs, window, f", batch_group_count={batch_groups}")
    same(result, nested_loops(lhs, rhs, window, batch_groups=batch_groups))


def test_windows_with_fewer_positions_than_elements() -> None:
    rng = np.random.default_rng(2)
    lhs, rhs = rng.integers(-9, 9, (2, 3, 9, 8)), rng.integers(-9, 9, (4, 3, 8, 4))
    window = [WindowDimension(8), WindowDimension(4, window_dilation=2, window_reversal=True)]
    same(convolve(lhs, rhs, window), nested_loops(lhs, rhs, window))


def test_every_role_may_be_anywhere() -> None:
    rng = np.random.default_rng(3)
    lhs, rhs = rng.integers(-9, 9, (2, 3, 5, 4)), rng.integers(-9, 9, (6, 3, 2, 3))
    window = [WindowDimension(2), WindowDimension(3)]
    result = apply(
        "convolution", lhs.transpose(2, 3, 1, 0), rhs.transpose(1, 3, 2, 0),
        attributes=f"window={text_of(window)}, dim_labels=01fb_i10o->1bf0",
    )  # fmt: skip
    same(result, nested_loops(lhs, rhs, window).transpose(3, 0, 1, 2))


def test_without_spatial_dimensions_it_is_a_matrix_product() -> None:
    lhs, rhs = f32([[1, 2], [3, 4]]), f32([[5, 6], [7, 8], [9, 0]])
    same(convolve(lhs, rhs, []), lhs @ rhs.T)


def test_negative_padding_crops() -> None:
    window = [WindowDimension(1, padding_low=-1, padding_high=-2)]
    assert convolve(f32([[[1, 2, 3, 4, 5]]]), f32([[[1]]]), window).tolist() == [[[2, 3]]]


def test_negative_padding_crops_holes_too() -> None:
    window = [WindowDimension(1, padding_low=-1, base_dilation=2)]
    assert convolve(f32([[[1, 2, 3]]]), f32([[[1]]]), window).tolist() == [[[0, 2, 0, 3]]]


def test_a_window_that_does_not_fit_has_no_position() -> None:
    assert convolve(np.ones((1, 1, 2), f32), np.ones((1, 1, 3), f32), [WindowDimension(3)]).shape == (1, 1, 0)
    cropped = [WindowDimension(1, padding_low=-9)]
    assert convolve(np.ones((1, 1, 2), f32), np.ones((1, 1, 1), f32), cropped).shape == (1, 1, 0)


def test_no_input_features_give_zeros() -> None:
    result = convolve(np.ones((2, 0, 3), f32), np.ones((4, 0, 2), f32), [WindowDimension(2)])
    same(result, np.zeros((2, 4, 2)))


@pytest.mark.parametrize(
    "element_type", ["s4", "s8", "u32", "pred", "f8e5m2", "bf16", "f16", "f64", "c64", "c128"]
)
def test_element_types(element_type: str) -> None:
    lhs, rhs = array(element_type, [[[1, 0, 1]]]), array(element_type, [[[1, 1]]])
    same(convolve(lhs, rhs, [WindowDimension(2)]), array(element_type, [[[1, 1]]]))


def test_narrow_integers_into_wide_sums() -> None:
    lhs = np.full((1, 1, 2), -128, np.int8)
    result = convolve(lhs, lhs, [WindowDimension(2)], result="s32[1,1,1]")
    assert result.tolist() == [[[2 * 128 * 128]]]


@pytest.mark.parametrize(
    ("lhs", "rhs", "attributes", "rule"),
    [
        ("f32[2,4,5]", "f32[6,4,3]", "window={size=3x3}", "convolution.window-rank"),
        ("f32[2,4,5]", "f32[6,4,2]", "window={size=3}", "convolution.window-size"),
        ("f32[2,4,5]", "f32[6,4,0]", "window={size=0}", "convolution.window-size"),
        ("f32[2,4,5]", "f32[6,4,3]", "window={size=3 stride=0}", "convolution.window-stride"),
        ("f32[2,4,5]", "f32[6,4,3]", "window={size=3 lhs_dilate=0}", "convolution.window-base-dilation"),
        ("f32[2,4,5]", "f32[6,4,3]", "window={size=3 rhs_dilate=0}", "convolution.window-window-dilation"),
        ("f32[2,4]", "f32[6,4,3]", "window={size=3}", "convolution.operand-rank"),
        ("f32[2,4,5]", "f32[6,3,3]", "window={size=3}", "convolution.input-features"),
        ("f32[2,4,5]", "f32[6,4,3]", "window={size=3}, feature_group_count=0", "convolution.group-count"),
        ("f32[2,4,5]", "f32[6,4,3]", "window={size=3}, batch_group_count=0", "convolution.group-count"),
        ("f32[2,4,5]", "f32[6,2,3]", "window={size=3}, feature_group_count=2, batch_group_count=2",
         "convolution.one-grouping"),
        ("f32[2,4,5]", "f32[7,2,3]", "window={size=3}, feature_group_count=2", "convolution.output-features"),
        ("f32[2,4,5]", "f32[7,4,3]", "window={size=3}, batch_group_count=2", "convolution.output-features"),
        ("f32[2,4,5]", "f32[6,4,3]", "window={size=3}, batch_group_count=3", "convolution.batch-size"),
        ("f32[2,4,5]", "f32[<=6,4,3]", "window={size=3}", "convolution.static-output-features"),
    ],
)  # fmt: skip
def test_convolution_refuses(lhs: str, rhs: str, attributes: str, rule: str) -> None:
    assert refusal("convolution", lhs, rhs, attributes=f"{attributes}, dim_labels=bf0_oi0->bf0").rule == rule


def test_every_dimension_needs_a_role() -> None:
    attributes = "window={size=3}, dim_labels=bf?0_oi0->bf0"
    assert refusal("convolution", "f32[2,4,5]", "f32[6,4,3]", attributes=attributes).rule == (
        "convolution.dimension-roles"
    )


def test_results_hold_the_sums() -> None:
    error = refusal(
        "convolution", "s32[2,4]", "s32[6,4]", attributes="dim_labels=bf_oi->bf", result="s8[2,6]"
    )
    assert error.rule == "convolution.result-type"


@pytest.mark.parametrize(
    ("sparsity", "rule"),
    [
        ("{foo={sparsity=2x4}}", "sparsity.operand"),
        ("{lhs={dimension=1}}", "sparsity.fields"),
        ("{lhs={size=2x4}}", "sparsity.fields"),
    ],
)
def test_sparsity_is_well_formed(sparsity: str, rule: str) -> None:
    attributes = f"dim_labels=bf_oi->bf, sparsity_config={sparsity}"
    assert refusal("convolution", "f32[2,4]", "f32[6,4]", attributes=attributes).rule == rule


def test_dynamic_dimensions_pass_through() -> None:
    text = program(
        "convolution", "f32[<=2,4,<=5]", "f32[6,4,3]", attributes="window={size=3}, dim_labels=bf0_oi0->bf0"
    )
    assert str(parse(text).entry.root.shape) == "f32[<=2,6,<=3]{2,1,0}"


@pytest.mark.parametrize(
    ("lhs", "rhs", "attributes"),
    [
        ((2, 6, 7, 4), (3, 3, 4, 8), "window={size=3x3 stride=2x1 pad=1_1x-1_2}, dim_labels=b01f_01io->b01f"),
        ((4, 6, 3), (2, 3, 8), "window={size=2 pad=1_0}, dim_labels=b0f_0io->b0f, batch_group_count=2"),
        ((2, 6, 4), (2, 2, 8), "window={size=2 lhs_dilate=3 rhs_dilate=2}, dim_labels=b0f_0io->b0f, "
         "feature_group_count=2"),
        ((2, 3, 4, 5, 2), (2, 3, 2, 2, 4), "window={size=2x3x2 rhs_reversal=1x0x1}, "
         "dim_labels=b012f_012io->b012f"),
    ],
)  # fmt: skip
def test_xla_agrees(lhs: tuple[int, ...], rhs: tuple[int, ...], attributes: str) -> None:
    rng = np.random.default_rng(4)
    operands = [rng.integers(-9, 9, sizes).astype(f32) for sizes in (lhs, rhs)]
    shapes = [f"f32[{','.join(map(str, sizes))}]" for sizes in (lhs, rhs)]
    text = f"HloModule m\nENTRY e {{\n{program('convolution', *shapes, attributes=attributes)}\n}}"
    (wanted,) = oracle.run(text, *operands)
    same(apply("convolution", *operands, attributes=attributes), wanted)
