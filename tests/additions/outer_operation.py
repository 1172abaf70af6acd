"""The declaration of an operation that hloom does not have: the one file that its semantics take."""

from __future__ import annotations

import numpy as np

from hloom.errors import ShapeError
from hloom.ir.codec import flag
from hloom.ir.operation import Array, Operation, Run, operation
from hloom.ir.traits import ElementCost, Family, Roundoff
from hloom.shape.shape import Shape


@operation("outer-sum", "rows columns")
class OuterSum(Operation):
    """The sums of every element of one vector with every element of another.

    Arguments:
        rows, columns: vectors of one floating-point type.
        transposed: whether the columns come first in the result.
    """

    family = Family.CONTRACTION
    element_cost = ElementCost.COMBINED
    roundoff = Roundoff.ONCE

    transposed: bool = flag(proto="constrain_layout")

    def infer(self, rows: Shape, columns: Shape) -> Shape:
        """Return the matrix's shape."""
        if rows.rank != 1 or columns.rank != 1 or rows.element_type is not columns.element_type:
            message = f"outer-sum takes two vectors of one type, got {rows} and {columns}"
            raise ShapeError(message, rule="outer-sum.vectors")
        sizes = (*rows.dimensions, *columns.dimensions)
        return Shape(rows.element_type, sizes[::-1] if self.transposed else sizes)

    def evaluate(self, run: Run, rows: Array, columns: Array) -> Array:
        """Return the sums."""
        sums = np.add.outer(rows, columns)
        return np.ascontiguousarray(sums.T) if self.transposed else sums
