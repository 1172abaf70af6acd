"""The thread pool, whose threads share the iterations of a kernel's outermost loop.

`routines/pool.py` is the native side. This module owns the pool's memory, chooses the number of threads, and
handles fork and exit. Results do not depend on the number of threads.
"""

from __future__ import annotations

import atexit
import ctypes
import os
from functools import cache

from hloom.cpu.runtime.structs import POOL
from hloom.cpu.runtime.support import support
from hloom.lifetime import keep_for_ever
from hloom.runtime.cores import thread_count


class ThreadPool:
    """A pool of threads that share the iterations of kernels; the first parallel kernel starts them.

    Attributes:
        threads: the number of threads, including the one that calls a kernel.
        address: the address of the struct `POOL`.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._record = POOL.allocate(threads, threads=threads)
        self.address = self._record.address

    def forget(self) -> None:
        """Reset this thread pool in a forked child, which has none of its threads."""
        ctypes.memset(self.address, 0, POOL.size_with(self.threads))
        self._record["threads"] = self.threads

    def stop(self) -> None:
        """End the threads of this pool; later kernels run serially in their caller's thread.

        Other threads of the process may still run programs.
        """
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(support().symbols["hloom_pool_stop"])(self.address)

    @property
    def started(self) -> bool:
        return bool(self._record["started"])


@cache
def shared_pool() -> ThreadPool | None:
    """Return the thread pool of the process; None if programs run in one thread."""
    threads = thread_count()
    if threads < 2:
        return None
    pool = ThreadPool(threads)
    keep_for_ever(pool)  # other threads may run programs until the process ends
    os.register_at_fork(after_in_child=pool.forget)
    atexit.register(pool.stop)
    return pool


def pool_address() -> int:
    """Return the address of the process's thread pool; 0 for none."""
    pool = shared_pool()
    return 0 if pool is None else pool.address
