"""The binary interface of PJRT's C API: its functions, in order, and the fields of their arguments.

Every function takes a pointer to a struct of arguments and returns a pointer to an error, null on success.
The table follows ``xla/pjrt/c/pjrt_c_api.h`` of openxla/xla, version 0.116 (jaxlib 0.12). Functions and
fields are only ever appended, so that an older caller reads a prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from hloom.codegen.structs import I8, I32, I64, PTR, Array, FieldType, Struct, size_of
from hloom.lifetime import keep_for_ever

MAJOR_VERSION: Final = 0
MINOR_VERSION: Final = 116
"""The version of the table below."""
CLAIMED_VERSION: Final = 112
"""The version that the plug-in claims, jaxlib 0.10.2's: JAX then uses only what that version had.

Since version 0.105, the structs of errors and memories begin with the address of a table of functions.
"""

_CODES: Final = {"p": PTR, "z": I64, "l": I64, "i": I32, "e": I32, "b": I8, "t": PTR, "a": PTR}
"""Codes of field types: pointer, size, 64-bit and 32-bit integers, enumeration, boolean; text, array."""
_SIZES: Final = {"t": "{}_size", "a": "num_{}"}
"""Names of the fields of sizes that follow texts and arrays."""

_FUNCTIONS: Final = """
Error_Destroy error:p
Error_Message error:p message:p message_size:z
Error_GetCode error:p code:e
Plugin_Initialize
Plugin_Attributes attributes:p num_attributes:z
Event_Destroy event:p
Event_IsReady event:p is_ready:b
Event_Error event:p
Event_Await event:p
Event_OnReady event:p callback:p user_arg:p
Client_Create create_options:p num_options:z kv_get_callback:p kv_get_user_arg:p kv_put_callback:p
    kv_put_user_arg:p client:p kv_try_get_callback:p kv_try_get_user_arg:p
Client_Destroy client:p
Client_PlatformName client:p platform_name:p platform_name_size:z
Client_ProcessIndex client:p process_index:i
Client_PlatformVersion client:p platform_version:p platform_version_size:z
Client_Devices client:p devices:p num_devices:z
Client_AddressableDevices client:p addressable_devices:p num_addressable_devices:z
Client_LookupDevice client:p id:i device:p
Client_LookupAddressableDevice client:p local_hardware_id:i addressable_device:p
Client_AddressableMemories client:p addressable_memories:p num_addressable_memories:z
Client_Compile client:p program:p compile_options:p compile_options_size:z executable:p
Client_DefaultDeviceAssignment client:p num_replicas:i num_partitions:i default_assignment_size:z
    default_assignment:p
Client_BufferFromHostBuffer client:p data:p type:e dims:p num_dims:z byte_strides:p num_byte_strides:z
    host_buffer_semantics:e device:p memory:p device_layout:p done_with_host_buffer:p buffer:p
DeviceDescription_Id device_description:p id:i
DeviceDescription_ProcessIndex device_description:p process_index:i
DeviceDescription_Attributes device_description:p num_attributes:z attributes:p
DeviceDescription_Kind device_description:p device_kind:p device_kind_size:z
DeviceDescription_DebugString device_description:p debug_string:p debug_string_size:z
DeviceDescription_ToString device_description:p to_string:p to_string_size:z
Device_GetDescription device:p device_description:p
Device_IsAddressable device:p is_addressable:b
Device_LocalHardwareId device:p local_hardware_id:i
Device_AddressableMemories device:p memories:p num_memories:z
Device_DefaultMemory device:p memory:p
Device_MemoryStats device:p bytes_in_use:l peak_bytes_in_use:l peak_bytes_in_use_is_set:b num_allocs:l
    num_allocs_is_set:b largest_alloc_size:l largest_alloc_size_is_set:b bytes_limit:l bytes_limit_is_set:b
    bytes_reserved:l bytes_reserved_is_set:b peak_bytes_reserved:l peak_bytes_reserved_is_set:b
    bytes_reservable_limit:l bytes_reservable_limit_is_set:b largest_free_block_bytes:l
    largest_free_block_bytes_is_set:b pool_bytes:l pool_bytes_is_set:b peak_pool_bytes:l
    peak_pool_bytes_is_set:b peak_allocated_bytes:l peak_allocated_bytes_is_set:b
