"""Transfers in Python: arrays of other layouts than row-major, sub-byte elements, views, allocation."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from hloom.codegen.structs import Record
from hloom.errors import plural
from hloom.jax.devices.client import ClientDevice, ClientMemory
from hloom.jax.devices.memory_layouts import canonical, handle_of, order_at
from hloom.jax.pjrt import abi
from hloom.jax.pjrt.api import callback, implements
from hloom.jax.pjrt.element_types import NUMBERS, TYPES
from hloom.jax.pjrt.errors import INVALID_ARGUMENT, RESOURCE_EXHAUSTED, UNIMPLEMENTED, PjrtError
from hloom.jax.pjrt.handles import object_at, read_array
from hloom.jax.pjrt.native import native
from hloom.jax.pjrt.structs import BUFFER, ERROR
from hloom.shape.element_type import ElementType

Array = np.ndarray

_TILED: Final = 0
"""PJRT's type of layouts that state an order of dimensions, not strides."""


def buffer_at(handle: int | None) -> Record:
    """Return the `BUFFER` struct with the address ``handle``. Raises PjrtError if the handle is null."""
    if not handle:
        raise PjrtError(INVALID_ARGUMENT, "null in the place of a buffer")
    return BUFFER.record(handle)


def dimensions_of(buffer: Record) -> tuple[int, ...]:
    """Return the dimensions of a buffer's array, in logical order."""
    return tuple(read_array(buffer.location("dimensions"), buffer["rank"]))


def dtype_of(element_type: int) -> np.dtype:
    """Return the numpy dtype for PJRT's number of an element type. Raises PjrtError for an unknown number."""
    kind = TYPES.get(element_type)
    if kind is None:
        raise PjrtError(UNIMPLEMENTED, f"element type {element_type} of PJRT is none of hloom's")
    return np.dtype(kind.numpy_dtype)


def elements_of(handle: int) -> Array:
    """Wait until a buffer is ready; return a row-major array that is a view of the buffer's memory.

    The dimensions of the array are those of the buffer in major-to-minor order. Raises PjrtError if the
    buffer was deleted, or if the computation of its elements failed.
    """
    buffer = buffer_at(handle)
    if buffer["deleted"]:
        raise PjrtError(INVALID_ARGUMENT, "Buffer has been deleted or donated.")
    wait_for(buffer)
    dimensions, dtype = dimensions_of(buffer), dtype_of(buffer["type"])
    dimensions = tuple(dimensions[d] for d in reversed(order_at(buffer["layout"]))) or dimensions
    if not buffer["bytes"]:
        return np.empty(dimensions, dtype)
    memory: Any = (ctypes.c_uint8 * buffer["bytes"]).from_address(buffer["data"])
    return np.frombuffer(memory, np.uint8).view(dtype).reshape(dimensions)


def array_of(handle: int) -> Array:
    """Wait until a buffer is ready; return a view of its memory as an array in logical order of dimensions.

    Raises PjrtError if the buffer was deleted, or if the computation of its elements failed.
    """
    elements = elements_of(handle)
    return logical(elements, order_at(buffer_at(handle)["layout"]))


def logical(elements: Array, order: Sequence[int]) -> Array:
    """Transpose an array from the major-to-minor order that a layout gives its dimensions to logical order.

    ``order`` is the minor-to-major order of the layout; empty for row-major.
    """
    if not order:
        return elements
    return elements.transpose([len(order) - 1 - order.index(d) for d in range(len(order))])


def wait_for(buffer: Record) -> None:
    """Wait until a buffer is ready. Raises PjrtError with the error of its computation if that failed."""
    failure = native().call("pjrt_await", buffer["event"])
    if failure:
        error = ERROR.record(failure)
        message = ctypes.string_at(error.location("message"), error["message_size"])
        raise PjrtError(error["code"], message.decode("utf-8", "replace"))


