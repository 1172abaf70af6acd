"""Sorts of one long row, shared among threads: in pieces of equal size, whatever the number of threads.

For each digit every piece counts its own; then each knows where its elements go: behind those of smaller
digits, and among equal ones behind those of the pieces before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

from hloom.codegen.elements import View
from hloom.codegen.llvm import I8, I32, I64, PTR, Function, Module, Value
from hloom.codegen.llvm.memory import fill_bytes
from hloom.codegen.loops import LoopKernel
from hloom.cpu.kernels.sorting.radix_sort import Record
from hloom.cpu.kernels.sorting.row_sort import KeySort, RowByKeys, emit_rows, length, slot_bytes
from hloom.cpu.program import ProgramEmitter
from hloom.ir.instruction import HloInstruction

LEAST: Final = 1 << 16
PIECES: Final = 8
BINS: Final = 1 << 11
WORDS: Final = PIECES * BINS * 4 + 64
"""Bytes of counts, and of a flag for each piece."""


def shares_row(i: HloInstruction, plan: KeySort) -> bool:
    """Whether a sort is of one row that is worth sharing."""
    n = length(i)
    alone = i.operands[0].shape.element_count == n and n >= LEAST
    return alone and (plan.alone is not None or not plan.record.beside)


def workspace_bytes(i: HloInstruction, plan: KeySort) -> int:
    """Scratch memory: records twice, counts, flags."""
    return slot_bytes(plan, length(i)) + WORDS


def emit_long_sort(program: ProgramEmitter, i: HloInstruction, plan: KeySort, results: list[View]) -> None:
    """Sort by keys alone where elements can be told from them, else by records."""
    f = program.function
    sources = [program.pointer(o) for o in i.operands]
    pointers = [*sources, *(r.pointer for r in results), program.workspace(i)]
    sort = _LongSort(program, i, plan, pointers)
    sort.fill()
    if plan.alone is None:
        sort.passes()
        return
    records, alone, after = f.new_block(), f.new_block(), f.new_block()
    f.branch(sort.differs(), records, alone)
    f.start(records)
    emit_rows(program, i, replace(plan, alone=None), pointers)
    f.jump(after)
    f.start(alone)
    sort.passes()
    f.jump(after)
    f.start(after)


Piece: TypeAlias = Callable[[Function, Module, Value, Value, Value], None]
"""Emits what is done with a piece: (function, module, number, low, high)."""


class _LongSort:
    """The kernels of one sort."""

    def __init__(
        self, program: ProgramEmitter, i: HloInstruction, plan: KeySort, pointers: list[Value]
    ) -> None:
        self.program, self.f, self.i, self.plan, self.pointers = program, program.function, i, plan, pointers
        self.n = length(i)
        self.record: Record = plan.alone or plan.record
        self.piece = -(-self.n // (64 * PIECES)) * 64
        self.bytes = slot_bytes(plan, self.n)

    def areas(self, f: Function, space: Value) -> list[Value]:
        """Both areas of records."""
        return [space, f.offset(space, self.bytes // 2)]

    def counts(self, f: Function, space: Value) -> Value:
        """The counts of all pieces, by piece and digit."""
        return f.offset(space, self.bytes)

    def flag(self, f: Function, space: Value, piece: Value | int) -> Value:
        """Where a piece says whether its elements can be told from their keys."""
        return f.offset(f.offset(space, self.bytes + PIECES * BINS * 4), piece, I32)

    def call(self, parameters: list[Value], body: Piece) -> None:
        """Run a kernel on all pieces: ``body(function, module, number, low, high)``."""

        def emit(name: str) -> LoopKernel:
            module = self.program.module
            function = module.function(name, [PTR] * len(parameters) + [I64, I64])
            *_, begin, end = function.parameters
            with function.loop(begin, end) as loop:
                low = loop.index * self.piece
                high = function.intrinsic("smin", low + self.piece, function.constant(I64, self.n))
                body(function, module, loop.index, low, high)
            function.finish()
            return LoopKernel(name, PIECES, 1, 4 * self.n)

        self.program.call(self.i, self.program.shared(emit), parameters)

    def row(self, function: Function, module: Module, low: Value, high: Value) -> RowByKeys:
        """The code for a piece of the row."""
        row = RowByKeys(module, function, self.i, self.plan)
        row.others = row.row_indices(function.constant(I64, 0))
        row.low, row.high = low, high
        return row

    # -- steps

    def fill(self) -> None:
        """Make the keys, or the records."""

        def body(f: Function, module: Module, number: Value, low: Value, high: Value) -> None:
            space = f.parameters[len(self.pointers) - 1]
            row = self.row(f, module, low, high)
            if self.plan.alone is None:
                row.fill(self.plan.groups[0], space)
                return
            differs = row.fill_alone(self.record, space)
            f.store(differs.cast("zext", I32), self.flag(f, space, number))

        self.call(self.pointers, body)

    def differs(self) -> Value:
        """Whether some element cannot be told from its key."""
        f, space = self.f, self.pointers[-1]
        flags = [f.load(I32, self.flag(f, space, number)) for number in range(PIECES)]
        found = flags[0]
        for flag in flags[1:]:
            found = found | flag
        return found.compare("ne", 0)

    def passes(self) -> None:
        """Digit by digit, and write the result."""
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
        """(integer, digit as an index)."""
        kind = self.record.type
        integer = f.load(kind, f.offset(area, index, kind))
        moved = integer.logical_shift_right(low) if low else integer
        return integer, (moved & ((1 << width) - 1)).cast("zext", I64)

    def count(self, source: Value, counts: Value, low: int, width: int) -> None:
        """Count a digit in every piece."""

        def body(f: Function, module: Module, number: Value, start: Value, end: Value) -> None:
            mine = f.offset(f.parameters[1], number * BINS, I32)
            size = f.constant(I64, 4 * BINS)
            fill_bytes(mine, f.constant(I8, 0), size)
            with f.loop(start, end) as loop:
                _, digit = self.digit(f, f.parameters[0], loop.index, low, width)
                place = f.offset(mine, digit, I32)
                f.store(f.load(I32, place) + 1, place)

        self.call([source, counts], body)

    def move(self, source: Value, target: Value, counts: Value, low: int, width: int) -> None:
        """Put the records of every piece where they belong."""

        def body(f: Function, module: Module, number: Value, start: Value, end: Value) -> None:
            mine = f.offset(f.parameters[2], number * BINS, I32)
            with f.loop(start, end) as loop:
                integer, digit = self.digit(f, f.parameters[0], loop.index, low, width)
                place = f.offset(mine, digit, I32)
                at = f.load(I32, place)
                f.store(at + 1, place)
                f.store(integer, f.offset(f.parameters[1], at.cast("zext", I64), self.record.type))

        self.call([source, target, counts], body)

    def write(self, area: int) -> None:
        """Write the results from the area where the sorted records lie."""

        def body(f: Function, module: Module, number: Value, low: Value, high: Value) -> None:
            place = self.areas(f, f.parameters[len(self.pointers) - 1])[area]
            row = self.row(f, module, low, high)
            if self.plan.alone is None:
                row.write(place)
            else:
                row.write_alone(self.record, place)

        self.call(self.pointers, body)


def _places(module: Module) -> str:
    """The function that turns the counts of all pieces into first places; returns its name."""
    name = "sort_places"
    if name not in module.functions:
        f = module.function(name, [PTR])
        (counts,) = f.parameters
        with f.loop(0, BINS, 1, [f.constant(I32, 0)]) as bins:
            (total,) = bins.values
            for piece in range(PIECES):
                place = f.offset(counts, bins.index + piece * BINS, I32)
                here = f.load(I32, place)
                f.store(total, place)
                total = total + here
            bins.next(total)
        f.finish()
    return name
