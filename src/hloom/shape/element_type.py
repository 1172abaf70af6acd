"""XLA's element types, one immutable singleton each, and their numpy and ml_dtypes counterparts.

The names are those of HLO text, the numbers those of `PrimitiveType` in xla_data.proto.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import ml_dtypes
import numpy as np

from hloom.errors import ParseError, ShapeError, expect

DType = np.dtype

# ml_dtypes' description of a type; its annotations are incomplete for pyright.
_finfo: Any = ml_dtypes.finfo
_iinfo: Any = ml_dtypes.iinfo


class ElementKind(Enum):
    """The kind of values that an element type holds."""

    PREDICATE = "predicate"
    SIGNED = "signed integer"
    UNSIGNED = "unsigned integer"
    FLOATING = "floating point"
    COMPLEX = "complex"
    OTHER = "not an array element"


class ElementType:
    """One of XLA's primitive types.

    `name` is the HLO spelling ("f32"), `number` the proto's number, `bits` the unpacked width of one
    element (8 for pred; 0 for types without elements), `dtype` the numpy dtype, or None for
    token, opaque, tuple and buffer. There is one object of each, so they compare by identity.
    """

    __slots__ = ("bits", "dtype", "is_array", "kind", "name", "number")

    name: str
    number: int
    bits: int
    dtype: DType | None
    kind: ElementKind
    is_array: bool

    def __init__(self, name: str, number: int, bits: int, dtype: DType | None, kind: ElementKind) -> None:
        for field, value in zip(
            ("name", "number", "bits", "dtype", "kind", "is_array"),
            (name, number, bits, dtype, kind, kind is not ElementKind.OTHER),
            strict=True,
        ):
            object.__setattr__(self, field, value)

    def __setattr__(self, field: str, value: object) -> None:
        raise AttributeError(f"element type {self.name} is immutable")

    def __reduce__(self) -> str:
        # A singleton pickles and copies as the name of its module constant.
        return self.name.upper()

    def __repr__(self) -> str:
        return self.name.upper()

    def __str__(self) -> str:
        return self.name

    @property
    def is_floating(self) -> bool:
        """True for the real floating-point types, f4e2m1fn to f64."""
        return self.kind is ElementKind.FLOATING

    @property
    def is_integer(self) -> bool:
        """True for the signed and unsigned integers; pred is not one."""
        return self.kind is ElementKind.SIGNED or self.kind is ElementKind.UNSIGNED

    @property
    def is_signed(self) -> bool:
        """True for the signed integers s1 to s64."""
        return self.kind is ElementKind.SIGNED

    @property
    def is_unsigned(self) -> bool:
        """True for the unsigned integers u1 to u64."""
        return self.kind is ElementKind.UNSIGNED

    @property
    def is_complex(self) -> bool:
        """True for c64 and c128."""
        return self.kind is ElementKind.COMPLEX

    @property
    def is_predicate(self) -> bool:
        """True for pred alone."""
        return self.kind is ElementKind.PREDICATE

    @property
    def bytes(self) -> int:
        """Bytes of one element in unpacked memory; an s4 takes a whole byte."""
        return (self.bits + 7) // 8

    @property
    def component(self) -> ElementType:
        """The type of the real part: F32 for c64, F64 for c128, the type itself for all others."""
        return _COMPONENTS.get(self, self)

    @property
    def numpy_dtype(self) -> DType:
        """The numpy dtype of an array type; ShapeError where there is none."""
        if self.dtype is None:
            raise ShapeError(f"{self.name} has no numpy dtype", rule="element-type.has-dtype")
        return self.dtype

    @property
    def mantissa_bits(self) -> int:
        """Stored bits of a floating-point significand, the implicit bit not counted: 23 for f32."""
        return int(_finfo(self.numpy_dtype).nmant)

    @property
    def limits(self) -> tuple[Any, Any]:
        """The lowest and the highest finite value: Python integers, floats, or bools for pred.

        Raises ShapeError for complex types and those without elements.
        """
        if self.is_predicate:
            return False, True
        if self.is_integer:
            integers = _iinfo(self.numpy_dtype)
            return int(integers.min), int(integers.max)
        if self.is_floating:
            floats = _finfo(self.numpy_dtype)
            return float(floats.min), float(floats.max)
        raise ShapeError(f"the values of {self.name} have no order", rule="element-type.ordered")

    @staticmethod
    def parse(text: str) -> ElementType:
        """Return the type spelled `text` ("f32", "F32"); ParseError if there is none of that name."""
        expect(text, str, "the name of an element type")
        element_type = _BY_NAME.get(text) or _BY_NAME.get(text.lower())
        if element_type is None:
            raise ParseError(
                f"unknown element type {text!r}; known are {', '.join(_BY_NAME)}", rule="element-type.known"
            )
        return element_type

    @staticmethod
    def from_dtype(dtype: object) -> ElementType:
        """Return the type of a numpy or ml_dtypes dtype, or of anything `np.dtype` takes; any byte order."""
        try:
            numpy_dtype: DType = np.dtype(dtype)  # type: ignore[call-overload]
        except TypeError as error:
            raise ShapeError(f"{dtype!r} is not a numpy dtype", rule="element-type.from-dtype") from error
        element_type = _BY_DTYPE.get(numpy_dtype) or _BY_DTYPE.get(numpy_dtype.newbyteorder("="))
        if element_type is None:
            raise ShapeError(f"numpy's {numpy_dtype} has no element type", rule="element-type.from-dtype")
        return element_type

    @staticmethod
    def from_number(number: int) -> ElementType:
        """Return the type numbered `number` in xla_data.proto's PrimitiveType."""
        element_type = _BY_NUMBER.get(number)
        if element_type is None:
            raise ParseError(f"no element type has the number {number}", rule="element-type.known")
        return element_type

    @staticmethod
    def all() -> tuple[ElementType, ...]:
        """Return every element type, in the order of their numbers."""
        return _ALL


