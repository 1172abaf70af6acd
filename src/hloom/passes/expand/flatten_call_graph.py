"""flatten-call-graph: clone computations so that each caller of control flow has its own."""

from __future__ import annotations

from hloom.ir.computation import HloComputation
from hloom.ir.module import HloModule
from hloom.passes.expand.call_inliner import copy_body
from hloom.passes.facts import FLAT
from hloom.passes.pipeline import Pass


class FlattenCallGraph(Pass, name="flatten-call-graph", establishes={FLAT}):
    """A computation that two whiles, conditionals or calls share → one copy for each."""

    def run(self, module: HloModule) -> bool:
        """Clone shared computations until each has one caller."""
        changed = False
        owned: set[HloComputation] = set()
        waiting = [module.entry]
        while waiting:
            for instruction in waiting.pop():
                if not instruction.operation.calls_program:
                    continue
                called: list[HloComputation] = []
                for computation in instruction.called_computations:
                    mine = computation if computation not in owned else clone_computation(module, computation)
                    changed |= mine is not computation
                    owned.add(mine)
                    called.append(mine)
                instruction.called_computations = tuple(called)
                waiting.extend(called)
        return changed


def clone_computation(module: HloModule, source: HloComputation) -> HloComputation:
    """Copy a computation under a new name within the same module."""
    copy = HloComputation(module.unique_name(f"{source.name}.clone"))
    copy.execution_thread = source.execution_thread
    module.add(copy)
    parameters = [copy.add(p.clone(module.unique_name(p.name))) for p in source.parameters]
    copies = copy_body(source, copy, parameters)
    copy.root = copies[source.root]
    return copy
