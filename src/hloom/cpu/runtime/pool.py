"""Thread pool that shares the iterations of a kernel's outermost loop.

``hloom_parallel`` in `routines/pool.py` does the work. This module owns the pool's memory, and follows the
process: number of threads, fork, exit. Results never depend on the number of threads: an iteration is
computed in the same way in any thread.
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
    """A pool of threads, which start when they are first needed.

    Attributes:
        threads: number of threads that compute at once, the caller's included.
        address: the pool's memory, as native code takes it.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._record = POOL.allocate(threads, threads=threads)
        self.address = self._record.address

    def forget(self) -> None:
        """Reset the pool to one without threads; after a fork the child has none of them."""
        ctypes.memset(self.address, 0, POOL.size_with(self.threads))
        self._record["threads"] = self.threads

    def stop(self) -> None:
        """End the threads for good; later kernels run in the thread of their caller.

        Programs may run in other threads meanwhile.
        """
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(support().symbols["hloom_pool_stop"])(self.address)

    @property
    def started(self) -> bool:
        return bool(self._record["started"])


@cache
def shared_pool() -> ThreadPool | None:
    """Return the pool of this process; None for a single thread."""
    threads = thread_count()
    if threads < 2:
        return None
    pool = ThreadPool(threads)
    keep_for_ever(pool)  # threads of their own run programs until the process has ended
    os.register_at_fork(after_in_child=pool.forget)
    atexit.register(pool.stop)
    return pool


def pool_address() -> int:
    """Return the address of the process's pool; 0 if there is none."""
    pool = shared_pool()
    return 0 if pool is None else pool.address
