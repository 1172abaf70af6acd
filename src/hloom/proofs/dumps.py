"""Judge the passes of a dump: each stage of a program against the one before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hloom.dumps import DumpedProgram, DumpedStage
from hloom.errors import HloError
from hloom.files import load
from hloom.proofs.verdict import Fingerprinted, Relation, Verdict, decide


@dataclass(frozen=True)
class Step:
    """A pass of a dumped program.

    Attributes:
        program: the name of the program.
        stage: the stage that the pass wrote.
        verdict: the relation to the stage before.
    """

    program: str
    stage: DumpedStage
    verdict: Verdict


def judge(
    program: DumpedProgram, *, samples: int, progress: Callable[[str], None] = lambda _: None
) -> Iterator[Step]:
    """Judge every stage of a program against the one before it.

    A pass that changes parameters or results, such as partitioning, is open. Raises HloError for a file that
    cannot be read.
    """
    before: Fingerprinted | None = None
    for stage in program.passes or program.stages:
        after = Fingerprinted(load(stage.path))
        progress(f"{program.name}: {stage.title}")
        if before is not None:
            yield Step(program.name, stage, judged(before, after, samples))
        before = after


def judged(before: Fingerprinted, after: Fingerprinted, samples: int) -> Verdict:
    """Return the verdict on two stages; open if it cannot be decided for an error."""
    try:
        return decide(before, after, samples=samples)
    except HloError as error:
        return Verdict(Relation.OPEN, reason=error.message)
