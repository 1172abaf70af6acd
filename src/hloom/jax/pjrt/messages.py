"""Protobuf's wire format without generated classes, for the few messages exchanged with JAX and XProf.

DeviceAssignmentProto is declared in openxla/xla, ``xla/xla_data.proto``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hloom.errors import plural

_VARINT, _BYTES = 0, 2
"""Wire types."""


def varint(value: int) -> bytes:
    """Encode a nonnegative integer as a varint: seven bits in each byte, the least significant first."""
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def bytes_field(number: int, content: bytes) -> bytes:
    """Encode a field of bytes (a message, a string, or packed integers): tag, length in bytes, content."""
    return varint(number << 3 | _BYTES) + varint(len(content)) + content


def integer_field(number: int, value: int) -> bytes:
    """Encode a field of a nonnegative integer: the tag (field number and wire type), then a varint."""
    return varint(number << 3 | _VARINT) + varint(value)


def device_assignment(replicas: int, partitions: int, devices: Sequence[int]) -> bytes:
    """Serialize a DeviceAssignmentProto; ``devices`` are the device ids in replica-major order."""
    encoded = integer_field(1, replicas) + integer_field(2, partitions)
    for partition in range(partitions):
        column = b"".join(map(varint, devices[partition::partitions]))
        encoded += bytes_field(3, bytes_field(1, column))
    return encoded


def assigned_devices(assignment: bytes, replicas: int, partitions: int) -> list[int]:
    """Return the device ids of a serialized DeviceAssignmentProto in replica-major order.

    Raises ValueError if ``assignment`` is malformed, or not for ``replicas`` times ``partitions`` devices.
    """
    columns = [
        [device for number, ids in _fields(column) if number == 1 for device in _integers(ids)]
        for field, column in _fields(assignment)
        if field == 3 and isinstance(column, bytes)
    ]
    if len(columns) != partitions or any(len(column) != replicas for column in columns):
        raise ValueError(
            f"the device assignment is not one of {plural(replicas, 'replica')}, "
            f"{plural(partitions, 'partition')}"
        )
    return [columns[partition][replica] for replica in range(replicas) for partition in range(partitions)]


def _fields(message: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield the number and the content (bytes, or the integer of a varint) of each field of a message.

    Raises ValueError if the message is malformed.
    """
    position = 0
    while position < len(message):
        tag, position = _varint_at(message, position)
        content, position = _varint_at(message, position)
        if tag & 7 == _BYTES:
            end = position + content
            if end > len(message):
                raise ValueError("a field beyond the end of the message")
            yield tag >> 3, message[position:end]
            position = end
        elif tag & 7 == _VARINT:
            yield tag >> 3, content
        else:
            raise ValueError(f"wire type {tag & 7} in a message of integers")


def _integers(content: bytes | int) -> list[int]:
    """Return the integers in the content of one field of a repeated integer.

    The content is an integer, if the field is not packed, or the bytes of packed varints.
    """
    if isinstance(content, int):
        return [content]
    integers: list[int] = []
    position = 0
    while position < len(content):
        value, position = _varint_at(content, position)
        integers.append(value)
    return integers


def _varint_at(message: bytes, position: int) -> tuple[int, int]:
    """Decode the varint that begins at ``position``; return its value and the position after it.

    Raises ValueError if the message ends within the varint.
    """
    value = shift = 0
    for at in range(position, len(message)):
        value |= (message[at] & 127) << shift
        if message[at] < 128:
            return value, at + 1
        shift += 7
    raise ValueError("a message that ends within an integer")
