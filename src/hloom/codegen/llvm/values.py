"""Values: constants, addresses of globals, results of instructions.

Arithmetic operators append instructions to the function of the value.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Final, Protocol, TypeAlias

from hloom.codegen.llvm.attributes import Attribute
from hloom.codegen.llvm.types import PTR, Type
from hloom.codegen.target import Target
from hloom.records import dataclass


class Builder(Protocol):
    """A function under construction, as values and emitters of expressions use it.

    `hloom.codegen.llvm.module.Function` implements it; control flow and memory need the function itself.
    """

    @property
    def target(self) -> Target: ...
    def constant(self, type: Type, value: Number | Sequence[Number]) -> ConstantValue: ...
    def operand(self, type: Type, value: Operand) -> Value: ...
    def poison(self, type: Type) -> Value: ...
    def binary(self, opcode: str, a: Value, b: Operand) -> Value: ...
    def unary(self, opcode: str, a: Value) -> Value: ...
    def compare(self, predicate: str, a: Value, b: Operand) -> Value: ...
    def select(self, condition: Value, yes: Operand, no: Operand) -> Value: ...
    def convert(self, opcode: str, value: Value, type: Type) -> Value: ...
    def extract(self, vector: Value, lane: int | Value) -> Value: ...
    def insert(self, vector: Value, scalar: Value, lane: int | Value) -> Value: ...
    def shuffle(self, vector: Value, lanes: Sequence[int], other: Value | None = None) -> Value: ...
    def call(
        self, result: Type | None, callee: str, *arguments: Value, attributes: tuple[Attribute, ...] = ()
    ) -> Value: ...
    def intrinsic(self, name: str, *arguments: Value, result: Type | None = None) -> Value: ...


@dataclass(slots=True, eq=False, repr=False)
class Value:
    """A value of a function.

    Attributes:
        function: the function under construction.
        type: the LLVM type.
        key: equal for corresponding values of equal functions; assigned by `Structure`.
        name: operand in LLVM's text; assigned by the printer.
    """

    function: Builder
    type: Type
    key: Hashable = field(init=False)
    name: str = field(init=False)

    def __repr__(self) -> str:
        return f"<{self.__class__.__name__} {self.type.text}>"

    # -- arithmetic

    def __add__(self, other: Operand) -> Value:
        return self.function.binary("fadd" if self.type.is_float else "add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self.function.operand(self.type, other) + self

    def __sub__(self, other: Operand) -> Value:
        return self.function.binary("fsub" if self.type.is_float else "sub", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self.function.operand(self.type, other) - self

    def __mul__(self, other: Operand) -> Value:
        return self.function.binary("fmul" if self.type.is_float else "mul", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self.function.operand(self.type, other) * self

    def __truediv__(self, other: Operand) -> Value:
        return self.function.binary("fdiv" if self.type.is_float else "sdiv", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self.function.operand(self.type, other) / self

    def __and__(self, other: Operand) -> Value:
        return self.function.binary("and", self, other)

    def __or__(self, other: Operand) -> Value:
        return self.function.binary("or", self, other)

    def __xor__(self, other: Operand) -> Value:
        return self.function.binary("xor", self, other)

    def __lshift__(self, other: Operand) -> Value:
        return self.function.binary("shl", self, other)

    def __rshift__(self, other: Operand) -> Value:
        return self.function.binary("ashr", self, other)

    def __neg__(self) -> Value:
        if self.type.is_float:
            return self.function.unary("fneg", self)
        return self.function.constant(self.type, 0) - self

    def __invert__(self) -> Value:
        return self ^ -1 if self.type.element != "i1" else self ^ 1

    def logical_shift_right(self, other: Operand) -> Value:
        """Shift right, filling with zeros."""
        return self.function.binary("lshr", self, other)

    def unsigned_divide(self, other: Operand) -> Value:
        """Return the unsigned quotient; the divisor must not be 0."""
        return self.function.binary("udiv", self, other)

    def unsigned_remainder(self, other: Operand) -> Value:
        """Return the unsigned remainder; the divisor must not be 0."""
        return self.function.binary("urem", self, other)

    def signed_remainder(self, other: Operand) -> Value:
        """Return the signed remainder; the divisor must not be 0, nor -1 for the smallest number."""
        return self.function.binary("srem", self, other)

    # -- comparison and selection

    def compare(self, predicate: str, other: Operand) -> Value:
        """Compare by one of LLVM's predicates, such as ``olt`` (floats) or ``ult`` (integers)."""
        return self.function.compare(predicate, self, other)

    def select(self, yes: Operand, no: Operand) -> Value:
        """Select ``yes`` if this i1 is true, else ``no``; at least one of them is a Value."""
        return self.function.select(self, yes, no)

    # -- conversion

    def cast(self, opcode: str, element: Type) -> Value:
        """Convert each lane to an element type, by an opcode such as ``sitofp`` or ``trunc``."""
        target = element.vector(self.type.lanes)
        return self if target is self.type else self.function.convert(opcode, self, target)

    def bitcast(self, type: Type) -> Value:
        """Reinterpret the bits as another type."""
        return self if type is self.type else self.function.convert("bitcast", self, type)

    # -- lanes

    def splat(self, lanes: int) -> Value:
        """Broadcast this scalar to a vector; return the scalar itself for 0 lanes."""
        if not lanes:
            return self
        vector = self.function.poison(self.type.vector(lanes)).insert(self, 0)
        return vector.shuffle((0,) * lanes)

    def extract(self, lane: int | Value) -> Value:
        """Return one lane of a vector."""
        return self.function.extract(self, lane)

    def insert(self, scalar: Value, lane: int | Value) -> Value:
        """Return the vector with one lane replaced."""
        return self.function.insert(self, scalar, lane)

    def shuffle(self, lanes: Sequence[int], other: Value | None = None) -> Value:
        """Select lanes from the concatenation of this vector and ``other``; -1 makes a lane poison."""
        return self.function.shuffle(self, lanes, other)

    def interleave(self, other: Value) -> Value:
        """Return the lanes of two vectors in turns: a0, b0, a1, b1 ..."""
        lanes = self.type.lanes
        return self.shuffle([lane // 2 + lane % 2 * lanes for lane in range(2 * lanes)], other)

    def deinterleave(self) -> tuple[Value, Value]:
        """Return the even and the odd lanes."""
        lanes = self.type.lanes
        return self.shuffle(range(0, lanes, 2)), self.shuffle(range(1, lanes, 2))


def stage_of(count: int, element: Type) -> int:
    """Return how many of `count` vectors one stage of shuffles combines, a factor of that number.

    Chains of shuffles are short with the smallest factor. Elements of 32 bits and more are better taken from
    all vectors in one stage, if their number is odd: processors permute these by one instruction.
    """
    if count % 2 and element.bits >= 32:
        return count
    return next(n for n in range(2, count + 1) if count % n == 0)


def select_lanes(vectors: Sequence[Value], places: Sequence[tuple[int, int]]) -> Value:
    """Return a vector of lanes chosen from several vectors.

    ``places`` has, for each lane, the number of a vector and the lane in it.
    """
    lanes = len(places)
    order = [number * lanes + source if number < 2 else -1 for number, source in places]
    selected = vectors[0].shuffle(order, vectors[1] if len(vectors) > 1 else None)
    for current in range(2, len(vectors)):
        order = [
            lanes + source if number == current else lane if number < current else -1
            for lane, (number, source) in enumerate(places)
        ]
        selected = selected.shuffle(order, vectors[current])
    return selected


Number: TypeAlias = int | float
NUMBERS: Final = (int, float)
"""Number types; a tuple, because a union type would be created at every check."""
Operand: TypeAlias = Value | Number
ConstantKey: TypeAlias = tuple[Type, Number | bytes | tuple[Number | bytes, ...]]


class Poison(Value):
    """LLVM's ``poison``."""

    __slots__ = ()

    def __init__(self, function: Builder, type: Type) -> None:
        super().__init__(function, type)
        self.name = "poison"
        self.key = ("poison", type)


class GlobalAddress(Value):
    """The address of a global constant or a function, interned by symbol in each function."""

    __slots__ = ()

    def __init__(self, function: Builder, symbol: str) -> None:
        super().__init__(function, PTR)
        self.name = self.key = f"@{symbol}"


class ConstantValue(Value):
    """A constant: one number for all lanes, or a tuple of one number per lane. Interned in each function.

    Attributes:
        value: an int for integers and pointers, a float for floats, a tuple of these for lanes that differ.
        number_key: type and number, the interning key.
    """

    __slots__ = ("number_key", "value")

    def __init__(
        self, function: Builder, type: Type, value: Number | tuple[Number, ...], key: ConstantKey
    ) -> None:
        self.function = function
        self.type = type
        self.value = value
        self.key = self.number_key = key

    def __repr__(self) -> str:
        return f"<ConstantValue {self.type.text} {self.value}>"

    @property
    def is_uniform(self) -> bool:
        """Return whether the vector is a splat."""
        return not isinstance(self.value, tuple)

    def splat(self, lanes: int) -> Value:
        """Broadcast the number to a vector."""
        if not lanes or isinstance(self.value, tuple):
            return self
        return self.function.constant(self.type.vector(lanes), self.value)

    def text(self) -> str:
        """Return LLVM's text of the constant, exact for floats."""
        return _constant_text(self.number_key)


@lru_cache(maxsize=1 << 14)
def _constant_text(key: ConstantKey) -> str:
    type, value = key
    element = type.element
    if isinstance(value, tuple):
        return f"<{', '.join([f'{element} {number_text(element, v)}' for v in value])}>"
    text = number_text(element, value)
    return f"splat ({element} {text})" if type.lanes else text


def number_text(element: str, number: Number | bytes) -> str:
    """Return LLVM's exact text of a number, or of an f64's bytes, as a constant of an element type."""
    value: Number = struct.unpack("<d", number)[0] if isinstance(number, bytes) else number
    if element == "float":
        (rounded,) = struct.unpack("<f", struct.pack("<f", value))
        return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"
    if element == "double":
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if element == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if element == "bfloat":
        return f"0xR{struct.unpack('<I', struct.pack('<f', value))[0] >> 16:04X}"
    if element == "ptr":
        return "null" if not value else f"inttoptr (i64 {int(value)} to ptr)"
    return str(int(value))
