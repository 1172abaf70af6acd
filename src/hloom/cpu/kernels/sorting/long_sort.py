"""Radix sorts of one long row, shared among threads in chunks of fixed size.

For each digit every chunk computes its histogram. An exclusive prefix sum over (digit, chunk) then gives each
chunk the positions of its elements: after all smaller digits, and after the equal digits of earlier chunks.
The chunks do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from hloom.codegen.elements import View
from hloom.codegen.llvm import I8, I32, I64, PTR, Function, Module, Value
from hloom.codegen.llvm.memory import fill_bytes
from hloom.codegen.loops import LoopKernel
from hloom.cpu.kernels.sorting.row_sort import KeySort, RowByKeys, length, slot_bytes
from hloom.cpu.program import ProgramEmitter
from hloom.ir.instruction import HloInstruction

LEAST: Final = 1 << 20
"""Fewest elements of a row that threads share: with fewer, chunks write into the same cache lines. Two
threads of a Zen 4 sort 2^18 numbers in 1.1 to 2.2 ms and 2^20 in 2.7 to 8, one in 0.9 and 4.2."""
PIECES: Final = 8
BINS: Final = 1 << 11
WORDS: Final = PIECES * BINS * 4 + 64
"""Bytes of the histograms, and of a flag for each chunk."""


def shares_row(i: HloInstruction, plan: KeySort) -> bool:
    """Return whether a sort has one row, long enough to be shared among threads."""
    n = length(i)
    alone = i.operands[0].shape.element_count == n and n >= LEAST
    return alone and not plan.record.beside


def workspace_bytes(i: HloInstruction, plan: KeySort) -> int:
    """Return the bytes of scratch memory: records twice, histograms, flags."""
    return slot_bytes(plan, length(i)) + WORDS


def emit_long_sort(program: ProgramEmitter, i: HloInstruction, plan: KeySort, results: list[View]) -> None:
    """Emit the sort of a long row: of keys alone if elements can be recovered from keys, else of records."""
    sources = [program.pointer(o) for o in i.operands]
    pointers = [*sources, *(r.pointer for r in results), program.workspace(i)]
    sort = _LongSort(program, i, plan, pointers)
    sort.fill()
    sort.passes()
    if plan.alone:
        with program.function.when(sort.differs()):
            sort.store_again()


Piece: TypeAlias = Callable[[Function, Module, Value, Value, Value], None]
"""Emit the work on a chunk: (function, module, number, low, high)."""


class _LongSort:
    """Emits the kernels of one sort."""

    def __init__(
        self, program: ProgramEmitter, i: HloInstruction, plan: KeySort, pointers: list[Value]
    ) -> None:
        self.program, self.f, self.i, self.plan, self.pointers = program, program.function, i, plan, pointers
        self.n = length(i)
        self.record = plan.record
        self.piece = -(-self.n // (64 * PIECES)) * 64
        self.bytes = slot_bytes(plan, self.n)

    def areas(self, f: Function, space: Value) -> list[Value]:
        """Return both areas of records."""
        return [space, f.offset(space, self.bytes // 2)]

    def counts(self, f: Function, space: Value) -> Value:
        """Return the histograms of all chunks, by chunk and digit."""
        return f.offset(space, self.bytes)

    def flag(self, f: Function, space: Value, piece: Value | int) -> Value:
        """Return the address of the flag by which a chunk reports an element not recoverable from its key."""
        return f.offset(f.offset(space, self.bytes + PIECES * BINS * 4), piece, I32)

    def call(self, parameters: list[Value], body: Piece, pieces: int = PIECES) -> None:
        """Emit a kernel over chunks: ``body(function, module, number, low, high)``."""

        def emit(name: str) -> LoopKernel:
            module = self.program.module
            function = module.function(name, [PTR] * len(parameters) + [I64, I64])
            *_, begin, end = function.parameters
            with function.loop(begin, end) as loop:
                low = loop.index * self.piece
                high = function.intrinsic("smin", low + self.piece, function.constant(I64, self.n))
                body(function, module, loop.index, low, high)
            function.finish()
            return LoopKernel(name, pieces, 1, 4 * self.n)

        self.program.call(self.i, self.program.shared(emit), parameters)

    def row(self, function: Function, module: Module, low: Value, high: Value) -> RowByKeys:
        """Return the row emitter for a chunk."""
        row = RowByKeys(module, function, self.i, self.plan)
        row.others = row.row_indices(function.constant(I64, 0))
        row.low, row.high = low, high
        return row

    # -- steps

    def fill(self) -> None:
        """Emit the computation of the keys, or of the records."""

        def body(f: Function, module: Module, number: Value, low: Value, high: Value) -> None:
            space = f.parameters[len(self.pointers) - 1]
            row = self.row(f, module, low, high)
            if not self.plan.alone:
                row.fill(self.plan.groups[0], space)
                return
            differs = row.fill_alone(space)
            f.store(differs.cast("zext", I32), self.flag(f, space, number))

        self.call(self.pointers, body)

    def differs(self) -> Value:
        """Return a flag that is true if some element cannot be recovered from its key."""
        f, space = self.f, self.pointers[-1]
        flags = [f.load(I32, self.flag(f, space, number)) for number in range(PIECES)]
        either = flags[0]
        for flag in flags[1:]:
            either = either | flag
        return either.compare("ne", 0)

    def passes(self) -> None:
        """Sort by each digit, then store the result."""
        f, space = self.f, self.pointers[-1]
        areas, counts = self.areas(f, space), self.counts(f, space)
        digits = self.record.digits(self.n)
        for number, (low, width) in enumerate(digits):
            source, target = areas[number % 2], areas[1 - number % 2]
            self.count(source, counts, low, width)
            f.call(None, _places(self.program.module), counts)
            self.move(source, target, counts, low, width)
        self.write(len(digits) % 2)

    def digit(self, f: Function, area: Value, index: Value, low: int, width: int) -> tuple[Value, Value]:
        """Return (integer, digit as an index)."""
        kind = self.record.type
        integer = f.load(kind, f.offset(area, index, kind))
        moved = integer.logical_shift_right(low) if low else integer
        return integer, (moved & ((1 << width) - 1)).cast("zext", I64)

    def count(self, source: Value, counts: Value, low: int, width: int) -> None:
        """Emit the histogram of a digit for every chunk."""

        def body(f: Function, module: Module, number: Value, start: Value, end: Value) -> None:
            mine = f.offset(f.parameters[1], number * BINS, I32)
            size = f.constant(I64, 4 * BINS)
            fill_bytes(mine, f.constant(I8, 0), size)
            with f.loop(start, end) as loop:
                _, digit = self.digit(f, f.parameters[0], loop.index, low, width)
                address = f.offset(mine, digit, I32)
                f.store(f.load(I32, address) + 1, address)

        self.call([source, counts], body)

    def move(self, source: Value, target: Value, counts: Value, low: int, width: int) -> None:
        """Emit the scatter of every chunk's records to their positions."""

        def body(f: Function, module: Module, number: Value, start: Value, end: Value) -> None:
            mine = f.offset(f.parameters[2], number * BINS, I32)
            with f.loop(start, end) as loop:
                integer, digit = self.digit(f, f.parameters[0], loop.index, low, width)
                address = f.offset(mine, digit, I32)
                at = f.load(I32, address)
                f.store(at + 1, address)
                f.store(integer, f.offset(f.parameters[1], at.cast("zext", I64), self.record.type))

        self.call([source, target, counts], body)

    def write(self, area: int) -> None:
        """Store the results from the area that holds the sorted records."""

        def body(f: Function, module: Module, number: Value, low: Value, high: Value) -> None:
            address = self.areas(f, f.parameters[len(self.pointers) - 1])[area]
            row = self.row(f, module, low, high)
            if self.plan.alone:
                row.write_alone(address)
            else:
                row.write(address)

        self.call(self.pointers, body)

    def store_again(self) -> None:
        """Store the elements that share their keys with others."""

        def body(f: Function, module: Module, number: Value, low: Value, high: Value) -> None:
            self.row(f, module, low, high).store_again()

        self.call(self.pointers, body, pieces=1)


def _places(module: Module) -> str:
    """Emit the exclusive prefix sum over the histograms of all chunks; return the function's name."""
    name = "sort_places"
    if name not in module.functions:
        f = module.function(name, [PTR])
        (counts,) = f.parameters
        with f.loop(0, BINS, 1, [f.constant(I32, 0)]) as bins:
            (total,) = bins.values
            for piece in range(PIECES):
                address = f.offset(counts, bins.index + piece * BINS, I32)
                here = f.load(I32, address)
                f.store(total, address)
                total = total + here
            bins.next(total)
        f.finish()
    return name
