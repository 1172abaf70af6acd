"""Deep copies of modules, so that passes can rewrite one and leave the other unchanged."""

from __future__ import annotations

from dataclasses import replace

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule, ModuleConfig


def clone_module(module: HloModule) -> HloModule:
    """Return a deep copy under the same names; immutable operations, shapes and annotations are shared."""
    result = HloModule(module.name)
    result.config = _clone_config(module.config)
    computations: dict[HloComputation, HloComputation] = {}
    waiting = [*module.computations]
    while waiting:
        computation = waiting[-1]
        called = (c for i in computation.instructions for c in i.called_computations)
        callees = [c for c in called if c not in computations]
        waiting += callees
        if not callees:
            waiting.pop()
            if computation not in computations:
                computations[computation] = _clone_computation(computation, computations)
    for computation in module.computations:
        result.add(computations[computation], entry=computation is module.entry)
    return result


def _clone_config(config: ModuleConfig) -> ModuleConfig:
    recovery = {
        lost: (found, None if program is None else clone_module(program))
        for lost, (found, program) in config.recovery_table.items()
    }
    return replace(
        config,
        aliases=dict(config.aliases),
        buffer_donors=list(config.buffer_donors),
        frontend_attributes=dict(config.frontend_attributes),
        recovery_table=recovery,
    )


def _clone_computation(
    source: HloComputation, computations: dict[HloComputation, HloComputation]
) -> HloComputation:
    target = HloComputation(source.name)
    target.execution_thread = source.execution_thread
    target.is_scheduled = source.is_scheduled
    target.unique_id = source.unique_id
    target.unmodelled = source.unmodelled
    copies: dict[HloInstruction, HloInstruction] = {}
    for instruction in source.post_order():
        made = instruction.clone(
            operands=[copies[o] for o in instruction.operands],
            called_computations=[computations[c] for c in instruction.called_computations],
        )
        made.unique_id = instruction.unique_id
        copies[instruction] = made
        for predecessor in instruction.control_predecessors:
            copies[predecessor].add_control_dependency_to(made)
    for instruction in source.instructions:
        target.add(copies[instruction])
    target.root = copies[source.root]
    return target
