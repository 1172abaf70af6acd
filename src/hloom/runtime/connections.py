"""TCP connections between all processes, served by one thread.

A frame is a header of fixed size and a payload. Payloads of native code are received into its memory, and
sent from it if they are large. A process whose connection ends is lost.
"""

from __future__ import annotations

import ctypes
import selectors
import socket
import struct
import threading
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from hloom.errors import plural


class FrameKind(IntEnum):
    """Kinds of frames: encoded value, bytes of native code, arrival at a barrier, value to gather, end."""

    MESSAGE = 0
    DATA = 1
    BARRIER = 2
    GATHER = 3
    END = 4


COMPLETE, MISMATCH, LOST = 1, 2, 3
"""States of a request word: 0 while it is pending, LOST plus the rank of a lost process."""
MOST_BYTES: Final = (1 << 30) + 64
"""Largest payload."""
_HEADER: Final = struct.Struct("<BQIIQ")
"""Kind, program, run, tag, bytes of the payload."""
_COPIED_BYTES: Final = 1 << 16
"""Size up to which payloads are copied behind their header and sent with it."""
_READS: Final = 16
"""Consecutive reads of one connection, at most."""
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 4), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 4))
"""A machine that does not answer for 8 s is lost; the kernel answers for stopped processes."""


class Envelope(NamedTuple):
    """Key of a payload of native code: the other process, program, run and tag."""

    rank: int
    program: int
    run: int
    tag: int


class Receiver(NamedTuple):
    """Memory for a payload, and the address of its request word."""

    address: int
    size: int
    request: int


class _Incoming:
    """A payload being received, into the memory of a receiver or, before one is posted, into its own."""

    def __init__(self, kind: int, envelope: Envelope, size: int, receiver: Receiver | None) -> None:
        self.kind, self.envelope, self.size, self.filled = kind, envelope, size, 0
        self.receiver = receiver
        self.own: bytearray | None = None
        if receiver is None:
            self.release()
        else:
            self.view = _memory(receiver.address, size)

    def release(self) -> None:
        """Switch to own memory, because the receiver's must not be used."""
        if self.own is None:
            self.own = bytearray(self.size)
            self.view = memoryview(self.own)
        self.receiver = None


class _Outgoing:
    """Bytes to send, with the address of a request word, or 0."""

    def __init__(self, program: int, view: memoryview, request: int = 0) -> None:
        self.program, self.view, self.request = program, view, request


class _Link:
    """The connection to one process."""

    def __init__(self, rank: int, connection: socket.socket) -> None:
        self.rank, self.socket = rank, connection
        self.out: deque[_Outgoing] = deque()
        self.header = bytearray()
        self.incoming: _Incoming | None = None
        self.loss = ""
        self.has_left = False


