"""while-loop-trip-count-annotator: annotate while loops with trip counts that follow from constants."""

from __future__ import annotations

from hloom.analysis.trip_count import TripCount, trip_count
from hloom.ir.module import HloModule
from hloom.operations.control_flow import While
from hloom.passes.facts import FLAT
from hloom.passes.loops.while_loops import loop_of
from hloom.passes.pipeline import Pass


class WhileLoopTripCountAnnotator(Pass, name="while-loop-trip-count-annotator", of=While, needs={FLAT}):
    """A counting loop → the same loop with a `TripCount` annotation.

    The ``known_trip_count`` in the ``backend_config`` of the input is ignored because other tools may have
    changed the loop since it was written.
    """

    def run(self, module: HloModule) -> bool:
        """Annotate every loop."""
        changed = False
        for i in [i for i in module.instructions() if isinstance(i.operation, While)]:
            loop = loop_of(i)
            count = trip_count(loop) if loop is not None else None
            if count is not None and count != i.annotation(TripCount):
                i.annotate(count)
                changed = True
        return changed
