"""shuffle: rotation along dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from hloom.errors import ShapeError, plural
from hloom.ir.codec import dims, enum
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, Run, operation
from hloom.ir.sharding_rule import Factor, parallel
from hloom.ir.traits import ElementCost, LayoutSource
from hloom.operations.movement import Movement, require_array, require_dimensions
from hloom.shape.shape import Shape


@operation("shuffle", "operand")
class Shuffle(Movement):
    """Rotates elements along dimensions: element i of the result is element i + shift, modulo the extent.

    Arguments:
        dimensions: one or more dimensions.
        mode: rotate, the only one.
        shifts: the shift along each of ``dimensions``, of either sign and any size.
    """

    layout_source: ClassVar[LayoutSource] = LayoutSource.OPERANDS
    element_cost: ClassVar[ElementCost] = ElementCost.INDEXED
    dimensions: tuple[int, ...] = dims()
    mode: str = enum(("rotate",), default="rotate", proto="", always=True)
    shifts: tuple[int, ...] = dims(proto="shuffle_mode.rotate.shifts")

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        return parallel(call.shape, operands, self.dimensions)

    def highlights(self) -> Sequence[str]:
        return (f"dimensions {{{','.join(map(str, self.dimensions))}}} by {','.join(map(str, self.shifts))}",)

    def infer(self, operand: Shape) -> Shape:
        """Return the operand's shape."""
        require_array(self.opcode, operand)
        require_dimensions(self.opcode, self.dimensions, operand)
        if not self.dimensions or len(self.shifts) != len(self.dimensions):
            message = (
                f"{plural(len(self.shifts), 'shift')} of {plural(len(self.dimensions), 'dimension')}; "
                "one for each wanted"
            )
            raise ShapeError(message, rule="shuffle.shifts")
        return operand

    def evaluate(self, run: Run, operand: Array) -> Array:
        return np.roll(operand, tuple(-shift for shift in self.shifts), self.dimensions)
