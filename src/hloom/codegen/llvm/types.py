"""LLVM's scalar types and vector types of fixed length."""

from __future__ import annotations

from typing import Final

from hloom.errors import HloError

MOST_LANES: Final = 4096
"""Largest vector length: wider vectors take LLVM's code generator seconds, and soon crash it."""

_BITS: Final = {"float": 32, "double": 64, "half": 16, "bfloat": 16, "ptr": 64, "void": 0}
_SUFFIXES: Final = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16", "ptr": "p0"}
_FLOATS: Final = frozenset(("float", "double", "half", "bfloat"))


class Type:
    """A scalar, or a vector of ``lanes`` scalars. Interned: compare by identity.

    Attributes:
        element: LLVM's name of the scalar type.
        lanes: number of lanes; 0 for a scalar.
        text: LLVM's name of the type.
        bits: width of one element.
        size: bytes of one element in memory.
        is_float: whether elements are floating-point.
        suffix: mangled name in overloaded intrinsics, such as ``v16f32``.
        scalar: the scalar type.
    """

    __slots__ = ("_vectors", "bits", "element", "is_float", "lanes", "scalar", "size", "suffix", "text")

    def __init__(self, element: str, lanes: int = 0, scalar: Type | None = None) -> None:
        self.element, self.lanes = element, lanes
        self.text = f"<{lanes} x {element}>" if lanes else element
        self.bits = _BITS[element] if element in _BITS else int(element[1:])
        self.size = max(1, self.bits // 8)
        self.is_float = element in _FLOATS
        suffix = _SUFFIXES.get(element, element)
        self.suffix = f"v{lanes}{suffix}" if lanes else suffix
        self.scalar: Type = scalar or self
        self._vectors: dict[int, Type] = {0: self} if scalar is None else scalar._vectors

    def __repr__(self) -> str:
        return self.text

    def vector(self, lanes: int) -> Type:
        """Return the vector type of ``lanes`` elements; the scalar type for 0.

        Raises HloError by the rule ``codegen.vector-lanes`` for more than `MOST_LANES`.
        """
        vector_type = self._vectors.get(lanes)
        if vector_type is not None:
            return vector_type
        if lanes > MOST_LANES:
            message = f"a vector of {lanes} lanes; at most {MOST_LANES}: use several vectors"
            raise HloError(message, rule="codegen.vector-lanes")
        return self._vectors.setdefault(lanes, Type(self.element, lanes, self.scalar))


_scalars: Final[dict[str, Type]] = {}


def make_type(element: str, lanes: int = 0) -> Type:
    """Return the type with this element (LLVM's name) and number of lanes."""
    scalar = _scalars.get(element)
    if scalar is None:
        scalar = _scalars.setdefault(element, Type(element))
    return scalar.vector(lanes) if lanes else scalar


VOID: Final = make_type("void")
I1: Final = make_type("i1")
I8: Final = make_type("i8")
I16: Final = make_type("i16")
I32: Final = make_type("i32")
I64: Final = make_type("i64")
F16: Final = make_type("half")
BF16: Final = make_type("bfloat")
F32: Final = make_type("float")
F64: Final = make_type("double")
PTR: Final = make_type("ptr")
