"""The devices of an executable, as the host sees them."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import numpy as np

from hloom.evaluate.devices import VirtualDevice
from hloom.runtime.arguments import Outgoing
from hloom.shape.literal import Literal


class Device:
    """One replica and partition of an executable.

    Values stay in the queues between runs. While a run goes on in another thread, what takes a value waits
    for it.

    Attributes:
        replica, partition: which one.
    """

    def __init__(self, device: VirtualDevice) -> None:
        self._device = device
        self.replica, self.partition = device.id

    def __repr__(self) -> str:
        return f"Device(replica={self.replica}, partition={self.partition})"

    def transfer_to_infeed(self, value: Any) -> None:
        """Give a value to the next ``infeed`` of this device: literal, array, number or nested tuple."""
        self._device.put_infeed(_value(value))

    def transfer_from_outfeed(self) -> Any:
        """The next value that an ``outfeed`` of this device gave: a numpy array or nested tuple.

        Raises EvaluationError if there is none and nothing runs.
        """
        return Outgoing()(self._device.take(self._device.outfeed_queue, "the outfeed"))

    def transfer_to_channel(self, channel: int, value: Any) -> None:
        """Give a value to the next ``recv`` of this device from the host on a channel."""
        self._device.put_channel(channel, _value(value))

    def transfer_from_channel(self, channel: int) -> Any:
        """The next value that a ``send`` of this device to the host put into a channel.

        Raises EvaluationError if there is none and nothing runs.
        """
        queue: deque[Any] = self._device.to_host.setdefault(channel, deque())
        return Outgoing()(self._device.take(queue, f"channel {channel}"))


def _value(value: Any) -> Any:
    """A value of its own shape; Python numbers become pred, s32, f32 or c64 as in a `Literal`."""
    if isinstance(value, tuple):
        return tuple(_value(element) for element in cast("tuple[Any, ...]", value))
    if not isinstance(value, (Literal, np.ndarray, np.generic, bool, int, float, complex, list)):
        value = np.asarray(value)
    return Literal(value).numpy()
