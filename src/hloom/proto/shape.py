"""Conversion of shapes and layouts from and to ShapeProto and LayoutProto.

A program repeats few shapes many times, so both directions are cached.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from hloom.errors import ParseError
from hloom.proto.schema.xla_data_pb2 import LayoutProto, ShapeProto
from hloom.shape.element_type import ElementType
from hloom.shape.layout import Layout, PaddingValue, SplitConfig, Tile
from hloom.shape.shape import Shape

INT64_MIN: Final = -(1 << 63)
"""The encoding of an unbounded dimension, and of the ``*`` of a tile."""


def read_shape(message: ShapeProto) -> Shape:
    """Return the shape of a message; raise ParseError or ShapeError for an invalid one.

    An array whose message has no layout has none.
    """
    return _shape_of(message.SerializeToString())


def write_shape(shape: Shape, message: ShapeProto) -> None:
    """Fill an empty message with a shape."""
    message.MergeFromString(shape_bytes(shape))


@lru_cache(maxsize=4096)
def shape_bytes(shape: Shape) -> bytes:
    """Return the serialized ShapeProto of a shape."""
    message = ShapeProto(element_type=shape.element_type.number)  # type: ignore[arg-type]
    for size, dynamic in zip(shape.dimensions, shape.dynamic_dimensions, strict=True):
        message.dimensions.append(INT64_MIN if size == Shape.UNBOUNDED else size)
        message.is_dynamic_dimension.append(dynamic)
    for child in shape.tuple_shapes:
        message.tuple_shapes.add().MergeFromString(shape_bytes(child))
    if shape.layout is not None:
        _write_layout(shape.layout, message.layout)
    return message.SerializeToString()


@lru_cache(maxsize=4096)
def _shape_of(data: bytes) -> Shape:
    message = ShapeProto.FromString(data)
    element_type = ElementType.from_number(message.element_type)
    children = [read_shape(child) for child in message.tuple_shapes]
    if not element_type.is_array:
        return Shape(element_type, tuple(message.dimensions), tuple_shapes=children)
    sizes = [Shape.UNBOUNDED if size == INT64_MIN else _positive(size) for size in message.dimensions]
    dynamic = list(message.is_dynamic_dimension) or None
    if message.HasField("layout"):
        return Shape(element_type, sizes, dynamic, _read_layout(message.layout), children)
    return Shape(element_type, sizes, dynamic, tuple_shapes=children).with_layout(None)


def _positive(size: int) -> int:
    if size < 0:
        raise ParseError(f"a dimension's size is not negative, got {size}", rule="proto.dimension-size")
    return size


def _write_layout(layout: Layout, message: LayoutProto) -> None:
    """Fill a message; XLA writes the tail padding alignment even if it is 1."""
    message.minor_to_major.extend(layout.minor_to_major)
    for tile in layout.tiles:
        sizes = (INT64_MIN if size == Tile.COMBINE else size for size in tile.dimensions)
        message.tiles.add().dimensions.extend(sizes)
    message.element_size_in_bits = layout.element_size_in_bits
    message.memory_space = layout.memory_space
    message.tail_padding_alignment_in_elements = layout.tail_padding_alignment_in_elements
    message.padded_dimensions.extend(layout.padded_dimensions)
    message.padding_value = int(layout.padding_value)  # type: ignore[assignment]
    if layout.index_primitive_type is not None:
        message.index_primitive_type = layout.index_primitive_type.number  # type: ignore[assignment]
    if layout.pointer_primitive_type is not None:
        message.pointer_primitive_type = layout.pointer_primitive_type.number  # type: ignore[assignment]
    message.dynamic_shape_metadata_prefix_bytes = layout.dynamic_shape_metadata_prefix_bytes
    for split in layout.split_configs:
        message.split_configs.add(dimension=split.dimension, split_indices=split.split_indices)


def _read_layout(message: LayoutProto) -> Layout:
    if message.padding_value not in PaddingValue.__members__.values():
        raise ParseError(f"unknown padding_value {message.padding_value}", rule="proto.enum-value")
    return Layout(
        minor_to_major=tuple(message.minor_to_major),
        tiles=tuple(
            Tile(tuple(Tile.COMBINE if size == INT64_MIN else size for size in tile.dimensions))
            for tile in message.tiles
        ),
        element_size_in_bits=message.element_size_in_bits,
        memory_space=message.memory_space,
        tail_padding_alignment_in_elements=message.tail_padding_alignment_in_elements or 1,
        padded_dimensions=tuple(message.padded_dimensions),
        padding_value=PaddingValue(message.padding_value),
        index_primitive_type=_index_type(message.index_primitive_type),
        pointer_primitive_type=_index_type(message.pointer_primitive_type),
        dynamic_shape_metadata_prefix_bytes=message.dynamic_shape_metadata_prefix_bytes,
        split_configs=tuple(
            SplitConfig(split.dimension, tuple(split.split_indices)) for split in message.split_configs
        ),
    )


def _index_type(number: int) -> ElementType | None:
    return ElementType.from_number(number) if number else None
