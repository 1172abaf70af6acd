"""Processor cores that this process may use."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from hloom.errors import HloError


def thread_count() -> int:
    """Return the number of threads: ``HLOOM_NUM_THREADS``, or else the cores that this process may use.

    Raises HloError if the variable is set to something other than a positive number.
    """
    setting = os.environ.get("HLOOM_NUM_THREADS", "")
    if not setting:
        return available_cores()
    if not setting.isdecimal() or not 1 <= int(setting) <= 4096:
        message = f"HLOOM_NUM_THREADS is {setting!r}; a number from 1 to 4096 is wanted"
        raise HloError(message, rule="cpu.thread-count")
    return int(setting)


def available_cores() -> int:
    """Return the usable cores: the affinity mask, bounded by the quota of the control group."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _own_quota()
    return max(1, affinity if quota is None else min(affinity, round(quota)))


@cache
def _own_quota() -> float | None:
    """Return the quota of this process, read once: reading it takes half a millisecond."""
    return control_group_quota(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))


def control_group_quota(membership: Path, root: Path) -> float | None:
    """Return the CPU quota of control groups in cores (the least along the path); None without a limit.

    Args:
        membership: the file with lines ``number:controllers:path``.
        root: mount point of control groups, version 2, or version 1's ``cpu`` controller below it.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return None
    quotas: list[float] = []
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = str(root if not controllers else root / "cpu")
        folder = f"{base}/{path.strip('/')}".rstrip("/")
        while len(folder) >= len(base):
            quota = _quota_of(folder)
            if quota is not None:
                quotas.append(quota)
            folder = os.path.dirname(folder)
    return min(quotas, default=None)


def _quota_of(folder: str) -> float | None:
    try:
        if os.path.exists(f"{folder}/cpu.max"):
            granted, period = _words(f"{folder}/cpu.max")
        else:
            (granted,), (period,) = (
                _words(f"{folder}/cpu.cfs_quota_us"),
                _words(f"{folder}/cpu.cfs_period_us"),
            )
        return int(granted) / int(period) if granted != "max" and int(granted) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _words(file: str) -> list[str]:
    with open(file) as text:
        return text.read().split()
