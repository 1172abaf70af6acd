"""Transfers of row-major arrays between the host and buffers.

Python transfers arrays of other layouts, and elements narrower than a byte.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I1, I8, I32, I64, PTR, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.memory import copy_bytes, load_element
from hloom.codegen.llvm.routines import State, routine
from hloom.codegen.llvm.structured import (
    LocalVariable,
    Section,
    choose,
    is_null,
    is_zero,
    null,
    repeat,
    section,
)
from hloom.jax.pjrt.element_types import TYPES
from hloom.jax.pjrt.errors import INVALID_ARGUMENT
from hloom.jax.pjrt.routines.buffers import (
    NEVER,
    drop_storage,
    keep_storage,
    load_undeleted_buffer,
    new_foreign_storage,
    pjrt_buffer,
    pjrt_storage,
    release_foreign,
    release_host,
)
from hloom.jax.pjrt.routines.errors import copy_of_error, refusal
from hloom.jax.pjrt.routines.events import pjrt_await, pjrt_event, ready_event
from hloom.jax.pjrt.routines.functions import function, pointee
from hloom.jax.pjrt.structs import DEVICE, MEMORY, STORAGE

_PYTHON: Final = State("python_transfers", from_host=PTR, to_host=PTR)
"""The Python functions for all other transfers."""
_LEAST_BORROWED: Final = 2048
"""Size in bytes from which host memory is borrowed instead of copied."""
_BORROWED_ALIGNMENT: Final = 16
_IMMUTABLE_UNTIL_TRANSFER: Final = 2
"""The first of PJRT's host buffer semantics that keep the host's data unchanged until an event completes."""


@routine(exported=True, from_host=PTR, to_host=PTR)
def pjrt_set_transfers(f: Function, from_host: Value, to_host: Value) -> None:
    """Emit a native function that sets the Python callbacks for transfers that native code cannot do.

    They implement ``PJRT_Client_BufferFromHostBuffer`` and ``PJRT_Buffer_ToHostBuffer``, for example for
    arrays that are not row-major.
    """
    _PYTHON(f)["from_host"], _PYTHON(f)["to_host"] = from_host, to_host


@function("Buffer_ToHostBuffer")
def to_host(f: Function, args: Fields) -> Value:
    """Emit ``PJRT_Buffer_ToHostBuffer``: wait until a buffer is ready, and copy its data to the host.

    If the destination is null, the function only stores the size in bytes in ``args``. If the caller states a
    host layout, the function calls Python, which copies the data.
    """
    with f.when(~is_null(args["host_layout"])):
        f.return_value(f.call_pointer(PTR, _PYTHON(f)["to_host"], args.pointer))
    buffer, target = load_undeleted_buffer(f, args, "src"), args["dst"]
    size = buffer["bytes"]
    with f.when(is_null(target)):
        args["dst_size"] = size
        f.return_value(0)
    with f.when(size.compare("ugt", args["dst_size"])):
        f.return_value(refusal(f, INVALID_ARGUMENT, "the destination is smaller than the buffer's elements"))
    _read(f, buffer, target, f.constant(I64, 0), size)
    args["event"] = ready_event(f)
    return null(f)


@function("Buffer_CopyRawToHost")
def raw_to_host(f: Function, args: Fields) -> Value:
    """Emit ``PJRT_Buffer_CopyRawToHost``: wait until a buffer is ready, and copy some bytes of it.

    They go to the host address that the caller passes. The function returns an error if the buffer has fewer
    than ``transfer_size`` bytes from ``offset`` on.
    """
    buffer, offset, size = load_undeleted_buffer(f, args), args["offset"], args["transfer_size"]
    total = buffer["bytes"]
    with f.when(offset.compare("ugt", total) | size.compare("ugt", total - offset)):
        f.return_value(refusal(f, INVALID_ARGUMENT, "bytes beyond the end of the buffer"))
    _read(f, buffer, args["dst"], offset, size)
    args["event"] = ready_event(f)
    return null(f)


def _read(f: Function, buffer: Fields, target: Value, offset: Value, size: Value) -> None:
    """Emit a wait for a buffer, and a copy of ``size`` bytes from its byte ``offset`` to address ``target``.

    If the computation of the buffer failed, the emitted code returns its error from the native function.
    """
    storage = pointee(buffer, "storage")
    keep_storage(f, storage)
    error = pjrt_await(f, buffer["event"])
    with f.when(~is_null(error)):
        drop_storage(f, storage)
        f.return_value(copy_of_error(f, error))
    copy_bytes(target, f.offset(storage["data"], offset), size)
    drop_storage(f, storage)


@function("Client_BufferFromHostBuffer")
def from_host(f: Function, args: Fields) -> Value:
    """Emit ``PJRT_Client_BufferFromHostBuffer``, which creates a buffer from the data of a host array.

    The function calls Python if the host array is not row-major, if the caller states a layout on the device,
    if elements are narrower than a byte, and if memory is short.
    """
    with section(f) as native:
        width = _width_of(f, args["type"])
        native.leave_if(is_zero(width) | ~is_null(args["device_layout"]))
        size = _row_major_size(f, args, width, native)
        device, memory = LocalVariable(f, PTR, args["device"]), LocalVariable(f, PTR, args["memory"])
        with choose(f, is_null(memory.get())) as choice:
            memory.set(Fields(DEVICE, device.get())["memory"])
            choice.otherwise()
            device.set(Fields(MEMORY, memory.get())["device"])
        storage, event = _host_storage(f, args, size, native)
        args["done_with_host_buffer"] = event
        type, rank, dimensions = args["type"], args["num_dims"], args["dims"]
        args["buffer"] = pjrt_buffer(f, storage, device.get(), memory.get(), 0, size, type, rank, dimensions)
        f.return_value(0)
    return f.call_pointer(PTR, _PYTHON(f)["from_host"], args.pointer)


def _width_of(f: Function, type: Value) -> Value:
    """Emit the lookup of an element type's size in bytes in a table; return the size.

    It is 0 for unknown types and types narrower than a byte. ``type`` is PJRT's number of the type.
    """
    widths = [TYPES[n].bits // 8 if n in TYPES else 0 for n in range(max(TYPES) + 1)]
    f.module.constant_bytes("widths", bytes(widths), align=I8.size)
    row = type.compare("ult", len(widths)).select(type, 0)
    return load_element(I8, f.address("widths"), row.cast("zext", I64)).cast("zext", I64)


def _row_major_size(f: Function, args: Fields, width: Value, native: Section) -> Value:
    """Emit the computation of the size of a host array in bytes, and a check that it is row-major.

    Returns the size; ``width`` is that of an element. If the byte strides of a nonempty array are not
    row-major, the emitted code leaves the section ``native``; Python then transfers the array.
    """
    dimension, size = LocalVariable(f, I64, args["num_dims"]), LocalVariable(f, I64, width)
    differs = LocalVariable(f, I1, f.constant(I1, 0))
    is_strided = ~is_zero(args["num_byte_strides"])
    with repeat(f) as loop:
        loop.leave_if(is_zero(dimension.get()))
        dimension.set(dimension.get() - 1)
        extent = load_element(I64, args["dims"], dimension.get())
        with f.when(is_strided):
            stride = load_element(I64, args["byte_strides"], dimension.get())
            is_other = stride.compare("ne", size.get()) & extent.compare("ne", 1)
            differs.set(differs.get() | is_other)
        size.set(size.get() * extent)
    native.leave_if(differs.get() & ~is_zero(size.get()))
    return size.get()


def _host_storage(f: Function, args: Fields, size: Value, native: Section) -> tuple[Value, Value]:
    """Emit code that makes a storage (memory block) of the host's data; return the storage and an event.

    The event completes when the host may overwrite its data. The storage refers to the host's memory if that
    is large, aligned, and immutable until the event completes; otherwise it has a copy of the data. If memory
    is short, the emitted code leaves the section ``native``; Python then transfers the array.
    """
    data, storage, event = args["data"], LocalVariable(f, PTR), LocalVariable(f, PTR, ready_event(f))
    is_lasting = args["host_buffer_semantics"].compare("uge", _IMMUTABLE_UNTIL_TRANSFER)
    is_aligned = is_zero(data.cast("ptrtoint", I64) & (_BORROWED_ALIGNMENT - 1))
    with choose(f, is_lasting & size.compare("uge", _LEAST_BORROWED) & is_aligned) as choice:
        event.set(pjrt_event(f, 2))
        storage.set(new_foreign_storage(f, data, release_host.address(f), event.get(), 0))
        choice.otherwise()
        storage.set(pjrt_storage(f, size))
        native.leave_if(is_null(storage.get()))
        copy_bytes(Fields(STORAGE, storage.get())["data"], data, size)
    return storage.get(), event.get()


@routine(
    PTR,
    exported=True,
    data=PTR,
    bytes=I64,
    type=I32,
    rank=I64,
    dimensions=PTR,
    device=PTR,
    memory=PTR,
    callee=PTR,
    argument=PTR,
)
def pjrt_view(
    f: Function,
    data: Value,
    bytes: Value,
    type: Value,
    rank: Value,
    dimensions: Value,
    device: Value,
    memory: Value,
    callee: Value,
    argument: Value,
) -> Value:
    """Emit a native function that returns a buffer for the caller's memory at ``data``, without a copy.

    When the memory is no longer used, the caller's function ``callee`` is called with ``data`` and
    ``argument``, unless ``callee`` is null. ``type`` is PJRT's number of the element type.
    """
    storage = Fields(STORAGE, new_foreign_storage(f, data, release_foreign.address(f), callee, argument))
    storage["uses"] = NEVER
    return pjrt_buffer(f, storage, device, memory, 0, bytes, type, rank, dimensions)
