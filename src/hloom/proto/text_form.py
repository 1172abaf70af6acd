"""The text format of protos (`.pbtxt`), their JSON, and the HloProto around a module in XLA's dumps."""

from __future__ import annotations

from typing import Final

from google.protobuf import json_format, text_format
from google.protobuf.message import DecodeError, Message

from hloom.errors import ParseError
from hloom.foreign import HINT
from hloom.ir.module import HloModule
from hloom.proto.container import Container, parse_container
from hloom.proto.schema.hlo_pb2 import HloModuleProto, HloProto, HloSnapshot, HloUnoptimizedSnapshot
from hloom.proto.writer import module_message

_KINDS: Final = (HloModuleProto, HloProto, HloSnapshot, HloUnoptimizedSnapshot)


def container_from_json(text: str) -> Container:
    """Parse the JSON of an HloModuleProto, HloProto, HloSnapshot or HloUnoptimizedSnapshot.

    Raise ParseError (``proto.json``) for any other text.
    """
    failures: list[json_format.Error] = []
    for kind in _KINDS:
        try:
            message = json_format.Parse(text, kind())
        except json_format.Error as error:
            failures.append(error)
            continue
        except (RecursionError, ValueError) as error:
            raise ParseError(f"this is not the JSON of a program: {error}", rule="proto.json") from None
        if message.ByteSize():
            return _told_apart(message)
    # the kind whose fields the text has got furthest into tells most
    reason = max((str(failure).split("\n")[0] for failure in failures), key=len, default="it is empty")
    message = f"this is no HLO text, proto or StableHLO, but JSON of something else ({reason}); {HINT}"
    raise ParseError(message, rule="proto.json")


def _told_apart(message: Container) -> Container:
    """Return a message that was read by its fields' names; check that it holds a program."""
    if isinstance(message, HloUnoptimizedSnapshot):
        return message
    return parse_container(message.SerializeToString())


def container_from_text(text: str) -> Container:
    """Parse the text of an HloModuleProto, HloProto, HloSnapshot or HloUnoptimizedSnapshot.

    Raise ParseError, with line and column if known, for any other text.
    """
    failures: list[text_format.ParseError] = []
    for kind in _KINDS:
        try:
            message = text_format.Parse(text, kind())
        except text_format.ParseError as error:
            failures.append(error)
            continue
        except (RecursionError, ValueError, DecodeError) as error:
            raise ParseError(f"this is not a proto of a program: {error}", rule="proto.text-form") from None
        if message.ByteSize():
            return _told_apart(message)
    if not failures:
        raise ParseError("the text contains no message", rule="proto.text-form")
    furthest = max(failures, key=lambda failure: (failure.GetLine() or 0, failure.GetColumn() or 0))
    lines, number = text.split("\n"), furthest.GetLine()
    source = lines[number - 1] if number and number <= len(lines) else None
    raise ParseError(
        f"this is no HLO text, StableHLO, nor the text of a proto with a program: {furthest}",
        rule="proto.text-form",
        line=number,
        column=furthest.GetColumn() if number else None,
        source_line=source,
    )


def hlo_proto(module: HloModule) -> HloProto:
    """Return the HloProto that contains a module."""
    return HloProto(hlo_module=module_message(module))


def container_bytes(module: HloModule) -> bytes:
    """Return the serialized HloProto of a module."""
    return hlo_proto(module).SerializeToString(deterministic=True)


def container_text(module: HloModule) -> str:
    """Return the text of the HloProto of a module."""
    return message_text(hlo_proto(module))


def container_json(module: HloModule) -> str:
    """Return the JSON of the HloProto of a module, with hlo.proto's names, as XLA's hlo_proto_to_json."""
    return json_format.MessageToJson(hlo_proto(module), preserving_proto_field_name=True) + "\n"


def message_text(message: Message) -> str:
    """Return the text of any message, without unknown fields and NaN payloads, which it cannot represent."""
    return text_format.MessageToString(message)
