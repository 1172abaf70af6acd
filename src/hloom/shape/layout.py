"""Layouts: how the elements of an array lie in memory, written `{1,0:T(8,128)(2,1)S(1)}`.

After XLA's pages "Shapes and layout" and "Tiled layout". A Layout checks its own
consistency; the Shape that takes it checks that it fits the array.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, cast

from hloom.display import Displayed
from hloom.errors import ShapeError, expect, plural
from hloom.records import dataclass
from hloom.shape.element_type import ElementType

if TYPE_CHECKING:
    from hloom.shape.shape import Shape


class PaddingValue(IntEnum):
    """The value of the positions that `padded_dimensions` adds; the numbers are the older proto's."""

    INVALID = 0
    ZERO = 1
    ONE = 2
    LOWEST = 3
    HIGHEST = 4
    UNKNOWN = 5


@dataclass(frozen=True, slots=True)
class Tile:
    """One tile: its size along the most minor physical dimensions, most major first.

    A size of `Tile.COMBINE` (-1, written `*`) joins that dimension with the next more minor one.
    """

    dimensions: tuple[int, ...]

    COMBINE: ClassVar[int] = -1

    def __post_init__(self) -> None:
        expect(self.dimensions, Iterable, "the dimensions of a tile")
        object.__setattr__(self, "dimensions", tuple(self.dimensions))
        if not self.dimensions:
            raise ShapeError("a tile has at least one dimension", rule="layout.tile-rank")
        for size in self.dimensions:
            if size < 1 and size != Tile.COMBINE:
                raise ShapeError(
                    f"tile sizes are positive, or * to combine dimensions, got {size} in {self}",
                    rule="layout.tile-size-positive",
                )
        if self.dimensions[-1] == Tile.COMBINE:
            raise ShapeError(
                f"* joins a dimension with the next more minor one, so it cannot end the tile {self}",
                rule="layout.tile-combine-not-last",
            )

    def __str__(self) -> str:
        return f"({','.join('*' if size == Tile.COMBINE else str(size) for size in self.dimensions)})"

    @staticmethod
    def parse(text: str) -> Tile:
        """Parse a tile such as `(2,2)` or `(*,128)`; raises ParseError or ShapeError."""
        from hloom.shape.shape_parser import parse_tile

        expect(text, str, "the text of a tile")
        return parse_tile(text)

    @property
    def element_count(self) -> int:
        """Elements of one tile, combined dimensions counting once."""
        count = 1
        for size in self.dimensions:
            count *= 1 if size == Tile.COMBINE else size
        return count


@dataclass(frozen=True, slots=True)
class SplitConfig:
    """The split points of an array along one dimension, `SC(dimension:index,index)` in text."""

    dimension: int
    split_indices: tuple[int, ...]

    def __str__(self) -> str:
        return f"({self.dimension}:{','.join(map(str, self.split_indices))})"


