"""Phases of a compilation: where its time goes, and what it is doing at this moment.

The code that does the work names its phases::

    with phase("passes", "algebraic-simplifier", instructions=module.instruction_count):
        ...

They are recorded while somebody listens::

    with recording() as profile:
        ...
    print(profile)

Threads that are started with a copy of the context record in the same profile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

STAGES: Final = ("reading", "verification", "passes", "planning", "emission", "LLVM", "loading")
"""The stages of a compilation, in order."""


@dataclass(slots=True)
class Phase:
    """What a compilation spent in one kind of work.

    Attributes:
        stage: one of `STAGES`.
        name: the pass, or the part of the stage.
        runs: how often it ran.
        seconds: CPU time in all, of the threads that did the work.
        before, after: instructions of the module when it first began and when it last ended; None for phases
            that do not rewrite a module.
    """

    stage: str
    name: str
    runs: int = 0
    seconds: float = 0.0
    before: int | None = None
    after: int | None = None


@dataclass(slots=True)
class _Running:
    """A phase that runs; `inner` are the seconds of phases within it, which do not count twice."""

    phase: Phase
    inner: float = 0.0


class CompileProfile:
    """The phases of a compilation, in the order in which they first began.

    Attributes:
        phases: every phase.
        elapsed: seconds from the beginning to the end of the compilation; less than `seconds` if several
            threads worked.
        current: the phase that began last.
        done, total: how much of the current phase is done, in units of its own; the total is 0 if unknown.
    """

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.current: Phase | None = None
        self.done = self.total = 0
        self._phases: dict[tuple[str, str], Phase] = {}
        self._lock = threading.Lock()

    @property
    def phases(self) -> list[Phase]:
        """Return the phases."""
        return list(self._phases.values())

    @property
    def seconds(self) -> float:
        """Return the CPU time of all phases."""
        return sum(phase.seconds for phase in self.phases)

    def of_stage(self, stage: str) -> float:
        """Return the CPU seconds of a stage."""
        return sum(phase.seconds for phase in self.phases if phase.stage == stage)

    def to_json(self) -> dict[str, Any]:
        """Return the phases in the types of JSON; times are in seconds, shares of the CPU time of all."""
        total = self.seconds or 1.0
        phases = [
            {
                "stage": phase.stage,
                "name": phase.name,
                "runs": phase.runs,
                "seconds": phase.seconds,
                "share": phase.seconds / total,
                "instructions_before": phase.before,
                "instructions_after": phase.after,
            }
            for phase in self.phases
        ]
        return {"seconds": self.seconds, "elapsed": self.elapsed, "phases": phases}

    def __str__(self) -> str:
        total = self.seconds or 1.0
        lines = [f"{self.seconds:.3f} s of CPU time in {self.elapsed:.3f} s"]
        for stage in STAGES:
            phases = [phase for phase in self.phases if phase.stage == stage]
            if not phases:
                continue
            spent = self.of_stage(stage)
            lines.append(f"{stage:<44} {spent:8.3f} s {100 * spent / total:5.1f} %")
            for phase in sorted(phases, key=lambda p: -p.seconds):
                name = phase.name + (f" ({phase.runs} runs)" if phase.runs > 1 else "")
                share = 100 * phase.seconds / total
                lines.append(f"  {name:<42} {phase.seconds:8.3f} s {share:5.1f} %{_sizes(phase)}")
        return "\n".join(lines)

    def begin(self, stage: str, name: str, before: int | None) -> Phase:
        """Begin a phase; `end` ends it."""
        with self._lock:
            phase = self._phases.setdefault((stage, name), Phase(stage, name, before=before))
            self.current, self.done, self.total = phase, 0, 0
        return phase

    def end(self, phase: Phase, seconds: float, after: int | None) -> None:
        """Add a run to a phase."""
        with self._lock:
            phase.runs += 1
            phase.seconds += seconds
            phase.after = after


def _sizes(phase: Phase) -> str:
    if phase.before is None or phase.after is None:
        return ""
    if phase.before == phase.after:
        return f"  {phase.after} instructions"
    return f"  {phase.before} → {phase.after} instructions"


_profile: Final[ContextVar[CompileProfile | None]] = ContextVar("hloom profile", default=None)
_running: Final[ContextVar[_Running | None]] = ContextVar("hloom phase", default=None)
_active: Final[list[CompileProfile]] = []


def active() -> CompileProfile | None:
    """Return the profile of the compilation that began last and is not over, of any thread."""
    return _active[-1] if _active else None


@contextmanager
def recording() -> Generator[CompileProfile]:
    """Record the phases of this thread; those within another recording belong to that one too."""
    outer = _profile.get()
    if outer is not None:
        yield outer
        return
    profile = CompileProfile()
    token = _profile.set(profile)
    _active.append(profile)
    start = time.perf_counter()
    try:
        yield profile
    finally:
        profile.elapsed = time.perf_counter() - start
        _active.remove(profile)
        _profile.reset(token)


@contextmanager
def phase(stage: str, name: str, instructions: Callable[[], int] | None = None) -> Generator[None]:
    """Record the work of the block as a phase; ``instructions`` counts those of the rewritten module."""
    profile = _profile.get()
    if profile is None:
        yield
        return
    outer = _running.get()
    running = _Running(profile.begin(stage, name, instructions() if instructions is not None else None))
    token = _running.set(running)
    start = time.thread_time()
    try:
        yield
    finally:
        seconds = time.thread_time() - start
        _running.reset(token)
        if outer is not None:
            outer.inner += seconds
        after = instructions() if instructions is not None else None
        profile.end(running.phase, seconds - running.inner, after)


def advance(done: int, total: int = 0) -> None:
    """Tell how far the current phase is."""
    profile = _profile.get()
    if profile is not None:
        profile.done, profile.total = done, total