Memory_Id memory:p id:i
Memory_Kind memory:p kind:p kind_size:z
Memory_DebugString memory:p debug_string:p debug_string_size:z
Memory_ToString memory:p to_string:p to_string_size:z
Memory_AddressableByDevices memory:p devices:p num_devices:z
Executable_Destroy executable:p
Executable_Name executable:p executable_name:p executable_name_size:z
Executable_NumReplicas executable:p num_replicas:z
Executable_NumPartitions executable:p num_partitions:z
Executable_NumOutputs executable:p num_outputs:z
Executable_SizeOfGeneratedCodeInBytes executable:p size_in_bytes:l
Executable_GetCostAnalysis executable:p num_properties:z properties:p
Executable_OutputMemoryKinds executable:p num_outputs:z memory_kinds:p memory_kind_sizes:p
Executable_OptimizedProgram executable:p program:p
Executable_Serialize executable:p serialized_bytes:p serialized_bytes_size:z serialized_executable:p
    serialized_executable_deleter:p
LoadedExecutable_Destroy executable:p
LoadedExecutable_GetExecutable loaded_executable:p executable:p
LoadedExecutable_AddressableDevices executable:p addressable_devices:p num_addressable_devices:z
LoadedExecutable_Delete executable:p
LoadedExecutable_IsDeleted executable:p is_deleted:b
LoadedExecutable_Execute executable:p options:p argument_lists:p num_devices:z num_args:z output_lists:p
    device_complete_events:p execute_device:p
Executable_DeserializeAndLoad client:p serialized_executable:p serialized_executable_size:z
    loaded_executable:p overridden_serialized_compile_options:p overridden_serialized_compile_options_size:z
    load_options:p
LoadedExecutable_Fingerprint executable:p executable_fingerprint:p executable_fingerprint_size:z
Buffer_Destroy buffer:p
Buffer_ElementType buffer:p type:e
Buffer_Dimensions buffer:p dims:p num_dims:z
Buffer_UnpaddedDimensions buffer:p unpadded_dims:p num_dims:z
Buffer_DynamicDimensionIndices buffer:p dynamic_dim_indices:p num_dynamic_dims:z
Buffer_GetMemoryLayout buffer:p layout_size:z layout_extension:p tiled_size:z tiled_extension:p
    minor_to_major:p minor_to_major_size:z tile_dims:p tile_dim_sizes:p num_tiles:z layout_type:e
Buffer_OnDeviceSizeInBytes buffer:p on_device_size_in_bytes:z
Buffer_Device buffer:p device:p
Buffer_Memory buffer:p memory:p
Buffer_Delete buffer:p
Buffer_IsDeleted buffer:p is_deleted:b
Buffer_CopyToDevice buffer:p dst_device:p dst_buffer:p
Buffer_ToHostBuffer src:p host_layout:p dst:p dst_size:z event:p
Buffer_IsOnCpu buffer:p is_on_cpu:b
Buffer_ReadyEvent buffer:p event:p
Buffer_UnsafePointer buffer:p buffer_pointer:z
Buffer_IncreaseExternalReferenceCount buffer:p
Buffer_DecreaseExternalReferenceCount buffer:p
Buffer_OpaqueDeviceMemoryDataPointer buffer:p device_memory_ptr:p
CopyToDeviceStream_Destroy stream:p
CopyToDeviceStream_AddChunk stream:p chunk:p transfer_complete:p
CopyToDeviceStream_TotalBytes stream:p total_bytes:l
CopyToDeviceStream_GranuleSize stream:p granule_size_in_bytes:l
CopyToDeviceStream_CurrentBytes stream:p current_bytes:l
TopologyDescription_Create topology_name:p topology_name_size:z create_options:p num_options:z topology:p
TopologyDescription_Destroy topology:p
TopologyDescription_PlatformName topology:p platform_name:p platform_name_size:z
TopologyDescription_PlatformVersion topology:p platform_version:p platform_version_size:z
TopologyDescription_GetDeviceDescriptions topology:p descriptions:p num_descriptions:z
TopologyDescription_Serialize topology:p serialized_bytes:p serialized_bytes_size:z serialized_topology:p
    serialized_topology_deleter:p
