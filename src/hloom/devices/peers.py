"""Devices in other processes: who owns a device, and the messages that processes exchange during a run.

Every process runs the same program on its own devices. A value that a device contributes to a rendezvous is
sent once to each process that has another participant; every participant then computes its result from all
contributions in the order of the group, so that results have the same bits for every division of the devices
into processes. Messages carry the number of their run: those of a later run wait until it begins here.
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
"""Polls without a pause after a message has arrived: latency counts more than the core."""
_LONGEST_PAUSE: Final = 2e-3
HEARTBEAT: Final = "hloom heartbeat"
"""The name of the thread that does nothing but tell other processes that this one computes."""
_HEARTBEAT_PERIOD: Final = 0.25
"""Seconds between looks for programs whose heartbeat is due."""


class Peers:
    """The other processes of a program.

    Args:
        transport: carries the messages.
        devices: all devices of the program, replica-major.

    Attributes:
        owners: the rank of each device.
        timeout: seconds without any message after which waiting devices give up. A process of which a device
            computes sends one from time to time. Seconds count while this process polls for messages, so
            that one which was stopped for a while hears the others first.
        broken: a run has failed; its messages may still be under way, so that no other run may start.
    """

    def __init__(self, transport: Transport, devices: Sequence[DeviceId]) -> None:
        self._transport = transport.separate()
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
    def transport(self) -> Transport:
        """The transport of the messages of this program."""
        return self._transport

    @property
    def others(self) -> list[int]:
        """The ranks of the other processes."""
        return [rank for rank in range(len(self.hosts)) if rank != self.rank]

    def name(self, rank: int) -> str:
        """Return the name of a process in messages."""
        return f"process {rank} on {self.hosts[rank]}"

    def ranks_of(self, devices: Collection[DeviceId]) -> list[int]:
        """Return the other processes that own some of the devices."""
        return sorted({self.owners[device] for device in devices} - {self.rank})

    # -- a run

    def begin(self) -> None:
        """Begin a run; raises EvaluationError by the rule ``processes.broken`` after one that failed."""
        if self.broken:
            message = "an earlier run failed in one of the processes; compile the program once more in all"
            raise EvaluationError(message, rule="processes.broken")
        self._run = self._transport.begin()
        self._early = {run: messages for run, messages in self._early.items() if run >= self._run}
        self.hear()

    def publish(self, ranks: Collection[int], kind: str, key: Any, value: Any) -> None:
        """Send a value of this run to processes."""
        for rank in ranks:
            self._transport.send(rank, (self._run, kind, key, value))

    def fail(self, error: BaseException) -> None:
        """Tell all processes that this one has failed; they fail as well."""
        if not self.broken and self._failed != self._run:
            self._failed = self._run
            self.publish(self.others, "failed", self.rank, f"{type(error).__name__}: {error}")
            self.broken = not self._transport.cancel()

    def abandon(self, error: BaseException) -> None:
        """Let the next run of other processes fail, because this one cannot start it."""
        if self._transport.is_uniform:
            self._run = self._transport.begin()
        self.fail(error)

    def arrived(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield kind, key and value of the messages of this run that have arrived."""
        for _, kind, key, value in self._early.pop(self._run, ()):
            yield kind, key, value
        while (message := self._transport.receive()) is not None:
            self.hear()
            run, kind, key, value = message
            if run == self._run or (kind == "failed" and not self._transport.is_uniform):
                yield kind, key, value
            elif run > self._run:
                self._early.setdefault(run, []).append(message)

    def barrier(self) -> Callable[[], bool]:
        """Begin a barrier at the end of a run."""
        return self._transport.barrier()

    # -- waiting

    def begin_heartbeat(self, beat: Callable[[], None]) -> None:
        """Let a thread call a method four times in a time-out, as long as its object exists."""
        if self._beat is None:
            self._beat = weakref.WeakMethod(beat)
            _heart.add(self)

    def beat_if_due(self, now: float) -> None:
        """Call the method of `begin_heartbeat` if the last time is long ago."""
        method = self._beat() if self._beat is not None else None
        if method is not None and now - self._beaten >= self.timeout / 4:
            self._beaten = now
            method()

    def hear(self) -> None:
        """Restart the clock of the time-out: a message has arrived, or a device computes."""
        self._silence = 0.0
        self._polled = time.monotonic()
        self._polls = 0

    @property
    def is_silent(self) -> bool:
        """True if no message has arrived for longer than the time-out."""
        return self._silence > self.timeout

    def pause(self) -> float:
        """Return the seconds until the next poll: none at first, more the longer nothing arrives."""
        now = time.monotonic()
        self._silence += min(now - self._polled, self.timeout / 4)
        self._polled = now
        self._polls += 1
        return min(max(0, self._polls - _EAGER_POLLS) * 1e-5, _LONGEST_PAUSE)

    def rest(self) -> None:
        """Pause before the next poll; at first only let other threads run, since any sleep takes 50 us."""
        pause = self.pause()
        if pause:
            time.sleep(pause)
        else:
            os.sched_yield()


class _Heart:
    """A thread that gives all programs of this process their heartbeats."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._peers: weakref.WeakSet[Peers] = weakref.WeakSet()
        self._begun = False

    def add(self, peers: Peers) -> None:
        """Serve another program."""
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
        """Look at all programs; keep none of them alive afterwards."""
        with self._lock:
            served = list(self._peers)
        for peers in served:
            peers.beat_if_due(time.monotonic())


_heart: Final = _Heart()
