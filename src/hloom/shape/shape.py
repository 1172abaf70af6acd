"""Shapes: the type of every HLO value. Arrays, tuples, tokens, opaque values and buffers.

After XLA's page "Shapes and layout". Shapes are immutable and hashable; text and hash are computed once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import index
from typing import TYPE_CHECKING, ClassVar, SupportsIndex

from hloom.display import Displayed
from hloom.errors import ShapeError, expect, plural
from hloom.regex import regex
from hloom.shape.element_type import BUFFER, OPAQUE, TOKEN, TUPLE, ElementType
from hloom.shape.layout import Layout
from hloom.shape.shape_checks import check_kind, check_layout

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import DTypeLike

ShapeIndex = tuple[int, ...]

_FIELDS = ("element_type", "dimensions", "dynamic_dimensions", "layout", "tuple_shapes")
_SHAPE_SIGN = regex(r"[\[(]")
"""A text with one of these is that of a shape, not the name of an element type."""


class Shape(Displayed):
    """The shape of an HLO value.

    An array has `dimensions` (the bound where a dimension is dynamic, `Shape.UNBOUNDED` where it has none),
    `dynamic_dimensions` (one flag each) and a `layout`; a tuple has `tuple_shapes`; a buffer holds the shape
    of its array there. A new array shape gets the default layout, dimensions from major to minor;
    `without_layout()` returns the shape without a layout. The element type may be a numpy dtype or a name;
    `Shape("f32[3]{0}")` is short for `Shape.parse`.

    Raises ShapeError for dimensions or layouts that no array can have.
    """

    __slots__ = "_hash", "_text", "dimensions", "dynamic_dimensions", "element_type", "layout", "tuple_shapes"

    UNBOUNDED: ClassVar[int] = -1

    element_type: ElementType
    dimensions: tuple[int, ...]
    dynamic_dimensions: tuple[bool, ...]
    layout: Layout | None
    tuple_shapes: tuple[Shape, ...]
    _hash: int
    _text: str

    def __init__(
        self,
        element_type: ElementType | DTypeLike,
        dimensions: Iterable[int] = (),
        dynamic_dimensions: Iterable[bool] | None = None,
        layout: Layout | None = None,
        tuple_shapes: Iterable[Shape] = (),
    ) -> None:
        if isinstance(element_type, str) and _SHAPE_SIGN.search(element_type):
            if dimensions or dynamic_dimensions or layout is not None:
                message = f"{element_type!r} has its dimensions and layout; none can be given besides"
                raise ShapeError(message, rule="shape.text-is-whole")
            same = Shape.parse(element_type)
            self._fill(*(getattr(same, field) for field in _FIELDS))
            return
        kind = element_type if isinstance(element_type, ElementType) else _element_type(element_type)
        sizes = _sizes(dimensions)
        dynamic = _dynamic_flags(sizes, dynamic_dimensions)
        children = tuple(tuple_shapes)
        if kind.is_array:
            layout = Layout.default(len(sizes)) if layout is None else layout
            check_layout(kind, sizes, layout)
        check_kind(kind, sizes, layout, children)
        self._fill(kind, sizes, dynamic, layout, children)

    def __deepcopy__(self, memo: object) -> Shape:
        """Return the shape itself, which never changes."""
        return self

    def _fill(
        self,
        element_type: ElementType,
        dimensions: tuple[int, ...],
        dynamic_dimensions: tuple[bool, ...],
        layout: Layout | None,
        tuple_shapes: tuple[Shape, ...],
    ) -> None:
        put = object.__setattr__
        put(self, "element_type", element_type)
        put(self, "dimensions", dimensions)
        put(self, "dynamic_dimensions", dynamic_dimensions)
        put(self, "layout", layout)
        put(self, "tuple_shapes", tuple_shapes)
        put(self, "_hash", hash((element_type, dimensions, dynamic_dimensions, layout, tuple_shapes)))
        put(self, "_text", "")

    def __setattr__(self, field: str, value: object) -> None:
        raise AttributeError("shapes are immutable; with_layout() and its like make new ones")

    def __delattr__(self, field: str) -> None:
        raise AttributeError("shapes are immutable")

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Shape):
            return NotImplemented
        return (
            self.element_type is other.element_type
            and self.dimensions == other.dimensions
            and self.dynamic_dimensions == other.dynamic_dimensions
            and self.layout == other.layout
            and self.tuple_shapes == other.tuple_shapes
        )

    def __reduce__(self) -> tuple[Callable[..., Shape], tuple[object, ...]]:
        return _restore, tuple(getattr(self, field) for field in _FIELDS)

    def __str__(self) -> str:
        if not self._text:
            object.__setattr__(self, "_text", self.to_string())
        return self._text

    def __repr__(self) -> str:
        return f"Shape({str(self)!r})"

    # Constructors.

    @staticmethod
    def array(
        element_type: ElementType | DTypeLike, dimensions: Iterable[int] = (), layout: Layout | None = None
    ) -> Shape:
        """Return the shape of a static array of a type, a numpy dtype, or a type's name.

        Without `layout` its dimensions lie from major to minor.
        """
        return Shape(element_type, dimensions, None, layout)

    @staticmethod
    def tuple_(shapes: Iterable[Shape]) -> Shape:
        """Return the shape of a tuple of values of these shapes."""
        expect(shapes, Iterable, "Shapes")
        return Shape(TUPLE, tuple_shapes=shapes)

    @staticmethod
    def buffer(shape: Shape) -> Shape:
        """Return the shape of a buffer that holds an array, `b(f32[2]{0})` in text."""
        expect(shape, Shape, "a Shape")
        return Shape(BUFFER, tuple_shapes=(shape,))

    @staticmethod
    def maybe_tuple(shapes: Sequence[Shape]) -> Shape:
        """Return the tuple of these shapes, of one the shape itself."""
        expect(shapes, Sequence, "a sequence of Shapes")
        return shapes[0] if len(shapes) == 1 else Shape.tuple_(shapes)

    @staticmethod
    def token() -> Shape:
        """Return the shape of tokens, which order side effects."""
        return _TOKEN_SHAPE

    @staticmethod
    def opaque() -> Shape:
        """Return the shape of opaque values."""
        return _OPAQUE_SHAPE

    @staticmethod
    def parse(text: str) -> Shape:
        """Parse a shape: HLO's form or the older page's `F32[3,5]{1,0:(2,2)}`.

        An array without a layout gets the default one, as in XLA. Raises ParseError, with the column, for
        text that is not a shape, and ShapeError for an invalid shape.
        """
        from hloom.shape.shape_parser import parse_shape

        expect(text, str, "the text of a shape")
        return parse_shape(text)

    @staticmethod
    def of(value: np.ndarray | np.generic) -> Shape:
        """Return the shape of a numpy array or scalar, in default layout."""
        import numpy as np

        if not isinstance(getattr(value, "dtype", None), np.dtype):  # arrays of other libraries have one too
            expect(value, (np.ndarray, np.generic), "a NumPy array")
        return Shape(ElementType.from_dtype(value.dtype), value.shape)

    # Kinds of shapes.

    @property
    def is_array(self) -> bool:
        """True for arrays, scalars included."""
        return self.element_type.is_array

    @property
    def is_tuple(self) -> bool:
        """True for tuples, the empty tuple included."""
        return self.element_type is TUPLE

    @property
    def is_token(self) -> bool:
        """True for tokens."""
        return self.element_type is TOKEN

    @property
    def is_opaque(self) -> bool:
        """True for opaque values."""
        return self.element_type is OPAQUE

    @property
    def is_buffer(self) -> bool:
        """True for buffers, `b(...)`."""
        return self.element_type is BUFFER

    @property
    def is_scalar(self) -> bool:
        """True for arrays of rank 0."""
        return self.element_type.is_array and not self.dimensions

    @property
    def is_dynamic(self) -> bool:
        """True if any dimension, of any element for tuples, is dynamic."""
        if not self.tuple_shapes:
            return True in self.dynamic_dimensions
        return any(child.is_dynamic for child in self.tuple_shapes)

    @property
    def is_static(self) -> bool:
        """True if no dimension anywhere is dynamic."""
        return not self.is_dynamic

    @property
    def is_unbounded(self) -> bool:
        """True if some dimension anywhere has no bound, `?` in text."""
        if not self.tuple_shapes:
            return Shape.UNBOUNDED in self.dimensions
        return any(child.is_unbounded for child in self.tuple_shapes)

    # Sizes.

    @property
    def rank(self) -> int:
        """The number of dimensions of an array; 0 for everything else."""
        return len(self.dimensions)

    @property
    def true_rank(self) -> int:
        """The number of dimensions larger than 1."""
        return sum(size > 1 or size == Shape.UNBOUNDED for size in self.dimensions)

    def axis(self, number: int) -> int:
        """Return the dimension number from 0 for one that may count from the end (-1 is the last)."""
        if not -len(self.dimensions) <= number < len(self.dimensions):
            raise ShapeError(
                f"{self} has {plural(self.rank, 'dimension')} and no dimension {number}",
                rule="shape.dimension-number-in-range",
            )
        return number % len(self.dimensions)

    def dimension(self, number: int) -> int:
        """Return the size of dimension `number`; negative numbers count from the last."""
        return self.dimensions[self.axis(number)]

    @property
    def element_count(self) -> int:
        """Elements of an array at its bounds; of a tuple, the sum over its leaves.

        Raises ShapeError for an unbounded dimension.
        """
        if Shape.UNBOUNDED in self.dimensions:
            raise ShapeError(f"{self} has an unbounded dimension and no size", rule="shape.bounded")
        if self.element_type.is_array:
            return math.prod(self.dimensions)
        return sum(child.element_count for child in self.tuple_shapes)

    @property
    def element_bits(self) -> int:
        """Bits of one element in memory: the layout's E(), or the type's size rounded up to whole bytes."""
        if self.layout is not None and self.layout.element_size_in_bits:
            return self.layout.element_size_in_bits
        return 8 * self.element_type.bytes

    @property
    def unpadded_byte_size(self) -> int:
        """Bytes of the elements alone, without tile and tail padding; of a tuple, the sum over its leaves."""
        if self.element_type.is_array:
            return (self.element_count * self.element_bits + 7) // 8
        return sum(child.unpadded_byte_size for child in self.tuple_shapes)

    @property
    def byte_size(self) -> int:
        """Bytes of the array in its layout, all padding included; of a tuple, the sum over its leaves.

        Raises ShapeError for an unbounded dimension.
        """
        if not self.element_type.is_array:
            return sum(child.byte_size for child in self.tuple_shapes)
        layout = self.layout
        if layout is None or not (
            layout.tiles or layout.padded_dimensions or layout.tail_padding_alignment_in_elements > 1
        ):
            return self.unpadded_byte_size
        from hloom.shape.index import physical_byte_size

        return physical_byte_size(self)

    # Variations.

    def _with(
        self,
        element_type: ElementType,
        dimensions: tuple[int, ...],
        dynamic_dimensions: tuple[bool, ...],
        layout: Layout | None,
    ) -> Shape:
        self._require_array()
        if layout is not None:
            return Shape(element_type, dimensions, dynamic_dimensions, layout)
        return _restore(element_type, dimensions, dynamic_dimensions, None, ())

    def _require_array(self) -> None:
        if not self.element_type.is_array:
            raise ShapeError(f"{self} is not an array", rule="shape.is-array")

    def with_layout(self, layout: Layout | None) -> Shape:
        """Return the same array in another layout; None leaves the layout open."""
        return self._with(self.element_type, self.dimensions, self.dynamic_dimensions, layout)

    def without_layout(self) -> Shape:
        """Return the same shape, its layouts left open; tuples all the way down."""
        return self._map_leaves(lambda leaf: leaf.with_layout(None))

    def with_default_layout(self) -> Shape:
        """Return the same shape in default layouts; tuples all the way down."""
        return self._map_leaves(lambda leaf: leaf.with_layout(Layout.default(leaf.rank)))

    def _map_leaves(self, change: Callable[[Shape], Shape]) -> Shape:
        if self.element_type.is_array:
            return change(self)
        if not self.tuple_shapes:
            return self
        return Shape(
            self.element_type,
            tuple_shapes=tuple(
                child._map_leaves(change)  # pyright: ignore[reportPrivateUsage]
                for child in self.tuple_shapes
            ),
        )

    def with_dimensions(
        self, dimensions: Iterable[int], dynamic_dimensions: Iterable[bool] | None = None
    ) -> Shape:
        """Return an array of other dimensions; a layout of the same rank is kept, else it is the default."""
        self._require_array()
        sizes = tuple(dimensions)
        keep = self.layout is not None and len(sizes) == self.rank
        layout = self.layout if keep else Layout.default(len(sizes))
        return Shape(self.element_type, sizes, dynamic_dimensions, layout)

    def with_element_type(self, element_type: ElementType) -> Shape:
        """Return the same array of another element type; an element size E() stays with the old type."""
        layout = self.layout
        if layout is not None and layout.element_size_in_bits and element_type is not self.element_type:
            layout = layout.with_element_size_in_bits(0)
        return self._with(element_type, self.dimensions, self.dynamic_dimensions, layout)

    def with_dynamic_dimension(self, number: int, dynamic: bool = True) -> Shape:
        """Return the same array with dimension `number` marked dynamic, its size the bound, or static."""
        axis = self.axis(number)
        flags = (*self.dynamic_dimensions[:axis], dynamic, *self.dynamic_dimensions[axis + 1 :])
        return self._with(self.element_type, self.dimensions, flags, self.layout)

    def to_static(self) -> Shape:
        """Return the same shape with every bounded dynamic dimension fixed at its bound."""
        return self._map_leaves(
            lambda leaf: leaf._with(leaf.element_type, leaf.dimensions, (False,) * leaf.rank, leaf.layout)
        )

    # Comparison.

    def equal(
        self,
        other: Shape,
        *,
        layout: bool = True,
        element_type: bool = True,
        dynamic: bool = True,
        memory_space: bool = True,
        tiles: bool = True,
    ) -> bool:
        """Compare shapes without the properties that are switched off; `==` compares everything."""
        if len(self.tuple_shapes) != len(other.tuple_shapes):
            return False
        options = {
            "layout": layout,
            "element_type": element_type,
            "dynamic": dynamic,
            "memory_space": memory_space,
            "tiles": tiles,
        }
        same_kind = (
            self.element_type is other.element_type
            if element_type
            else self.element_type.is_array is other.element_type.is_array
            and (self.element_type.is_array or self.element_type is other.element_type)
        )
        return (
            same_kind
            and self.dimensions == other.dimensions
            and (not dynamic or self.dynamic_dimensions == other.dynamic_dimensions)
            and (not layout or _layouts_equal(self.layout, other.layout, memory_space, tiles))
            and all(
                mine.equal(theirs, **options)
                for mine, theirs in zip(self.tuple_shapes, other.tuple_shapes, strict=True)
            )
        )

    def compatible(self, other: Shape) -> bool:
        """Return true for equal element types and dimensions; layouts and dynamic flags are ignored.

        An unbounded dimension is compatible with every size.
        """
        if self.element_type is not other.element_type or self.rank != other.rank:
            return False
        if len(self.tuple_shapes) != len(other.tuple_shapes):
            return False
        return all(
            mine in (theirs, Shape.UNBOUNDED) or theirs == Shape.UNBOUNDED
            for mine, theirs in zip(self.dimensions, other.dimensions, strict=True)
        ) and all(
            mine.compatible(theirs)
            for mine, theirs in zip(self.tuple_shapes, other.tuple_shapes, strict=True)
        )

    def admits(self, value: Shape) -> bool:
        """Return whether a value of the other shape may have this one.

        The shapes are compatible, and dimensions whose size is known at run time only are dynamic here too.
        """
        return self.compatible(value) and all(
            mine.is_dynamic_at(d)
            for (_, mine), (_, theirs) in zip(self.leaves(), value.leaves(), strict=True)
            for d in range(theirs.rank)
            if theirs.is_dynamic_at(d)
        )

    def is_dynamic_at(self, dimension: int) -> bool:
        """Return whether a dimension is bounded or unbounded, its size known at run time only."""
        dynamic = bool(self.dynamic_dimensions) and self.dynamic_dimensions[dimension]
        return dynamic or self.dimensions[dimension] == Shape.UNBOUNDED

    # Tuples.

    def subshape(self, index: ShapeIndex) -> Shape:
        """Return the shape at a path of tuple indices; () is the shape itself."""
        shape = self
        for depth, element in enumerate(index):
            if not shape.is_tuple or not 0 <= element < len(shape.tuple_shapes):
                raise ShapeError(
                    f"{self} has no element at {list(index[: depth + 1])}", rule="shape.index-valid"
                )
            shape = shape.tuple_shapes[element]
        return shape

    def walk(self, index: ShapeIndex = ()) -> Iterator[tuple[ShapeIndex, Shape]]:
        """Yield every shape in this one with its index in pre-order, starting with itself."""
        yield index, self
        if self.is_tuple:
            for number, child in enumerate(self.tuple_shapes):
                yield from child.walk((*index, number))

    def leaves(self) -> Iterator[tuple[ShapeIndex, Shape]]:
        """Yield every non-tuple shape in this one with its index, in order."""
        return ((index, shape) for index, shape in self.walk() if not shape.is_tuple)

    # Text.

    def to_string(self, layout: bool = True) -> str:
        """Return XLA's text of the shape; `layout=False` leaves the layouts out."""
        if self.is_tuple:
            return _tuple_text(self.tuple_shapes, layout)
        if self.is_buffer:
            return f"b({self.tuple_shapes[0].to_string(layout)})"
        sizes = ",".join(map(_dimension_text, self.dimensions, self.dynamic_dimensions))
        text = f"{self.element_type.name}[{sizes}]"
        if not layout or self.layout is None:
            return text
        described = str(self.layout)
        return text if described == "{}" else text + described


