"""Matrix products of few rows with a large matrix B, which is read once, in the order of memory.

Tiles of the result would read short pieces of rows of B far apart, at half the memory's rate. So each task
multiplies whole rows of B, several at a time: tiles of sums stay in registers over these rows, and then
in the second-level cache. Rows that are multiplied together are far apart, and the next ones follow each of
them: the processor fetches several streams in the order of memory by itself, at a higher rate than one, or
than rows that are neighbours. Sums are divided along k, in the same way for any number of threads; a second
kernel adds the partial sums and applies the epilogue. The columns of all batches (such as heads of values)
are one row if they are neighbours in B. Narrow factors are converted in registers:

Bytes of two 4-bit numbers are divided into a vector of even columns and one of odd columns; sums are in this
order too, until the second kernel interleaves them. Quantized numbers are multiplied by the scales of their
groups; rows of B that are multiplied together are in one group. Integers of a byte are multiplied in pairs
of rows, by instructions that add two products of 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hloom.analysis.subviews import Subview
from hloom.analysis.updates import origin
from hloom.codegen.accumulators import plus
from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm import F32, I8, I32, I64, PTR, Function, Module, Value
from hloom.codegen.llvm.memory import masked_load, prefetch
from hloom.codegen.loops import LoopKernel, vector_loop
from hloom.codegen.rules.contraction import converted, multiply_add
from hloom.codegen.target import Target, registers
from hloom.codegen.types import Element, register_type, storage_bytes, wrap
from hloom.cpu.kernels.dot.gemm import Epilogue, Gemm, load_at
from hloom.cpu.kernels.dot.gemm_factors import Words, words_of
from hloom.cpu.kernels.dot.strided import sliced_array
from hloom.ir.affine import Index, Indices, Variable, delinearize, linearize
from hloom.ir.instruction import HloInstruction
from hloom.operations.conversion import BitcastConvert, Convert
from hloom.operations.reshaping import Reshape
from hloom.passes.layout.product_views import factor_operand
from hloom.records import dataclass
from hloom.shape import element_type as et

MOST_ROWS: Final = 8
"""Most rows of A: with more of them multiplying takes longer than reading."""
LARGE: Final = 1 << 24
LARGE_ROWS: Final = 12
"""Bytes of B from which more rows pay: packing columns of it reads pieces of rows, on a page each."""
LEAST_BYTES: Final = 3 << 15
"""Bytes of B from which its order of reading matters."""
CACHED: Final = 1 << 23
"""Bytes of arrays that may still be in the caches since they were last read."""
LINE: Final = 64
"""Bytes of a cache line."""
PART_BYTES: Final = 1 << 17
"""Least bytes of B for a partial sum, whose addition costs as much as reading some of them."""
AHEAD: Final = 1 << 11
"""Bytes from a tile to what it fetches into the second-level cache: the instructions of a tile with several
rows of A are too many for the processor to look further."""
STREAMS: Final = 8
"""Rows that are multiplied together."""
VECTORS, BYTE_VECTORS = 2, 4
"""Most vectors of a row of a tile; of elements of a byte, which are half a line."""
PACKED: Final = 32
"""Most columns of a tile of packed factors."""
SIXTEEN: Final = 16
"""Values of a factor of four bits."""
LEAST_ROWS: Final = 16
"""Least rows of B in a partial sum for each row of A, whose sums are written and read again."""
LEAST_PARTS: Final = 4
MOST_PARTS: Final = 16
"""Partial sums: powers of two, which most numbers of threads divide."""
SUMS_BYTES: Final = 1 << 16
"""Bytes of the sums of a task, which stay in the second-level cache."""


@dataclass(frozen=True, slots=True)
class RowStream:
    """A plan of a product with few rows, as a sum of outer products of columns of A and rows of B.

    B is read once, in the order of memory.

    Attributes:
        gemm: the product.
        transposed: whether ``gemm`` is the transpose of the dot's product.
        lanes: columns of a register tile.
        whole: lanes of a vector register.
        part: rows of B (indices of k) in a partial sum.
        span: rows of B over which the `STREAMS` rows that are multiplied together are spread evenly.
        width: columns of C in a task, which computes one partial sum of each of their elements.
        words: how integers are multiplied, two rows of B at a time; None for one row at a time.
    """

    gemm: Gemm
    transposed: bool
    lanes: int
    whole: int
    part: int
    span: int
    width: int
    words: Words | None

    @property
    def group(self) -> int:
        """Return the number of rows of B that one instruction multiplies: 1, or 2 for pairs of integers."""
        return 1 if self.words is None else self.words.group

    @property
    def vectors(self) -> int:
        """Return the number of vectors that hold the accumulators of one row of a register tile."""
        return self.gemm.b.per_byte if self.words is None else self.lanes // self.whole

    @property
    def parts(self) -> int:
        """Return the number of partial sums of each result; each adds an interval of k."""
        return -(-self.gemm.k // self.part)

    @property
    def columns(self) -> int:
        """Return the number of columns of B in all batches, which lie side by side in each row of B."""
        return self.gemm.batches * self.gemm.n

    @property
    def column_tasks(self) -> int:
        return -(-self.columns // self.width)

    @property
    def row_bytes(self) -> int:
        """Return the distance in bytes between rows of B."""
        return self.bytes_of(self.gemm.b.row)

    def bytes_of(self, columns: int) -> int:
        """Return the bytes of ``columns`` neighbouring elements in a row of B."""
        return columns * storage_bytes(self.gemm.b_type) // self.gemm.b.per_byte

    @property
    def sums(self) -> tuple[int, ...]:
        """Return the dimensions of the array of partial sums: (interval of k, row, padded column)."""
        columns = -(-self.columns // self.lanes) * self.lanes
        return (self.parts, self.gemm.m, columns + LINE // 4)

    def __str__(self) -> str:
        words = [
            f"sums of rows, {STREAMS} x {self.lanes} at a time"
            + (f", {self.group} products at a time" if self.words is not None else "")
            + (f", scaled by groups of {self.gemm.b.group}" if self.gemm.is_scaled else "")
            + (", transposed" if self.transposed else ""),
            f"tasks of {self.part} rows, {self.width} columns",
        ]
        return "; ".join(words)

    def workspace(self) -> int:
        """Return the bytes of the kernels' workspace, which holds the partial sums."""
        parts, rows, columns = self.sums
        return parts * rows * columns * storage_bytes(self.gemm.kind)


