"""Storage of the factors of a matrix product in packed panels, and their multiply-add instructions.

Dot-product instructions multiply several narrow factors at once: one step multiplies a few neighbours along
k, and adds the products to a wider accumulator. The factors of a step are therefore adjacent in panels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final

from hloom.codegen.elements import Elements
from hloom.codegen.llvm import BF16, I8, I16, I32, Function, Type, Value
from hloom.codegen.rules.contraction import converted, multiply_add
from hloom.codegen.target import Target
from hloom.codegen.types import Element, from_storage, storage_bytes, storage_type, to_storage
from hloom.cpu.kernels.dot.gemm import Gemm
from hloom.records import dataclass
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType


class Factors(ABC):
    """The factors of a multiply-add instruction.

    Attributes:
        group: products per result in one step.
        unit_bytes: bytes of the packed factors of one step.
    """

    __slots__ = ()
    group: ClassVar[int]

    @property
    def headed(self) -> bool:
        """Return whether a panel begins with the initial sums of its columns."""
        return False

    @property
    @abstractmethod
    def unit_bytes(self) -> int: ...
    def read_as(self, kind: ElementType) -> ElementType:
        """Return the type in which factors of a type are loaded before packing."""
        return kind

    @abstractmethod
    def pack(self, values: Sequence[Element], kind: ElementType, pointer: Value) -> None:
        """Store the ``group`` vectors of factors of one step."""

    @abstractmethod
    def pack_units(self, value: Element, kind: ElementType) -> Element:
        """Return a vector of packed factors from ``group`` times as many neighbours along k."""

    @abstractmethod
    def store_units(self, value: Element, pointer: Value) -> None:
        """Store a vector of packed factors."""

    @abstractmethod
    def pack_row(self, value: Element, kind: ElementType, pointer: Value) -> None:
        """Store a vector of factors of a row of A, consecutive along k."""

    @abstractmethod
    def pack_column(self, values: Sequence[Element], kind: ElementType, pointer: Value) -> None:
        """Store the factors of A of one step and a vector of rows."""

    @abstractmethod
    def load(self, f: Function, pointer: Value, lanes: int) -> Element:
        """Load a vector of packed factors."""

    @abstractmethod
    def broadcast(self, f: Function, pointer: Value, lanes: int) -> Element:
        """Load the factors of one row into every lane."""

    @abstractmethod
    def multiply(self, e: Elements, a: Element, b: Element, total: Element) -> Element:
        """Add the products of one step to the sums."""

    def sum_up(self, e: Elements, b: Value, total: Value) -> Value:
        """Return the total plus the contribution of a step of a panel to the panel's head.

        Panels without a head add nothing.
        """
        return total


FEW_ROWS: Final = 4
"""Number of rows below which packing of panels does not pay."""


def factors_of(gemm: Gemm, target: Target) -> Factors:
    """Return the fastest exact factors for a target."""
    if gemm.m < FEW_ROWS and gemm.b.column == 1:
        return Plain(gemm)
    words = words_of(gemm, target)
    is_bytes = all(t.bits <= 8 for t in (gemm.a_type, gemm.b_type))
    return Bytes(gemm) if words is not None and words.adds and is_bytes else words or Plain(gemm)


def words_of(gemm: Gemm, target: Target) -> Words | None:
    """Return pairs of 16-bit integers as factors; None for other types and targets."""
    if gemm.kind not in (et.S32, et.U32) or target.architecture != "x86_64":
        return None
    if any(t is not et.S16 and not (t.is_integer and t.bits <= 8) for t in (gemm.a_type, gemm.b_type)):
        return None
    return Words(gemm, target.has("avx512vnni", "avx512vl"))


@dataclass(frozen=True, slots=True)
class Plain(Factors):
    """Multiplies factors in the type of the sums, one at a time."""

    gemm: Gemm
    group: ClassVar[int] = 1

    @property
    def unit_bytes(self) -> int:
        return storage_bytes(self.gemm.kind)

    def pack(self, values: Sequence[Element], kind: ElementType, pointer: Value) -> None:
        """Store a vector of factors; complex ones as all real parts, then all imaginary parts."""
        (value,) = values
        self.store_units(self.pack_units(value, kind), pointer)

    def pack_units(self, value: Element, kind: ElementType) -> Element:
        """Convert factors to the type of the sums."""
        return converted(value, kind, self.gemm.kind)

    def store_units(self, value: Element, pointer: Value) -> None:
        """Store factors in the type of the sums."""
        if isinstance(value, tuple):
            f = Function.of(value[0])
            f.store(value[0], pointer)
            f.store(value[1], f.offset(pointer, value[0].type.lanes, value[0].type.scalar))
        else:
            Function.of(value).store(to_storage(value, self.gemm.kind), pointer)

    def load(self, f: Function, pointer: Value, lanes: int) -> Element:
        """Load a vector that `pack` stored."""
        stored = storage_type(self.gemm.kind)
        first = f.load(stored.vector(lanes), pointer)
        if self.gemm.kind.is_complex:
            return first, f.load(stored.vector(lanes), f.offset(pointer, lanes, stored))
        return from_storage(first, self.gemm.kind)

    def broadcast(self, f: Function, pointer: Value, lanes: int) -> Element:
        """Load a factor into every lane."""
        stored = storage_type(self.gemm.kind)
        first = f.load(stored, pointer)
        if self.gemm.kind.is_complex:
            return first.splat(lanes), f.load(stored, f.offset(pointer, 1, stored)).splat(lanes)
        return from_storage(first, self.gemm.kind).splat(lanes)

    def multiply(self, e: Elements, a: Element, b: Element, total: Element) -> Element:
        """Return total + a * b."""
        return multiply_add(e, self.gemm.kind, a, b, total)

    def pack_row(self, value: Element, kind: ElementType, pointer: Value) -> None:
        """Store a vector of factors of A; complex ones interleaved as in arrays."""
        number = converted(value, kind, self.gemm.kind)
        if isinstance(number, tuple):
            lanes = number[0].type.lanes
            order = [lane // 2 + (lane % 2) * lanes for lane in range(2 * lanes)]
            Function.of(number[0]).store(number[0].shuffle(order, number[1]), pointer)
        else:
            Function.of(number).store(to_storage(number, self.gemm.kind), pointer)

    def pack_column(self, values: Sequence[Element], kind: ElementType, pointer: Value) -> None:
        """Store the factors of A of one step and a vector of rows."""
        (value,) = values
        self.pack_row(value, kind, pointer)


class _Grouped(Factors):
    """Narrow factors packed into units of 32 bits.

    Attributes:
        part: the type of a packed factor.
    """

    __slots__ = ()
    part: ClassVar[Type]

    @property
    def unit_bytes(self) -> int:
        return I32.size

    @abstractmethod
    def factor(self, value: Value, kind: ElementType, *, of_a: bool) -> Value:
        """Convert factors to their packed form."""

    def pack(self, values: Sequence[Element], kind: ElementType, pointer: Value) -> None:
        """Store units, given one vector per position in the unit."""
        self._interleave(values, kind, pointer, of_a=False)

    def pack_column(self, values: Sequence[Element], kind: ElementType, pointer: Value) -> None:
        """Store units of A."""
        self._interleave(values, kind, pointer, of_a=True)

    def _interleave(
        self, values: Sequence[Element], kind: ElementType, pointer: Value, *, of_a: bool
    ) -> None:
        current = [self.factor(v, kind, of_a=of_a) for v in values if isinstance(v, Value)]
        lanes = current[0].type.lanes
        while len(current) > 1:
            width = current[0].type.lanes
            current = [
                x.shuffle(range(2 * width), y) for x, y in zip(current[::2], current[1::2], strict=True)
            ]
        group = len(values)
        order = [lane // group + lane % group * lanes for lane in range(lanes * group)]
        (joined,) = current
        Function.of(joined).store(joined.shuffle(order), pointer)

    def pack_units(self, value: Element, kind: ElementType) -> Element:
        """Combine neighbours along k into units."""
        assert isinstance(value, Value)
        factor = self.factor(value, kind, of_a=False)
        return factor.bitcast(I32.vector(factor.type.lanes // self.group))

    def store_units(self, value: Element, pointer: Value) -> None:
        """Store a vector of units."""
        assert isinstance(value, Value)
        Function.of(value).store(value, pointer)

    def pack_row(self, value: Element, kind: ElementType, pointer: Value) -> None:
        """Store factors of A."""
        assert isinstance(value, Value)
        factor = self.factor(value, kind, of_a=True)
        Function.of(factor).store(factor, pointer)

    def load(self, f: Function, pointer: Value, lanes: int) -> Element:
        """Load a vector of units."""
        return f.load(self.part.vector(lanes * self.group), pointer)

    def broadcast(self, f: Function, pointer: Value, lanes: int) -> Element:
        """Load a unit into every lane."""
        unit = f.load(I32, pointer, align=1).splat(lanes)
        return unit.bitcast(self.part.vector(lanes * self.group))


BIAS: Final = -128
"""Bias, modulo 256, that converts between signed and unsigned bytes."""


@dataclass(frozen=True, slots=True)
class Bytes(_Grouped):
    """Multiplies four unsigned bytes by four signed bytes per instruction.

    If both operands have the same signedness, those of A are biased into the other one; the head of a panel
    subtracts the bias's contribution to each column.
    """

    gemm: Gemm
    part: ClassVar[Type] = I8
    group: ClassVar[int] = 4

    @property
    def headed(self) -> bool:
        """Return true if A is biased."""
        return self.gemm.a_type.is_signed == self.gemm.b_type.is_signed

    def factor(self, value: Value, kind: ElementType, *, of_a: bool) -> Value:
        """Return the bytes, biased if necessary."""
        return value ^ BIAS if of_a and self.headed else value

    def multiply(self, e: Elements, a: Element, b: Element, total: Element) -> Element:
        """Return total + a . b."""
        assert isinstance(a, Value) and isinstance(b, Value) and isinstance(total, Value)
        return self._dot(total, b, a) if not self.gemm.b_type.is_signed else self._dot(total, a, b)

    def sum_up(self, e: Elements, b: Value, total: Value) -> Value:
        """Return minus the bias of A times the sum of a column."""
        signed = self.gemm.b_type.is_signed
        # the bias adds 128 to signed bytes of A, and subtracts 128 from unsigned ones
        ones = b.function.constant(b.type, 1)
        added = self._dot(b.function.constant(total.type, 0), *((ones, b) if signed else (b, ones)))
        return total + added * (BIAS if signed else -BIAS)

    def _dot(self, total: Value, unsigned: Value, signed: Value) -> Value:
        f, bits = total.function, 32 * total.type.lanes
        return f.call(total.type, f"llvm.x86.avx512.vpdpbusd.{bits}", total, unsigned, signed)


@dataclass(frozen=True, slots=True)
class Words(_Grouped):
    """Multiplies two pairs of 16-bit integers per instruction.

    Attributes:
        adds: one instruction also adds the products to the sum.
    """

    gemm: Gemm
    adds: bool
    part: ClassVar[Type] = I16
    group: ClassVar[int] = 2

    def factor(self, value: Value, kind: ElementType, *, of_a: bool) -> Value:
        """Return the 16-bit integers."""
        return value.cast("sext" if kind.is_signed else "zext", I16)

    def multiply(self, e: Elements, a: Element, b: Element, total: Element) -> Element:
        """Return total + a . b."""
        assert isinstance(a, Value) and isinstance(b, Value) and isinstance(total, Value)
        f, lanes = total.function, total.type.lanes
        if self.adds:
            return f.call(total.type, f"llvm.x86.avx512.vpdpwssd.{32 * lanes}", total, a, b)
        name = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}[lanes]
        return total + f.call(total.type, f"llvm.x86.{name}", a, b)


@dataclass(frozen=True, slots=True)
class Pairs(_Grouped):
    """Multiplies two pairs of bf16 numbers per instruction.

    The instruction flushes subnormal operands and results to zero. Its results are those of f32 products
    where the factors are large enough; see `hloom.cpu.kernels.dot.gemm_pairs`.
    """

    gemm: Gemm
    part: ClassVar[Type] = I16
    group: ClassVar[int] = 2

    def read_as(self, kind: ElementType) -> ElementType:
        """Return the type of bit patterns."""
        return et.U16

    def factor(self, value: Value, kind: ElementType, *, of_a: bool) -> Value:
        """Return the bit patterns."""
        return value

    def multiply(self, e: Elements, a: Element, b: Element, total: Element) -> Element:
        """Return total + a . b."""
        assert isinstance(a, Value) and isinstance(b, Value) and isinstance(total, Value)
        f, lanes = total.function, total.type.lanes
        wide = BF16.vector(2 * lanes)
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
        return f.call(total.type, name, total, a.bitcast(wide), b.bitcast(wide))
