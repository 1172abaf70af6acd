"""What a message says beyond what hloom reads from it, kept so that writing gives it back.

The *remainder* of a message is a message of the same type that holds its unknown fields, however deep, and
those top-level fields that nobody read. Messages on the way to an unknown field are there, but empty; lists
of messages keep their length, so that each element finds its own.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any, Final, TypeAlias

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

# What the generated classes know of a message's fields is not known to the type checker.
AnyMessage: TypeAlias = Any

_NOTHING: Final = frozenset[str]()


Fields: TypeAlias = frozenset[Any]
"""Field descriptors of one kind of message; they compare faster than names."""


def fields_of(kind: type[Message], names: Iterable[str]) -> Fields:
    """The descriptors of the fields with these names."""
    fields: AnyMessage = kind.DESCRIPTOR.fields_by_name
    return frozenset(fields[name] for name in names)


def has_unknown_fields(message: Message) -> bool:
    """Whether the message, or one in it, has fields that the schema does not name."""
    known: AnyMessage = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    return known.ByteSize() != message.ByteSize()


def remainder(message: Message, unread: Container[str] = _NOTHING, *, skipped: str = "") -> bytes:
    """The serialized remainder of a message, mostly empty.

    Args:
        message: any message.
        unread: names of fields that belong to the remainder whole.
        skipped: name of a field whose messages keep their remainders themselves.
    """
    return _remainder(message, unread, skipped).SerializeToString(deterministic=True)


def _remainder(message: AnyMessage, unread: Container[str] = _NOTHING, skipped: str = "") -> AnyMessage:
    rest = type(message)()
    if len(UnknownFieldSet(message)):
        rest.MergeFromString(_unknown_bytes(message))
    for field, value in message.ListFields():
        if field.name in unread:
            _copy(rest, field, value)
        elif field.name == skipped or field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        elif field.is_repeated:
            parts = [_remainder(element) for element in value]
            if any(part.ByteSize() for part in parts):
                getattr(rest, field.name).extend(parts)
        else:
            part = _remainder(value)
            if part.ByteSize():
                getattr(rest, field.name).CopyFrom(part)
    return rest


def _copy(target: AnyMessage, field: Any, value: Any) -> None:
    if field.message_type is None and not field.is_repeated:
        setattr(target, field.name, value)
    else:
        getattr(target, field.name).MergeFrom(value)


def _unknown_bytes(message: AnyMessage) -> bytes:
    """The unknown fields of the message itself, as they stand in its bytes."""
    bare = type(message)()
    bare.CopyFrom(message)
    for field, _ in message.ListFields():
        bare.ClearField(field.name)
    return bare.SerializeToString()


def restore(message: AnyMessage, rest: bytes) -> None:
    """Put a remainder back into the message that was written anew; fields that are set already stay."""
    if rest:
        parsed: AnyMessage = type(message)()
        parsed.MergeFromString(rest)
        _restore(message, parsed)


def _restore(message: AnyMessage, rest: AnyMessage) -> None:
    present = {field.name for field, _ in message.ListFields()}
    if len(UnknownFieldSet(rest)):
        message.MergeFromString(_unknown_bytes(rest))
    for field, value in rest.ListFields():
        if field.name not in present:
            _copy(message, field, value)
        elif field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        elif not field.is_repeated:
            _restore(getattr(message, field.name), value)
        elif len(value) == len(getattr(message, field.name)):
            for element, part in zip(getattr(message, field.name), value, strict=True):
                _restore(element, part)
