"""Values and shapes: whether a value is of a shape, and values of a shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from hloom.ir.operation import Value
from hloom.shape.shape import Shape


def zeros(shape: Shape) -> Value:
    """A value of a shape, all zeros."""
    if shape.is_tuple:
        return tuple(map(zeros, shape.tuple_shapes))
    return np.zeros(shape.dimensions, shape.element_type.dtype) if shape.is_array else None


def fits(value: Any, shape: Shape) -> bool:
    """Whether a value is of a shape; in a dynamic dimension up to its bound."""
    if shape.is_tuple:
        return (
            isinstance(value, tuple)
            and len(value) == len(shape.tuple_shapes)
            and all(map(fits, value, shape.tuple_shapes))
        )
    if not shape.is_array:
        return value is None
    return (
        isinstance(value, (np.ndarray, np.generic))
        and value.dtype == shape.element_type.dtype
        and value.ndim == shape.rank
        and all(
            bound == Shape.UNBOUNDED or size == bound or (dynamic and size < bound)
            for size, bound, dynamic in zip(
                value.shape, shape.dimensions, shape.dynamic_dimensions, strict=True
            )
        )
    )


def described(value: Any) -> str:
    """The type and sizes of a value, for messages."""
    if isinstance(value, tuple):
        return f"({', '.join(map(described, value))})"
    return "a token" if value is None else f"{value.dtype}{list(value.shape)}"