TopologyDescription_Attributes topology:p attributes:p num_attributes:z
Compile topology:p program:p compile_options:p compile_options_size:z client:p executable:p
Executable_OutputElementTypes executable:p output_types:p num_output_types:z
Executable_OutputDimensions executable:p num_outputs:z dims:p dim_sizes:p
Buffer_CopyToMemory buffer:p dst_memory:p dst_buffer:p
Client_CreateViewOfDeviceBuffer client:p device_buffer_ptr:p dims:p num_dims:z element_type:e layout:p
    device:p on_delete_callback:p on_delete_callback_arg:p stream:l buffer:p memory:p
Executable_Fingerprint executable:p executable_fingerprint:p executable_fingerprint_size:z
Client_TopologyDescription client:p topology:p
Executable_GetCompiledMemoryStats executable:p generated_code_size_in_bytes:l argument_size_in_bytes:l
    output_size_in_bytes:l alias_size_in_bytes:l temp_size_in_bytes:l host_generated_code_size_in_bytes:l
    host_argument_size_in_bytes:l host_output_size_in_bytes:l host_alias_size_in_bytes:l
    host_temp_size_in_bytes:l peak_memory_in_bytes:l total_size_in_bytes:l total_allocation_bytes:l
    indefinite_allocations:l peak_unpadded_heap_bytes:l
Memory_Kind_Id memory:p kind_id:i
ExecuteContext_Create context:p
ExecuteContext_Destroy context:p
Buffer_CopyRawToHost buffer:p dst:p offset:l transfer_size:l event:p
AsyncHostToDeviceTransferManager_Destroy transfer_manager:p
AsyncHostToDeviceTransferManager_TransferData transfer_manager:p buffer_index:i data:p offset:l
    transfer_size:l is_last_transfer:b done_with_h2d_transfer:p
Client_CreateBuffersForAsyncHostToDevice client:p shape_specs:p num_shape_specs:z device_layouts:p
    num_device_layouts:z memory:p transfer_manager:p
AsyncHostToDeviceTransferManager_RetrieveBuffer transfer_manager:p buffer_index:i buffer_out:p
AsyncHostToDeviceTransferManager_Device transfer_manager:p device_out:p
AsyncHostToDeviceTransferManager_BufferCount transfer_manager:p buffer_count:z
AsyncHostToDeviceTransferManager_BufferSize transfer_manager:p buffer_index:i buffer_size:z
AsyncHostToDeviceTransferManager_SetBufferError transfer_manager:p buffer_index:i error_code:e
    error_message:p error_message_size:z
AsyncHostToDeviceTransferManager_AddMetadata transfer_manager:p transfer_metadata:p num_metadata:z
Client_DmaMap client:p data:p size:z
Client_DmaUnmap client:p data:p
Client_CreateUninitializedBuffer client:p shape_dims:p shape_num_dims:z shape_element_type:e shape_layout:p
    device:p memory:p buffer:p
Client_UpdateGlobalProcessInfo client:p process_infos:p num_process_infos:z
TopologyDescription_Deserialize serialized_topology:p serialized_topology_size:z topology:p
Client_CreateAliasBuffer client:p memory:p shape_dims:p shape_num_dims:z shape_element_type:e shape_layout:p
    alias_buffer:p fulfill_alias_buffer_cb:p
Client_FulfillAliasBuffer client:p buffer:p status_code:e error_message:p error_message_size:z
    fulfill_alias_buffer_cb:p
