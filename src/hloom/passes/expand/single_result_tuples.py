"""single-result-tuples: rewrite reductions stated as a tuple of one array to return the array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.ir.instruction import HloInstruction
from hloom.operations.reduction import ReductionResult
from hloom.operations.structure import Tuple
from hloom.passes.op_expander import OpExpander
from hloom.passes.registry import register
from hloom.passes.writing import Writer


@register
@dataclass(frozen=True, slots=True)
class SingleResultTuples(OpExpander):
    """``(f32[4]) reduce(x, init)`` → ``tuple(f32[4] reduce(x, init))``; windows too. Bitwise."""

    name: ClassVar[str] = "single-result-tuples"

    def matches(self, i: HloInstruction) -> bool:
        """Return whether an instruction is a reduction to a tuple of one."""
        return is_tuple_of_one(i)

    def expand(self, i: HloInstruction) -> None:
        """Make the tuple of an array."""
        writer = Writer(i)
        (shape,) = i.shape.tuple_shapes
        array = i.clone(writer.module.unique_name(i.name), shape=shape)
        writer.replace(writer.op(Tuple(), writer.computation.add(array)))


def is_tuple_of_one(instruction: HloInstruction) -> bool:
    """Return whether an instruction is a reduction to a tuple of one."""
    shape = instruction.shape
    return (
        isinstance(instruction.operation, ReductionResult) and shape.is_tuple and len(shape.tuple_shapes) == 1
    )
