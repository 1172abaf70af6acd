"""Waiting devices, and the detection of deadlocks.

One lock protects the state of all devices of this process. If every device that has not ended waits, and none
can release another, the run fails with a DeadlockError that lists the instruction at which each device waits.
With other processes this takes a time-out.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from hloom.devices.mailboxes import Mailboxes
from hloom.devices.peers import HEARTBEAT, Peers
from hloom.devices.threads import Stopped
from hloom.errors import DeadlockError, EvaluationError
from hloom.ir.device import DeviceId
from hloom.records import dataclass

_NATIVE_POLL: Final = 0.005
"""Seconds between polls of state that native code changes."""
_HOST_POLL: Final = 0.05
"""Seconds between polls for values from the host."""


@dataclass(slots=True)
class Waiter:
    """A waiting device.

    Attributes:
        ready: returns true once the device can continue.
        describe: returns a text that names the instruction and what it waits for.
        for_host: the device waits for a value from the host.
        polls: native code may change ``ready`` without notifying the condition.
        released: the device may continue, or the run has failed.
    """

    ready: Callable[[], bool]
    describe: Callable[[], str]
    for_host: bool
    polls: bool
    released: bool = False


class Waiting:
    """The state of each device in a run (computing, waiting, ended), and the failure of the run.

    Args:
        devices: the devices of this process.
        mailboxes: receive the values from other processes.
        peers: the other processes; None if this process has all devices.

    Attributes:
        condition: notified of changes; its lock protects this object and the mailboxes.
        running: a run has begun and not ended.
        waiters: the waiting devices.
        failure: the first error of the run; None so far.
        stop_word: nonzero once the run has failed; native code polls it.
        waited: the nanoseconds that each device has waited for other devices or the host, over all runs.
        host_timeout: seconds to wait for the host when no device can continue and another thread of this
            process may still feed one. Without such a thread the run fails at once.
    """

    def __init__(self, devices: Sequence[DeviceId], mailboxes: Mailboxes, peers: Peers | None) -> None:
        self._devices = devices
        self._mailboxes = mailboxes
        self._peers = peers
        self.condition = threading.Condition()
        self.running = False
        self.host_timeout = 2.0
        self.stop_word = ctypes.c_uint64(0)
        self.waited: dict[DeviceId, int] = {}
        self._active: set[DeviceId] = set()
        self.waiters: dict[DeviceId, Waiter] = {}
        self.failure: BaseException | None = None

    def begin(self) -> None:
        """Begin a run of all devices."""
        self._active = set(self._devices)
        self.waiters = {}
        self.failure = None
        self.stop_word.value = 0
        self._mailboxes.clear()
        self.running = True

    def end(self) -> None:
        """End a run: read messages until all processes have reached a barrier, or one has failed."""
        peers = self._peers
        if peers is not None and self.failure is None:
            complete = peers.barrier()
            while self.failure is None and not complete():
                with self.condition:
                    self._take_messages(peers)
                    if peers.is_silent:
                        message = f"{peers.name(peers.rank)} has ended the run, others have not"
                        self._fail(DeadlockError(message, rule="devices.deadlock"))
                peers.rest()
        self.running = False

    def beat(self) -> None:
        """Send a heartbeat to the other processes if a device of this process is computing."""
        with self.condition:
            if self.running and self.failure is None and len(self._active) > len(self.waiters):
                assert self._peers is not None
                self._peers.publish(self._peers.others, "computes", self._peers.rank, None)

    # -- called with the lock held

    def finish(self, device: DeviceId, error: BaseException | None) -> None:
        """Record that a device has ended, with its error if it failed."""
        self._active.discard(device)
        if self._peers is not None:
            self._peers.hear()  # others may have waited for this device until now
        if error is not None:
            self._fail(error)
        self._look_for_deadlock()
        self.condition.notify_all()

    def interrupt(self, error: BaseException) -> None:
        """Fail the run with an exception of the thread that waits for it."""
        self.running = False
        self._fail(error)

    @contextmanager
    def changing(self) -> Generator[None, None, None]:
        """Hold the lock in the ``with`` statement; then release the devices that have become ready."""
        with self.condition:
            yield
            self._release()
            self.condition.notify_all()

    def wait(
        self,
        device: DeviceId,
        ready: Callable[[], bool],
        describe: Callable[[], str],
        *,
        for_host: bool = False,
        polls: bool = False,
    ) -> None:
        """Block a device until ``ready()``; see `Waiter`. Raises Stopped if the run fails."""
        if self.failure is not None:
            raise Stopped
        if ready():
            return
        start = time.monotonic_ns()
        try:
            self._wait(device, Waiter(ready, describe, for_host, polls))
        finally:
            self.waited[device] = self.waited.get(device, 0) + time.monotonic_ns() - start

    def _wait(self, device: DeviceId, waiter: Waiter) -> None:
        peers = self._peers
        if peers is not None:
            peers.hear()
        self.waiters[device] = waiter
        self._look_for_deadlock()
        deadline: float | None = None
        while not waiter.released:
            if peers is not None:
                self.condition.wait(peers.pause())
                self._take_messages(peers)
            elif waiter.for_host and self._all_wait():
                deadline = deadline or time.monotonic() + self.host_timeout
                if time.monotonic() >= deadline:
                    self._fail(self._deadlock())
                    break
                self.condition.wait(_HOST_POLL)
            else:
                deadline = None
                self.condition.wait(_NATIVE_POLL if waiter.polls else _HOST_POLL if waiter.for_host else None)
            if (waiter.polls or peers is not None) and self.failure is None:
                self._release()
                self._look_for_deadlock()
        if self.failure is not None:
            raise Stopped

    def _release(self) -> None:
        for device, waiter in list(self.waiters.items()):
            if waiter.ready():
                waiter.released = True
                del self.waiters[device]

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        if self._peers is not None:
            self._peers.fail(error)
        self.stop_word.value = 1
        for waiter in self.waiters.values():
            waiter.released = True
        self.waiters.clear()
        self.condition.notify_all()

    def _take_messages(self, peers: Peers) -> None:
        """Put values from other processes into the mailboxes; fail the run if one of them has failed."""
        for kind, key, value in peers.arrived():
            if kind == "failed":
                lines = [f"{peers.name(key)} failed: {value}"]
                if self.waiters:
                    lines += [f"{peers.name(peers.rank)}:", *_lines(self._waits())]
                self._fail(EvaluationError("\n".join(lines), rule="processes.failed"))
            elif kind != "computes":  # a heartbeat
                self._mailboxes.deliver(kind, key, value)

    def _all_wait(self) -> bool:
        return bool(self.waiters) and len(self.waiters) == len(self._active)

    def _look_for_deadlock(self) -> None:
        if self.failure is not None or not self._all_wait():
            return
        if self._peers is not None and not self._peers.is_silent:
            return
        if any(waiter.polls for waiter in self.waiters.values()):
            self._release()
            self.condition.notify_all()
        if self._all_wait():
            hopeful = any(waiter.for_host for waiter in self.waiters.values()) and self._others_run()
            if not hopeful:
                self._fail(self._deadlock())

    def _others_run(self) -> bool:
        """Return true if a thread exists that may feed a device: neither a device thread nor the caller."""
        busy = len(self._devices) + 1 if len(self._devices) > 1 else 1
        return self.host_timeout > 0 and thread_count() > busy

    def _waits(self) -> dict[DeviceId, str]:
        return {device: waiter.describe() for device, waiter in self.waiters.items()}

    def _deadlock(self) -> DeadlockError:
        error = deadlock(self._waits(), [device for device in self._devices if device not in self._active])
        if self._peers is not None:
            where = f"{self._peers.name(self._peers.rank)} has heard nothing for {self._peers.timeout:g} s"
            error.message = f"{where}; {error.message}"
        return error


def deadlock(waits: Mapping[DeviceId, str], finished: Collection[DeviceId]) -> DeadlockError:
    """Return the error for a deadlock.

    Args:
        waits: by waiting device, the instruction and what it waits for.
        finished: the devices that have ended.
    """
    lines = [
        "the devices would wait for ever:",
        *_lines(waits),
        *(f"  {device_name(device)} has finished" for device in finished),
    ]
    return DeadlockError("\n".join(lines), rule="devices.deadlock")


def _lines(waits: Mapping[DeviceId, str]) -> list[str]:
    """Return a line for each waiting device, in order."""
    return [f"  {device_name(device)} waits in {what}" for device, what in sorted(waits.items())]


def device_name(device: DeviceId) -> str:
    """Return ``device (replica R, partition P)``, for error messages."""
    return f"device (replica {device[0]}, partition {device[1]})"


def thread_count() -> int:
    """Return the number of Python threads, without the heartbeat."""
    return sum(thread.name != HEARTBEAT for thread in threading.enumerate())
