"""Messages over TCP between the threads of one process: handshakes, values, collectives, losses."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import hloom
from hloom.errors import EvaluationError, HloError
from hloom.runtime import handshakes
from hloom.runtime.connections import Connections
from hloom.runtime.message_codec import decode, encode
from hloom.runtime.sockets import SocketTransport
from hloom.shape.element_type import ElementType
from tests.reducers import with_reducers

SECRET = b"s" * 32
SECONDS = 600.0
Connect = Callable[..., list[Any]]
PROGRAM = with_reducers("""
HloModule m, num_partitions=4

ENTRY e {
  x = f32[SIZE] parameter(0)
  sum = f32[SIZE] all-reduce(x), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true,
    to_apply=add
  ROOT next = f32[SIZE] collective-permute(sum), channel_id=2, source_target_pairs={{0,1},{1,2},{2,3},{3,0}}
}
""")


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Return the results of ``work`` for 0, 1, ...; an exception is the result of its thread."""
    results: list[Any] = [None] * count

    def run(number: int) -> None:
        try:
            results[number] = work(number)
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive()
    return results


@pytest.fixture(name="connected")
def connected_processes() -> Iterator[Callable[..., list[Any]]]:
    """Connect processes, and end their connections with the test."""
    every: list[Any] = []

    def connect(secrets: Sequence[bytes], seconds: float = SECONDS) -> list[Any]:
        every.extend(made := _connected(secrets, seconds))
        return made

    yield connect
    for connections in every:
        if isinstance(connections, Connections):
            connections.close()


def _connected(secrets: Sequence[bytes], seconds: float) -> list[Any]:
    """Return the connections of processes that know these secrets, or the errors."""
    listeners = [handshakes.listen("127.0.0.1:1") for _ in secrets]
    addresses = [listener.getsockname() for listener in listeners]
    assert all(host == "127.0.0.1" for host, _ in addresses)

    def work(rank: int) -> Connections:
        sockets = handshakes.connect(rank, addresses, listeners[rank], secrets[rank], seconds)
        return Connections(rank, [f"host{n}" for n in range(len(secrets))], sockets)

    return in_threads(len(secrets), work)


def executables(connections: Sequence[Connections], size: int, owners: Sequence[int]) -> list[Any]:
    module = hloom.HloModule.from_text(PROGRAM.replace("SIZE", str(size)))
    ranks = list(range(len(connections)))
    return [hloom.compile(module, processes=SocketTransport(own, size, ranks, owners)) for own in connections]


@pytest.mark.parametrize("size", [3, 50_000])
def test_devices_of_any_process_give_the_results_of_one_process(size: int, connected: Connect) -> None:
    owners = [1, 0, 1, 1]
    arguments = [np.random.default_rng(n).normal(size=size).astype(np.float32) for n in range(4)]
    alone = hloom.compile(hloom.HloModule.from_text(PROGRAM.replace("SIZE", str(size))))
    wanted = alone.run([[x] for x in arguments])
    exes = executables(connected([SECRET] * 2), size, owners)

    def run(rank: int) -> list[Any]:
        own = [[x] for x, owner in zip(arguments, owners, strict=True) if owner == rank]
        return [exes[rank].run(own) for _ in range(3)][-1]

    found = in_threads(2, run)
    assert [x.tobytes() for x in found[0]] == [wanted[1].tobytes()]
    assert [x.tobytes() for x in found[1]] == [wanted[n].tobytes() for n in (0, 2, 3)]


def test_a_run_fails_with_a_lost_process_and_runs_go_on_after_one_that_failed_to_start(
    connected: Connect,
) -> None:
    connections = connected([SECRET] * 2)
    exes = executables(connections, 4, [0, 0, 1, 1])
    x = np.ones(4, np.float32)

    def refuse(rank: int) -> Any:
        given = [[x[:3]]] * 2 if rank else [[x]] * 2
        return exes[rank].run(given)

    errors = in_threads(2, refuse)
    assert [error.rule for error in errors] == ["processes.failed", "run.argument"]
    assert [r[0][0] for r in in_threads(2, lambda rank: exes[rank].run([[x]] * 2))] == [4, 4]
    connections[1]._links[0].socket.shutdown(socket.SHUT_RDWR)
    (error,) = in_threads(1, lambda rank: exes[rank].run([[x]] * 2))
    assert isinstance(error, EvaluationError)
    assert error.rule in ("processes.failed", "processes.exchange")  # whichever notices first
    assert "process 1 on host1" in error.message
    with connections[0].lock:
        assert connections[0].has_lost


