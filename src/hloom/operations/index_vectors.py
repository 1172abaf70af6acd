"""Index vectors of gathers and scatters: which of their components count along a dimension."""

from __future__ import annotations

import numpy as np

from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array
from hloom.operations.conversion import Copy
from hloom.operations.movement import Broadcast, Concatenate
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Constant, Iota


def iota_dimension(indices: HloInstruction, axis: int, component: int) -> int | None:
    """Return the dimension along which a component of index vectors counts from 0; None if it does not.

    Args:
        indices: the index vectors.
        axis: the dimension of the components; the rank if vectors have one component without a dimension.
        component: its number.
    """
    dimensions = indices.shape.dimensions
    match indices.operation:
        case Iota(iota_dimension=d):
            one = axis == indices.shape.rank or dimensions[axis] == 1
            return d if one and d != axis else None
        case Constant(literal=literal):
            return _counting(np.asarray(literal), axis, component)
        case Copy():
            return iota_dimension(indices.operands[0], axis, component)
        case Broadcast(dimensions=into):
            (operand,) = indices.operands
            inner = into.index(axis) if axis in into else operand.shape.rank
            dimension = iota_dimension(operand, inner, component)
            return into[dimension] if dimension is not None else None
        case Reshape():
            return _through_reshape(indices, axis, component)
        case Concatenate(dimensions=(d,)) if d == axis:
            for operand in indices.operands:
                if component < operand.shape.dimensions[axis]:
                    return iota_dimension(operand, axis, component)
                component -= operand.shape.dimensions[axis]
        case _:
            pass
    return None


def _counting(values: Array, axis: int, component: int) -> int | None:
    """Return the dimension along which a component of an array counts."""
    if values.size == 0 or values.dtype.kind not in "iu":
        return None
    one = values if axis == values.ndim else values.take([component], axis)
    for d in range(one.ndim):
        if d != axis and np.array_equal(one, np.indices(one.shape)[d]):
            return d
    return None


def _through_reshape(indices: HloInstruction, axis: int, component: int) -> int | None:
    """Return the dimension along which a component counts, through a reshape of dimensions of extent 1."""
    (operand,) = indices.operands
    before = [d for d, extent in enumerate(operand.shape.dimensions) if extent != 1]
    after = [d for d, extent in enumerate(indices.shape.dimensions) if extent != 1]
    extents = [operand.shape.dimensions[d] for d in before]
    if extents != [indices.shape.dimensions[d] for d in after]:
        return None
    inner = before[after.index(axis)] if axis in after else operand.shape.rank
    dimension = iota_dimension(operand, inner, component)
    return after[before.index(dimension)] if dimension in before else None
