"""Literals as LiteralProto, and back.

The elements stand in the order of the layout's minor_to_major, one entry an element: tiles, padding and
packing play no part. Floats go through their bytes, because as Python numbers signaling NaNs would become
quiet ones.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from hloom.errors import ParseError
from hloom.proto.schema.packed import append_packed_bytes, packed_bytes
from hloom.proto.schema.xla_data_pb2 import LiteralProto
from hloom.proto.shape import read_shape, write_shape
from hloom.shape.element_type import C64, C128, F32, F64, PRED, S32, S64, U32, U64, ElementType
from hloom.shape.literal import Literal
from hloom.shape.packing import pack_elements, unpack_elements
from hloom.shape.shape import Shape

Array = np.ndarray[Any, np.dtype[Any]]

_MOST_DIMENSIONS: Final = 64
"""As many as numpy's arrays have."""
_MOST_ROWS: Final = 1 << 20
_MOST_ADDRESSES: Final = 1 << 56
"""For arrays without elements, which no stored element bounds."""
_NUMBERS: Final = frozenset((S32, S64, U32, U64))
"""Element types whose field holds varints."""
_PACKED: Final = frozenset((PRED, F32, F64, C64, C128))
"""Element types whose field holds bytes side by side, but is no `bytes` field, as those of the others are."""


def read_literal(message: LiteralProto) -> Literal:
    """The literal of a message; raises ParseError where elements and shape do not fit."""
    shape = read_shape(message.shape)
    if shape.is_tuple:
        return _read_tuple(message, shape)
    if shape.is_token:
        return Literal.token()
    if not shape.is_array or shape.is_unbounded:
        raise ParseError(f"a literal has no shape {shape}", rule="proto.literal-shape")
    if shape.rank > _MOST_DIMENSIONS or (0 in shape.dimensions and not _is_reasonable(shape)):
        raise ParseError(f"a literal of shape {shape} is too large", rule="proto.literal-shape")
    elements = _read_elements(message, shape)
    if shape.is_static:
        return Literal.from_layout_order(shape, elements)
    return _cropped(shape, elements, tuple(message.dynamic_sizes))


def _is_reasonable(empty: Shape) -> bool:
    """Whether the text of an array without elements has few rows, and numpy can address its dimensions."""
    rows = math.prod(empty.dimensions[: empty.dimensions.index(0)])
    return rows <= _MOST_ROWS and math.prod(filter(None, empty.dimensions)) < _MOST_ADDRESSES


def write_literal(literal: Literal, message: LiteralProto) -> None:
    """Fill an empty message; raises EvaluationError for an elided literal, whose elements nobody knows."""
    shape = literal.shape
    write_shape(shape, message.shape)
    if shape.is_tuple:
        for element in literal.elements:
            write_literal(element, message.tuple_literals.add())
    elif shape.is_array:
        if shape.is_dynamic:
            message.dynamic_sizes.extend(literal.dynamic_sizes)
            literal = _whole(literal)
        _write_elements(literal.in_layout_order(), shape.element_type, message)


def _read_tuple(message: LiteralProto, shape: Shape) -> Literal:
    literals = tuple(map(read_literal, message.tuple_literals))
    if len(literals) != len(shape.tuple_shapes):
        text = f"a literal of shape {shape} has {len(shape.tuple_shapes)} elements; got {len(literals)}"
        raise ParseError(text, rule="proto.literal-size")
    return Literal(literals, shape)


def _read_elements(message: LiteralProto, shape: Shape) -> Array:
    """The elements in the order of the message; nothing is allocated that the message does not hold."""
    element_type = shape.element_type
    field = element_type.name + "s"
    count = shape.element_count
    if element_type in _NUMBERS:
        numbers = getattr(message, field)
        if len(numbers) != count:
            text = f"a literal of shape {shape} has {count} elements; got {len(numbers)}"
            raise ParseError(text, rule="proto.literal-size")
        return np.fromiter(numbers, element_type.numpy_dtype, count)
    data = packed_bytes(message, field) if element_type in _PACKED else getattr(message, field)
    return unpack_elements(data, element_type, 8 * element_type.bytes, count)


def _write_elements(elements: Array, element_type: ElementType, message: LiteralProto) -> None:
    field = element_type.name + "s"
    if element_type in _NUMBERS:
        getattr(message, field).extend(elements.tolist())
        return
    data = pack_elements(elements, element_type, 8 * element_type.bytes)
    if element_type in _PACKED:
        append_packed_bytes(message, field, data)
    elif data:
        setattr(message, field, data)


def _cropped(shape: Shape, elements: Array, sizes: tuple[int, ...]) -> Literal:
    """The literal whose dynamic dimensions have these sizes; the message holds it up to its bounds."""
    if len(sizes) not in (0, shape.rank) or any(size < 0 for size in sizes):
        raise ParseError(f"{list(sizes)} are no sizes of {shape}", rule="proto.literal-dynamic-sizes")
    whole = Literal.from_layout_order(shape.to_static(), elements).array
    return Literal(whole[tuple(map(slice, sizes))], shape)


def _whole(literal: Literal) -> Literal:
    """The literal filled up with zeros to the bounds of its dynamic dimensions."""
    shape = literal.shape.to_static()
    whole = np.zeros(shape.dimensions, shape.element_type.numpy_dtype)
    whole[tuple(map(slice, literal.dynamic_sizes))] = literal.array
    return Literal(whole, shape)