def test_a_process_that_says_farewell_is_not_lost(connected: Connect) -> None:
    connections = connected([SECRET] * 2)
    with connections[1].lock:
        connections[1].leave()
    with connections[0].lock:
        assert connections[0].lock.wait_for(lambda: connections[0].loss(1) != "", SECONDS)
        assert not connections[0].has_lost


def test_processes_gather_values_and_report_one_that_never_comes(connected: Connect) -> None:
    connections = connected([SECRET] * 3)
    transports = [SocketTransport(own, 1, [0, 1, 2], [0, 1, 2]) for own in connections]
    assert (
        in_threads(3, lambda rank: transports[rank].all_gather(("of", rank)))
        == [[("of", 0), ("of", 1), ("of", 2)]] * 3
    )
    with connections[2].lock:
        connections[2].leave()
    for transport in transports[:2]:
        with pytest.raises(EvaluationError) as caught:
            transport.all_gather(0)
        assert caught.value.rule == "processes.lost"


def test_a_process_without_the_secret_is_refused(connected: Connect) -> None:
    errors = connected([SECRET, b"other"], seconds=0.5)
    assert [error.rule for error in errors] == ["processes.connect"] * 2


def test_a_process_leaves_one_that_does_not_prove_the_secret() -> None:
    """The acceptor proves it last: an impostor can only guess what a process expects."""
    listener, own = (handshakes.listen("127.0.0.1:1") for _ in range(2))

    def impostor() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(bytes(32))
            connection.recv(1 << 10)
            connection.sendall(bytes(32))

    def process() -> None:
        handshakes.connect(1, [listener.getsockname(), own.getsockname()], own, SECRET, SECONDS)

    with listener:
        _, error = in_threads(2, lambda number: (impostor, process)[number]())
    assert isinstance(error, HloError) and error.rule == "processes.connect"
    assert "does not know the secret" in str(error)


def test_a_stranger_is_sent_away_and_the_others_connect() -> None:
    listeners = [handshakes.listen("localhost:1") for _ in range(2)]
    addresses = [listener.getsockname()[:2] for listener in listeners]
    with socket.create_connection(addresses[0]) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(100))

        def work(rank: int) -> list[int]:
            sockets = handshakes.connect(rank, addresses, listeners[rank], SECRET, SECONDS)
            for connection in sockets.values():
                connection.close()
            return list(sockets)

        assert in_threads(2, work) == [[1], [0]]


@pytest.mark.parametrize(
    "value", [None, True, -(1 << 62), "é", ((), [1, "a"], {1: (2, None)}), {("x", 1)}], ids=str
)
def test_values_survive_their_messages(value: Any) -> None:
    assert decode(encode(value)) == value


@pytest.mark.parametrize("name", ["pred", "s4", "u8", "bf16", "f8e4m3fn", "f64", "c128"])
def test_arrays_survive_their_messages(name: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(ElementType.parse(name).numpy_dtype)
    found = decode(encode((array, array[0, 0])))
    assert found[0].dtype == array.dtype
    assert found[0].tobytes() == array.tobytes()
    assert found[1].shape == ()


def test_malformed_messages_are_refused() -> None:
    data = encode((1, "text", [np.ones(3, np.float32)]))
    bad = [data[:n] for n in range(len(data))] + [data + b"N", b"(" + b"\xff" * 8, b"?", b"s" + b"\x01" * 9]
    for message in bad:
        with pytest.raises(HloError) as caught:
            decode(message)
        assert caught.value.rule == "processes.message"
    with pytest.raises(HloError, match="cannot be sent") as caught:
        encode(object())
    assert caught.value.rule == "processes.message"
