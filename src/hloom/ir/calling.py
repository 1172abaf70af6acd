"""Attributes of instructions that call computations or foreign functions: aliasing, literals, layouts."""

from __future__ import annotations

from typing import Any, TypeAlias

from hloom.errors import HloError
from hloom.ir.codec import Codec, Message, attribute
from hloom.ir.cursor import Cursor
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape

OutputAlias: TypeAlias = tuple[tuple[int, ...], int, tuple[int, ...]]
"""An output leaf, and the operand number and leaf whose buffer it shares."""


class OutputAliasingCodec:
    """``{{0}: (1, {}), {1}: (0, {2})}``: output index, operand number, operand index."""

    def parse(self, cursor: Cursor) -> tuple[OutputAlias, ...]:
        """Any number of entries."""
        cursor.expect("{")
        found: list[OutputAlias] = []
        while not cursor.accept("}"):
            if found:
                cursor.expect(",")
            output = cursor.integers()
            cursor.expect(":")
            cursor.expect("(")
            number = cursor.integer()
            cursor.expect(",")
            index = cursor.integers()
            cursor.expect(")")
            found.append((output, number, index))
        return tuple(found)

    def text(self, value: tuple[OutputAlias, ...]) -> str:
        """As XLA prints it."""
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
        """The entries."""
        return tuple(
            (tuple(a.output_shape_index), a.operand_index, tuple(a.operand_shape_index))
            for a in getattr(message, field)
        )


def _index(index: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, index)) + "}"


class TypedLiteralCodec:
    """A literal with its shape before it: ``f32[2]{0} {1, 2}``; a tuple's shape is told by its elements."""

    def parse(self, cursor: Cursor) -> Literal:
        """A shape and a value of it; for a tuple a list of such between parentheses."""
        from hloom.shape.literal_parser import parse_literal_at

        if cursor.accept("("):
            elements: list[Literal] = []
            while not cursor.accept(")"):
                if elements:
                    cursor.expect(",")
                elements.append(self.parse(cursor))
            return Literal.tuple_(elements)
        shape = cursor.shape()
        start = cursor.position
        try:
            literal, cursor.position = parse_literal_at(cursor.text, start, shape)
        except HloError as error:
            raise cursor.locate(error, start) from error.__cause__
        return literal

    def text(self, value: Literal) -> str:
        """The literal with shapes and layouts."""
        return value.to_text(shape_prefix=True, layout=True)

    def write(self, message: Message, field: str, value: Literal | None) -> None:
        """Store a LiteralProto."""
        from hloom.proto.literal import write_literal

        if value is not None:
            write_literal(value, getattr(message, field))

    def read(self, message: Message, field: str) -> Literal | None:
        """The literal, or None where there is none."""
        from hloom.proto.literal import read_literal

        return read_literal(getattr(message, field)) if message.HasField(field) else None


class OptionalShapeCodec:
    """A shape with its layout, or None."""

    def parse(self, cursor: Cursor) -> Shape:
        """A shape; the default layout where none is written."""
        return cursor.shape()

    def text(self, value: Shape) -> str:
        """The shape with its layout."""
        return value.to_string()

    def write(self, message: Message, field: str, value: Shape | None) -> None:
        """Store a ShapeProto."""
        from hloom.proto.shape import write_shape

        if value is not None:
            write_shape(value, getattr(message, field))

    def read(self, message: Message, field: str) -> Shape | None:
        """The shape, or None where there is none."""
        from hloom.proto.shape import read_shape

        return read_shape(getattr(message, field)) if message.HasField(field) else None


class LayoutConstraintsCodec:
    """``{f32[2,2]{1,0}, f32[4]{0}}``: the layouts that the operands must have; None if they are free."""

    def parse(self, cursor: Cursor) -> tuple[Shape, ...]:
        """Shapes in braces."""
        cursor.expect("{")
        shapes: list[Shape] = []
        while not cursor.accept("}"):
            if shapes:
                cursor.expect(",")
            shapes.append(cursor.shape())
        return tuple(shapes)

    def text(self, value: tuple[Shape, ...]) -> str:
        """The shapes with their layouts."""
        return "{" + ", ".join(shape.to_string() for shape in value) + "}"

    def write(self, message: Message, field: str, value: tuple[Shape, ...] | None) -> None:
        """Store ShapeProto messages, and the flag that says that there are constraints."""
        from hloom.proto.shape import write_shape

        if value is not None:
            message.constrain_layout = True
            for shape in value:
                write_shape(shape, getattr(message, field).add())

    def read(self, message: Message, field: str) -> tuple[Shape, ...] | None:
        """The shapes, or None where the layouts are free."""
        from hloom.proto.shape import read_shape

        return tuple(map(read_shape, getattr(message, field))) if message.constrain_layout else None


class OptionalCodec:
    """Any codec whose message field may be absent; then the value is None."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        self.parse = codec.parse
        self.text = codec.text

    def write(self, message: Message, field: str, value: Any) -> None:
        """Store the value if there is one."""
        if value is not None:
            self.codec.write(message, field, value)

    def read(self, message: Message, field: str) -> Any:
        """The value, or None."""
        return self.codec.read(message, field) if message.HasField(field) else None


class PositiveCodec:
    """A number that is at least 1; protos that leave it out mean 1."""

    parse = staticmethod(Cursor.integer)
    text = staticmethod(str)

    def write(self, message: Message, field: str, value: int) -> None:
        """Set the field."""
        setattr(message, field, value)

    def read(self, message: Message, field: str) -> int:
        """The field, or 1."""
        return max(getattr(message, field), 1)


def output_to_operand_aliasing() -> tuple[OutputAlias, ...]:
    """An ``output_to_operand_aliasing={{}: (0, {})}``."""
    return attribute(OutputAliasingCodec(), default=(), proto="output_operand_aliasing")


def optional_shape(name: str) -> Any:
    """A shape that may be absent."""
    return attribute(OptionalShapeCodec(), default=None, name=name)
