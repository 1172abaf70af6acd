"""Rendezvous of devices for collectives that run in native code.

The participants of a process share the memory of a rendezvous; stand-ins represent participants of other
processes (`exchange.py`). `routines/rendezvous.py` is the native side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloom.buffers.buffers import leaves
from hloom.cpu.runtime.device_structs import NO_SOURCE, PARTICIPANT, RENDEZVOUS
from hloom.cpu.runtime.exchange import Exchange
from hloom.devices.waiting import device_name
from hloom.devices.world import VirtualDevice
from hloom.errors import EvaluationError, HloError
from hloom.ir.device import DeviceId
from hloom.ir.instruction import HloInstruction
from hloom.lifetime import keep_for_ever

_SPINS: Final = 800
"""Polls of the generation before a thread sleeps, about 10 us; 0 if devices outnumber cores."""
_OTHER_SIGNATURE: Final = -1
"""Reported instead of a generation: operands differ. Lower numbers are steps of an exchange."""


class Rendezvous:
    """A C struct by which the devices of one group wait for each other in collectives of native code.

    Args:
        participants: the devices in the order of the group.
        here: those of them that this process runs.
        crowded: whether devices outnumber cores, so that waiting threads sleep at once.

    Attributes:
        address: the address of the struct `RENDEZVOUS`.
    """

    def __init__(
        self, participants: tuple[DeviceId, ...], here: Sequence[DeviceId], *, crowded: bool
    ) -> None:
        self.participants, self.here = participants, here
        self._record = RENDEZVOUS.allocate(len(participants), spins=0 if crowded else _SPINS)
        self.address = self._record.address

    def clear(self) -> None:
        """Empty the rendezvous after a failed run: reset its counters and remove arrived participants."""
        for counter in ("arrived", "generation", "sleepers"):
            self._record[counter] = 0
        for position in range(len(self.participants)):
            self._record.store("participants", position, 0)

    @property
    def generation(self) -> int:
        """The number of times that all participants have met at this rendezvous."""
        return self._record["generation"]

    @property
    def missing(self) -> list[DeviceId]:
        """The devices of this process that have not arrived at the rendezvous, in the order of the group."""
        return [
            device
            for position, device in enumerate(self.participants)
            if device in self.here and not self._record.load("participants", position)
        ]


class Participant:
    """A C struct by which one device takes part in one of its collectives that run in native code.

    Other devices read the addresses of the device's arrays in it.

    Args:
        rendezvous: the place where the devices of the group meet.
        device: the device.
        instruction: the collective.
        signature_id: the number that identifies the operands' types and sizes, equal for all participants.
        exchange: the messages to and from other processes; None if all participants are in this process.
        source: the position of the participant that a collective-permute copies from; None for zeros.
        fiber: the address of the device's fiber; 0 if the device has its own thread.

    Attributes:
        address: the address of the struct `PARTICIPANT`.
    """

    def __init__(
        self,
        rendezvous: Rendezvous,
        device: VirtualDevice,
        instruction: HloInstruction,
        signature_id: int,
        exchange: Exchange | None,
        source: int | None = None,
        fiber: int = 0,
    ) -> None:
        self._rendezvous, self._device, self._instruction = rendezvous, device, instruction
        self._exchange = exchange
        participants = rendezvous.participants
        self._record = PARTICIPANT.allocate(
            array_count(instruction),
            rendezvous=rendezvous.address,
            position=participants.index(device.id),
            count=len(participants),
            signature_id=signature_id,
            local=len(rendezvous.here),
            exchange=exchange.address if exchange is not None else 0,
            source=NO_SOURCE if source is None else source,
            fiber=fiber,
        )
        self.address = self._record.address

    def wait(self, generation: int) -> None:
        """Wait until all participants of this device's collective have arrived; native code calls this.

        ``generation`` is the number of meetings before this device arrived. It is negative in two other
        cases: -1 if operand types or sizes differ between participants, for which HloError is raised; and -2
        or -3 to wait until step 1 or 2 of the exchange with other processes is complete. Raises Stopped if a
        participant cannot arrive any more.
        """
        if generation == _OTHER_SIGNATURE:
            raise self.mismatch()
        if generation < 0:
            self._wait_for_messages(_OTHER_SIGNATURE - generation)
            return
        world, rendezvous = self._device.world, self._rendezvous
        with world.waiting.condition:
            world.waiting.wait(
                self._device.id, lambda: rendezvous.generation != generation, self.describe, polls=True
            )

    def describe(self) -> str:
        """Return a text for errors: the device's collective, and the devices for which it waits there."""
        return f"{self._what} for {', '.join(map(self._device.world.name, self._awaited()))}"

    def mismatch(self) -> HloError:
        """Return the error to raise if the collective's operands differ in type or size between devices."""
        name_of_device = device_name(self._device.id)
        message = f"devices contribute different arrays: {self._what} of {name_of_device} meets others"
        return HloError(message, rule="collective.same-operands", instruction=self._instruction.name)

    @property
    def _what(self) -> str:
        return f"{self._instruction.opcode} %{self._instruction.name}"

    def _wait_for_messages(self, step: int) -> None:
        """Wait until step 1 or 2 of the collective's exchange of arrays with other processes is complete.

        Raises EvaluationError if the step fails.
        """
        world, exchange = self._device.world, self._exchange
        assert exchange is not None and world.peers is not None
        try:
            with world.waiting.condition:
                world.waiting.wait(
                    self._device.id, lambda: exchange.is_complete(step), self.describe, polls=True
                )
            if exchange.error:
                text = world.peers.transport.describe_error(exchange.error)
                what = f"the operands of {self._what}, which may differ in size"
                message = f"processes could not exchange {what}: {text}"
                raise EvaluationError(message, rule="processes.exchange", instruction=self._instruction.name)
        except BaseException:
            for request in exchange.pending_receives:
                world.peers.transport.withdraw(request)
            keep_for_ever(exchange)  # MPI may still read its send buffers
            raise

    def _awaited(self) -> list[DeviceId]:
        """Return the devices for which this one waits in its collective, as far as this process knows.

        They are the devices of this process that have not arrived, or, if all have, those of the processes
        with which messages are not complete.
        """
        missing = self._rendezvous.missing
        peers = self._device.world.peers
        if missing or self._exchange is None or peers is None:
            return missing
        ranks = self._exchange.awaited
        return [device for device in self._rendezvous.participants if peers.owners[device] in ranks]


def array_count(i: HloInstruction) -> int:
    """Return the number of arrays that a device publishes for a collective: its operands and results."""
    return len(i.operands) + len(leaves(i.shape))
