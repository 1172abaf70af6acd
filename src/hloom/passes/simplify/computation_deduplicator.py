"""computation-deduplicator: merge equal computations that operations apply to elements.

Front ends emit one ``add`` computation per reduction; merging them lets CSE recognize equal reductions.
"""

from __future__ import annotations

from typing import Final

from hloom.analysis.structure import Key, structural_key
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.passes.pipeline import Pass

LARGEST: Final = 64
"""Maximum number of instructions of a computation that is compared."""


class ComputationDeduplicator(Pass, name="computation-deduplicator", settles=True):
    """Two equal computations, neither called by control flow → the first of them."""

    def run(self, module: HloModule) -> bool:
        """Let the callers of equal computations call the first of them; callees first."""
        applied: dict[HloComputation, list[HloInstruction]] = {}
        others: set[HloComputation] = {module.entry}
        for i in module.instructions():
            for computation in i.called_computations:
                if i.operation.calls_program:
                    others.add(computation)
                applied.setdefault(computation, []).append(i)
        changed = False
        first: dict[Key, HloComputation] = {}
        for computation in module.post_order():
            if computation in others or computation not in applied or len(computation) > LARGEST:
                continue
            one = first.setdefault(structural_key(computation), computation)
            if one is not computation:
                for caller in applied[computation]:
                    caller.called_computations = tuple(
                        one if c is computation else c for c in caller.called_computations
                    )
                module.remove(computation)
                changed = True
        return changed
