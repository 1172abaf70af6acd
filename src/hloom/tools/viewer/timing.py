"""The data of the time tab: a profile, and the limits of the machine that it is compared with."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from hloom.cpu.runtime.profile import Profile

_SIDE: Final = 256
_LEVELS: Final = {"L2": 1 << 18, "L3": 1 << 22, "memory": 1 << 26}
"""Bytes of a copy, source and target together, that each level of the memory holds."""
_TIMES: Final = 60
"""Short measurements, many times: the least of them is undisturbed even on a busy machine."""


def time_data(profile: Profile) -> dict[str, Any]:
    """Return the time, runs, flops, bytes and waiting of every instruction, and the machine's limits."""
    lines = [[i.name, i.seconds, i.runs, i.flops, i.bytes, i.waiting] for i in profile.lines]
    flops, levels = machine_limits()
    devices = max(1, len(profile.devices))
    limits = {"flops": flops, "levels": [[name, _LEVELS[name], rate] for name, rate in levels.items()]}
    return {"seconds": profile.seconds, "devices": devices, "lines": lines, **limits}


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
    found: list[float] = []
    for _ in range(_TIMES):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)
