"""Devices in several processes, over MPI (mpi4py, with any MPI library that it finds).

::

    # mpirun -n 4 python program.py
    from hloom.runtime import mpi
    exe = hloom.compile(module, num_partitions=8, processes=mpi.world())
    results = exe.run(arguments)            # those of this process's devices: exe.devices

Each process has a block of consecutive devices, process 0 the first. All processes compile the same programs
in the same order, and run them equally often. ``mpirun -n 4 hloom run FILE`` runs a file.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final

from hloom.devices.transport import Message, MessageFunctions, Transport, owner_of
from hloom.errors import HloError

_LAUNCHED: Final = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK")
"""Environment variables by which Open MPI, MPICH, Intel MPI and Slurm tell a process that they started it."""
_STATUS_WORDS: Final = 8
"""Room for an MPI_Status of any library, in words."""
_GRACE: Final = 5.0
"""Seconds that other processes have to end with an error of their own."""


class _Communicators:
    """Duplicates of a communicator, freed in all processes together when all have dropped their users.

    MPI has some 2,000 communicators, and frees one by a collective operation; the users of one are collected
    at other times in each process.
    """

    def __init__(self, origin: Any) -> None:
        self._origin = origin
        self._open: dict[int, Any] = {}
        self._dropped: set[int] = set()
        self._count = 0

    def duplicate(self, user: object) -> Any:
        """Return a communicator that is used until an object is collected; all processes call this."""
        everywhere = set[int].intersection(*self._origin.allgather(set(self._dropped)))
        for number in sorted(everywhere):
            self._open.pop(number).Free()
            self._dropped.remove(number)
        self._count += 1
        duplicate = self._open[self._count] = self._origin.Dup()
        weakref.finalize(user, self._dropped.add, self._count).atexit = False
        return duplicate


class MpiTransport:
    """Messages over an MPI communicator; see `hloom.devices.transport.Transport`.

    Args:
        communicator: connects the processes.
        duplicates: those of the communicator from which this transport was separated; made if there is none.
    """

    is_uniform = False

    def __init__(self, communicator: Any, duplicates: _Communicators | None = None) -> None:
        self._communicator = communicator
        self._duplicates = duplicates or _Communicators(communicator)
        self._sends: list[Any] = []
        self.rank: int = communicator.Get_rank()
        self.size: int = communicator.Get_size()
        self.host = socket.gethostname()
        self._runs = 0

    def owners(self, devices: int) -> Sequence[int]:
        """Return the rank of each device: devices are divided into blocks."""
        return [owner_of(number, devices, self.size) for number in range(devices)]

    def hosts(self) -> list[str]:
        """Return the names of the machines, by rank."""
        return self.all_gather(self.host)

    def begin(self) -> int:
        """Count a run."""
        self._runs += 1
        return self._runs

    def cancel(self) -> bool:
        """Return false: MPI may still receive what other processes have sent."""
        return False

    def separate(self) -> Transport:
        """Duplicate the communicator."""
        transport = MpiTransport(self._communicator, self._duplicates)
        transport._communicator = self._duplicates.duplicate(transport)
        return transport

    def send(self, rank: int, message: Message) -> None:
        """Begin a send, and forget those that are complete."""
        self._sends = [request for request in self._sends if not request.test()[0]]
        self._sends.append(self._communicator.isend(message, rank))

    def receive(self) -> Message | None:
        """Return a message that has arrived, or None."""
        message = self._communicator.improbe()
        return None if message is None else message.recv()

    def barrier(self) -> Callable[[], bool]:
        """Begin a barrier, complete when the messages of this process have been received, too."""
        request = self._communicator.Ibarrier()

        def complete() -> bool:
            self._sends = [send for send in self._sends if not send.test()[0]]
            return request.Test() and not self._sends

        return complete

    def all_gather(self, value: Any) -> list[Any]:
        """Return the values of all processes, by rank."""
        return self._communicator.allgather(value)

    def functions(self) -> MessageFunctions:
        """Duplicate the communicator for messages of native code, and find the functions of the library."""
        native = self._duplicates.duplicate(self)
        return message_functions(native)

    def withdraw(self, request: int) -> None:
        withdraw(request)

    def describe_error(self, code: int) -> str:
        """Return MPI's text of an error."""
        return describe_error(code)


