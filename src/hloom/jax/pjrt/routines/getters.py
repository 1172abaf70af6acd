"""PJRT functions that only read fields, each declared by a line of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloom.codegen.llvm import Function
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.routines import Routine
from hloom.jax.pjrt.abi import lines_of
from hloom.jax.pjrt.routines.functions import function, pjrt_nothing, pointee

_GETTERS: Final = """
Plugin_Initialize
Error_Message message=&error.message message_size=error.message_size
Error_GetCode code=error.code
Error_ForEachPayload
Buffer_ElementType type=buffer.type
Buffer_Dimensions dims=&buffer.dimensions num_dims=buffer.rank
Buffer_UnpaddedDimensions unpadded_dims=&buffer.dimensions num_dims=buffer.rank
Buffer_DynamicDimensionIndices dynamic_dim_indices=0 num_dynamic_dims=0
Buffer_OnDeviceSizeInBytes on_device_size_in_bytes=buffer.bytes
Buffer_Device device=buffer.device
Buffer_Memory memory=buffer.memory
Buffer_IsOnCpu is_on_cpu=1
Client_PlatformName platform_name=client.platform
Client_PlatformVersion platform_version=client.version
Client_ProcessIndex process_index=client.process
Client_Devices devices=client.devices
Client_AddressableDevices addressable_devices=client.own_devices
Client_AddressableMemories addressable_memories=client.memories
Client_TopologyDescription topology=client.topology
Client_UpdateGlobalProcessInfo
TopologyDescription_Destroy
TopologyDescription_PlatformName platform_name=topology.client.platform
TopologyDescription_PlatformVersion platform_version=topology.client.version
TopologyDescription_GetDeviceDescriptions descriptions=topology.descriptions
TopologyDescription_Serialize serialized_bytes=topology.text serialized_topology=topology
    serialized_topology_deleter=nothing
TopologyDescription_Attributes attributes=0 num_attributes=0
TopologyDescription_Fingerprint fingerprint=topology.fingerprint
TopologyDescription_GetMemorySpaceKindIds memory_space_kind_ids=topology.memory_kinds
DeviceDescription_Id id=device_description.id
DeviceDescription_ProcessIndex process_index=device_description.process
DeviceDescription_Attributes attributes=0 num_attributes=0
DeviceDescription_Kind device_kind=device_description.kind
DeviceDescription_DebugString debug_string=device_description.debug_text
DeviceDescription_ToString to_string=device_description.text
Device_GetDescription device_description=device.description
Device_IsAddressable is_addressable=device.is_own
Device_LocalHardwareId local_hardware_id=device.local_id
Device_AddressableMemories memories=device.memories
Device_DefaultMemory memory=device.memory
Device_GetAttributes attributes=0 num_attributes=0 device_attributes=device attributes_deleter=nothing
Memory_Id id=memory.id
Memory_Kind kind=memory.kind
Memory_Kind_Id kind_id=memory.kind_number
Memory_DebugString debug_string=memory.text
Memory_ToString to_string=memory.text
Memory_AddressableByDevices devices=memory.devices
LoadedExecutable_GetExecutable executable=loaded_executable
LoadedExecutable_AddressableDevices addressable_devices=executable.devices
LoadedExecutable_IsDeleted is_deleted=executable.is_deleted
Executable_Name executable_name=executable.name
Executable_NumReplicas num_replicas=executable.num_replicas
Executable_NumPartitions num_partitions=executable.num_partitions
Executable_NumOutputs num_outputs=executable.num_outputs
Executable_Destroy
Layouts_MemoryLayout_Serialize serialized_bytes=layout.text serialized_layout=layout
    serialized_layout_deleter=nothing
Layouts_MemoryLayout_Destroy
"""
"""Each function with its result fields, and the number or the path of fields that each is set to.

``&`` takes the address of a field; ``nothing`` is the function that does nothing. The size field beside a
result is set from the size field beside the path. Functions without results do nothing: errors have no
payloads, a PJRT_Executable is its loaded one, topologies and layouts are never freed, and connections report
lost processes (JAX calls UpdateGlobalProcessInfo even at exit, and aborts if it fails).
"""


def _getter(name: str, assignments: Sequence[str]) -> Routine:
    def emit(f: Function, args: Fields) -> None:
        for target, _, path in (assignment.partition("=") for assignment in assignments):
            _assign(f, args, target, path)

    return function(name)(emit)


def _assign(f: Function, args: Fields, target: str, path: str) -> None:
    if path.isdigit():
        args[target] = int(path)
        return
    if path == "nothing":
        args[target] = pjrt_nothing.address(f)
        return
    *pointers, last = path.removeprefix("&").split(".")
    fields = args
    for name in pointers:
        fields = pointee(fields, name)
    args[target] = fields.address(last) if path.startswith("&") else fields[last]
    for size in ("num_{}", "{}_size"):
        if size.format(target) in args.struct.fields and size.format(last) in fields.struct.fields:
            args[size.format(target)] = fields[size.format(last)]


GETTERS: Final = tuple(_getter(name, assignments) for name, *assignments in lines_of(_GETTERS))
