"""Interrupt programs that would not end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

SOON = 5.0
"""CPU seconds in which a program ends that is interrupted; without its polls it would never end."""


class Alarm:
    """Sends this process a SIGINT as soon as it is due, or after a minute."""

    def __init__(self, is_due: Callable[[], bool]) -> None:
        self.is_due, self.rang_at, self.used = is_due, 0.0, 0.0

    def __enter__(self) -> Alarm:
        def ring() -> None:
            deadline = time.monotonic() + 60
            while not self.is_due() and time.monotonic() < deadline:
                time.sleep(0.01)
            self.rang_at, self.used = time.monotonic(), time.process_time()
            os.kill(os.getpid(), signal.SIGINT)

        self._thread = threading.Thread(target=ring)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()


def computed(seconds: float) -> Callable[[], bool]:
    """Return a function that tells when this process has used CPU seconds from now on.

    A program that starts late, because the machine is busy, uses none until it runs.
    """
    begin = time.process_time()
    return lambda: time.process_time() > begin + seconds


def interrupted(exe: Any, *arguments: Any) -> float:
    """Run a program without end, interrupt it, and return the CPU seconds that it took to end."""
    returned = False
    with pytest.raises(KeyboardInterrupt), Alarm(computed(0.1)) as alarm:
        exe.run([arguments] * len(exe.devices)) if len(exe.devices) > 1 else exe(*arguments)
        returned = True
    assert not returned
    return time.process_time() - alarm.used
