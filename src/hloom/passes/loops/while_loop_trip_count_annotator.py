"""while-loop-trip-count-annotator: writes into loops how often they turn, where that is known."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from hloom.analysis.trip_count import TripCount, trip_count
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.passes.facts import FLAT
from hloom.passes.loops.while_loops import loop_of


@dataclass(frozen=True, slots=True)
class WhileLoopTripCountAnnotator:
    """A loop that counts → the same with XLA's ``known_trip_count`` in its ``backend_config``."""

    name: ClassVar[str] = "while-loop-trip-count-annotator"
    needs: ClassVar[frozenset[str]] = frozenset((FLAT,))

    def run(self, module: HloModule) -> bool:
        """Annotate the loops without a backend_config."""
        changed = False
        for i in [i for i in module.instructions() if i.opcode == "while" and not i.backend_config]:
            loop = loop_of(i)
            count = trip_count(loop) if loop is not None else None
            if count is not None:
                i.backend_config = annotation(count)
                changed = True
        return changed


def annotation(count: TripCount) -> str:
    """The text of a trip count as XLA writes it."""
    return json.dumps(
        {
            "known_trip_count": {"n": str(count.turns)},
            "known_init_step": {"init": str(count.initial), "step": str(count.step)},
            "known_induction_variable": {"tuple_index": str(count.element)},
        },
        separators=(",", ":"),
    )


def known_trip_count(i: HloInstruction) -> TripCount | None:
    """The trip count that a while's ``backend_config`` tells; None if it tells none."""
    try:
        known: Any = json.loads(i.backend_config)
        return TripCount(
            int(known["known_induction_variable"]["tuple_index"]),
            int(known["known_init_step"]["init"]),
            int(known["known_init_step"]["step"]),
            int(known["known_trip_count"]["n"]),
        )
    except (ValueError, KeyError, TypeError):
        return None
