"""while-loop-trip-count-annotator: notes at loops how often they turn, where that follows from constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.analysis.trip_count import TripCount, trip_count
from hloom.ir.module import HloModule
from hloom.operations.control_flow import While
from hloom.passes.facts import FLAT
from hloom.passes.loops.while_loops import loop_of
from hloom.passes.registry import register


@register
@dataclass(frozen=True, slots=True)
class WhileLoopTripCountAnnotator:
    """A loop that counts → the same with a `TripCount` among its annotations.

    A ``known_trip_count`` in the ``backend_config`` that came with the program is not looked at: it may be
    older than the loop.
    """

    name: ClassVar[str] = "while-loop-trip-count-annotator"
    needs: ClassVar[frozenset[str]] = frozenset((FLAT,))

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
