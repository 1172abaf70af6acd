"""Data of the time tab: a profile, a timeline, and measured limits of the machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from hloom.runtime.measurements import Profile, Recording

_SIDE: Final = 256
_LEVELS: Final = {"L2": 1 << 18, "L3": 1 << 22, "memory": 1 << 26}
"""Size in bytes of a copy, source and target together, that fits each level of memory."""
_MOST_RECORDS: Final = 20_000
"""Limit of the records of a thread in the page."""
_TIMES: Final = 60
"""Number of measurements; the minimum is undisturbed even on a busy machine."""


def time_data(profile: Profile, recordings: Sequence[Recording]) -> dict[str, object]:
    """Return each instruction's time, runs, flops, bytes and waiting; the timeline; the machine's limits."""
    lines = [[i.name, i.seconds, i.runs, i.flops, i.bytes, i.waiting] for i in profile.lines]
    flops, levels = machine_limits()
    devices = max(1, len(profile.devices))
    limits = {"flops": flops, "levels": [[name, _LEVELS[name], rate] for name, rate in levels.items()]}
    threads = _threads(recordings)
    return {"seconds": profile.seconds, "devices": devices, "lines": lines, "threads": threads, **limits}


def _threads(recordings: Sequence[Recording]) -> list[dict[str, object]]:
    """Return the timeline of each thread in seconds from the first record, outer instructions first."""
    ran = [recording.records[recording.records[:, 0] >= 0] for recording in recordings]
    begin = min((int(records[:, 1].min()) for records in ran if len(records)), default=0)
    threads: list[dict[str, object]] = []
    for recording, records in zip(recordings, ran, strict=True):
        ordered = sorted(records.tolist(), key=lambda record: (record[1], -record[2]))[:_MOST_RECORDS]
        threads.append(
            {
                "title": f"device {recording.device}, thread {recording.thread}",
                "names": [instruction.name for instruction in recording.instructions],
                "records": [[number, (a - begin) / 1e9, (b - begin) / 1e9] for number, a, b in ordered],
            }
        )
    return threads


def machine_limits() -> tuple[float, dict[str, float]]:
    """Measure flops per second of numpy's f32 matrix product, and bytes per second of copies by level."""
    matrix = np.ones((_SIDE, _SIDE), np.float32)
    product = np.empty_like(matrix)
    seconds = _least(lambda: np.matmul(matrix, matrix, out=product))
    return 2.0 * _SIDE**3 / seconds, {name: _copy_rate(size) for name, size in _LEVELS.items()}


def _copy_rate(size: int) -> float:
    source, target = np.ones(size // 2, np.uint8), np.zeros(size // 2, np.uint8)
    return size / _least(lambda: np.copyto(target, source))


def _least(work: Callable[[], object]) -> float:
    times: list[float] = []
    for _ in range(_TIMES):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
