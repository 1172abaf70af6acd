"""Indices into laid-out arrays: the numbers of XLA's pages, and formulas against pad-reshape-transpose."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given

from hloom.errors import ShapeError
from hloom.shape.element_type import F32
from hloom.shape.index import (
    element_numbers,
    from_physical,
    layout_order,
    linear_index,
    linear_indices,
    multi_index,
    physical_byte_size,
    physical_element_count,
    physical_form,
    to_physical,
    waste,
)
from hloom.shape.layout import Layout
from hloom.shape.shape import Shape
from tests.arrays import s32
from tests.shape.shapes import array_shapes

LETTERS = np.array([["a", "b", "c"], ["d", "e", "f"]])


def in_memory(shape: Shape) -> str:
    """The page's array of letters as it lies in memory, 0 in padding."""
    numbers = element_numbers(shape)
    return " ".join("0" if number < 0 else str(LETTERS.reshape(-1)[number]) for number in numbers)


def test_the_pages_orders_of_a_2_by_3_array() -> None:
    assert in_memory(Shape(F32, (2, 3), None, Layout((0, 1)))) == "a d b e c f"
    assert in_memory(Shape(F32, (2, 3), None, Layout((1, 0)))) == "a b c d e f"
    assert in_memory(Shape(F32, (2, 3))) == "a b c d e f"


def test_the_older_pages_padding() -> None:
    shape = Shape(F32, (2, 3), None, Layout((0, 1), padded_dimensions=(3, 5)))
    assert in_memory(shape) == "a d 0 b e 0 c f 0 0 0 0 0 0 0"
    assert waste(shape) == 9 / 15


def test_figure_1_f32_3_5_in_2_by_2_tiles() -> None:
    shape = Shape.parse("F32[3,5]{1,0:(2,2)}")
    assert linear_index(shape, (2, 3)) == 17
    assert multi_index(shape, 17) == (2, 3)
    assert linear_indices(shape).tolist() == [[0, 1, 4, 5, 8], [2, 3, 6, 7, 10], [12, 13, 16, 17, 20]]
    assert [p for p in range(24) if multi_index(shape, p) is None] == [9, 11, 14, 15, 18, 19, 21, 22, 23]
    assert (physical_element_count(shape), physical_byte_size(shape), waste(shape)) == (24, 96, 0.375)


def test_figure_2_4_by_8_in_2_by_4_and_2_by_1_tiles() -> None:
    assert linear_indices(Shape.parse("bf16[4,8]{1,0:T(2,4)(2,1)}")).tolist() == [
        [0, 2, 4, 6, 8, 10, 12, 14],
        [1, 3, 5, 7, 9, 11, 13, 15],
        [16, 18, 20, 22, 24, 26, 28, 30],
        [17, 19, 21, 23, 25, 27, 29, 31],
    ]


def test_combined_dimensions_are_those_of_the_array_combined_first() -> None:
    # F32[2,7,8,11,10] becomes F32[112,110], which is then tiled by (2,3).
    combined = Shape.parse("F32[2,7,8,11,10]{4,3,2,1,0:(*,*,2,*,3)}")
    plain = Shape.parse("F32[112,110]{1,0:(2,3)}")
    assert physical_form(combined).dimensions == (56, 37, 2, 3) == physical_form(plain).dimensions
    assert (linear_indices(combined).reshape(112, 110) == linear_indices(plain)).all()
    assert linear_index(combined, (1, 2, 3, 4, 5)) == linear_index(plain, (1 * 56 + 2 * 8 + 3, 45))


def test_a_tile_of_fewer_dimensions_covers_the_most_minor_ones() -> None:
    assert physical_form(Shape.parse("f32[3,4,5]{0,2,1:T(2)}")).dimensions == (4, 5, 2, 2)


def test_a_tile_of_more_dimensions_sees_further_ones_of_size_1() -> None:
    assert physical_form(Shape.parse("f32[]{:T(128)}")).dimensions == (1, 128)
    assert physical_form(Shape.parse("f32[5]{0:T(2,3)}")).dimensions == (1, 2, 2, 3)


def test_a_later_tile_may_reach_the_dimensions_that_count_tiles() -> None:
    # (2,2) makes (2,3,2,2) of (3,5); (3,2,2) then groups the three tiles of a row.
    shape = Shape.parse("f32[3,5]{1,0:T(2,2)(3,2,2)}")
    assert physical_form(shape).dimensions == (2, 1, 1, 1, 3, 2, 2)
    assert linear_index(shape, (2, 3)) == 17


