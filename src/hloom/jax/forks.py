"""Children of a fork, which have only the thread that forked."""

from __future__ import annotations

import ctypes
import os
from functools import cache

from hloom.jax.devices.client import clients
from hloom.jax.pjrt.native import loading, native
from hloom.jax.pjrt.structs import WORKER
from hloom.jaxlib import private


@cache
def install() -> None:
    """Register a hook: a fork waits for code that loads; children forget locks and workers."""
    os.register_at_fork(before=loading.acquire, after_in_parent=loading.release, after_in_child=_begin)


def _begin() -> None:
    loading.release()
    native().call("pjrt_unlock_all")
    for client in clients:
        for device in client.devices:
            # No lock is held, the queue is empty, and the next long program starts a new thread.
            ctypes.memset(device.record.location("worker"), 0, WORKER.size)
    # Destructors that join threads deadlock after a fork: those of jaxlib's clients and of its thread pool.
    for owner in (*private.backends().values(), private.thread_pool()):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))
