"""cse: eliminate common subexpressions."""

from __future__ import annotations

from collections.abc import Hashable

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.passes.fuel import consume
from hloom.passes.pipeline import Pass


class CommonSubexpressionElimination(Pass, name="cse", settles=True):
    """Two instructions with the same operation, configuration, shape, operands and computations → one."""

    def run(self, module: HloModule) -> bool:
        """Merge equal instructions of every computation."""
        changed = False
        for computation in module.computations:
            representatives: dict[Hashable, HloInstruction] = {}
            for instruction in computation.post_order():
                if (
                    instruction.operation.distinct
                    or instruction.control_predecessors
                    or instruction.has_side_effect
                ):
                    continue
                key = (
                    instruction.function_key,
                    instruction.shape,
                    tuple(map(id, instruction.operands)),
                    tuple(map(id, instruction.called_computations)),
                )
                first = representatives.setdefault(key, instruction)
                equal = first is not instruction and not instruction.control_successors
                if equal and consume(f"%{instruction.name} by %{first.name}"):
                    instruction.replace_all_uses_with(first)
                    computation.remove(instruction)
                    changed = True
        return changed
