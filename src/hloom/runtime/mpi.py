"""Devices in several processes, over MPI (mpi4py, with any MPI library that it finds).

::

    # mpirun -n 4 python program.py
    from hloom.runtime import mpi
    exe = hloom.compile(module, num_partitions=8, processes=mpi.world())
    results = exe.run(arguments)            # those of this process's devices: exe.devices

Devices are divided into blocks, in order: process 0 has the first ones. All processes compile the same
programs in the same order, and run them the same number of times. ``mpirun -n 4 hloom run FILE`` runs a file.
"""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from hloom.errors import HloError
from hloom.evaluate.peers import Message, MessageFunctions, Transport

_LAUNCHED: Final = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK")
"""Environment variables by which Open MPI, MPICH, Intel MPI and Slurm tell a process that they started it."""


class MpiTransport:
    """Messages over an MPI communicator; see `hloom.evaluate.peers.Transport`."""

    def __init__(self, communicator: Any) -> None:
        self._communicator = communicator
        self._sends: list[Any] = []
        self.rank: int = communicator.Get_rank()
        self.size: int = communicator.Get_size()
        self.host = socket.gethostname()

    def separate(self) -> Transport:
        """Duplicate the communicator."""
        return MpiTransport(self._communicator.Dup())

    def send(self, rank: int, message: Message) -> None:
        """Begin a send, and forget those that are complete."""
        self._sends = [request for request in self._sends if not request.test()[0]]
        self._sends.append(self._communicator.isend(message, rank))

    def receive(self) -> Message | None:
        """Return a message that has arrived, or None."""
        found = self._communicator.improbe()
        return None if found is None else found.recv()

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
        library: Any = import_module("mpi4py.MPI")
        self._native = self._communicator.Dup()
        symbols = ctypes.CDLL(library.__file__)  # finds what the module is linked with
        isend, irecv, test = (
            ctypes.cast(getattr(symbols, name), ctypes.c_void_p).value or 0
            for name in ("MPI_Isend", "MPI_Irecv", "MPI_Test")
        )
        handle: Callable[[Any], int] = library._handleof
        most = self._native.Get_attr(library.TAG_UB)
        return MessageFunctions(isend, irecv, test, handle(library.BYTE), handle(self._native), most)

    def describe_error(self, code: int) -> str:
        """Return MPI's text of an error."""
        library: Any = import_module("mpi4py.MPI")
        return library.Get_error_string(code)


def world() -> Transport:
    """Return all processes that MPI has started.

    Raises HloError by the rule ``mpi.missing`` without mpi4py or an MPI library, and by ``mpi.threads`` if
    the library does not allow calls from several threads at the same time.
    """
    try:
        library: Any = import_module("mpi4py.MPI")
    except (ImportError, RuntimeError) as error:
        message = (
            f"several processes need mpi4py and an MPI library ({error}); pip install 'hloom[mpi]' mpich"
        )
        raise HloError(message, rule="mpi.missing") from error
    if library.Query_thread() < library.THREAD_MULTIPLE:
        message = "MPI was not initialized for calls of several threads at once (MPI_THREAD_MULTIPLE)"
        raise HloError(message, rule="mpi.threads")
    return MpiTransport(library.COMM_WORLD)


def launched() -> bool:
    """Return true if an MPI launcher started this process."""
    return any(name in os.environ for name in _LAUNCHED)
