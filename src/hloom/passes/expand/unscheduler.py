"""unscheduler: replace a module's schedule by control dependencies between side effects."""

from __future__ import annotations

from itertools import pairwise

from hloom.ir.module import HloModule
from hloom.passes.facts import UNORDERED
from hloom.passes.pipeline import Pass


class Unscheduler(Pass, name="unscheduler", establishes={UNORDERED}):
    """``is_scheduled`` → control dependencies from each instruction with a side effect to the next one."""

    def run(self, module: HloModule) -> bool:
        """Drop the schedule of a module."""
        if not module.config.is_scheduled:
            return False
        for computation in module.computations:
            if not computation.is_scheduled:
                continue
            effects = [i for i in computation.instructions if i.has_side_effect]
            for before, after in pairwise(effects):
                before.add_control_dependency_to(after)
        module.config.is_scheduled = False
        return True
