"""Processes simulated by threads: a transport without MPI, to test what devices of several processes do."""

from __future__ import annotations

import copy
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from hloom.devices.transport import Message, owner_of

SECONDS = 600.0
"""After which a process counts as one that hangs."""


class Group:
    """State that the threads share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.inboxes: list[queue.SimpleQueue[Message]] = [queue.SimpleQueue() for _ in range(size)]
        self.barrier = threading.Barrier(size)
        self.values: list[Any] = [None] * size
        self.arrivals = [0] * size
        self.separate: Group | None = None


class ThreadsTransport:
    """A transport between threads; see `hloom.devices.transport.Transport`."""

    def __init__(self, group: Group, rank: int) -> None:
        self.group, self.rank, self.size, self.host = group, rank, group.size, f"host{rank}"
        self.runs = 0

    is_uniform = False

    def owners(self, devices: int) -> Sequence[int]:
        return [owner_of(number, devices, self.size) for number in range(devices)]

    def hosts(self) -> list[str]:
        return self.all_gather(self.host)

    def begin(self) -> int:
        self.runs += 1
        return self.runs

    def cancel(self) -> bool:
        return False

    def separate(self) -> ThreadsTransport:
        if self.group.barrier.wait(SECONDS) == 0:
            self.group.separate = Group(self.size)
        self.group.barrier.wait(SECONDS)
        assert self.group.separate is not None
        return ThreadsTransport(self.group.separate, self.rank)

    def send(self, rank: int, message: Message) -> None:
        self.group.inboxes[rank].put(copy.deepcopy(message))

    def receive(self) -> Message | None:
        try:
            return self.group.inboxes[self.rank].get_nowait()
        except queue.Empty:
            return None

    def barrier(self) -> Callable[[], bool]:
        self.group.arrivals[self.rank] += 1
        number = self.group.arrivals[self.rank]
        return lambda: min(self.group.arrivals) >= number

    def withdraw(self, request: int) -> None:
        raise AssertionError("native code has no functions of this transport")

    def all_gather(self, value: Any) -> list[Any]:
        self.group.values[self.rank] = value
        self.group.barrier.wait(SECONDS)
        found = list(self.group.values)
        self.group.barrier.wait(SECONDS)
        return found

    def functions(self) -> None:
        return None

    def describe_error(self, code: int) -> str:
        raise NotImplementedError


def in_processes(size: int, work: Callable[[ThreadsTransport], Any]) -> Sequence[Any]:
    """Return the results of ``work`` by rank; an exception is the result of the process that raised it."""
    group = Group(size)
    results: list[Any] = [None] * size

    def run(rank: int) -> None:
        try:
            results[rank] = work(ThreadsTransport(group, rank))
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
        assert not thread.is_alive(), "a process hangs"
    return results
