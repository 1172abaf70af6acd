"""What the installed jaxlib knows: its opcodes, and the fields of its protos."""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError

IRREGULAR = {
    "Clz": "count-leading-zeros",
    "Cos": "cosine",
    "Exp": "exponential",
    "Expm1": "exponential-minus-one",
    "Log1p": "log-plus-one",
    "OptimizationBarrier": "opt-barrier",
    "PopulationCount": "popcnt",
    "Sin": "sine",
    "TopK": "topk",
}
"""HloOpcode's names that are not the text's words joined by dashes."""
FILES = ("xla/service/hlo.proto", "xla/xla_data.proto")


def opcodes() -> list[str]:
    """Return the opcodes as spelled in text, from the enumeration of jaxlib._hlo."""
    hlo = pytest.importorskip("jaxlib._hlo")
    names = [name[1:] for name in hlo.HloOpcode.__members__]
    words = (re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower() for name in names)
    return [IRREGULAR.get(name, word) for name, word in zip(names, words, strict=True)]


def proto_fields() -> dict[str, tuple[int, int, int]]:
    """Return number, type and label of each field, by ``Message.field``, and of each value of an enumeration.

    Generated C++ code embeds the serialized FileDescriptorProto of its file; it begins with the file's name.
    """
    jaxlib = pytest.importorskip("jaxlib")
    found: dict[str, tuple[int, int, int]] = {}
    for library in Path(jaxlib.__path__[0]).glob("libjax_common.*"):
        with library.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            for name in FILES:
                for file in _descriptors(data, name):
                    found |= fields_of(file)
    return found


def fields_of(file: FileDescriptorProto) -> dict[str, tuple[int, int, int]]:
    """Return the fields of all messages of a file, and the values of its enumerations."""
    return dict([*_messages("", file.message_type), *_values("", file.enum_type)])


def _messages(
    outer: str, messages: list[DescriptorProto] | object
) -> Iterator[tuple[str, tuple[int, int, int]]]:
    for message in messages:  # type: ignore[attr-defined]
        for field in message.field:
            yield f"{outer}{message.name}.{field.name}", (field.number, field.type, field.label)
        yield from _messages(f"{outer}{message.name}.", message.nested_type)
        yield from _values(f"{outer}{message.name}.", message.enum_type)


def _values(
    outer: str, enums: list[EnumDescriptorProto] | object
) -> Iterator[tuple[str, tuple[int, int, int]]]:
    for enum in enums:  # type: ignore[attr-defined]
        for value in enum.value:
            yield f"{outer}{enum.name}.{value.name}", (value.number, 0, 0)


def _descriptors(data: mmap.mmap, name: str) -> Iterator[FileDescriptorProto]:
    beginning = b"\x0a" + bytes([len(name)]) + name.encode()
    start = data.find(beginning)
    while start >= 0:
        try:
            file = FileDescriptorProto.FromString(data[start : _end(data, start)])
        except (DecodeError, IndexError):
            file = FileDescriptorProto()
        if file.message_type:
            yield file
        start = data.find(beginning, start + 1)


def _end(data: mmap.mmap, start: int) -> int:
    """Return the end of the message whose first field, the name, begins at a position."""
    position = start
    while True:
        tag, body = _varint(data, position)
        field, wire_type = tag >> 3, tag & 7
        if field not in range(1, 15) or wire_type not in (0, 2) or (field == 1 and position > start):
            return position
        size, body = _varint(data, body)
        position = body + size if wire_type == 2 else body


def _varint(data: mmap.mmap, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
