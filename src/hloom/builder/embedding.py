"""Copying a computation with its callees from one module into another."""

from __future__ import annotations

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule


def embed(
    source: HloComputation, module: HloModule, copies: dict[HloComputation, HloComputation]
) -> HloComputation:
    """Copy `source` into `module`, once for all callers: `copies` maps originals to earlier copies.

    Names that `module` already uses get a number.
    """
    if source.module is module:
        return source
    known = copies.get(source)
    if known is not None:
        return known
    for callee in _callees(source):
        embed(callee, module, copies)
    copy = HloComputation(module.unique_name(source.name))
    copy.execution_thread = source.execution_thread
    instructions: dict[HloInstruction, HloInstruction] = {}
    for instruction in source.post_order():
        instructions[instruction] = copy.add(
            instruction.clone(
                module.unique_name(instruction.name),
                operands=[instructions[operand] for operand in instruction.operands],
                called_computations=[copies[callee] for callee in instruction.called_computations],
            )
        )
    for instruction in source.instructions:
        for predecessor in instruction.control_predecessors:
            instructions[predecessor].add_control_dependency_to(instructions[instruction])
    copy.root = instructions[source.root]
    copies[source] = module.add(copy)
    return copy


def _callees(computation: HloComputation) -> list[HloComputation]:
    return [callee for instruction in computation.instructions for callee in instruction.called_computations]
