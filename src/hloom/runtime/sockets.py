"""Messages of a program between processes over TCP; see `hloom.devices.transport.Transport`.

All devices run one program, so that processes need not ask each other what they compile. Processes number
their programs alike, and messages carry the numbers of program and run: messages left over from a failed run
are dropped.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

from hloom.devices.transport import Message, MessageFunctions
from hloom.errors import EvaluationError
from hloom.lifetime import keep_for_ever
from hloom.runtime.connections import LOST, Connections, Envelope, FrameKind, Receiver
from hloom.runtime.message_codec import decode, encode

_MOST_TAGS: Final = 1 << 31
_INT32, _INT64, _POINTER = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p
_FUNCTION: Final = ctypes.CFUNCTYPE(_INT32, _POINTER, _INT32, _INT64, _INT32, _INT32, _INT64, _POINTER)
"""The type of MPI_Isend and MPI_Irecv, with 64-bit handles."""
_transports: Final[dict[int, SocketTransport]] = {}
"""Transports by the handles that native code uses."""
_handles: Final = itertools.count(1)


class SocketTransport:
    """The messages of one program over TCP.

    Args:
        connections: to all processes.
        program: the number of the program.
        ranks: the processes that run it, in order; those of the messages count among these.
        owners: for each device the position of its process among them.
    """

    is_uniform = True

    def __init__(
        self, connections: Connections, program: int, ranks: Sequence[int], owners: Sequence[int]
    ) -> None:
        self._connections, self._program, self._ranks = connections, program, list(ranks)
        self._owners = list(owners)
        self.rank = self._ranks.index(connections.rank)
        self.size = len(self._ranks)
        self.host = connections.hosts[connections.rank]
        self._handle = 0
        self._gatherings = 0
        self._reported: set[tuple[int, int]] = set()

    @property
    def _others(self) -> list[int]:
        return [rank for rank in self._ranks if rank != self._connections.rank]

    def owners(self, devices: int) -> Sequence[int]:
        assert devices == len(self._owners)
        return self._owners

    def hosts(self) -> list[str]:
        return [self._connections.hosts[rank] for rank in self._ranks]

    def separate(self) -> SocketTransport:
        """Return this transport: its messages are those of one program."""
        return self

    def begin(self) -> int:
        connections = self._connections
        with connections.lock:
            run = connections.runs[self._program] = connections.runs.get(self._program, 0) + 1
            connections.forget_early(self._program)
            return run

    def cancel(self) -> bool:
        with self._connections.lock:
            self._connections.cancel(self._program)
        return True

    def send(self, rank: int, message: Message) -> None:
        payload = encode(message)
        with self._connections.lock:
            self._connections.send(self._ranks[rank], FrameKind.MESSAGE, self._program, message[0], payload)

    def receive(self) -> Message | None:
        """See `Transport`; a process that is lost before it has ended the run is one that failed."""
        connections = self._connections
        with connections.lock:
            inbox = connections.messages[self._program]
            payload = inbox.popleft() if inbox else None
        if payload is not None:
            return decode(payload)
        return self._loss()

    def _loss(self) -> Message | None:
        """Return a message about a process that is lost, once in each run."""
        connections = self._connections
        with connections.lock:
            run = connections.runs.get(self._program, 0)
            ended = connections.marks.get((self._program, run), set[int]())
            for position, rank in enumerate(self._ranks):
                loss = connections.loss(rank)
                if loss and rank not in ended and (run, rank) not in self._reported:
                    self._reported = {(r, k) for r, k in self._reported if r == run} | {(run, rank)}
                    return run, "failed", position, loss
        return None

    def barrier(self) -> Callable[[], bool]:
        connections = self._connections
        with connections.lock:
            run = connections.runs[self._program]
            for rank in self._others:
                connections.send(rank, FrameKind.BARRIER, self._program, run)
        others = set(self._others)

        def complete() -> bool:
            with connections.lock:
                return connections.marks.get((self._program, run), set[int]()) >= others

        return complete

    def all_gather(self, value: object) -> list[Any]:
        """See `Transport`. Raises EvaluationError by the rule ``processes.lost``."""
        connections, number = self._connections, self._gatherings
        self._gatherings += 1
        payload = encode(value)
        with connections.lock:
            for rank in self._others:
                connections.send(rank, FrameKind.GATHER, self._program, number, payload)
            arrived = connections.gathered[self._program, number]
            while missing := [rank for rank in self._others if rank not in arrived]:
                for rank in missing:
                    if loss := connections.loss(rank):
                        message = f"process {rank} on {connections.hosts[rank]} is lost: {loss}"
                        raise EvaluationError(message, rule="processes.lost")
                connections.lock.wait()
            del connections.gathered[self._program, number]
        return [value if rank == connections.rank else decode(arrived[rank]) for rank in self._ranks]

    def functions(self) -> MessageFunctions:
        if not self._handle:
            self._handle = next(_handles)
            _transports[self._handle] = self
        return MessageFunctions(_address(_ISEND), _address(_IRECV), 0, 0, self._handle, _MOST_TAGS)

    def withdraw(self, request: int) -> None:
        """See `Transport`; nothing to do, because `cancel` has withdrawn all receives of the run."""

    def describe_error(self, code: int) -> str:
        if code < LOST:
            return "a message has another size"
        rank = code - LOST
        with self._connections.lock:
            loss = self._connections.loss(rank)
        return f"process {rank} on {self._connections.hosts[rank]} is lost: {loss}"

    def _envelope(self, rank: int, tag: int) -> Envelope:
        run = self._connections.runs[self._program]
        return Envelope(self._ranks[rank], self._program, run, tag)

    def begin_send(self, address: int, size: int, rank: int, tag: int, request: int) -> None:
        """Send memory of native code to a process."""
        with self._connections.lock:
            self._connections.send_memory(self._envelope(rank, tag), address, size, request)

    def begin_receive(self, address: int, size: int, rank: int, tag: int, request: int) -> None:
        """Receive into memory of native code from a process."""
        with self._connections.lock:
            envelope = self._envelope(rank, tag)
            self._connections.receive_memory(envelope, Receiver(address, size, request))


def _isend(address: int, size: int, _: int, rank: int, tag: int, handle: int, request: int) -> int:
    _transports[handle].begin_send(address, size, rank, tag, request)
    return 0


def _irecv(address: int, size: int, _: int, rank: int, tag: int, handle: int, request: int) -> int:
    _transports[handle].begin_receive(address, size, rank, tag, request)
    return 0


_ISEND: Final = _FUNCTION(_isend)
_IRECV: Final = _FUNCTION(_irecv)
keep_for_ever((_ISEND, _IRECV))


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0
