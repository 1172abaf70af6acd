"""PJRT buffers: immutable arrays in reference-counted storage."""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I1, I32, I64, PTR, VOID, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.memory import load_element
from hloom.codegen.llvm.routines import Routine, State, routine
from hloom.codegen.llvm.structured import is_null, repeat
from hloom.jax.pjrt.errors import INVALID_ARGUMENT
from hloom.jax.pjrt.routines.c_library import aligned_alloc, allocate, free, malloc, sched_yield
from hloom.jax.pjrt.routines.errors import refusal
from hloom.jax.pjrt.routines.events import drop_event, keep_event, pjrt_complete
from hloom.jax.pjrt.routines.functions import function, pointee
from hloom.jax.pjrt.routines.layouts import layout_of
from hloom.jax.pjrt.routines.run_time import give, take
from hloom.jax.pjrt.structs import BUFFER, DEVICE, LAYOUT, MEMORY, PACKED_FORM, STORAGE

TINY: Final = 512
"""Size in bytes below which data come from malloc, aligned to 16 bytes: much faster than aligned_alloc."""
SMALL: Final = 4096
"""Size in bytes below which storage and data are one block; larger data use recycled memory."""

RECYCLED: Final = State("recycled", pool=PTR, lock=I64)


# -- recycled memory


@routine(exported=True, pool=PTR)
def pjrt_set_pool(f: Function, pool: Value) -> None:
    """Emit a native function that sets the pool from which large arrays get memory; see `hloom_take`."""
    RECYCLED(f)["pool"] = pool


@routine(PTR)
def lock_pool(f: Function) -> Value:
    """Emit a native function that locks the pool of recycled memory by a spin lock, and returns the pool."""
    with repeat(f) as loop:
        loop.leave_if(RECYCLED(f).atomic("lock").exchange(1, "acquire").compare("eq", 0))
        sched_yield(f)
    return RECYCLED(f)["pool"]


@routine()
def unlock_pool(f: Function) -> None:
    """Emit a native function that unlocks the pool of recycled memory; the child of a fork calls it too."""
    RECYCLED(f).atomic("lock").store(0, "release")


@routine(PTR, exported=True, bytes=I64)
def pjrt_take(f: Function, bytes: Value) -> Value:
    """Emit a native function that allocates memory from the pool; it returns null if memory is short."""
    data = take(f, lock_pool(f), bytes)
    unlock_pool(f)
    return data


@routine(exported=True, data=PTR)
def pjrt_give(f: Function, data: Value) -> None:
    """Emit a native function that returns the memory at ``data`` to the pool."""
    give(f, lock_pool(f), data)
    unlock_pool(f)


# -- storage

PACKED_MEMORY: Final = State("packed_memory", bytes=I64, limit=I64)
"""The size of all packed forms of arrays, and its limit; see `hloom.jax.pjrt.routines.packed_forms`."""
NEVER: Final = -(1 << 62)
"""Uses of a storage that gets no packed form: its owner may change the data."""


@routine(storage=STORAGE)
def forget_packed_form(f: Function, storage: Fields) -> None:
    """Emit a native function that frees an array's packed form, a copy in the order that kernels read.

    It must be called only while no execution reads that copy. ``storage`` is the memory of the array.
    """
    packed = storage["packed"]
    storage["uses"] = 0
    f.return_if(packed.compare("eq", 0))
    memory = f.convert("inttoptr", packed, PTR)
    PACKED_MEMORY(f).atomic("bytes").subtract(Fields(PACKED_FORM, memory)["bytes"], "monotonic")
    storage["packed"] = 0
    pjrt_give(f, memory)


@routine(storage=STORAGE)
def forbid_packed_form(f: Function, storage: Fields) -> None:
    """Emit a native function that invalidates an array's packed form, and keeps it from getting a new one.

    A packed form is a copy in the order that kernels read. The function is called when a caller of PJRT gets
    the address of the array's data, because the caller may then change the data.
    """
    storage["uses"] = NEVER
    packed = storage["packed"]
    with f.when(packed.compare("ne", 0)):
        Fields(PACKED_FORM, f.convert("inttoptr", packed, PTR))["form"] = 0


@routine(storage=STORAGE)
def release_inline(f: Function, storage: Fields) -> None:
    """Emit a native function that frees a storage (memory of an array) with data in the same malloc block."""
    free(f, storage)


@routine(storage=STORAGE)
def release_pooled(f: Function, storage: Fields) -> None:
    """Emit a native function that frees a storage (memory of an array) whose data are from the pool.

    It returns the data to the pool.
    """
    pjrt_give(f, storage["data"])
    free(f, storage)


@routine(storage=STORAGE)
def release_host(f: Function, storage: Fields) -> None:
    """Emit a native function that frees the record of a storage whose data are in memory that the host lent.

    It completes the event that tells the host that it may change or free the data, which remain the host's.
    """
    event = storage["argument"]
    free(f, storage)
    pjrt_complete(f, event, 0)
    drop_event(f, event)