def row_stream_of(gemm: Gemm, factors: Sequence[HloInstruction], target: Target) -> RowStream | None:
    """Return the plan that reads a product's B row by row; None unless C has few rows (or few columns).

    ``factors`` are the arrays that hold A and B. 4-bit and quantized products must satisfy `streams_narrow`;
    for others, return None, too, if B may still be in the caches.
    """
    transposed = gemm.n < gemm.m
    few = gemm.transposed if transposed else gemm
    if gemm.is_packed or gemm.is_scaled:
        return _planned(few, transposed, target)
    if few.b.column != 1 or not _has_joined_batches(few):
        return None
    columns = few.batches * few.n
    size = few.k * columns * storage_bytes(few.b_type)
    if few.m > (MOST_ROWS if size < LARGE else LARGE_ROWS):
        return None
    if size < LEAST_BYTES or read_before_again(factors[0 if transposed else 1]) < CACHED:
        return None
    if few.kind.is_complex or few.kind is et.PRED or columns < MOST_ROWS * SIXTEEN:
        return None
    return _planned(few, transposed, target)


def _has_joined_batches(gemm: Gemm) -> bool:
    """Return whether rows of B hold the columns of all batches side by side, a multiple of `LINE` each."""
    if gemm.batches == 1:
        return True
    return gemm.b.batch == (gemm.n,) and gemm.b.row >= gemm.batches * gemm.n and gemm.n % LINE == 0


def streams_narrow(gemm: Gemm) -> bool:
    """Return whether `RowStream` supports a 4-bit or quantized product; it must have few rows or columns."""
    few = gemm.transposed if gemm.n < gemm.m else gemm
    per_byte, group = few.b.per_byte, few.b.group
    dense = few.b.column == 1 and few.b.row % per_byte == few.b.offset % per_byte == 0
    wide = few.n >= 2 * LINE and few.n % per_byte == 0
    is_few = few.m <= MOST_ROWS and few.a.per_byte == 1 and not few.a.group
    whole = group % STREAMS == 0 and (not group or few.k % group == 0)
    return is_few and few.batches == 1 and dense and wide and whole and few.kind is et.F32


