"""The client: platform, devices and their memories.

Devices are virtual: all are this machine's processor. Each has three memories, ``device``, ``pinned_host``
and ``unpinned_host``, which are all the machine's memory.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import re
import struct
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from importlib import metadata
from typing import Any, Final

from hloom.jax.devices.processes import Processes, connect
from hloom.jax.pjrt import abi
from hloom.jax.pjrt.api import implements
from hloom.jax.pjrt.errors import INVALID_ARGUMENT, PjrtError
from hloom.jax.pjrt.handles import DeviceWords, Handle, MemoryWords, Text, Words, object_at
from hloom.jax.pjrt.native import native
from hloom.jaxlib import private
from hloom.lifetime import keep_for_ever

MEMORY_KINDS: Final = ("device", "pinned_host", "unpinned_host")
_WORKER_WORDS: Final = 16
_STRING, _INTEGER, _INTEGERS, _FLOAT, _BOOLEAN = range(5)
"""Types of named values."""
_FLAG: Final = re.compile(r"--?xla_force_host_platform_device_count=(\d+)")


class Memory(Handle):
    """A memory of a device."""

    def __init__(self, device: Device, number: int) -> None:
        self.kind = MEMORY_KINDS[number]
        self.kind_number = number
        self.id = len(MEMORY_KINDS) * device.id + number
        encoded = self.kind.encode()
        super().__init__(MemoryWords(None, len(encoded), device.handle, encoded))
        self.devices = Words([device.handle])
        self.text = Text(f"{self.kind} memory of device {device.id}")


class Device(Handle):
    """A virtual device.

    Attributes:
        id: its number among the devices of all processes.
        process: the number of its process.
        local_id: its number in its process.
    """

    def __init__(self, number: int, platform: str, process: int, local_id: int) -> None:
        self.id = number
        self.process = process
        self.local_id = local_id
        self.worker = (ctypes.c_int64 * _WORKER_WORDS)()
        super().__init__(DeviceWords(None, ctypes.addressof(self.worker)))
        self.memories = [Memory(self, kind) for kind in range(len(MEMORY_KINDS))]
        self.words.memory = self.memories[0].handle
        self.memory_handles = Words([m.handle for m in self.memories])
        self.words.memories = self.memory_handles.address
        self.description = Description(self, platform)


class Description(Handle):
    """The description of a device."""

    def __init__(self, device: Device, platform: str) -> None:
        super().__init__()
        self.device = device
        self.kind = Text(platform)
        self.text = Text(f"{'Cpu' if platform == 'cpu' else 'Hloom'}Device(id={device.id})")
        self.debug_text = Text(f"{platform}:{device.id}")
        self.attributes = NamedValues({})


class Topology(Handle):
    """The devices without the client."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client = client
        self.descriptions = Words([d.description.handle for d in client.devices])
        self.attributes = NamedValues({})
        text = f"{version()}, {len(client.devices)} devices"
        self.text = Text(text)
        self.fingerprint = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
        self.memory_kinds = Words(range(len(MEMORY_KINDS)), ctypes.c_int32)


class Client(Handle):
    """The only client of a platform.

    Attributes:
        processes: the processes, and their messages.
        devices: those of all processes, by number.
        own_devices: those of this process.
    """

    def __init__(self, platform: str, processes: Processes) -> None:
        super().__init__()
        self.platform = Text(platform)
        self.version = Text(version())
        self.processes = processes
        numbers = itertools.count()
        self.devices = [
            Device(next(numbers), platform, process, local_id)
            for process, count in enumerate(processes.devices)
            for local_id in range(count)
        ]
        self.own_devices = self.own(self.devices)
        self.device_handles = Words([d.handle for d in self.devices])
        self.own_device_handles = Words([d.handle for d in self.own_devices])
        self.memory_handles = Words([m.handle for d in self.own_devices for m in d.memories])
        clients.append(self)
        keep_for_ever(self)  # its workers' threads use their words until the process has ended

    def own(self, devices: Sequence[Device]) -> list[Device]:
        """Return those of some devices that are this process's."""
        return [device for device in devices if device.process == self.processes.rank]

    @cached_property
    def topology(self) -> Topology:
        """The topology."""
        return Topology(self)

    def drain(self) -> None:
        """Wait until no program runs."""
        for device in self.devices:
            native().call("pjrt_drain", ctypes.addressof(device.worker))


clients: Final[list[Client]] = []
"""The clients of this process."""
STOP: Final = ctypes.c_uint64(0)
"""The word that ends queued programs early; set when the interpreter ends."""
keep_for_ever(STOP)


def stop() -> None:
    """Stop running and queued programs, because the interpreter ends."""
    STOP.value = 1
    for client in clients:
        client.drain()


platform_name: str = "hloom"
"""The platform's name for the next client."""


def set_platform(name: str) -> None:
    """Set the name of the platform."""
    global platform_name
    platform_name = name


