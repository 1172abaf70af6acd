"""A program on JAX's own client and on hloom."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.alternation import measured
from benchmarks.row import quotient


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


def measured_row(name: str, program: str, budget: float, clock: str = "wall") -> Row:
    """Measure a program, as `benchmarks.child` takes it, on both sides; see `measured`."""
    sides = measured({"stock": program, "hloom": program}, budget, clock)
    stock, hloom = sides["stock"], sides["hloom"]
    return Row(
        name,
        hloom.first,
        stock.first,
        hloom.median,
        stock.median,
        hloom.peak,
        stock.peak,
        hloom.agree,
        hloom.worst,
        hloom.missing or stock.missing,
        hloom.error or stock.error,
    )
