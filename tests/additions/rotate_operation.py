"""The declaration of a movement that hloom does not have: the one file that it takes, with native code."""

from __future__ import annotations

import numpy as np

from hloom.errors import ShapeError
from hloom.ir.affine import Indices
from hloom.ir.codec import dims, integer
from hloom.ir.indexing import Condition, Element, Indexing, Read, Steps
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, Operation, Run, operation
from hloom.ir.traits import ElementCost, Family
from hloom.shape.shape import Shape


@operation("rotate", "operand")
class Rotate(Operation):
    """The elements of ``operand`` shifted along one dimension; those that leave it enter at its other end.

    Arguments:
        operand: an array.
        dimensions: the one dimension.
        amount: the distance towards lower indices, less than the size.
    """

    family = Family.MOVEMENT
    element_cost = ElementCost.INDEXED

    dimensions: tuple[int, ...] = dims()
    amount: int = integer(proto="delta")

    def infer(self, operand: Shape) -> Shape:
        """Return the operand's shape."""
        if not 0 <= self.amount < operand.dimensions[self.dimensions[0]]:
            message = f"the amount {self.amount} is not in dimension {self.dimensions[0]} of {operand}"
            raise ShapeError(message, rule="rotate.amount")
        return operand

    def element(
        self, x: Indexing[Condition, Element], i: HloInstruction, indices: Indices
    ) -> Steps[Condition, Element]:
        """Read the operand ahead, or behind where that is outside."""
        (d,), size = self.dimensions, i.shape.dimensions[self.dimensions[0]]
        ahead = indices[d] + self.amount
        reads = [
            Read(i.operands[0], (*indices[:d], index, *indices[d + 1 :]), x.inside(index, size))
            for index in (ahead, ahead - size)
        ]
        element = yield reads[0]
        if reads[0].condition is None:
            return element
        return x.choose(reads[0].condition, element, (yield reads[1]))

    def evaluate(self, run: Run, operand: Array) -> Array:
        """Rotate the array."""
        return np.roll(operand, -self.amount, self.dimensions[0])
