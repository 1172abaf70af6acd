"""Handles that PJRT's callers get for the plug-in's objects: addresses of structs that native code reads."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, ClassVar, Final, TypeVar

from hloom.codegen.structs import I64, Struct
from hloom.jax.pjrt.errors import INVALID_ARGUMENT, PjrtError
from hloom.lifetime import keep_for_ever

T = TypeVar("T")
OPAQUE: Final = Struct("opaque", unused=I64)
"""An object that native code does not read."""


class Handle:
    """An object with a handle, alive until `drop`.

    Attributes:
        record: the struct.
        handle: its address.
    """

    _alive: ClassVar[dict[int, Handle]] = {}

    def __init__(self, struct: Struct = OPAQUE) -> None:
        self.record = struct.allocate()
        self.handle = self.record.address
        self._arrays: list[Text | Words] = []
        Handle._alive[self.handle] = self

    def set(self, **fields: int | Text | Words) -> None:
        """Set fields of the struct; texts and words, which the object keeps, set their sizes too."""
        for name, value in fields.items():
            if isinstance(value, int):
                self.record[name] = value
            else:
                self._arrays.append(value)
                self.record.update({name: value.address, value.size_name(name): value.size})

    def drop(self) -> None:
        """Forget the object: its handle is invalid from now on."""
        Handle._alive.pop(self.handle, None)


keep_for_ever(Handle._alive)  # pyright: ignore[reportPrivateUsage]
"""Threads without Python run programs until the process has ended."""


def object_at(handle: int | None, type: type[T]) -> T:
    """Return the object of a handle; raises PjrtError if it has another type."""
    thing = Handle._alive.get(handle or 0)  # pyright: ignore[reportPrivateUsage]
    if not isinstance(thing, type):
        message = f"{type.__name__}: no such handle, or one that was destroyed"
        raise PjrtError(INVALID_ARGUMENT, message)
    return thing


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

    @staticmethod
    def size_name(name: str) -> str:
        """Return the name of the field of the size beside one of the address."""
        return f"{name}_size"

    def write(self, args: object, pointer: str) -> None:
        """Write address and size to fields of arguments."""
        setattr(args, pointer, self.address)
        setattr(args, self.size_name(pointer), self.size)


class Words:
    """Integers of one type, or addresses, at a fixed address."""

    def __init__(self, values: Sequence[int], kind: Any = ctypes.c_void_p) -> None:
        self._array: Final = (kind * max(1, len(values)))(*values)
        self.address: Final = ctypes.addressof(self._array)
        self.size: Final = len(values)

    @staticmethod
    def size_name(name: str) -> str:
        """Return the name of the field of the number beside one of the address."""
        return f"num_{name}"


def words_at(address: int | None, count: int, kind: Any = ctypes.c_int64) -> list[int]:
    """Read integers of one type, or addresses (None for null)."""
    return list((kind * count).from_address(address)) if count and address else []
