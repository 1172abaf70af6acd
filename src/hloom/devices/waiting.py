"""Waiting of the devices of a run: their release, and the end of a run in which none can go on.

All waiting uses one lock, so that the state of every device of this process is known. If all devices that
have not ended wait, and none can be released by another, the run ends with a DeadlockError that lists the
instruction at which each one waits; if there are other processes, after a time-out.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from hloom.devices.mailboxes import Mailboxes
from hloom.devices.peers import HEARTBEAT, Peers
from hloom.devices.threads import Stopped
from hloom.errors import DeadlockError, EvaluationError
from hloom.ir.device import DeviceId

_NATIVE_POLL: Final = 0.005
"""Seconds between polls of the state of native code."""
_HOST_POLL: Final = 0.05
"""Seconds between looks for values from the host."""


@dataclass(slots=True)
class Waiter:
    """A waiting device.

    Attributes:
        ready: tells whether it can go on.
        describe: returns the instruction, and whom it waits for.
        for_host: it waits for a value from the host.
        polls: native code may change ``ready`` without a notification.
        released: it need not wait any more.
    """

    ready: Callable[[], bool]
    describe: Callable[[], str]
    for_host: bool
    polls: bool
    released: bool = False


class Waiting:
    """Which devices of a run compute, wait or have ended, and the failure of the run.

    Args:
        devices: those of this process.
        mailboxes: where values from other processes are put.
        peers: the other processes; None if this one has all devices.

    Attributes:
        condition: its lock guards the state of the run and the mailboxes; notified of changes.
        running: a run has begun and not ended.
        waiters: the waiting devices.
        failure: the error of the first device that failed.
        stop_word: nonzero once a device has failed; native code polls it.
        waited: nanoseconds that each device has waited here for others or the host, in all runs.
        host_timeout: seconds for which a device waits for the host if no device can continue and another
            thread of this process could still feed it. Without another thread it does not wait.
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
        """End a run when all processes have ended it, so that none waits for a message that none takes."""
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
        """Tell other processes if a device computes."""
        with self.condition:
            if self.running and self.failure is None and len(self._active) > len(self.waiters):
                assert self._peers is not None
                self._peers.publish(self._peers.others, "computes", self._peers.rank, None)

    # -- the lock is held in all of these

    def finish(self, device: DeviceId, error: BaseException | None) -> None:
        """End the work of a device, with an error if it failed."""
        self._active.discard(device)
        if self._peers is not None:
            self._peers.hear()  # other processes can go on only since this device's last message
        if error is not None:
            self._fail(error)
        self._look_for_deadlock()
        self.condition.notify_all()

    def interrupt(self, error: BaseException) -> None:
        """End the run by an exception of the thread that waits for it."""
        self.running = False
        self._fail(error)

    @contextmanager
    def changing(self) -> Generator[None, None, None]:
        """Take the lock to change the state, then release the devices that waited for the change."""
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
        """Wait until ``ready()``; raises Stopped if that is impossible, or if another device has failed.

        The arguments are those of a `Waiter`.
        """
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
        """Store the values of other processes; fail if one of them has failed."""
        for kind, key, value in peers.arrived():
            if kind == "failed":
                lines = [f"{peers.name(key)} failed: {value}"]
                if self.waiters:
                    lines += [f"{peers.name(peers.rank)}:", *_lines(self._waits())]
                self._fail(EvaluationError("\n".join(lines), rule="processes.failed"))
            elif kind != "computes":  # which only shows that the process lives
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
        """Return whether a thread exists that neither runs a device nor started this run: it may feed one."""
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
    """Return the error for devices of which each waits in an instruction, or has finished."""
    lines = [
        "the devices would wait for ever:",
        *_lines(waits),
        *(f"  {device_name(device)} has finished" for device in finished),
    ]
    return DeadlockError("\n".join(lines), rule="devices.deadlock")


def _lines(waits: Mapping[DeviceId, str]) -> list[str]:
    """Return a line for each device that waits: in which instruction, for whom."""
    return [f"  {device_name(device)} waits in {what}" for device, what in sorted(waits.items())]


def device_name(device: DeviceId) -> str:
    """Return the name of a device in messages."""
    return f"device (replica {device[0]}, partition {device[1]})"


def thread_count() -> int:
    """Return the number of threads that may do something for a program."""
    return sum(thread.name != HEARTBEAT for thread in threading.enumerate())
