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


@contextmanager
def collector_paused_for_imports() -> Generator[None, None, None]:
    """Pause the garbage collector while modules are imported, and spare it their objects.

    What modules define lives as long as the process. It joins the oldest generation at once: the young
    generations would be traversed for nothing, and their survivors would bring the next full collection
    forward, which takes 80 ms in a process that has imported JAX. Objects that the process itself has frozen
    stay so.
    """
    with collector_paused():
        yield
        if not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()
