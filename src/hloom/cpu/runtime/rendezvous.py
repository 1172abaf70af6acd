"""Rendezvous of the devices of a program in native code.

A rendezvous is memory that all participants of a process address. Participants in other processes are
represented by stand-ins (`exchange.py`). `routines/rendezvous.py` is the native side.
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
"""Polls of the generation before a thread sleeps, if every device can have a core: some 10 us."""
_OTHER_FORM: Final = -1
"""Values that native code reports instead of a generation; steps of an exchange follow."""


class Rendezvous:
    """Memory of a rendezvous.

    Attributes:
        participants: in the order of the group.
        here: those of this process.
        crowded: this machine has fewer cores than devices, so that a thread that waits sleeps at once.
        address: as native code takes it.
    """

    def __init__(
        self, participants: tuple[DeviceId, ...], here: Sequence[DeviceId], *, crowded: bool
    ) -> None:
        self.participants, self.here, self.crowded = participants, here, crowded
        self._record = RENDEZVOUS.allocate(len(participants), spins=0 if crowded else _SPINS)
        self.address = self._record.address

    def clear(self) -> None:
        """Withdraw all participants; needed after a run that failed."""
        for counter in ("arrived", "generation", "sleepers"):
            self._record[counter] = 0
        for position in range(len(self.participants)):
            self._record.store("participants", position, 0)

    @property
    def generation(self) -> int:
        """Number of times that all participants have arrived."""
        return self._record["generation"]

    @property
    def missing(self) -> list[DeviceId]:
        """Devices of this process that have not arrived."""
        return [
            device
            for position, device in enumerate(self.participants)
            if device in self.here and not self._record.load("participants", position)
        ]


class Participant:
    """Record of a device in a rendezvous, for one of its instructions.

    Args:
        rendezvous: the rendezvous.
        device: the device.
        instruction: the collective.
        form: a number for the types and sizes of the operands; equal for all participants if they fit.
        exchange: how participants in other processes get the operands; None if there are none.
        source: the position of the participant whose operand a permutation brings here; None if it is none.
        fiber: address of the device's fiber; 0 if it has a thread of its own.

    Attributes:
        address: as native code takes it.
    """

    def __init__(
        self,
        rendezvous: Rendezvous,
        device: VirtualDevice,
        instruction: HloInstruction,
        form: int,
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
            form=form,
            local=len(rendezvous.here),
            exchange=exchange.address if exchange is not None else 0,
            source=NO_SOURCE if source is None else source,
            fiber=fiber,
        )
        self.address = self._record.address

    def wait(self, generation: int) -> None:
        """Wait until all have arrived; raises Stopped if that is impossible.

        A negative generation reports a participant with other operands, which raises HloError, or a step of
        an exchange that takes long.
        """
        if generation == _OTHER_FORM:
            raise self.mismatch()
        if generation < 0:
            self._wait_for_messages(_OTHER_FORM - generation)
            return
        world, rendezvous = self._device.world, self._rendezvous
        with world.waiting.condition:
            world.waiting.wait(
                self._device.id, lambda: rendezvous.generation != generation, self.describe, polls=True
            )

    def describe(self) -> str:
        """Return the instruction and the devices that it waits for."""
        return f"{self._what} for {', '.join(map(self._device.world.name, self._awaited()))}"

    def mismatch(self) -> HloError:
        """Return the error for a participant whose operands do not fit those of others."""
        name_of_device = device_name(self._device.id)
        message = f"devices contribute different arrays: {self._what} of {name_of_device} meets others"
        return HloError(message, rule="collective.same-operands", instruction=self._instruction.name)

    @property
    def _what(self) -> str:
        return f"{self._instruction.opcode} %{self._instruction.name}"

    def _wait_for_messages(self, step: int) -> None:
        """Wait until a step of the exchange ends."""
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
            keep_for_ever(exchange)  # MPI may still read what was sent from its memory
            raise

    def _awaited(self) -> list[DeviceId]:
        """Return the devices that have not arrived, as far as this process knows."""
        missing = self._rendezvous.missing
        peers = self._device.world.peers
        if missing or self._exchange is None or peers is None:
            return missing
        ranks = self._exchange.awaited
        return [device for device in self._rendezvous.participants if peers.owners[device] in ranks]


def array_count(i: HloInstruction) -> int:
    """Return the number of addresses in a participant record: operands, then leaves of the result."""
    return len(i.operands) + len(leaves(i.shape))
