"""Control of Python's garbage collector while large programs are built."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Generator[None, None, None]:
    """Pause the garbage collector while a graph grows, to avoid traversing it repeatedly.

    Cycles that become garbage meanwhile are freed by a later collection.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
