"""Children of a fork, which have only the thread that forked."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from importlib import import_module
from typing import Any

from hloom.jax.client import clients
from hloom.jax.native import native


@cache
def install() -> None:
    """Register a hook that frees locks and forgets workers in forked children."""
    os.register_at_fork(after_in_child=_begin)


def _begin() -> None:
    native().call("pjrt_unlock_all")
    for client in clients:
        for device in client.devices:
            # No lock is held, the queue is empty, and the next long program starts a new thread.
            ctypes.memset(device.worker, 0, ctypes.sizeof(device.worker))
    # What joins threads when it is destroyed would wait for ever: jaxlib's clients and its pool of threads.
    bridge: Any = import_module("jax._src.xla_bridge")
    mlir: Any = import_module("jax._src.interpreters.mlir")
    for owner in (*bridge._backends.values(), getattr(mlir, "global_thread_pool", None)):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))
