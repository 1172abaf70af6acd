"""Shapes: what they are, their sizes, equality and variations."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from hloom.errors import ShapeError
from hloom.shape.element_type import BF16, BUFFER, F32, S4, S32, TOKEN, TUPLE
from hloom.shape.layout import Layout, Tile
from hloom.shape.shape import Shape
from tests.arrays import s64

NESTED = Shape.parse("(f32[2], (s32[], token[]), ())")


def test_an_array_is_a_type_and_dimensions_in_default_layout() -> None:
    shape = Shape(F32, (2, 3, 4))
    assert str(shape) == "f32[2,3,4]{2,1,0}"
    assert shape.layout == Layout.default(3)
    assert (shape.rank, shape.element_count, shape.byte_size) == (3, 24, 96)
    assert shape.is_array and shape.is_static and not shape.is_scalar


def test_rank_0_and_size_0_are_valid() -> None:
    assert (Shape(S32).element_count, str(Shape(S32)), Shape(S32).is_scalar) == (1, "s32[]", True)
    assert (Shape(S32, (3, 0)).element_count, Shape(S32, (3, 0)).byte_size) == (0, 0)


def test_the_true_rank_counts_dimensions_larger_than_1() -> None:
    assert Shape(F32, (8, 1, 1280, 1)).true_rank == 2


def test_dimension_numbers_may_count_from_the_end() -> None:
    shape = Shape(F32, (10, 20, 30))
    assert [shape.dimension(number) for number in (0, 2, -1, -3)] == [10, 30, 30, 10]
    assert shape.axis(-1) == 2
    for number in (3, -4):
        with pytest.raises(ShapeError, match=r"shape\.dimension-number-in-range"):
            shape.dimension(number)


def test_dynamic_dimensions_have_a_bound_or_none() -> None:
    shape = Shape(F32, (10, 3, Shape.UNBOUNDED), (True, False, True))
    assert str(shape) == "f32[<=10,3,?]{2,1,0}"
    assert shape.is_dynamic and shape.is_unbounded
    assert Shape(F32, (Shape.UNBOUNDED,)).dynamic_dimensions == (True,)
    assert Shape.parse("f32[<=10,3]").element_count == 30
    with pytest.raises(ShapeError, match=r"shape\.bounded"):
        _ = shape.element_count
    assert str(Shape.parse("f32[<=10,3]").to_static()) == "f32[10,3]{1,0}"
    assert str(Shape(F32, (10, 3)).with_dynamic_dimension(-2)) == "f32[<=10,3]{1,0}"


def test_other_shapes() -> None:
    assert (Shape.token().is_token, str(Shape.token())) == (True, "token[]")
    assert (Shape.opaque().is_opaque, str(Shape.opaque())) == (True, "opaque[]")
    assert str(Shape.buffer(Shape(F32, (2,)))) == "b(f32[2]{0})"
    assert str(Shape.tuple_([])) == "()"
    assert not any(shape.is_array for shape in (Shape.token(), Shape.opaque(), NESTED))


def test_tuples_number_every_fifth_element() -> None:
    inner = Shape.tuple_([Shape(S32)] * 7)
    five = ", ".join(["s32[]"] * 5)
    assert str(inner) == f"({five}, /*index=5*/s32[], s32[])"
    assert str(Shape.tuple_([inner] + [Shape(S32)] * 5)).endswith(
        "), s32[], s32[], s32[], s32[], /*index=5*/s32[])"
    )


def test_tuples_are_walked_by_index() -> None:
    assert [(index, str(shape)) for index, shape in NESTED.walk()] == [
        ((), "(f32[2]{0}, (s32[], token[]), ())"),
        ((0,), "f32[2]{0}"),
        ((1,), "(s32[], token[])"),
        ((1, 0), "s32[]"),
        ((1, 1), "token[]"),
        ((2,), "()"),
    ]
    assert [index for index, _ in NESTED.leaves()] == [(0,), (1, 0), (1, 1)]
    assert NESTED.subshape((1, 0)) == Shape(S32)
    assert NESTED.subshape(()) is NESTED
    for index in ((3,), (0, 0), (-1,)):
        with pytest.raises(ShapeError, match=r"shape\.index-valid"):
            NESTED.subshape(index)


def test_sizes_of_tuples_are_sums_over_their_leaves() -> None:
    assert (NESTED.element_count, NESTED.byte_size) == (3, 12)


def test_bytes_follow_the_layout() -> None:
    assert Shape.parse("bf16[8,1,1280,16384]{3,2,0,1:T(8,128)(2,1)S(1)}").byte_size == 335544320
    assert Shape.parse("F32[3,5]{1,0:(2,2)}").byte_size == 96
    assert Shape.parse("F32[3,5]{1,0:(2,2)}").unpadded_byte_size == 60
    assert (Shape(S4, (3,)).byte_size, Shape.parse("s4[3]{0:E(4)}").byte_size) == (3, 2)
    assert Shape.parse("f32[]{:T(128)}").byte_size == 512
    assert Shape.parse("u8[10]{0:L(16)}").byte_size == 16
    assert Shape(F32, (2, 3), None, Layout((0, 1), padded_dimensions=(3, 5))).byte_size == 60
    assert Shape.buffer(Shape(F32, (2,))).byte_size == 8


def test_equality_is_of_everything_and_can_leave_things_out() -> None:
    row, column = Shape.parse("f32[2,3]{1,0}"), Shape.parse("f32[2,3]{0,1}")
    assert row == Shape(F32, (2, 3)) and hash(row) == hash(Shape(F32, (2, 3)))
    assert row != column and row.equal(column, layout=False)
    assert row != Shape(S32, (2, 3)) and row.equal(Shape(S32, (2, 3)), element_type=False)
    assert row != row.without_layout() and row.equal(row.without_layout(), layout=False)
    dynamic = Shape.parse("f32[<=2,3]")
    assert row != dynamic and row.equal(dynamic, dynamic=False)
    far = Shape.parse("f32[2,3]{1,0:S(5)}")
    assert row != far and row.equal(far, memory_space=False)
    tiled = Shape.parse("f32[2,3]{1,0:T(2,2)}")
    assert row != tiled and row.equal(tiled, tiles=False)
    assert not row.equal(row.without_layout())
    assert NESTED.equal(NESTED.without_layout(), layout=False)
    assert not NESTED.equal(Shape.tuple_([]), layout=False)
    assert not Shape.token().equal(Shape.opaque(), element_type=False)
    assert row != "f32[2,3]{1,0}"


def test_compatibility_ignores_layouts_and_what_is_dynamic() -> None:
    assert Shape.parse("f32[2,3]{0,1}").compatible(Shape.parse("f32[<=2,3]{1,0:T(2,2)}"))
    assert Shape.parse("f32[?,3]").compatible(Shape.parse("f32[7,3]"))
    assert not Shape.parse("f32[2]").compatible(Shape.parse("f32[3]"))
    assert not Shape.parse("f32[2]").compatible(Shape.parse("s32[2]"))
    assert not Shape.parse("f32[2]").compatible(Shape.parse("f32[2,1]"))
    assert NESTED.compatible(NESTED.without_layout())
    assert not NESTED.compatible(Shape.parse("(f32[2], (s32[], token[]))"))


def test_variations() -> None:
    shape = Shape.parse("f32[2,3]{0,1:S(1)}")
    assert str(shape.with_layout(Layout((1, 0)))) == "f32[2,3]{1,0}"
    assert shape.with_layout(None).layout is None and str(shape.without_layout()) == "f32[2,3]"
    assert str(shape.with_default_layout()) == "f32[2,3]{1,0}"
    assert str(shape.with_dimensions((5, 7))) == "f32[5,7]{0,1:S(1)}"
    assert str(shape.with_dimensions((5,))) == "f32[5]{0}"
    assert str(shape.with_element_type(BF16)) == "bf16[2,3]{0,1:S(1)}"
    assert str(Shape.parse("s4[8]{0:E(4)}").with_element_type(F32)) == "f32[8]{0}"
    assert str(NESTED.without_layout()) == "(f32[2], (s32[], token[]), ())"
    assert shape.to_string(layout=False) == "f32[2,3]"
    assert NESTED.to_string(layout=False) == "(f32[2], (s32[], token[]), ())"
    with pytest.raises(ShapeError, match=r"shape\.is-array"):
        NESTED.with_layout(Layout.default(1))


def test_shapes_of_numpy_arrays() -> None:
    assert str(Shape.of(np.zeros((2, 3), np.float32))) == "f32[2,3]{1,0}"
    assert str(Shape.of(np.int64(3))) == "s64[]"


def test_shapes_are_immutable_values() -> None:
    shape = Shape.parse("(f32[<=2]{0:T(128)}, s32[])")
    assert pickle.loads(pickle.dumps(shape)) == shape and copy.deepcopy(shape) == shape
    assert pickle.loads(pickle.dumps(shape.without_layout())) == shape.without_layout()
    with pytest.raises(AttributeError):
        shape.dimensions = (1,)
    with pytest.raises(AttributeError):
        del shape.layout
    assert repr(shape) == "Shape('(f32[<=2]{0:T(128)}, s32[])')"


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda: Shape(F32, (-2,)), "shape.dimension-non-negative"),
        (lambda: Shape(F32, (1 << 63,)), "shape.dimension-fits-64-bits"),
        (lambda: Shape(F32, (2, 3), (True,)), "shape.dynamic-flags-rank"),
        (lambda: Shape(TOKEN, (2,)), "shape.only-arrays-have-dimensions"),
        (lambda: Shape(TUPLE, layout=Layout()), "shape.only-arrays-have-dimensions"),
        (lambda: Shape(F32, tuple_shapes=[Shape(F32)]), "shape.only-tuples-have-elements"),
        (lambda: Shape(BUFFER), "shape.buffer-holds-array"),
        (lambda: Shape.buffer(NESTED), "shape.buffer-holds-array"),
        (lambda: Shape(F32, (2, 3), None, Layout((0,))), "layout.rank"),
        (
            lambda: Shape(F32, (2,), None, Layout((0,), padded_dimensions=(1,))),
            "layout.padded-dimensions-size",
        ),
        (lambda: Shape(F32, (2,), None, Layout((0,), element_size_in_bits=16)), "layout.element-size-fits"),
        (
            lambda: Shape(F32, (2,), None, Layout((0,), physical_shape=Shape(F32))),
            "layout.physical-shape-sparse-only",
        ),
        (lambda: Shape(F32, (2,), None, Layout((0,), (Tile((0,)),))), "layout.tile-size-positive"),
    ],
)
def test_what_cannot_be_is_refused(make: object, rule: str) -> None:
    assert callable(make)
    with pytest.raises(ShapeError) as error:
        make()
    assert error.value.rule == rule


def test_dimensions_are_integers() -> None:
    for dimensions in ((2.5,), ("2",), 3, None):
        with pytest.raises(ShapeError, match=r"shape\.dimension-integers"):
            Shape(F32, dimensions)  # type: ignore[arg-type]
    assert Shape(F32, s64([2, 3])) == Shape.array("f32", (2, 3))


def test_types_may_be_dtypes_names_and_whole_texts() -> None:
    wanted = Shape(F32, (3, 4))
    assert Shape(np.float32, (3, 4)) == wanted == Shape("f32", (3, 4))
    assert Shape.array(np.dtype("float32"), (3, 4)) == wanted == Shape("f32[3,4]")
    assert Shape("(f32[2]{0:T(4)}, s32[])") == Shape.parse("(f32[2]{0:T(4)}, s32[])")
    for broken in ({"dimensions": (3,)}, {"layout": Layout.default(1)}, {"dynamic_dimensions": (True,)}):
        with pytest.raises(ShapeError, match=r"shape\.text-is-whole"):
            Shape("f32[3]", **broken)  # type: ignore[arg-type]
