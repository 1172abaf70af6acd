"""The leaves of values: the arrays that native code reads and writes, in the order of their shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np

from hloom.errors import EvaluationError
from hloom.ir.value import Array, Value
from hloom.shape.shape import Shape


def leaf_shapes(shape: Shape) -> list[Shape]:
    """Return the shapes of the arrays and tokens in a shape that may be a nested tuple, depth first."""
    if shape.is_tuple:
        return [leaf for part in shape.tuple_shapes for leaf in leaf_shapes(part)]
    return [shape]


def flat(shapes: Sequence[Shape], values: Sequence[Value]) -> list[Array | None]:
    """Flatten values of the given shapes, depth first: return their arrays, and None for each token.

    Raises EvaluationError (rule ``run.argument``) if an array does not have the dimensions of its shape.
    """
    leaves: list[Array | None] = []
    for shape, value in zip(shapes, values, strict=True):
        if shape.is_tuple:
            leaves += flat(shape.tuple_shapes, cast("Sequence[Value]", value))
        elif shape.is_array:
            array = np.asarray(value)
            if array.shape != shape.dimensions:
                message = f"compiled code takes the whole {shape.to_string(layout=False)}, got {array.shape}"
                raise EvaluationError(message, rule="run.argument")
            leaves.append(array)
        else:
            leaves.append(None)
    return leaves


def joined(shape: Shape, leaves: Iterator[Array | None]) -> Value:
    """Build a value of a shape from its leaves: an array, a tuple, or None for a token.

    Takes as many items from the iterator ``leaves`` as the shape has arrays and tokens, depth first.
    """
    if shape.is_tuple:
        return tuple([joined(part, leaves) for part in shape.tuple_shapes])
    leaf = next(leaves)
    return leaf if shape.is_array else None
