"""array-subviews: find slices and updates that are parts of arrays in memory."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.analysis.purity import is_pure
from hloom.analysis.subviews import Subview, Subviews, is_consecutive, starts_of
from hloom.analysis.updates import Updates
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.control_flow import Fusion, While
from hloom.operations.structure import Constant
from hloom.passes.facts import FLAT
from hloom.passes.fuel import consume
from hloom.passes.fusion.fusion import control_computations
from hloom.passes.pipeline import Pass


class ArraySubviews(Pass, name="array-subviews", needs={FLAT}):
    """A dynamic-slice or dynamic-update-slice that need not copy → the same with a `Subview` annotation."""

    def run(self, module: HloModule) -> bool:
        """Annotate the slices and updates of the program, in the order in which it runs."""
        if not module.config.is_scheduled:
            return False
        updates = Updates(module)
        loops = [i for i in module.instructions() if isinstance(i.operation, While)]
        bodies = {loop.called_computations[0] for loop in loops}
        changed = False
        for computation in control_computations(module):
            order = computation.execution_order()
            early = starts_first(order)
            changed |= early != order
            computation.reorder(early)
            for i in Subviews(computation, updates, is_body=computation in bodies).found:
                if consume(f"%{i.name}"):
                    i.annotate(Subview())
                    changed = True
        return changed


def starts_first(order: Sequence[HloInstruction]) -> list[HloInstruction]:
    """Return an order in which the scalars of start indices are computed as soon as their operands are."""
    waiting = [start for i in order if is_consecutive(i) for start in starts_of(i)]
    early: set[HloInstruction] = set()
    while waiting:
        i = waiting.pop()
        computed = is_pure(i) or isinstance(i.operation, Fusion | Constant)
        if i not in early and i.shape.is_scalar and computed and not i.control_predecessors:
            early.add(i)
            waiting += i.operands
    result = dict.fromkeys(i for i in order if i in early and not i.operands)
    for i in order:
        ready = [i]
        while ready:
            i = ready.pop()
            if i not in result:
                result[i] = None
                ready += [u for u in i.users if u in early and all(o in result for o in u.operands)]
    return list(result)