def _number(name: str, number: int, bits: int, kind: ElementKind, dtype: object) -> ElementType:
    return ElementType(name, number, bits, np.dtype(dtype), kind)  # type: ignore[call-overload]


PRED = _number("pred", 1, 8, ElementKind.PREDICATE, np.bool_)
S1 = _number("s1", 30, 1, ElementKind.SIGNED, ml_dtypes.int1)
S2 = _number("s2", 26, 2, ElementKind.SIGNED, ml_dtypes.int2)
S4 = _number("s4", 21, 4, ElementKind.SIGNED, ml_dtypes.int4)
S8 = _number("s8", 2, 8, ElementKind.SIGNED, np.int8)
S16 = _number("s16", 3, 16, ElementKind.SIGNED, np.int16)
S32 = _number("s32", 4, 32, ElementKind.SIGNED, np.int32)
S64 = _number("s64", 5, 64, ElementKind.SIGNED, np.int64)
U1 = _number("u1", 31, 1, ElementKind.UNSIGNED, ml_dtypes.uint1)
U2 = _number("u2", 27, 2, ElementKind.UNSIGNED, ml_dtypes.uint2)
U4 = _number("u4", 22, 4, ElementKind.UNSIGNED, ml_dtypes.uint4)
U8 = _number("u8", 6, 8, ElementKind.UNSIGNED, np.uint8)
U16 = _number("u16", 7, 16, ElementKind.UNSIGNED, np.uint16)
U32 = _number("u32", 8, 32, ElementKind.UNSIGNED, np.uint32)
U64 = _number("u64", 9, 64, ElementKind.UNSIGNED, np.uint64)
F4E2M1FN = _number("f4e2m1fn", 32, 4, ElementKind.FLOATING, ml_dtypes.float4_e2m1fn)
F6E2M3FN = _number("f6e2m3fn", 36, 6, ElementKind.FLOATING, ml_dtypes.float6_e2m3fn)
F6E3M2FN = _number("f6e3m2fn", 35, 6, ElementKind.FLOATING, ml_dtypes.float6_e3m2fn)
F8E5M2 = _number("f8e5m2", 19, 8, ElementKind.FLOATING, ml_dtypes.float8_e5m2)
F8E4M3 = _number("f8e4m3", 28, 8, ElementKind.FLOATING, ml_dtypes.float8_e4m3)
F8E4M3FN = _number("f8e4m3fn", 20, 8, ElementKind.FLOATING, ml_dtypes.float8_e4m3fn)
F8E4M3B11FNUZ = _number("f8e4m3b11fnuz", 23, 8, ElementKind.FLOATING, ml_dtypes.float8_e4m3b11fnuz)
F8E5M2FNUZ = _number("f8e5m2fnuz", 24, 8, ElementKind.FLOATING, ml_dtypes.float8_e5m2fnuz)
F8E4M3FNUZ = _number("f8e4m3fnuz", 25, 8, ElementKind.FLOATING, ml_dtypes.float8_e4m3fnuz)
F8E3M4 = _number("f8e3m4", 29, 8, ElementKind.FLOATING, ml_dtypes.float8_e3m4)
F8E8M0FNU = _number("f8e8m0fnu", 33, 8, ElementKind.FLOATING, ml_dtypes.float8_e8m0fnu)
BF16 = _number("bf16", 16, 16, ElementKind.FLOATING, ml_dtypes.bfloat16)
F16 = _number("f16", 10, 16, ElementKind.FLOATING, np.float16)
F32 = _number("f32", 11, 32, ElementKind.FLOATING, np.float32)
F64 = _number("f64", 12, 64, ElementKind.FLOATING, np.float64)
C64 = _number("c64", 15, 64, ElementKind.COMPLEX, np.complex64)
C128 = _number("c128", 18, 128, ElementKind.COMPLEX, np.complex128)
TUPLE = ElementType("tuple", 13, 0, None, ElementKind.OTHER)
OPAQUE = ElementType("opaque", 14, 0, None, ElementKind.OTHER)
TOKEN = ElementType("token", 17, 0, None, ElementKind.OTHER)
BUFFER = ElementType("buffer", 34, 0, None, ElementKind.OTHER)

_ALL: tuple[ElementType, ...] = tuple(
    sorted((value for value in globals().values() if isinstance(value, ElementType)), key=lambda e: e.number)
)
_BY_NAME = {element_type.name: element_type for element_type in _ALL}
_BY_NUMBER = {element_type.number: element_type for element_type in _ALL}
_BY_DTYPE = {element_type.dtype: element_type for element_type in _ALL if element_type.dtype is not None}
_COMPONENTS = {C64: F32, C128: F64}

NAMES: frozenset[str] = frozenset(_BY_NAME)
"""The names of all element types."""
