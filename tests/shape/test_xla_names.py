"""XLA's names for functions of shapes, layouts and indices: the documented table, and the values."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import hloom
from hloom import HloError, Layout, Shape, index_util, layout_util, shape_util
from hloom.shape.index import linear_indices

TABLE = (Path(__file__).parents[2] / "docs" / "xla-names.md").read_text("utf-8")
NAMES = sorted(set(re.findall(r"`(hloom\.[\w.]+)`", TABLE)))


def resolved(name: str) -> Any:
    value: Any = hloom
    for part in name.split(".")[1:]:
        value = getattr(value, part, None) or import_module(f"{value.__name__}.{part}")
    return value


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_table_is_there_and_documented(name: str) -> None:
    value = resolved(name)
    assert value.__doc__ or inspect.ismemberdescriptor(value)  # fields are documented with their class


@pytest.mark.parametrize("module", [index_util, layout_util, shape_util])
def test_every_function_is_in_the_table(module: Any) -> None:
    functions = [n for n, v in vars(module).items() if n[0].isupper() and not isinstance(v, type)]
    assert functions
    short = module.__name__.rsplit(".", 1)[1]
    assert {f"hloom.{short}.{name}" for name in functions} <= set(NAMES)


def test_make_shape_takes_sizes_in_the_order_of_dimension_numbers() -> None:
    shape = shape_util.MakeShape("F32", [7, 8, 9, 10])
    assert shape == Shape.parse("f32[7,8,9,10]")
    assert [shape_util.GetDimension(shape, n) for n in (0, 3, -1, -4)] == [7, 10, 10, 7]
    assert shape_util.GetDimensionNumber(shape, -1) == 3
    assert shape_util.MakeShape("f32", [2], [True]) == Shape.parse("f32[<=2]")
    assert str(shape_util.MakeShapeWithDenseLayout("u8", [2, 3], [0, 1])) == "u8[2,3]{0,1}"
    tuple_ = shape_util.MakeTupleShape([shape_util.MakeScalarShape("s32"), shape_util.MakeTokenShape()])
    assert str(tuple_) == "(s32[], token[])"
    assert (shape_util.TupleElementCount(tuple_), str(shape_util.MakeNil())) == (2, "()")
    assert shape_util.GetTupleElementShape(tuple_, 1) == shape_util.GetSubshape(tuple_, [1]) == Shape.token()
    assert shape_util.GetSubshape(tuple_, []) == tuple_


def test_questions_about_shapes() -> None:
    shape = Shape.parse("f32[1,5,1]{0,1,2}")
    assert (shape_util.Rank(shape), shape_util.TrueRank(shape), shape_util.ElementsIn(shape)) == (3, 1, 5)
    assert shape_util.IsZeroElementArray(Shape.parse("f32[3,0]"))
    assert not shape_util.IsZeroElementArray(shape)
    assert shape_util.IsScalar(Shape.parse("f32[]"))
    assert shape_util.IsEffectiveScalar(Shape.parse("f32[1,1]"))
    assert not shape_util.IsEffectiveScalar(Shape.parse("f32[0]"))
    tiled = Shape.parse("f32[3,5]{1,0:T(2,2)}")
    assert (shape_util.ByteSizeOf(tiled), shape_util.ArraySize(tiled)) == (60, 96)
    other = Shape.parse("f32[1,5,1]")
    assert shape_util.Compatible(shape, other)
    assert not shape_util.Equal(shape, other)
    assert shape_util.SameDimensions(shape, other)
    assert shape_util.SameElementType(shape, other)
    assert shape_util.ChangeElementType(other, "s8") == Shape.parse("s8[1,5,1]")
    assert shape_util.HumanString(shape) == "f32[1,5,1]"
    assert shape_util.HumanStringWithLayout(shape) == "f32[1,5,1]{0,1,2}"


def test_layouts() -> None:
    assert layout_util.MakeLayout([1, 0], [(8, 128), (2, 1)], memory_space=1) == Layout.parse(
        "{1,0:T(8,128)(2,1)S(1)}"
    )
    assert layout_util.MakeLayoutFromMajorToMinor([0, 2, 1]) == Layout((1, 2, 0))
    descending, ascending = layout_util.MakeDescendingLayout(3), layout_util.MakeAscendingLayout(3)
    assert (descending.minor_to_major, ascending.minor_to_major) == ((2, 1, 0), (0, 1, 2))
    assert layout_util.GetDefaultLayoutForShape(Shape.parse("f32[2,3,4]{0,1,2}")) == descending
    assert layout_util.GetDefaultLayoutForRank(3) == descending
    assert layout_util.IsMonotonicWithDim0Major(descending)
    assert not layout_util.IsMonotonicWithDim0Minor(descending)
    assert layout_util.IsMonotonicWithDim0Minor(ascending)
    mixed = Layout((0, 2, 1))
    assert [layout_util.Major(mixed, n) for n in range(3)] == [1, 2, 0]
    assert (
        [layout_util.Minor(mixed, n) for n in range(3)] == [0, 2, 1] == list(layout_util.MinorToMajor(mixed))
    )
    assert layout_util.MakeLogicalToPhysical(mixed) == (2, 0, 1)
    assert layout_util.HumanString(mixed) == "{0,2,1}"
    assert layout_util.Equal(mixed, Layout((0, 2, 1)))
    shape = Shape.parse("f32[3,5]{0,1:T(2,2)}")
    assert layout_util.IsPadded(shape)
    assert not layout_util.IsPadded(layout_util.SetToDefaultLayout(shape))
    assert layout_util.HasLayout(shape)
    assert not layout_util.HasLayout(layout_util.ClearLayout(shape))
    assert layout_util.MinorToMajor(layout_util.ClearLayout(shape)) == (1, 0)
    assert layout_util.LinearIndex(shape, (2, 3)) == linear_indices(shape)[2, 3]


@pytest.mark.parametrize("layout", ["{1,0}", "{0,1}", "{1,0:T(2,2)}", "{0,1:PD(4,6)}"])
def test_indices_there_and_back(layout: str) -> None:
    shape = Shape.parse(f"f32[3,5]{layout}")
    index: tuple[int, ...] | None = (0, 0)
    seen: list[tuple[int, ...]] = []
    while index is not None:
        assert index_util.IndexInBounds(shape, index)
        seen.append(index)
        linear = index_util.MultidimensionalIndexToLinearIndex(shape, index)
        assert index_util.LinearIndexToMultidimensionalIndex(shape, linear) == index
        index = index_util.BumpIndices(shape, index)
    assert seen == list(np.ndindex(3, 5))
    for wrong in ((3, 0), (0, -1), (0,), (0, 0, 0)):
        assert not index_util.IndexInBounds(shape, wrong)


def test_strides_and_order_of_indices() -> None:
    shape = Shape.parse("f32[2,3,4]{0,2,1}")
    steps = [linear_indices(shape)[index] for index in ((1, 0, 0), (0, 1, 0), (0, 0, 1))]
    assert [index_util.GetDimensionStride(shape, n) for n in range(3)] == steps == [1, 8, 2]
    assert [index_util.CompareIndices((1, 2), other) for other in ((1, 3), (1, 2), (0, 9))] == [-1, 0, 1]


@pytest.mark.parametrize(
    ("function", "rule"),
    [
        (lambda: index_util.BumpIndices(Shape.parse("f32[2]"), (2,)), "index.in-bounds"),
        (lambda: index_util.CompareIndices((1,), (1, 2)), "index.same-length"),
        (lambda: index_util.IndexInBounds(Shape.parse("f32[2]"), cast("Any", ("a",))), "index.integers"),
        (lambda: index_util.GetDimensionStride(Shape.parse("f32[2]{0:T(2)}"), 0), "index.untiled"),
        (lambda: shape_util.GetDimension(Shape.parse("f32[2]"), 1), "shape.dimension-number-in-range"),
        (lambda: layout_util.MakeLayout([0, 0]), "layout.minor-to-major-permutation"),
    ],
)
def test_refusals(function: Any, rule: str) -> None:
    with pytest.raises(HloError) as caught:
        function()
    assert caught.value.rule == rule
