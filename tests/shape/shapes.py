"""Hypothesis strategies for shapes, layouts and literals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hloom.shape.element_type import ElementType
from hloom.shape.layout import Layout, Tile
from hloom.shape.literal import Literal
from hloom.shape.packing import unpack_elements
from hloom.shape.shape import Shape

ARRAY_TYPES = [element_type for element_type in ElementType.all() if element_type.is_array]


@st.composite
def tiles(draw: st.DrawFn) -> Tile:
    """Small tiles, some of which combine dimensions."""
    sizes = draw(st.lists(st.sampled_from((Tile.COMBINE, 1, 2, 3, 4)), max_size=3))
    return Tile((*sizes, draw(st.integers(1, 4))))


@st.composite
def layouts(draw: st.DrawFn, rank: int) -> Layout:
    """Any order, up to three tilings, any tail padding."""
    return Layout(
        minor_to_major=tuple(draw(st.permutations(range(rank)))),
        tiles=tuple(draw(st.lists(tiles(), max_size=3))),
        tail_padding_alignment_in_elements=draw(st.sampled_from((1, 1, 1, 5, 64))),
    )


@st.composite
def array_shapes(draw: st.DrawFn, element_types: list[ElementType] = ARRAY_TYPES) -> Shape:
    """Small static arrays in any layout, older padding and element sizes among them; some are empty."""
    element_type = draw(st.sampled_from(element_types))
    sizes = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    layout = draw(layouts(len(sizes)))
    if draw(st.booleans()):
        padded = tuple(size + draw(st.integers(0, 2)) for size in sizes)
        layout = Layout(layout.minor_to_major, layout.tiles, padded_dimensions=padded)
    if draw(st.booleans()):
        least = 1 if element_type.is_predicate else element_type.bits
        layout = layout.with_element_size_in_bits(draw(st.integers(least, least + 24)))
    return Shape(element_type, sizes, None, layout)


def random_array(shape: Shape, seed: int) -> np.ndarray[Any, np.dtype[Any]]:
    """Elements with random bits, NaNs of every kind among them."""
    count, bits = math.prod(shape.dimensions), 8 * shape.element_type.bytes
    data = np.random.default_rng(seed).bytes(count * bits // 8)
    return unpack_elements(data, shape.element_type, bits, count).reshape(shape.dimensions)


@st.composite
def array_literals(draw: st.DrawFn, element_types: list[ElementType] = ARRAY_TYPES) -> Literal:
    """Literals of `array_shapes` with random bits."""
    shape = draw(array_shapes(element_types))
    return Literal(random_array(shape, draw(st.integers(0, 1 << 30))), shape)
