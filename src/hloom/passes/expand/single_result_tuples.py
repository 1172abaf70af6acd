"""single-result-tuples: rewrite reductions stated as a tuple of one array to return the array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.reduction import ReductionResult
from hloom.operations.structure import Tuple
from hloom.passes.fuel import consume
from hloom.passes.registry import register
from hloom.passes.writing import Writer


@register
@dataclass(frozen=True, slots=True)
class SingleResultTuples:
    """``(f32[4]) reduce(x, init)`` → ``tuple(f32[4] reduce(x, init))``; windows too. Bitwise."""

    name: ClassVar[str] = "single-result-tuples"

    def run(self, module: HloModule) -> bool:
        """Rewrite every reduction to a tuple of one."""
        changed = False
        for computation in module.computations:
            for instruction in computation:
                if is_tuple_of_one(instruction) and consume(f"%{instruction.name}"):
                    writer = Writer(instruction)
                    (shape,) = instruction.shape.tuple_shapes
                    array = instruction.clone(writer.module.unique_name(instruction.name), shape=shape)
                    writer.replace(writer.op(Tuple(), writer.computation.add(array)))
                    changed = True
        return changed


def is_tuple_of_one(instruction: HloInstruction) -> bool:
    """Return whether an instruction is a reduction to a tuple of one."""
    shape = instruction.shape
    return (
        isinstance(instruction.operation, ReductionResult) and shape.is_tuple and len(shape.tuple_shapes) == 1
    )
