"""The text form of protos (`.pbtxt`), and the HloProto around a module that XLA's dumps have."""

from __future__ import annotations

from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message

from hloom.errors import ParseError
from hloom.ir.module import HloModule
from hloom.proto.container import Container, parse_container
from hloom.proto.schema.hlo_pb2 import HloModuleProto, HloProto, HloSnapshot, HloUnoptimizedSnapshot
from hloom.proto.writer import module_message


def container_from_text(text: str) -> Container:
    """The message whose text form this is: HloModuleProto, HloProto, HloSnapshot or HloUnoptimizedSnapshot.

    Raises ParseError, with line and column where they are known, for what is none of them.
    """
    failures: list[text_format.ParseError] = []
    for kind in (HloModuleProto, HloProto, HloSnapshot, HloUnoptimizedSnapshot):
        try:
            message = text_format.Parse(text, kind())
        except text_format.ParseError as error:
            failures.append(error)
            continue
        except (RecursionError, ValueError, DecodeError) as error:
            raise ParseError(f"this is no proto of a program: {error}", rule="proto.text-form") from None
        if message.ByteSize():
            return message if kind is HloUnoptimizedSnapshot else parse_container(message.SerializeToString())
    if not failures:
        raise ParseError("the text holds no message", rule="proto.text-form")
    furthest = max(failures, key=lambda failure: (failure.GetLine() or 0, failure.GetColumn() or 0))
    lines, number = text.split("\n"), furthest.GetLine()
    source = lines[number - 1] if number and number <= len(lines) else None
    raise ParseError(
        f"this is no proto of a program: {furthest}",
        rule="proto.text-form",
        line=number,
        column=furthest.GetColumn() if number else None,
        source_line=source,
    )


def hlo_proto(module: HloModule) -> HloProto:
    """The HloProto that holds a module."""
    return HloProto(hlo_module=module_message(module))


def container_bytes(module: HloModule) -> bytes:
    """A serialized HloProto."""
    return hlo_proto(module).SerializeToString(deterministic=True)


def container_text(module: HloModule) -> str:
    """An HloProto in text form."""
    return message_text(hlo_proto(module))


def message_text(message: Message) -> str:
    """The text form of any message, without unknown fields and the payloads of NaNs, which it cannot say."""
    return text_format.MessageToString(message)
