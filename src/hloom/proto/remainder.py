"""Fields of a message that are not converted, kept so that writing restores them.

The *remainder* of a message is a message of the same type that holds its unknown fields at any depth, and the
top-level fields that were not read. Messages on the path to an unknown field are present but empty; lists of
messages keep their length, so that each element matches its own.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final, TypeAlias

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

# The type checker has no types for the descriptors of the generated classes.
AnyMessage: TypeAlias = Any

_NOTHING: Final = frozenset[str]()


Fields: TypeAlias = frozenset[Any]
"""Field descriptors of one kind of message; they compare faster than names."""


def fields_of(kind: type[Message], names: str) -> Fields:
    """Return the descriptors of the fields with these names, which blanks separate."""
    fields: AnyMessage = kind.DESCRIPTOR.fields_by_name
    return frozenset(fields[name] for name in names.split())


def has_unknown_fields(message: Message) -> bool:
    """Return whether the message, or one in it, has fields that are not in the schema."""
    copy: AnyMessage = type(message)()
    copy.CopyFrom(message)
    copy.DiscardUnknownFields()
    return copy.ByteSize() != message.ByteSize()


def remainder(message: Message, unread: Container[str] = _NOTHING, *, skipped: str = "") -> bytes:
    """Return the serialized remainder of a message, which is usually empty.

    Args:
        message: any message.
        unread: names of fields that belong to the remainder as a whole.
        skipped: name of a field whose messages keep their own remainders.
    """
    return _remainder(message, unread, skipped).SerializeToString(deterministic=True)


def _remainder(message: AnyMessage, unread: Container[str] = _NOTHING, skipped: str = "") -> AnyMessage:
    remainder = type(message)()
    if len(UnknownFieldSet(message)):
        remainder.MergeFromString(_unknown_bytes(message))
    for field, value in message.ListFields():
        if field.name in unread:
            _copy(remainder, field, value)
        elif field.name == skipped or field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        elif field.is_repeated:
            parts = [_remainder(element) for element in value]
            if any(part.ByteSize() for part in parts):
                getattr(remainder, field.name).extend(parts)
        else:
            part = _remainder(value)
            if part.ByteSize():
                getattr(remainder, field.name).CopyFrom(part)
    return remainder


def _copy(target: AnyMessage, field: Any, value: Any) -> None:
    if field.message_type is None and not field.is_repeated:
        setattr(target, field.name, value)
    else:
        getattr(target, field.name).MergeFrom(value)


def _unknown_bytes(message: AnyMessage) -> bytes:
    """Return the serialized unknown fields of the message itself."""
    bare = type(message)()
    bare.CopyFrom(message)
    for field, _ in message.ListFields():
        bare.ClearField(field.name)
    return bare.SerializeToString()


def restore(message: AnyMessage, rest: bytes) -> None:
    """Merge a remainder into a message that was written anew, keeping fields that are set."""
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