@routine(storage=STORAGE)
def release_foreign(f: Function, storage: Fields) -> None:
    """Emit a native function that frees a storage (memory of an array) whose data belong to a caller of PJRT.

    It calls the deleter that the caller has passed, if any, with the address of the data and an argument that
    the caller has passed too.
    """
    data, callee, argument = storage["data"], storage["argument"], storage["second_argument"]
    free(f, storage)
    with f.when(~is_null(callee)):
        f.call_pointer(VOID, callee, data, argument)


def _initialize_storage(f: Function, storage: Fields, data: Value, release: Routine) -> Fields:
    """Emit stores to the fields of a new storage: one reference, the data's address, the release function.

    Returns ``storage``.
    """
    storage["references"] = 1
    storage["uses"] = 0
    storage["packed"] = 0
    storage["data"] = data
    storage["release"] = release.address(f)
    return storage


@routine(PTR, exported=True, bytes=I64)
def pjrt_storage(f: Function, bytes: Value) -> Fields:
    """Emit a native function that returns a new storage, a reference-counted memory block for an array.

    It has one reference, and room for ``bytes`` bytes of data, aligned to 64 bytes, or to 16 if there are
    fewer than `TINY`. The function returns null if memory is short.
    """
    head = STORAGE.size
    with f.when(bytes.compare("ult", TINY)):
        tiny = malloc(f, bytes + head)
        f.return_if(is_null(tiny), 0)
        storage = _initialize_storage(f, Fields(STORAGE, tiny), f.offset(tiny, head), release_inline)
        f.return_value(storage.pointer)
    with f.when(bytes.compare("ult", SMALL)):
        small = aligned_alloc(f, f.constant(I64, 64), (bytes + (head + 63)) & -64)
        f.return_if(is_null(small), 0)
        storage = _initialize_storage(f, Fields(STORAGE, small), f.offset(small, head), release_inline)
        f.return_value(storage.pointer)
    data = pjrt_take(f, bytes)
    f.return_if(is_null(data), 0)
    return _initialize_storage(f, Fields(STORAGE, malloc(f, head)), data, release_pooled)


@routine(PTR, data=PTR, release=PTR, argument=PTR, second_argument=PTR)
def new_foreign_storage(
    f: Function, data: Value, release: Value, argument: Value, second_argument: Value
) -> Fields:
    """Emit a native function that returns a new storage for an array at the address ``data``, without a copy.

    A storage is a reference-counted memory block; it has one reference. When the last one is dropped,
    ``release`` is called with the storage, whose fields hold ``argument`` and ``second_argument``.
    """
    return allocate(
        f,
        STORAGE,
        references=1,
        data=data,
        release=release,
        argument=argument,
        second_argument=second_argument,
        uses=0,
        packed=0,
    )


@routine(storage=STORAGE, inline=True)
def keep_storage(f: Function, storage: Fields) -> None:
    """Emit a native function that adds a reference to a storage, the memory of an array."""
    storage.atomic("references").add(1, "monotonic")


@routine(storage=STORAGE)
def drop_storage(f: Function, storage: Fields) -> None:
    """Emit a native function that drops a reference to a storage, the memory of an array.

    With the last reference it releases the data and the storage.
    """
    references = storage.atomic("references").subtract(1, "acq_rel")
    with f.when(references.compare("eq", 1)):
        forget_packed_form(f, storage)
        f.call_pointer(VOID, storage["release"], storage.pointer)


# -- buffers


@routine(
    PTR,
    exported=True,
    storage=STORAGE,
    device=PTR,
    memory=PTR,
    event=PTR,
    bytes=I64,
    type=I32,
    rank=I64,
    dimensions=PTR,
)
def pjrt_buffer(
    f: Function,
    storage: Fields,
    device: Value,
    memory: Value,
    event: Value,
    bytes: Value,
    type: Value,
    rank: Value,
    dimensions: Value,
) -> Fields:
    """Emit a native function that returns a new buffer with a row-major layout.

    The buffer takes over one reference to ``storage``, its reference-counted memory, and one to ``event``,
    which completes when the data are written; null if they are written already. ``type`` is PJRT's number of
    the element type.
    """
    buffer = allocate(
        f,
        BUFFER,
        rank,
        storage=storage,
        data=storage["data"],
        device=device,
        memory=memory,
        event=event,
        bytes=bytes,
        rank=rank,
        type=type,
        deleted=0,
        layout=0,
        donation=0,
    )
    with f.loop(0, rank) as loop:
        buffer.store("dimensions", loop.index, load_element(I64, dimensions, loop.index))
    return buffer


