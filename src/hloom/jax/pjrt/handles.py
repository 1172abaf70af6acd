"""Handles that PJRT's callers get for the plug-in's objects: addresses of structs that native code reads.

The structs are those of ``native_code/*.ll``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, ClassVar, Final, TypeVar

from hloom.jax.pjrt.errors import INVALID_ARGUMENT, PjrtError
from hloom.lifetime import keep_for_ever

T = TypeVar("T")


class BufferHead(ctypes.Structure):
    """The head of a buffer's handle; its dimensions follow."""

    _fields_ = (
        ("storage", ctypes.c_void_p), ("data", ctypes.c_void_p), ("device", ctypes.c_void_p),
        ("memory", ctypes.c_void_p), ("event", ctypes.c_void_p), ("bytes", ctypes.c_int64),
        ("rank", ctypes.c_int64), ("type", ctypes.c_uint32), ("deleted", ctypes.c_uint32),
        ("layout", ctypes.c_void_p), ("donation", ctypes.c_int64),
    )  # fmt: skip


class DeviceWords(ctypes.Structure):
    """A device: its default memory, its worker, and the addresses of all its memories."""

    _fields_ = (("memory", ctypes.c_void_p), ("worker", ctypes.c_void_p), ("memories", ctypes.c_void_p))


class MemoryWords(ctypes.Structure):
    """A memory: null for a table of functions, the length of its kind, its device, and its kind.

    Callers of version 0.105 and later keep data of their own by the functions, if there are any.
    """

    _fields_ = (
        ("functions", ctypes.c_void_p), ("kind_size", ctypes.c_int64), ("device", ctypes.c_void_p),
        ("kind", ctypes.c_char_p),
    )  # fmt: skip


class ExecutableWords(ctypes.Structure):
    """An executable; one without a program and a gang is run by Python."""

    _fields_ = (
        ("program", ctypes.c_void_p), ("context", ctypes.c_void_p), ("temp_bytes", ctypes.c_int64),
        ("num_replicas", ctypes.c_int64), ("num_partitions", ctypes.c_int64), ("inputs", ctypes.c_int64),
        ("outputs", ctypes.c_int64), ("input_table", ctypes.c_void_p), ("output_table", ctypes.c_void_p),
        ("devices", ctypes.c_void_p), ("donated", ctypes.c_int64),
        ("donated_indices", ctypes.c_void_p), ("long", ctypes.c_int64), ("queued", ctypes.c_int64),
        ("next", ctypes.c_void_p), ("destroyed", ctypes.c_int64), ("gang", ctypes.c_void_p),
        ("num_devices", ctypes.c_int64),
    )  # fmt: skip


class LayoutWords(ctypes.Structure):
    """A layout: its text, the length of the text, and the order of the dimensions, minor to major."""

    _fields_ = (("text", ctypes.c_char_p), ("size", ctypes.c_int64), ("order", ctypes.c_void_p))


class EmptyWords(ctypes.Structure):
    """An object that native code does not read."""

    _fields_ = (("unused", ctypes.c_int64),)


class Handle:
    """An object with a handle, alive until `drop`.

    Attributes:
        words: the struct.
        handle: its address.
    """

    _alive: ClassVar[dict[int, Handle]] = {}

    def __init__(self, words: ctypes.Structure | None = None) -> None:
        self.words: Any = EmptyWords() if words is None else words
        self.handle = ctypes.addressof(self.words)
        Handle._alive[self.handle] = self

    def drop(self) -> None:
        """Forget the object: its handle is invalid from now on."""
        Handle._alive.pop(self.handle, None)


keep_for_ever(Handle._alive)  # pyright: ignore[reportPrivateUsage]
"""Threads without Python run programs until the process has ended."""


def object_at(handle: int | None, wanted: type[T]) -> T:
    """Return the object of a handle; raises PjrtError if it has another type."""
    found = Handle._alive.get(handle or 0)  # pyright: ignore[reportPrivateUsage]
    if not isinstance(found, wanted):
        message = f"{wanted.__name__}: no such handle, or one that was destroyed"
        raise PjrtError(INVALID_ARGUMENT, message)
    return found


class Text:
    """A string at a fixed address.

    Attributes:
        address, size: where it is, and its bytes without the terminating zero.
    """

    def __init__(self, text: str | bytes) -> None:
        encoded = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        self._buffer: Final = ctypes.create_string_buffer(encoded, len(encoded) + 1)
        self.address: Final = ctypes.addressof(self._buffer)
        self.size: Final = len(encoded)

    def write(self, args: Any, pointer: str, size: str | None = None) -> None:
        """Write address and size to fields of arguments; the size's name is the pointer's with ``_size``."""
        setattr(args, pointer, self.address)
        setattr(args, size or f"{pointer}_size", self.size)


class Words:
    """Integers of one type, or addresses, at a fixed address."""

    def __init__(self, values: Sequence[int], kind: Any = ctypes.c_void_p) -> None:
        self._array: Final = (kind * max(1, len(values)))(*values)
        self.address: Final = ctypes.addressof(self._array)
        self.size: Final = len(values)


def words_at(address: int | None, count: int, kind: Any = ctypes.c_int64) -> list[int]:
    """Read integers of one type, or addresses (None for null)."""
    return list((kind * count).from_address(address)) if count and address else []
