"""dce: remove dead instructions and computations without callers."""

from __future__ import annotations

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.structure import Parameter
from hloom.passes.pipeline import Pass


class DeadCodeElimination(Pass, name="dce"):
    """Remove instructions without users or side effects, and uncalled computations."""

    def run(self, module: HloModule) -> bool:
        """Remove dead code everywhere."""
        changed = False
        for computation in module.computations:
            changed |= remove_dead(computation)
        reachable = set(module.entry.reachable())
        for computation in module.computations:
            if computation not in reachable:
                module.remove(computation)
                changed = True
        return changed


def remove_dead(computation: HloComputation) -> bool:
    """Remove the dead instructions of one computation."""
    changed = False
    waiting = [i for i in computation if is_dead(i)]
    while waiting:
        instruction = waiting.pop()
        if instruction.parent is None or not is_dead(instruction):
            continue
        operands = list(dict.fromkeys(instruction.operands))
        instruction.bypass_control_dependencies()
        computation.remove(instruction)
        changed = True
        waiting.extend(o for o in operands if is_dead(o))
    return changed


def is_dead(instruction: HloInstruction) -> bool:
    """Return whether an instruction has no users or side effects and is neither root nor parameter."""
    return (
        not instruction.users
        and not instruction.is_root
        and not isinstance(instruction.operation, Parameter)
        and not instruction.has_side_effect
    )