def _element_type(value: DTypeLike) -> ElementType:
    return ElementType.parse(value) if isinstance(value, str) else ElementType.from_dtype(value)


def _sizes(dimensions: Iterable[SupportsIndex]) -> tuple[int, ...]:
    try:
        return tuple([size if isinstance(size, int) else index(size) for size in dimensions])
    except TypeError:
        message = f"dimensions are a sequence of integers, got {dimensions!r}"
        raise ShapeError(message, rule="shape.dimension-integers") from None


def _dynamic_flags(sizes: tuple[int, ...], flags: Iterable[bool] | None) -> tuple[bool, ...]:
    """Check and return the dynamic flags of dimensions; an unbounded dimension is always dynamic."""
    for size in sizes:
        if size < 0 and size != Shape.UNBOUNDED:
            raise ShapeError(
                f"a dimension's size is not negative, got {size}", rule="shape.dimension-non-negative"
            )
        if size >= 1 << 63:
            raise ShapeError(
                f"a dimension's size has 63 bits, got {size}", rule="shape.dimension-fits-64-bits"
            )
    if flags is None:
        return tuple(size == Shape.UNBOUNDED for size in sizes)
    dynamic = tuple(map(bool, flags))
    if len(dynamic) != len(sizes):
        raise ShapeError(
            f"one dynamic flag for each of {plural(len(sizes), 'dimension')} is required, got {len(dynamic)}",
            rule="shape.dynamic-flags-rank",
        )
    return tuple(flag or size == Shape.UNBOUNDED for flag, size in zip(dynamic, sizes, strict=True))


