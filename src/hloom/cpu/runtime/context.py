"""Contexts of native programs: the thread pool, device and host function of a run."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Final

from hloom.cpu.runtime.pool import pool_address
from hloom.cpu.runtime.structs import CONTEXT
from hloom.cpu.runtime.support import support
from hloom.ir.device import DeviceId

POLL_FUNCTION: Final = "hloom_poll"

NATIVE_COLLECTIVES: Final = frozenset(
    ("all-gather", "all-reduce", "all-to-all", "collective-broadcast", "collective-permute", "reduce-scatter")
)
"""Collectives with native implementations."""
_HOST_OPCODES: Final = """
    all-gather-start all-gather-done all-reduce-start all-reduce-done collective-permute-start
    collective-permute-done collective-reduce ragged-all-to-all async-start async-done
    send send-done recv recv-done infeed outfeed
    bitcast get-dimension-size map rng-get-and-update-state set-dimension-size
"""
HOST_OPERATIONS: Final = tuple(_HOST_OPCODES.split())
"""Operations that the host evaluates: communication, and operations that no pass expanded.

So are custom calls of functions that the compiler does not know.
"""


class Context:
    """The context of a run: a C struct that tells native code its device and the resources it may use.

    Args:
        device: (replica, partition).
        participants: the address of a table with a pointer for each host call (call into Python); the pointer
            of a collective that runs in native code instead is that of its struct `PARTICIPANT`, the others
            are null; 0 for no table.
        table: the address of the table to which a timed program adds its measurements; 0 for none.
        stop: a 64-bit word; the program ends early when its value becomes nonzero; None for no such word.
        fiber: the address of the device's fiber (its state and stack) if one thread runs all devices; 0 if
            the device has its own thread.
        host: the Python function that answers host calls; None for the one that looks up the current thread's
            `HostCalls`.

    Attributes:
        address: the address of the struct `CONTEXT`.
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
        self._referenced = stop, host  # the struct points to them
        replica, partition = device
        self._record = CONTEXT.allocate(
            pool=pool_address(),
            table=table,
            participants=participants,
            replica=replica,
            partition=partition,
            stop=0 if stop is None else ctypes.addressof(stop),
            poll=support().symbols[POLL_FUNCTION],
            fiber=fiber,
            host=0 if host is None else id(host),
        )
        self.address = self._record.address
