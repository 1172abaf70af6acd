"""Values in transit between devices: contributions to rendezvous, and messages in channels."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import field
from typing import Any

from hloom.ir.device import DeviceId
from hloom.records import dataclass


@dataclass(slots=True)
class Channel:
    """A queue of numbered messages from one device to another.

    Attributes:
        messages: the messages that have arrived and were not received, by number.
        sent, requested: the numbers of sends and of receives so far.
        sender, receiver: the devices at the ends; None until the first send or receive.
    """

    messages: dict[int, object] = field(default_factory=dict[int, object])
    sent: int = 0
    requested: int = 0
    sender: DeviceId | None = None
    receiver: DeviceId | None = None


class Mailboxes:
    """The rendezvous and channels of a run.

    Attributes:
        relayed: by channel, the device whose sends to the host are received by other devices instead.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove all rendezvous and channels, before a run."""
        self._rendezvous: dict[tuple[Hashable, int], dict[DeviceId, object]] = {}
        self._visits: dict[tuple[DeviceId, Hashable], int] = {}
        self._channels: dict[Hashable, Channel] = {}
        self.relayed: dict[int, DeviceId] = {}

    def visit(self, device: DeviceId, collective: Hashable) -> tuple[Hashable, int]:
        """Return the key of a device's next rendezvous: the collective, and a count from 0."""
        number = self._visits.get((device, collective), 0)
        self._visits[device, collective] = number + 1
        return collective, number

    def contributions(self, key: tuple[Hashable, int]) -> dict[DeviceId, object]:
        """Return the values at a rendezvous, by device that has arrived; the caller adds to them."""
        return self._rendezvous.setdefault(key, {})

    def close(self, key: tuple[Hashable, int]) -> None:
        """Remove a rendezvous after all participants have arrived."""
        self._rendezvous.pop(key, None)

    def channel(self, key: Hashable) -> Channel:
        """Return the channel of a key; create it at the first use."""
        return self._channels.setdefault(key, Channel())

    def deliver(self, kind: str, key: Any, value: Any) -> None:
        """Store a value from another process: a contribution to a rendezvous, or a message in a channel.

        ``key`` is (collective, number, device) for the kind "exchange", else (channel, number).
        """
        if kind == "exchange":
            *visit, device = key
            self.contributions(tuple(visit))[device] = value
        else:
            channel, number = key
            self.channel(channel).messages[number] = value
