"""Base class of the sorts of one long row that threads share in chunks.

The chunks do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from hloom.codegen.llvm import I32, I64, PTR, Function, Module, Value
from hloom.codegen.loops import LoopKernel
from hloom.cpu.kernels.sorting.row_sort import KeySort, RowByKeys, area_bytes, length
from hloom.cpu.program import ProgramEmitter
from hloom.ir.instruction import HloInstruction

Piece: TypeAlias = Callable[[Function, Module, Value, Value, Value], None]
"""Emits an iteration of a kernel over chunks: (function, module, number of the chunk, its begin, its end)."""


def chunk_length(n: int, chunks: int) -> int:
    """Return the length of the chunks into which ``n`` elements are divided, at most ``chunks`` of them.

    The last chunk may be shorter. The length is a multiple of 64 elements, so that chunks consist of whole
    cache lines.
    """
    return -(-n // (64 * chunks)) * 64


class SharedRow:
    """Base class of emitters that sort one long row in chunks, which threads share.

    Scratch memory begins with a flag for each chunk and ``tables`` bytes for tables of the subclass; buffers
    for the records of the whole row follow.
    """

    def __init__(
        self,
        program: ProgramEmitter,
        i: HloInstruction,
        plan: KeySort,
        pointers: list[Value],
        chunks: int,
        tables: int,
    ) -> None:
        self.program, self.f, self.i, self.plan, self.pointers = program, program.function, i, plan, pointers
        self.n = length(i)
        self.record = plan.record
        self.piece = chunk_length(self.n, chunks)
        self.chunks = -(-self.n // self.piece)
        self.tables_at = flags_bytes(chunks)
        self.areas_at = self.tables_at + tables

    def area(self, f: Function, space: Value, number: int) -> Value:
        """Emit the address of the buffer ``number`` for the row's records in the scratch memory ``space``."""
        return f.offset(space, self.areas_at + number * area_bytes(self.plan, self.n))

    def tables(self, f: Function, space: Value) -> Value:
        """Emit the address of the subclass's tables in the scratch memory ``space``."""
        return f.offset(space, self.tables_at)

    def call(self, parameters: list[Value], body: Piece, pieces: int, work: int) -> None:
        """Emit a kernel whose iterations threads share, and its call with the arguments ``parameters``.

        ``body(function, module, number, low, high)`` emits iteration ``number`` of ``pieces``; for a kernel
        over chunks, this is the chunk of the elements [low, high). ``work`` is a rough number of elementary
        operations.
        """

        def emit(name: str) -> LoopKernel:
            module = self.program.module
            function = module.function(name, [PTR] * len(parameters) + [I64, I64])
            *_, begin, end = function.parameters
            with function.loop(begin, end) as loop:
                low = loop.index * self.piece
                high = function.intrinsic("smin", low + self.piece, function.constant(I64, self.n))
                body(function, module, loop.index, low, high)
            function.finish()
            return LoopKernel(name, pieces, 1, work, str(self.plan))

        self.program.call(self.i, self.program.shared(emit), parameters)

    def row(self, function: Function, module: Module, low: Value, high: Value) -> RowByKeys:
        """Return an emitter whose methods store keys, records or results of elements [low, high) of the row.

        They emit their code into ``function``, a kernel.
        """
        row = RowByKeys(module, function, self.i, self.plan)
        row.others = row.row_indices(function.constant(I64, 0))
        row.low, row.high = low, high
        return row

    def fill_chunk(self, f: Function, module: Module, number: Value, low: Value, high: Value) -> None:
        """Emit the body of a kernel that stores the keys or records of a chunk to the first buffer.

        For keys without indices it also stores the chunk's flag: whether it has an element whose bits cannot
        be computed from its key. The chunk has the index ``number`` and the elements [low, high) of the row.
        """
        space = f.parameters[len(self.pointers) - 1]
        row = self.row(f, module, low, high)
        if self.plan.without_indices:
            differs = row.fill_keys(self.area(f, space, 0))
            f.store(differs.cast("zext", I32), f.offset(space, number, I32))
        else:
            row.fill(self.plan.groups[0], self.area(f, space, 0))

    def repair_shared_keys(self) -> None:
        """Emit code that stores again those results whose bits could not be computed from their keys.

        They have keys that elements with different bits share, such as zeros of both signs. The elements of
        each shared key are copied from the operand in its order. The code runs only if the flag of a chunk is
        set.
        """
        if not self.plan.without_indices:
            return
        f, space = self.f, self.pointers[-1]
        with f.loop(0, self.chunks, 1, [f.constant(I32, 0)]) as loop:
            (differs,) = loop.values
            loop.next(differs | f.load(I32, f.offset(space, loop.index, I32)))

        def body(f: Function, module: Module, number: Value, low: Value, high: Value) -> None:
            self.row(f, module, low, high).repair_shared_keys()

        with f.when(loop.values[0].compare("ne", 0)):
            self.call(self.pointers, body, 1, self.n)


def flags_bytes(chunks: int) -> int:
    """Return the bytes of scratch memory for the flags of ``chunks`` chunks.

    A chunk's flag is set if the chunk has an element whose bits cannot be computed from its key.
    """
    return -(-4 * chunks // 64) * 64
