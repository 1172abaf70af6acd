"""Values of a shape: zeros, and checks that a value fits a shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from hloom.ir.operation import Array, Value
from hloom.shape.shape import Shape


def zeros(shape: Shape) -> Value:
    """Return an all-zero value of a shape."""
    if shape.is_tuple:
        return tuple(map(zeros, shape.tuple_shapes))
    return np.zeros(shape.dimensions, shape.element_type.dtype) if shape.is_array else None


def context() -> Array:
    """Return the u32[] context of a transfer; its value is meaningless."""
    return np.zeros((), np.uint32)


def elements_of(value: Any) -> Sequence[Any] | None:
    """Return the elements of a tuple or list; None for anything else."""
    return cast("Sequence[Any]", value) if isinstance(value, (tuple, list)) else None


def fits(value: object, shape: Shape) -> bool:
    """Return whether a value has a shape; a dynamic dimension may have any size up to its bound."""
    if shape.is_buffer:
        return fits(value, shape.tuple_shapes[0])
    if shape.is_tuple:
        elements = cast("tuple[Any, ...]", value) if isinstance(value, tuple) else None
        return (
            elements is not None
            and len(elements) == len(shape.tuple_shapes)
            and all(map(fits, elements, shape.tuple_shapes))
        )
    if not shape.is_array or not isinstance(value, (np.ndarray, np.generic)):
        return value is None and not shape.is_array
    array = cast("Array", value)
    return (
        array.dtype == shape.element_type.dtype
        and array.ndim == shape.rank
        and fits_dimensions(array.shape, shape)
    )


def fits_dimensions(sizes: Sequence[int], shape: Shape) -> bool:
    """Return whether sizes fit a shape of the same rank; a dynamic dimension is at most its bound."""
    return all(
        bound == Shape.UNBOUNDED or size == bound or (dynamic and size < bound)
        for size, bound, dynamic in zip(sizes, shape.dimensions, shape.dynamic_dimensions, strict=True)
    )


def described(value: Any) -> str:
    """Return the type and sizes of a value, for messages."""
    if isinstance(value, tuple):
        return f"({', '.join(map(described, cast('tuple[Any, ...]', value)))})"
    return "a token" if value is None else f"{value.dtype}{list(value.shape)}"