LoadedExecutable_GetDeviceAssignment executable:p serialized_bytes:p serialized_bytes_size:z
    serialized_device_assignment:p serialized_device_assignment_deleter:p
Client_CreateErrorBuffer client:p error_code:e error_message:p error_message_size:z shape_dims:p
    shape_num_dims:z shape_element_type:e shape_layout:p memory:p buffer:p payload:p num_payload:z
AsyncHostToDeviceTransferManager_TransferLiteral transfer_manager:p buffer_index:i data:p shape_dims:p
    shape_num_dims:z shape_element_type:e shape_layout:p done_with_h2d_transfer:p
Buffer_CopyRawToHostFuture buffer:p offset:l transfer_size:l event:p callback_data:p future_ready_callback:p
Device_PoisonExecution device:p launch_id:i error_code:e error_message:p error_message_size:z poisoned:b
    payload:p num_payload:z
Device_CreateAsyncTrackingEvent device:p description:p description_size:z event:p
AsyncTrackingEvent_Destroy event:p
Executable_GetCompileOptions executable:p serialized_bytes:p serialized_bytes_size:z
    serialized_compile_options:p serialized_compile_options_deleter:p
Buffer_DonateWithControlDependency buffer:p callback_data:p dependency_ready_callback:p out_buffer:p
Event_Create event:p
Event_Set event:p error_code:e error_message:p error_message_size:z
Device_GetAttributes device:p attributes:p num_attributes:z device_attributes:p attributes_deleter:p
Client_Load client:p executable:p compile_options:p compile_options_size:z loaded_executable:p
LoadedExecutable_AddressableDeviceLogicalIds executable:p addressable_device_logical_ids:p
    num_addressable_device_logical_ids:z
Buffer_Bitcast buffer:p element_type:e dims:p num_dims:z device_layout:p out_buffer:p
Error_ForEachPayload error:p visitor:p user_arg:p
TopologyDescription_Fingerprint topology:p fingerprint:z
Executable_ParameterMemoryKinds executable:p num_parameters:z memory_kinds:p memory_kind_sizes:p
Device_ClearMemoryStats device:p
TopologyDescription_MakeCanonicalShapeForMemorySpace topology:p memory_space_kind_id:i dims:p num_dims:z
    element_type:e layout:p serialized_shape:p serialized_shape_size:z serialized_shape_deleter:p
TopologyDescription_GetMemorySpaceKindIds topology:p memory_space_kind_ids:p num_memory_space_kind_ids:z
"""
"""A line for each function: its name, and the fields of its arguments; indented lines continue it."""

_STRUCTS: Final = """
Program code:p code_size:z format:p format_size:z
ExecuteOptions send_callbacks:p recv_callbacks:p num_send_ops:z num_recv_ops:z launch_id:i
    non_donatable_input_indices:p num_non_donatable_input_indices:z context:p call_location:p num_tasks:z
    task_ids:p incarnation_ids:p multi_slice_config:p use_major_to_minor_data_layout_for_callbacks:b
    hlo_output_callbacks:p num_hlo_output_callbacks:z
KeyValueGet key:p key_size:z timeout_in_ms:i callback_error:p user_arg:p value:p value_size:z
    value_deleter_callback:p
KeyValuePut key:p key_size:z value:p value_size:z callback_error:p user_arg:p
NamedValue name:p name_size:z type:e value:l value_size:z
ShapeSpec dims:p num_dims:z element_type:e
MemoryLayout tiled_size:z tiled_extension:p minor_to_major:p minor_to_major_size:z tile_dims:p
    tile_dim_sizes:p num_tiles:z type:e
Layouts_MemoryLayout_Destroy layout:p
Layouts_MemoryLayout_Serialize layout:p serialized_bytes:p serialized_bytes_size:z serialized_layout:p
    serialized_layout_deleter:p
