"""The interface of transports, which carry messages between the processes of a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from hloom.errors import HloError
from hloom.records import dataclass

Message: TypeAlias = "tuple[int, str, Any, Any]"
"""(run, kind, key, value); the key identifies the value among those of its kind."""


@dataclass(slots=True)
class MessageFunctions:
    """C functions with MPI's signatures by which native code sends and receives.

    Attributes:
        isend, irecv, test: addresses of MPI_Isend, MPI_Irecv and MPI_Test, callable from any thread. If
            ``test`` is 0, a request is a word that holds its status.
        byte, communicator: handles of MPI_BYTE and of a communicator reserved for these messages; it may
            change from run to run.
        most_tags: exclusive upper bound of tags.
    """

    isend: int
    irecv: int
    test: int
    byte: int
    communicator: int
    most_tags: int


class Transport(Protocol):
    """Ordered messages between each pair of processes; callers serialize calls.

    Attributes:
        rank: the number of this process.
        size: the number of processes.
        host: the name of this process's machine.
        is_uniform: every process is known to run this program on all devices, and lost processes are
            reported by messages, so that no time-out is needed.
    """

    rank: int
    size: int
    host: str
    is_uniform: bool

    def owners(self, devices: int) -> Sequence[int]:
        """Return the rank of the process that owns each device of a program, replica-major."""
        ...

    def hosts(self) -> list[str]:
        """Return the machine of each process, by rank; collective."""
        ...

    def separate(self) -> Transport:
        """Return a transport with separate messages; collective, in the same order in all processes."""
        ...

    def begin(self) -> int:
        """Begin a run; return its number, from 1. Messages of native code belong to the current run."""
        ...

    def cancel(self) -> bool:
        """Discard the messages of a failed run; return true if none can reach a later run."""
        ...

    def send(self, rank: int, message: Message) -> None:
        """Send a message; return without waiting for the receiver."""
        ...

    def receive(self) -> Message | None:
        """Return the next message that has arrived; None if there is none."""
        ...

    def barrier(self) -> Callable[[], bool]:
        """Begin a barrier; return a function that is true once all processes have begun it."""
        ...

    def all_gather(self, value: object) -> list[Any]:
        """Return the values of all processes, by rank; collective."""
        ...

    def functions(self) -> MessageFunctions | None:
        """Return the functions for native code, None if there are none; collective."""
        ...

    def withdraw(self, request: int) -> None:
        """Cancel a failed receive of native code, so that it no longer writes to its buffer.

        Args:
            request: the address of the receive's request.
        """
        ...

    def describe_error(self, code: int) -> str:
        """Return the text of an error code that a function of `MessageFunctions` returned."""
        ...


def owner_of(number: int, devices: int, processes: int) -> int:
    """Return the rank that owns a device, if the devices are divided into blocks of equal size ±1 by rank."""
    return number * processes // devices


def require_same_program(transport: Transport, fingerprint: str) -> None:
    """Raise HloError by the rule ``processes.same-program`` unless all fingerprints agree; collective."""
    prints = transport.all_gather((fingerprint, transport.host))
    differing = [f"{rank} on {host}" for rank, (print_, host) in enumerate(prints) if print_ != prints[0][0]]
    if differing:
        message = f"processes compile other programs than process 0: {', '.join(differing)}"
        raise HloError(message, rule="processes.same-program")
