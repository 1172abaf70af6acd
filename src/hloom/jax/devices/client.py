"""The client of a platform, its devices and their memories.

All devices are virtual devices on this machine's processor. Each has three memory spaces, ``device``,
``pinned_host`` and ``unpinned_host``, all of which are the machine's memory.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from typing import Final

from hloom.errors import plural
from hloom.jax.devices.processes import Processes, connect
from hloom.jax.pjrt import abi
from hloom.jax.pjrt.api import implements
from hloom.jax.pjrt.errors import INVALID_ARGUMENT, PjrtError
from hloom.jax.pjrt.handles import CArray, Handle, SizedMemory, Text, object_at
from hloom.jax.pjrt.native import native
from hloom.jax.pjrt.structs import CLIENT, DESCRIPTION, DEVICE, MEMORY, TOPOLOGY
from hloom.jaxlib import private
from hloom.lifetime import keep_for_ever
from hloom.regex import regex

MEMORY_KINDS: Final = ("device", "pinned_host", "unpinned_host")
_STRING, _INTEGER, _INTEGERS, _FLOAT, _BOOLEAN = range(5)
"""PJRT's types of named values."""
_FLAG: Final = regex(r"--?xla_force_host_platform_device_count=(\d+)")


class ClientMemory(Handle):
    """A memory space of a device, a PJRT_Memory.

    Its attributes are ``id``, unique among the memories of all devices, and ``kind``, one of `MEMORY_KINDS`.
    """

    def __init__(self, device: ClientDevice, number: int) -> None:
        super().__init__(MEMORY)
        self.id = len(MEMORY_KINDS) * device.id + number
        self.kind = MEMORY_KINDS[number]
        self.set(
            device=device.handle,
            devices=CArray([device.handle]),
            id=self.id,
            kind_number=number,
            kind=Text(self.kind),
            text=Text(f"{self.kind} memory of device {device.id}"),
        )


class ClientDevice(Handle):
    """A virtual device, a PJRT_Device with its PJRT_DeviceDescription.

    Attributes:
        id: the index of the device among those of all processes.
        process: the rank of the process that runs its programs.
        memories: its memory spaces, in the order of `MEMORY_KINDS`; the first is the default.
    """

    def __init__(self, number: int, platform: str, process: int, local_id: int, *, is_own: bool) -> None:
        super().__init__(DEVICE)
        self.id = number
        self.process = process
        self.memories = [ClientMemory(self, kind) for kind in range(len(MEMORY_KINDS))]
        self.description = Handle(DESCRIPTION)
        self.description.set(
            id=number,
            process=process,
            kind=Text(platform),
            debug_text=Text(f"{platform}:{number}"),
            text=Text(f"{'Cpu' if platform == 'cpu' else 'Hloom'}Device(id={number})"),
        )
        self.set(
            memory=self.memories[0].handle,
            memories=CArray([m.handle for m in self.memories]),
            description=self.description.handle,
            local_id=local_id,
            is_own=is_own,
        )


class Client(Handle):
    """A PJRT_Client: the devices of a platform, in this and other processes.

    Attributes:
        processes: the processes of the platform, and how their programs exchange data.
        devices: the devices of all processes; the index of each is its id.
        own_devices: the devices of this process.
        topology: the PJRT_TopologyDescription, which describes the devices.
    """

    def __init__(self, platform: str, processes: Processes) -> None:
        super().__init__(CLIENT)
        self.processes = processes
        numbers = itertools.count()
        self.devices = [
            ClientDevice(next(numbers), platform, process, local_id, is_own=process == processes.rank)
            for process, count in enumerate(processes.devices)
            for local_id in range(count)
        ]
        self.own_devices = self.own(self.devices)
        self.topology = _topology(self)
        self.set(
            platform=Text(platform),
            version=Text(version()),
            process=processes.rank,
            devices=CArray([d.handle for d in self.devices]),
            own_devices=CArray([d.handle for d in self.own_devices]),
            memories=CArray([m.handle for d in self.own_devices for m in d.memories]),
            topology=self.topology.handle,
        )
        clients.append(self)
        keep_for_ever(self)  # worker threads use its structs until the process ends

    def own(self, devices: Sequence[ClientDevice]) -> list[ClientDevice]:
        """Return those of the given devices that belong to this process."""
        return [device for device in devices if device.process == self.processes.rank]

    def drain(self) -> None:
        """Wait until the worker threads of all devices have finished all queued programs."""
        for device in self.devices:
            native().call("pjrt_drain", device.handle)


def _topology(client: Client) -> Handle:
    """Return a new PJRT_TopologyDescription with the descriptions of a client's devices."""
    text = f"{version()}, {plural(len(client.devices), 'device')}"
    topology = Handle(TOPOLOGY)
    topology.set(
        client=client.handle,
        text=Text(text),
        memory_kinds=CArray(range(len(MEMORY_KINDS)), ctypes.c_int32),
        descriptions=CArray([d.description.handle for d in client.devices]),
        fingerprint=int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little"),
    )
    return topology


clients: Final[list[Client]] = []
"""The clients of this process."""
STOP: Final = ctypes.c_uint64(0)
"""A flag that running and queued programs poll: nonzero ends them early."""
keep_for_ever(STOP)


