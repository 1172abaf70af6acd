"""Asynchronous transfers from the host: buffers are created first, and filled in pieces later.

JAX fills such buffers when arrays are sent between processes over sockets. Each transfer call returns after
its copy.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Final

import numpy as np

from hloom.codegen.structs import Record
from hloom.errors import plural
from hloom.jax.devices.client import ClientMemory
from hloom.jax.devices.memory_layouts import canonical, handle_of, order_at
from hloom.jax.devices.transfers import allocate, buffer_at, logical, order_of, place_of, size_of
from hloom.jax.pjrt import abi
from hloom.jax.pjrt.api import implements
from hloom.jax.pjrt.errors import CANCELLED, INVALID_ARGUMENT, PjrtError
from hloom.jax.pjrt.handles import Handle, object_at, read_array
from hloom.jax.pjrt.native import native
from hloom.jax.pjrt.structs import BUFFER


class TransferManager(Handle):
    """A PJRT_AsyncHostToDeviceTransferManager: pending buffers, which transfers from the host fill.

    Attributes:
        device, memory: the device and the memory space of the buffers.
        buffers: the handles of the manager's own buffers; callers get the handles of further buffers, which
            share the bytes with these.
    """

    def __init__(self, memory: ClientMemory) -> None:
        super().__init__()
        self.device, self.memory = place_of(None, memory.handle)
        self.buffers: list[int] = []
        self._pending: set[int] = set()
        self._lock: Final = threading.Lock()

    def add(self, dimensions: tuple[int, ...], element_type: int, order: tuple[int, ...]) -> None:
        """Create a pending buffer with uninitialized elements, and append its handle to `buffers`.

        Args:
            dimensions: the dimensions of the array.
            element_type: PJRT's number of the element type.
            order: the minor-to-major order of the buffer's layout; empty for row-major.
        """
        size, event = size_of(dimensions, element_type), native().call("pjrt_event", 1)
        buffer = allocate(dimensions, size, element_type, self.device, self.memory, event)
        BUFFER.record(buffer)["layout"] = handle_of(order)
        self._pending.add(len(self.buffers))
        self.buffers.append(buffer)

    def buffer(self, number: int) -> Record:
        """Return the struct of the manager's buffer with the index ``number``.

        Raises PjrtError if there is none.
        """
        if not 0 <= number < len(self.buffers):
            raise PjrtError(INVALID_ARGUMENT, f"no buffer {number}: there are {len(self.buffers)}")
        return buffer_at(self.buffers[number])

    def fill(self, number: int, source: int, offset: int, size: int, *, is_last: bool) -> None:
        """Copy ``size`` bytes from the address ``source`` into a buffer, from its byte ``offset`` on.

        ``number`` is the index of the buffer. If ``is_last``, the buffer becomes ready. Raises PjrtError if
        the buffer is ready or failed already, or if it has fewer than ``offset + size`` bytes.
        """
        buffer = self.buffer(number)
        with self._lock:
            if number not in self._pending:
                raise PjrtError(INVALID_ARGUMENT, f"buffer {number} is complete")
            if not 0 <= offset <= offset + size <= buffer["bytes"]:
                message = f"{plural(size, 'byte')} from {offset} of a buffer of {buffer['bytes']}"
                raise PjrtError(INVALID_ARGUMENT, message)
            if size:
                ctypes.memmove(buffer["data"] + offset, source, size)
            if is_last:
                self._complete(number, None)

    def fail(self, number: int, code: int, message: str) -> None:
        """Make the pending buffer with the index ``number`` fail, with a status code and a message.

        Raises PjrtError if the buffer is ready or failed already.
        """
        self.buffer(number)
        with self._lock:
            if number not in self._pending:
                raise PjrtError(INVALID_ARGUMENT, f"buffer {number} is complete")
            self._complete(number, native().error(code, message))

    def _complete(self, number: int, error: int | None) -> None:
        self._pending.discard(number)
        native().call("pjrt_complete", self.buffer(number)["event"], error)

    def release(self) -> None:
        """Make pending buffers fail with CANCELLED; destroy the manager's own buffers and its handle."""
        for number in sorted(self._pending):
            self.fail(number, CANCELLED, "the transfers to a buffer ended before the last one")
        for buffer in self.buffers:
            _call("Buffer_Destroy", buffer=buffer)
        self.drop()


def _call(name: str, **fields: int) -> Any:
    """Call the native function ``PJRT_{name}``, which cannot fail, with the given fields as arguments.

    Returns the argument struct, into which the function has written its results.
    """
    args = abi.struct(name)(**fields)
    native().call(f"PJRT_{name}", ctypes.addressof(args))
    return args


