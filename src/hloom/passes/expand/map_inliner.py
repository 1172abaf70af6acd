"""map-inline: replace maps by their computations, applied to whole arrays."""

from __future__ import annotations

from hloom.analysis.scalar_computations import is_expression
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.operations.conversion import Bitcast
from hloom.operations.movement import Broadcast, Transpose
from hloom.operations.reduction import Map
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Constant
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer
from hloom.shape.shape import Shape


class MapInliner(OpExpander, name="map-inline", of=Map):
    """``map(x, y), to_apply=f`` → the instructions of f with x and y for its parameters.

    Scalar operands are broadcast, and operands of another precision converted.
    """

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        (applied,) = i.called_computations
        if not (i.shape.is_static and is_expression(applied) and _is_flat(applied)):
            return None
        sizes = i.shape.dimensions
        copies: dict[HloInstruction, HloInstruction] = {}
        for parameter, operand in zip(applied.parameters, i.operands, strict=True):
            spread = operand if operand.shape.dimensions == sizes else w.broadcast(operand, sizes)
            copies[parameter] = w.convert(spread, parameter.shape.element_type)
        for step in applied.post_order():
            if step in copies:
                continue
            if isinstance(step.operation, Constant):
                copies[step] = w.broadcast(w.copy(step), sizes)
            elif isinstance(step.operation, (Reshape, Broadcast, Transpose, Bitcast)):
                copies[step] = copies[step.operands[0]]
            else:
                shape = Shape(step.shape.element_type, sizes)
                copies[step] = w.copy(step, [copies[o] for o in step.operands], shape)
        return w.convert(copies[applied.root], i.shape.element_type)


def _is_flat(applied: HloComputation) -> bool:
    return all(i.shape.is_scalar and not i.called_computations for i in applied.instructions)
