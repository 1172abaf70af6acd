"""Processor time: how much was spent, and limits of it for what a program may never end."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

PATIENCE: Final = 120
"""Seconds after which a program in another process counts as one that never ends."""
PROGRAM_SECONDS: Final = 60.0
"""Processor time in which a program must be read, optimized or evaluated in this process."""


def processor_seconds() -> float:
    """Return the processor time of this process, and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def ends_in_time(wait_a_second: Callable[[], bool]) -> bool:
    """Return whether a wait of one second succeeds in `PATIENCE` attempts.

    The attempts are counted, not the time, in which both processes may have been stopped.
    """
    return any(wait_a_second() for _ in range(PATIENCE))


@contextmanager
def time_limit(seconds: float = PROGRAM_SECONDS) -> Generator[None]:
    """Raise TimeoutError once the process has spent some processor time; not nested.

    Signals reach the main thread only: in other threads, and on Windows, nothing is limited.
    """
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise TimeoutError(f"it takes more than {seconds:.0f} s of processor time")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
