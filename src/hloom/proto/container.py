"""Messages that contain a module: alone, with its buffers, or with the arguments and results of runs.

XLA writes all of them into files of the same suffix. Their types are distinguished by parsing: only a real
module has instructions with opcodes.
"""

from __future__ import annotations

from typing import TypeAlias

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from hloom.errors import ParseError
from hloom.foreign import bytes_refusal
from hloom.proto.schema.hlo_pb2 import HloModuleProto, HloProto, HloSnapshot, HloUnoptimizedSnapshot

Container: TypeAlias = HloModuleProto | HloProto | HloSnapshot | HloUnoptimizedSnapshot

# The field numbers of HloUnoptimizedSnapshot that HloProto does not have.
_PARTITIONS, _VERSION = 2, 3
_VARINT = 0


def parse_container(data: bytes) -> Container:
    """Parse the message that ``data`` serializes; raise ParseError for bytes that contain no module."""
    for kind in (HloModuleProto, HloProto, HloSnapshot):
        try:
            message = kind.FromString(data)
        except (DecodeError, ValueError):
            continue
        if _is_module(held_module(message)):
            return _unoptimized(data) if _is_unoptimized(message) else message
    raise ParseError(bytes_refusal(data), rule="proto.no-module")


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
