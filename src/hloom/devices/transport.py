"""Transports: what carries the messages between the processes of a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from hloom.errors import HloError

Message: TypeAlias = "tuple[int, str, Any, Any]"
"""The number of the run, the kind, the key within the kind, and the value."""


@dataclass(slots=True)
class MessageFunctions:
    """C functions by which native code sends and receives, as MPI defines them, and what they take.

    Attributes:
        isend, irecv, test: addresses of MPI_Isend, MPI_Irecv and MPI_Test; any thread may call them. A
            ``test`` of 0 is that of requests which are words that hold their status.
        byte, communicator: handles of MPI_BYTE and of a communicator for these messages alone, which may be
            another one in each run.
        most_tags: tags are below this number.
    """

    isend: int
    irecv: int
    test: int
    byte: int
    communicator: int
    most_tags: int


class Transport(Protocol):
    """Messages between processes, in order between each pair; calls are serialized by the caller.

    Attributes:
        rank: the number of this process.
        size: the number of processes.
        host: the name of this process's machine.
        is_uniform: all devices run the same program, as each process knows without asking; a process that is
            lost is reported by a message, so that no time-out is needed.
    """

    rank: int
    size: int
    host: str
    is_uniform: bool

    def owners(self, devices: int) -> Sequence[int]:
        """Return the rank of each device of a program, replica-major."""
        ...

    def hosts(self) -> list[str]:
        """Return the names of the machines of all processes, by rank; all processes call this."""
        ...

    def separate(self) -> Transport:
        """Return a transport with messages of its own; all processes call this in the same order."""
        ...

    def begin(self) -> int:
        """Begin a run, to which the messages of native code belong; return its number, from 1 on."""
        ...

    def cancel(self) -> bool:
        """Give up the messages of a failed run; return true if no later run will see them."""
        ...

    def send(self, rank: int, message: Message) -> None:
        """Send a message without waiting for its receiver."""
        ...

    def receive(self) -> Message | None:
        """Return a message that has arrived, or None."""
        ...

    def barrier(self) -> Callable[[], bool]:
        """Begin a barrier; the returned function tells whether all processes have begun it."""
        ...

    def all_gather(self, value: Any) -> list[Any]:
        """Return the values of all processes, by rank."""
        ...

    def functions(self) -> MessageFunctions | None:
        """Return functions for native code; None if the transport has none. All processes call this."""
        ...

    def withdraw(self, request: int) -> None:
        """Let a receive of native code that has failed no longer write to its memory.

        Args:
            request: the address of the receive's request.
        """
        ...

    def describe_error(self, code: int) -> str:
        """Return the text of an error that one of these functions returned."""
        ...


def owner_of(number: int, devices: int, processes: int) -> int:
    """Return the rank that has a device; devices, replica-major, are divided into blocks of equal size ±1."""
    return number * processes // devices


def require_same_program(transport: Transport, fingerprint: str) -> None:
    """Raise HloError by the rule ``processes.same-program`` unless all processes compile the same program."""
    prints = transport.all_gather((fingerprint, transport.host))
    differing = [f"{rank} on {host}" for rank, (print_, host) in enumerate(prints) if print_ != prints[0][0]]
    if differing:
        message = f"processes compile other programs than process 0: {', '.join(differing)}"
        raise HloError(message, rule="processes.same-program")