Layouts_PJRT_Client_GetDefaultLayout client:p type:e dims:p num_dims:z layout:p
Layouts_PJRT_Buffer_MemoryLayout buffer:p layout:p
Layouts_PJRT_Topology_GetDefaultLayout topology:p type:e dims:p num_dims:z layout:p
Layouts_PJRT_Executable_GetOutputLayouts executable:p num_outputs:z layouts:p
Layouts_PJRT_Executable_GetParameterLayouts executable:p num_parameters:z layouts:p
"""
"""Other structs, arguments of the caller's functions, and functions of the layouts extension, in order."""


def lines_of(table: str) -> list[list[str]]:
    """Split a text into its lines, and each line into words; an indented line continues the previous one."""
    return [line.split() for line in table.replace("\n    ", " ").strip().splitlines()]


def _parsed(table: str) -> dict[str, list[tuple[str, str]]]:
    return {
        name: [(field, code) for field, _, code in (word.partition(":") for word in words)]
        for name, *words in lines_of(table)
    }


def structs(table: str, **nested: Struct) -> dict[str, Struct]:
    """Return the structs that a text declares, by name; each line is a name and the fields ``name:type``.

    A type is ``p`` (pointer), ``z`` (size_t), ``l`` (int64_t), ``i`` (int), ``e`` (enum) or ``b`` (bool);
    ``t``, the address of a string, for which a field ``NAME_size`` is added; ``a``, the address of an array,
    for whose length a field ``num_NAME`` is added; or the name of a struct in an earlier line or in
    ``nested``, which is embedded.
    """
    declared = dict(nested)
    for name, fields in _parsed(table).items():
        types: dict[str, FieldType] = {}
        for field, code in fields:
            types[field] = _CODES.get(code) or declared[code]
            if code in _SIZES:
                types[_SIZES[code].format(field)] = I64
        declared[name] = Struct(name, **types)
    return declared


_arguments: Final = _parsed(_FUNCTIONS) | _parsed(_STRUCTS)
FUNCTIONS: Final = tuple(_parsed(_FUNCTIONS))
"""Names of the functions, in the order of the table ``PJRT_Api``, without the prefix ``PJRT_``."""
LAYOUT_FUNCTIONS: Final = tuple(name for name in _arguments if name.startswith("Layouts_"))
"""Names of the functions of the layouts extension, in its order."""


HEAD: Final = Struct("Head", struct_size=I64, extension=PTR)
"""The first fields of every struct of the interface."""
API: Final = Struct(
    "Api",
    struct_size=I64,
    extension=PTR,
    version=Struct("Version", struct_size=I64, extension=PTR, major=I32, minor=I32),
    functions=Array(PTR),
)
"""``PJRT_Api``, the table of the functions."""
EXTENSION: Final = Struct("Extension", struct_size=I64, type=I32, next=PTR, functions=Array(PTR))
"""A linked list of tables of further functions."""


def extension(type: int, next: int, functions: Sequence[int]) -> int:
    """Allocate a PJRT extension struct, which is never freed; return its address.

    Args:
        type: the extension's number in PJRT's enumeration of extension types.
        next: the address of the next extension in the linked list, or 0.
        functions: the addresses of the extension's functions, in the order of PJRT's header.
    """
    size = EXTENSION.size + len(functions) * size_of(PTR)
    record = EXTENSION.allocate(len(functions), struct_size=size, type=type, next=next)
    for number, function in enumerate(functions):
        record.store("functions", number, function)
    keep_for_ever(record)
    return record.address


@cache
def arguments(name: str) -> Struct:
    """Return the layout of the argument struct of a PJRT function, or of another PJRT struct.

    ``name`` is the name of the function or struct without ``PJRT_``. Raises KeyError if it is unknown.
    """
    fields = {field: _CODES[code] for field, code in _arguments[name]}
    return Struct(name, struct_size=I64, extension=PTR, **fields)


def struct(name: str) -> Any:
    """Return a subclass of ctypes.Structure for the arguments of the PJRT function ``name``, or for a struct.

    ``name`` is the name of the function or PJRT struct without ``PJRT_``.
    """
    return arguments(name).ctypes_class