def new_buffer(
    array: Array,
    device: ClientDevice,
    memory: ClientMemory | None = None,
    element_type: int = 0,
    order: tuple[int, ...] = (),
) -> int:
    """Return the handle of a new buffer with a copy of an array.

    Args:
        array: the array, with dimensions in logical order.
        device: the device of the buffer.
        memory: the memory space of the buffer; None for the device's default memory.
        element_type: PJRT's number of the element type; 0 for that of ``array.dtype``.
        order: the minor-to-major order of the buffer's layout; empty for row-major.
    """
    contiguous = np.ascontiguousarray(array.transpose(order[::-1]) if order else array)
    element_type = element_type or NUMBERS[ElementType.from_dtype(contiguous.dtype)]
    handle = allocate(array.shape, contiguous.nbytes, element_type, device, memory)
    if contiguous.nbytes:
        ctypes.memmove(BUFFER.record(handle)["data"], contiguous.ctypes.data, contiguous.nbytes)
    BUFFER.record(handle)["layout"] = handle_of(order)
    return handle


def allocate(
    dimensions: tuple[int, ...],
    size: int,
    element_type: int,
    device: ClientDevice,
    memory: ClientMemory | None,
    event: int | None = None,
) -> int:
    """Return the handle of a new row-major buffer with uninitialized elements.

    Args:
        dimensions: the dimensions of the array.
        size: the size of the elements in bytes.
        element_type: PJRT's number of the element type.
        device: the device.
        memory: the memory space; None for the device's default memory.
        event: the address of the event that completes when the elements are written; None if the buffer is
            ready at once.

    Raises PjrtError with RESOURCE_EXHAUSTED if memory is short.
    """
    storage = native().call("pjrt_storage", size)
    if not storage:
        raise PjrtError(RESOURCE_EXHAUSTED, f"not enough memory for a buffer of {plural(size, 'byte')}")
    words = (ctypes.c_int64 * max(1, len(dimensions)))(*dimensions)
    where = (memory or device.memories[0]).handle
    return native().call(
        "pjrt_buffer",
        storage,
        device.handle,
        where,
        event,
        size,
        element_type,
        len(dimensions),
        ctypes.addressof(words),
    )


def place_of(device: int | None, memory: int | None) -> tuple[ClientDevice, ClientMemory]:
    """Return the device and the memory space with the given handles, one of which may be null.

    If ``memory`` is null, returns the device's default memory space; otherwise ``device`` is ignored, and the
    device is the one to which the memory space belongs.
    """
    if memory:
        target = object_at(memory, ClientMemory)
        return object_at(target.record["device"], ClientDevice), target
    owner = object_at(device, ClientDevice)
    return owner, owner.memories[0]


def from_host(args: ctypes.Structure) -> None:
    """Copy a host array of any strides to a new buffer of any layout: ``PJRT_Client_BufferFromHostBuffer``.

    Native code calls this function for the arrays that it cannot copy: those which are not row-major, are to
    have a stated layout on the device, or have elements narrower than a byte.
    """
    device, memory = place_of(args.device, args.memory)
    dtype = dtype_of(args.type)
    order = canonical(order_of(args.device_layout)) if args.device_layout else ()
    dimensions = tuple(read_array(args.dims, args.num_dims))
    strides = tuple(read_array(args.byte_strides, args.num_byte_strides)) or None
    array = _host_array(args.data, dimensions, dtype, strides)
    if TYPES[args.type].bits < 8:
        array = np.asarray(array).copy().view(np.uint8).view(dtype)
    args.buffer = new_buffer(array, device, memory, args.type, order)
    args.done_with_host_buffer = native().call("pjrt_ready_event")


def _host_array(
    address: int | None, dimensions: tuple[int, ...], dtype: Any, strides: tuple[int, ...] | None
) -> Array:
    if 0 in dimensions or not address:
        return np.empty(dimensions, dtype)
    if strides is None:
        strides = tuple(np.empty(dimensions, np.int8).strides)
        strides = tuple(s * dtype.itemsize for s in strides)
    reach = [(extent - 1) * stride for extent, stride in zip(dimensions, strides, strict=True)]
    low, high = sum(min(0, r) for r in reach), sum(max(0, r) for r in reach) + dtype.itemsize
    memory: Any = (ctypes.c_uint8 * (high - low)).from_address(address + low)
    raw = np.frombuffer(memory, np.uint8)
    return np.ndarray(dimensions, dtype, raw.data, offset=-low, strides=strides)


