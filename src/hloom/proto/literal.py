"""Conversion of literals from and to LiteralProto.

The elements are in the order of the layout's minor_to_major, one entry per element; tiles, padding and
packing do not affect them. Floats are converted through bytes, because signaling NaNs would become quiet as
Python numbers.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from hloom.errors import ParseError, plural
from hloom.proto.schema.packed import append_packed_bytes, packed_bytes
from hloom.proto.schema.xla_data_pb2 import LiteralProto
from hloom.proto.shape import read_shape, write_shape
from hloom.shape.element_type import C64, C128, F32, F64, PRED, S32, S64, U32, U64, ElementType
from hloom.shape.literal import Literal
from hloom.shape.packing import pack_elements, unpack_elements
from hloom.shape.shape import Shape

Array = np.ndarray

_MOST_DIMENSIONS: Final = 64
"""The limit on the rank of numpy arrays."""
_MOST_ROWS: Final = 1 << 20
_MOST_ADDRESSES: Final = 1 << 56
"""For arrays without elements, which the size of the message does not bound."""
_NUMBERS: Final = frozenset((S32, S64, U32, U64))
"""Element types whose field holds varints."""
_PACKED: Final = frozenset((PRED, F32, F64, C64, C128))
"""Element types with a repeated field of fixed-size elements; types not listed have `bytes` fields."""


def read_literal(message: LiteralProto) -> Literal:
    """Return the literal of a message; raise ParseError if elements and shape do not agree."""
    shape = read_shape(message.shape)
    if shape.is_tuple:
        return _read_tuple(message, shape)
    if shape.is_token:
        return Literal.token()
    if not shape.is_array or shape.is_unbounded:
        raise ParseError(f"a literal cannot have the shape {shape}", rule="proto.literal-shape")
    if shape.rank > _MOST_DIMENSIONS or (0 in shape.dimensions and not _is_reasonable(shape)):
        raise ParseError(f"a literal of shape {shape} is too large", rule="proto.literal-shape")
    elements = _read_elements(message, shape)
    if shape.is_static:
        return Literal.from_layout_order(shape, elements)
    return _cropped(shape, elements, tuple(message.dynamic_sizes))


def _is_reasonable(empty: Shape) -> bool:
    """Return whether the text of an empty array has few rows and numpy can address its dimensions."""
    rows = math.prod(empty.dimensions[: empty.dimensions.index(0)])
    return rows <= _MOST_ROWS and math.prod(filter(None, empty.dimensions)) < _MOST_ADDRESSES


def write_literal(literal: Literal, message: LiteralProto) -> None:
    """Fill an empty message; raise EvaluationError for a literal whose elements were elided."""
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
        text = (
            f"a literal of shape {shape} has {plural(len(shape.tuple_shapes), 'element')}, "
            f"got {len(literals)}"
        )
        raise ParseError(text, rule="proto.literal-size")
    return Literal(literals, shape)


def _read_elements(message: LiteralProto, shape: Shape) -> Array:
    """Return the elements in the order of the message, allocating no more than the message holds."""
    element_type = shape.element_type
    field = element_type.name + "s"
    count = shape.element_count
    if element_type in _NUMBERS:
        numbers = getattr(message, field)
        if len(numbers) != count:
            text = f"a literal of shape {shape} has {plural(count, 'element')}, got {len(numbers)}"
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
    """Return the literal with these dynamic sizes of a message that holds all elements up to the bounds."""
    if len(sizes) not in (0, shape.rank) or any(size < 0 for size in sizes):
        raise ParseError(
            f"{list(sizes)} are not dynamic sizes of {shape}", rule="proto.literal-dynamic-sizes"
        )
    full = Literal.from_layout_order(shape.to_static(), elements).array
    return Literal(full[tuple(map(slice, sizes))], shape)


def _whole(literal: Literal) -> Literal:
    """Return the literal padded with zeros to the bounds of its dynamic dimensions."""
    shape = literal.shape.to_static()
    full = np.zeros(shape.dimensions, shape.element_type.numpy_dtype)
    full[tuple(map(slice, literal.dynamic_sizes))] = literal.array
    return Literal(full, shape)
