"""Attributes of instructions that call computations or foreign functions: aliasing, literals, layouts."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from hloom.errors import HloError
from hloom.hooks import Hook
from hloom.ir.codec import Codec, Message, attribute
from hloom.ir.cursor import Cursor
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape

READ_LITERAL: Final[Hook[[Message], Literal]] = Hook("read_literal")
WRITE_LITERAL: Final[Hook[[Literal, Message], None]] = Hook("write_literal")
READ_SHAPE: Final[Hook[[Message], Shape]] = Hook("read_shape")
WRITE_SHAPE: Final[Hook[[Shape, Message], None]] = Hook("write_shape")

OutputAlias: TypeAlias = tuple[tuple[int, ...], int, tuple[int, ...]]
"""An index into the output, and the number of the operand and the index in it that share its buffer."""


class OutputAliasingCodec:
    """Codec of ``{{0}: (1, {}), {1}: (0, {2})}``: output index, operand number, operand index."""

    def parse(self, cursor: Cursor) -> tuple[OutputAlias, ...]:
        """Parse any number of entries."""
        aliases: list[OutputAlias] = []
        for _ in cursor.items():
            output = cursor.integers()
            cursor.expect(":")
            cursor.expect("(")
            number = cursor.integer()
            cursor.expect(",")
            index = cursor.integers()
            cursor.expect(")")
            aliases.append((output, number, index))
        return tuple(aliases)

    def text(self, value: tuple[OutputAlias, ...]) -> str:
        """Return the text of the entries, as XLA prints it."""
        return (
            "{"
            + ", ".join(f"{_index(out)}: ({number}, {_index(index)})" for out, number, index in value)
            + "}"
        )

    def write(self, message: Message, field: str, value: tuple[OutputAlias, ...]) -> None:
        """Store OutputOperandAliasing messages."""
        for output, number, index in value:
            getattr(message, field).add(
                output_shape_index=output, operand_index=number, operand_shape_index=index
            )

    def read(self, message: Message, field: str) -> tuple[OutputAlias, ...]:
        """Return the stored entries."""
        return tuple(
            (tuple(a.output_shape_index), a.operand_index, tuple(a.operand_shape_index))
            for a in getattr(message, field)
        )


def _index(index: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, index)) + "}"


class TypedLiteralCodec:
    """Codec of a literal after its shape, ``f32[2]{0} {1, 2}``; a tuple states the shapes of its elements."""

    def parse(self, cursor: Cursor) -> Literal:
        """Parse a shape and a value of that shape; for a tuple, a list of elements in parentheses."""
        from hloom.shape.literal_parser import parse_literal_at

        if cursor.peek("("):
            return Literal.tuple_([self.parse(cursor) for _ in cursor.items("(", ")")])
        shape = cursor.shape()
        start = cursor.position
        try:
            literal, cursor.position = parse_literal_at(cursor.text, start, shape)
        except HloError as error:
            raise cursor.locate(error, start) from error.__cause__
        return literal

    def text(self, value: Literal) -> str:
        """Return the text of the literal with shapes and layouts."""
        return value.to_text(shape_prefix=True, layout=True)

    def write(self, message: Message, field: str, value: Literal | None) -> None:
        """Store a LiteralProto, unless the value is None."""
        if value is not None:
            WRITE_LITERAL(value, getattr(message, field))

    def read(self, message: Message, field: str) -> Literal | None:
        """Return the stored literal, or None if the field is absent."""
        return READ_LITERAL(getattr(message, field)) if message.HasField(field) else None


class OptionalShapeCodec:
    """Codec of a shape with its layout, or None."""

    def parse(self, cursor: Cursor) -> Shape:
        """Parse a shape, which has the default layout if none is written."""
        return cursor.shape()

    def text(self, value: Shape) -> str:
        """Return the text of the shape with its layout."""
        return value.to_string()

    def write(self, message: Message, field: str, value: Shape | None) -> None:
        """Store a ShapeProto, unless the value is None."""
        if value is not None:
            WRITE_SHAPE(value, getattr(message, field))

    def read(self, message: Message, field: str) -> Shape | None:
        """Return the stored shape, or None if the field is absent."""
        return READ_SHAPE(getattr(message, field)) if message.HasField(field) else None


class LayoutConstraintsCodec:
    """Codec of ``{f32[2,2]{1,0}, f32[4]{0}}``, the required operand layouts; None if layouts are free."""

    def parse(self, cursor: Cursor) -> tuple[Shape, ...]:
        """Parse a list of shapes in braces."""
        return tuple([cursor.shape() for _ in cursor.items()])

    def text(self, value: tuple[Shape, ...]) -> str:
        """Return the text of the shapes with their layouts."""
        return "{" + ", ".join(shape.to_string() for shape in value) + "}"

    def write(self, message: Message, field: str, value: tuple[Shape, ...] | None) -> None:
        """Store ShapeProto messages and set the flag ``constrain_layout``."""
        if value is not None:
            message.constrain_layout = True
            for shape in value:
                WRITE_SHAPE(shape, getattr(message, field).add())

    def read(self, message: Message, field: str) -> tuple[Shape, ...] | None:
        """Return the stored shapes, or None if the layouts are free."""
        return tuple(map(READ_SHAPE, getattr(message, field))) if message.constrain_layout else None


class OptionalCodec:
    """Codec of an optional value, stored by another codec in a message field that is absent for None."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.parse = codec.parse
        self.text = codec.text

    def write(self, message: Message, field: str, value: object) -> None:
        """Store the value unless it is None."""
        if value is not None:
            self.codec.write(message, field, value)

    def read(self, message: Message, field: str) -> Any:
        """Return the stored value, or None if the field is absent."""
        return self.codec.read(message, field) if message.HasField(field) else None


class PositiveCodec:
    """Codec of a number of at least 1; a proto that leaves it out means 1."""

    parse = staticmethod(Cursor.integer)
    text = staticmethod(str)

    def write(self, message: Message, field: str, value: int) -> None:
        """Set the field."""
        setattr(message, field, value)

    def read(self, message: Message, field: str) -> int:
        """Return the field, or 1 if it is less."""
        return max(getattr(message, field), 1)


def output_to_operand_aliasing() -> tuple[OutputAlias, ...]:
    """Declare an ``output_to_operand_aliasing={{}: (0, {})}``."""
    return attribute(OutputAliasingCodec(), default=(), proto="output_operand_aliasing")


def optional_shape(name: str) -> Any:
    """Declare an optional shape."""
    return attribute(OptionalShapeCodec(), default=None, name=name)
