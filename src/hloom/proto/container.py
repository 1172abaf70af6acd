"""Messages that contain a module: alone, with its buffers, or with the arguments and results of runs.

XLA writes all of them into files of the same suffix. Their types are distinguished by parsing: only a real
module has instructions with opcodes.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from hloom.errors import ParseError, plural
from hloom.foreign import HINT, bytes_refusal, is_known_binary
from hloom.proto.schema.hlo_pb2 import HloModuleProto, HloProto, HloSnapshot, HloUnoptimizedSnapshot

Container: TypeAlias = HloModuleProto | HloProto | HloSnapshot | HloUnoptimizedSnapshot

# The field numbers of HloUnoptimizedSnapshot that HloProto does not have.
_PARTITIONS, _VERSION = 2, 3
_VARINT, _LENGTH_DELIMITED = 0, 2
_SIZES: Final = {_VARINT: None, 1: 8, _LENGTH_DELIMITED: None, 5: 4}
"""Bytes of values by wire type; None for those that begin with a varint."""


def parse_container(data: bytes) -> Container:
    """Parse the message that ``data`` serializes; raise ParseError for bytes that contain no module."""
    for kind in (HloModuleProto, HloProto, HloSnapshot):
        try:
            message = kind.FromString(data)
        except (DecodeError, ValueError):
            continue
        if _is_module(held_module(message)):
            return _unoptimized(data) if _is_unoptimized(message) else message
    if not is_known_binary(data) and _ends_within_field(data):
        message = (
            "this is a proto that is cut, or none: read as HloModuleProto, "
            "HloProto and HloSnapshot, it ends "
            f"within a field, after {plural(len(data), 'byte')}; copy or write the whole file again; {HINT}"
        )
        raise ParseError(message, rule="proto.cut")
    raise ParseError(bytes_refusal(data), rule="proto.no-module")


def _ends_within_field(data: bytes) -> bool:
    """Return whether bytes are fields of a message of which the last is incomplete.

    The encoding is that of https://protobuf.dev/programming-guides/encoding.
    """
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        field, wire_type = tag >> 3, tag & 7
        if position <= len(data) and not (field and wire_type in _SIZES):
            return False
        size = _SIZES[wire_type]
        if size is None:
            value, position = _varint(data, position)
            size = value if wire_type == _LENGTH_DELIMITED else 0
        position += size
    return position > len(data)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at a position and the position after it; beyond the end if it is cut."""
    value = shift = 0
    for byte in data[position : position + 10]:
        value |= (byte & 0x7F) << shift
        shift, position = shift + 7, position + 1
        if byte < 0x80:
            return value, position
    return 0, len(data) + 1


def held_module(container: Container) -> HloModuleProto:
    """Return the module in a message."""
    if isinstance(container, HloModuleProto):
        return container
    return container.hlo.hlo_module if isinstance(container, HloSnapshot) else container.hlo_module


def module_message(data: bytes) -> HloModuleProto:
    """Return the module in serialized bytes; raise ParseError for bytes that contain none."""
    return held_module(parse_container(data))


def _is_module(message: HloModuleProto) -> bool:
    return any(instruction.opcode for part in message.computations for instruction in part.instructions)


def _is_unoptimized(message: Message) -> bool:
    """Return whether a message parsed as HloProto has fields that only HloUnoptimizedSnapshot has."""
    unknown: object = UnknownFieldSet(message) if isinstance(message, HloProto) else ()
    return any(
        field.field_number == _PARTITIONS or (field.field_number == _VERSION and field.wire_type == _VARINT)
        for field in unknown
    )


def _unoptimized(data: bytes) -> HloUnoptimizedSnapshot:
    try:
        return HloUnoptimizedSnapshot.FromString(data)
    except DecodeError as error:
        raise ParseError(f"a malformed HloUnoptimizedSnapshot: {error}", rule="proto.malformed") from None