def stop() -> None:
    """Make running and queued programs fail soon, and wait until none is left.

    Called at exit, before the interpreter ends.
    """
    STOP.value = 1
    for client in clients:
        client.drain()


platform_name: str = "hloom"
"""The platform name of the next client."""


def set_platform(name: str) -> None:
    """Set the platform name (``hloom`` or ``cpu``) of clients that are created later."""
    global platform_name
    platform_name = name


def version() -> str:
    """Return the platform version that JAX shows: ``hloom`` and the version of this package."""
    return f"hloom {metadata.version('hloom')}"


def device_count() -> int:
    """Return the number of this process's devices.

    It is JAX's option ``jax_num_cpu_devices`` if that is set, else ``--xla_force_host_platform_device_count``
    in ``XLA_FLAGS``, else 1.
    """
    import jax

    configured = getattr(jax.config, "jax_num_cpu_devices", -1)
    if configured > 0:
        return configured
    match = _FLAG.search(os.environ.get("XLA_FLAGS", ""))
    return max(1, int(match[1])) if match else 1


class NamedValues(SizedMemory):
    """A C array of PJRT_NamedValue made from a mapping.

    A value is a string, a boolean, a number, or a list of integers.
    """

    def __init__(self, values: Mapping[str, str | bool | int | float | Sequence[int]]) -> None:
        kind = abi.struct("NamedValue")
        self._strings_and_lists: list[Text | CArray] = []
        entries = (kind * max(1, len(values)))()
        super().__init__(entries, len(values))
        for entry, (name, value) in zip(entries, values.items(), strict=False):
            entry.struct_size = ctypes.sizeof(kind)
            key = Text(name)
            key.write(entry, "name")
            self._strings_and_lists.append(key)
            entry.value_size = 1
            match value:
                case bool():
                    entry.type, entry.value = _BOOLEAN, int(value)
                case int():
                    entry.type, entry.value = _INTEGER, value
                case float():
                    entry.type, entry.value = _FLOAT, int.from_bytes(struct.pack("<f", value), "little")
                case str():
                    text = Text(value)
                    entry.type, entry.value, entry.value_size = _STRING, text.address, text.size
                    self._strings_and_lists.append(text)
                case _:
                    words = CArray(value, ctypes.c_int64)
                    entry.type, entry.value, entry.value_size = _INTEGERS, words.address, words.size
                    self._strings_and_lists.append(words)


# -- plug-in and client


@cache
def _plugin_attributes() -> NamedValues:
    """Return the plug-in's attributes, which state the oldest and newest StableHLO version that it accepts.

    They are the versions that jaxlib can read, because jaxlib converts StableHLO to HLO for hloom.
    """
    stablehlo = private.stablehlo()
    newest, oldest = (
        [int(part) for part in version.split(".")]
        for version in (stablehlo.get_current_version(), stablehlo.get_minimum_version())
    )
    versions = {"stablehlo_current_version": newest, "stablehlo_minimum_version": oldest}
    return NamedValues({"xla_version": 2, **versions})


@implements("Plugin_Attributes")
def _attributes(args: ctypes.Structure) -> None:
    _plugin_attributes().write(args, "attributes")


@implements("Client_Create")
def _create(args: ctypes.Structure) -> None:
    processes = connect(args, _integer_options(args), platform_name, device_count())
    args.client = Client(platform_name, processes).handle


def _integer_options(args: ctypes.Structure) -> dict[str, int]:
    """Return the integers among the options in ``args``, the arguments of ``PJRT_Client_Create``, by name."""
    kind = abi.struct("NamedValue")
    options = (kind * args.num_options).from_address(args.create_options) if args.num_options else ()
    return {
        ctypes.string_at(option.name, option.name_size).decode(): option.value
        for option in options
        if option.type == _INTEGER
    }


@implements("Client_Destroy")
def _destroy(args: ctypes.Structure) -> None:
    if args.client:
        object_at(args.client, Client).drain()


def _device_of(devices: Sequence[ClientDevice], number: int) -> int:
    if not 0 <= number < len(devices):
        message = f"no device {number}: there are {len(devices)}"
        raise PjrtError(INVALID_ARGUMENT, message)
    return devices[number].handle


@implements("Client_LookupDevice")
def _lookup_device(args: ctypes.Structure) -> None:
    args.device = _device_of(object_at(args.client, Client).devices, args.id)


@implements("Client_LookupAddressableDevice")
def _lookup_addressable_device(args: ctypes.Structure) -> None:
    args.addressable_device = _device_of(object_at(args.client, Client).own_devices, args.local_hardware_id)


@implements("Client_DefaultDeviceAssignment")
def _default_device_assignment(args: ctypes.Structure) -> None:
    count = args.num_replicas * args.num_partitions
    if count > args.default_assignment_size:
        message = f"no room for {plural(count, 'device')} in an assignment of {args.default_assignment_size}"
        raise PjrtError(INVALID_ARGUMENT, message)
    (ctypes.c_int32 * count).from_address(args.default_assignment)[:] = range(count)


NOTHING: Final = native().symbols["pjrt_nothing"]
"""Address of a function that does nothing: the deleter of memory that the plug-in owns."""
