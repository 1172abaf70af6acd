"""Indices into arrays in memory: multi-index ↔ linear index, physical sizes, and data in physical form.

After XLA's page "Tiled layout". A layout is read as steps: the dimensions in physical order, padded where
`padded_dimensions` requires, then one tiling after the other. Each tiling of the `r` most minor dimensions
(d_r, …, d_1) by the tile (t_r, …, t_1) puts (⌈d_r/t_r⌉, …, ⌈d_1/t_1⌉, t_r, …, t_1) in their place. A tile
with more dimensions than it finds sees further ones of size 1.

There are two independent implementations, which the tests compare: the page's index formula, on integers or
whole numpy arrays of indices (`linear_index`, `linear_indices`, `multi_index`), and the page's
pad-reshape-transpose on whole arrays of elements (`to_physical`, `from_physical`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from hloom.errors import ShapeError, expect, plural
from hloom.records import dataclass
from hloom.shape.layout import Layout, Tile
from hloom.shape.shape import Shape

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class TileDecomposition:
    """One tile applied to the dimensions `bounds`, most major first.

    `added` dimensions of size 1 lead, then come `untouched` ones; the tiled ones follow, joined by `groups`:
    the bounds of the dimensions that make one tiled dimension. `tile` and `counts` are, for each of those,
    the tile's size and the number of tiles.
    """

    bounds: tuple[int, ...]
    added: int
    untouched: int
    groups: tuple[tuple[int, ...], ...]
    tile: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def combined(self) -> tuple[int, ...]:
        """Sizes of the tiled dimensions after joining, before padding."""
        return tuple(map(math.prod, self.groups))

    @property
    def result(self) -> tuple[int, ...]:
        """The dimensions after this tiling, most major first."""
        return (*self.bounds[: self.untouched], *self.counts, *self.tile)

    @property
    def joined(self) -> tuple[int, ...]:
        """The dimensions with those that the tile combines joined, before padding."""
        return (*self.bounds[: self.untouched], *self.combined)

    @property
    def padded(self) -> tuple[int, ...]:
        """The joined dimensions, padded to a whole number of tiles."""
        rounded = (count * size for count, size in zip(self.counts, self.tile, strict=True))
        return (*self.bounds[: self.untouched], *rounded)

    @property
    def split(self) -> tuple[int, ...]:
        """The padded dimensions, each tiled one split into its count and its tile size."""
        pairs = zip(self.counts, self.tile, strict=True)
        return (*self.bounds[: self.untouched], *(size for pair in pairs for size in pair))

    @property
    def order(self) -> tuple[int, ...]:
        """The transpose of the split dimensions that moves all tile sizes behind all counts."""
        first, end = self.untouched, self.untouched + 2 * len(self.tile)
        return (*range(first), *range(first, end, 2), *range(first + 1, end, 2))


@dataclass(frozen=True, slots=True)
class PhysicalForm:
    """The memory form of a shape: its dimensions in physical order, most major first, and its tilings.

    `bounds` are the sizes, `padded` the same with `padded_dimensions`; `dimensions` the final ones,
    laid out from major to minor; `element_count` their product with the tail padding.
    """

    major_to_minor: tuple[int, ...]
    bounds: tuple[int, ...]
    padded: tuple[int, ...]
    tilings: tuple[TileDecomposition, ...]
    dimensions: tuple[int, ...]
    element_count: int


def physical_form(shape: Shape) -> PhysicalForm:
    """Return the physical form of an array; a dynamic dimension counts with its bound.

    Raises ShapeError for non-array shapes and for an unbounded dimension.
    """
    expect(shape, Shape, "a Shape")
    if not shape.is_array:
        raise ShapeError(f"{shape} is not an array", rule="shape.is-array")
    if shape.is_unbounded:
        raise ShapeError(f"{shape} has an unbounded dimension and no size", rule="shape.bounded")
    return _physical_form(shape.dimensions, shape.layout or Layout.default(shape.rank))


@lru_cache(maxsize=1024)
def _physical_form(sizes: tuple[int, ...], layout: Layout) -> PhysicalForm:
    order = layout.major_to_minor
    bounds = tuple(sizes[dimension] for dimension in order)
    widths = layout.padded_dimensions or sizes
    padded = tuple(widths[dimension] for dimension in order)
    dimensions = padded
    tilings: list[TileDecomposition] = []
    for tile in layout.tiles:
        tilings.append(_tiling(dimensions, tile))
        dimensions = tilings[-1].result
    alignment = layout.tail_padding_alignment_in_elements
    count = -(-math.prod(dimensions) // alignment) * alignment
    return PhysicalForm(order, bounds, padded, tuple(tilings), dimensions, count)


def _tiling(bounds: tuple[int, ...], tile: Tile) -> TileDecomposition:
    sizes = tile.dimensions
    added = max(0, len(sizes) - len(bounds))
    full = (1,) * added + bounds
    untouched = len(full) - len(sizes)
    groups: list[tuple[int, ...]] = []
    joined: tuple[int, ...] = ()
    for bound, size in zip(full[untouched:], sizes, strict=True):
        joined = (*joined, bound)
        if size != Tile.COMBINE:
            groups.append(joined)
            joined = ()
    kept = tuple(size for size in sizes if size != Tile.COMBINE)
    counts = tuple(-(-math.prod(group) // size) for group, size in zip(groups, kept, strict=True))
    return TileDecomposition(full, added, untouched, tuple(groups), kept, counts)


# Index formulas. An index is a list of integers or of integer arrays that broadcast.


def linear_index(shape: Shape, multi_index: Sequence[int]) -> int:
    """Return the position in memory, in elements, of the element at `multi_index`.

    Raises ShapeError for an index of the wrong length or out of bounds.
    """
    form = physical_form(shape)
    try:
        index = tuple(map(operator.index, multi_index))
    except TypeError:
        message = f"an index is a sequence of integers, got {multi_index!r}"
        raise ShapeError(message, rule="index.integers") from None
    if len(index) != shape.rank or not all(
        0 <= position < size for position, size in zip(index, shape.dimensions, strict=True)
    ):
        raise ShapeError(f"{list(index)} is not an index into {shape}", rule="index.in-bounds")
    return int(_linear(form, index))


def linear_indices(shape: Shape) -> Array:
    """Return an int64 array of the shape's dimensions: the position in memory of each element."""
    form = physical_form(shape)
    _check_numpy_holds(shape, form)
    positions = _linear(form, tuple(np.ogrid[tuple(slice(size) for size in shape.dimensions)]))
    return np.broadcast_to(np.asarray(positions, np.int64), shape.dimensions)


