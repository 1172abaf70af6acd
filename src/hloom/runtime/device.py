"""Devices of an executable, from the host's side."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import numpy as np

from hloom.devices.world import VirtualDevice
from hloom.ir.value import Value
from hloom.runtime.arguments import Outgoing
from hloom.shape.literal import Literal


class Device:
    """One replica and partition of an executable.

    Queues keep their values between runs. During a run in another thread, functions that return a value wait
    for it.

    Attributes:
        replica, partition: its ids.
    """

    def __init__(self, device: VirtualDevice) -> None:
        self._device = device
        self.replica, self.partition = device.id

    def __repr__(self) -> str:
        return f"Device(replica={self.replica}, partition={self.partition})"

    def transfer_to_infeed(self, value: object) -> None:
        """Put a value, a literal, array, number or nested tuple, into the infeed queue of this device."""
        self._device.put_infeed(_value(value))

    def transfer_from_outfeed(self) -> Any:
        """Return the next value, a numpy array or nested tuple, from the outfeed queue of this device.

        Raises EvaluationError if there is none and nothing runs.
        """
        return Outgoing()(self._device.take(self._device.outfeed_queue, "the outfeed"))

    def transfer_to_channel(self, channel: int, value: object) -> None:
        """Append a value to the queue from which ``recv`` of this device reads on a channel."""
        self._device.put_channel(channel, _value(value))

    def transfer_from_channel(self, channel: int) -> Any:
        """Return the next value that a ``send`` of this device put into a channel to the host.

        Raises EvaluationError if there is none and nothing runs.
        """
        queue: deque[Value] = self._device.to_host.setdefault(channel, deque())
        return Outgoing()(self._device.take(queue, f"channel {channel}"))


def _value(value: Any) -> Value:
    """Return a value of its own shape; Python numbers become pred, s32, f32 or c64 as in a `Literal`."""
    if isinstance(value, tuple):
        return tuple(_value(element) for element in cast("tuple[object, ...]", value))
    if not isinstance(value, (Literal, np.ndarray, np.generic, bool, int, float, complex, list)):
        value = np.asarray(value)
    return Literal(value).numpy()
