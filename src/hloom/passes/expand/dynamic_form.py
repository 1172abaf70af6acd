"""Static form of arrays of dynamic size: the array padded to its bounds, with its actual sizes."""

from __future__ import annotations

from typing import Final

import numpy as np

from hloom.errors import EvaluationError
from hloom.ir.module import HloModule
from hloom.ir.operation import Value
from hloom.shape.element_type import S32
from hloom.shape.shape import Shape

HOST_TARGET: Final = "hloom_dynamic"
"""Target of the custom call whose computation the host evaluates on arrays of actual sizes."""


def is_dynamic(module: HloModule) -> bool:
    """Return whether any value of a program has a dynamic dimension."""
    return any(i.shape.is_dynamic for i in module.instructions())


def static_form(shape: Shape) -> Shape:
    """Return a shape with (array, s32[], ...) for every dynamic array: one size per dynamic dimension."""
    if shape.is_tuple:
        return Shape.tuple_(map(static_form, shape.tuple_shapes))
    if not shape.is_array or not shape.is_dynamic:
        return shape
    count = sum(shape.dynamic_dimensions)
    return Shape.tuple_([Shape(shape.element_type, shape.dimensions), *[Shape(S32)] * count])


def _parts(value: Value) -> tuple[Value, ...]:
    assert isinstance(value, tuple)
    return value


def enclosed(value: Value, shape: Shape) -> Value:
    """Return a value in static form, padded with zeros beyond the actual sizes."""
    if shape.is_tuple:
        return tuple([enclosed(v, s) for v, s in zip(_parts(value), shape.tuple_shapes, strict=True)])
    if not shape.is_array or not shape.is_dynamic:
        return value
    array = np.asarray(value)
    if array.ndim != shape.rank or any(a > b for a, b in zip(array.shape, shape.dimensions, strict=True)):
        message = f"an array of sizes {list(array.shape)} is no {shape}"
        raise EvaluationError(message, rule="evaluate.actual-sizes")
    padded = np.zeros(shape.dimensions, array.dtype)
    padded[tuple(map(slice, array.shape))] = array
    sizes = [n for n, flag in zip(array.shape, shape.dynamic_dimensions, strict=True) if flag]
    return (padded, *(np.asarray(n, np.int32) for n in sizes))


def actual(value: Value, shape: Shape) -> Value:
    """Return the dynamic-shaped value that a value in static form represents."""
    if shape.is_tuple:
        return tuple([actual(v, s) for v, s in zip(_parts(value), shape.tuple_shapes, strict=True)])
    if not shape.is_array or not shape.is_dynamic:
        return value
    array, *sizes = map(np.asarray, _parts(value))
    remaining = iter(sizes)
    cuts = [slice(int(next(remaining)) if flag else None) for flag in shape.dynamic_dimensions]
    return array[tuple(cuts)]
