"""Messages of native code over MPI, between processes that MPI started and TCP connects.

Python's messages use TCP, which reports lost processes and drops messages of failed runs. Each program has
its own communicator, created at its first run, and again after a failed run.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Sequence
from importlib.util import find_spec
from typing import Any, Final

from hloom.devices.transport import MessageFunctions
from hloom.runtime import mpi
from hloom.runtime.connections import Connections
from hloom.runtime.sockets import SocketTransport

NO_RANK: Final = -1


def rank_of_process() -> int:
    """Return the rank of this process in MPI; `NO_RANK` if MPI did not start it, or mpi4py is not installed.

    Raises HloError by the rules ``mpi.missing`` and ``mpi.threads``; see `hloom.runtime.mpi.library`.
    """
    if not mpi.launched() or find_spec("mpi4py") is None:
        return NO_RANK
    return mpi.library().COMM_WORLD.Get_rank()


def connects(ranks: Sequence[int]) -> bool:
    """Return whether processes of these ranks reach each other by MPI: each has a rank of its own."""
    return NO_RANK not in ranks and len(set(ranks)) == len(ranks)


class ProgramCommunicators:
    """The communicators of the programs of this process.

    MPI frees a communicator in all its processes together. Processes drop programs at different times; when
    they create a communicator they tell each other which ones they no longer use.

    Args:
        ranks: the rank in MPI of each process.
    """

    def __init__(self, ranks: Sequence[int]) -> None:
        self._ranks = list(ranks)
        self._world = mpi.library().COMM_WORLD
        self._open: dict[str, Any] = {}
        self._unused: set[str] = set()

    def create(self, name: str, program: int, processes: Sequence[int]) -> Any:
        """Return a communicator of some processes, all of which call this for the same program."""
        group = self._world.group.Incl([self._ranks[process] for process in processes])
        tag = program % self._world.Get_attr(mpi.library().TAG_UB)
        communicator = self._open[name] = self._world.Create_group(group, tag)
        return communicator

    def drop(self, name: str) -> None:
        """Declare a communicator unused in this process."""
        self._unused.add(name)

    def unused(self) -> set[str]:
        """Return the names of the communicators that this process no longer uses."""
        return set(self._unused)

    def free(self, names: Collection[str]) -> None:
        """Free communicators that no process uses."""
        for name in sorted(names):
            communicator = self._open.pop(name, None)
            self._unused.discard(name)
            if communicator is not None:
                communicator.Free()


class MpiDataTransport(SocketTransport):
    """The messages of one program: Python's over TCP, those of native code over MPI.

    Args:
        connections, program, ranks, owners: see `SocketTransport`.
        communicators: those of this process.
    """

    def __init__(
        self,
        connections: Connections,
        program: int,
        ranks: Sequence[int],
        owners: Sequence[int],
        communicators: ProgramCommunicators,
    ) -> None:
        super().__init__(connections, program, ranks, owners)
        self._communicators = communicators
        self._functions: MessageFunctions | None = None
        self._drop: weakref.finalize[Any, Any] | None = None

    def begin(self) -> int:
        """See `Transport`; create a communicator if there is none.

        Raises EvaluationError by the rule ``processes.lost``.
        """
        run = super().begin()
        if self._functions is not None and self._drop is None:
            unused = self.all_gather(self._communicators.unused())
            self._communicators.free(set[str].intersection(*unused))
            name = f"{self._program:x}/{run}"
            communicator = self._communicators.create(name, self._program, self._ranks)
            self._functions.communicator = mpi.handle_of(communicator)
            self._drop = weakref.finalize(self, self._communicators.drop, name)
            self._drop.atexit = False
        return run

    def cancel(self) -> bool:
        """See `Transport`; the next run has another communicator."""
        if self._drop is not None:
            self._drop()
            self._drop = None
        return super().cancel()

    def functions(self) -> MessageFunctions:
        if self._functions is None:
            self._functions = mpi.message_functions()
        return self._functions

    def withdraw(self, request: int) -> None:
        mpi.withdraw(request)

    def describe_error(self, code: int) -> str:
        return mpi.describe_error(code)
