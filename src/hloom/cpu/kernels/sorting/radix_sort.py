"""Stable radix sort of unsigned integers, least significant digit first, with the indices of their elements.

Knuth, The Art of Computer Programming, volume 3, section 5.2.5. One sweep computes the histograms of all
digits; a digit that is equal in all records is skipped.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I1, I8, I32, I64, PTR, Function, Module, Type, Value, make_type
from hloom.codegen.llvm.memory import fill_bytes
from hloom.records import dataclass

LONG: Final = 4096
"""Number of records from which digits have 11 bits; fewer records are sorted by digits of 8 bits."""


@dataclass(frozen=True, slots=True)
class SortRecord:
    """The format of the records that a sort moves: an integer with the key, optionally its element's index.

    Attributes:
        bits: width of the integer, 32 or 64.
        key_bits: width of the key.
        low: lowest bit of the key in the integer; an index may be below, and all bits above the key are 0.
        beside: whether a u32 index in a separate array moves with the integer.
    """

    bits: int
    key_bits: int
    low: int = 0
    beside: bool = False

    @property
    def type(self) -> Type:
        """Return the LLVM type of the integer that holds a record's key, i32 or i64."""
        return make_type(f"i{self.bits}")

    @property
    def bytes(self) -> int:
        return self.bits // 8 + 4 * self.beside

    def digits(self, count: int) -> list[tuple[int, int]]:
        """Return (lowest bit, width) of each digit of the key for a radix sort, least significant first.

        The width depends on ``count``, the number of records.
        """
        largest = 11 if count >= LONG and self.key_bits > 16 else 8
        number = -(-self.key_bits // largest)
        width = -(-self.key_bits // number)
        return [
            (self.low + start, min(width, self.key_bits - start)) for start in range(0, self.key_bits, width)
        ]


def radix_sort(module: Module, record: SortRecord, count: int) -> str:
    """Emit the function that radix-sorts records of the format ``record``; return its name.

    The function takes (integers, other integers, indices, other indices, count): the records are in the first
    and third array, and are moved between these and the second and fourth. It returns an i1 that is true if
    the sorted records are in the second and fourth. The pointers of indices are null unless
    ``record.beside``. The width of the digits depends on the argument ``count``, the number of records in
    most calls.
    """
    digits = record.digits(count)
    name = f"radix_sort_{record.bits}_{record.key_bits}_{record.low}_{int(record.beside)}_{digits[0][1]}"
    if name not in module.functions:
        _Sort(module, name, record, digits).emit()
    return name


class _Sort:
    """Emits the body of a radix sort function.

    One loop computes the histograms of all digits; then a loop for each digit scatters the records.
    """

    def __init__(self, module: Module, name: str, record: SortRecord, digits: list[tuple[int, int]]) -> None:
        self.f: Function = module.function(name, [PTR, PTR, PTR, PTR, I64], I1)
        self.record, self.digits = record, digits
        self.bins = 1 << max(width for _, width in digits)
        self.counts = self.f.allocate(I32, self.bins * len(digits))

    def emit(self) -> None:
        """Emit code that computes the histograms of all digits, then scatters the records by each digit.

        A digit that is equal in all records is skipped.
        """
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
        """Emit the extraction of the digit of index ``number`` from ``integer``; return it as an i64."""
        low, width = self.digits[number]
        moved = integer.logical_shift_right(low) if low else integer
        return (moved & ((1 << width) - 1)).cast("zext", I64)

    def bin(self, number: int, digit: Value | int) -> Value:
        """Emit the address of the entry for the value ``digit`` in the histogram of digit ``number``."""
        start = self.f.offset(self.counts, number * self.bins, I32)
        return self.f.offset(start, digit, I32)

    def count(self, integers: Value, count: Value) -> None:
        """Emit a loop over ``count`` integers that computes the histograms of all digits."""
        f = self.f
        size = f.constant(I64, 4 * self.bins * len(self.digits))
        fill_bytes(self.counts, f.constant(I8, 0), size)
        with f.loop(0, count) as loop:
            integer = f.load(self.record.type, f.offset(integers, loop.index, self.record.type))
            for number in range(len(self.digits)):
                address = self.bin(number, self.digit(integer, number))
                f.store(f.load(I32, address) + 1, address)

    def place(self, number: int, integers: Value, count: Value) -> Value:
        """Emit code that replaces the histogram of the digit of index ``number`` by its exclusive prefix sum.

        The entry for a value of the digit is then the position of the first record with that value. Returns
        an i1 that is true if all ``count`` records have the same value of the digit.
        """
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
        """Emit a stable scatter of ``count`` records from ``source`` to ``target`` by the digit ``number``.

        Source and target are pairs of arrays (integers, indices).
        """
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