def _manager(args: ctypes.Structure) -> TransferManager:
    return object_at(args.transfer_manager, TransferManager)


@implements("Client_CreateBuffersForAsyncHostToDevice")
def _create(args: ctypes.Structure) -> None:
    manager = TransferManager(object_at(args.memory, ClientMemory))
    layouts = read_array(args.device_layouts, args.num_device_layouts, ctypes.c_void_p)
    specifications = (abi.struct("ShapeSpec") * args.num_shape_specs).from_address(args.shape_specs)
    try:
        for number, shape in enumerate(specifications):
            layout = layouts[number] if number < len(layouts) else None
            order = canonical(order_of(layout)) if layout else ()
            manager.add(tuple(read_array(shape.dims, shape.num_dims)), shape.element_type, order)
    except PjrtError:
        manager.release()
        raise
    args.transfer_manager = manager.handle


@implements("AsyncHostToDeviceTransferManager_Destroy")
def _destroy(args: ctypes.Structure) -> None:
    if args.transfer_manager:
        _manager(args).release()


@implements("AsyncHostToDeviceTransferManager_TransferData")
def _transfer_data(args: ctypes.Structure) -> None:
    is_last = bool(args.is_last_transfer)
    _manager(args).fill(args.buffer_index, args.data, args.offset, args.transfer_size, is_last=is_last)
    args.done_with_h2d_transfer = native().call("pjrt_ready_event")


@implements("AsyncHostToDeviceTransferManager_TransferLiteral")
def _transfer_literal(args: ctypes.Structure) -> None:
    """Fill a buffer with all elements of a host array: ``AsyncHostToDeviceTransferManager_TransferLiteral``.

    Reorders the elements if the layout of the host array is not that of the buffer.
    """
    manager = _manager(args)
    buffer = manager.buffer(args.buffer_index)
    dimensions = tuple(read_array(args.shape_dims, args.shape_num_dims))
    size = size_of(dimensions, args.shape_element_type)
    if size != buffer["bytes"]:
        raise PjrtError(
            INVALID_ARGUMENT, f"an array of {plural(size, 'byte')} for a buffer of {buffer['bytes']}"
        )
    order = canonical(order_of(args.shape_layout)) if args.shape_layout else ()
    if order == order_at(buffer["layout"]) or not size:
        manager.fill(args.buffer_index, args.data, 0, size, is_last=True)
    else:
        raw: Any = (ctypes.c_uint8 * size).from_address(args.data)
        major = tuple(dimensions[d] for d in reversed(order)) or dimensions
        width = size_of((), args.shape_element_type)
        elements = np.frombuffer(raw, np.dtype((np.void, width))).reshape(major)
        array, wanted = logical(elements, order), order_at(buffer["layout"])
        copy = np.ascontiguousarray(array.transpose(wanted[::-1]) if wanted else array)
        manager.fill(args.buffer_index, copy.ctypes.data, 0, size, is_last=True)
    args.done_with_h2d_transfer = native().call("pjrt_ready_event")


@implements("AsyncHostToDeviceTransferManager_RetrieveBuffer")
def _retrieve(args: ctypes.Structure) -> None:
    manager = _manager(args)
    buffer = manager.buffer(args.buffer_index)
    copied = _call("Buffer_CopyToMemory", buffer=buffer.address, dst_memory=manager.memory.handle)
    args.buffer_out = copied.dst_buffer


@implements("AsyncHostToDeviceTransferManager_SetBufferError")
def _set_error(args: ctypes.Structure) -> None:
    message = ctypes.string_at(args.error_message, args.error_message_size).decode("utf-8", "replace")
    _manager(args).fail(args.buffer_index, args.error_code, message)


@implements("AsyncHostToDeviceTransferManager_Device")
def _device(args: ctypes.Structure) -> None:
    args.device_out = _manager(args).device.handle


@implements("AsyncHostToDeviceTransferManager_BufferCount")
def _buffer_count(args: ctypes.Structure) -> None:
    args.buffer_count = len(_manager(args).buffers)


@implements("AsyncHostToDeviceTransferManager_BufferSize")
def _buffer_size(args: ctypes.Structure) -> None:
    args.buffer_size = _manager(args).buffer(args.buffer_index)["bytes"]


@implements("AsyncHostToDeviceTransferManager_AddMetadata")
def _add_metadata(args: ctypes.Structure) -> None:
    """Ignore the caller's hints about transfers: ``AsyncHostToDeviceTransferManager_AddMetadata``."""
    _manager(args)
