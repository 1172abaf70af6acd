"""The measurements of one program, and the summary of many."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Row:
    """Measurements of one program; None for a quantity that was not measured.

    Attributes:
        name: the program's name.
        run, xla_run, library_run: median seconds of a run, of hloom, XLA:CPU, and NumPy or SciPy.
        compiled, xla_compiled: seconds of a cold compilation in a process that has compiled before.
        fresh, cached: seconds of hloom's compilation in a fresh process, with an empty cache and from it.
        loads_llvm: whether the latter loaded LLVM.
        temp, xla_temp: bytes of memory beside arguments and results.
        agree, worst: whether hloom's results are XLA's (or the library's); the largest relative difference.
        flops, moved: operations and bytes of a run, counted by hloom.
        error: the reason of a failed measurement.
    """

    name: str
    run: float | None = None
    xla_run: float | None = None
    library_run: float | None = None
    compiled: float | None = None
    xla_compiled: float | None = None
    fresh: float | None = None
    cached: float | None = None
    loads_llvm: bool | None = None
    temp: int | None = None
    xla_temp: int | None = None
    agree: bool | None = None
    worst: float | None = None
    flops: float | None = None
    moved: float | None = None
    limit: float | None = None
    error: str = ""

    @property
    def faster(self) -> float | None:
        """The speedup of hloom over XLA:CPU."""
        return quotient(self.xla_run, self.run)

    @property
    def faster_than_library(self) -> float | None:
        """The speedup of hloom over NumPy or SciPy."""
        return quotient(self.library_run, self.run)

    @property
    def compile_ratio(self) -> float | None:
        """The cold compile time divided by XLA's."""
        return quotient(self.compiled, self.xla_compiled)

    @property
    def cached_ratio(self) -> float | None:
        """The compile time from the cache divided by XLA's."""
        return quotient(self.cached, self.xla_compiled)

    @property
    def of_limit(self) -> float | None:
        """The fraction of the machine's limit that hloom reaches; above 1 if caches hold the data."""
        return quotient(self.limit, self.run)

    def to_json(self) -> dict[str, Any]:
        """Return the fields and ratios as JSON values."""
        ratios = {
            "faster": self.faster,
            "compile_ratio": self.compile_ratio,
            "cached_ratio": self.cached_ratio,
        }
        return {**asdict(self), **ratios}


def quotient(a: float | None, b: float | None) -> float | None:
    """Return the quotient of two numbers; None if one is missing."""
    return None if a is None or not b else a / b


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """Return the geometric mean of the positive numbers among some values; None if there are none."""
    found = [math.log(v) for v in values if v is not None and v > 0]
    return math.exp(sum(found) / len(found)) if found else None


def total(rows: Sequence[Row], value: Callable[[Row], float | None]) -> float | None:
    """Return the sum of the measured values; None if there are none."""
    found = [v for v in map(value, rows) if v is not None]
    return sum(found) if found else None


def summary(rows: Sequence[Row]) -> dict[str, float | None]:
    """Return geometric means of the ratios, the worst of them, and sums of memory."""
    both = [r for r in rows if r.temp is not None and r.xla_temp is not None]
    ratios = [r.faster for r in rows if r.faster is not None]
    return {
        "faster": geometric_mean(ratios),
        "least_faster": min(ratios, default=None),
        "faster_than_library": geometric_mean(r.faster_than_library for r in rows),
        "compile_ratio": geometric_mean(r.compile_ratio for r in rows),
        "cached_ratio": geometric_mean(r.cached_ratio for r in rows),
        "of_limit": geometric_mean(r.of_limit for r in rows),
        "temp": total(both, lambda r: r.temp),
        "xla_temp": total(both, lambda r: r.xla_temp),
    }
