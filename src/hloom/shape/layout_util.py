"""XLA's names for creating and querying layouts: class LayoutUtil of layout_util.h.

Thin functions over `Layout`; `docs/xla-names.md` has the table. Layouts are values: where XLA changes a
shape, these return the changed one.
"""

from __future__ import annotations

from collections.abc import Sequence

from hloom.shape.index import linear_index, physical_element_count
from hloom.shape.layout import Layout, Tile
from hloom.shape.shape import Shape


def MakeLayout(
    minor_to_major: Sequence[int],
    tiles: Sequence[Tile | Sequence[int]] = (),
    tail_padding_alignment_in_elements: int = 1,
    element_size_in_bits: int = 0,
    memory_space: int = 0,
) -> Layout:
    """Return a layout of these parts."""
    return Layout(
        tuple(minor_to_major),
        tuple(tile if isinstance(tile, Tile) else Tile(tuple(tile)) for tile in tiles),
        element_size_in_bits,
        memory_space,
        tail_padding_alignment_in_elements,
    )


def MakeLayoutFromMajorToMinor(major_to_minor: Sequence[int]) -> Layout:
    """Return the layout of an order that starts with the slowest-varying dimension."""
    return Layout(tuple(major_to_minor)[::-1])


def MakeDescendingLayout(num_dims: int) -> Layout:
    """Return {num_dims-1, …, 0}: dimension 0 is the most major one."""
    return Layout.default(num_dims)


def MakeAscendingLayout(num_dims: int) -> Layout:
    """Return {0, …, num_dims-1}: dimension 0 is the most minor one."""
    return Layout(tuple(range(num_dims)))


GetDefaultLayoutForRank = MakeDescendingLayout


def GetDefaultLayoutForShape(shape: Shape) -> Layout:
    """Return the layout that a new array of these dimensions has."""
    return Layout.default(shape.rank)


def SetToDefaultLayout(shape: Shape) -> Shape:
    """Return the shape with the layout of a new one, in all parts of a tuple."""
    return shape.with_default_layout()


def ClearLayout(shape: Shape) -> Shape:
    """Return the shape without layout."""
    return shape.without_layout()


def HasLayout(shape: Shape) -> bool:
    """Return whether every array in the shape has a layout."""
    return all(leaf.layout is not None for _, leaf in shape.leaves() if leaf.is_array)


def IsMonotonicWithDim0Minor(layout: Layout) -> bool:
    """Return whether the dimensions lie in ascending order from the most minor one: column-major."""
    return layout.minor_to_major == tuple(range(layout.rank))


def IsMonotonicWithDim0Major(layout: Layout) -> bool:
    """Return whether the dimensions lie in descending order from the most minor one: row-major."""
    return layout.minor_to_major == tuple(range(layout.rank))[::-1]


def IsPadded(shape: Shape) -> bool:
    """Return whether the array takes more elements of memory than it has."""
    return physical_element_count(shape) > shape.element_count


def MinorToMajor(layout: Layout | Shape) -> tuple[int, ...]:
    """Return the dimensions from the fastest-varying one."""
    return _layout(layout).minor_to_major


def Major(layout: Layout | Shape, physical_dimension_number: int) -> int:
    """Return the dimension that is number n from the most major one."""
    return _layout(layout).major_to_minor[physical_dimension_number]


def Minor(layout: Layout | Shape, physical_dimension_number: int) -> int:
    """Return the dimension that is number n from the most minor one."""
    return _layout(layout).minor_to_major[physical_dimension_number]


def MakeLogicalToPhysical(layout: Layout | Shape) -> tuple[int, ...]:
    """Return for each dimension its place counted from the most major one."""
    order = _layout(layout).major_to_minor
    return tuple(order.index(dimension) for dimension in range(len(order)))


def LinearIndex(shape: Shape, indices: Sequence[int]) -> int:
    """Return the position in memory of the element at an index, tiles and padding included."""
    return linear_index(shape, indices)


def Equal(lhs: Layout, rhs: Layout) -> bool:
    """Return whether two layouts are equal."""
    return lhs == rhs


def HumanString(layout: Layout) -> str:
    """Return a layout's text."""
    return str(layout)


def _layout(given: Layout | Shape) -> Layout:
    return given if isinstance(given, Layout) else given.layout or Layout.default(given.rank)
