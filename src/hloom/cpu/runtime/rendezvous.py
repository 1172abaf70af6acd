"""Rendezvous of the devices of a program: which collectives run in native code, with which participants.

Devices that execute a collective with the same opcode, channel and group take part in one rendezvous, once
per execution. A rendezvous is memory that all participants address; its layout is in
`native_code/rendezvous.ll`. A collective is left to the host, which then reports the error or waits in its
own way, if the shapes do not fit the group, if a participant starts the operation asynchronously, or if one
does not execute it at all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.analysis.scalar_computations import applies_expressions
from hloom.buffers.buffers import leaves
from hloom.cpu.cores import available_cores
from hloom.cpu.runtime.context import FIRST_PARTICIPANT, NATIVE_COLLECTIVES, PARTICIPANT_WORDS
from hloom.errors import HloError
from hloom.evaluate.devices import VirtualDevice, World, name
from hloom.ir.device import DeviceId
from hloom.ir.device_groups import members_of
from hloom.ir.instruction import HloInstruction
from hloom.operations.collectives import AllGather, Collective, ReduceScatter
from hloom.operations.exchanges import AllToAll

_SPINS: Final = 4000
"""Polls of the generation before a thread sleeps, if every participant can have a core: some 50 us."""
_ALIGNMENT: Final = 128
_GENERATION_AT: Final = 128
_SPINS_AT: Final = 260
Key = tuple[str, int | None, tuple[DeviceId, ...]]
"""Opcode, channel and participants."""


class Rendezvous:
    """Memory of a rendezvous.

    Attributes:
        participants: in the order of the group.
        address: as native code takes it.
    """

    def __init__(self, participants: tuple[DeviceId, ...]) -> None:
        self.participants = participants
        self._size = FIRST_PARTICIPANT + 8 * len(participants)
        self._memory = ctypes.create_string_buffer(self._size + _ALIGNMENT)
        start = ctypes.addressof(self._memory)
        self.address = -(-start // _ALIGNMENT) * _ALIGNMENT
        self.clear()

    def clear(self) -> None:
        """Withdraw all participants; needed after a run that failed."""
        ctypes.memset(self.address, 0, self._size)
        spins = _SPINS if len(self.participants) <= available_cores() else 0
        ctypes.c_int32.from_address(self.address + _SPINS_AT).value = spins

    @property
    def generation(self) -> int:
        """Number of times that all participants have arrived."""
        return ctypes.c_uint32.from_address(self.address + _GENERATION_AT).value

    @property
    def missing(self) -> list[DeviceId]:
        """Devices that have not arrived."""
        records = (ctypes.c_uint64 * len(self.participants)).from_address(self.address + FIRST_PARTICIPANT)
        return [device for device, record in zip(self.participants, records, strict=True) if not record]


class Participant:
    """Record of a device in a rendezvous, for one of its instructions.

    Args:
        rendezvous: the rendezvous.
        device: the device.
        instruction: the collective.
        form: a number for the types and sizes of the operands; equal for all participants if they fit.
    """

    def __init__(
        self, rendezvous: Rendezvous, device: VirtualDevice, instruction: HloInstruction, form: int
    ) -> None:
        self._rendezvous, self._device, self._instruction = rendezvous, device, instruction
        addresses = len(instruction.operands) + len(leaves(instruction.shape))
        participants = rendezvous.participants
        head = (rendezvous.address, participants.index(device.id), len(participants), form)
        self._words = (ctypes.c_uint64 * (PARTICIPANT_WORDS + addresses))(*head)
        self.address = ctypes.addressof(self._words)

    def wait(self, generation: int) -> None:
        """Wait until all have arrived; raises Stopped if that is impossible.

        A negative generation reports a participant with other operands, which raises HloError.
        """
        what = f"{self._instruction.opcode} %{self._instruction.name}"
        if generation < 0:
            message = f"devices contribute different arrays: {what} of {name(self._device.id)} meets others"
            raise HloError(message, rule="collective.same-operands", instruction=self._instruction.name)
        world, rendezvous = self._device.world, self._rendezvous
        with world.condition:
            world.wait(
                self._device.id,
                lambda: rendezvous.generation != generation,
                lambda: f"{what} for {', '.join(map(name, rendezvous.missing))}",
                polls=True,
            )


class RendezvousPlan:
    """All participant records of a program's devices.

    Args:
        world: the devices.
        calls: for each device, replica-major, the instructions that may call the host; empty for a program
            that never does.
    """

    def __init__(self, world: World, calls: Sequence[Sequence[HloInstruction]]) -> None:
        self._world = world
        self._rendezvous: dict[Key, Rendezvous] = {}
        self._forms: dict[object, int] = {}
        self._keys_of = [dict(self._keys(d, own)) for d, own in zip(world.devices, calls, strict=True)]
        excluded = {kind for own in calls for i in own for kind in _begun(i)}
        present = [{key for key in keys.values() if key is not None} for keys in self._keys_of]
        unfit = {
            (i.opcode, operation_of(i, Collective).channel_id)
            for keys, own in zip(self._keys_of, calls, strict=True)
            for n, i in enumerate(own) if i.opcode in NATIVE_COLLECTIVES and keys[n] is None
        }  # fmt: skip
        numbers = {device.id: n for n, device in enumerate(world.devices)}
        self._native = {
            key for keys in present for key in keys
            if key[0] not in excluded and key[:2] not in unfit
            and all(member in numbers and key in present[numbers[member]] for member in key[2])
        }  # fmt: skip
        self._calls = calls

    def participants(self, number: int) -> dict[int, Participant]:
        """Return the participant records of a device, by the number of the host call."""
        device, own = self._world.devices[number], self._calls[number]
        found: dict[int, Participant] = {}
        for call, key in self._keys_of[number].items():
            if key is not None and key in self._native:
                rendezvous = self._rendezvous.get(key)
                if rendezvous is None:
                    rendezvous = self._rendezvous[key] = Rendezvous(key[2])
                    self._world.before_run.append(rendezvous.clear)
                form = tuple((o.shape.element_type, o.shape.dimensions) for o in own[call].operands)
                number_of_form = self._forms.setdefault(form, len(self._forms))
                found[call] = Participant(rendezvous, device, own[call], number_of_form)
        return found

    @staticmethod
    def _keys(device: VirtualDevice, calls: Sequence[HloInstruction]) -> Iterator[tuple[int, Key | None]]:
        """Yield the rendezvous of each collective of a device; None for one that is left to the host."""
        for n, i in enumerate(calls):
            if i.opcode in NATIVE_COLLECTIVES:
                yield n, _key(device, i)


def _key(device: VirtualDevice, i: HloInstruction) -> Key | None:
    operation = operation_of(i, Collective)
    try:
        members = members_of(operation.replica_groups.groups, operation.group_mode, device)
    except HloError:
        return None
    if members is None or not _fits(i, len(members)) or not applies_expressions(i):
        return None
    return i.opcode, operation.channel_id, members


def _fits(i: HloInstruction, count: int) -> bool:
    """Return true if the shapes are those of a group of ``count`` devices."""
    results = i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)
    pairs = [(o.shape.dimensions, r.dimensions) for o, r in zip(i.operands, results, strict=True)]
    match i.operation:
        case AllGather(dimension=d):
            return all(given[d] * count == made[d] for given, made in pairs)
        case ReduceScatter(scatter_dimensions=(d,)):
            return all(given[d] == made[d] * count for given, made in pairs)
        case AllToAll(split_dimension=(d,)) if i.shape.is_array:
            return i.shape.dimensions[d] % count == 0
        case AllToAll():
            return len(i.operands) == count
        case _:
            return True


def _begun(i: HloInstruction) -> Iterator[str]:
    """Yield the collectives that an instruction starts, or that the host evaluates inside of it."""
    if i.opcode.endswith("-start"):
        yield i.opcode.removesuffix("-start")
    if i.opcode == "async-start" or i.opcode == "custom-call":
        for computation in i.called_computations:
            for inner in computation.instructions:
                yield inner.opcode
                yield from _begun(inner)
