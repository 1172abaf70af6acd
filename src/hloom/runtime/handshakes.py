"""Connection setup between processes, with mutual authentication by a common secret.

A process listens on the network interface through which it reaches the coordinator, on one machine the
loopback. Both sides of a connection prove knowledge of the secret before either reads anything else.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Final

from hloom.errors import HloError

_NONCE_BYTES: Final = 32
_RANK_BYTES: Final = 4
_PROOF_BYTES: Final = hashlib.sha256().digest_size
_PATIENCE: Final = 10.0
"""Seconds for a handshake; then the connection is dropped."""

Address = tuple[str, int]


def listen(coordinator: str) -> socket.socket:
    """Return a listening socket on the interface through which this process reaches ``host:port``."""
    host, _, port = coordinator.rpartition(":")
    family, kind, protocol, _, target = socket.getaddrinfo(
        host.strip("[]") or "localhost", int(port), type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(target)  # sends nothing
        interface = probe.getsockname()[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind((interface, 0))
    listener.listen(128)
    return listener


def connect(
    rank: int, addresses: Sequence[Address], listener: socket.socket, secret: bytes, seconds: float
) -> Mapping[int, socket.socket]:
    """Return connections to all other processes: connect to those of lower rank, accept the others.

    Raises HloError by the rule ``processes.connect`` if that takes longer than ``seconds``.
    """
    connections: dict[int, socket.socket] = {}
    try:
        with listener:
            for other in range(rank):
                connections[other] = _connected(rank, other, addresses[other], secret)
            _accept(rank, len(addresses), listener, secret, seconds, connections)
    except BaseException:
        for connection in connections.values():
            connection.close()
        raise
    return connections


def _accept(
    rank: int,
    count: int,
    listener: socket.socket,
    secret: bytes,
    seconds: float,
    connections: dict[int, socket.socket],
) -> None:
    """Add the connections of the processes of higher rank; raises HloError."""
    deadline = time.monotonic() + seconds
    while missing := [n for n in range(rank + 1, count) if n not in connections]:
        listener.settimeout(max(deadline - time.monotonic(), 1e-3))
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            message = f"processes {missing} have not connected to process {rank} for {seconds:g} s"
            raise HloError(message, rule="processes.connect") from None
        other = _accepted(connection, secret)
        if other in missing:
            connections[other] = connection
        else:
            connection.close()


def _connected(rank: int, other: int, address: Address, secret: bytes) -> socket.socket:
    """Connect to a process and prove the secret to each other; raises HloError."""
    try:
        connection = socket.create_connection(address, _PATIENCE)
    except OSError as error:
        raise _not_connected(rank, other, address, error) from error
    try:
        nonce, name = secrets.token_bytes(_NONCE_BYTES), rank.to_bytes(_RANK_BYTES, "little")
        challenge = _read(connection, _NONCE_BYTES)
        proof = _proof(secret, b"connects", challenge, nonce, name)
        connection.sendall(nonce + name + proof)
        if not hmac.compare_digest(
            _read(connection, _PROOF_BYTES), _proof(secret, b"accepts", challenge, nonce, name)
        ):
            raise ConnectionError("it does not know the secret of this program")
    except OSError as error:
        connection.close()
        raise _not_connected(rank, other, address, error) from error
    return connection


def _not_connected(rank: int, other: int, address: Address, error: OSError) -> HloError:
    message = f"process {rank} cannot connect to process {other} at {address}: {error}"
    return HloError(message, rule="processes.connect")


def _accepted(connection: socket.socket, secret: bytes) -> int:
    """Return the rank of a process that connects, -1 if it does not prove that it knows the secret."""
    connection.settimeout(_PATIENCE)
    challenge = secrets.token_bytes(_NONCE_BYTES)
    try:
        connection.sendall(challenge)
        nonce, name = _read(connection, _NONCE_BYTES), _read(connection, _RANK_BYTES)
        proof = _read(connection, _PROOF_BYTES)
        if not hmac.compare_digest(proof, _proof(secret, b"connects", challenge, nonce, name)):
            return -1
        connection.sendall(_proof(secret, b"accepts", challenge, nonce, name))
    except OSError:
        return -1
    return int.from_bytes(name, "little")


def _proof(secret: bytes, *parts: bytes) -> bytes:
    return hmac.digest(secret, b"".join(parts), "sha256")


def _read(connection: socket.socket, size: int) -> bytes:
    """Read bytes; raises OSError if the connection ends or says nothing for too long."""
    data = b""
    deadline = time.monotonic() + _PATIENCE
    while len(data) < size:
        connection.settimeout(max(deadline - time.monotonic(), 1e-3))
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the connection ended")
        data += part
    return data
