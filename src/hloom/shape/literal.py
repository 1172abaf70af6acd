"""Literals: values together with their shapes, in Python's memory as numpy arrays.

A literal is an immutable value, not a buffer: its layout only determines how `to_bytes` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hloom.errors import EvaluationError, ShapeError, expect, plural
from hloom.shape.element_type import C64, F32, PRED, S32, S64, U64, ElementType
from hloom.shape.index import from_physical, physical_form, to_physical
from hloom.shape.layout import Layout, PaddingValue
from hloom.shape.packing import bit_patterns, pack_elements, unpack_elements
from hloom.shape.shape import Shape

Array = np.ndarray


class Literal:
    """A value of an HLO shape: an array, a tuple of literals, or a token.

    `value` is a numpy array or scalar, a Python number or list of numbers, another literal, a tuple of such
    values, or None for a token. Without `shape` an array keeps its dtype; Python numbers become pred, s32
    (s64 or u64 where they need it), f32 and c64. With `shape`, a Shape or its text, numpy arrays must have
    its element type, Python numbers are converted and must be in range. In a dynamic dimension the array may
    be smaller than the bound; an unbounded one gets the array's size.

    Arrays of other libraries come and go by DLPack. Arrays are not copied: do not change one that is part of
    a literal. Raises ShapeError, with rules named "literal.", for a value that does not fit the shape.
    """

    __slots__ = ("_hash", "_value", "shape")

    shape: Shape
    _value: Array | tuple[Literal, ...] | None
    _hash: int | None

    def __init__(self, value: Any, shape: Shape | str | None = None) -> None:
        if isinstance(shape, str):
            shape = Shape.parse(shape)
        if isinstance(value, Literal):
            value = value._value if shape is not None else value
        value = from_dlpack(value)
        if isinstance(value, Literal):
            self._fill(value.shape, value._value)
        elif shape is None:
            self._fill(*_infer(value))
        else:
            self._fill(*_fitted(value, shape))

    def _fill(self, shape: Shape, value: Array | tuple[Literal, ...] | None) -> None:
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "_value", value)
        object.__setattr__(self, "_hash", None)

    def __setattr__(self, field: str, value: object) -> None:
        raise AttributeError("literals are immutable")

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (self.shape, self._value)

    @staticmethod
    def tuple_(elements: Iterable[Literal]) -> Literal:
        """Return the tuple of these literals."""
        expect(elements, Iterable, "Literals")
        literals = tuple(elements)
        return _restore(Shape.tuple_(literal.shape for literal in literals), literals)

    @staticmethod
    def token() -> Literal:
        """Return the token, which has no value."""
        return Literal(None)

    @staticmethod
    def elided(shape: Shape) -> Literal:
        """Return the literal of this shape whose text left its elements out: `{...}`."""
        expect(shape, Shape, "a Shape")
        return _restore(shape, None)

    @staticmethod
    def parse(text: str, shape: Shape) -> Literal:
        """Parse the text of a literal of this shape, as in HLO's constants.

        Raises ParseError, with line and column, for text that XLA does not take or whose values are out of
        range.
        """
        from hloom.shape.literal_parser import parse_literal

        expect(text, str, "the text of a literal")
        expect(shape, Shape, "a Shape")
        return parse_literal(text, shape)

    # The value.

    @property
    def is_elided(self) -> bool:
        """True for an array whose elements were left out of its text, and for a tuple with one."""
        if isinstance(self._value, tuple):
            return any(element.is_elided for element in self._value)
        return self._value is None and self.shape.is_array

    @property
    def array(self) -> Array:
        """The array of an array literal, read-only; a dynamic dimension has its actual size.

        Raises EvaluationError if the elements were elided, ShapeError for tuples and tokens.
        """
        if isinstance(self._value, np.ndarray):
            return self._value
        if self.shape.is_array:
            raise EvaluationError(
                f"the elements of this constant of shape {self.shape} were elided from its text",
                rule="literal.elided",
            )
        raise ShapeError(f"a literal of shape {self.shape} is not an array", rule="shape.is-array")

    @property
    def elements(self) -> tuple[Literal, ...]:
        """The literals of a tuple; ShapeError for anything else."""
        if isinstance(self._value, tuple):
            return self._value
        raise ShapeError(f"a literal of shape {self.shape} is not a tuple", rule="literal.is-tuple")

    def numpy(self) -> Any:
        """Return the value as numpy arrays: one, or nested tuples of them, with None for tokens."""
        if isinstance(self._value, tuple):
            return tuple(element.numpy() for element in self._value)
        return None if self.shape.is_token else self.array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.array, dtype=dtype, copy=copy)

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None, **options: Any) -> Any:
        """Return the array for other libraries: without a copy if they know of read-only arrays."""
        if max_version is None or max_version < (1, 0):
            return self.array.copy().__dlpack__(**options)
        return self.array.__dlpack__(max_version=max_version, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __getitem__(self, index: int) -> Literal:
        return self.elements[index]

    def __len__(self) -> int:
        return len(self.elements)

    @property
    def dynamic_sizes(self) -> tuple[int, ...]:
        """The actual size of each dimension; the shape holds the bounds."""
        return self.array.shape

    # Comparison.

    def __eq__(self, other: object) -> bool:
        """Return true for equal shapes, layouts aside, and equal bits: NaNs by payload, and 0 is not -0."""
        if not isinstance(other, Literal):
            return NotImplemented
        if self is other:
            return True
        if not self.shape.equal(other.shape, layout=False):
            return False
        if isinstance(self._value, tuple):
            return self._value == other._value
        if self._value is None or other._value is None:
            return self.shape.is_token
        if not isinstance(other._value, np.ndarray) or self._value.shape != other._value.shape:
            return False
        return bool(np.array_equal(self._patterns(), other._patterns()))

    def __hash__(self) -> int:
        if self._hash is None:
            if isinstance(self._value, tuple):
                value: object = self._value
            elif self._value is None:
                value = id(self) if self.shape.is_array else None
            else:
                value = (self._value.shape, self._patterns().tobytes())
            object.__setattr__(self, "_hash", hash((self.shape.element_type, value)))
        assert self._hash is not None
        return self._hash

    def _patterns(self) -> Array:
        return bit_patterns(self.array.reshape(-1), self.shape.element_type)

    # Layouts and bytes.

    def relayout(self, layout: Layout | None) -> Literal:
        """Return the same array with another layout."""
        return _restore(self.shape.with_layout(layout), self._value)

    def with_shape(self, shape: Shape) -> Literal:
        """Return the same value with a shape that differs only in layouts or in dynamic flags."""
        return Literal(self, shape) if not self.is_elided else Literal.elided(shape)

    def in_layout_order(self) -> Array:
        """Return the elements as a 1-D array, from minor to major in the layout's order, without padding."""
        order = (self.shape.layout or Layout.default(self.shape.rank)).major_to_minor
        return np.ascontiguousarray(self.array.transpose(order)).reshape(-1)

    @staticmethod
    def from_layout_order(shape: Shape, elements: Array) -> Literal:
        """Return the literal of a static shape with these elements `in_layout_order`; else ShapeError."""
        expect(shape, Shape, "a Shape")
        expect(elements, np.ndarray, "a NumPy array")
        if elements.size != shape.element_count:
            raise ShapeError(
                f"{shape} has {plural(shape.element_count, 'element')}, got {elements.size}",
                rule="literal.element-count",
            )
        order = (shape.layout or Layout.default(shape.rank)).major_to_minor
        array = elements.reshape([shape.dimensions[dimension] for dimension in order])
        return Literal(array.transpose(np.argsort(np.array(order, np.intp))), shape)

    def to_bytes(self) -> bytes:
        """Return the value as it lies in memory: ordered, padded and tiled by its layout, packed to E() bits.

        Tuples are written leaf after leaf, each from a new byte on. Dynamic dimensions take their bounds.
        """
        if isinstance(self._value, tuple):
            return b"".join(element.to_bytes() for element in self._value)
        if self.shape.is_token:
            return b""
        array = self.array
        if array.shape != self.shape.dimensions:
            full = np.zeros(self.shape.dimensions, array.dtype)
            full[tuple(map(slice, array.shape))] = array
            array = full
        fill = padding_element(self.shape)
        elements = to_physical(self.shape, array, fill)
        return pack_elements(elements, self.shape.element_type, self.shape.element_bits)

    @staticmethod
    def from_bytes(shape: Shape, data: bytes | bytearray | memoryview) -> Literal:
        """Return the literal whose `to_bytes` is `data`, padding ignored. ParseError for a wrong length."""
        expect(shape, Shape, "a Shape")
        expect(data, (bytes, bytearray, memoryview), "the bytes of a literal")
        content = bytes(data)
        if shape.is_tuple:
            literals: list[Literal] = []
            start = 0
            for number, child in enumerate(shape.tuple_shapes):
                last = number == len(shape.tuple_shapes) - 1
                end = len(content) if last else start + child.byte_size
                literals.append(Literal.from_bytes(child, content[start:end]))
                start = end
            return _restore(shape, tuple(literals))
        if shape.is_token:
            return Literal.token()
        count = physical_form(shape).element_count
        elements = unpack_elements(content, shape.element_type, shape.element_bits, count)
        array = np.ascontiguousarray(from_physical(shape, elements))
        return Literal(array.reshape(shape.dimensions), shape)

    # Text.

    def to_text(self, *, shape_prefix: bool = False, layout: bool = False, oneline: bool = True) -> str:
        """Return XLA's text, by default as in HLO constants; `shape_prefix`, `layout` add shapes, layouts."""
        from hloom.shape.literal_text import literal_text

        return literal_text(self, shape_prefix, layout, oneline)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        large = not self.is_elided and self.shape.element_count > 100
        return f"Literal({'{...}' if large else self.to_text()}, {str(self.shape)!r})"