def _planned(few: Gemm, transposed: bool, target: Target) -> RowStream:
    size, columns = storage_bytes(few.b_type), few.batches * few.n
    whole = target.vector_bytes // register_type(few.kind).size
    vectors = VECTORS if size > 1 else BYTE_VECTORS
    while vectors > few.b.per_byte and vectors * few.m > registers(target) * 3 // 4:
        vectors //= 2
    lanes = vectors * whole if few.b.per_byte == 1 else min(PACKED, vectors * whole)
    fitting = SUMS_BYTES // (few.m * storage_bytes(few.kind))
    count = -(-columns // max(LINE, fitting))
    width = -(-columns // (count * LINE)) * LINE
    parts, bits = LEAST_PARTS, few.b_type.bits if few.b_type.is_integer else 8 * size
    most = max(LEAST_PARTS, few.k // (LEAST_ROWS * few.m))
    while parts < MOST_PARTS and 2 * parts <= most and 2 * parts * PART_BYTES <= few.k * columns * bits // 8:
        parts *= 2  # two numbers in a byte have the parts, and the sums, that they have as bytes
    unit = few.b.group or STREAMS
    while unit * parts > few.k and unit % (2 * STREAMS) == 0:
        unit //= 2
    part = -(-few.k // (parts * unit)) * unit
    span = unit if few.b.group else part
    words = words_of(few, target) if few.k % Words.group == 0 else None
    return RowStream(few, transposed, lanes, whole, part, span, width, words)


def read_before_again(array: HloInstruction) -> int:
    """Return the least number of bytes that the program reads between two reads of an element of ``array``.

    In a loop body, it is the size of ``array``; if that is a slice, of all arrays of which the body reads
    slices. In the entry, it is the size of all parameters, as the next call of the program reads them again.
    """
    computation = array.parent
    leaf, index = origin(array)
    if computation is None or computation.module is None or computation is not computation.module.entry:
        if leaf.annotation(Subview) is None:
            return leaf.shape.subshape(index).byte_size
        arrays = {sliced_array(i) for i in leaf.parent or () if i.annotation(Subview) is not None}
        return sum(i.shape.subshape(index).byte_size for i, index in arrays)
    return sum(p.shape.byte_size for p in computation.parameters if p.shape.is_array)


@dataclass(frozen=True, slots=True)
class Scaled:
    """The quantized operand of a dot, which the kernel dequantizes.

    Attributes:
        factor: the operand of the dot, inside the fusion.
        has_rows_first: whether dimension 0 of the operand is the contracting one.
        inputs: the arrays that the fusion reads.
    """

    factor: HloInstruction
    has_rows_first: bool
    inputs: Sequence[HloInstruction]


def emit_row_sums(module: Module, name: str, plan: RowStream, scaled: Scaled | None) -> LoopKernel:
    """Emit the kernel (A, B, partial sums, inputs ..., begin, end) that computes sums over intervals of k.

    Its loop is over blocks of columns and intervals of k. ``scaled``: a quantized B and its inputs, or None.
    """
    inputs = scaled.inputs if scaled is not None else ()
    f = module.function(name, [PTR] * (3 + len(inputs)) + [I64] * 2)
    a, b, sums, *pointers, begin, end = f.parameters
    gemm = plan.gemm
    tasks = _Tasks(f, plan, a, b, sums)
    if scaled is not None:
        tasks.scaled = scaled
        tasks.e.views = {i: View.of(p, i.shape) for i, p in zip(inputs, pointers, strict=True)}
    with f.loop(begin, end) as loop:
        number = loop.index.unsigned_divide(plan.parts)
        column = number * plan.width
        last = f.intrinsic("smin", column + plan.width, f.constant(I64, plan.columns))
        tasks.task(loop.index - number * plan.parts, column, last)
    f.finish()
    work = gemm.work + plan.bytes_of(gemm.k * plan.columns)
    return LoopKernel(name, plan.parts * plan.column_tasks, 1, work, str(plan))


class _Tasks:
    """Emits the tasks of `emit_row_sums`: each computes sums over an interval of k for a block of columns."""

    def __init__(self, f: Function, plan: RowStream, a: Value, b: Value, sums: Value) -> None:
        gemm = plan.gemm
        self.f, self.plan = f, plan
        self.a = f.offset(a, gemm.a.offset * storage_bytes(gemm.a_type))
        self.b = f.offset(b, plan.bytes_of(gemm.b.offset))
        self.sums = sums
        self.e = Elements(f, plan.lanes // gemm.b.per_byte, {})
        self.type = register_type(gemm.kind)
        self.scaled: Scaled | None = None
        rows = gemm.b.group or plan.span
        self.depth = (
            Variable(gemm.k // rows, "b"),
            Variable(rows // plan.span, "g"),
            [Variable(plan.span, "k") for _ in range(STREAMS)],
        )
        self.factors = f.allocate(self.type, STREAMS * gemm.batches * gemm.m)

    def task(self, part: Value, column: Value, end: Value) -> None:
        """Emit one task: partial sums, over interval ``part`` of k, for the columns [column, end)."""
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        low = part * plan.part
        rows = f.intrinsic("smax", f.constant(I64, gemm.k) - low, f.constant(I64, 0))
        rows = f.intrinsic("smin", rows, f.constant(I64, plan.part))
        sums = f.offset(self.sums, part * (plan.sums[1] * plan.sums[2]), self.type)
        zero = f.constant(self.type.vector(plan.lanes), 0)
        with f.loop(column, end, plan.lanes) as loop:
            for row in range(gemm.m):
                f.store(zero, f.offset(sums, loop.index + row * plan.sums[2], self.type))
        if gemm.b.group:
            between, (block, group, within) = plan.span // STREAMS, self.depth
            with f.loop(low.unsigned_divide(plan.span), (low + rows).unsigned_divide(plan.span)) as groups:
                block.value = groups.index.unsigned_divide(group.extent)
                group.value = groups.index - block.value * group.extent
                with f.loop(0, between) as loop:
                    for n, row in enumerate(within):
                        row.value = loop.index + n * between
                    first = groups.index * plan.span + loop.index
                    self.block(first, between, STREAMS, sums, column, end)
            return
        run = plan.part // STREAMS if gemm.k % plan.part == 0 else rows.unsigned_divide(STREAMS)
        with f.loop(0, run) as loop:
            self.block(low + loop.index, run, STREAMS, sums, column, end)
        if gemm.k % STREAMS:
            with f.loop(low + run * STREAMS, low + rows, plan.group) as loop:
                self.block(loop.index, 1, plan.group, sums, column, end)

    def block(
        self, first: Value, distance: Value | int, count: int, sums: Value, column: Value, end: Value
    ) -> None:
        """Emit the addition to ``sums`` of elements of A times ``count`` rows of B, in columns [column, end).

        The first of these rows is row ``first`` of B; they are ``distance`` rows apart.
        """
        f, plan = self.f, self.plan
        self.load_factors(first, distance, count)
        start = f.offset(self.b, first * plan.row_bytes)
        # constant distances are part of the instructions' addresses, others of pointers outside of the loop
        rows: list[tuple[Value, int]] = [
            (start, n * distance * plan.row_bytes)
            if isinstance(distance, int)
            else (f.offset(start, distance * (n * plan.row_bytes)), 0)
            for n in range(count)
        ]
        ragged = plan.columns % plan.lanes
        full_end = f.constant(I64, plan.columns - ragged)
        with f.loop(column, f.intrinsic("smin", end, full_end), plan.lanes) as loop:
            self.tile(rows, sums, loop.index, plan.lanes)
        if ragged:
            with f.when(end.compare("sgt", full_end)):
                self.tile(rows, sums, full_end, ragged)

    def load_factors(self, k: Value, distance: Value | int, count: int) -> None:
        """Emit the copy of A's ``count`` columns k, k + distance, ... to scratch memory, in order of use."""
        f, gemm = self.f, self.plan.gemm
        with f.loop(0, count) as loop, f.loop(0, gemm.batches) as batches, self.e.scope():
            depth = Index.of(Variable(gemm.k, "k", k + loop.index * distance))
            batch = Index.of(Variable(gemm.batches, "b", batches.index))
            base = depth * gemm.a.column + (batch * gemm.a.batch[0] if gemm.batches > 1 else 0)
            group, words = self.plan.group, self.plan.words
            step = loop.index.unsigned_divide(group) if group > 1 else loop.index
            first = (step * gemm.batches + batches.index) * (gemm.m * group) + (loop.index - step * group)
            for row in range(gemm.m):
                loaded = load_at(self.e, self.a, base + row * gemm.a.row, gemm.a_type)
                value = converted(loaded, gemm.a_type, gemm.kind)
                assert isinstance(loaded, Value) and isinstance(value, Value)
                if words is not None:
                    value = words.factor(loaded, gemm.a_type, of_a=True)
                f.store(value, f.offset(self.factors, first + row * group, value.type))

    def tile(self, rows: Sequence[tuple[Value, int]], sums: Value, column: Value, count: int) -> None:
        """Emit a register tile: the addition to ``sums`` of A's elements times ``rows`` of B.

        Each row is (address, constant offset in bytes). The tile has ``count`` columns from ``column`` on.
        """
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        type = self.type.vector(plan.lanes // plan.vectors)
        places = [
            f.offset(sums, column + (row * plan.sums[2] + vector * type.lanes), self.type)
            for row in range(gemm.m)
            for vector in range(plan.vectors)
        ]
        totals = tuple(f.load(type, place) for place in places)
        offset = column * storage_bytes(gemm.b_type)
        if gemm.b.per_byte > 1:
            offset = offset.unsigned_divide(gemm.b.per_byte)
        factors = self.factors
        if gemm.batches > 1:
            factors = f.offset(factors, column.unsigned_divide(gemm.n) * gemm.m, self.type)
        with self.e.scope():
            per_byte = gemm.b.per_byte
            lane = Variable(
                gemm.n // per_byte, "n", column.unsigned_divide(per_byte) if per_byte > 1 else column
            )
            lane.is_lane = True
            for n in range(0, len(rows), plan.group):
                place = f.offset(factors, n // plan.group * gemm.batches * gemm.m, self.type)
                if self.scaled is not None:
                    totals = self.step(self.computed(self.scaled, n, lane, count), place, totals)
                    continue
                group = [f.offset(f.offset(row, offset), far) for row, far in rows[n : n + plan.group]]
                for row in group:
                    self.prefetch(row)
                vectors = (
                    self.row(group[0], count) if plan.words is None else self.pairs(group, plan.words, count)
                )
                totals = self.step(vectors, place, totals)
        for place, total in zip(places, totals, strict=True):
            f.store(total, place)

    def prefetch(self, row: Value) -> None:
        """Emit prefetches of the bytes of a row of B that are `AHEAD` bytes after the address ``row``."""
        f, plan = self.f, self.plan
        for offset in range(0, plan.bytes_of(plan.lanes), LINE):
            prefetch(f.offset(row, AHEAD + offset))

    def computed(self, scaled: Scaled, number: int, lane: Variable, count: int) -> list[Value]:
        """Emit the dequantization of ``count`` columns of a tile, in row ``number`` of the tile's rows of B.

        Return the values: one vector, or for 4-bit numbers a vector of even columns and one of odd columns.
        """
        f, plan, per_byte, (block, group, within) = self.f, self.plan, self.plan.gemm.b.per_byte, self.depth
        row = Index.of(block) * plan.gemm.b.group + Index.of(group) * plan.span + Index.of(within[number])
        lanes = f.constant(I32.vector(self.e.lanes), list(range(self.e.lanes)))
        columns = [Index.of(lane) * per_byte + part for part in range(per_byte)]
        places = [(row, column) if scaled.has_rows_first else (column, row) for column in columns]
        results: list[Value] = []
        with self.e.masked(lanes.compare("ult", count // per_byte) if count < plan.lanes else None):
            if per_byte > 1:
                self.know_packed(scaled.factor, places)
            for place in places:
                value = self.e.element(scaled.factor, place)
                value = converted(value, scaled.factor.shape.element_type, plan.gemm.kind)
                assert isinstance(value, Value)
                results.append(value)
        return results

    def know_packed(self, factor: HloInstruction, places: Sequence[Indices]) -> None:
        """Emit the unpacking of 4-bit numbers in ``factor`` at ``places``; code emitted later uses them."""
        numbers: Sequence[Value] | None = None
        for place in places:
            i, indices, known = factor, place, (factor, place)
            while not isinstance(i.operation, BitcastConvert):
                source = factor_operand(i)
                assert source is not None
                if isinstance(i.operation, Convert):
                    known = i, indices
                if isinstance(i.operation, Reshape):
                    split = delinearize(linearize(indices, i.shape.dimensions), source.shape.dimensions)
                    if split is None:
                        return
                    indices = split
                i = source
            narrow = i.shape.element_type
            is_wide = register_type(known[0].shape.element_type) is F32
            if numbers is None:
                bytes = self.e.element(i.operands[0], indices[:-1])
                assert isinstance(bytes, Value)
                if is_wide:
                    numbers = halves(bytes, signed=narrow.is_signed)
                else:
                    numbers = [wrap(bits, narrow) for bits in (bytes, bytes.logical_shift_right(4))]
            if not is_wide:
                known = i, indices
            self.e.know(*known, numbers[indices[-1].constant])

    def step(self, vectors: Sequence[Value], factors: Value, totals: Sequence[Value]) -> tuple[Value, ...]:
        """Emit the multiply-add of one row of B in a tile, or of two, to ``totals``; return the new totals.

        ``totals`` are ordered by row of C, then by vector; ``factors`` is the address of the elements of A.
        """
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        lanes, words = totals[0].type.lanes, plan.words
        with self.e.scope():
            results: list[Value] = []
            for row in range(gemm.m):
                factor = f.offset(factors, row, self.type)
                wide = words.broadcast(f, factor, lanes) if words else f.load(self.type, factor).splat(lanes)
                for vector in vectors:
                    total = totals[len(results)]
                    if words is not None:
                        added = words.multiply(self.e, wide, vector, total)
                    else:
                        added = multiply_add(self.e, gemm.kind, wide, vector, total)
                    assert isinstance(added, Value)
                    results.append(added)
        return tuple(results)

    def pairs(self, rows: Sequence[Value], words: Words, count: int) -> list[Value]:
        """Emit the load of two rows of B in a tile, interleaved into vectors of pairs of 16-bit integers."""
        plan, whole = self.plan, self.plan.whole
        low, high = (self.loaded(row, count) for row in rows)
        parts = [range(n, n + whole) for n in range(0, plan.lanes, whole)]
        pairs = [low.shuffle(part).interleave(high.shuffle(part)) for part in parts]
        return [words.factor(pair, plan.gemm.b_type, of_a=False) for pair in pairs]

    def row(self, at: Value, count: int) -> list[Value]:
        """Emit the load of ``count`` columns of a row of B, from address ``at``, in the accumulator type."""
        gemm = self.plan.gemm
        loaded = self.loaded(at, count)
        if gemm.b.per_byte > 1:
            return list(halves(loaded, signed=gemm.b_type.is_signed))
        value = converted(loaded, gemm.b_type, gemm.kind)
        assert isinstance(value, Value)
        return [value]

    def loaded(self, at: Value, count: int) -> Value:
        """Emit the load of ``count`` columns of a row of B from address ``at``; 4-bit numbers stay packed."""
        f, gemm = self.f, self.plan.gemm
        many, mask = self.plan.lanes // gemm.b.per_byte, None
        if count < self.plan.lanes:
            mask = f.constant(I32.vector(many), list(range(many))).compare("ult", count // gemm.b.per_byte)
        if gemm.b.per_byte > 1:
            type = I8.vector(many)
            return f.load(type, at, align=1) if mask is None else masked_load(type, at, mask)
        lane = Variable(gemm.n, "n", f.constant(I64, 0))
        lane.is_lane = True
        with self.e.masked(mask):
            value = load_at(self.e, at, Index.of(lane), gemm.b_type)
        assert isinstance(value, Value)
        return value


def halves(both: Value, *, signed: bool) -> tuple[Value, Value]:
    """Emit the conversion of the two 4-bit integers in each byte to f32; return (low ones, high ones)."""
    f, lanes = both.function, both.type.lanes
    wide = both.cast("sext" if signed else "zext", I32)
    if f.target.has("avx512f") and lanes == SIXTEEN:
        # the permutation takes its indices from the low four bits
        table = f.constant(
            F32.vector(lanes), [float(n - SIXTEEN * (signed and n > 7)) for n in range(SIXTEEN)]
        )
        low = f.call(table.type, "llvm.x86.avx512.permvar.sf.512", table, wide)
        # the bits of 2 ** 19 + n, or + 8 + n: the permutation, and a shift, would share the ports that extend
        offset = 8 * signed
        high = ((wide & 0xF0) ^ (0x49000000 + 16 * offset)).bitcast(F32.vector(lanes))
        return low, high - float((1 << 19) + offset)
    if signed:
        # the bits of 2 ** 23 + 8 + n: shifts and conversions share the ports that extend bytes
        low = ((wide & 15) ^ 0x4B000008).bitcast(F32.vector(lanes)) - float((1 << 23) + 8)
        return low, (wide >> 4).cast("sitofp", F32)
    return (wide & 15).cast("uitofp", F32), (wide >> 4).cast("uitofp", F32)


def emit_add_row_parts(
    module: Module, name: str, plan: RowStream, extra: int, bind: Callable[[Sequence[Value]], Epilogue]
) -> LoopKernel:
    """Emit the kernel (partial sums, ``extra`` pointers ..., begin, end) that adds partial sums over k.

    It applies to each total the epilogue that ``bind`` returns for the extra pointers.
    """
    f = module.function(name, [PTR] * (1 + extra) + [I64] * 2)
    source, *pointers, begin, end = f.parameters
    gemm = plan.gemm
    view, epilogue = View(source, gemm.kind, plan.sums), bind(pointers)
    e = Elements(f, plan.whole, {})
    line, lane = Variable(gemm.m, "m"), Variable(plan.columns, "n")
    batch = Variable(gemm.batches, "b")

    def add() -> None:
        row, column = Index.of(line), Index.of(lane)
        total: Element | None = None
        for part in range(plan.parts):
            if gemm.is_packed:
                assert isinstance(line.value, Value)
                at = (line.value + part * gemm.m) * plan.sums[2]
                value = _interleaved(e, f.offset(source, at, F32), lane, plan.lanes)
            else:
                value = e.load(view, (Index(part), row, column))
            total = value if total is None else plus(total, value)
        assert total is not None
        if gemm.batches > 1:
            column = column - Index.of(batch) * gemm.n
        place = (column, row) if plan.transposed else (row, column)
        epilogue(e, Index.of(batch) if gemm.batches > 1 else Index(0), *place, total)

    blocks = -(-plan.columns // LINE)
    with f.loop(begin, end) as loop:
        line.value = loop.index.unsigned_divide(blocks)
        first = (loop.index - line.value * blocks) * LINE
        last = f.intrinsic("smin", first + LINE, f.constant(I64, plan.columns))
        batch.value = first.unsigned_divide(gemm.n)
        vector_loop(e, lane, first, last, add, exact=plan.columns % plan.whole == 0)
    f.finish()
    return LoopKernel(name, gemm.m * blocks, 1, gemm.m * plan.columns * plan.parts)


def _interleaved(e: Elements, sums: Value, lane: Variable, tile: int) -> Element:
    """Emit the load of sums in column order; in memory, a tile's even columns precede its odd ones."""
    f, column = e.function, lane.value
    assert isinstance(column, Value)
    half = e.lanes // 2
    first = column & -tile
    even = f.offset(sums, first + (column - first).unsigned_divide(2), F32)
    odd = f.offset(even, tile // 2, F32)
    return f.load(F32.vector(half), even).interleave(f.load(F32.vector(half), odd))
