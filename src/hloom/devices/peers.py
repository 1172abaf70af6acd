"""The other processes of a program: which devices they own, and the messages exchanged during a run.

Every process runs the program on its own devices. A contribution to a rendezvous is sent once to each process
with another participant; each participant computes its result from all contributions in group order, so that
results are bitwise equal however devices are divided among processes. Messages carry the number of their run;
messages of a later run are kept until it begins in this process.
"""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

from hloom.devices.transport import Message, Transport
from hloom.errors import EvaluationError
from hloom.ir.device import DeviceId

_EAGER_POLLS: Final = 200
"""Number of polls without a pause after a message; latency is worth a busy core."""
_LONGEST_PAUSE: Final = 2e-3
"""Maximum pause between polls, in seconds."""
HEARTBEAT: Final = "hloom heartbeat"
"""Name of the thread that tells other processes that this one is computing."""
_HEARTBEAT_PERIOD: Final = 0.25
"""Seconds between checks which programs owe a heartbeat."""


class Peers:
    """The other processes of a program.

    Args:
        transport: carries the messages.
        devices: all devices of the program, replica-major.

    Attributes:
        transport: the transport of this program's messages.
        rank: the number of this process.
        owners: the rank of the process that owns each device.
        hosts: the machine of each process, by rank.
        timeout: seconds without a message after which waiting devices fail. Processes with computing devices
            send heartbeats. Only time in which this process polls counts, so that a process that was stopped
            reads pending messages first.
        broken: a run has failed and its messages may still arrive; no other run may start.
    """

    def __init__(self, transport: Transport, devices: Sequence[DeviceId]) -> None:
        self.transport = transport.separate()
        self.rank = transport.rank
        self.owners = dict(zip(devices, transport.owners(len(devices)), strict=True))
        self.hosts = transport.hosts()
        self.timeout = math.inf if transport.is_uniform else 60.0
        self.broken = False
        self._run = 0
        self._failed = -1
        self._early: dict[int, list[Message]] = {}
        self._silence = 0.0
        self._polled = time.monotonic()
        self._polls = 0
        self._beat: weakref.WeakMethod[Callable[[], None]] | None = None
        self._beaten = 0.0

    @property
    def others(self) -> list[int]:
        """The ranks of the other processes."""
        return [rank for rank in range(len(self.hosts)) if rank != self.rank]

    def name(self, rank: int) -> str:
        """Return ``process RANK on HOST``, for error messages."""
        return f"process {rank} on {self.hosts[rank]}"

    def ranks_of(self, devices: Collection[DeviceId]) -> list[int]:
        """Return the ranks of the other processes that own any of the devices, ascending."""
        return sorted({self.owners[device] for device in devices} - {self.rank})

    # -- a run

    def begin(self) -> None:
        """Begin a run; raises EvaluationError by the rule ``processes.broken`` after a failed run."""
        if self.broken:
            message = "an earlier run failed in one of the processes; compile the program once more in all"
            raise EvaluationError(message, rule="processes.broken")
        self._run = self.transport.begin()
        self._early = {run: messages for run, messages in self._early.items() if run >= self._run}
        self.hear()

    def publish(self, ranks: Collection[int], kind: str, key: object, value: object) -> None:
        """Send a value of this run to the processes of the given ranks; see `Mailboxes.deliver`."""
        for rank in ranks:
            self.transport.send(rank, (self._run, kind, key, value))

    def fail(self, error: BaseException) -> None:
        """Tell all processes that this one has failed, once per run; they then fail too."""
        if not self.broken and self._failed != self._run:
            self._failed = self._run
            self.publish(self.others, "failed", self.rank, f"{type(error).__name__}: {error}")
            self.broken = not self.transport.cancel()

    def abandon(self, error: BaseException) -> None:
        """Make the next run fail in the other processes, because this process cannot start it."""
        if self.transport.is_uniform:
            self._run = self.transport.begin()
        self.fail(error)

    def arrived(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield (kind, key, value) of each message of this run that has arrived; keep those of later runs."""
        for _, kind, key, value in self._early.pop(self._run, ()):
            yield kind, key, value
        while (message := self.transport.receive()) is not None:
            self.hear()
            run, kind, key, value = message
            if run == self._run or (kind == "failed" and not self.transport.is_uniform):
                yield kind, key, value
            elif run > self._run:
                self._early.setdefault(run, []).append(message)

    def barrier(self) -> Callable[[], bool]:
        """Begin the barrier at the end of a run; return a function that is true once all have reached it."""
        return self.transport.barrier()

    # -- waiting

    def begin_heartbeat(self, beat: Callable[[], None]) -> None:
        """Call a bound method four times per time-out from a thread, while its object is alive."""
        if self._beat is None:
            self._beat = weakref.WeakMethod(beat)
            _heart.add(self)

    def beat_if_due(self, now: float) -> None:
        """Call the method of `begin_heartbeat` if a quarter of the time-out has passed."""
        method = self._beat() if self._beat is not None else None
        if method is not None and now - self._beaten >= self.timeout / 4:
            self._beaten = now
            method()

    def hear(self) -> None:
        """Restart the time-out: a message has arrived, or a device of this process has computed."""
        self._silence = 0.0
        self._polled = time.monotonic()
        self._polls = 0

    @property
    def is_silent(self) -> bool:
        """True if the time-out has passed without a message."""
        return self._silence > self.timeout

    def pause(self) -> float:
        """Return the seconds until the next poll: 0 at first, then longer while nothing arrives."""
        now = time.monotonic()
        self._silence += min(now - self._polled, self.timeout / 4)
        self._polled = now
        self._polls += 1
        return min(max(0, self._polls - _EAGER_POLLS) * 1e-5, _LONGEST_PAUSE)

    def rest(self) -> None:
        """Pause before the next poll; at first only yield the processor, since a sleep takes 50 us."""
        pause = self.pause()
        if pause:
            time.sleep(pause)
        else:
            os.sched_yield()


class _Heart:
    """The thread that sends the heartbeats of all programs of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._peers: weakref.WeakSet[Peers] = weakref.WeakSet()
        self._begun = False

    def add(self, peers: Peers) -> None:
        """Add a program; start the thread for the first one."""
        with self._lock:
            self._peers.add(peers)
            if not self._begun:
                self._begun = True
                threading.Thread(target=self._run, name=HEARTBEAT, daemon=True).start()

    def _run(self) -> None:
        while True:
            time.sleep(_HEARTBEAT_PERIOD)
            self._beat()

    def _beat(self) -> None:
        """Send the heartbeats that are due; hold no reference to a program afterwards."""
        with self._lock:
            served = list(self._peers)
        for peers in served:
            peers.beat_if_due(time.monotonic())


_heart: Final = _Heart()