def _restore(shape: Shape, value: Array | tuple[Literal, ...] | None) -> Literal:
    """Return a literal of parts that are known to fit."""
    literal = Literal.__new__(Literal)
    literal._fill(shape, value)  # pyright: ignore[reportPrivateUsage]
    return literal


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def from_dlpack(value: Any) -> Any:
    """Return the array of a library that offers it by DLPack alone, not copied; any other value as it is."""
    if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
        return np.from_dlpack(value)
    return value


def _infer(value: Any) -> tuple[Shape, Array | tuple[Literal, ...] | None]:
    """Return the shape and the value of a Python value that came without a shape."""
    if value is None:
        return Shape.token(), None
    if isinstance(value, tuple):
        literals = tuple(Literal(element) for element in value)  # pyright: ignore[reportUnknownVariableType]
        return Shape.tuple_(literal.shape for literal in literals), literals
    if hasattr(value, "dtype"):
        array = np.asarray(value)
        element_type = ElementType.from_dtype(array.dtype)
        array = array.astype(element_type.numpy_dtype, copy=False)
        return Shape(element_type, array.shape), _read_only(array)
    array = _numbers(value)
    element_type = _default_type(array)
    return Shape(element_type, array.shape), _read_only(_converted(array, element_type))


def _fitted(value: object, shape: Shape) -> tuple[Shape, Array | tuple[Literal, ...] | None]:
    """Check a value against its shape; return it with the shape, unbounded dimensions made static."""
    if shape.is_tuple:
        if not isinstance(value, tuple) or len(value) != len(shape.tuple_shapes):  # pyright: ignore[reportUnknownArgumentType]
            raise ShapeError(
                f"a value of shape {shape} is a tuple of {len(shape.tuple_shapes)}", rule="literal.tuple-size"
            )
        literals = tuple(Literal(*pair) for pair in zip(value, shape.tuple_shapes, strict=True))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return Shape.tuple_(literal.shape for literal in literals), literals
    if not shape.is_array:
        if value is not None or not shape.is_token:
            raise ShapeError(f"{shape} has no values; a token is None", rule="literal.has-value")
        return shape, None
    if isinstance(value, tuple) or value is None:
        raise ShapeError(f"a value of shape {shape} is one array", rule="literal.is-array")
    array = np.asarray(value) if hasattr(value, "dtype") else _numbers(value)
    _check_sizes(array.shape, shape)
    if hasattr(value, "dtype"):
        if array.dtype.newbyteorder("=") != shape.element_type.numpy_dtype:
            raise ShapeError(
                f"an array of {shape.element_type} has numpy's {shape.element_type.numpy_dtype}; "
                f"got {array.dtype}",
                rule="literal.element-type",
            )
        array = _without_upper_bits(
            array.astype(shape.element_type.numpy_dtype, copy=False), shape.element_type
        )
    else:
        array = _converted(array, shape.element_type)
    if shape.is_unbounded:
        bounds = [
            real if bound == Shape.UNBOUNDED else bound
            for real, bound in zip(array.shape, shape.dimensions, strict=True)
        ]
        flags = [
            dynamic and bound != Shape.UNBOUNDED
            for dynamic, bound in zip(shape.dynamic_dimensions, shape.dimensions, strict=True)
        ]
        shape = shape.with_dimensions(bounds, flags)
    return shape, _read_only(array)