def version() -> str:
    """Return the version of the platform."""
    return f"hloom {metadata.version('hloom')}"


def device_count() -> int:
    """Return the number of devices: ``jax_num_cpu_devices``, else the flag in ``XLA_FLAGS``, else 1."""
    import jax

    configured = getattr(jax.config, "jax_num_cpu_devices", -1)
    if configured > 0:
        return configured
    found = _FLAG.search(os.environ.get("XLA_FLAGS", ""))
    return max(1, int(found[1])) if found else 1


class NamedValues:
    """Named values at a fixed address: texts, booleans, numbers, and lists of integers."""

    def __init__(self, values: Mapping[str, str | bool | int | float | Sequence[int]]) -> None:
        kind = abi.struct("NamedValue")
        self._held: list[Any] = []
        self._array = (kind * max(1, len(values)))()
        self.size = len(values)
        self.address = ctypes.addressof(self._array)
        for entry, (name, value) in zip(self._array, values.items(), strict=False):
            entry.struct_size = ctypes.sizeof(kind)
            key = Text(name)
            key.write(entry, "name")
            self._held.append(key)
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
                    self._held.append(text)
                case _:
                    words = Words(value, ctypes.c_int64)
                    entry.type, entry.value, entry.value_size = _INTEGERS, words.address, words.size
                    self._held.append(words)


# -- plug-in and client


@cache
def _plugin_attributes() -> NamedValues:
    """Return the attributes: modules come in the newest version of StableHLO, which jaxlib reads."""
    stablehlo = private.stablehlo()
    newest, oldest = (
        [int(part) for part in version.split(".")]
        for version in (stablehlo.get_current_version(), stablehlo.get_minimum_version())
    )
    versions = {"stablehlo_current_version": newest, "stablehlo_minimum_version": oldest}
    return NamedValues({"xla_version": 2, **versions})


@implements("Plugin_Initialize")
def _initialize(args: Any) -> None:
    """Do nothing: creating the table initializes the plug-in."""


@implements("Plugin_Attributes")
def _attributes(args: Any) -> None:
    attributes = _plugin_attributes()
    args.attributes, args.num_attributes = attributes.address, attributes.size


@implements("Client_Create")
def _create(args: Any) -> None:
    processes = connect(args, _integer_options(args), platform_name, device_count())
    args.client = Client(platform_name, processes).handle


def _integer_options(args: Any) -> dict[str, int]:
    """Return the options of a new client that are integers, by name."""
    kind = abi.struct("NamedValue")
    options = (kind * args.num_options).from_address(args.create_options) if args.num_options else ()
    return {
        ctypes.string_at(option.name, option.name_size).decode(): option.value
        for option in options
        if option.type == _INTEGER
    }


@implements("Client_Destroy")
def _destroy(args: Any) -> None:
    if args.client:
        client = object_at(args.client, Client)
        client.drain()


@implements("Client_PlatformName")
def _platform_name(args: Any) -> None:
    object_at(args.client, Client).platform.write(args, "platform_name")


@implements("Client_PlatformVersion")
def _platform_version(args: Any) -> None:
    object_at(args.client, Client).version.write(args, "platform_version")


@implements("Client_ProcessIndex")
def _process_index(args: Any) -> None:
    args.process_index = object_at(args.client, Client).processes.rank


@implements("Client_Devices")
def _devices(args: Any) -> None:
    handles = object_at(args.client, Client).device_handles
    args.devices, args.num_devices = handles.address, handles.size


@implements("Client_AddressableDevices")
def _addressable_devices(args: Any) -> None:
    handles = object_at(args.client, Client).own_device_handles
    args.addressable_devices, args.num_addressable_devices = handles.address, handles.size


def _device_of(devices: Sequence[Device], number: int) -> int:
    if not 0 <= number < len(devices):
        message = f"no device {number}: there are {len(devices)}"
        raise PjrtError(INVALID_ARGUMENT, message)
    return devices[number].handle


@implements("Client_LookupDevice")
def _lookup_device(args: Any) -> None:
    args.device = _device_of(object_at(args.client, Client).devices, args.id)


@implements("Client_LookupAddressableDevice")
def _lookup_addressable_device(args: Any) -> None:
    args.addressable_device = _device_of(object_at(args.client, Client).own_devices, args.local_hardware_id)


@implements("Client_AddressableMemories")
def _addressable_memories(args: Any) -> None:
    handles = object_at(args.client, Client).memory_handles
    args.addressable_memories, args.num_addressable_memories = handles.address, handles.size


@implements("Client_DefaultDeviceAssignment")
def _default_device_assignment(args: Any) -> None:
    count = args.num_replicas * args.num_partitions
    if count > args.default_assignment_size:
        message = f"no room for {count} devices in an assignment of {args.default_assignment_size}"
        raise PjrtError(INVALID_ARGUMENT, message)
    (ctypes.c_int32 * count).from_address(args.default_assignment)[:] = range(count)


