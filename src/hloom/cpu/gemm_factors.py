"""How the factors of a matrix product are stored in packed panels, and multiplied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from hloom.cpu.contraction import converted, multiply_add
from hloom.cpu.elements import Elements
from hloom.cpu.gemm import Gemm
from hloom.cpu.llvm_text import Function, Value
from hloom.cpu.types import Element, from_storage, storage_bytes, storage_type, to_storage
from hloom.shape.element_type import ElementType


class Factors(Protocol):
    """A way of multiplying.

    Attributes:
        group: products that one step takes for each result.
        unit_bytes: bytes of the packed factors of one step.
    """

    group: ClassVar[int]

    @property
    def unit_bytes(self) -> int: ...
    def head_bytes(self, columns: int) -> int:
        """Bytes before the first step of a packed panel."""
        ...

    def pack(self, values: Sequence[Element], kind: ElementType, pointer: Value) -> None:
        """Store the vectors of factors of one step, ``group`` of them."""
        ...

    def pack_row(self, value: Element, kind: ElementType, pointer: Value) -> None:
        """Store a vector of factors of a row of A, which follow each other along k."""
        ...

    def pack_column(self, values: Sequence[Element], kind: ElementType, pointer: Value) -> None:
        """Store the factors of A of one step and a vector of rows."""
        ...

    def load(self, f: Function, pointer: Value, lanes: int) -> Element:
        """A vector of packed factors."""
        ...

    def broadcast(self, f: Function, pointer: Value, lanes: int) -> Element:
        """The factors of one row in every lane."""
        ...

    def multiply(self, e: Elements, a: Element, b: Element, total: Element) -> Element:
        """The sum with one step's products added."""
        ...


@dataclass(frozen=True, slots=True)
class Plain:
    """Factors in the type of the sums, multiplied one at a time."""

    gemm: Gemm
    group: ClassVar[int] = 1

    @property
    def unit_bytes(self) -> int:
        """Bytes of a factor."""
        return storage_bytes(self.gemm.kind)

    def head_bytes(self, columns: int) -> int:
        """Nothing comes first."""
        return 0

    def pack(self, values: Sequence[Element], kind: ElementType, pointer: Value) -> None:
        """Store a vector of factors: of complex ones all real parts, then all imaginary ones."""
        (value,) = values
        number = converted(value, kind, self.gemm.kind)
        if isinstance(number, tuple):
            f = number[0].function
            f.store(number[0], pointer)
            f.store(number[1], f.offset(pointer, number[0].type.lanes, number[0].type.scalar))
        else:
            number.function.store(to_storage(number, self.gemm.kind), pointer)

    def load(self, f: Function, pointer: Value, lanes: int) -> Element:
        """What `pack` stored."""
        stored = storage_type(self.gemm.kind)
        first = f.load(stored.vector(lanes), pointer)
        if self.gemm.kind.is_complex:
            return first, f.load(stored.vector(lanes), f.offset(pointer, lanes, stored))
        return from_storage(first, self.gemm.kind)

    def broadcast(self, f: Function, pointer: Value, lanes: int) -> Element:
        """A number in every lane."""
        stored = storage_type(self.gemm.kind)
        first = f.load(stored, pointer)
        if self.gemm.kind.is_complex:
            return first.splat(lanes), f.load(stored, f.offset(pointer, 1, stored)).splat(lanes)
        return from_storage(first, self.gemm.kind).splat(lanes)

    def multiply(self, e: Elements, a: Element, b: Element, total: Element) -> Element:
        """Total + a * b."""
        return multiply_add(e, self.gemm.kind, a, b, total)

    def pack_row(self, value: Element, kind: ElementType, pointer: Value) -> None:
        """Store a vector of factors of A: complex ones as they lie in arrays."""
        number = converted(value, kind, self.gemm.kind)
        if isinstance(number, tuple):
            lanes = number[0].type.lanes
            order = [lane // 2 + (lane % 2) * lanes for lane in range(2 * lanes)]
            number[0].function.store(number[0].shuffle(order, number[1]), pointer)
        else:
            number.function.store(to_storage(number, self.gemm.kind), pointer)

    def pack_column(self, values: Sequence[Element], kind: ElementType, pointer: Value) -> None:
        """Store the factors of A of one step and a vector of rows."""
        (value,) = values
        self.pack_row(value, kind, pointer)