def _without_upper_bits(array: Array, element_type: ElementType) -> Array:
    """Clear the bits of each byte that are no part of an element of less than 8 bits.

    An array that is made of bytes by a view may have them set; native code relies on zeros.
    """
    if element_type.is_predicate or element_type.bits >= 8:
        return array
    octets = np.ascontiguousarray(array).view(np.uint8)
    mask = np.uint8((1 << element_type.bits) - 1)
    return (octets & mask).view(array.dtype) if octets.max(initial=0) > mask else array


def _check_sizes(sizes: tuple[int, ...], shape: Shape) -> None:
    fits = len(sizes) == shape.rank and all(
        bound == Shape.UNBOUNDED or size == bound or (dynamic and size <= bound)
        for size, bound, dynamic in zip(sizes, shape.dimensions, shape.dynamic_dimensions, strict=True)
    )
    if not fits:
        raise ShapeError(
            f"a value of shape {shape.to_string(layout=False)} has these dimensions, got {list(sizes)}",
            rule="literal.dimensions",
        )


def python_array(value: object, element_type: ElementType) -> Array:
    """Return Python numbers, or lists of them, as an array of an element type that can hold them.

    Raises ShapeError for other values, and for numbers that the type cannot hold.
    """
    return _converted(_numbers(value), element_type)


