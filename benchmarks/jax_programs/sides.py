"""The processes of both sides of a program, and what they measured together."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.agreement import agreement
from benchmarks.row import quotient

ROOT = Path(__file__).parents[2]
SAMPLE = 0.2
"""Seconds of the samples that one side takes before the other's turn."""


class Missing(Exception):
    """A program needs a library that is not installed."""


@dataclass
class Row:
    """One program; what was not measured is None.

    Attributes:
        name: the program's.
        first, stock_first: seconds of ``build`` and the first step: tracing, compiling, running.
        run, stock_run: median seconds of a later step.
        peak, stock_peak: bytes of memory of the process.
        agree, worst: whether results agree, and their largest relative difference.
        missing: a library that the program needs.
        error: why it could not be measured.
    """

    name: str
    first: float | None = None
    stock_first: float | None = None
    run: float | None = None
    stock_run: float | None = None
    peak: int | None = None
    stock_peak: int | None = None
    agree: bool | None = None
    worst: float | None = None
    missing: str = ""
    error: str = ""

    @property
    def faster(self) -> float | None:
        """Return how many times as fast as JAX's own client hloom runs."""
        return quotient(self.stock_run, self.run)

    @property
    def first_ratio(self) -> float | None:
        """Return hloom's time of the first step by that of JAX's own client."""
        return quotient(self.first, self.stock_first)

    @property
    def memory_ratio(self) -> float | None:
        """Return hloom's memory by that of JAX's own client."""
        return quotient(self.peak, self.stock_peak)

    def to_json(self) -> dict[str, Any]:
        """Return what JSON can hold, with the ratios."""
        ratios = {name: getattr(self, name) for name in ("faster", "first_ratio", "memory_ratio")}
        return {**asdict(self), **ratios}


class Side:
    """The process of a program on one platform."""

    def __init__(self, program: str, platform: str, folder: Path, clock: str) -> None:
        self.file = folder / f"{platform}.npz"
        known = {
            k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_FLAGS", "HLOOM_AS_CPU"))
        }
        environment = {**known, "JAX_PLATFORMS": "cpu"}
        if platform == "hloom":
            # A first call compiles, as it does in JAX's own client, which keeps nothing either.
            environment |= {"HLOOM_AS_CPU": "1", "HLOOM_CACHE": "0"}
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- it lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.jax_programs.child", program, str(self.file), clock],
            cwd=ROOT, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors,
        )  # fmt: skip
        begun = self._answer()
        if begun.get("missing"):
            self._process.wait()
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
            raise RuntimeError(f"the process ended with {self._process.wait()}: {said[-1]}")
        return json.loads(line)

    def sample(self, count: int) -> None:
        """Run some steps."""
        assert self._process.stdin is not None
        print(count, file=self._process.stdin, flush=True)
        self.seconds += self._answer()

    def end(self) -> int:
        """End the process; return the bytes of memory that it needed."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        peak: int = self._answer()["peak"]
        self._process.wait()
        return peak

    def kill(self) -> None:
        """End the process whatever it does."""
        self._process.kill()
        self._process.wait()


def measured(name: str, budget: float, clock: str) -> Row:
    """Measure a program on both sides; what fails is noted in the row.

    Args:
        budget: seconds of the later steps on each side.
        clock: ``wall`` or ``cpu``.
    """
    row = Row(name)
    sides: list[Side] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for platform in ("stock", "hloom"):
                sides.append(Side(name, platform, Path(folder), clock))
            _run(sides, budget)
            row.stock_first, row.first = (side.first for side in sides)
            row.stock_run, row.run = (statistics.median(side.seconds) for side in sides)
            row.stock_peak, row.peak = (side.end() for side in sides)
            row.agree, row.worst = _compare(*sides)
        except Missing as error:
            row.missing = str(error)
        except (RuntimeError, OSError) as error:
            row.error = str(error)
        finally:
            for side in sides:
                side.kill()
    return row


def _run(sides: list[Side], budget: float) -> None:
    """Let the sides take turns until each has used its time; the first samples warm up."""
    for side in sides:
        side.sample(3)
    counts = [max(1, round(SAMPLE / max(1e-6, min(side.seconds)))) for side in sides]
    for side in sides:
        side.seconds = []
    while any(sum(side.seconds) < budget for side in sides):
        for side, count in zip(sides, counts, strict=True):
            side.sample(count)


def _compare(stock: Side, hloom: Side) -> tuple[bool, float]:
    values = [[array for _, array in sorted(np.load(side.file).items())] for side in (hloom, stock)]
    found = agreement(*values)
    if stock.tolerance is None:
        return found.agree, found.worst
    return found.worst <= stock.tolerance, found.worst