@routine(exported=True, buffer=BUFFER)
def pjrt_delete(f: Function, buffer: Fields) -> None:
    """Emit a native function that marks a buffer as deleted, and drops the buffer's reference to its memory.

    The data live on while there are other references to the memory. If the buffer is marked already, the
    function does nothing.
    """
    with f.when(buffer.atomic("deleted").exchange(1, "acq_rel").compare("eq", 0)):
        drop_storage(f, buffer["storage"])


@routine(I1, buffer=BUFFER, inline=True)
def is_deleted(f: Function, buffer: Fields) -> Value:
    """Emit a native function that returns whether a buffer was deleted or donated."""
    return buffer["deleted"].compare("ne", 0)


@routine(PTR)
def refuse_deleted(f: Function) -> Value:
    """Emit a native function that returns a new PJRT error which reports the use of a deleted buffer."""
    return refusal(f, INVALID_ARGUMENT, "Buffer has been deleted or donated.")


def load_undeleted_buffer(f: Function, args: Fields, name: str = "buffer") -> Fields:
    """Emit a load of the buffer in the field ``name`` of a PJRT function's arguments; return the buffer.

    If the buffer is deleted, the emitted code returns an error from the PJRT function.
    """
    buffer = Fields(BUFFER, args[name])
    with f.when(is_deleted(f, buffer)):
        f.return_value(refuse_deleted(f))
    return buffer


def destroy_buffer(f: Function, buffer: Fields) -> None:
    """Emit code that drops a buffer's references to its storage and event, and frees the buffer."""
    pjrt_delete(f, buffer)
    drop_event(f, buffer["event"])
    free(f, buffer)


@function("Buffer_Destroy")
def destroy(f: Function, args: Fields) -> None:
    buffer = pointee(args, "buffer")
    with f.when(~is_null(buffer.pointer)):
        destroy_buffer(f, buffer)


@function("Buffer_Delete")
def delete(f: Function, args: Fields) -> None:
    pjrt_delete(f, args["buffer"])


@function("Buffer_IsDeleted")
def answer_is_deleted(f: Function, args: Fields) -> None:
    args["is_deleted"] = is_deleted(f, args["buffer"])


@function("Buffer_GetMemoryLayout")
def memory_layout(f: Function, args: Fields) -> None:
    buffer = pointee(args, "buffer")
    args["minor_to_major"] = Fields(LAYOUT, layout_of(f, buffer))["dimensions"]
    args["minor_to_major_size"] = buffer["rank"]
    args["num_tiles"] = 0
    args["layout_type"] = 0  # an order of dimensions, no strides


@function("Buffer_ReadyEvent")
def buffer_ready_event(f: Function, args: Fields) -> None:
    args["event"] = keep_event(f, load_undeleted_buffer(f, args)["event"])


@function("Buffer_UnsafePointer")
def unsafe_pointer(f: Function, args: Fields) -> None:
    buffer = load_undeleted_buffer(f, args)
    forbid_packed_form(f, buffer["storage"])
    args["buffer_pointer"] = buffer["data"]


@function("Buffer_OpaqueDeviceMemoryDataPointer")
def data_pointer(f: Function, args: Fields) -> None:
    args["device_memory_ptr"] = load_undeleted_buffer(f, args)["data"]


@function("Buffer_IncreaseExternalReferenceCount")
def keep_external(f: Function, args: Fields) -> None:
    keep_storage(f, load_undeleted_buffer(f, args)["storage"])


@function("Buffer_DecreaseExternalReferenceCount")
def drop_external(f: Function, args: Fields) -> None:
    drop_storage(f, pointee(args, "buffer")["storage"])


@routine(PTR, buffer=BUFFER, device=DEVICE, memory=MEMORY)
def buffer_sharing_storage(f: Function, buffer: Fields, device: Fields, memory: Fields) -> Fields:
    """Emit a native function that returns a new buffer on ``device`` and ``memory``, equal to ``buffer``.

    No data are copied: buffers are immutable, so both have the same storage, event and layout.
    """
    keep_storage(f, buffer["storage"])
    copy = Fields(
        BUFFER,
        pjrt_buffer(
            f,
            buffer["storage"],
            device,
            memory,
            keep_event(f, buffer["event"]),
            buffer["bytes"],
            buffer["type"],
            buffer["rank"],
            buffer.address("dimensions"),
        ),
    )
    copy["layout"] = buffer["layout"]
    return copy


@function("Buffer_CopyToDevice")
def copy_to_device(f: Function, args: Fields) -> None:
    buffer, device = load_undeleted_buffer(f, args), Fields(DEVICE, args["dst_device"])
    args["dst_buffer"] = buffer_sharing_storage(f, buffer, device, device["memory"])


@function("Buffer_CopyToMemory")
def copy_to_memory(f: Function, args: Fields) -> None:
    buffer, memory = load_undeleted_buffer(f, args), Fields(MEMORY, args["dst_memory"])
    args["dst_buffer"] = buffer_sharing_storage(f, buffer, memory["device"], memory)
