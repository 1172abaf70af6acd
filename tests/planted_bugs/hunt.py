"""Hunt one planted bug: check, bisect, reduce."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Final

import hloom
from hloom import HloModule
from hloom.debug.bisection import Bisection
from tests.planted_bugs.bugs import Bug
from tests.planted_bugs.programs import CHAINS, program

MOST_SECONDS: Final = 120.0
MOST_INSTRUCTIONS: Final = 10


@dataclass(frozen=True)
class Trophy:
    """The outcome of a search.

    Attributes:
        found: whether check finds a difference, and bisect the right pass or operation.
        found_in: what bisect names.
        before, after: numbers of instructions.
        tests: programs that the reduction tried.
        seconds: CPU time of the reduction.
        module: the reduced program.
    """

    found: bool
    found_in: str
    before: int
    after: int
    tests: int
    seconds: float
    module: HloModule


def hunt(bug: Bug, chains: int = CHAINS) -> Trophy:
    """Find and reduce a bug that is planted for that time. Compiled code is not cached, since it is wrong."""
    kept = os.environ.get("HLOOM_CACHE")
    os.environ["HLOOM_CACHE"] = "0"
    try:
        with bug.plant():
            return _hunt(bug, chains)
    finally:
        os.environ.pop("HLOOM_CACHE") if kept is None else os.environ.update(HLOOM_CACHE=kept)


def _hunt(bug: Bug, chains: int) -> Trophy:
    module = HloModule.from_text(program(bug, chains=chains))
    arguments = hloom.debug.random_arguments(module, 1)
    backend = "cpu" if bug.native else "passes"
    differs = not hloom.debug.check(module, arguments, backend=backend, locate=False).agrees
    step = hloom.debug.bisect(module, arguments)
    start = time.process_time()
    small = hloom.debug.reduce(module, arguments, hloom.debug.two_backends_differ(backend))
    seconds = time.process_time() - start
    named = _named(bug, step)
    return Trophy(
        differs and named, _text(step), small.before, small.after, small.tests, seconds, small.module
    )


def _named(bug: Bug, step: Bisection | None) -> bool:
    """Return whether the step is the bug's."""
    if step is None:
        return False
    if bug.native:
        return step.culprit is not None and not step.pass_name and step.culprit.opcode == bug.found_by
    return step.pass_name == bug.found_by and bug.rewrite in step.rewrite


def _text(step: Bisection | None) -> str:
    if step is None:
        return "-"
    return step.pass_name or f"native {step.culprit.opcode if step.culprit is not None else '?'}"
