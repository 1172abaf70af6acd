"""Judgement of the passes of a dumped program: each stage against the one before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hloom.dumps import DumpedProgram, DumpedStage
from hloom.errors import HloError
from hloom.files import load
from hloom.proofs.verdict import Fingerprinted, Relation, Verdict, decide
from hloom.records import dataclass


@dataclass(frozen=True)
class Step:
    """A stage of a dumped program, compared with the stage before it.

    Attributes:
        program: the name of the program.
        stage: the program after a pass, as dumped.
        verdict: whether it computes the same results as the stage before.
    """

    program: str
    stage: DumpedStage
    verdict: Verdict


def judge(
    program: DumpedProgram, *, samples: int, progress: Callable[[str], None] = lambda _: None
) -> Iterator[Step]:
    """Yield the verdict on every stage of a program against the one before it.

    The verdict on a pass that changes the shapes of parameters or results, such as partitioning, is `OPEN`.
    `progress` is called with a line of text before each judgement. Raises HloError for a file that cannot be
    read.
    """
    before: Fingerprinted | None = None
    for stage in program.passes or program.stages:
        after = Fingerprinted(load(stage.path))
        progress(f"{program.name}: {stage.title}")
        if before is not None:
            yield Step(program.name, stage, judged(before, after, samples))
        before = after


def judged(before: Fingerprinted, after: Fingerprinted, samples: int) -> Verdict:
    """Return the verdict on two stages; `OPEN`, with the message, if an HloError prevents the comparison."""
    try:
        return decide(before, after, samples=samples)
    except HloError as error:
        return Verdict(Relation.OPEN, reason=error.message)
