"""The collectives of a program that run in native code, and their participants.

Devices that execute a collective of equal opcode, channel and group meet in one rendezvous. Python runs a
collective, and reports its errors, if the shapes do not fit the group, or if a participant executes it
asynchronously or not at all. Processes exchange lists of their collectives when they load a program, so that
all processes choose the same collectives.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from hloom.analysis.instructions import operation_of
from hloom.analysis.scalar_computations import applies_expressions
from hloom.buffers.buffers import leaves
from hloom.cpu.runtime.context import NATIVE_COLLECTIVES
from hloom.cpu.runtime.exchange import Exchange, mpi_record
from hloom.cpu.runtime.exchange_plan import ExchangePlan, plan_exchange
from hloom.cpu.runtime.rendezvous import Participant, Rendezvous, array_count
from hloom.devices.peers import Peers
from hloom.devices.world import VirtualDevice, World
from hloom.errors import HloError
from hloom.ir.device import DeviceId
from hloom.ir.device_groups import group_mode, members_of
from hloom.ir.instruction import HloInstruction
from hloom.operations.collectives import AllGather, Collective, ReduceScatter
from hloom.operations.exchanges import AllToAll, CollectivePermute
from hloom.operations.rooted_collectives import CollectiveBroadcast, has_first_root
from hloom.runtime.cores import available_cores

Key: TypeAlias = "tuple[str, int | None, tuple[DeviceId, ...]]"
"""Opcode, channel and participants of a rendezvous."""
Signature: TypeAlias = "tuple[object, ...]"
"""Types and sizes of the operands and results of a collective, and the pairs of a permutation."""


class _Offer(NamedTuple):
    """The collectives that the devices of one process can run in native code, to compare between processes.

    Attributes:
        signatures: by device and rendezvous (opcode, channel and participants), the array types and sizes of
            its collectives, in program order.
        unfit: the (opcode, channel) of each collective that Python must run.
    """

    signatures: dict[DeviceId, dict[Key, list[Signature]]]
    unfit: set[tuple[str, int | None]]


class RendezvousPlan:
    """Decides which collectives of a program run in native code, and creates what their devices share.

    They share a rendezvous for each group of devices that meet in a collective, and MPI messages.

    Args:
        world: the devices.
        calls: for each device, replica-major, the host calls of its program: the instructions that may call
            Python, collectives among them.
    """

    def __init__(self, world: World, calls: Sequence[Sequence[HloInstruction]]) -> None:
        self._world, self._calls = world, calls
        self._keys_of = [
            dict(_keys(d, calls_here)) for d, calls_here in zip(world.devices, calls, strict=True)
        ]
        offers = self._offers()
        every = (each for offer in offers for keys in offer.signatures.values() for each in keys.values())
        self._signature_ids = {s: n for n, s in enumerate(dict.fromkeys(s for each in every for s in each))}
        self._native = _agreed(offers)
        self._rendezvous: dict[Key, Rendezvous] = {}
        self._exchanges: dict[tuple[Key, int], Exchange] = {}
        self._crowded = _devices_on_this_machine(world) > available_cores()
        if world.peers is not None:
            self._prepare_exchanges(world.peers)

    def participants(self, number: int, fiber: int = 0) -> dict[int, Participant]:
        """Return a `Participant` for each collective that a device runs in native code.

        The keys are the indices of the collectives among the host calls of the device's program. ``number``
        is the index of the device in its world, ``fiber`` the address of its fiber (its stack in a gang), 0
        if it has its own thread.
        """
        device = self._world.devices[number]
        records: dict[int, Participant] = {}
        for call, key, i in self._native_calls(number):
            signature_id = self._signature_ids[_signature(i)]
            exchange = self._exchanges.get((key, signature_id))
            source = _sources(i, key[2])[key[2].index(device.id)]
            records[call] = Participant(self._meeting(key), device, i, signature_id, exchange, source, fiber)
        return records

    def _native_calls(self, number: int) -> Iterator[tuple[int, Key, HloInstruction]]:
        for call, key in self._keys_of[number].items():
            if key is not None and key in self._native:
                yield call, key, self._calls[number][call]

    def _meeting(self, key: Key) -> Rendezvous:
        rendezvous = self._rendezvous.get(key)
        if rendezvous is None:
            local = {device.id for device in self._world.devices}
            here = [device for device in key[2] if device in local]
            rendezvous = Rendezvous(key[2], here, crowded=self._crowded)
            self._rendezvous[key] = rendezvous
            self._world.before_run.append(rendezvous.clear)
        return rendezvous

    def _offers(self) -> list[_Offer]:
        """Return the offer of each process: the collectives that its devices can run in native code.

        If all processes run the same program, this process computes all offers; otherwise the processes
        exchange them.
        """
        world, peers = self._world, self._world.peers
        if peers is None or not peers.transport.is_uniform:
            offer = self._offer(world.devices, self._keys_of, self._calls)
            return [offer] if peers is None else peers.transport.all_gather(offer)
        devices = [VirtualDevice(world, device) for device in peers.owners]
        calls = self._calls[0]
        return [self._offer(devices, [dict(_keys(d, calls)) for d in devices], [calls] * len(devices))]

    @staticmethod
    def _offer(
        devices: Sequence[VirtualDevice],
        keys_of: Sequence[dict[int, Key | None]],
        calls: Sequence[Sequence[HloInstruction]],
    ) -> _Offer:
        """Return the offer of some devices: the collectives that they can run in native code.

        Args:
            devices: the devices.
            keys_of: for each device, the collectives among its host calls: index of the call to (opcode,
                channel, participants), or to None if native code cannot run the collective.
            calls: for each device, the host calls of its program: the instructions that may call Python.
        """
        offer = _Offer({}, set())
        for device, keys, instructions in zip(devices, keys_of, calls, strict=True):
            signatures = offer.signatures[device.id] = {}
            for n, key in keys.items():
                if key is None:
                    offer.unfit.add((instructions[n].opcode, _channel(instructions[n])))
                else:
                    signatures.setdefault(key, []).append(_signature(instructions[n]))
            offer.unfit.update(kind for i in instructions for kind in _python_operations(i))
        return offer

    # -- other processes

    def _prepare_exchanges(self, peers: Peers) -> None:
        """Create the exchanges of messages for the collectives whose devices are in several processes.

        Without MPI functions, leaves all these collectives to Python; else those for which no MPI tag is
        left.
        """
        divided = [key for key in self._native if len({peers.owners[member] for member in key[2]}) > 1]
        functions = peers.transport.functions() if divided else None
        most = 0 if functions is None else functions.most_tags
        for key in divided[most:]:
            del self._native[key]
        if functions is None:
            return
        mpi = mpi_record(functions)

        def set_communicator() -> None:
            mpi["communicator"] = functions.communicator

        self._world.before_run.append(set_communicator)
        tags = {key: tag for tag, key in enumerate(divided[:most])}
        plans: dict[tuple[Key, int], tuple[ExchangePlan, HloInstruction]] = {}
        for number in range(len(self._world.devices)):
            for _, key, i in self._native_calls(number):
                key_and_id = key, self._signature_ids[_signature(i)]
                if key in tags and key_and_id not in plans:
                    owners = [peers.owners[member] for member in key[2]]
                    plans[key_and_id] = plan_exchange(i, owners, peers.rank, _sources(i, key[2])), i
        memory = self._shared_memory({key_and_id: plan.size for key_and_id, (plan, _) in plans.items()})
        for (key, signature_id), (plan, i) in plans.items():
            self._exchanges[key, signature_id] = Exchange(
                plan,
                mpi,
                self._meeting(key).address,
                participants=len(key[2]),
                arrays=array_count(i),
                signature_id=signature_id,
                tag=tags[key],
                memory=memory[self._first(key)],
                crowded=self._crowded,
            )

    def _first(self, key: Key) -> DeviceId:
        """Return the first participant of a rendezvous in this process; messages use its block of memory."""
        return self._meeting(key).here[0]

    def _shared_memory(self, sizes: dict[tuple[Key, int], int]) -> dict[DeviceId, mmap.mmap]:
        """Map a block of memory for the messages of each device that is the first one of some rendezvous.

        Returns the blocks by device. First means the first participant in this process. All rendezvous with
        the same first device share its block, as they never overlap in time. The system allocates a page when
        it is first written.

        Args:
            sizes: the bytes of each exchange's messages, by rendezvous and by the number that identifies the
                operands' types and sizes.
        """
        largest: dict[DeviceId, int] = {}
        for (key, _), size in sizes.items():
            first = self._first(key)
            largest[first] = max(size, largest.get(first, 1))
        return {first: mmap.mmap(-1, size) for first, size in largest.items()}


def _devices_on_this_machine(world: World) -> int:
    peers = world.peers
    if peers is None:
        return len(world.devices)
    return sum(peers.hosts[owner] == peers.hosts[peers.rank] for owner in peers.owners.values())


def _agreed(offers: Sequence[_Offer]) -> dict[Key, None]:
    """Return the rendezvous (opcode, channel, participants) that native code can run on all participants.

    They are the keys of the returned dict, in an order that is the same in all processes.
    """
    present = {device: keys for offer in offers for device, keys in offer.signatures.items()}
    unfit = {kind for offer in offers for kind in offer.unfit}

    def is_offered_by_all(key: Key) -> bool:
        return key[:2] not in unfit and all(key in present.get(member, ()) for member in key[2])

    return dict.fromkeys(key for keys in present.values() for key in keys if is_offered_by_all(key))


def _keys(device: VirtualDevice, calls: Sequence[HloInstruction]) -> Iterator[tuple[int, Key | None]]:
    """Yield (n, key) for each collective ``calls[n]`` among the instructions that may call Python.

    The key of the rendezvous is (opcode, channel, participants); None if only Python can run the collective.
    """
    for n, i in enumerate(calls):
        if i.opcode in NATIVE_COLLECTIVES:
            yield n, _key(device, i)


def _signature(i: HloInstruction) -> Signature:
    """Return what must be equal for all participants of a collective.

    That is the types and sizes of its operands and results, and the pairs of a collective-permute.
    """
    shapes = [o.shape for o in i.operands] + [s for _, s in leaves(i.shape)]
    pairs = getattr(i.operation, "source_target_pairs", ())
    return (*pairs, *((shape.element_type.name, shape.dimensions) for shape in shapes))


def _channel(i: HloInstruction) -> int | None:
    return getattr(i.operation, "channel_id", None)


def _key(device: VirtualDevice, i: HloInstruction) -> Key | None:
    try:
        members = _members(device, i)
    except HloError:
        return None
    if members is None or not _fits(i, len(members)) or not applies_expressions(i):
        return None
    return i.opcode, _channel(i), members


def _members(device: VirtualDevice, i: HloInstruction) -> tuple[DeviceId, ...] | None:
    """Return the participants of a collective; None if native code does not support it.

    For a collective-permute these are the devices that its source-target pairs connect with ``device``,
    directly or through others.
    """
    if isinstance(i.operation, Collective):
        return members_of(i.operation.replica_groups.groups, i.operation.group_mode, device)
    operation = operation_of(i, CollectivePermute)
    numbers = {number for pair in operation.source_target_pairs for number in pair}
    across = group_mode(operation.channel_id, None) == "cross_partition"
    count = device.num_partitions if across else device.num_replicas
    if operation.slice_sizes or any(number >= count for number in numbers):
        return None
    coordinate = device.id[1 if across else 0]
    return tuple(
        [_with_number(device.id, n, across) for n in _connected(operation.source_target_pairs, coordinate)]
    )


def _with_number(device: DeviceId, number: int, across: bool) -> DeviceId:
    """Return a device id whose partition (if ``across``) or replica is replaced by ``number``."""
    return (device[0], number) if across else (number, device[1])


def _connected(pairs: tuple[tuple[int, int], ...], number: int) -> tuple[int, ...]:
    """Return ``number`` and all numbers connected to it in the graph with edges ``pairs``, ascending."""
    return _components(pairs).get(number, (number,))


@lru_cache(maxsize=256)
def _components(pairs: tuple[tuple[int, int], ...]) -> dict[int, tuple[int, ...]]:
    groups: dict[int, set[int]] = {}
    for a, b in pairs:
        merged = groups.get(a, {a}) | groups.get(b, {b})
        groups.update(dict.fromkeys(merged, merged))
    return {number: tuple(sorted(group)) for number, group in groups.items()}


def _sources(i: HloInstruction, members: Sequence[DeviceId]) -> list[int | None]:
    """Return, for each participant of a collective-permute, the position in ``members`` of its source.

    None marks a participant that receives zeros. For other collectives, all are None.
    """
    if not isinstance(i.operation, CollectivePermute):
        return [None] * len(members)
    across = group_mode(i.operation.channel_id, None) == "cross_partition"
    positions = {member: n for n, member in enumerate(members)}
    sources: list[int | None] = [None] * len(members)
    for source, target in i.operation.source_target_pairs:
        position = positions.get(_with_number(members[0], target, across))
        if position is not None:
            sources[position] = positions[_with_number(members[0], source, across)]
    return sources


def _fits(i: HloInstruction, count: int) -> bool:
    """Return whether native code can run a collective in a group of ``count`` devices, by its shapes.

    The sizes of operands and results must fit the number of devices; a collective-broadcast must have one
    operand.
    """
    results = i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)
    pairs = [(o.shape.dimensions, r.dimensions) for o, r in zip(i.operands, results, strict=False)]
    match i.operation:
        case AllGather(dimension=d):
            return all(operand[d] * count == result[d] for operand, result in pairs)
        case ReduceScatter(scatter_dimensions=(d,)):
            return all(operand[d] == result[d] * count for operand, result in pairs)
        case AllToAll(split_dimension=(d,)) if i.shape.is_array:
            return i.shape.dimensions[d] % count == 0
        case AllToAll():
            return len(i.operands) == count
        case CollectiveBroadcast():
            return has_first_root(i)
        case _:
            return True


def _python_operations(i: HloInstruction) -> Iterator[tuple[str, int | None]]:
    """Yield (opcode, channel) of the operations that Python runs when it evaluates instruction ``i``.

    They are the one that a ``-start`` instruction starts, and those in computations that an async-start or a
    custom call calls. If one is a collective, native code cannot run it.
    """
    if i.opcode.endswith("-start"):
        yield i.opcode.removesuffix("-start"), _channel(i)
    if i.opcode == "async-start" or i.opcode == "custom-call":
        for computation in i.called_computations:
            for inner in computation.instructions:
                yield inner.opcode, _channel(inner)
                yield from _python_operations(inner)
