"""Access to the bytes of packed numeric fields, which keeps every bit.

Read through Python, an element of a ``repeated float`` becomes a double, which turns a signaling NaN into a
quiet one; besides, a large constant takes a Python object per element. On the wire, floats, doubles or bools
of one field are contiguous and little-endian, as in a numpy array.
"""

from __future__ import annotations

from google.protobuf.message import Message

_LENGTH_DELIMITED = 2
_FIXED_WIDTHS = {1: 8, 5: 4}


def packed_bytes(message: Message, field: str) -> bytes:
    """Return the contiguous little-endian elements of a repeated float, double or bool field."""
    number = message.DESCRIPTOR.fields_by_name[field].number
    wire = message.SerializeToString()
    position, encoded = 0, b""
    while position < len(wire):
        tag, position = _read_varint(wire, position)
        wire_type = tag & 7
        if wire_type == _LENGTH_DELIMITED:
            size, position = _read_varint(wire, position)
            if tag >> 3 == number:
                encoded += wire[position : position + size]
            position += size
        elif wire_type in _FIXED_WIDTHS:
            position += _FIXED_WIDTHS[wire_type]
        else:
            _, position = _read_varint(wire, position)
    return encoded


def append_packed_bytes(message: Message, field: str, elements: bytes) -> None:
    """Append little-endian elements to a repeated float, double or bool field of ``message``."""
    if elements:
        tag = message.DESCRIPTOR.fields_by_name[field].number << 3 | _LENGTH_DELIMITED
        message.MergeFromString(_varint(tag) + _varint(len(elements)) + elements)


def _read_varint(wire: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = wire[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