def _linear(form: PhysicalForm, index: tuple[object, ...]) -> Any:
    current: list[object] = [index[dimension] for dimension in form.major_to_minor]
    for tiling in form.tilings:
        current = tile_index(tiling, [0] * tiling.added + current)
    return ravel(current, form.dimensions)


def tile_index(tiling: TileDecomposition, index: list[object]) -> list[Any]:
    """Return the index into `tiling.result` for one into `tiling.bounds`, numbers or arrays of numbers.

    That is (⌊e/t⌋, e mod t) for the tiled dimensions, after joining those that the tile combines.
    """
    position = tiling.untouched
    outer: list[object] = index[:position]
    inner: list[object] = []
    for group, size in zip(tiling.groups, tiling.tile, strict=True):
        joined = ravel(index[position : position + len(group)], group)
        position += len(group)
        outer.append(joined // size)
        inner.append(joined % size)
    return outer + inner


def ravel(index: Sequence[Any], bounds: Sequence[int]) -> Any:
    """Return the row-major position of an index, numbers or arrays of numbers, within `bounds`."""
    linear: Any = 0
    for position, bound in zip(index, bounds, strict=True):
        linear = linear * bound + position
    return linear


def multi_index(shape: Shape, linear: int) -> tuple[int, ...] | None:
    """Return the index of the element at a position in memory, or None where there is padding.

    Raises ShapeError for a position outside the array's memory.
    """
    form = physical_form(shape)
    try:
        linear = operator.index(linear)
    except TypeError:
        raise ShapeError(f"a position is an integer, got {linear!r}", rule="index.integers") from None
    if not 0 <= linear < form.element_count:
        raise ShapeError(
            f"{shape} takes {plural(form.element_count, 'element')} of memory, got position {linear}",
            rule="index.linear-in-bounds",
        )
    if linear >= math.prod(form.dimensions):
        return None
    current = _unravel(linear, form.dimensions)
    for tiling in reversed(form.tilings):
        untiled = _untile_index(tiling, current)
        if untiled is None:
            return None
        current = untiled
    if any(position >= bound for position, bound in zip(current, form.bounds, strict=True)):
        return None
    where = dict(zip(form.major_to_minor, current, strict=True))
    return tuple(where[dimension] for dimension in range(shape.rank))


def _untile_index(tiling: TileDecomposition, index: list[int]) -> list[int] | None:
    """Return the index before a tiling, or None in the padding that it added."""
    position = tiling.untouched
    full = index[:position]
    inner = index[position + len(tiling.counts) :]
    for group, size, outer, within in zip(
        tiling.groups, tiling.tile, index[position : position + len(tiling.counts)], inner, strict=True
    ):
        joined = outer * size + within
        if joined >= math.prod(group):
            return None
        full += _unravel(joined, group)
    return full[tiling.added :]


def _unravel(linear: int, bounds: Sequence[int]) -> list[int]:
    index: list[int] = []
    for bound in reversed(bounds):
        linear, position = divmod(linear, bound)
        index.append(position)
    return index[::-1]


def layout_order(shape: Shape) -> Iterator[tuple[int, ...]]:
    """Yield every index of the array in the order of the elements in memory, without padding."""
    for position in range(physical_form(shape).element_count):
        index = multi_index(shape, position)
        if index is not None:
            yield index


# Pad, reshape and transpose whole arrays.


def to_physical(shape: Shape, array: Array, fill: object = 0) -> Array:
    """Return the elements of `array`, which has the shape's dimensions, as a 1-D array in memory order.

    `fill` goes where `padded_dimensions` pad; other padding is zero.
    """
    form = physical_form(shape)
    _check_numpy_holds(shape, form)
    current = _padded(array.transpose(form.major_to_minor), form.padded, fill)
    for tiling in form.tilings:
        padded = _padded(current.reshape(tiling.joined), tiling.padded, 0)
        current = padded.reshape(tiling.split).transpose(tiling.order)
    return _padded(current.reshape(-1), (form.element_count,), 0)


def from_physical(shape: Shape, elements: Array) -> Array:
    """Return the array whose elements in memory order are the 1-D `elements`; padding is dropped."""
    form = physical_form(shape)
    _check_numpy_holds(shape, form)
    current = elements[: math.prod(form.dimensions)].reshape(form.dimensions)
    for tiling in reversed(form.tilings):
        back = np.argsort(np.array(tiling.order, np.intp))
        joined = current.transpose(back).reshape(tiling.padded)
        current = joined[tuple(map(slice, tiling.joined))].reshape(tiling.bounds[tiling.added :])
    back = np.argsort(np.array(form.major_to_minor, np.intp))
    return current[tuple(map(slice, form.bounds))].transpose(back)


def _check_numpy_holds(shape: Shape, form: PhysicalForm) -> None:
    """Check that every step stays within numpy's limits: 64 dimensions and addressable memory."""
    widest = max((shape.rank, *(len(tiling.bounds) + len(tiling.tile) for tiling in form.tilings)))
    if widest > 64:
        raise ShapeError(f"arrays have at most 64 dimensions here; {shape} takes {widest}", rule="shape.rank")
    if form.element_count * 16 >= 1 << 63:
        raise ShapeError(f"{shape} is too large for this machine's memory", rule="shape.addressable")


def _padded(array: Array, sizes: tuple[int, ...], fill: object) -> Array:
    """Return the array with `fill` added at the high ends up to `sizes`."""
    if array.shape == sizes:
        return array
    padded = np.full(sizes, fill, array.dtype)
    padded[tuple(map(slice, array.shape))] = array
    return padded


def element_numbers(shape: Shape) -> Array:
    """Return for each position in memory the row-major number of its element, or -1 in padding (int64)."""
    numbers = np.full(physical_form(shape).element_count, -1, np.int64)
    count = shape.element_count
    numbers[linear_indices(shape).reshape(-1)] = np.arange(count)
    return numbers


# Sizes.


def physical_element_count(shape: Shape) -> int:
    """Return elements that the array takes in memory, all padding included."""
    return physical_form(shape).element_count


def physical_byte_size(shape: Shape) -> int:
    """Return the bytes that the array takes in memory, padding included, metadata prefix M() excluded."""
    return (physical_form(shape).element_count * shape.element_bits + 7) // 8


def waste(shape: Shape) -> float:
    """Return the fraction of the array's memory that is padding, 0 to 1; 0 for an array without memory."""
    total = physical_form(shape).element_count
    return (total - shape.element_count) / total if total else 0.0
