"""XLA's names for creating and querying shapes: class ShapeUtil of shape_util.h.

Thin functions over `Shape`; `docs/xla-names.md` has the table. Shapes are values: where XLA changes one,
these return the changed one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hloom.shape.element_type import ElementType
from hloom.shape.layout import Layout, Tile
from hloom.shape.shape import Shape


def MakeShape(
    element_type: ElementType | str,
    dimensions: Sequence[int],
    dynamic_dimensions: Sequence[bool] | None = None,
) -> Shape:
    """Return an array's shape; sizes stand in the ascending order of the dimension numbers."""
    return Shape(_element_type(element_type), tuple(dimensions), dynamic_dimensions)


def MakeShapeWithDenseLayout(
    element_type: ElementType | str,
    dimensions: Sequence[int],
    minor_to_major: Sequence[int],
    tiles: Sequence[Tile] = (),
) -> Shape:
    """Return an array's shape with a layout."""
    layout = Layout(tuple(minor_to_major), tuple(tiles))
    return Shape(_element_type(element_type), tuple(dimensions)).with_layout(layout)


def MakeScalarShape(element_type: ElementType | str) -> Shape:
    """Return the shape of a scalar."""
    return Shape(_element_type(element_type))


def MakeTupleShape(shapes: Iterable[Shape]) -> Shape:
    """Return the shape of a tuple."""
    return Shape.tuple_(shapes)


def MakeNil() -> Shape:
    """Return the shape of the empty tuple."""
    return Shape.tuple_(())


def MakeTokenShape() -> Shape:
    """Return the shape of a token."""
    return Shape.token()


def ChangeElementType(shape: Shape, element_type: ElementType | str) -> Shape:
    """Return the shape with another element type."""
    return shape.with_element_type(_element_type(element_type))


def GetDimension(shape: Shape, dimension_number: int) -> int:
    """Return the size of a dimension; -1 is the last one."""
    return shape.dimension(dimension_number)


def GetDimensionNumber(shape: Shape, dimension_number: int) -> int:
    """Return a dimension's number counted from 0, for one that may be counted from the end by -1, -2, …"""
    return shape.axis(dimension_number)


def Rank(shape: Shape) -> int:
    """Return the number of dimensions."""
    return shape.rank


def TrueRank(shape: Shape) -> int:
    """Return the number of dimensions whose size is larger than 1."""
    return shape.true_rank


TrueNumDimensions = TrueRank


def ElementsIn(shape: Shape) -> int:
    """Return the number of elements, padding not included."""
    return shape.element_count


def IsZeroElementArray(shape: Shape) -> bool:
    """Return whether the shape is an array without elements."""
    return shape.is_array and shape.element_count == 0


def IsScalar(shape: Shape) -> bool:
    """Return whether the shape is an array of rank 0."""
    return shape.is_scalar


def IsEffectiveScalar(shape: Shape) -> bool:
    """Return whether the shape is an array whose dimensions all have size 1."""
    return shape.is_array and shape.true_rank == 0 and shape.element_count == 1


def ByteSizeOf(shape: Shape) -> int:
    """Return the bytes of the elements without any padding; `ArraySize` counts it."""
    return shape.unpadded_byte_size


def ByteSizeOfElements(shape: Shape) -> int:
    """Return the bytes of the elements without any padding."""
    return shape.unpadded_byte_size


def ArraySize(shape: Shape) -> int:
    """Return the bytes that the shape takes in memory, padding included."""
    return shape.byte_size


def Compatible(lhs: Shape, rhs: Shape) -> bool:
    """Return whether element types and dimensions are the same; layouts may differ."""
    return lhs.compatible(rhs)


def SameDimensions(lhs: Shape, rhs: Shape) -> bool:
    """Return whether two arrays have the same dimensions."""
    return lhs.dimensions == rhs.dimensions


def SameElementType(lhs: Shape, rhs: Shape) -> bool:
    """Return whether two arrays have one element type."""
    return lhs.element_type is rhs.element_type


def Equal(lhs: Shape, rhs: Shape) -> bool:
    """Return whether two shapes are the same, layouts included."""
    return lhs == rhs


def TupleElementCount(shape: Shape) -> int:
    """Return the number of elements of a tuple."""
    return len(shape.tuple_shapes)


def GetTupleElementShape(shape: Shape, index: int) -> Shape:
    """Return the shape of an element of a tuple."""
    return shape.subshape((index,))


def GetSubshape(shape: Shape, index: Sequence[int]) -> Shape:
    """Return the part of a nested tuple at an index; the empty index is the whole."""
    return shape.subshape(tuple(index))


def HumanString(shape: Shape) -> str:
    """Return the shape's text without layout."""
    return shape.to_string(layout=False)


def HumanStringWithLayout(shape: Shape) -> str:
    """Return the shape's text."""
    return str(shape)


def _element_type(wanted: ElementType | str) -> ElementType:
    return ElementType.parse(wanted) if isinstance(wanted, str) else wanted
