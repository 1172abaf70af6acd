"""The context of a program: what native code has to know of where it runs, in words of 8 bytes."""

from __future__ import annotations

import ctypes
from typing import Final

from hloom.cpu.runtime.pool import pool_address
from hloom.ir.device import DeviceId

POOL_WORD: Final = 0
"""The thread pool; 0: there is none."""
TABLE_WORD: Final = 1
"""The table that a timed program fills; see `hloom.cpu.runtime.profile`."""
SEATS_WORD: Final = 2
"""A device's seats, one for each call of the host; see `hloom.cpu.runtime.rendezvous`."""
REPLICA_WORD: Final = 3
PARTITION_WORD: Final = 4
_WORDS: Final = 8


class Context:
    """The context of a program on a device.

    Attributes:
        address: for native code.
    """

    def __init__(self, device: DeviceId = (0, 0), *, seats: int = 0, table: int = 0) -> None:
        self._words = (ctypes.c_uint64 * _WORDS)()
        self._words[POOL_WORD] = pool_address()
        self._words[TABLE_WORD] = table
        self._words[SEATS_WORD] = seats
        self._words[REPLICA_WORD], self._words[PARTITION_WORD] = device
        self.address = ctypes.addressof(self._words)