def _layouts_equal(mine: Layout | None, theirs: Layout | None, memory_space: bool, tiles: bool) -> bool:
    if mine is None or theirs is None:
        return mine is theirs
    if not memory_space:
        mine, theirs = mine.with_memory_space(0), theirs.with_memory_space(0)
    if not tiles:
        mine, theirs = mine.with_tiles(()), theirs.with_tiles(())
    return mine == theirs


def _dimension_text(size: int, dynamic: bool) -> str:
    if size == Shape.UNBOUNDED:
        return "?"
    return f"<={size}" if dynamic else str(size)


def _tuple_text(shapes: tuple[Shape, ...], layout: bool) -> str:
    """Return the elements in parentheses; every fifth one is numbered, as in XLA."""
    parts = [
        (f"/*index={number}*/" if number and number % 5 == 0 else "")
        + (str(shape) if layout else shape.to_string(layout=False))
        for number, shape in enumerate(shapes)
    ]
    return f"({', '.join(parts)})"


def _restore(
    element_type: ElementType,
    dimensions: tuple[int, ...],
    dynamic_dimensions: tuple[bool, ...],
    layout: Layout | None,
    tuple_shapes: tuple[Shape, ...],
) -> Shape:
    """Rebuild a shape from the fields of a checked one, which may lack a layout."""
    shape = Shape.__new__(Shape)
    shape._fill(  # pyright: ignore[reportPrivateUsage]
        element_type, dimensions, dynamic_dimensions, layout, tuple_shapes
    )
    return shape


_TOKEN_SHAPE = Shape(TOKEN)
_OPAQUE_SHAPE = Shape(OPAQUE)
