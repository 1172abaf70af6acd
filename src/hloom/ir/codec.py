"""Attribute codecs: parsing, printing and proto storage of one kind of attribute value.

A codec is independent of the operation that uses it. An operation declares its attributes with the field
functions of this package (`dims`, `flag`, ...); the parser, the printer, proto conversion, equality, hash,
cloning and the builder derive from those declarations.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from hloom.ir.cursor import Cursor, escape
from hloom.ir.xla_version import OLDEST, XlaVersion
from hloom.records import dataclass

Message: TypeAlias = Any
"""A protobuf message; its generated class is not imported here, because that would load google.protobuf."""

REQUIRED: Final = object()
"""The default of an attribute that must be written."""


class Codec(Protocol):
    """Conversion of one kind of attribute value from and to text and protos."""

    def parse(self, cursor: Cursor, /) -> Any:
        """Parse the value at the cursor; raise ParseError at its position."""
        ...

    def text(self, value: Any, /) -> str:
        """Return the text of the value, as XLA prints it."""
        ...

    def write(self, message: Message, field: str, value: Any) -> None:
        """Store the value in a field of a proto message."""
        ...

    def read(self, message: Message, field: str) -> Any:
        """Return the value of a field of a proto message."""
        ...


@dataclass(frozen=True, slots=True)
class DeclaredAttribute:
    """One declared attribute of an operation.

    Attributes:
        field: name of the Python field.
        name: spelling in HLO text.
        codec: parses, prints and stores the value.
        default: value of an attribute that is not written; ``REQUIRED`` if it must be written.
        always: print the attribute even if it has its default value.
        proto: dotted path of the field in HloInstructionProto; empty if it has none.
        after_computations: print the attribute after the called computations.
        since, until: the versions of XLA that print the attribute: from the first on, before the second.
    """

    field: str
    name: str
    codec: Codec
    default: Any
    always: bool
    proto: str
    after_computations: bool
    since: XlaVersion = OLDEST
    until: XlaVersion | None = None

    def is_printed_by(self, version: XlaVersion) -> bool:
        """Return whether a version of XLA prints the attribute."""
        return self.since <= version and (self.until is None or version < self.until)

    def write(self, message: Message, value: object) -> None:
        """Store the value at the attribute's path, creating the messages on the path."""
        *path, last = self.proto.split(".")
        for step in path:
            message = getattr(message, step)
            message.SetInParent()
        self.codec.write(message, last, value)

    def read(self, message: Message) -> Any:
        """Return the value at the attribute's path, or the default if a message on the path is absent."""
        *path, last = self.proto.split(".")
        for step in path:
            if self.default is not REQUIRED and not message.HasField(step):
                return self.default
            message = getattr(message, step)
        return self.codec.read(message, last)


def attribute(
    codec: Codec,
    *,
    default: object = REQUIRED,
    name: str = "",
    proto: str | None = None,
    always: bool = False,
    after_computations: bool = False,
    since: XlaVersion = OLDEST,
    until: XlaVersion | None = None,
) -> Any:
    """Declare an attribute with any codec; ``name`` and ``proto`` default to the field's own name."""
    spec = (codec, default, name, proto, always, after_computations, since, until)
    if default is REQUIRED:
        return dataclasses.field(metadata={"hlo": spec})
    return dataclasses.field(default=default, metadata={"hlo": spec})


def attributes_of(cls: type) -> tuple[DeclaredAttribute, ...]:
    """Return the declared attributes of an operation class in the order of their declaration."""
    attributes: list[DeclaredAttribute] = []
    for field in dataclasses.fields(cls):
        codec, default, name, proto, *printing = field.metadata["hlo"]
        path = field.name if proto is None else proto
        always, after, since, until = printing
        attributes.append(
            DeclaredAttribute(
                field.name, name or field.name, codec, default, always, path, after, since, until
            )
        )
    return tuple(attributes)


# -- codecs of plain values


class ScalarCodec:
    """Codec of a scalar, given functions to parse and print it; the proto field holds the value as it is."""

    def __init__(self, parse: Callable[[Cursor], Any], text: Callable[[Any], str]) -> None:
        self.parse = parse
        self.text = text

    def write(self, message: Message, field: str, value: Any) -> None:
        """Set the field."""
        setattr(message, field, value)

    def read(self, message: Message, field: str) -> Any:
        """Return the field."""
        return getattr(message, field)


class TupleCodec(ScalarCodec):
    """Codec of a tuple of values in a repeated proto field."""

    def write(self, message: Message, field: str, value: Any) -> None:
        """Append every element."""
        getattr(message, field).extend(value)

    def read(self, message: Message, field: str) -> Any:
        """Return the elements as a tuple."""
        return tuple(getattr(message, field))


