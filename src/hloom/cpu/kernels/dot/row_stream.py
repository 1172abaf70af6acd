"""Matrix products of few rows with a large matrix B, which is read once, in the order of memory.

Each task adds multiples of whole rows of B, one after the other, to sums that stay in the first-level cache,
so that its reads are one sequential stream: tiles of the result would read short pieces of rows far apart, at
half the memory's rate. Sums are divided along k, in the same way for any number of threads; a second kernel
adds the partial sums and applies the epilogue. Narrow factors are converted in registers.

Bytes of two 4-bit numbers are divided into a vector of even columns and one of odd columns. The sums of a
block of columns are in this order too, until the second kernel interleaves them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from hloom.analysis.subviews import Subview
from hloom.analysis.updates import origin
from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm import F32, I8, I32, I64, PTR, Function, Module, Value
from hloom.codegen.llvm.memory import masked_load
from hloom.codegen.loops import LoopKernel, vector_loop
from hloom.codegen.rules.contraction import converted, multiply_add
from hloom.codegen.target import Target
from hloom.codegen.types import Element, constant, register_type, storage_bytes
from hloom.cpu.kernels.dot.gemm import Epilogue, Gemm, load_at
from hloom.cpu.kernels.dot.inner_product import plus
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.shape import element_type as et

ROWS_PER_BYTE: Final = 2
"""Most rows of A by the bytes of an element of B: with more of them multiplying takes longer than reading."""
LEAST_BYTES: Final = 1 << 18
"""Bytes of B from which its order of reading matters."""
CACHED: Final = 1 << 23
"""Bytes of arrays that may still be in the caches since they were last read."""
LINE: Final = 64
"""Bytes of a cache line."""
AHEAD: Final = 4096
"""Bytes that are prefetched before they are multiplied."""
PACKED: Final = 32
"""Columns of a block of packed factors."""
SIXTEEN: Final = 16
"""Values of a factor of four bits."""
DEPTH: Final = 4
"""Rows of packed factors that are multiplied at a time."""
MOST_PARTS: Final = 16
SUMS_BYTES: Final = 1 << 14
"""Bytes of the sums of a task, which stay in the first-level cache."""


@dataclass(frozen=True, slots=True)
class RowStream:
    """Describe the plan of a product whose rows are sums of rows of B.

    Attributes:
        gemm: the product.
        transposed: compute the transpose of the product.
        lanes: columns of a vector of B.
        whole: lanes of a vector register.
        depth: rows of B that are multiplied at a time.
        part: rows of B in a partial sum.
        width: columns of a task.
    """

    gemm: Gemm
    transposed: bool
    lanes: int
    whole: int
    depth: int
    part: int
    width: int

    @property
    def parts(self) -> int:
        """Return the number of partial sums."""
        return -(-self.gemm.k // self.part)

    @property
    def column_tasks(self) -> int:
        return -(-self.gemm.n // self.width)

    @property
    def ahead(self) -> int:
        """Return the distance in bytes from factors to those that are prefetched with them.

        It is a number of rows if tasks take parts of rows.
        """
        b, size = self.gemm.b, storage_bytes(self.gemm.b_type)
        if self.depth == self.column_tasks == 1:
            return AHEAD
        rows = max(self.depth, AHEAD * b.per_byte // (self.width * size))
        return rows * b.row * size // b.per_byte

    @property
    def sums(self) -> tuple[int, ...]:
        """Return the dimensions of the partial sums; their rows are in different sets of the cache."""
        return (self.parts, self.gemm.m, -(-self.gemm.n // PACKED) * PACKED + LINE // 4)

    def __str__(self) -> str:
        words = [
            f"sums of rows, {self.depth} x {self.lanes} at a time"
            + (", transposed" if self.transposed else ""),
            f"tasks of {self.part} rows, {self.width} columns",
        ]
        return "; ".join(words)

    def workspace(self) -> int:
        """Return the bytes of the partial sums."""
        parts, rows, columns = self.sums
        return parts * rows * columns * storage_bytes(self.gemm.kind)


def row_stream_of(gemm: Gemm, factors: Sequence[HloInstruction], target: Target) -> RowStream | None:
    """Return the plan of a product with few rows, or columns, as sums of rows; None if others are faster.

    ``factors``: the arrays that hold A and B.
    """
    transposed = gemm.n < gemm.m
    few = gemm.transposed if transposed else gemm
    size = storage_bytes(few.b_type)
    if gemm.is_packed:
        return _packed(few, transposed, target) if streams_packed(gemm) else None
    if few.b.column != 1 or few.m > ROWS_PER_BYTE * size or few.batches > 1:
        return None
    if few.k * few.n * size < LEAST_BYTES or read_before_again(factors[0 if transposed else 1]) < CACHED:
        return None
    if few.kind.is_complex or few.kind is et.PRED:
        return None
    whole = target.vector_bytes // register_type(few.kind).size
    lanes = 4 * whole if few.m == 1 else max(whole, LINE // size)
    if few.n < lanes:
        return None
    depth = {1: 1, 2: 4, 3: 4, 4: 4}.get(few.m, 2)
    parts = min(MOST_PARTS, max(4, few.k * size // 128))
    part = -(-few.k // (parts * depth)) * depth
    fitting = SUMS_BYTES // (few.m * storage_bytes(few.kind))
    count = -(-few.n // max(lanes, fitting))
    width = -(-few.n // (count * lanes)) * lanes
    return RowStream(few, transposed, lanes, whole, depth, part, width)


def streams_packed(gemm: Gemm) -> bool:
    """Return whether a product with packed factors has a plan on every target: with one row, or column."""
    few = gemm.transposed if gemm.n < gemm.m else gemm
    dense = few.b.column == 1 and few.b.row % few.b.per_byte == few.b.offset % few.b.per_byte == 0
    wide = few.n >= 2 * LINE and few.n % few.b.per_byte == 0
    return few.m == 1 == few.a.per_byte and few.batches == 1 and dense and wide and few.kind is et.F32


def _packed(few: Gemm, transposed: bool, target: Target) -> RowStream:
    whole = target.vector_bytes // register_type(few.kind).size
    parts = min(MOST_PARTS, max(4, few.k // 256))
    count = -(-few.n // (SUMS_BYTES // storage_bytes(few.kind)))
    lanes = LINE * few.b.per_byte
    width = -(-few.n // (count * lanes)) * lanes
    return RowStream(few, transposed, lanes, whole, DEPTH, -(-few.k // (parts * DEPTH)) * DEPTH, width)


def read_before_again(array: HloInstruction) -> int:
    """Return the bytes that the program reads, at least, between two reads of the same elements of an array.

    A loop reads other parts of an array of which it takes slices, or the same array again. A program that is
    called again reads all its arguments in between.
    """
    computation = array.parent
    leaf, index = origin(array)
    while leaf.annotation(Subview) is not None:
        leaf, index = origin(leaf.operands[0])
    if computation is None or computation.module is None or computation is not computation.module.entry:
        return leaf.shape.subshape(index).byte_size
    return sum(p.shape.byte_size for p in computation.parameters if p.shape.is_array)


def emit_row_sums(module: Module, name: str, plan: RowStream) -> LoopKernel:
    """Emit the kernel (A, B, partial sums, begin, end) over parts and columns."""
    f = module.function(name, [PTR] * 3 + [I64] * 2)
    a, b, sums, begin, end = f.parameters
    gemm = plan.gemm
    tasks = (_PackedTasks if gemm.is_packed else _Tasks)(f, plan, a, b, sums)
    with f.loop(begin, end) as loop:
        part = loop.index.unsigned_divide(plan.column_tasks) if plan.column_tasks > 1 else loop.index
        column = (loop.index - part * plan.column_tasks) * plan.width
        last = f.intrinsic("smin", column + plan.width, f.constant(I64, gemm.n))
        tasks.task(part, column, last)
    f.finish()
    return LoopKernel(name, plan.parts * plan.column_tasks, 1, gemm.work, str(plan))


class _Tasks:
    """Emit the sums of parts of the rows of B."""

    def __init__(self, f: Function, plan: RowStream, a: Value, b: Value, sums: Value) -> None:
        gemm = plan.gemm
        self.f, self.plan = f, plan
        self.a = f.offset(a, gemm.a.offset * storage_bytes(gemm.a_type))
        self.b = f.offset(b, gemm.b.offset * storage_bytes(gemm.b_type) // gemm.b.per_byte)
        self.sums = View(sums, gemm.kind, plan.sums)
        self.e = Elements(f, plan.lanes, {})

    def task(self, part: Value, column: Value, end: Value) -> None:
        """Emit a partial sum of some columns."""
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        low = part * plan.part
        high = f.intrinsic("smin", low + plan.part, f.constant(I64, gemm.k))
        number = Index.of(Variable(plan.parts, "p", part))
        zero = constant(f, gemm.kind, 0, plan.lanes)

        def clear(lane: Index) -> None:
            for row in range(gemm.m):
                self.e.store(self.sums, (number, Index(row), lane), zero)

        self.columns(column, end, clear)
        full_end = low + ((high - low) & -plan.depth) if plan.depth > 1 else high
        with f.loop(low, full_end, plan.depth) as loop:
            self.add_rows(number, loop.index, plan.depth, column, end)
        if gemm.k % plan.depth:
            with f.loop(full_end, high) as loop:
                self.add_rows(number, loop.index, 1, column, end)

    def columns(self, column: Value, end: Value, body: Callable[[Index], None]) -> None:
        """Run the body for vectors of columns, the last one masked."""
        lane = Variable(self.plan.gemm.n, "n")
        exact = self.plan.gemm.n % self.plan.lanes == 0
        vector_loop(self.e, lane, column, end, lambda: body(Index.of(lane)), exact=exact)

    def add_rows(self, part: Index, k: Value, count: int, column: Value, end: Value) -> None:
        """Add the multiples of a few rows of B to the sums."""
        e, f, gemm = self.e, self.f, self.plan.gemm
        factors = [[self.factor(row, k + step) for step in range(count)] for row in range(gemm.m)]
        starts = [f.offset(self.b, (k + s) * (gemm.b.row * storage_bytes(gemm.b_type))) for s in range(count)]

        def add(lane: Index) -> None:
            vectors: list[Element] = []
            for start in starts:
                self.prefetch(start, e.parts(lane)[0])
                vectors.append(converted(load_at(e, start, lane, gemm.b_type), gemm.b_type, gemm.kind))
            for row, scalars in enumerate(factors):
                place = part, Index(row), lane
                total = e.load(self.sums, place)
                for scalar, vector in zip(scalars, vectors, strict=True):
                    total = multiply_add(e, gemm.kind, scalar, vector, total)
                e.store(self.sums, place, total)

        self.columns(column, end, add)

    def factor(self, row: int, k: Value) -> Element:
        """Load an element of A."""
        gemm = self.plan.gemm
        place = Index.of(Variable(gemm.k, "k", k)) * gemm.a.column + row * gemm.a.row
        return converted(load_at(self.e, self.a, place, gemm.a_type), gemm.a_type, gemm.kind)

    def prefetch(self, row: Value, column: Value) -> None:
        """Prefetch the vector of B that follows the one at a column of a row at some distance."""
        f, b, size = self.f, self.plan.gemm.b, storage_bytes(self.plan.gemm.b_type)
        at = f.offset(row, (column * size).unsigned_divide(b.per_byte) if b.per_byte > 1 else column * size)
        read, everywhere, data = (f.constant(I32, number) for number in (0, 3, 1))
        for line in range(0, self.plan.lanes * size // b.per_byte, LINE):
            f.call(None, "llvm.prefetch.p0", f.offset(at, self.plan.ahead + line), read, everywhere, data)


class _PackedTasks(_Tasks):
    """Emit the sums of parts of the rows of a matrix whose bytes are two elements each."""

    def task(self, part: Value, column: Value, end: Value) -> None:
        """Emit a partial sum of some columns."""
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        low = part * plan.part
        high = f.intrinsic("smin", low + plan.part, f.constant(I64, gemm.k))
        sums = f.offset(self.sums.pointer, part * plan.sums[2], F32)
        zero = f.constant(F32.vector(PACKED), 0.0)
        with f.loop(column, end, PACKED) as loop:
            f.store(zero, f.offset(sums, loop.index, F32))
        full_end = low + ((high - low) & -plan.depth)
        with f.loop(low, full_end, plan.depth) as loop:
            self.add_packed_rows(loop.index, plan.depth, sums, column, end)
        if gemm.k % plan.depth:
            with f.loop(full_end, high) as loop:
                self.add_packed_rows(loop.index, 1, sums, column, end)

    def add_packed_rows(self, k: Value, count: int, sums: Value, column: Value, end: Value) -> None:
        """Add the multiples of a few rows to the sums."""
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        factors = [self.factor(0, k + step) for step in range(count)]
        rows = [f.offset(self.b, (k + step) * (gemm.b.row // gemm.b.per_byte)) for step in range(count)]
        full_end = f.constant(I64, gemm.n & -plan.lanes)
        with f.loop(column, f.intrinsic("smin", end, full_end), plan.lanes) as loop:
            for row in rows:
                self.prefetch(row, loop.index)
            for first in range(0, plan.lanes, PACKED):
                self.add_block(rows, loop.index + first, sums, factors, PACKED)
        if gemm.n % plan.lanes:
            with f.when(end.compare("sgt", full_end)):
                for first in range(0, gemm.n % plan.lanes, PACKED):
                    count = min(PACKED, gemm.n % plan.lanes - first)
                    self.add_block(rows, full_end + first, sums, factors, count)

    def add_block(
        self, rows: Sequence[Value], column: Value, sums: Value, factors: Sequence[Element], count: int
    ) -> None:
        """Add the multiples of a block of columns to the sums: of the even columns, then of the odd ones."""
        f, half = self.f, PACKED // 2
        places = [f.offset(sums, column + first, F32) for first in (0, half)]
        totals: list[Value] = [f.load(F32.vector(half), place) for place in places]
        numbers = f.constant(I8.vector(half), list(range(half)))
        for row, factor in zip(rows, factors, strict=True):
            assert isinstance(factor, Value)
            at = f.offset(row, column.unsigned_divide(2))
            if count == PACKED:
                both = f.load(I8.vector(half), at)
            else:
                both = masked_load(I8.vector(half), at, numbers.compare("ult", count // 2))
            parts = zip(halves(both, signed=self.plan.gemm.b_type.is_signed), totals, strict=True)
            wide = factor.splat(half)
            totals = [plus_product(self.e, wide, part, total) for part, total in parts]
        for place, total in zip(places, totals, strict=True):
            f.store(total, place)


def plus_product(e: Elements, a: Value, b: Value, total: Value) -> Value:
    """Return total + a * b of f32 vectors."""
    value = multiply_add(e, et.F32, a, b, total)
    assert isinstance(value, Value)
    return value


def halves(both: Value, *, signed: bool) -> tuple[Value, Value]:
    """Return as f32 the numbers in the low four bits of bytes, and those in the high ones."""
    f, lanes = both.function, both.type.lanes
    wide = both.cast("zext", I32)
    if f.target.has("avx512f") and lanes == SIXTEEN:
        # the permutation takes its indices from the low four bits
        table = f.constant(
            F32.vector(lanes), [float(n - SIXTEEN * (signed and n > 7)) for n in range(SIXTEEN)]
        )
        name = "llvm.x86.avx512.permvar.sf.512"
        return f.call(table.type, name, table, wide), f.call(table.type, name, table, wide >> 4)
    if signed:
        return ((wide << 28) >> 28).cast("sitofp", F32), ((wide << 24) >> 28).cast("sitofp", F32)
    return (wide & 15).cast("uitofp", F32), (wide >> 4).cast("uitofp", F32)


def emit_add_row_parts(
    module: Module, name: str, plan: RowStream, extra: int, bind: Callable[[Sequence[Value]], Epilogue]
) -> LoopKernel:
    """Emit the kernel (partial sums, extra pointers ..., begin, end) that adds partial sums, over columns."""
    f = module.function(name, [PTR] * (1 + extra) + [I64] * 2)
    source, *pointers, begin, end = f.parameters
    gemm = plan.gemm
    view, epilogue = View(source, gemm.kind, plan.sums), bind(pointers)
    e = Elements(f, plan.whole, {})
    line, lane = Variable(gemm.m, "m"), Variable(gemm.n, "n")

    def add() -> None:
        row, column = Index.of(line), Index.of(lane)
        total: Element | None = None
        for part in range(plan.parts):
            if gemm.is_packed:
                value = _interleaved(e, f.offset(source, part * plan.sums[2], F32), lane)
            else:
                value = e.load(view, (Index(part), row, column))
            total = value if total is None else plus(total, value)
        assert total is not None
        place = (column, row) if plan.transposed else (row, column)
        epilogue(e, Index(0), *place, total)

    blocks = -(-gemm.n // LINE)
    with f.loop(begin, end) as loop:
        line.value = loop.index.unsigned_divide(blocks)
        first = (loop.index - line.value * blocks) * LINE
        last = f.intrinsic("smin", first + LINE, f.constant(I64, gemm.n))
        vector_loop(e, lane, first, last, add, exact=gemm.n % plan.whole == 0)
    f.finish()
    return LoopKernel(name, gemm.m * blocks, 1, gemm.m * gemm.n * plan.parts)


def _interleaved(e: Elements, sums: Value, lane: Variable) -> Element:
    """Load the sums of a vector of columns, which are in blocks of even and odd columns."""
    f, column = e.function, lane.value
    assert isinstance(column, Value)
    half = e.lanes // 2
    block = column & -PACKED
    even = f.offset(sums, block + (column - block).unsigned_divide(2), F32)
    odd = f.offset(even, PACKED // 2, F32)
    return f.load(F32.vector(half), even).interleave(f.load(F32.vector(half), odd))