def test_tail_padding_rounds_the_tiled_count_up() -> None:
    shape = Shape.parse("f32[3,5]{1,0:T(2,2)L(32)}")
    assert physical_element_count(shape) == 32
    assert [multi_index(shape, position) for position in (23, 24, 31)] == [None, None, None]


def test_layout_order_goes_through_memory() -> None:
    assert list(layout_order(Shape.parse("f32[2,2]{0,1}"))) == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert list(layout_order(Shape.parse("f32[1,3]{1,0:T(2,2)}"))) == [(0, 0), (0, 1), (0, 2)]
    assert list(layout_order(Shape(F32))) == [()]
    assert list(layout_order(Shape(F32, (0,)))) == []


def test_bounds_count_for_dynamic_dimensions() -> None:
    assert physical_element_count(Shape.parse("f32[<=3,5]{1,0:T(2,2)}")) == 24


def test_arrays_without_elements_take_no_memory() -> None:
    shape = Shape.parse("f32[0,3]{1,0:T(2,2)}")
    assert (physical_element_count(shape), waste(shape)) == (0, 0.0)


@given(array_shapes())
def test_linear_and_multi_indices_are_inverse(shape: Shape) -> None:
    seen = 0
    for position in range(physical_element_count(shape)):
        index = multi_index(shape, position)
        if index is not None:
            assert linear_index(shape, index) == position
            seen += 1
    assert seen == shape.element_count


@given(array_shapes())
def test_formulas_agree_with_pad_reshape_transpose(shape: Shape) -> None:
    array = np.arange(1, shape.element_count + 1).reshape(shape.dimensions)
    elements = to_physical(shape, array)
    assert elements.shape == (physical_element_count(shape),)
    assert (elements[linear_indices(shape)] == array).all()
    assert np.count_nonzero(elements) == shape.element_count
    assert (element_numbers(shape) == elements - 1).all()
    assert (from_physical(shape, elements) == array).all()


@given(array_shapes())
def test_untiled_arrays_lie_as_numpy_lays_the_transpose(shape: Shape) -> None:
    assert shape.layout is not None
    plain = shape.with_layout(Layout(shape.layout.minor_to_major))
    array = np.arange(shape.element_count).reshape(shape.dimensions)
    assert (to_physical(plain, array) == array.transpose(shape.layout.major_to_minor).reshape(-1)).all()


def test_indices_out_of_bounds_are_refused() -> None:
    shape = Shape.parse("f32[3,5]{1,0:T(2,2)}")
    for index in ((3, 0), (0, -1), (0,), (0, 0, 0)):
        with pytest.raises(ShapeError, match=r"index\.in-bounds"):
            linear_index(shape, index)
    for position in (-1, 24):
        with pytest.raises(ShapeError, match=r"index\.linear-in-bounds"):
            multi_index(shape, position)


def test_shapes_without_a_form_in_memory_are_refused() -> None:
    for text, rule in (
        ("f32[?]", "shape.bounded"),
        ("token[]", "shape.is-array"),
        ("(f32[])", "shape.is-array"),
    ):
        with pytest.raises(ShapeError) as error:
            physical_element_count(Shape.parse(text))
        assert error.value.rule == rule
    large = Shape(F32, (1 << 62,))
    assert linear_index(large, (1 << 61,)) == 1 << 61
    with pytest.raises(ShapeError, match=r"shape\.addressable"):
        linear_indices(large)
    with pytest.raises(ShapeError, match=r"shape\.rank"):
        linear_indices(Shape(F32, (1,) * 65))
    assert linear_index(Shape(F32, (2,) * 65), (1,) * 65) == math.prod([2] * 65) - 1


def test_indices_are_integers() -> None:
    shape = Shape.parse("f32[3,5]{1,0:T(2,2)}")
    for index in ((1.5, 2), 3, ("0", "0")):
        with pytest.raises(ShapeError, match=r"index\.integers"):
            linear_index(shape, index)  # type: ignore[arg-type]
    for position in (1.5, "3", None):
        with pytest.raises(ShapeError, match=r"index\.integers"):
            multi_index(shape, position)  # type: ignore[arg-type]
    assert multi_index(shape, s32(17)) == (2, 3)
