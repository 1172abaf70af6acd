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
from typing import Final

from hloom.records import dataclass

STAGES: Final = ("reading", "verification", "passes", "planning", "emission", "LLVM", "loading")
"""The stages of a compilation, in order."""


@dataclass(slots=True)
class Phase:
    """The cost of one pass, or of one part of a stage, in a compilation.

    Attributes:
        stage: one of `STAGES`.
        name: the pass, or the part of the stage.
        runs: how often it ran.
        seconds: CPU time in all, of the threads that did the work.
        done, total: how much of a run is done, in units of the phase; the total is 0 if unknown.
        before, after: instructions of the module when it first began and when it last ended; None for phases
            that do not rewrite a module.
    """

    stage: str
    name: str
    runs: int = 0
    seconds: float = 0.0
    before: int | None = None
    after: int | None = None
    done: int = 0
    total: int = 0


@dataclass(slots=True)
class _Running:
    """A phase that runs in a thread; the seconds of phases within it, `inner`, do not count twice."""

    phase: Phase
    thread: int
    inner: float = 0.0


class CompileProfile:
    """The phases of a compilation, in the order in which they first began.

    Attributes:
        phases: every phase.
        elapsed: seconds from the beginning to the end of the compilation; less than `seconds` if several
            threads worked.
        start: the clock `time.perf_counter` at the beginning.
        current: the phase that began last and runs; None between phases.
    """

    def __init__(self) -> None:
        self.elapsed = 0.0
        self.start = time.perf_counter()
        self.current: Phase | None = None
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

    def to_json(self) -> dict[str, object]:
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

    def begin_with(self, earlier: CompileProfile) -> None:
        """Add the phases of a recording that ended before this one began."""
        self._phases = earlier._phases | self._phases
        self.elapsed += earlier.elapsed

    def begin(self, stage: str, name: str, before: int | None) -> Phase:
        """Begin a phase; `end` ends it."""
        with self._lock:
            phase = self._phases.get((stage, name))
            if phase is None:
                phase = self._phases[stage, name] = Phase(stage, name, before=before)
            self.current, phase.done, phase.total = phase, 0, 0
        return phase

    def end(self, phase: Phase, seconds: float, after: int | None, outer: Phase | None) -> None:
        """Add a run to a phase; continue the one around it."""
        with self._lock:
            self.current = outer
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
    """Record the phases of this thread, until the end of the block or another recording within it."""
    profile = CompileProfile()
    token = _profile.set(profile)
    _active.append(profile)
    try:
        yield profile
    finally:
        profile.elapsed = time.perf_counter() - profile.start
        _active.remove(profile)
        _profile.reset(token)


class phase:
    """Record the work of a ``with`` block; ``instructions`` counts the rewritten module's instructions."""

    __slots__ = ("instructions", "name", "outer", "profile", "running", "stage", "start")

    def __init__(self, stage: str, name: str, instructions: Callable[[], int] | None = None) -> None:
        self.stage, self.name, self.instructions = stage, name, instructions

    def __enter__(self) -> None:
        self.profile = _profile.get()
        if self.profile is None:
            return
        self.outer = _running.get()
        begun = self.profile.begin(self.stage, self.name, self.counted())
        self.running = _Running(begun, threading.get_ident())
        _running.set(self.running)
        self.start = time.thread_time()

    def __exit__(self, *failure: object) -> None:
        if self.profile is None:
            return
        seconds = time.thread_time() - self.start
        outer, running = self.outer, self.running
        _running.set(outer)
        if outer is not None and outer.thread == running.thread:
            outer.inner += seconds
        around = None if outer is None else outer.phase
        self.profile.end(running.phase, seconds - running.inner, self.counted(), around)

    def counted(self) -> int | None:
        """Return the number of instructions at this moment; None for phases that do not rewrite a module."""
        return None if self.instructions is None else self.instructions()


def advance(done: int, total: int) -> None:
    """Tell how far the phase of this thread is."""
    running = _running.get()
    if running is not None:
        running.phase.done, running.phase.total = done, total
