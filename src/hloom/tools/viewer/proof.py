"""Data of the proof tab: the verdict on each stage of a program against the one before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from hloom.ir.module import HloModule
from hloom.proofs.matching import Matching, match
from hloom.tools.viewer.program import Stage

_UNKNOWN, _MATCHED, _UNMATCHED = range(3)
_STATE: Final[Mapping[bool | None, int]] = {None: _UNKNOWN, True: _MATCHED, False: _UNMATCHED}


def proof_part(
    stages: Sequence[Stage], *, samples: int, progress: Callable[[str], None] = lambda _: None
) -> dict[str, object]:
    """Return the data of the proof tab; see `hloom.proofs.matching.match`.

    `progress` is called with the title of each stage. The first stage of a program has no verdict.
    """
    proofs: list[dict[str, object] | None] = []
    for n, stage in enumerate(stages):
        progress(stage.title)
        before = stages[n - 1] if n else None
        if before is None or before.program != stage.program:
            proofs.append(None)
        else:
            programs = (HloModule.from_text(each.data["text"]) for each in (before, stage))
            proofs.append(_proof_data(before, stage, match(*programs, samples=samples)))
    return {"proof": proofs}


def _proof_data(before: Stage, after: Stage, matching: Matching) -> dict[str, object]:
    """Return a verdict, the states of the instructions of both stages, and the numbers of equal ones."""
    numbers = [{name: n for n, name in enumerate(stage.data["names"])} for stage in (before, after)]
    pairs = [[side[name] for side, name in zip(numbers, pair, strict=True)] for pair in matching.pairs]
    return {
        **matching.verdict.to_json(),
        "proved": matching.verdict.relation.is_proof,
        "before": [_STATE[matching.before.get(name)] for name in numbers[0]],
        "after": [_STATE[matching.after.get(name)] for name in numbers[1]],
        "pairs": pairs,
    }
