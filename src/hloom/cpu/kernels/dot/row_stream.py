"""Matrix products of few rows with a large matrix B, which is read once, in the order of memory.

Each task adds multiples of whole rows of B, one after the other, to sums that stay in the first-level cache,
so that its reads are one sequential stream: tiles of the result would read short pieces of rows far apart, at
half the memory's rate. Sums are divided along k, in the same way for any number of threads; a second kernel
adds the partial sums and applies the epilogue. Narrow factors are converted in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from hloom.analysis.subviews import Subview
from hloom.analysis.updates import origin
from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm import I32, I64, PTR, Function, Module, Value
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
    def sums(self) -> tuple[int, ...]:
        """Return the dimensions of the partial sums; their rows are in different sets of the cache."""
        return (self.parts, self.gemm.m, -(-self.gemm.n // LINE) * LINE + LINE // 4)

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
    tasks, gemm = _Tasks(f, plan, a, b, sums), plan.gemm
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
        self.b = f.offset(b, gemm.b.offset * storage_bytes(gemm.b_type))
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
                self.prefetch(start, lane)
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

    def prefetch(self, start: Value, lane: Index) -> None:
        """Prefetch the vector of B that follows at some distance."""
        f, gemm = self.f, self.plan.gemm
        size = storage_bytes(gemm.b_type)
        row_bytes = gemm.b.row * size
        ahead = AHEAD if self.plan.depth == 1 else self.plan.depth * row_bytes
        at = f.offset(start, self.e.parts(lane)[0] * size)
        read, everywhere, data = (f.constant(I32, number) for number in (0, 3, 1))
        for line in range(0, self.plan.lanes * size, LINE):
            f.call(None, "llvm.prefetch.p0", f.offset(at, ahead + line), read, everywhere, data)


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