def message_functions(communicator: object | None = None) -> MessageFunctions:
    """Return the functions of the MPI library for native code, and a communicator if there is one yet."""
    isend, irecv, test = (
        ctypes.cast(_function(name), ctypes.c_void_p).value or 0
        for name in ("MPI_Isend", "MPI_Irecv", "MPI_Test")
    )
    handle = 0 if communicator is None else handle_of(communicator)
    most = library().COMM_WORLD.Get_attr(library().TAG_UB)
    return MessageFunctions(isend, irecv, test, handle_of(library().BYTE), handle, most)


def handle_of(entity: object) -> int:
    """Return the handle by which C functions of MPI take a communicator or a type."""
    return library()._handleof(entity)


def withdraw(request: int) -> None:
    """End a receive, whether its message has arrived or not; the request is at this address."""
    status = (ctypes.c_uint64 * _STATUS_WORDS)()
    _function("MPI_Cancel")(ctypes.c_void_p(request))
    _function("MPI_Wait")(ctypes.c_void_p(request), status)


def describe_error(code: int) -> str:
    """Return MPI's text of an error."""
    return library().Get_error_string(code)


def _function(name: str) -> Any:
    symbols = ctypes.CDLL(library().__file__)  # finds what the module is linked with
    return getattr(symbols, name)


class _End:
    """The end of a process by an error: all others are ended if they do not end by themselves."""

    def __init__(self, library: Any) -> None:
        self._communicator = library.COMM_WORLD.Dup()
        self._previous = sys.excepthook
        sys.excepthook = self._report

    def _report(self, kind: Any, error: BaseException, traceback: Any) -> None:
        """Report an uncaught exception, and end."""
        self._previous(kind, error, traceback)
        self.with_others()

    def with_others(self) -> None:
        """Wait some seconds for all processes to end with an error, then abort those that do not."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        request = self._communicator.Ibarrier()
        deadline = time.monotonic() + _GRACE
        while not request.Test():
            if time.monotonic() > deadline:
                self._communicator.Abort(1)
            time.sleep(0.01)


@cache
def _connected(library: Any) -> tuple[MpiTransport, _End | None]:
    """Return all processes, and the end of this one if there are others."""
    transport = MpiTransport(library.COMM_WORLD)
    return transport, _End(library) if transport.size > 1 else None


def end_with_others() -> None:
    """Let all processes end, because this one is about to end with an error, before or after it used MPI.

    An uncaught exception does so by itself once `world` has been called: MPI would wait for the others, which
    may wait for this process.
    """
    _, end = _connected(library())
    if end is not None:
        end.with_others()


def world() -> Transport:
    """Return all processes that MPI has started.

    An uncaught exception in one of them ends all, the others after some seconds. Raises HloError by the rule
    ``mpi.missing`` without mpi4py or an MPI library, and by ``mpi.threads`` if the library does not allow
    calls from several threads at the same time.
    """
    transport, _ = _connected(library())
    return transport


def library() -> Any:
    """Return mpi4py's module, which initializes MPI; raises HloError as `world` does."""
    try:
        library: object = import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        message = (
            f"several processes need mpi4py and an MPI library ({error}); pip install 'hloom[mpi]' mpich"
        )
        raise HloError(message, rule="mpi.missing") from error
    if library.Query_thread() < library.THREAD_MULTIPLE:
        message = "MPI was not initialized for calls of several threads at once (MPI_THREAD_MULTIPLE)"
        raise HloError(message, rule="mpi.threads")
    return library


def launched() -> bool:
    """Return whether an MPI launcher started this process."""
    return any(name in os.environ for name in _LAUNCHED)
