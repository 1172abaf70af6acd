"""Threads of devices whose caller is interrupted."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from hloom.devices.threads import DeviceThreads, Stopped
from hloom.ir.device import DeviceId

A, B = (0, 0), (0, 1)


def nothing() -> None:
    pass


def test_all_devices_work_and_finish() -> None:
    threads = DeviceThreads(threading.Condition())
    done: list[DeviceId] = []
    threads.run({d: lambda d=d: threads.finish(d, lambda: done.append(d)) for d in (A, B)}, lambda e: None)
    assert sorted(done) == [A, B]
    assert threads.alive == 0


def test_a_signal_that_interrupts_no_wait_is_noticed() -> None:
    """A signal delivered to another thread than the caller's does not end the caller's system call."""
    waiting = threading.Event()

    class Observed(threading.Condition):
        def wait(self, timeout: float | None = None) -> bool:
            waiting.set()
            return super().wait(timeout)

    threads = DeviceThreads(Observed())
    ends: list[str] = []

    def work() -> None:
        try:
            waiting.wait(300)
            signal.pthread_kill(threading.get_ident(), signal.SIGINT)
            deadline = time.monotonic() + 300
            while time.monotonic() < deadline:
                time.sleep(0.001)
            ends.append("deadline")
        except Stopped:
            ends.append("stopped")
        finally:
            threads.finish(A, nothing)

    errors: list[BaseException] = []
    with pytest.raises(KeyboardInterrupt):
        threads.run({A: work}, errors.append)
    assert ends == ["stopped"]
    assert [type(error) for error in errors] == [KeyboardInterrupt]


def test_a_thread_that_begins_after_the_interrupt_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    condition = threading.Condition()
    threads = DeviceThreads(condition)
    worked: list[DeviceId] = []
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def start_or_interrupt(thread: threading.Thread) -> None:
        if started:
            raise KeyboardInterrupt
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_interrupt)
    with condition, pytest.raises(KeyboardInterrupt):  # the lock holds up the first thread
        threads.run({d: lambda d=d: worked.append(d) for d in (A, B)}, lambda e: None)
    started[0].join()
    assert worked == []
    assert threads.alive == 0


def test_an_end_that_is_interrupted_is_marked_all_the_same() -> None:
    threads = DeviceThreads(threading.Condition())
    marks: list[int] = []

    def mark() -> None:
        marks.append(len(marks))
        if len(marks) == 1:
            raise Stopped

    threads.finish(A, mark)
    assert marks == [0, 1]