class FirstCodec(ScalarCodec):
    """Codec of a single value stored as the only element of a repeated proto field."""

    def __init__(self, plain: ScalarCodec, absent: object) -> None:
        super().__init__(plain.parse, plain.text)
        self.absent = absent

    def write(self, message: Message, field: str, value: object) -> None:
        """Append the value unless it equals ``absent``."""
        if value != self.absent:
            getattr(message, field).append(value)

    def read(self, message: Message, field: str) -> Any:
        """Return the first element, or ``absent`` if the field is empty."""
        stored = getattr(message, field)
        return stored[0] if stored else self.absent


class EnumCodec:
    """Codec of one word of a fixed set, stored as its name (string field) or its number (enum field)."""

    def __init__(self, words: dict[str, int], *, stored_as_text: bool = False) -> None:
        self.words = words
        self.names = {number: word for word, number in words.items()}
        self.stored_as_text = stored_as_text

    def parse(self, cursor: Cursor) -> str:
        """Parse one of the words."""
        start = cursor.start()
        word = cursor.word()
        if word not in self.words:
            raise cursor.error(f"expected one of {', '.join(self.words)}, found {word!r}", position=start)
        return word

    def text(self, value: str) -> str:
        """Return the word."""
        return value

    def write(self, message: Message, field: str, value: str) -> None:
        """Store the word or its number."""
        setattr(message, field, value if self.stored_as_text else self.words[value])

    def read(self, message: Message, field: str) -> str:
        """Return the stored word."""
        value = getattr(message, field)
        if self.stored_as_text:
            return value if value in self.words else next(iter(self.words))
        from hloom.errors import ParseError

        if value not in self.names:
            raise ParseError(f"{field}={value} is not one of {self.words}", rule="proto.enum-value")
        return self.names[value]


def integers_text(values: tuple[int, ...]) -> str:
    """Return the text ``{1,2,3}``."""
    return "{" + ",".join(map(str, values)) + "}"


def float_text(value: float) -> str:
    """Return the text of a float as absl::StrCat prints it: six significant digits."""
    return f"{value:.6g}"


def _single(cursor: Cursor) -> float:
    # Protos hold single precision; rounding here gives text and proto the same value.
    return float(struct.unpack("f", struct.pack("f", cursor.number()))[0])


DIMS: Final = TupleCodec(Cursor.integers, integers_text)
INTEGER: Final = ScalarCodec(Cursor.integer, str)
FLOAT: Final = ScalarCodec(_single, float_text)
FLAG: Final = ScalarCodec(Cursor.boolean, lambda value: "true" if value else "false")
STRING: Final = ScalarCodec(Cursor.string, lambda value: f'"{escape(value)}"')


# -- field functions


def dims(
    *, default: object = REQUIRED, name: str = "", proto: str | None = None, always: bool = False
) -> tuple[int, ...]:
    """Declare a list of dimension numbers or sizes, ``{0,1}``."""
    return attribute(DIMS, default=default, name=name, proto=proto, always=always or default is REQUIRED)


def integer(
    *, default: object = REQUIRED, name: str = "", proto: str | None = None, always: bool = False
) -> int:
    """Declare an integer."""
    return attribute(INTEGER, default=default, name=name, proto=proto, always=always)


def floating(*, default: object = REQUIRED, name: str = "", proto: str | None = None) -> float:
    """Declare a floating-point number."""
    return attribute(FLOAT, default=default, name=name, proto=proto)


def flag(
    *,
    default: object = False,
    name: str = "",
    proto: str | None = None,
    after_computations: bool = False,
    always: bool = False,
    since: XlaVersion = OLDEST,
) -> bool:
    """Declare a boolean, ``true`` or ``false``, which is not printed if it has its default value."""
    return attribute(
        FLAG,
        default=default,
        name=name,
        proto=proto,
        always=always,
        after_computations=after_computations,
        since=since,
    )


def string(*, default: object = REQUIRED, name: str = "", proto: str | None = None) -> str:
    """Declare a quoted string."""
    return attribute(STRING, default=default, name=name, proto=proto)


def enum(
    words: dict[str, int] | tuple[str, ...],
    *,
    default: Any = REQUIRED,
    name: str = "",
    proto: str | None = None,
    always: bool = False,
    stored_as_text: bool = False,
    since: XlaVersion = OLDEST,
    until: XlaVersion | None = None,
) -> str:
    """Declare one word of a fixed set; a dictionary gives the proto number of each word."""
    numbers = words if isinstance(words, dict) else {word: i for i, word in enumerate(words)}
    codec = EnumCodec(numbers, stored_as_text=stored_as_text)
    return attribute(codec, default=default, name=name, proto=proto, always=always, since=since, until=until)
