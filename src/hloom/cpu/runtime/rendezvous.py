"""Seats for the devices of one program: which of their collectives meet in native code, and where.

Devices that give the same operation, channel and group meet each other, the first time they come, the second
time ... A meeting is memory that all members know; `native_code/meeting.ll` says what lies in it. Collectives
stay with the host, which then tells what is wrong or waits in its own way, where a group does not fit the
shapes, where one of its members begins such an operation without waiting for it, and where a member has
none at all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, Final

from hloom.analysis.scalar_computations import applies_expressions
from hloom.buffers.buffers import leaves
from hloom.cpu.cores import available_cores
from hloom.cpu.kernels.collectives import FIRST_SEAT, MEETING, SEAT_WORDS
from hloom.errors import HloError
from hloom.evaluate.devices import VirtualDevice, World, name
from hloom.ir.device import DeviceId
from hloom.ir.device_groups import members_of
from hloom.ir.instruction import HloInstruction

_SPINS: Final = 4000
"""Looks before a thread sleeps, where every member can have a core: some 50 us."""
_ALIGNMENT: Final = 128
_GENERATION_AT: Final = 128
_SPINS_AT: Final = 260
Key = tuple[str, Any, tuple[DeviceId, ...]]


class Meeting:
    """The memory of a meeting.

    Attributes:
        members: in the order that counts.
        address: for native code.
    """

    def __init__(self, members: tuple[DeviceId, ...]) -> None:
        self.members = members
        self._size = FIRST_SEAT + 8 * len(members)
        self._memory = ctypes.create_string_buffer(self._size + _ALIGNMENT)
        start = ctypes.addressof(self._memory)
        self.address = -(-start // _ALIGNMENT) * _ALIGNMENT
        self.clear()

    def clear(self) -> None:
        """Nobody is there; for after a run that failed."""
        ctypes.memset(self.address, 0, self._size)
        spins = _SPINS if len(self.members) <= available_cores() else 0
        ctypes.c_int32.from_address(self.address + _SPINS_AT).value = spins

    @property
    def generation(self) -> int:
        """How often everybody has been there."""
        return ctypes.c_uint32.from_address(self.address + _GENERATION_AT).value

    @property
    def missing(self) -> list[DeviceId]:
        """Who does not sit there now."""
        seats = (ctypes.c_uint64 * len(self.members)).from_address(self.address + FIRST_SEAT)
        return [member for member, seat in zip(self.members, seats, strict=True) if not seat]


class Seat:
    """A device's place at a meeting, for one of its instructions.

    Args:
        meeting: where it is.
        device: whose.
        instruction: what it computes.
        form: a number for the types and sizes of its operands.
    """

    def __init__(
        self, meeting: Meeting, device: VirtualDevice, instruction: HloInstruction, form: int
    ) -> None:
        self._meeting, self._device, self._instruction = meeting, device, instruction
        places = len(instruction.operands) + len(leaves(instruction.shape))
        head = (meeting.address, meeting.members.index(device.id), len(meeting.members), form)
        self._words = (ctypes.c_uint64 * (SEAT_WORDS + places))(*head)
        self.address = ctypes.addressof(self._words)

    def wait(self, generation: int) -> None:
        """Wait until everybody was there; raises Stopped where that cannot come.

        A negative generation says that somebody came with other operands, which is an error.
        """
        what = f"{self._instruction.opcode} %{self._instruction.name}"
        if generation < 0:
            message = f"devices contribute different arrays: {what} of {name(self._device.id)} meets others"
            raise HloError(message, rule="collective.same-operands", instruction=self._instruction.name)
        world, meeting = self._device.world, self._meeting
        with world.condition:
            world.wait(
                self._device.id,
                lambda: meeting.generation != generation,
                lambda: f"{what} for {', '.join(map(name, meeting.missing))}",
                polls=True,
            )


class SeatingPlan:
    """All seats of a program's devices.

    Args:
        world: the devices.
        calls: for each device, replica-major, the instructions that may need the host; none where native
            code never asks.
    """

    def __init__(self, world: World, calls: Sequence[Sequence[HloInstruction]]) -> None:
        self._world = world
        self._meetings: dict[Key, Meeting] = {}
        self._forms: dict[object, int] = {}
        self._places = [dict(self._keys(d, own)) for d, own in zip(world.devices, calls, strict=True)]
        excluded = {kind for own in calls for i in own for kind in _begun(i)}
        present = [{key for key in place.values() if key is not None} for place in self._places]
        unfit = {
            (i.opcode, _channel(i)) for place, own in zip(self._places, calls, strict=True)
            for n, i in enumerate(own) if i.opcode in MEETING and place[n] is None
        }  # fmt: skip
        numbers = {device.id: n for n, device in enumerate(world.devices)}
        self._native = {
            key for keys in present for key in keys
            if key[0] not in excluded and key[:2] not in unfit
            and all(key in present[numbers[member]] for member in key[2])
        }  # fmt: skip
        self._calls = calls

    def seats(self, number: int) -> dict[int, Seat]:
        """The seats of a device, by the number of the call."""
        device, own = self._world.devices[number], self._calls[number]
        found: dict[int, Seat] = {}
        for call, key in self._places[number].items():
            if key is not None and key in self._native:
                meeting = self._meetings.get(key)
                if meeting is None:
                    meeting = self._meetings[key] = Meeting(key[2])
                    self._world.before_run.append(meeting.clear)
                form = tuple((o.shape.element_type, o.shape.dimensions) for o in own[call].operands)
                number_of_form = self._forms.setdefault(form, len(self._forms))
                found[call] = Seat(meeting, device, own[call], number_of_form)
        return found

    @staticmethod
    def _keys(device: VirtualDevice, calls: Sequence[HloInstruction]) -> Iterator[tuple[int, Key | None]]:
        """Where each collective of a device meets; None for one that the host must look at."""
        for n, i in enumerate(calls):
            if i.opcode in MEETING:
                yield n, _key(device, i)


def _key(device: VirtualDevice, i: HloInstruction) -> Key | None:
    operation: Any = i.operation
    try:
        members = members_of(operation.replica_groups.groups, operation.group_mode, device)
    except HloError:
        return None
    if members is None or not _fits(i, len(members)) or not applies_expressions(i):
        return None
    return i.opcode, operation.channel_id, members


def _channel(i: HloInstruction) -> Any:
    operation: Any = i.operation
    return operation.channel_id


def _fits(i: HloInstruction, count: int) -> bool:
    """Whether the shapes are those of a group of so many devices."""
    operation: Any = i.operation
    results = i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)
    pairs = [(o.shape.dimensions, r.dimensions) for o, r in zip(i.operands, results, strict=True)]
    match i.opcode:
        case "all-gather":
            d: int = operation.dimension
            return all(given[d] * count == made[d] for given, made in pairs)
        case "reduce-scatter":
            d = operation.scatter_dimensions[0]
            return all(given[d] == made[d] * count for given, made in pairs)
        case "all-to-all" if i.shape.is_array:
            d = operation.split_dimension[0]
            return i.shape.dimensions[d] % count == 0
        case "all-to-all":
            return len(i.operands) == count
        case _:
            return True


def _begun(i: HloInstruction) -> Iterator[str]:
    """The collectives that an instruction begins, or evaluates inside, without meeting natively."""
    if i.opcode.endswith("-start"):
        yield i.opcode.removesuffix("-start")
    if i.opcode == "async-start" or i.opcode == "custom-call":
        for computation in i.called_computations:
            for inner in computation.instructions:
                yield inner.opcode
                yield from _begun(inner)
