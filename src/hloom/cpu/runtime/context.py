"""Context of a native program: the thread pool, devices and host of a run, in words of 8 bytes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Final

from hloom.cpu.runtime.pool import pool_address
from hloom.cpu.runtime.support import support
from hloom.ir.device import DeviceId

POOL_WORD: Final = 0
"""The thread pool; 0 if there is none."""
TABLE_WORD: Final = 1
"""The table that a timed program fills; see `hloom.cpu.runtime.timers`."""
PARTICIPANTS_WORD: Final = 2
"""The table of the device's participant records, one per host call; see `hloom.cpu.runtime.rendezvous`."""
REPLICA_WORD: Final = 3
PARTITION_WORD: Final = 4
STOP_WORD: Final = 5
"""The address of a word that ends the program at its next poll if it is not 0; or 0."""
POLL_WORD: Final = 6
"""The address of the function that polls; see `hloom.cpu.runtime.interruption`."""
POLL_FUNCTION: Final = "hloom_poll"
"""Its name."""
FIBER_WORD: Final = 7
"""The fiber of a device that shares a thread with others; 0 if it has a thread of its own."""
HOST_WORD: Final = 8
"""The Python function that answers the host calls of the program; 0 for that of the thread's run."""
_WORDS: Final = 9

NATIVE_COLLECTIVES: Final = frozenset((
    "all-gather", "all-reduce", "all-to-all", "collective-broadcast", "collective-permute", "reduce-scatter",
))  # fmt: skip
"""Collectives with an implementation in native code."""


class Context:
    """Context of a program on a device.

    Attributes:
        address: the words, as native code takes them.
    """

    def __init__(
        self,
        device: DeviceId = (0, 0),
        *,
        participants: int = 0,
        table: int = 0,
        stop: ctypes.c_uint64 | None = None,
        fiber: int = 0,
        host: Callable[[int, int], None] | None = None,
    ) -> None:
        self._stop = stop
        self._host = host
        self._words = (ctypes.c_uint64 * _WORDS)()
        self._words[POOL_WORD] = pool_address()
        self._words[TABLE_WORD] = table
        self._words[PARTICIPANTS_WORD] = participants
        self._words[REPLICA_WORD], self._words[PARTITION_WORD] = device
        self._words[STOP_WORD] = 0 if stop is None else ctypes.addressof(stop)
        self._words[FIBER_WORD] = fiber
        self._words[HOST_WORD] = 0 if host is None else id(host)
        self._words[POLL_WORD] = support().symbols[POLL_FUNCTION]
        self.address = ctypes.addressof(self._words)

    @property
    def is_stopped(self) -> bool:
        """Return whether the stop word is set."""
        return self._stop is not None and self._stop.value != 0
