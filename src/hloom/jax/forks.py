"""Hooks for ``os.fork``: the child has only the thread that called fork, so it resets locks and workers."""

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
    """Register hooks for ``os.fork``; later calls do nothing.

    A fork waits until no thread is loading the plug-in's native code. The child, in which only the forking
    thread exists, resets native locks and the records of the devices' worker threads.
    """
    os.register_at_fork(before=loading.acquire, after_in_parent=loading.release, after_in_child=_begin)


def _begin() -> None:
    loading.release()
    native().call("pjrt_unlock_all")
    for client in clients:
        for device in client.devices:
            # No lock is held, the queue is empty, and the next long program starts a new thread.
            ctypes.memset(device.record.location("worker"), 0, WORKER.size)
    # jaxlib's clients and thread pool join threads when destroyed, which deadlocks after a fork.
    for owner in (*private.backends().values(), private.thread_pool()):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))
