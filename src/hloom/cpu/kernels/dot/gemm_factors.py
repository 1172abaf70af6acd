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
    """The packed format of A and B, and the multiply-add instruction of the micro-kernel.

    One lane of the instruction multiplies a *unit* (``group`` consecutive elements along k) of a row of A by
    one of a column of B, and adds the products to one accumulator. A *step* is one unit along k.

    Attributes:
        group: elements along k of a unit.
        unit_bytes: bytes of a packed unit.
        reads_rows: whether a row of A in memory has units as they are packed.
    """

    __slots__ = ()
    group: ClassVar[int]
    reads_rows: ClassVar[bool] = False

    @property
    def headed(self) -> bool:
        """Return whether packed panels of B begin with a head: the initial accumulators of their columns."""
        return False

    @property
    @abstractmethod
    def unit_bytes(self) -> int: ...
    def read_as(self, kind: ElementType) -> ElementType:
        """Return the type with which elements of type ``kind`` are loaded from memory before they are packed.

        It is ``kind`` itself, unless a subclass packs bit patterns.
        """
        return kind

    @abstractmethod
    def pack(self, values: Sequence[Element], kind: ElementType, pointer: Value) -> None:
        """Emit the packing of B at one step along k, for a vector of columns, to ``pointer``.

        ``values`` are ``group`` vectors of type ``kind``, one for each index of k in the step. Each column's
        ``group`` elements become adjacent.
        """

    @abstractmethod
    def pack_units(self, value: Element, kind: ElementType) -> Element:
        """Emit the conversion of elements of a column of B, consecutive along k, to packed units.

        A unit has ``group`` consecutive elements; the result is a vector of units.
        """

    @abstractmethod
    def store_units(self, value: Element, pointer: Value) -> None:
        """Emit the store of a vector of packed units; a unit has ``group`` consecutive elements along k."""

    @abstractmethod
    def pack_row(self, value: Element, kind: ElementType, pointer: Value) -> None:
        """Emit the packing of a vector of elements of a row of A, consecutive along k, to ``pointer``."""

    @abstractmethod
    def pack_column(self, values: Sequence[Element], kind: ElementType, pointer: Value) -> None:
        """Emit the packing of A at one step along k, for a vector of rows, to ``pointer``.

        ``values`` are ``group`` vectors of type ``kind``, one for each index of k in the step. Each row's
        ``group`` elements become adjacent.
        """

    @abstractmethod
    def load(self, f: Function, pointer: Value, lanes: int) -> Element:
        """Emit the load of a packed unit of B (``group`` elements along k) for each of ``lanes`` columns."""

    @abstractmethod
    def broadcast(self, f: Function, pointer: Value, lanes: int) -> Element:
        """Emit the load of a packed unit of A (``group`` elements along k of one row) into every lane."""

    @abstractmethod
    def multiply(self, e: Elements, a: Element, b: Element, total: Element) -> Element:
        """Emit ``total`` plus, in each lane, the products of the ``group`` elements of ``a`` and ``b``."""

    def sum_up(self, e: Elements, b: Value, total: Value) -> Value:
        """Emit the addition to ``total`` of one step's contribution to a panel's initial accumulators.

        ``b`` is the step's vector of packed units of B; return the new total. If packing adds no bias to A,
        the initial accumulators do not depend on B: return ``total`` itself.
        """
        return total


FEW_ROWS: Final = 4
"""Number of rows below which packing of panels does not pay."""


def factors_of(gemm: Gemm, target: Target) -> Factors:
    """Choose the fastest instructions on ``target`` that compute a product exactly.

    Return their `Factors`: how A and B are packed and multiplied for these instructions.
    """
    if gemm.m < FEW_ROWS and gemm.b.column == 1:
        return Plain(gemm)
    words = words_of(gemm, target)
    is_bytes = all(t.bits <= 8 for t in (gemm.a_type, gemm.b_type))
    return Bytes(gemm) if words is not None and words.adds and is_bytes else words or Plain(gemm)


def words_of(gemm: Gemm, target: Target) -> Words | None:
    """Return `Words`, which multiplies pairs of 16-bit integers; None if it does not apply to the product.

    It applies to products of s16 or of integers of at most 8 bits, with sums of 32 bits, on x86-64.
    """
    if gemm.kind not in (et.S32, et.U32) or target.architecture != "x86_64":
        return None
    if any(t is not et.S16 and not (t.is_integer and t.bits <= 8) for t in (gemm.a_type, gemm.b_type)):
        return None
    return Words(gemm, target.has("avx512vnni", "avx512vl"))


