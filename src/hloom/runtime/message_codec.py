"""Values in messages between processes, as bytes; reading bytes runs no code.

A value is a tag of one byte and its content: None, booleans, integers of 64 bits, strings, tuples, lists,
dictionaries, sets, and arrays of HLO's element types.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import numpy as np

from hloom.errors import HloError
from hloom.shape.element_type import ElementType

_SIZE: Final = struct.Struct("<Q")
_INTEGER: Final = struct.Struct("<q")
_DEEPEST: Final = 32
"""Levels of nesting; values of programs have fewer."""
_CONTAINERS: Final[dict[bytes, Callable[[list[Any]], Any]]] = {
    b"(": tuple,
    b"[": list,
    b"<": set,
    b"{": lambda items: dict(zip(items[::2], items[1::2], strict=True)),
}


def encode(value: object) -> bytes:
    """Return a value as bytes. Raises HloError by the rule ``processes.message`` for another type."""
    parts: list[bytes] = []
    _encode(value, parts)
    return b"".join(parts)


def _encode(value: object, parts: list[bytes]) -> None:
    match value:
        case None:
            parts.append(b"N")
        case bool():
            parts.append(b"T" if value else b"F")
        case int():
            parts += [b"i", _INTEGER.pack(value)]
        case str():
            text = value.encode()
            parts += [b"s", _SIZE.pack(len(text)), text]
        case tuple() | list() | set() | frozenset():
            tag = b"(" if isinstance(value, tuple) else b"[" if isinstance(value, list) else b"<"
            _encode_items(tag, list(cast("Sequence[Any]", value)), parts)
        case dict():
            pairs = cast("dict[Any, Any]", value).items()
            _encode_items(b"{", [part for pair in pairs for part in pair], parts)
        case np.ndarray() | np.generic():
            _encode_array(np.asarray(cast("Any", value)), parts)
        case _:
            message = f"a value of type {type(value).__name__} cannot be sent to other processes"
            raise HloError(message, rule="processes.message")


def _encode_items(tag: bytes, items: list[object], parts: list[bytes]) -> None:
    parts += [tag, _SIZE.pack(len(items))]
    for item in items:
        _encode(item, parts)


def _encode_array(array: np.ndarray, parts: list[bytes]) -> None:
    name = ElementType.from_dtype(array.dtype).name.encode()
    parts += [b"a", _SIZE.pack(len(name)), name, _SIZE.pack(array.ndim)]
    parts += [_SIZE.pack(extent) for extent in array.shape]
    parts.append(np.ascontiguousarray(array).tobytes())


def decode(data: bytes | bytearray) -> Any:
    """Return the value of bytes. Raises HloError by the rule ``processes.message`` if they are malformed."""
    reader = _Reader(data)
    try:
        value = reader.value(0)
    except (ValueError, struct.error) as error:
        raise HloError(f"a malformed message: {error}", rule="processes.message") from None
    if reader.position != len(data):
        raise HloError("a malformed message: bytes behind its end", rule="processes.message")
    return value


class _Reader:
    """Reads values from bytes; raises ValueError or struct.error if they are malformed."""

    def __init__(self, data: bytes | bytearray) -> None:
        self._data = memoryview(data)
        self.position = 0

    def _take(self, size: int) -> memoryview:
        start, self.position = self.position, self.position + size
        if self.position > len(self._data):
            raise ValueError("it ends within a value")
        return self._data[start : self.position]

    def _size(self) -> int:
        return _SIZE.unpack(self._take(8))[0]

    def value(self, depth: int) -> Any:
        """Read the next value."""
        if depth > _DEEPEST:
            raise ValueError("too many levels")
        tag = bytes(self._take(1))
        match tag:
            case b"N":
                return None
            case b"T" | b"F":
                return tag == b"T"
            case b"i":
                return _INTEGER.unpack(self._take(8))[0]
            case b"s":
                return bytes(self._take(self._size())).decode()
            case b"a":
                return self._array()
            case _ if tag in _CONTAINERS:
                items = [self.value(depth + 1) for _ in range(self._count())]
                return _CONTAINERS[tag](items)
            case _:
                raise ValueError(f"the tag {tag!r}")

    def _count(self) -> int:
        """Read the number of items, of which each has a byte or more."""
        count = self._size()
        if count > len(self._data) - self.position:
            raise ValueError("it ends within a value")
        return count

    def _array(self) -> np.ndarray:
        dtype = ElementType.parse(bytes(self._take(self._size())).decode()).numpy_dtype
        shape = [self._size() for _ in range(self._count())]
        size = math.prod(shape) * dtype.itemsize
        return np.frombuffer(self._take(size), dtype).reshape(shape).copy()
