"""map-inline: replace maps by their computations, applied to whole arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.analysis.scalar_computations import is_expression
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.operations.conversion import Bitcast
from hloom.operations.movement import Broadcast, Transpose
from hloom.operations.reduction import Map
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Constant
from hloom.passes.op_expander import OpExpander
from hloom.passes.registry import register
from hloom.passes.writing import Writer
from hloom.shape.shape import Shape


@register
@dataclass(frozen=True, slots=True)
class MapInliner(OpExpander):
    """``map(x, y), to_apply=f`` → the instructions of f with x and y for its parameters."""

    name: ClassVar[str] = "map-inline"

    def matches(self, i: HloInstruction) -> bool:
        """Return whether an instruction is a map of an expression."""
        return isinstance(i.operation, Map) and can_inline(i)

    def expand(self, i: HloInstruction) -> None:
        """Apply the computation to whole arrays."""
        inline(i)


def can_inline(instruction: HloInstruction) -> bool:
    """Return whether a map applies elementwise operations on scalars only."""
    (applied,) = instruction.called_computations
    return instruction.shape.is_static and is_expression(applied) and _is_flat(applied)


def _is_flat(applied: HloComputation) -> bool:
    return all(i.shape.is_scalar and not i.called_computations for i in applied.instructions)


def inline(instruction: HloInstruction) -> None:
    """Replace one map; broadcast scalar operands and convert operands of another precision."""
    writer = Writer(instruction)
    sizes = instruction.shape.dimensions
    (applied,) = instruction.called_computations
    copies: dict[HloInstruction, HloInstruction] = {}
    for parameter, operand in zip(applied.parameters, instruction.operands, strict=True):
        spread = operand if operand.shape.dimensions == sizes else writer.broadcast(operand, sizes)
        copies[parameter] = writer.convert(spread, parameter.shape.element_type)
    for step in applied.post_order():
        if step in copies:
            continue
        if isinstance(step.operation, Constant):
            copy = writer.computation.add(step.clone(writer.module.unique_name(step.name)))
            copies[step] = writer.broadcast(copy, sizes)
        elif isinstance(step.operation, (Reshape, Broadcast, Transpose, Bitcast)):
            copies[step] = copies[step.operands[0]]
        else:
            copy = step.clone(
                writer.module.unique_name(step.name),
                operands=[copies[o] for o in step.operands],
                shape=Shape(step.shape.element_type, sizes),
            )
            copies[step] = writer.computation.add(copy)
    writer.replace(writer.convert(copies[applied.root], instruction.shape.element_type))
