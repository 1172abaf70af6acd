"""Attribute codecs: how one kind of attribute value is read, printed and stored in a proto.

A codec knows nothing of the operation that uses it. An operation declares its attributes with the
field functions of this room (`dims`, `flag`, ...); parser, printer, proto conversion, equality,
hash, cloning and the builder all derive from those declarations.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from hloom.ir.cursor import Cursor, escape

Message: TypeAlias = Any
"""A protobuf message; the generated classes are loaded only by the proto room."""

REQUIRED: Final = object()
"""The default of an attribute that must be written."""


class Codec(Protocol):
    """Reads, prints and stores one kind of attribute value."""

    def parse(self, cursor: Cursor, /) -> Any:
        """The value that starts at the cursor; raises ParseError at its place."""
        ...

    def text(self, value: Any, /) -> str:
        """The value as XLA prints it."""
        ...

    def write(self, message: Message, field: str, value: Any) -> None:
        """Store the value in a field of a proto message."""
        ...

    def read(self, message: Message, field: str) -> Any:
        """The value stored in a field of a proto message."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Attribute:
    """One declared attribute of an operation.

    Attributes:
        field: name of the Python field.
        name: spelling in HLO text.
        codec: how it is read, printed and stored.
        default: value when it is not written; ``REQUIRED`` if it must be.
        always: printed also when it has its default value.
        proto: dotted path of the field in HloInstructionProto; empty if it has none.
        after_computations: printed after the called computations.
    """

    field: str
    name: str
    codec: Codec
    default: Any
    always: bool
    proto: str
    after_computations: bool

    def write(self, message: Message, value: Any) -> None:
        """Store the value at the attribute's path, creating the messages on the way."""
        *path, last = self.proto.split(".")
        for step in path:
            message = getattr(message, step)
            message.SetInParent()
        self.codec.write(message, last, value)

    def read(self, message: Message) -> Any:
        """The value stored at the attribute's path; the default where a message on the way is absent."""
        *path, last = self.proto.split(".")
        for step in path:
            if self.default is not REQUIRED and not message.HasField(step):
                return self.default
            message = getattr(message, step)
        return self.codec.read(message, last)


def attribute(
    codec: Codec,
    *,
    default: Any = REQUIRED,
    name: str = "",
    proto: str | None = None,
    always: bool = False,
    after_computations: bool = False,
) -> Any:
    """Declare an attribute with any codec; ``name`` and ``proto`` default to the field's own name."""
    spec = (codec, default, name, proto, always, after_computations)
    if default is REQUIRED:
        return dataclasses.field(metadata={"hlo": spec})
    return dataclasses.field(default=default, metadata={"hlo": spec})


def attributes_of(cls: type) -> tuple[Attribute, ...]:
    """The declared attributes of an operation class, in the order of their declaration."""
    found: list[Attribute] = []
    for field in dataclasses.fields(cls):
        codec, default, name, proto, always, after = field.metadata["hlo"]
        path = field.name if proto is None else proto
        found.append(Attribute(field.name, name or field.name, codec, default, always, path, after))
    return tuple(found)


# -- the plain codecs


class ScalarCodec:
    """A single value: a function reads it, a function prints it, the proto field holds it as it is."""

    def __init__(self, parse: Callable[[Cursor], Any], text: Callable[[Any], str]) -> None:
        self.parse = parse
        self.text = text

    def write(self, message: Message, field: str, value: Any) -> None:
        """Set the field."""
        setattr(message, field, value)

    def read(self, message: Message, field: str) -> Any:
        """Get the field."""
        return getattr(message, field)


class TupleCodec(ScalarCodec):
    """A tuple of values in a repeated proto field."""

    def write(self, message: Message, field: str, value: Any) -> None:
        """Append every element."""
        getattr(message, field).extend(value)

    def read(self, message: Message, field: str) -> Any:
        """The elements as a tuple."""
        return tuple(getattr(message, field))


