"""Stable LSD radix sort of unsigned integers with the indices of their elements.

Knuth, The Art of Computer Programming, volume 3, section 5.2.5. One sweep computes the histograms of all
digits; a digit that is equal in all records is skipped.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I1, I8, I32, I64, PTR, Function, Module, Type, Value, make_type
from hloom.codegen.llvm.memory import fill_bytes
from hloom.records import dataclass

LONG: Final = 4096
"""Length in elements from which digits have 11 bits; shorter rows use 8."""


@dataclass(frozen=True, slots=True)
class SortRecord:
    """A record: an integer with the key in its upper bits, and optionally an index.

    Attributes:
        bits: width of the integer, 32 or 64.
        key_bits: width of the key: the upper bits, or the lower ones if all above are 0.
        low: lowest bit of the key.
        beside: a u32 index in an array of its own moves with the integer.
    """

    bits: int
    key_bits: int
    low: int = 0
    beside: bool = False

    @property
    def type(self) -> Type:
        """Return the LLVM type of the integer."""
        return make_type(f"i{self.bits}")

    @property
    def bytes(self) -> int:
        return self.bits // 8 + 4 * self.beside

    def digits(self, count: int) -> list[tuple[int, int]]:
        """Return (lowest bit, width) of each digit, least significant first, for ``count`` records."""
        largest = 11 if count >= LONG and self.key_bits > 16 else 8
        number = -(-self.key_bits // largest)
        width = -(-self.key_bits // number)
        return [
            (self.low + start, min(width, self.key_bits - start)) for start in range(0, self.key_bits, width)
        ]


def radix_sort(module: Module, record: SortRecord, count: int) -> str:
    """Emit the function that sorts records between two areas; return its name.

    The function maps (integers, other integers, indices, other indices, count) to a flag that is true if the
    result lies in the other areas. The indices are null if the record has none beside the integer.
    """
    digits = record.digits(count)
    name = f"radix_sort_{record.bits}_{record.key_bits}_{record.low}_{int(record.beside)}_{digits[0][1]}"
    if name not in module.functions:
        _Sort(module, name, record, digits).emit()
    return name


class _Sort:
    """Emits the function of a radix sort."""

    def __init__(self, module: Module, name: str, record: SortRecord, digits: list[tuple[int, int]]) -> None:
        self.f: Function = module.function(name, [PTR, PTR, PTR, PTR, I64], I1)
        self.record, self.digits = record, digits
        self.bins = 1 << max(width for _, width in digits)
        self.counts = self.f.allocate(I32, self.bins * len(digits))

    def emit(self) -> None:
        """Emit the histograms, then the scatter of each digit."""
        f = self.f
        integers, others, numbers, other_numbers, count = f.parameters
        self.count(integers, count)
        swapped = f.constant(I1, 0)
        for number in range(len(self.digits)):
            same = self.place(number, integers, count)
            move, after = f.new_block(), f.new_block()
            f.branch(same, after, move)
            f.start(move)
            self.move(number, (integers, numbers), (others, other_numbers), count)
            f.jump(after)
            f.start(after)
            integers, others = same.select(integers, others), same.select(others, integers)
            if self.record.beside:
                numbers, other_numbers = (
                    same.select(numbers, other_numbers),
                    same.select(other_numbers, numbers),
                )
            swapped = same.select(swapped, swapped ^ 1)
        f.finish(swapped)

    def digit(self, integer: Value, number: int) -> Value:
        """Return a digit, as an index."""
        low, width = self.digits[number]
        moved = integer.logical_shift_right(low) if low else integer
        return (moved & ((1 << width) - 1)).cast("zext", I64)

    def bin(self, number: int, digit: Value | int) -> Value:
        """Return the address of a digit's count."""
        start = self.f.offset(self.counts, number * self.bins, I32)
        return self.f.offset(start, digit, I32)

    def count(self, integers: Value, count: Value) -> None:
        """Emit the histograms of all digits."""
        f = self.f
        size = f.constant(I64, 4 * self.bins * len(self.digits))
        fill_bytes(self.counts, f.constant(I8, 0), size)
        with f.loop(0, count) as loop:
            integer = f.load(self.record.type, f.offset(integers, loop.index, self.record.type))
            for number in range(len(self.digits)):
                address = self.bin(number, self.digit(integer, number))
                f.store(f.load(I32, address) + 1, address)

    def place(self, number: int, integers: Value, count: Value) -> Value:
        """Replace the counts of a digit by first positions; return true if all records share the digit."""
        f = self.f
        first = f.load(self.record.type, integers)
        same = f.load(I32, self.bin(number, self.digit(first, number))).compare(
            "eq", count.cast("trunc", I32)
        )
        with f.loop(0, self.bins, 1, [f.constant(I32, 0)]) as loop:
            (total,) = loop.values
            address = self.bin(number, loop.index)
            here = f.load(I32, address)
            f.store(total, address)
            loop.next(total + here)
        return same

    def move(
        self, number: int, source: tuple[Value, Value], target: tuple[Value, Value], count: Value
    ) -> None:
        """Scatter the records to the positions of their digits."""
        f, kind = self.f, self.record.type
        with f.loop(0, count) as loop:
            integer = f.load(kind, f.offset(source[0], loop.index, kind))
            address = self.bin(number, self.digit(integer, number))
            at = f.load(I32, address)
            f.store(at + 1, address)
            index = at.cast("zext", I64)
            f.store(integer, f.offset(target[0], index, kind))
            if self.record.beside:
                beside = f.load(I32, f.offset(source[1], loop.index, I32))
                f.store(beside, f.offset(target[1], index, I32))