def _numbers(value: object) -> Array:
    """Return Python numbers, or lists of them, as a numpy array of the type that numpy chooses."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise ShapeError(
            f"the value consists of numbers in lists of equal lengths: {error}", rule="literal.numbers"
        ) from error
    if array.size == 0 and array.dtype == np.float64:
        array = array.astype(np.float32)
    integers = array.dtype == object and all(isinstance(number, int) for number in array.reshape(-1))
    if array.dtype.kind not in "biufc" and not integers:
        raise ShapeError(f"the value consists of numbers, got {value!r}", rule="literal.numbers")
    return array


def _default_type(array: Array) -> ElementType:
    """Return the type of Python numbers: pred, s32, f32 or c64; wider integers if the values need them."""
    kind = array.dtype.kind
    if kind == "b":
        return PRED
    if kind in "fc":
        return F32 if kind == "f" else C64
    if array.size and int(array.max()) > np.iinfo(np.int64).max:
        return U64
    narrow = np.iinfo(np.int32)
    fits = not array.size or (narrow.min <= int(array.min()) and int(array.max()) <= narrow.max)
    return S32 if fits else S64


def _converted(array: Array, element_type: ElementType) -> Array:
    """Convert Python numbers to an element type that can hold them."""
    kind = array.dtype.kind
    if array.size and not element_type.is_predicate and kind not in "b":
        if element_type.is_integer and kind in "fc":
            raise ShapeError(f"{element_type} holds integers", rule="literal.integer")
        if not element_type.is_complex and kind == "c":
            raise ShapeError(f"{element_type} holds no complex numbers", rule="literal.real")
    if element_type.is_integer and array.size:
        least, most = element_type.limits
        lowest, highest = int(array.min()), int(array.max())
        if lowest < least or highest > most:
            raise ShapeError(
                f"{element_type} holds {least} to {most}, got {lowest} to {highest}",
                rule="literal.value-in-range",
            )
    if array.dtype == object and not element_type.is_integer:
        array = array.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(element_type.numpy_dtype)


def padding_element(shape: Shape) -> Any:
    """Return the value that `padding_value` puts into the positions that `padded_dimensions` adds."""
    value = PaddingValue.INVALID if shape.layout is None else shape.layout.padding_value
    dtype = shape.element_type.numpy_dtype
    if value is PaddingValue.ONE:
        return np.ones((), dtype)
    if value not in (PaddingValue.LOWEST, PaddingValue.HIGHEST):
        return np.zeros((), dtype)
    limits = shape.element_type.component.limits
    return np.array(limits[0 if value is PaddingValue.LOWEST else 1]).astype(dtype)