@dataclass(frozen=True, slots=True)
class Plain(Factors):
    """Multiplies one element of A by one of B per lane and instruction, in the accumulator type."""

    gemm: Gemm
    group: ClassVar[int] = 1

    @property
    def unit_bytes(self) -> int:
        return storage_bytes(self.gemm.kind)

    def pack(self, values: Sequence[Element], kind: ElementType, pointer: Value) -> None:
        """Emit the packing of a vector of elements of B in the accumulator type.

        Complex numbers are stored as all real parts, then all imaginary parts.
        """
        (value,) = values
        self.store_units(self.pack_units(value, kind), pointer)

    def pack_units(self, value: Element, kind: ElementType) -> Element:
        """Emit the conversion of elements of B, of type ``kind``, to the accumulator type."""
        return converted(value, kind, self.gemm.kind)

    def store_units(self, value: Element, pointer: Value) -> None:
        """Emit the store of a vector of elements of B in the accumulator type.

        Complex numbers are stored as all real parts, then all imaginary parts.
        """
        if isinstance(value, tuple):
            f = Function.of(value[0])
            f.store(value[0], pointer)
            f.store(value[1], f.offset(pointer, value[0].type.lanes, value[0].type.scalar))
        else:
            Function.of(value).store(to_storage(value, self.gemm.kind), pointer)

    def load(self, f: Function, pointer: Value, lanes: int) -> Element:
        """Emit the load of a vector of elements of B that `pack` stored."""
        stored = storage_type(self.gemm.kind)
        first = f.load(stored.vector(lanes), pointer)
        if self.gemm.kind.is_complex:
            return first, f.load(stored.vector(lanes), f.offset(pointer, lanes, stored))
        return from_storage(first, self.gemm.kind)

    def broadcast(self, f: Function, pointer: Value, lanes: int) -> Element:
        """Emit the load of one element of A, stored in the accumulator type, into every lane."""
        stored = storage_type(self.gemm.kind)
        first = f.load(stored, pointer)
        if self.gemm.kind.is_complex:
            return first.splat(lanes), f.load(stored, f.offset(pointer, 1, stored)).splat(lanes)
        return from_storage(first, self.gemm.kind).splat(lanes)

    def multiply(self, e: Elements, a: Element, b: Element, total: Element) -> Element:
        """Emit ``total + a * b`` in the accumulator type."""
        return multiply_add(e, self.gemm.kind, a, b, total)

    def pack_row(self, value: Element, kind: ElementType, pointer: Value) -> None:
        """Emit the store of elements of a row of A, in the accumulator type, to ``pointer``.

        Real and imaginary parts of complex numbers stay interleaved.
        """
        number = converted(value, kind, self.gemm.kind)
        if isinstance(number, tuple):
            lanes = number[0].type.lanes
            order = [lane // 2 + (lane % 2) * lanes for lane in range(2 * lanes)]
            Function.of(number[0]).store(number[0].shuffle(order, number[1]), pointer)
        else:
            Function.of(number).store(to_storage(number, self.gemm.kind), pointer)

    def pack_column(self, values: Sequence[Element], kind: ElementType, pointer: Value) -> None:
        """Emit the packing of one column of A for a vector of rows, in the accumulator type.

        ``values`` has a single vector of type ``kind``.
        """
        (value,) = values
        self.pack_row(value, kind, pointer)


class _Grouped(Factors):
    """Packs narrow elements into units of 32 bits: ``group`` consecutive elements along k.

    One lane of an instruction multiplies such a unit of A by one of B, and adds the products to an
    accumulator.

    Attributes:
        part: the LLVM type of a packed element, one of the ``group`` in a unit.
    """

    __slots__ = ()
    part: ClassVar[Type]

    @property
    def unit_bytes(self) -> int:
        return I32.size

    @abstractmethod
    def factor(self, value: Value, kind: ElementType, *, of_a: bool) -> Value:
        """Emit the conversion of elements of type ``kind`` to packed elements: of A if ``of_a``, else B."""

    def pack(self, values: Sequence[Element], kind: ElementType, pointer: Value) -> None:
        """Emit the packing of B at one step along k: a unit of 32 bits for each of a vector of columns.

        ``values`` are ``group`` vectors, one for each index of k in the step, with a lane for each column.
        """
        self._interleave(values, kind, pointer, of_a=False)

    def pack_column(self, values: Sequence[Element], kind: ElementType, pointer: Value) -> None:
        """Emit the packing of A for a vector of rows: a 32-bit unit (``group`` elements along k) per row."""
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
        """Emit the conversion of elements of B, consecutive along k, to 32-bit units of ``group`` each."""
        assert isinstance(value, Value)
        factor = self.factor(value, kind, of_a=False)
        return factor.bitcast(I32.vector(factor.type.lanes // self.group))

    def store_units(self, value: Element, pointer: Value) -> None:
        """Emit the store of a vector of 32-bit units, each of ``group`` packed elements along k."""
        assert isinstance(value, Value)
        Function.of(value).store(value, pointer)

    def pack_row(self, value: Element, kind: ElementType, pointer: Value) -> None:
        """Emit the packing of a vector of elements of a row of A, consecutive along k, to ``pointer``."""
        assert isinstance(value, Value)
        factor = self.factor(value, kind, of_a=True)
        Function.of(factor).store(factor, pointer)

    def load(self, f: Function, pointer: Value, lanes: int) -> Element:
        """Emit the load of ``lanes`` 32-bit units of B, as a vector of ``group`` times as many elements."""
        return f.load(self.part.vector(lanes * self.group), pointer)

    def broadcast(self, f: Function, pointer: Value, lanes: int) -> Element:
        """Emit the load of a 32-bit unit of A into every lane, as a vector of the unit's narrow elements."""
        unit = f.load(I32, pointer, align=1).splat(lanes)
        return unit.bitcast(self.part.vector(lanes * self.group))


BIAS: Final = -128
"""Bias, modulo 256, that converts between signed and unsigned bytes."""


@dataclass(frozen=True, slots=True)
class Bytes(_Grouped):
    """Multiplies 4 unsigned by 4 signed bytes per lane and instruction, by AVX-512 VNNI's ``vpdpbusd``.

    If A and B are both signed, or both unsigned, packing adds a bias of 128, modulo 256, to the bytes of A,
    which makes signed bytes unsigned and unsigned ones signed. Packed panels of B begin with initial
    accumulators that cancel the bias.
    """

    gemm: Gemm
    part: ClassVar[Type] = I8
    group: ClassVar[int] = 4

    @property
    def headed(self) -> bool:
        """Return whether packing adds a bias to A, so that panels of B begin with a correction."""
        return self.gemm.a_type.is_signed == self.gemm.b_type.is_signed

    def factor(self, value: Value, kind: ElementType, *, of_a: bool) -> Value:
        """Emit the packed form of bytes of A if ``of_a``, else of B.

        It is the bytes themselves, unless A and B are both signed or both unsigned: then the sign bits of A's
        bytes are flipped.
        """
        return value ^ BIAS if of_a and self.headed else value

    def multiply(self, e: Elements, a: Element, b: Element, total: Element) -> Element:
        """Emit ``total`` plus, in each 32-bit lane, the dot product of 4 bytes of ``a`` and 4 of ``b``."""
        assert isinstance(a, Value) and isinstance(b, Value) and isinstance(total, Value)
        return self._dot(total, b, a) if not self.gemm.b_type.is_signed else self._dot(total, a, b)

    def sum_up(self, e: Elements, b: Value, total: Value) -> Value:
        """Emit ``total`` minus the contribution of A's bias: the bias times each column's bytes in ``b``."""
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
    """Multiplies 2 by 2 16-bit integers per lane and instruction, by ``pmaddwd`` or ``vpdpwssd``.

    Attributes:
        gemm: the product.
        adds: use AVX-512 VNNI's ``vpdpwssd``, which also adds the products to the accumulator.
    """

    gemm: Gemm
    adds: bool
    part: ClassVar[Type] = I16
    group: ClassVar[int] = 2

    def factor(self, value: Value, kind: ElementType, *, of_a: bool) -> Value:
        """Emit the sign or zero extension of integers of type ``kind`` to 16 bits."""
        return value.cast("sext" if kind.is_signed else "zext", I16)

    def multiply(self, e: Elements, a: Element, b: Element, total: Element) -> Element:
        """Emit ``total`` plus, in each 32-bit lane, the dot product of 2 integers of ``a`` and 2 of ``b``."""
        assert isinstance(a, Value) and isinstance(b, Value) and isinstance(total, Value)
        f, lanes = total.function, total.type.lanes
        if self.adds:
            return f.call(total.type, f"llvm.x86.avx512.vpdpwssd.{32 * lanes}", total, a, b)
        name = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}[lanes]
        return total + f.call(total.type, f"llvm.x86.{name}", a, b)


@dataclass(frozen=True, slots=True)
class Pairs(_Grouped):
    """Multiplies 2 by 2 bf16 numbers per lane and instruction, by AVX-512 BF16's ``vdpbf16ps``.

    The instruction flushes subnormal operands and results to zero. Its results are those of f32 arithmetic if
    the magnitudes of both operands are large enough, which is tested at run time; see
    `hloom.cpu.kernels.dot.gemm_pairs`.
    """

    gemm: Gemm
    part: ClassVar[Type] = I16
    group: ClassVar[int] = 2
    reads_rows: ClassVar[bool] = True

    def read_as(self, kind: ElementType) -> ElementType:
        """Return u16: bf16 numbers are loaded and packed as bit patterns."""
        return et.U16

    def factor(self, value: Value, kind: ElementType, *, of_a: bool) -> Value:
        """Return the bit patterns of bf16 numbers as they are, for A and for B."""
        return value

    def multiply(self, e: Elements, a: Element, b: Element, total: Element) -> Element:
        """Emit ``total`` plus, in each f32 lane, the dot product of 2 bf16 values of ``a`` and 2 of ``b``."""
        assert isinstance(a, Value) and isinstance(b, Value) and isinstance(total, Value)
        f, lanes = total.function, total.type.lanes
        wide = BF16.vector(2 * lanes)
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
        return f.call(total.type, name, total, a.bitcast(wide), b.bitcast(wide))
