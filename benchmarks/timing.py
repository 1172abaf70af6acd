"""Medians of times; the measured functions alternate, so that other load affects all of them."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

LEAST_SAMPLE = 20e-6
"""Seconds of a sample at least: shorter calls are repeated, so that reading the clock does not count."""
FEWEST, MOST = 5, 2000
"""Samples of each call."""


def medians(calls: Mapping[str, Callable[[], Any]], budget: float, block: int = 1) -> dict[str, float]:
    """Return the median seconds of the `samples` of each call."""
    return {name: statistics.median(found) for name, found in samples(calls, budget, block).items()}


def samples(calls: Mapping[str, Callable[[], Any]], budget: float, block: int = 1) -> dict[str, list[float]]:
    """Return the seconds of each call, in samples that alternate between the calls.

    Args:
        calls: each is run twice before timing.
        budget: seconds for all samples together; there are at least five of each, and at most 2000.
        block: consecutive samples of a call.
    """
    repeats: dict[str, int] = {}
    for name, call in calls.items():
        call()
        repeats[name] = repeats_of(seconds_of(call, 1))
    found: dict[str, list[float]] = {name: [] for name in calls}
    spent, rounds = 0.0, 0
    collects = gc.isenabled()
    gc.disable()
    try:
        while rounds < FEWEST or (spent < budget and rounds < MOST):
            for name, call in calls.items():
                for _ in range(block):
                    taken = seconds_of(call, repeats[name])
                    found[name].append(taken / repeats[name])
                    spent += taken
            rounds += block
    finally:
        if collects:
            gc.enable()
    return found


def repeats_of(seconds: float) -> int:
    """Return the number of calls of this duration in one sample."""
    return max(1, min(1000, round(LEAST_SAMPLE / max(seconds, 1e-9))))


def seconds_of(call: Callable[[], Any], repeats: int) -> float:
    """Return the seconds of some calls; the last result is freed after the clock is read, as by a caller."""
    result: Any = None
    start = time.perf_counter()
    for _ in range(repeats):
        result = call()
    taken = time.perf_counter() - start
    del result
    return taken
