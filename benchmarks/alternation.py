"""Processes that run the same program on several sides and take turns."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.agreement import agreement
from benchmarks.machine import FullRate, full_rate
from benchmarks.row import quotient
from hloom.runtime.cores import thread_count

ROOT = Path(__file__).parents[1]
SAMPLE = 0.2
"""Seconds of the samples that one side takes before another's turn."""
WARM_UP = 3
"""Steps that do not count. With the compared ones they are five: hloom packs weights in the fourth step that
reads them, and touches the memory for it."""
FEWEST = 4
"""Samples of a side at least, however long they take: the spread needs as many."""
PAUSE = 0.2
"""Seconds before a turn of fewer than `FEWEST` steps: a side still frees memory after it has the results, and
the next side's first step would share the processor with that."""
SIDES: Final[dict[str, dict[str, str]]] = {
    "stock": {"JAX_PLATFORMS": "cpu"},
    # A first call compiles, as it does in JAX's own client, which keeps nothing either.
    "hloom": {"JAX_PLATFORMS": "cpu", "HLOOM_AS_CPU": "1", "HLOOM_CACHE": "0"},
    "torch": {},
    "compiled": {"TORCH_COMPILED": "1"},
}
"""The environment of each side that needs one."""


@dataclass
class Measured:
    """The measurements of one side.

    A side whose program did not run has only ``error``, or ``missing``: the name of a missing library.

    Attributes:
        first: seconds of ``build`` and the first step: tracing, compiling, running.
        seconds: of the later steps.
        peak: bytes of memory of the process.
        cost: operations and bytes of a step, if the program tells them.
        agree, worst: whether results are those of the first side; their largest relative difference.
    """

    first: float | None = None
    seconds: tuple[float, ...] = ()
    peak: int | None = None
    cost: Mapping[str, float] | None = None
    agree: bool | None = None
    worst: float | None = None
    missing: str = ""
    error: str = ""

    @property
    def median(self) -> float | None:
        """The median of the seconds."""
        return statistics.median(self.seconds) if self.seconds else None

    @property
    def spread(self) -> float | None:
        """The distance of the quartiles of the seconds by their median."""
        if len(self.seconds) < FEWEST:
            return None
        low, middle, high = statistics.quantiles(self.seconds)
        return quotient(high - low, middle)

    @property
    def remark(self) -> str:
        """Why the side does not count: a missing library, an error, or differing results; else empty."""
        if self.missing:
            return f"{self.missing} is not installed"
        return self.error or (f"differs by {self.worst:.0e}" if self.agree is False else "")


class Missing(Exception):
    """A program needs a library that is not installed."""


class Side:
    """The process of a program on one side."""

    def __init__(self, name: str, program: str, folder: Path, clock: str) -> None:
        self.file = folder / f"{name}.npz"
        ignored = ("JAX_", "XLA_FLAGS", "HLOOM_AS_CPU", "TORCH_COMPILED")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(ignored)} | SIDES.get(name, {})
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- it lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.child", program, str(self.file), clock],
            cwd=ROOT,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        begun = self._answer()
        if begun.get("missing"):
            self.kill()
            raise Missing(begun["missing"])
        self.first: float = begun["build"] + begun["first"]
        self.tolerance: float | None = begun["tolerance"]
        self.seconds: list[float] = []

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            text = self._errors.read()
            said = re.findall(r"^[\w.]+(?:Error|Exception): .*", text, re.M) or text.splitlines() or [""]
            status = self._process.wait()
            self.kill()
            raise RuntimeError(f"the process ended with {status}: {said[-1]}")
        return json.loads(line)

    def sample(self, count: int) -> None:
        """Run some steps."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the answer tells how the process ended
            print(count, file=self._process.stdin, flush=True)
        self.seconds += self._answer()

    def end(self) -> Any:
        """End the process; return the bytes of memory that it needed, and the cost of a step."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        answer = self._answer()
        self._process.wait()
        return answer

    def kill(self) -> None:
        """End the process whatever it does."""
        if not self._errors.closed:
            with suppress(BrokenPipeError), self._process, self._errors:
                self._process.kill()


def measured(programs: Mapping[str, str], budget: float, clock: str = "wall") -> dict[str, Measured]:
    """Measure a program on several sides, the first of which has the right results.

    Args:
        programs: for each side the program as `benchmarks.child` takes it.
        budget: seconds of the later steps on each side.
        clock: ``wall`` or ``cpu``.
    """
    results = {side: Measured() for side in programs}
    sides: dict[str, Side] = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for name, program in programs.items():
                try:
                    sides[name] = Side(name, program, Path(folder), clock)
                except Missing as error:
                    results[name].missing = str(error)
                except (RuntimeError, OSError) as error:
                    results[name].error = str(error)
            _run(list(sides.values()), budget, full_rate(thread_count()) if clock == "wall" else None)
            for name, side in sides.items():
                results[name] = _result(side, sides.get(next(iter(programs))))
        except (RuntimeError, OSError) as error:
            for name in sides:
                results[name].error = str(error)
        finally:
            for side in sides.values():
                side.kill()
    return results


def _result(side: Side, right: Side | None) -> Measured:
    end = side.end()
    result = Measured(side.first, tuple(side.seconds), end["peak"], end["cost"])
    if right is not None:
        result.agree, result.worst = _compare(right, side)
    return result


def _run(sides: list[Side], budget: float, rate: FullRate | None) -> None:
    """Let the sides take turns until each has used its time; the first steps warm up.

    Turns wait until the machine computes at its full rate, if that is known.
    """
    for side in sides:
        side.sample(WARM_UP)
    counts = [max(1, round(SAMPLE / max(1e-6, min(side.seconds)))) for side in sides]
    for side in sides:
        side.seconds = []
    while any(sum(side.seconds) < budget or len(side.seconds) < FEWEST for side in sides):
        for side, count in zip(sides, counts, strict=True):
            if count < FEWEST and len(sides) > 1:
                time.sleep(PAUSE)
            if rate is not None:
                rate.wait()
            side.sample(count)


def _compare(right: Side, side: Side) -> tuple[bool, float]:
    with np.load(side.file) as ours, np.load(right.file) as theirs:
        result = agreement(list(ours.values()), list(theirs.values()))
    if right.tolerance is None:
        return result.agree, result.worst
    return result.worst <= right.tolerance, result.worst