class FirstCodec(ScalarCodec):
    """A single value in a repeated proto field, which holds it alone."""

    def __init__(self, plain: ScalarCodec, absent: Any) -> None:
        super().__init__(plain.parse, plain.text)
        self.absent = absent

    def write(self, message: Message, field: str, value: Any) -> None:
        """Append the value, unless it says that there is none."""
        if value != self.absent:
            getattr(message, field).append(value)

    def read(self, message: Message, field: str) -> Any:
        """The first element; ``absent`` if there is none."""
        stored = getattr(message, field)
        return stored[0] if stored else self.absent


class EnumCodec:
    """One word of a fixed set; stored as its name (string field) or as its number (enum field)."""

    def __init__(self, words: dict[str, int], *, stored_as_text: bool = False) -> None:
        self.words = words
        self.names = {number: word for word, number in words.items()}
        self.stored_as_text = stored_as_text

    def parse(self, cursor: Cursor) -> str:
        """One of the words."""
        cursor.skip()
        start = cursor.position
        word = cursor.word()
        if word not in self.words:
            raise cursor.error(f"expected one of {', '.join(self.words)}, found {word!r}", position=start)
        return word

    def text(self, value: str) -> str:
        """The word itself."""
        return value

    def write(self, message: Message, field: str, value: str) -> None:
        """Store the word or its number."""
        setattr(message, field, value if self.stored_as_text else self.words[value])

    def read(self, message: Message, field: str) -> str:
        """The word."""
        value = getattr(message, field)
        if self.stored_as_text:
            return value if value in self.words else next(iter(self.words))
        from hloom.errors import ParseError

        if value not in self.names:
            raise ParseError(f"{field}={value} is not one of {self.words}", rule="proto.enum-value")
        return self.names[value]


def integers_text(values: tuple[int, ...]) -> str:
    """``{1,2,3}``."""
    return "{" + ",".join(map(str, values)) + "}"


def float_text(value: float) -> str:
    """A float as absl::StrCat prints it: six significant digits."""
    return f"{value:.6g}"


def _single(cursor: Cursor) -> float:
    # Protos hold single precision; rounding here lets text and proto mean the same.
    return float(struct.unpack("f", struct.pack("f", cursor.number()))[0])


DIMS: Final = TupleCodec(Cursor.integers, integers_text)
INTEGER: Final = ScalarCodec(Cursor.integer, str)
FLOAT: Final = ScalarCodec(_single, float_text)
FLAG: Final = ScalarCodec(Cursor.boolean, lambda value: "true" if value else "false")
STRING: Final = ScalarCodec(Cursor.string, lambda value: f'"{escape(value)}"')


# -- field functions


def dims(
    *, default: Any = REQUIRED, name: str = "", proto: str | None = None, always: bool = False
) -> tuple[int, ...]:
    """A list of dimension numbers or sizes, ``{0,1}``."""
    return attribute(DIMS, default=default, name=name, proto=proto, always=always or default is REQUIRED)


def integer(
    *, default: Any = REQUIRED, name: str = "", proto: str | None = None, always: bool = False
) -> int:
    """An integer."""
    return attribute(INTEGER, default=default, name=name, proto=proto, always=always)


def floating(*, default: Any = REQUIRED, name: str = "", proto: str | None = None) -> float:
    """A floating point number."""
    return attribute(FLOAT, default=default, name=name, proto=proto)


def flag(
    *,
    default: Any = False,
    name: str = "",
    proto: str | None = None,
    after_computations: bool = False,
    always: bool = False,
) -> bool:
    """``true`` or ``false``; not printed when it has its default."""
    return attribute(
        FLAG, default=default, name=name, proto=proto, after_computations=after_computations, always=always
    )


def string(*, default: Any = REQUIRED, name: str = "", proto: str | None = None) -> str:
    """A quoted string."""
    return attribute(STRING, default=default, name=name, proto=proto)


def enum(
    words: dict[str, int] | tuple[str, ...],
    *,
    default: Any = REQUIRED,
    name: str = "",
    proto: str | None = None,
    always: bool = False,
    stored_as_text: bool = False,
) -> str:
    """One word of a fixed set; the dictionary gives each word's proto number."""
    numbers = words if isinstance(words, dict) else {word: i for i, word in enumerate(words)}
    codec = EnumCodec(numbers, stored_as_text=stored_as_text)
    return attribute(codec, default=default, name=name, proto=proto, always=always)
