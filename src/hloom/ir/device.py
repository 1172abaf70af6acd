"""What an operation can ask of the virtual device that runs it: who it is, to talk to others and the host."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from hloom.ir.value import Value

DeviceId: TypeAlias = tuple[int, int]
"""Replica and partition."""

_UNKNOWN: Final = object()


class Pending:
    """A value that is on its way: what a start operation gives in the place of its result.

    The done operation waits for it. In between it may pass through tuples, loops and calls like any value.
    """

    __slots__ = ("_fetch", "_value")

    def __init__(self, fetch: Callable[[], Any]) -> None:
        self._fetch = fetch
        self._value: Any = _UNKNOWN

    def wait(self) -> Any:
        """The value, as soon as it is there; raises DeadlockError if it can never come."""
        if self._value is _UNKNOWN:
            self._value = self._fetch()
        return self._value

    def then(self, change: Callable[[Any], Any]) -> Pending:
        """What ``change`` makes of the value."""
        return Pending(lambda: change(self.wait()))


def arrived(value: Value | Pending) -> Any:
    """The value itself; a pending one is waited for."""
    return value.wait() if isinstance(value, Pending) else value


class Device(Protocol):
    """A virtual device: one replica and partition of a running program."""

    @property
    def id(self) -> DeviceId:
        """Replica and partition."""
        ...

    @property
    def num_replicas(self) -> int:
        """Replicas in the run."""
        ...

    @property
    def num_partitions(self) -> int:
        """Partitions in the run."""
        ...

    def exchange(self, place: Hashable, members: Sequence[DeviceId], value: Any, what: str) -> Pending:
        """Give a value to all members and get theirs: a list in the order of ``members``.

        The members meet at ``place``; who comes there again meets the others that come there again.
        """
        ...

    def send(self, channel: Hashable, value: Any, what: str) -> None:
        """Put a value into a channel; never waits."""
        ...

    def receive(self, channel: Hashable, what: str) -> Pending:
        """The next value that comes out of a channel."""
        ...

    def infeed(self, what: str) -> Any:
        """The next value that the host transferred to this device; waits for it."""
        ...

    def outfeed(self, value: Any) -> None:
        """Let the host take a value from this device."""
        ...

    def send_to_host(self, channel: int, value: Any, what: str) -> None:
        """Put a value into a channel between this device and the host."""
        ...

    def receive_from_host(self, channel: int, what: str) -> Pending:
        """The next value that the host (or, through it, another device) puts into a channel."""
        ...
