"""The devices of a program in this process, and their runs.

Each device runs in a thread (`threads.py`), a single device in the calling one. Devices exchange values
through `mailboxes.py` and block in `waiting.py`; `peers.py` has the devices of other processes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Final, cast

from hloom.devices.mailboxes import Mailboxes
from hloom.devices.peers import Peers
from hloom.devices.threads import DeviceThreads, Stopped
from hloom.devices.waiting import Waiting, device_name, thread_count
from hloom.errors import EvaluationError
from hloom.ir.device import DeviceId, Pending
from hloom.ir.value import Value

_PAUSE: Final = 0.05
"""Seconds between polls of the host for a value."""


class World:
    """The devices of a program that run in this process.

    Attributes:
        num_replicas, num_partitions: the numbers over all processes.
        devices: the devices of this process, replica-major.
        peers: the other processes; None if this process has all devices.
        before_run: functions to call before each run.
        mailboxes: the values that devices exchange.
        waiting: the state of the devices in a run.
    """

    def __init__(self, num_replicas: int, num_partitions: int, peers: Peers | None = None) -> None:
        self.num_replicas = num_replicas
        self.num_partitions = num_partitions
        self.peers = peers
        self.before_run: list[Callable[[], None]] = []
        self.devices = [
            VirtualDevice(self, (r, p))
            for r in range(num_replicas)
            for p in range(num_partitions)
            if peers is None or peers.owners[r, p] == peers.rank
        ]
        self.mailboxes = Mailboxes()
        self.waiting = Waiting([device.id for device in self.devices], self.mailboxes, peers)
        self._threads = DeviceThreads(self.waiting.condition)

    def run(self, work: Callable[[VirtualDevice], object]) -> list[Any]:
        """Call ``work`` with each device concurrently; return the results, replica-major.

        Raises the error of the first device that failed, or DeadlockError. An exception in the calling
        thread, such as KeyboardInterrupt, stops all devices; a second one abandons their threads, and runs
        raise EvaluationError by the rule ``devices.still-running`` until these have ended.
        """
        if self._threads.alive:
            message = f"devices of an interrupted run are still running: {self._threads.alive}"
            raise EvaluationError(message, rule="devices.still-running")
        if self.peers is not None:
            self.peers.begin()
            self.peers.begin_heartbeat(self.waiting.beat)
        for prepare in self.before_run:
            prepare()
        self.waiting.begin()
        results: dict[DeviceId, object] = {}
        errors: dict[DeviceId, BaseException] = {}

        def work_on(device: VirtualDevice) -> None:
            try:
                results[device.id] = work(device)
            except Stopped:
                pass
            except BaseException as error:
                errors[device.id] = error
            finally:
                end = lambda: self.waiting.finish(device.id, errors.get(device.id))  # noqa: E731
                self._threads.finish(device.id, end)

        if len(self.devices) == 1:
            work_on(self.devices[0])
        else:
            self._threads.run({d.id: partial(work_on, d) for d in self.devices}, self.waiting.interrupt)
        self.waiting.end()
        failure = next((errors[d.id] for d in self.devices if d.id in errors), self.waiting.failure)
        if failure is not None:
            raise failure
        return [results.get(device.id) for device in self.devices]

    def abandon(self, error: BaseException) -> None:
        """Make the run fail in the other processes, because this process cannot start it."""
        if self.peers is not None:
            with self.waiting.condition:
                self.peers.abandon(error)

    def name(self, device: DeviceId) -> str:
        """Return the name of a device for error messages, with its process if it is not this one."""
        peers = self.peers
        if peers is None or peers.owners[device] == peers.rank:
            return device_name(device)
        return f"{device_name(device)} of {peers.name(peers.owners[device])}"


class VirtualDevice:
    """One replica and partition of a program; operations see it as a `hloom.ir.device.DeviceContext`."""

    def __init__(self, world: World, device: DeviceId) -> None:
        self.world = world
        self.id = device
        self.infeed_queue: deque[Value] = deque()
        self.outfeed_queue: deque[Value] = deque()
        self.to_host: dict[int, deque[Value]] = {}
        self.from_host: dict[int, deque[Value]] = {}

    @property
    def num_replicas(self) -> int:
        return self.world.num_replicas

    @property
    def num_partitions(self) -> int:
        return self.world.num_partitions

    @property
    def waited(self) -> int:
        """The nanoseconds that this device has waited for other devices or the host."""
        return self.world.waiting.waited.get(self.id, 0)

    # -- other devices

    def exchange(
        self, collective: Hashable, members: Sequence[DeviceId], value: object, what: str
    ) -> Pending:
        """Contribute a value to the next rendezvous of a collective; return the values in member order.

        ``what`` names the instruction in errors, here and in the methods below.
        """
        world, waiting = self.world, self.world.waiting
        with waiting.changing():
            key = world.mailboxes.visit(self.id, collective)
            values = world.mailboxes.contributions(key)
            values[self.id] = value
            if world.peers is not None:
                world.peers.publish(world.peers.ranks_of(members), "exchange", (*key, self.id), value)

        def describe() -> str:
            missing = [world.name(member) for member in members if member not in values]
            return f"{what} for {', '.join(missing)}"

        def fetch() -> list[object]:
            with waiting.condition:
                waiting.wait(self.id, lambda: len(values) == len(members), describe)
                world.mailboxes.close(key)
                return [values[member] for member in members]

        return Pending(fetch)

    def send(self, channel: Hashable, value: object, what: str) -> None:
        """Send a value on a channel.

        Raises EvaluationError by the rule ``devices.channel-ambiguous`` if another device sends on it too.
        """
        peers = self.world.peers
        with self.world.waiting.changing():
            box = self.world.mailboxes.channel(channel)
            if box.sender not in (None, self.id):
                raise _ambiguous(what, "sends", box.sender)
            box.sender = self.id
            ranks = [] if peers is None else _receivers(peers, channel)
            if peers is not None:
                peers.publish([r for r in ranks if r != peers.rank], "send", (channel, box.sent), value)
            if peers is None or peers.rank in ranks:
                box.messages[box.sent] = value
            box.sent += 1

    def receive(self, channel: Hashable, what: str) -> Pending:
        """Receive the next value of a channel; raises EvaluationError as `send` does."""
        waiting = self.world.waiting
        with waiting.condition:
            box = self.world.mailboxes.channel(channel)
            if box.receiver not in (None, self.id):
                raise _ambiguous(what, "receives", box.receiver)
            box.receiver = self.id
            number = box.requested
            box.requested += 1

        def fetch() -> object:
            with waiting.condition:
                describe = lambda: f"{what} for {_sender(channel)}"  # noqa: E731
                waiting.wait(self.id, lambda: number in box.messages, describe)
                return box.messages.pop(number)

        return Pending(fetch)

    # -- the host, as operations see it

    def infeed(self, what: str) -> Value:
        """Return the next value of the infeed."""
        with self.world.waiting.condition:
            self.world.waiting.wait(
                self.id,
                lambda: bool(self.infeed_queue),
                lambda: f"{what} for the host: the infeed is empty",
                for_host=True,
            )
            return self.infeed_queue.popleft()

    def outfeed(self, value: Value) -> None:
        """Append a value to the outfeed."""
        with self.world.waiting.changing():
            self.outfeed_queue.append(value)

    def send_to_host(self, channel: int, value: Value, what: str) -> None:
        """Send a value to the host, or to a device that receives from the host on the same channel."""
        with self.world.waiting.changing():
            relayed = self.world.mailboxes.relayed.get(channel)
            if relayed not in (None, self.id):
                raise _ambiguous(what, "sends", relayed)
            self.to_host.setdefault(channel, deque()).append(value)

    def receive_from_host(self, channel: int, what: str) -> Pending:
        """Receive the next value from the host, or one that a device sent to the host on the same channel."""
        world, waiting = self.world, self.world.waiting

        def sources() -> list[VirtualDevice]:
            return [device for device in world.devices if device.to_host.get(channel)]

        def fetch() -> Value:
            with waiting.condition:
                waiting.wait(
                    self.id,
                    lambda: bool(self.from_host.get(channel) or sources()),
                    lambda: f"{what} for the host: nothing was put into channel {channel}",
                    for_host=True,
                )
                if self.from_host.get(channel):
                    return self.from_host[channel].popleft()
                senders = sources()
                if len(senders) > 1:
                    raise _ambiguous(what, "sends", senders[0].id)
                world.mailboxes.relayed[channel] = senders[0].id
                return senders[0].to_host[channel].popleft()

        return Pending(fetch)

    # -- the host's side

    def put_infeed(self, value: Value) -> None:
        """Append a value to the infeed of this device."""
        with self.world.waiting.changing():
            self.infeed_queue.append(value)

    def put_channel(self, channel: int, value: Value) -> None:
        """Send a value from the host to this device on a channel."""
        with self.world.waiting.changing():
            self.from_host.setdefault(channel, deque()).append(value)

    def take(self, queue: deque[Value], what: str) -> Value:
        """Remove and return the next value of a queue to the host.

        Blocks while a run may still produce one. Raises EvaluationError by the rule
        ``devices.nothing-to-take`` if nothing runs.
        """
        waiting = self.world.waiting
        patience = waiting.host_timeout if thread_count() > 1 else 0.0
        deadline = time.monotonic() + patience
        with waiting.condition:
            while not queue:
                if not waiting.running and time.monotonic() >= deadline:
                    raise EvaluationError(
                        f"{what} of {device_name(self.id)} is empty", rule="devices.nothing-to-take"
                    )
                waiting.condition.wait(_PAUSE)
            return queue.popleft()


def _sender(channel: Hashable) -> str:
    """Return the name of the sender on a channel (kind, id) or (kind, id, source, target, ...)."""
    _, number, *ends = cast("tuple[Hashable, int, *tuple[DeviceId, ...]]", channel)
    return device_name(ends[0]) if ends else f"a send on channel {number}"


def _receivers(peers: Peers, channel: Hashable) -> list[int]:
    """Return the rank of the receiver on a channel (kind, id, source, target, ...), or all ranks."""
    _, _, *ends = cast("tuple[Hashable, int, *tuple[DeviceId, ...]]", channel)
    return [peers.owners[ends[1]]] if len(ends) > 1 else [*peers.others, peers.rank]


def _ambiguous(what: str, does: str, other: DeviceId | None) -> EvaluationError:
    message = (
        f"{what}: {device_name(other or (0, 0))} {does} on this channel too; without source-target pairs a "
        f"channel has one sender and one receiver"
    )
    return EvaluationError(message, rule="devices.channel-ambiguous")
