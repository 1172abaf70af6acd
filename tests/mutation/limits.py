"""Limits of processes, in CPU seconds of their sessions: the load of the machine does not change outcomes.

A process in a deadlock uses none; it is out of time after `IDLE_SECONDS`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

IDLE_SECONDS = 120.0
"""Wall seconds after which a run that used less than 0.1 CPU seconds meanwhile is taken to be stuck."""
POLL_SECONDS = 0.5
TICK = os.sysconf("SC_CLK_TCK")


def watch(process: subprocess.Popen[bytes], limit: float) -> tuple[float, bool]:
    """Wait for the leader of a session; return its CPU seconds, and whether it was too slow or stuck."""
    seconds, idle = 0.0, 0.0
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(POLL_SECONDS)
            return seconds, False
        now = session_seconds(process.pid)
        if now > seconds + 0.1:
            seconds, idle = now, 0.0
        # Counted in polls, not by a clock: a watcher that was suspended with its session goes on.
        idle += POLL_SECONDS
        if seconds > limit or idle > IDLE_SECONDS:
            return seconds, True


def session_seconds(session: int) -> float:
    """Return the CPU seconds of the processes of a session and of their terminated children."""
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name of the program, in parentheses, may hold spaces.
            fields = file.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks += sum(map(int, fields[11:15]))
    return ticks / TICK