def order_of(address: int) -> list[int]:
    """Return the minor-to-major order of the PJRT_Buffer_MemoryLayout at an address.

    Raises PjrtError if the layout has strides or tiles.
    """
    layout = abi.struct("MemoryLayout").from_address(address)
    if layout.type != _TILED or layout.num_tiles:
        raise PjrtError(UNIMPLEMENTED, "layouts with tiles or strides are not implemented")
    return read_array(layout.minor_to_major, layout.minor_to_major_size)


def to_host(args: ctypes.Structure) -> None:
    """Copy a buffer to the host in the layout that the caller states: ``PJRT_Buffer_ToHostBuffer``.

    If the destination in ``args`` is null, only stores the size in bytes in ``args``. Native code calls this
    function if the caller states a host layout; all other buffers it copies itself.
    """
    buffer = buffer_at(args.src)
    if not args.dst:
        args.dst_size = buffer["bytes"]
        return
    array = array_of(args.src)
    order = order_of(args.host_layout)
    if len(order) != array.ndim or sorted(order) != list(range(array.ndim)):
        raise PjrtError(INVALID_ARGUMENT, f"{order} is no order of {array.ndim} dimensions")
    elements = np.ascontiguousarray(array.transpose(order[::-1]))
    if elements.nbytes > args.dst_size:
        raise PjrtError(INVALID_ARGUMENT, f"no room for {plural(elements.nbytes, 'byte')} in {args.dst_size}")
    ctypes.memmove(args.dst, elements.ctypes.data, elements.nbytes)
    args.event = native().call("pjrt_ready_event")


def install() -> None:
    """Pass native code the addresses of `from_host` and `to_host`, for transfers that it cannot do itself."""
    addresses = callback(from_host, "Client_BufferFromHostBuffer"), callback(to_host, "Buffer_ToHostBuffer")
    native().call("pjrt_set_transfers", *addresses)


def size_of(dimensions: tuple[int, ...], element_type: int) -> int:
    """Return the size of an array in bytes; ``element_type`` is PJRT's number of the element type.

    Raises PjrtError for an unknown element type.
    """
    return math.prod(dimensions) * dtype_of(element_type).itemsize


@implements("Client_CreateViewOfDeviceBuffer")
def _view(args: ctypes.Structure) -> None:
    device, memory = place_of(args.device, args.memory)
    dimensions = tuple(read_array(args.dims, args.num_dims))
    order = canonical(order_of(args.layout)) if args.layout else ()
    args.buffer = native().call(
        "pjrt_view",
        args.device_buffer_ptr,
        size_of(dimensions, args.element_type),
        args.element_type,
        len(dimensions),
        args.dims,
        device.handle,
        memory.handle,
        args.on_delete_callback,
        args.on_delete_callback_arg,
    )
    BUFFER.record(args.buffer)["layout"] = handle_of(order)


@implements("Client_CreateUninitializedBuffer")
def _uninitialized(args: ctypes.Structure) -> None:
    device, memory = place_of(args.device, args.memory)
    dimensions = tuple(read_array(args.shape_dims, args.shape_num_dims))
    size = size_of(dimensions, args.shape_element_type)
    args.buffer = allocate(dimensions, size, args.shape_element_type, device, memory)


@implements("Client_CreateErrorBuffer")
def _error_buffer(args: ctypes.Structure) -> None:
    device, memory = place_of(None, args.memory)
    message = ctypes.string_at(args.error_message, args.error_message_size)
    event = native().call("pjrt_event", 1)
    native().call("pjrt_complete", event, native().error(args.error_code, message.decode("utf-8", "replace")))
    dimensions = tuple(read_array(args.shape_dims, args.shape_num_dims))
    args.buffer = allocate(dimensions, 0, args.shape_element_type, device, memory, event)
