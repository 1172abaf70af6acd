"""Virtual devices: rendezvous, channels and waiting of the replicas and partitions of one run.

Each device runs in a thread (`hloom.evaluate.threads`); a run of a single device needs none. All waiting uses
one lock, so that a `World` has the state of every device of this process; see `hloom.evaluate.peers` for
other processes. If all devices that have not ended wait, and none can be released by another, the run ends
with a DeadlockError that lists the instruction at which each one waits; if there are other processes, after a
time-out.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, cast

from hloom.errors import DeadlockError, EvaluationError
from hloom.evaluate.peers import HEARTBEAT, Peers
from hloom.evaluate.threads import DeviceThreads, Stopped
from hloom.ir.device import DeviceId, Pending

_POLL: Final = 0.005
"""Seconds between polls of the state of native code."""


class _Waiter:
    """State of a waiting device: its condition, and whether it is released."""

    __slots__ = ("describe", "for_host", "polls", "ready", "released")

    def __init__(
        self, ready: Callable[[], bool], describe: Callable[[], str], for_host: bool, polls: bool
    ) -> None:
        self.ready = ready
        self.describe = describe
        self.for_host = for_host
        self.polls = polls
        self.released = False


class _Channel:
    """Numbered values in transit from one sender to one receiver."""

    __slots__ = ("messages", "receiver", "sender", "sent", "taken")

    def __init__(self) -> None:
        self.messages: dict[int, Any] = {}
        self.sent = 0
        self.taken = 0
        self.sender: DeviceId | None = None
        self.receiver: DeviceId | None = None


class World:
    """All devices of one program in this process, and the state of a run.

    Attributes:
        num_replicas, num_partitions: numbers of devices, of all processes.
        devices: those of this process, replica-major.
        peers: the other processes; None if this one has all devices.
        before_run: functions to call at the start of a run.
        stop_word: nonzero once a device has failed; native code polls it.
        waited: nanoseconds that each device has waited here for others or the host, in all runs.
        host_timeout: seconds for which a device waits for the host if no device can continue and another
            thread of this process could still feed it. Without another thread it does not wait.
    """

    def __init__(self, num_replicas: int, num_partitions: int, peers: Peers | None = None) -> None:
        self.num_replicas = num_replicas
        self.num_partitions = num_partitions
        self.peers = peers
        self.before_run: list[Callable[[], None]] = []
        self.host_timeout = 2.0
        self.stop_word = ctypes.c_uint64(0)
        self.waited: dict[DeviceId, int] = {}
        self.condition = threading.Condition()
        self._threads = DeviceThreads(self.condition)
        self.running = False
        self.devices = [
            VirtualDevice(self, (r, p))
            for r in range(num_replicas)
            for p in range(num_partitions)
            if peers is None or peers.owners[r, p] == peers.rank
        ]
        self._reset()

    def _reset(self) -> None:
        self.active: set[DeviceId] = set()
        self.waiting: dict[DeviceId, _Waiter] = {}
        self.failure: BaseException | None = None
        self.stop_word.value = 0
        self.rendezvous: dict[tuple[Hashable, int], dict[DeviceId, Any]] = {}
        self.visits: dict[tuple[DeviceId, Hashable], int] = {}
        self.channels: dict[Hashable, _Channel] = {}
        self.relayed: dict[int, DeviceId] = {}

    # -- a run

    def run(self, work: Callable[[VirtualDevice], Any]) -> list[Any]:
        """Call ``work`` on all devices concurrently; return the results, replica-major.

        Raises the error of the first device that failed, or DeadlockError. An exception in the calling
        thread, such as KeyboardInterrupt, stops all devices; a second one leaves their threads behind, and
        further runs are refused by the rule ``devices.still-running`` until these have ended.
        """
        if self._threads.alive:
            message = f"{self._threads.alive} devices of an interrupted run are still running"
            raise EvaluationError(message, rule="devices.still-running")
        if self.peers is not None:
            self.peers.begin()
            self.peers.begin_heartbeat(self.beat)
        self._reset()
        for prepare in self.before_run:
            prepare()
        self.active.update(device.id for device in self.devices)
        self.running = True
        results: dict[DeviceId, Any] = {}
        errors: dict[DeviceId, BaseException] = {}

        def work_on(device: VirtualDevice) -> None:
            try:
                results[device.id] = work(device)
            except Stopped:
                pass
            except BaseException as error:
                errors[device.id] = error
            finally:
                self._threads.finish(device.id, lambda: self._finish(device.id, errors.get(device.id)))

        if len(self.devices) == 1:
            work_on(self.devices[0])
        else:
            self._threads.run({d.id: partial(work_on, d) for d in self.devices}, self._interrupted)
        if self.peers is not None:
            self._leave_together(self.peers)
        self.running = False
        failure = next((errors[d.id] for d in self.devices if d.id in errors), self.failure)
        if failure is not None:
            raise failure
        return [results.get(device.id) for device in self.devices]

    def beat(self) -> None:
        """Tell other processes if a device computes."""
        with self.condition:
            if self.running and self.failure is None and len(self.active) > len(self.waiting):
                assert self.peers is not None
                self.peers.publish(self.peers.others, "computes", self.peers.rank, None)

    def _leave_together(self, peers: Peers) -> None:
        """End a run when all processes have ended it, so that none waits for a message that none takes."""
        if self.failure is not None:
            return
        complete = peers.barrier()
        while self.failure is None and not complete():
            with self.condition:
                self._take_messages(peers)
                if peers.is_silent:
                    message = f"{peers.name(peers.rank)} has ended the run, others have not"
                    self._fail(DeadlockError(message, rule="devices.deadlock"))
            peers.rest()

    def abandon(self, error: BaseException) -> None:
        """Let the runs of other processes fail, because this one cannot start."""
        if self.peers is not None:
            with self.condition:
                self.peers.abandon(error)

    def _interrupted(self, error: BaseException) -> None:
        self.running = False
        self._fail(error)

    def _finish(self, device: DeviceId, error: BaseException | None) -> None:
        self.active.discard(device)
        if self.peers is not None:
            self.peers.hear()  # other processes can go on only since this device's last message
        if error is not None:
            self._fail(error)
        self._look_for_deadlock()
        self.condition.notify_all()

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        if self.peers is not None:
            self.peers.fail(error)
        self.stop_word.value = 1
        for waiter in self.waiting.values():
            waiter.released = True
        self.waiting.clear()
        self.condition.notify_all()

    # -- waiting; the lock is held in all of these

    @contextmanager
    def changing(self) -> Generator[None, None, None]:
        """Change the state under the lock, then release the devices that waited for the change."""
        with self.condition:
            yield
            self._release()
            self.condition.notify_all()

    def _release(self) -> None:
        for device, waiter in list(self.waiting.items()):
            if waiter.ready():
                waiter.released = True
                del self.waiting[device]

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

        ``polls``: native code may change the condition without a notification.
        """
        if self.failure is not None:
            raise Stopped
        if ready():
            return
        start = time.monotonic_ns()
        try:
            self._wait(device, ready, describe, for_host, polls)
        finally:
            self.waited[device] = self.waited.get(device, 0) + time.monotonic_ns() - start

    def _wait(
        self,
        device: DeviceId,
        ready: Callable[[], bool],
        describe: Callable[[], str],
        for_host: bool,
        polls: bool,
    ) -> None:
        peers = self.peers
        if peers is not None:
            peers.hear()
        waiter = self.waiting[device] = _Waiter(ready, describe, for_host, polls)
        self._look_for_deadlock()
        deadline: float | None = None
        while not waiter.released:
            if peers is not None:
                self.condition.wait(peers.pause())
                self._take_messages(peers)
            elif for_host and self._all_wait():
                deadline = deadline or time.monotonic() + self.host_timeout
                if time.monotonic() >= deadline:
                    self._fail(self._deadlock())
                    break
                self.condition.wait(0.05)
            else:
                deadline = None
                self.condition.wait(_POLL if polls else 0.05 if for_host else None)
            if (polls or peers is not None) and self.failure is None:
                self._release()
                self._look_for_deadlock()
        if self.failure is not None:
            raise Stopped

    def _take_messages(self, peers: Peers) -> None:
        """Store the values that devices of other processes have contributed and sent."""
        for kind, key, value in peers.arrived():
            match kind:
                case "exchange":
                    place, visit, device = key
                    self.rendezvous.setdefault((place, visit), {})[device] = value
                case "send":
                    channel, number = key
                    self.channels.setdefault(channel, _Channel()).messages[number] = value
                case "computes":
                    pass  # it has been heard
                case _:
                    lines = [f"{peers.name(key)} failed: {value}"]
                    if self.waiting:
                        waits = {device: w.describe() for device, w in self.waiting.items()}
                        lines += [f"{peers.name(peers.rank)}:", *_lines(waits)]
                    message = "\n".join(lines)
                    self._fail(EvaluationError(message, rule="processes.failed"))

    def _all_wait(self) -> bool:
        return bool(self.waiting) and len(self.waiting) == len(self.active)

    def _look_for_deadlock(self) -> None:
        if self.failure is not None or not self._all_wait():
            return
        if self.peers is not None and not self.peers.is_silent:
            return
        if any(w.polls for w in self.waiting.values()):
            self._release()
            self.condition.notify_all()
        if self._all_wait():
            hopeful = any(w.for_host for w in self.waiting.values()) and self._others_run()
            if not hopeful:
                self._fail(self._deadlock())

    def _others_run(self) -> bool:
        """Return whether a thread exists that neither runs a device nor started this run: it may feed one."""
        return self.host_timeout > 0 and _foreign_threads(len(self.devices)) > 0

    def name(self, device: DeviceId) -> str:
        """Return the name of a device in messages, with its process if that is another one."""
        peers = self.peers
        if peers is None or peers.owners[device] == peers.rank:
            return name(device)
        return f"{name(device)} of {peers.name(peers.owners[device])}"

    def _deadlock(self) -> DeadlockError:
        error = deadlock(
            {device: w.describe() for device, w in self.waiting.items()},
            [d.id for d in self.devices if d.id not in self.active],
        )
        if self.peers is not None:
            where = f"{self.peers.name(self.peers.rank)} has heard nothing for {self.peers.timeout:g} s"
            error.message = f"{where}; {error.message}"
        return error