class Connections:
    """The connections of this process.

    Args:
        rank: the number of this process.
        hosts: the names of the machines of all processes.
        sockets: a connected socket for each other process.

    Attributes:
        lock: guards all state; notified when a frame for Python arrives or a process is lost.
        runs: number of the current run of each program.
        messages: received encoded values, by program.
        gathered: encoded values to gather, by program and number, then by rank.
        marks: ranks that have reached the barrier of a run, by program and run.
        has_lost: whether a connection ended without an END frame.
    """

    def __init__(self, rank: int, hosts: Sequence[str], sockets: Mapping[int, socket.socket]) -> None:
        self.rank, self.hosts = rank, list(hosts)
        self.lock = threading.Condition()
        self.has_lost = False
        self.runs: dict[int, int] = {}
        self.messages: dict[int, deque[bytearray]] = defaultdict(deque)
        self.gathered: dict[tuple[int, int], dict[int, bytearray]] = defaultdict(dict)
        self.marks: dict[tuple[int, int], set[int]] = defaultdict(set)
        self._posted: dict[Envelope, deque[Receiver]] = defaultdict(deque)
        self._early: dict[Envelope, deque[_Incoming]] = defaultdict(deque)
        self._selector = selectors.DefaultSelector()
        self._links: dict[int, _Link] = {}
        for other, connection in sockets.items():
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, value in _KEEPALIVE:
                connection.setsockopt(socket.IPPROTO_TCP, option, value)
            link = self._links[other] = _Link(other, connection)
            self._selector.register(connection, selectors.EVENT_READ, link)
        self._thread = threading.Thread(target=self._serve, name="hloom connections", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Close all connections; later messages report the other processes as lost."""
        with self.lock:
            for link in self._links.values():
                if not link.loss:
                    link.has_left = True
                    link.socket.shutdown(socket.SHUT_RDWR)  # the thread reads its end
        self._thread.join()

    def loss(self, rank: int) -> str:
        """Return why a process is lost, or the empty string."""
        return self._links[rank].loss if rank in self._links else ""

    # -- frames; callers hold the lock in all of these

    def send(self, rank: int, kind: int, program: int, number: int, payload: bytes = b"") -> None:
        """Send a frame with a copy of its payload."""
        header = _HEADER.pack(kind, program, number, 0, len(payload))
        self._send(self._links[rank], [_Outgoing(program, memoryview(header + payload))])

    def leave(self) -> None:
        """Announce the end of this process."""
        for rank in self._links:
            self.send(rank, FrameKind.END, 0, 0)

    def send_memory(self, envelope: Envelope, address: int, size: int, request: int) -> None:
        """Send memory of native code; complete the request once the memory may be reused."""
        link = self._links[envelope.rank]
        if link.loss:
            _set(request, LOST + envelope.rank)
            return
        _set(request, 0)
        header = _HEADER.pack(FrameKind.DATA, envelope.program, envelope.run, envelope.tag, size)
        memory = _memory(address, size)
        if size <= _COPIED_BYTES:
            self._send(link, [_Outgoing(envelope.program, memoryview(header + bytes(memory)))])
            _set(request, COMPLETE)
            return
        parts = [
            _Outgoing(envelope.program, memoryview(header)),
            _Outgoing(envelope.program, memory, request),
        ]
        self._send(link, parts)

    def receive_memory(self, envelope: Envelope, receiver: Receiver) -> None:
        """Receive into memory of native code."""
        _set(receiver.request, 0)
        early = self._early.get(envelope)
        if early:
            incoming = early.popleft()
            if not early:
                del self._early[envelope]
            incoming.receiver = receiver
            if incoming.filled == incoming.size:
                _deliver(incoming)
        elif self._links[envelope.rank].loss:
            _set(receiver.request, LOST + envelope.rank)
        else:
            self._posted[envelope].append(receiver)

    def cancel(self, program: int) -> None:
        """Stop using the memory of a program whose run has failed."""
        for envelope in [envelope for envelope in self._posted if envelope.program == program]:
            del self._posted[envelope]
        for link in self._links.values():
            if link.incoming is not None and link.incoming.envelope.program == program:
                link.incoming.release()
            for part in link.out:
                if part.program == program and part.request:
                    part.view, part.request = memoryview(bytes(part.view)), 0

    def forget_early(self, program: int) -> None:
        """Drop frames of runs before the current one."""
        run = self.runs[program]
        for envelope in [p for p in self._early if p.program == program and p.run < run]:
            del self._early[envelope]
        for key in [key for key in self.marks if key[0] == program and key[1] < run]:
            del self.marks[key]

    def _send(self, link: _Link, parts: Sequence[_Outgoing]) -> None:
        if link.loss:
            return
        link.out.extend(parts)
        if len(link.out) == len(parts):
            self._flush(link)

    def _flush(self, link: _Link) -> None:
        """Send as much as the connection accepts."""
        while link.out:
            part = link.out[0]
            try:
                part.view = part.view[link.socket.send(part.view) :]
            except BlockingIOError:
                break
            except OSError as error:
                self._lose(link, str(error))
                return
            if not part.view:
                link.out.popleft()
                if part.request:
                    _set(part.request, COMPLETE)
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if link.out else 0)
        self._selector.modify(link.socket, events, link)

    # -- the thread

    def _serve(self) -> None:
        while self._selector.get_map():
            for key, events in self._selector.select():
                link: _Link = key.data
                with self.lock:
                    if events & selectors.EVENT_READ and not link.loss:
                        self._read(link)
                    if events & selectors.EVENT_WRITE and not link.loss:
                        self._flush(link)
        self._selector.close()

    def _read(self, link: _Link) -> None:
        try:
            for _ in range(_READS):
                if not self._read_some(link):
                    return
        except BlockingIOError:
            pass
        except OSError as error:
            self._lose(link, str(error))

    def _read_some(self, link: _Link) -> bool:
        """Read a part of a header or a payload; return false at the end of the connection."""
        incoming = link.incoming
        if incoming is None:
            part = link.socket.recv(_HEADER.size - len(link.header))
            link.header += part
            if part and len(link.header) == _HEADER.size:
                self._open(link)
            count = len(part)
        else:
            count = link.socket.recv_into(incoming.view[incoming.filled :])
            incoming.filled += count
        if not count:
            self._lose(link, "its connection has ended")
            return False
        if link.incoming is not None and link.incoming.filled == link.incoming.size:
            incoming, link.incoming = link.incoming, None
            if incoming.kind == FrameKind.END:
                link.has_left = True
                self._lose(link, "it has ended")
            else:
                self._take(incoming)
        return not link.loss

    def _open(self, link: _Link) -> None:
        """Decode a header, and choose memory for the payload."""
        kind, program, run, tag, size = _HEADER.unpack(link.header)
        link.header.clear()
        if kind > max(FrameKind) or size > MOST_BYTES:
            self._lose(link, f"it sends a frame of the kind {kind} with {plural(size, 'byte')}")
            return
        envelope = Envelope(link.rank, program, run, tag)
        receiver = None
        posted = self._posted.get(envelope) if kind == FrameKind.DATA else None
        if posted:
            receiver = posted.popleft()
            if not posted:
                del self._posted[envelope]
            if receiver.size != size:
                _set(receiver.request, MISMATCH)
                receiver = None
        link.incoming = _Incoming(kind, envelope, size, receiver)
        if kind == FrameKind.DATA and receiver is None and run >= self.runs.get(program, 0):
            self._early[envelope].append(link.incoming)

    def _take(self, incoming: _Incoming) -> None:
        """Deliver a complete frame."""
        envelope = incoming.envelope
        if incoming.kind == FrameKind.DATA:
            _deliver(incoming)
            return
        assert incoming.own is not None
        match incoming.kind:
            case FrameKind.MESSAGE:
                self.messages[envelope.program].append(incoming.own)
            case FrameKind.BARRIER:
                self.marks[envelope.program, envelope.run].add(envelope.rank)
            case _:
                self.gathered[envelope.program, envelope.run][envelope.rank] = incoming.own
        self.lock.notify_all()

    def _lose(self, link: _Link, reason: str) -> None:
        """Mark a process as lost, and fail its requests."""
        link.loss = reason
        self.has_lost |= not link.has_left
        self._selector.unregister(link.socket)
        link.socket.close()
        for part in link.out:
            if part.request:
                _set(part.request, LOST + link.rank)
        link.out.clear()
        waiting = [p for p in self._posted if p.rank == link.rank]
        for receiver in (r for envelope in waiting for r in self._posted.pop(envelope)):
            _set(receiver.request, LOST + link.rank)
        incoming = link.incoming
        if incoming is not None and incoming.receiver is not None:
            _set(incoming.receiver.request, LOST + link.rank)
        link.incoming = None
        self.lock.notify_all()


def _deliver(incoming: _Incoming) -> None:
    """Complete the request of a payload, if a receiver is posted."""
    receiver = incoming.receiver
    if receiver is None:
        return
    if receiver.size != incoming.size:
        _set(receiver.request, MISMATCH)
        return
    if incoming.own is not None:
        _memory(receiver.address, incoming.size)[:] = incoming.own
    _set(receiver.request, COMPLETE)


def _memory(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


def _set(request: int, state: int) -> None:
    ctypes.c_int64.from_address(request).value = state
