"""sharding-remover: remove custom calls that only annotate their operands."""

from __future__ import annotations

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.custom_call import SHARDING_GROUP, CustomCall, is_identity, is_statement
from hloom.operations.structure import OptimizationBarrier, Tuple
from hloom.passes.pipeline import Pass
from hloom.passes.writing import Writer


class ShardingRemover(Pass, name="sharding-remover"):
    """``custom-call(x), custom_call_target="Sharding"`` → ``x``, on one partition. Bitwise.

    Calls that put arrays into groups of one sharding become ``()``.

    A call with a different result shape, as of a shard of an array, is kept: its value is not known.
    """

    def run(self, module: HloModule) -> bool:
        """Remove every annotating custom call."""
        changed = False
        for computation in module.computations:
            for instruction in computation:
                if is_identity(instruction):
                    changed |= remove(instruction)
                elif is_statement(instruction) and _is_group(instruction):
                    drop(instruction)
                    changed = True
        return changed


def remove(instruction: HloInstruction) -> bool:
    """Replace the uses of one call by its operands; return whether shapes match."""
    shapes = [operand.shape for operand in instruction.operands]
    if len(shapes) == 1 and shapes[0].compatible(instruction.shape):
        (new,) = instruction.operands
        if instruction.has_control_dependencies:
            new = Writer(instruction).op(OptimizationBarrier(), new, shape=instruction.shape)
        Writer(instruction).replace(new)
        return True
    parts = instruction.shape.tuple_shapes
    if not instruction.shape.is_tuple or len(parts) != len(shapes):
        return False
    if not all(map(lambda ours, theirs: ours.compatible(theirs), shapes, parts)):
        return False
    writer = Writer(instruction)
    writer.replace(writer.op(Tuple(), *instruction.operands))
    return True


def drop(instruction: HloInstruction) -> None:
    """Replace a call that only annotates its operands by its result, an empty tuple."""
    writer = Writer(instruction)
    instruction.bypass_control_dependencies()
    writer.replace(writer.op(Tuple()))


def _is_group(instruction: HloInstruction) -> bool:
    operation = instruction.operation
    return isinstance(operation, CustomCall) and operation.custom_call_target == SHARDING_GROUP
