"""The interface of an operation to the virtual device that runs it: ids, communication, host transfers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Protocol, TypeAlias

from hloom.ir.value import Value

DeviceId: TypeAlias = tuple[int, int]
"""Replica and partition."""

_UNKNOWN: Final = object()


class Pending:
    """A value that is not available yet: the result of a start operation.

    The done operation waits for it. In between it may pass through tuples, loops and calls like any value.
    """

    __slots__ = ("_fetch", "_value")

    def __init__(self, fetch: Callable[[], object]) -> None:
        self._fetch = fetch
        self._value: Any = _UNKNOWN

    def wait(self) -> Any:
        """Wait for the value and return it; raise DeadlockError if it can never arrive."""
        if self._value is _UNKNOWN:
            self._value = self._fetch()
        return self._value

    def then(self, change: Callable[[Any], object]) -> Pending:
        """Return a pending value that is ``change`` applied to this one."""
        return Pending(lambda: change(self.wait()))


Passed: TypeAlias = "Value | Pending | tuple[Passed, ...]"
"""A value of which parts may be pending."""


def arrived(value: Passed) -> Any:
    """Return the value, waiting for it if it is pending."""
    return value.wait() if isinstance(value, Pending) else value


class DeviceContext(Protocol):
    """The interface of a virtual device to operations: ids, communication, host transfers."""

    @property
    def id(self) -> DeviceId:
        """The replica and the partition of this device."""
        ...

    @property
    def num_replicas(self) -> int:
        """The number of replicas in the run."""
        ...

    @property
    def num_partitions(self) -> int:
        """The number of partitions in the run."""
        ...

    @property
    def waited(self) -> int:
        """Nanoseconds that it has waited for other devices or the host, in all runs."""
        ...

    def exchange(
        self, collective: Hashable, members: Sequence[DeviceId], value: object, what: str
    ) -> Pending:
        """Give a value to all participants and return theirs, as a list in the order of ``members``.

        The n-th call of each participant for a collective meets the n-th calls of the others.
        """
        ...

    def send(self, channel: Hashable, value: object, what: str) -> None:
        """Append a value to a channel without waiting."""
        ...

    def receive(self, channel: Hashable, what: str) -> Pending:
        """Return the next value of a channel as a pending value."""
        ...

    def infeed(self, what: str) -> Value:
        """Wait for the next value that the host transferred to this device and return it."""
        ...

    def outfeed(self, value: Value) -> None:
        """Make a value available to the host."""
        ...

    def send_to_host(self, channel: int, value: Value, what: str) -> None:
        """Append a value to a channel from this device to the host."""
        ...

    def receive_from_host(self, channel: int, what: str) -> Pending:
        """Return the next value that the host puts into a channel, as a pending value."""
        ...
