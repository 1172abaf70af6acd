"""Handles of the plug-in's objects: addresses of structs that only native code reads."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, ClassVar, Final, TypeVar

from hloom.codegen.structs import I64, Struct
from hloom.jax.pjrt.errors import INVALID_ARGUMENT, PjrtError
from hloom.lifetime import keep_for_ever

T = TypeVar("T")
OPAQUE: Final = Struct("opaque", unused=I64)
"""The struct of an object that native code does not read."""


class Handle:
    """A Python object that callers of PJRT know by a handle, the address of a struct; it lives until `drop`.

    Attributes:
        record: the struct, whose fields native code reads.
        handle: the address of the struct.
    """

    _alive: ClassVar[dict[int, Handle]] = {}

    def __init__(self, struct: Struct = OPAQUE) -> None:
        self.record = struct.allocate()
        self.handle = self.record.address
        self._memory: list[SizedMemory] = []
        Handle._alive[self.handle] = self

    def set(self, **fields: int | SizedMemory) -> None:
        """Store values in fields of `record`.

        For a string or array (`SizedMemory`), stores its address in the named field and its size in the field
        ``NAME_size`` or ``num_NAME``, and keeps it alive as long as this object.
        """
        for name, value in fields.items():
            if isinstance(value, int):
                self.record[name] = value
            else:
                self._memory.append(value)
                self.record.update({name: value.address, value.size_name(name): value.size})

    def drop(self) -> None:
        """Invalidate the handle, and drop the reference that keeps the object alive."""
        Handle._alive.pop(self.handle, None)


keep_for_ever(Handle._alive)  # pyright: ignore[reportPrivateUsage]
"""Native threads run programs until the process ends, after Python's finalization."""


def object_at(handle: int | None, type: type[T]) -> T:
    """Return the Python object with the given handle.

    Raises PjrtError if the handle is null or unknown, or if its object is not of the given type.
    """
    candidate = Handle._alive.get(handle or 0)  # pyright: ignore[reportPrivateUsage]
    if not isinstance(candidate, type):
        message = f"{type.__name__}: no such handle, or one that was destroyed"
        raise PjrtError(INVALID_ARGUMENT, message)
    return candidate


class SizedMemory:
    """A C string or C array in memory that a ctypes object owns.

    Attributes:
        address: the address of the first byte or element.
        size: the number of bytes or elements.
    """

    _size_field: ClassVar[str] = "num_{}"

    def __init__(self, owner: Any, size: int) -> None:
        self._owner: Final = owner
        self.address: Final = ctypes.addressof(owner)
        self.size: Final = size

    def size_name(self, name: str) -> str:
        """Return the name of the field for this memory's size, beside the field ``name`` for its address.

        It is ``NAME_size`` for a string, and ``num_NAME`` for an array.
        """
        return self._size_field.format(name)

    def write(self, args: object, pointer: str) -> None:
        """Store this memory's address and size in fields of ``args``, the argument struct of a PJRT function.

        The address goes to the field ``pointer``; the size goes to ``POINTER_size`` for a string, and to
        ``num_POINTER`` for an array.
        """
        setattr(args, pointer, self.address)
        setattr(args, self.size_name(pointer), self.size)


class Text(SizedMemory):
    """A zero-terminated C string; its size does not count the terminating zero."""

    _size_field = "{}_size"

    def __init__(self, text: str | bytes) -> None:
        encoded = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
        super().__init__(ctypes.create_string_buffer(encoded, len(encoded) + 1), len(encoded))


class CArray(SizedMemory):
    """A C array of integers; ``kind`` is the ctypes type of an element, by default a pointer."""

    def __init__(self, values: Sequence[int], kind: Any = ctypes.c_void_p) -> None:
        super().__init__((kind * max(1, len(values)))(*values), len(values))


def read_array(address: int | None, count: int, kind: Any = ctypes.c_int64) -> list[int]:
    """Return the ``count`` elements of the C array at ``address``; a null pointer among them becomes None.

    ``kind`` is the ctypes type of an element. Returns an empty list if ``address`` is null.
    """
    return list((kind * count).from_address(address)) if count and address else []