@dataclass(frozen=True, slots=True)
class Layout(Displayed):
    """The physical form of an array.

    `minor_to_major` orders the dimensions from the fastest-varying one; `tiles` (or their sizes) are applied
    one after the other; `element_size_in_bits` is 0 for the element type's own size;
    `tail_padding_alignment_in_elements` rounds the tiled element count up. `padded_dimensions` (empty or one
    size per dimension) and `padding_value` are the older page's padding, which XLA has removed; hloom
    writes it `PD(3,5)` or `PD(3,5:zero)`, after all other components. The other fields are carried as XLA
    prints them. Every malformed layout is a ShapeError whose rule starts with
    "layout.".
    """

    minor_to_major: tuple[int, ...] = ()
    tiles: tuple[Tile, ...] = ()
    element_size_in_bits: int = 0
    memory_space: int = 0
    tail_padding_alignment_in_elements: int = 1
    padded_dimensions: tuple[int, ...] = ()
    padding_value: PaddingValue = PaddingValue.INVALID
    index_primitive_type: ElementType | None = None
    pointer_primitive_type: ElementType | None = None
    dynamic_shape_metadata_prefix_bytes: int = 0
    split_configs: tuple[SplitConfig, ...] = ()
    physical_shape: Shape | None = None

    def __post_init__(self) -> None:
        for field in ("minor_to_major", "tiles", "padded_dimensions", "split_configs"):
            value = getattr(self, field)
            if not isinstance(value, tuple):
                expect(value, Iterable, f"a sequence as {field}")
                object.__setattr__(self, field, tuple(value))
        tiles = cast("tuple[Any, ...]", self.tiles)
        if any(not isinstance(tile, Tile) for tile in tiles):
            converted = tuple(tile if isinstance(tile, Tile) else Tile(tile) for tile in tiles)
            object.__setattr__(self, "tiles", converted)
        rank = len(self.minor_to_major)
        if sorted(self.minor_to_major) != list(range(rank)):
            raise ShapeError(
                f"minor_to_major is a permutation of 0 to {rank - 1}, got {list(self.minor_to_major)}",
                rule="layout.minor-to-major-permutation",
            )
        if self.tail_padding_alignment_in_elements < 1:
            raise ShapeError(
                "the tail padding alignment L() is at least 1 element; "
                f"got {self.tail_padding_alignment_in_elements}",
                rule="layout.tail-padding-positive",
            )
        if self.element_size_in_bits < 0:
            raise ShapeError(
                "the element size E() is 0 (the type's own) or a number of bits; "
                f"got {self.element_size_in_bits}",
                rule="layout.element-size-non-negative",
            )
        if self.dynamic_shape_metadata_prefix_bytes < 0:
            raise ShapeError(
                f"the metadata prefix M() is not negative, got {self.dynamic_shape_metadata_prefix_bytes}",
                rule="layout.metadata-prefix-non-negative",
            )
        if self.padded_dimensions and len(self.padded_dimensions) != rank:
            raise ShapeError(
                f"padded_dimensions has one size for each of the {plural(rank, 'dimension')}; "
                f"got {list(self.padded_dimensions)}",
                rule="layout.padded-dimensions-rank",
            )
        for split in self.split_configs:
            if not 0 <= split.dimension < rank:
                raise ShapeError(
                    f"SC{split} splits dimension {split.dimension} of an "
                    f"array of {plural(rank, 'dimension')}",
                    rule="layout.split-dimension-in-range",
                )
        for use, element_type in (("#", self.index_primitive_type), ("*", self.pointer_primitive_type)):
            if element_type is not None and not element_type.is_unsigned:
                raise ShapeError(
                    f"the type in {use}() is an unsigned integer type, got {element_type}",
                    rule="layout.index-type-unsigned",
                )

    def __str__(self) -> str:
        return _layout_text(self)

    @property
    def rank(self) -> int:
        """The number of dimensions that the layout orders."""
        return len(self.minor_to_major)

    @property
    def major_to_minor(self) -> tuple[int, ...]:
        """The dimensions from the slowest-varying one."""
        return self.minor_to_major[::-1]

    @property
    def is_default(self) -> bool:
        """True if the dimensions lie major to minor and every other field has its default."""
        return self == Layout.default(self.rank)

    def with_tiles(self, tiles: tuple[Tile, ...]) -> Layout:
        """Return the same layout with other tiles."""
        return replace(self, tiles=tiles)

    def with_memory_space(self, memory_space: int) -> Layout:
        """Return the same layout in another memory space."""
        return replace(self, memory_space=memory_space)

    def with_element_size_in_bits(self, bits: int) -> Layout:
        """Return the same layout with elements of `bits` bits; 0 is the element type's own size."""
        return replace(self, element_size_in_bits=bits)

    @staticmethod
    def parse(text: str) -> Layout:
        """Parse a layout such as `{1,0:T(8,128)}`, or `1,0:(2,2)` without its braces.

        Raises ParseError or ShapeError, with the column.
        """
        from hloom.shape.shape_parser import parse_layout

        expect(text, str, "the text of a layout")
        return parse_layout(text)

    @staticmethod
    def default(rank: int) -> Layout:
        """Return the layout of a new shape: dimensions from major to minor, no tiles."""
        return _default_layout(rank)


@lru_cache(maxsize=256)
def _default_layout(rank: int) -> Layout:
    return Layout(tuple(range(rank - 1, -1, -1)))


def padding_text(layout: Layout) -> str:
    """Return ``PD(3,5:zero)``: the padded dimensions and, if one is stated, the padding value."""
    value = "" if layout.padding_value is PaddingValue.INVALID else f":{layout.padding_value.name.lower()}"
    return f"PD({','.join(map(str, layout.padded_dimensions))}{value})"


@lru_cache(maxsize=4096)
def _layout_text(layout: Layout) -> str:
    """Return XLA's text of a layout: components in XLA's order, defaults left out."""
    parts: list[str] = []
    if layout.tiles:
        parts.append("T" + "".join(map(str, layout.tiles)))
    if layout.tail_padding_alignment_in_elements != 1:
        parts.append(f"L({layout.tail_padding_alignment_in_elements})")
    if layout.index_primitive_type is not None:
        parts.append(f"#({layout.index_primitive_type})")
    if layout.pointer_primitive_type is not None:
        parts.append(f"*({layout.pointer_primitive_type})")
    if layout.element_size_in_bits:
        parts.append(f"E({layout.element_size_in_bits})")
    if layout.memory_space:
        parts.append(f"S({layout.memory_space})")
    if layout.split_configs:
        parts.append("SC" + "".join(map(str, layout.split_configs)))
    if layout.physical_shape is not None:
        parts.append(f"P({layout.physical_shape})")
    if layout.dynamic_shape_metadata_prefix_bytes:
        parts.append(f"M({layout.dynamic_shape_metadata_prefix_bytes})")
    if layout.padded_dimensions or layout.padding_value is not PaddingValue.INVALID:
        parts.append(padding_text(layout))
    order = ",".join(map(str, layout.minor_to_major))
    return f"{{{order}{':' if parts else ''}{''.join(parts)}}}"