def deadlock(waits: Mapping[DeviceId, str], finished: Sequence[DeviceId]) -> DeadlockError:
    """Return the error for devices of which each waits in an instruction, or has finished."""
    lines = [
        "the devices would wait for ever:",
        *_lines(waits),
        *(f"  {name(device)} has finished" for device in finished),
    ]
    return DeadlockError("\n".join(lines), rule="devices.deadlock")


def _lines(waits: Mapping[DeviceId, str]) -> list[str]:
    """Return a line for each device that waits: in which instruction, for whom."""
    return [f"  {name(device)} waits in {what}" for device, what in sorted(waits.items())]


def name(device: DeviceId) -> str:
    """Return the name of a device in messages."""
    return f"device (replica {device[0]}, partition {device[1]})"


def _foreign_threads(device_count: int) -> int:
    """Return the number of threads beside the devices' own and the one that waits for them."""
    own = device_count + 1 if device_count > 1 else 1
    return _threads() - own


def _threads() -> int:
    """Return the number of threads that may do something for a program."""
    return sum(thread.name != HEARTBEAT for thread in threading.enumerate())


class VirtualDevice:
    """One replica and partition; implements `hloom.ir.device.Device` for operations."""

    def __init__(self, world: World, device: DeviceId) -> None:
        self.world = world
        self.id = device
        self.infeed_queue: deque[Any] = deque()
        self.outfeed_queue: deque[Any] = deque()
        self.to_host: dict[int, deque[Any]] = {}
        self.from_host: dict[int, deque[Any]] = {}

    @property
    def num_replicas(self) -> int:
        """Number of replicas in the run."""
        return self.world.num_replicas

    @property
    def num_partitions(self) -> int:
        """Number of partitions in the run."""
        return self.world.num_partitions

    @property
    def waited(self) -> int:
        """Nanoseconds that it has waited for other devices or the host."""
        return self.world.waited.get(self.id, 0)

    # -- other devices

    def exchange(self, place: Hashable, members: Sequence[DeviceId], value: Any, what: str) -> Pending:
        """Give a value to all members; return theirs in the order of ``members``."""
        world = self.world
        with world.changing():
            visit = world.visits.get((self.id, place), 0)
            world.visits[self.id, place] = visit + 1
            rendezvous = world.rendezvous.setdefault((place, visit), {})
            rendezvous[self.id] = value
            if world.peers is not None:
                key = (place, visit, self.id)
                world.peers.publish(world.peers.ranks_of(members), "exchange", key, value)

        def describe() -> str:
            missing = [world.name(member) for member in members if member not in rendezvous]
            return f"{what} for {', '.join(missing)}"

        def fetch() -> list[Any]:
            with world.condition:
                world.wait(self.id, lambda: len(rendezvous) == len(members), describe)
                world.rendezvous.pop((place, visit), None)
                return [rendezvous[member] for member in members]

        return Pending(fetch)

    def send(self, channel: Hashable, value: Any, what: str) -> None:
        """Put a value into a channel."""
        with self.world.changing():
            box = self.world.channels.setdefault(channel, _Channel())
            if box.sender not in (None, self.id):
                raise _ambiguous(what, "sends", box.sender)
            box.sender = self.id
            peers = self.world.peers
            ranks = [] if peers is None else _receivers(peers, channel)
            if peers is not None:
                peers.publish([r for r in ranks if r != peers.rank], "send", (channel, box.sent), value)
            if peers is None or peers.rank in ranks:
                box.messages[box.sent] = value
            box.sent += 1

    def receive(self, channel: Hashable, what: str) -> Pending:
        """Return the next value of a channel."""
        world = self.world
        with world.condition:
            box = world.channels.setdefault(channel, _Channel())
            if box.receiver not in (None, self.id):
                raise _ambiguous(what, "receives", box.receiver)
            box.receiver = self.id
            number = box.taken
            box.taken += 1

        def fetch() -> Any:
            with world.condition:
                world.wait(self.id, lambda: number in box.messages, lambda: f"{what} for {_sender(channel)}")
                return box.messages.pop(number)

        return Pending(fetch)

    # -- the host, as operations see it

    def infeed(self, what: str) -> Any:
        """Return the next value that the host transferred."""
        with self.world.condition:
            self.world.wait(
                self.id,
                lambda: bool(self.infeed_queue),
                lambda: f"{what} for the host: the infeed is empty",
                for_host=True,
            )
            return self.infeed_queue.popleft()

    def outfeed(self, value: Any) -> None:
        """Put a value into the outfeed."""
        with self.world.changing():
            self.outfeed_queue.append(value)

    def send_to_host(self, channel: int, value: Any, what: str) -> None:
        """Put a value into a channel to the host, or to a device that receives from the host."""
        with self.world.changing():
            relayed = self.world.relayed.get(channel)
            if relayed not in (None, self.id):
                raise _ambiguous(what, "sends", relayed)
            self.to_host.setdefault(channel, deque()).append(value)

    def receive_from_host(self, channel: int, what: str) -> Pending:
        """Return the next value from the host, or else one that a device sent to it on the channel."""
        world = self.world

        def sources() -> list[VirtualDevice]:
            return [device for device in world.devices if device.to_host.get(channel)]

        def fetch() -> Any:
            with world.condition:
                world.wait(
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
                world.relayed[channel] = senders[0].id
                return senders[0].to_host[channel].popleft()

        return Pending(fetch)

    # -- the host's side

    def put_infeed(self, value: Any) -> None:
        """Transfer a value to this device."""
        with self.world.changing():
            self.infeed_queue.append(value)

    def put_channel(self, channel: int, value: Any) -> None:
        """Put a value into a host channel of this device."""
        with self.world.changing():
            self.from_host.setdefault(channel, deque()).append(value)

    def take(self, queue: deque[Any], what: str) -> Any:
        """Return the next value of a queue to the host; wait during a run, or while one may still start.

        Raises EvaluationError if the queue is empty and nothing runs.
        """
        world = self.world
        patient = world.host_timeout if _threads() > 1 else 0.0
        deadline = time.monotonic() + patient
        with world.condition:
            while not queue:
                if not world.running and time.monotonic() >= deadline:
                    raise EvaluationError(
                        f"{what} of {name(self.id)} is empty", rule="devices.nothing-to-take"
                    )
                world.condition.wait(0.05)
            return queue.popleft()


def _sender(channel: Hashable) -> str:
    """Describe the sender of a channel (kind, id) or (kind, id, source, target, ...)."""
    _, number, *ends = cast("tuple[Any, ...]", channel)
    return name(ends[0]) if ends else f"a send on channel {number}"


def _receivers(peers: Peers, channel: Hashable) -> list[int]:
    """Return the process that receives from a channel (kind, id, source, target, ...), or all processes."""
    _, _, *ends = cast("tuple[Any, ...]", channel)
    return [peers.owners[ends[1]]] if len(ends) > 1 else [*peers.others, peers.rank]


def _ambiguous(what: str, does: str, other: DeviceId | None) -> EvaluationError:
    message = (
        f"{what}: {name(other or (0, 0))} {does} on this channel too; without source-target pairs a channel "
        f"has one sender and one receiver"
    )
    return EvaluationError(message, rule="devices.channel-ambiguous")
