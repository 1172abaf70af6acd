"""Checks of the fields of a shape against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hloom.errors import ShapeError, plural
from hloom.shape.element_type import BUFFER, TUPLE, ElementType
from hloom.shape.layout import Layout

if TYPE_CHECKING:
    from hloom.shape.shape import Shape


def check_kind(
    element_type: ElementType, sizes: tuple[int, ...], layout: Layout | None, children: tuple[Shape, ...]
) -> None:
    """Check that only arrays have dimensions and layouts, and only tuples and buffers have elements."""
    if not element_type.is_array and (sizes or layout is not None):
        raise ShapeError(
            f"{element_type} has neither dimensions nor layout, got {list(sizes)}",
            rule="shape.only-arrays-have-dimensions",
        )
    if element_type is BUFFER:
        if len(children) != 1 or not children[0].is_array:
            raise ShapeError("a buffer holds one array", rule="shape.buffer-holds-array")
    elif children and element_type is not TUPLE:
        raise ShapeError(f"{element_type} has no elements", rule="shape.only-tuples-have-elements")


def check_layout(element_type: ElementType, sizes: tuple[int, ...], layout: Layout) -> None:
    """Check that an array of this type and these dimensions can have the layout."""
    if len(layout.minor_to_major) != len(sizes):
        raise ShapeError(
            f"an array of {plural(len(sizes), 'dimension')} needs as many in minor_to_major; "
            f"got {list(layout.minor_to_major)}",
            rule="layout.rank",
        )
    if layout.padded_dimensions and any(
        padded < size for padded, size in zip(layout.padded_dimensions, sizes, strict=True)
    ):
        raise ShapeError(
            f"padded_dimensions are at least the dimensions {list(sizes)}; "
            f"got {list(layout.padded_dimensions)}",
            rule="layout.padded-dimensions-size",
        )
    smallest = 1 if element_type.is_predicate else element_type.bits
    if 0 < layout.element_size_in_bits < smallest:
        raise ShapeError(
            f"an element of {element_type} takes {smallest} bits, got E({layout.element_size_in_bits})",
            rule="layout.element-size-fits",
        )
    if layout.physical_shape is not None:
        raise ShapeError(
            f"only sparse arrays have a physical shape, and there are none: {layout}",
            rule="layout.physical-shape-sparse-only",
        )
