"""Radix sort of one long row, shared among threads in a fixed number of chunks.

For each digit every chunk computes its histogram. An exclusive prefix sum over (digit, chunk) then gives each
chunk the positions of its elements: after all smaller digits, and after the equal digits of earlier chunks.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I8, I32, I64, PTR, Function, Module, Value
from hloom.codegen.llvm.memory import fill_bytes
from hloom.cpu.kernels.sorting.row_sort import KeySort, area_bytes
from hloom.cpu.kernels.sorting.shared_row import SharedRow, flags_bytes
from hloom.cpu.program import ProgramEmitter
from hloom.ir.instruction import HloInstruction

LEAST: Final = 1 << 20
"""Fewest elements of a row that threads share: with fewer, chunks write into the same cache lines. Two
threads of a Zen 4 sort 2^18 numbers in 1.1 to 2.2 ms and 2^20 in 2.7 to 8, one in 0.9 and 4.2."""
CHUNKS: Final = 8
BINS: Final = 1 << 11
AREAS: Final = 2


def table_bytes() -> int:
    """Return the size in bytes of one digit's histograms for all chunks into which a row is divided."""
    return CHUNKS * BINS * 4


class RadixRow(SharedRow):
    """Emits the kernels that radix-sort one long row on several threads, which share chunks of the row.

    One kernel stores the integer keys; for each digit, one computes histograms and one scatters; the last
    stores the results.
    """

    def __init__(
        self, program: ProgramEmitter, i: HloInstruction, plan: KeySort, pointers: list[Value]
    ) -> None:
        super().__init__(program, i, plan, pointers, CHUNKS, table_bytes())

    @staticmethod
    def workspace_bytes(plan: KeySort, n: int) -> int:
        """Return the bytes of scratch memory that the sort of a row of ``n`` elements needs.

        It holds a flag and a histogram for each chunk, and `AREAS` buffers for the keys of the row, each with
        its element's index if ``plan`` sorts indices too.
        """
        return flags_bytes(CHUNKS) + table_bytes() + AREAS * area_bytes(plan, n)

    def emit(self) -> None:
        """Emit all kernels: store the keys, sort by each digit from the lowest on, store the results."""
        f, space = self.f, self.pointers[-1]
        self.call(self.pointers, self.fill_chunk, self.chunks, 4 * self.n)
        areas, counts = [self.area(f, space, n) for n in range(AREAS)], self.tables(f, space)
        digits = self.record.digits(self.n)
        for number, (low, width) in enumerate(digits):
            source, target = areas[number % 2], areas[1 - number % 2]
            self.count(source, counts, low, width)
            f.call(None, _positions(self.program.module), counts)
            self.move(source, target, counts, low, width)
        self.write(len(digits) % 2)
        self.repair_shared_keys()

    def digit(self, f: Function, area: Value, index: Value, low: int, width: int) -> tuple[Value, Value]:
        """Emit the load of the integer at ``index`` of the buffer ``area`` and the extraction of a digit.

        The digit is bits [low, low + ``width``) of the integer. Returns (integer, digit as an i64).
        """
        kind = self.record.type
        integer = f.load(kind, f.offset(area, index, kind))
        moved = integer.logical_shift_right(low) if low else integer
        return integer, (moved & ((1 << width) - 1)).cast("zext", I64)

    def count(self, source: Value, counts: Value, low: int, width: int) -> None:
        """Emit a kernel that computes the histogram of one digit for every chunk of ``source``.

        The digit is bits [low, low + width); the histograms are stored in ``counts``.
        """

        def body(f: Function, module: Module, number: Value, start: Value, end: Value) -> None:
            mine = f.offset(f.parameters[1], number * BINS, I32)
            fill_bytes(mine, f.constant(I8, 0), 4 * BINS)
            with f.loop(start, end) as loop:
                _, digit = self.digit(f, f.parameters[0], loop.index, low, width)
                address = f.offset(mine, digit, I32)
                f.store(f.load(I32, address) + 1, address)

        self.call([source, counts], body, self.chunks, 4 * self.n)

    def move(self, source: Value, target: Value, counts: Value, low: int, width: int) -> None:
        """Emit a kernel that scatters the records of every chunk from ``source`` to ``target`` by one digit.

        The digit is bits [low, low + width). ``counts`` has, for each chunk and each value of the digit, the
        position of the next record, which the kernel increments.
        """

        def body(f: Function, module: Module, number: Value, start: Value, end: Value) -> None:
            mine = f.offset(f.parameters[2], number * BINS, I32)
            with f.loop(start, end) as loop:
                integer, digit = self.digit(f, f.parameters[0], loop.index, low, width)
                address = f.offset(mine, digit, I32)
                at = f.load(I32, address)
                f.store(at + 1, address)
                f.store(integer, f.offset(f.parameters[1], at.cast("zext", I64), self.record.type))

        self.call([source, target, counts], body, self.chunks, 4 * self.n)

    def write(self, area: int) -> None:
        """Emit a kernel that stores the sort's results from the sorted records in the buffer ``area``.

        ``area`` is the index of the buffer in scratch memory.
        """

        def body(f: Function, module: Module, number: Value, low: Value, high: Value) -> None:
            source = self.area(f, f.parameters[len(self.pointers) - 1], area)
            self.row(f, module, low, high).write_sorted(source)

        self.call(self.pointers, body, self.chunks, 4 * self.n)


def _positions(module: Module) -> str:
    """Emit the function that turns the histograms of all chunks into positions of records; return its name.

    It replaces the counts in place by their exclusive prefix sum, taken over the values of the digit and, for
    each value, over the chunks.
    """
    name = "sort_positions"
    if name not in module.functions:
        f = module.function(name, [PTR])
        (counts,) = f.parameters
        with f.loop(0, BINS, 1, [f.constant(I32, 0)]) as bins:
            (total,) = bins.values
            for chunk in range(CHUNKS):
                address = f.offset(counts, bins.index + chunk * BINS, I32)
                here = f.load(I32, address)
                f.store(total, address)
                total = total + here
            bins.next(total)
        f.finish()
    return name