@implements("Client_TopologyDescription")
def _topology(args: Any) -> None:
    args.topology = object_at(args.client, Client).topology.handle


# -- topology


@implements("TopologyDescription_Destroy")
def _topology_destroy(args: Any) -> None:
    """Do nothing: the topology belongs to the client."""


@implements("TopologyDescription_PlatformName")
def _topology_platform_name(args: Any) -> None:
    object_at(args.topology, Topology).client.platform.write(args, "platform_name")


@implements("TopologyDescription_PlatformVersion")
def _topology_platform_version(args: Any) -> None:
    object_at(args.topology, Topology).client.version.write(args, "platform_version")


@implements("TopologyDescription_GetDeviceDescriptions")
def _topology_descriptions(args: Any) -> None:
    handles = object_at(args.topology, Topology).descriptions
    args.descriptions, args.num_descriptions = handles.address, handles.size


@implements("TopologyDescription_Serialize")
def _topology_serialize(args: Any) -> None:
    object_at(args.topology, Topology).text.write(args, "serialized_bytes")
    args.serialized_topology, args.serialized_topology_deleter = args.topology, NOTHING


@implements("TopologyDescription_Attributes")
def _topology_attributes(args: Any) -> None:
    attributes = object_at(args.topology, Topology).attributes
    args.attributes, args.num_attributes = attributes.address, attributes.size


@implements("TopologyDescription_Fingerprint")
def _topology_fingerprint(args: Any) -> None:
    args.fingerprint = object_at(args.topology, Topology).fingerprint


@implements("TopologyDescription_GetMemorySpaceKindIds")
def _topology_memory_kinds(args: Any) -> None:
    kinds = object_at(args.topology, Topology).memory_kinds
    args.memory_space_kind_ids, args.num_memory_space_kind_ids = kinds.address, kinds.size


# -- devices


@implements("DeviceDescription_Id")
def _description_id(args: Any) -> None:
    args.id = object_at(args.device_description, Description).device.id


@implements("DeviceDescription_ProcessIndex")
def _description_process_index(args: Any) -> None:
    args.process_index = object_at(args.device_description, Description).device.process


@implements("DeviceDescription_Attributes")
def _description_attributes(args: Any) -> None:
    attributes = object_at(args.device_description, Description).attributes
    args.attributes, args.num_attributes = attributes.address, attributes.size


@implements("DeviceDescription_Kind")
def _description_kind(args: Any) -> None:
    object_at(args.device_description, Description).kind.write(args, "device_kind")


@implements("DeviceDescription_DebugString")
def _description_debug_string(args: Any) -> None:
    object_at(args.device_description, Description).debug_text.write(args, "debug_string")


@implements("DeviceDescription_ToString")
def _description_to_string(args: Any) -> None:
    object_at(args.device_description, Description).text.write(args, "to_string")


@implements("Device_GetDescription")
def _description(args: Any) -> None:
    args.device_description = object_at(args.device, Device).description.handle


@implements("Device_IsAddressable")
def _is_addressable(args: Any) -> None:
    device = object_at(args.device, Device)
    args.is_addressable = any(device in client.own_devices for client in clients)


@implements("Device_LocalHardwareId")
def _local_hardware_id(args: Any) -> None:
    args.local_hardware_id = object_at(args.device, Device).local_id


@implements("Device_AddressableMemories")
def _device_memories(args: Any) -> None:
    handles = object_at(args.device, Device).memory_handles
    args.memories, args.num_memories = handles.address, handles.size


@implements("Device_DefaultMemory")
def _default_memory(args: Any) -> None:
    args.memory = object_at(args.device, Device).memories[0].handle


NOTHING: Final = native().symbols["pjrt_nothing"]
"""Address of a function that does nothing: the deleter of what the plug-in keeps."""


@implements("Device_GetAttributes")
def _device_attributes(args: Any) -> None:
    attributes = object_at(args.device, Device).description.attributes
    args.attributes, args.num_attributes = attributes.address, attributes.size
    args.device_attributes, args.attributes_deleter = args.device, NOTHING


# -- memories


@implements("Memory_Id")
def _memory_id(args: Any) -> None:
    args.id = object_at(args.memory, Memory).id


@implements("Memory_Kind_Id")
def _memory_kind_id(args: Any) -> None:
    args.kind_id = object_at(args.memory, Memory).kind_number


@implements("Memory_DebugString")
def _memory_debug_string(args: Any) -> None:
    object_at(args.memory, Memory).text.write(args, "debug_string")


@implements("Memory_ToString")
def _memory_to_string(args: Any) -> None:
    object_at(args.memory, Memory).text.write(args, "to_string")


@implements("Memory_AddressableByDevices")
def _memory_devices(args: Any) -> None:
    handles = object_at(args.memory, Memory).devices
    args.devices, args.num_devices = handles.address, handles.size
