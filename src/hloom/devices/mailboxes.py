"""Values in transit between the devices of a run: at rendezvous, and in channels."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from hloom.ir.device import DeviceId


@dataclass(slots=True)
class Channel:
    """Numbered values in transit from one sender to one receiver.

    Attributes:
        messages: those that were not received, by number.
        sent, requested: how many have been sent, and asked for.
        sender, receiver: the devices; None until each has used it.
    """

    messages: dict[int, Any] = field(default_factory=dict[int, Any])
    sent: int = 0
    requested: int = 0
    sender: DeviceId | None = None
    receiver: DeviceId | None = None


class Mailboxes:
    """The rendezvous and the channels of a run.

    Attributes:
        relayed: the device that sends to the host on a channel from which other devices receive.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all values."""
        self._rendezvous: dict[tuple[Hashable, int], dict[DeviceId, Any]] = {}
        self._visits: dict[tuple[DeviceId, Hashable], int] = {}
        self._channels: dict[Hashable, Channel] = {}
        self.relayed: dict[int, DeviceId] = {}

    def visit(self, device: DeviceId, place: Hashable) -> tuple[Hashable, int]:
        """Return the key of the next rendezvous of a device at a place: the place and a number."""
        number = self._visits.get((device, place), 0)
        self._visits[device, place] = number + 1
        return place, number

    def contributions(self, key: tuple[Hashable, int]) -> dict[DeviceId, Any]:
        """Return the values of the devices that have arrived at a rendezvous."""
        return self._rendezvous.setdefault(key, {})

    def close(self, key: tuple[Hashable, int]) -> None:
        """Forget a rendezvous, at which all have arrived."""
        self._rendezvous.pop(key, None)

    def channel(self, key: Hashable) -> Channel:
        """Return the channel of a key."""
        return self._channels.setdefault(key, Channel())

    def deliver(self, kind: str, key: Any, value: Any) -> None:
        """Store a value of another process: its share of an exchange, or a message of a channel."""
        if kind == "exchange":
            *visit, device = key
            self.contributions(tuple(visit))[device] = value
        else:
            channel, number = key
            self.channel(channel).messages[number] = value
