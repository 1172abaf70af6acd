"""Limits of processes, in CPU seconds of their sessions: the load of the machine does not change outcomes.

A process in a deadlock uses none; it is out of time after `IDLE_SECONDS`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path

IDLE_SECONDS = 120.0
"""Wall seconds after which a run that used less than 0.1 CPU seconds meanwhile is taken to be stuck."""
TICK = os.sysconf("SC_CLK_TCK")


def watch(process: subprocess.Popen[bytes], limit: float) -> tuple[float, bool]:
    """Wait for the leader of a session; return its CPU seconds, and whether it was too slow or stuck."""
    seconds, busy = 0.0, time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
            return seconds, False
        now = session_seconds(process.pid)
        if now > seconds + 0.1:
            seconds, busy = now, time.monotonic()
        if seconds > limit or time.monotonic() - busy > IDLE_SECONDS:
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
