"""Matrix products with few columns: inner products of rows and columns, with lanes along k.

Both factors are loaded in place; rows of A and columns of B are contiguous. The accumulators of a tile of
rows and columns stay in registers; after the loop over k, the accumulators of several rows are reduced across
lanes together, into one vector with a lane per row. Long sums for few results are split along k, in the same
way for any number of threads; a second kernel adds the partial sums.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from hloom.codegen.accumulators import flatten, plus, unflatten
from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm import I64, PTR, Function, Module, Value
from hloom.codegen.llvm.memory import prefetch
from hloom.codegen.loops import LoopKernel
from hloom.codegen.rules.contraction import converted, multiply_add
from hloom.codegen.target import Target, registers
from hloom.codegen.types import Element, constant, register_type, storage_bytes
from hloom.cpu.kernels.dot.gemm import Epilogue, Gemm, Matrix, batch_base, load_at
from hloom.ir.affine import Index, Variable
from hloom.records import dataclass
from hloom.shape.element_type import ElementType

MOST_COLUMNS: Final = 8
"""Number of columns beyond which tiles of the result are faster."""
FEW: Final = 4
"""Number of columns up to which packing each one contiguously pays."""
PART: Final = 8192
"""Minimum number of products of a partial sum."""
MOST_PARTS: Final = 16
STREAMED: Final = 1 << 21
"""Bytes of rows from which the order of reading matters."""
LEAST_STREAMS: Final = 4
"""Rows of a tile from which streams are read at a higher rate than a row after the other."""
CONVERTED: Final = 32
"""Number of rows, read in turn, from which narrow columns are converted once before, not for each row."""
LINE: Final = 64
"""Bytes of a cache line."""
INTERLEAVED: Final = 3 << 15
"""Bytes of rows that alternate between batches in memory, of all batches, from which their order matters."""
TURN_SUMS: Final = 16
"""Most sums that one loop over k computes when a tile reads its rows in turn."""
MOST_FETCHED: Final = 1 << 12
"""Most bytes that a tile prefetches."""


@dataclass(frozen=True, slots=True)
class InnerProduct:
    """A plan of a product with few columns: each element is an inner product, with lanes along k.

    Attributes:
        gemm: the product, transposed if necessary so that it has no more columns than rows.
        transposed: whether ``gemm`` is the transpose of the dot's product.
        paired: whether row i of A is multiplied by column i of B only; each row was a batch of the dot.
        packs_columns: whether a kernel first copies B so that each column is contiguous, in the accumulator
            type.
        lanes: elements along k in a vector.
        rows, columns: size of a register tile of results.
        vectors: vectors of accumulators for each result of a tile.
        parts: number of partial sums for each result; each adds an interval of k.
        order: how a tile reads its rows of A. ``"together"``: all in one loop over k. If memory limits the
            product, ``"in turn"``: a loop over k for one or a few rows, then a loop for the next ones; or
            ``"apart"``: all in one loop, but row r of tile t is row r * tiles + t of A, so that successive
            tiles read several streams in the order of memory.
    """

    gemm: Gemm
    transposed: bool
    paired: bool
    packs_columns: bool
    lanes: int
    rows: int
    columns: int
    vectors: int
    parts: int
    order: Literal["together", "in turn", "apart"]

    @property
    def blocks(self) -> int:
        """Return the number of register tiles that the rows of A (the rows of C) are divided into."""
        return -(-self.gemm.m // self.rows)

    @property
    def interleaved(self) -> bool:
        """Return whether the rows of A of all batches alternate in memory: row 0 of each, then row 1 of each.

        Tasks then loop over the batches innermost, in the order of memory.
        """
        return interleaves(self.gemm)

    @property
    def fetched(self) -> int:
        """Return how many bytes of the next rows of A each tile prefetches; 0 if tiles prefetch nothing.

        They prefetch if the rows of all batches alternate in memory, as each row is then too short for the
        hardware prefetcher.
        """
        if not (self.order == "in turn" and self.interleaved):
            return 0
        share = self.rows * self.gemm.a.row * storage_bytes(self.gemm.a_type) // self.gemm.batches
        return share if share <= MOST_FETCHED else 0

    @property
    def turn(self) -> int:
        """Return the number of rows of a register tile that are multiplied in the same loop over k.

        It is all rows, unless ``order`` is ``"in turn"``; then one row, or a few if tiles prefetch rows.
        """
        if self.order != "in turn":
            return self.rows
        return min(self.rows, TURN_SUMS // self.columns) if self.fetched else 1

    @property
    def step(self) -> int:
        """Return the number of elements along k that an iteration of the K loop multiplies."""
        return self.lanes * self.vectors

    @property
    def part(self) -> int:
        """Return the number of elements along k that a partial sum adds, a multiple of `step`."""
        return -(-self.gemm.k // (self.parts * self.step)) * self.step

    @property
    def column_type(self) -> ElementType:
        """Return the element type that the columns of B have in memory when they are multiplied.

        It is the accumulator type if a kernel packed the columns before, else the type of B.
        """
        return self.gemm.kind if self.packs_columns else self.gemm.b_type

    @property
    def sums(self) -> tuple[int, ...]:
        """Return the dimensions of the array of partial sums: (partial sum, batch, column, row).

        Rows are rounded up to whole register tiles.
        """
        return (self.parts, self.gemm.batches, self.gemm.n, self.blocks * self.rows)

    def __str__(self) -> str:
        words = [
            f"inner products of {self.rows} rows, {self.columns} columns"
            + (", transposed" if self.transposed else "")
            + (", in pairs" if self.paired else ""),
            f"{self.vectors} x {self.lanes} lanes",
        ]
        if self.packs_columns:
            words.append("columns packed")
        if self.order == "apart":
            words.append("rows apart")
        elif self.order == "in turn":
            words.append(f"{self.turn} rows in turn" if self.turn > 1 else "a row after the other")
        if self.parts > 1:
            words.append(f"sums in {self.parts} parts of {self.part}")
        return "; ".join(words)

    def workspace(self) -> tuple[int, int]:
        """Return (bytes of the packed columns of B, bytes of the partial sums); 0 where there are none."""
        g = self.gemm
        column_bytes = g.batches * g.n * g.k * storage_bytes(self.column_type) if self.packs_columns else 0
        parts = self.parts * g.batches * g.n * self.blocks * self.rows * storage_bytes(g.kind)
        return -(-column_bytes // 64) * 64, -(-parts // 64) * 64 if self.parts > 1 else 0


def interleaves(gemm: Gemm) -> bool:
    """Return whether the rows of A of all batches alternate in memory: row 0 of each, then row 1 of each."""
    return len(gemm.batch) == 1 and 0 < gemm.a.batch[0] < gemm.a.row


def inner_product_of(gemm: Gemm, target: Target) -> InnerProduct | None:
    """Return the plan of a product as inner products along k; None if a different kernel is faster."""
    paired = paired_rows(gemm)
    if paired is not None and gemm.k >= FEW:
        return _planned(paired, target, transposed=False, paired=True, packs_columns=False)
    transposed = gemm.n > gemm.m or (gemm.n == gemm.m and gemm.a.column != 1)
    few = gemm.transposed if transposed else gemm
    if (
        few.a.column != 1
        or few.n > MOST_COLUMNS
        or few.k < target.partial_sum_bytes // storage_bytes(few.kind)
    ):
        return None
    packs_columns = few.b.row != 1
    if packs_columns and (few.n > FEW or few.m < FEW):
        return None
    return _planned(few, target, transposed=transposed, paired=False, packs_columns=packs_columns)


def paired_rows(gemm: Gemm) -> Gemm | None:
    """Return a batch of inner products as one product in which row i is multiplied by column i only.

    Return None unless each batch is one inner product (m = n = 1) of contiguous operands, and the batches lie
    at a constant stride.
    """
    if not gemm.m == gemm.n == 1 or gemm.batches == 1 or gemm.a.column != 1 or gemm.b.row != 1:
        return None
    strides: list[int] = []
    for matrix in (gemm.a, gemm.b):
        real = [(size, stride) for size, stride in zip(gemm.batch, matrix.batch, strict=True) if size > 1]
        if any(outer[1] != inner[1] * inner[0] for outer, inner in itertools.pairwise(real)):
            return None
        strides.append(real[-1][1])
    a, b = Matrix((), strides[0], 1, gemm.a.offset), Matrix((), 1, strides[1], gemm.b.offset)
    return replace(gemm, batch=(), m=gemm.batches, a=a, b=b)


def _planned(
    gemm: Gemm, target: Target, *, transposed: bool, paired: bool, packs_columns: bool
) -> InnerProduct:
    lanes = target.partial_sum_bytes // register_type(gemm.kind).size
    while lanes > 1 and lanes > gemm.k:
        lanes //= 2
    room = (16 if target.reproducible else registers(target)) // (4 if gemm.kind.is_complex else 2)
    columns = min(FEW, gemm.n)
    size = gemm.m * gemm.k * storage_bytes(gemm.a_type)
    interleaved = interleaves(gemm) and size * gemm.batches >= INTERLEAVED
    limited = not paired and (size * gemm.batches >= STREAMED or interleaved)
    rows = 8
    while rows > 1 and ((not interleaved and rows * columns > room) or rows // 2 >= gemm.m or rows > lanes):
        rows //= 2
    tasks = gemm.batches * -(-gemm.m // rows)
    parts = max(1, min(MOST_PARTS, gemm.k // PART)) if tasks < MOST_PARTS else 1
    order = "together"
    if limited:
        order = "apart" if not interleaved and parts == 1 and rows >= LEAST_STREAMS else "in turn"
    if order == "in turn":
        columns = min(gemm.n, room // 2)
        packs_columns = packs_columns or (gemm.b_type is not gemm.kind and gemm.m >= CONVERTED)
    plan = InnerProduct(gemm, transposed, paired, packs_columns, lanes, rows, columns, 1, parts, order)
    vectors = 1
    while plan.turn * columns * vectors < 8 and lanes * vectors * 4 <= gemm.k:
        vectors *= 2
    return replace(plan, vectors=vectors)


def emit_lay_out(module: Module, name: str, plan: InnerProduct) -> LoopKernel:
    """Emit the kernel (B, columns, begin, end) that packs B so that each of its columns is contiguous.

    Elements are converted to the accumulator type. The kernel's loop runs over the columns of all batches.
    """
    f = module.function(name, [PTR] * 2 + [I64] * 2)
    source, target, begin, end = f.parameters
    gemm, lanes = plan.gemm, plan.lanes
    e = Elements(f, lanes, {})
    view = View(target, plan.column_type, (gemm.batches, gemm.n, gemm.k))
    column, row = Variable(gemm.n, "n"), Variable(gemm.k, "k")
    row.is_lane = True
    with f.loop(begin, end) as loop:
        batch = loop.index.unsigned_divide(gemm.n)
        number = Variable(gemm.batches, "b", batch)
        column.value = loop.index - batch * gemm.n
        base = batch_base(f, gemm, gemm.b, batch, source, gemm.b_type)
        with f.loop(0, gemm.k, lanes) as inner, e.scope():
            row.value = inner.index
            mask = e.index_value(Index.of(row)).compare("slt", gemm.k) if gemm.k % lanes else None
            with e.masked(mask):
                position = Index.of(row) * gemm.b.row + Index.of(column) * gemm.b.column
                place = Index.of(number), Index.of(column), Index.of(row)
                loaded = load_at(e, base, position, gemm.b_type)
                e.store(view, place, converted(loaded, gemm.b_type, gemm.kind))
    f.finish()
    return LoopKernel(name, gemm.batches * gemm.n, 1, gemm.batches * gemm.n * gemm.k)


def emit_inner_product(
    module: Module, name: str, plan: InnerProduct, extra: int, bind: Callable[[Sequence[Value]], Epilogue]
) -> LoopKernel:
    """Emit the kernel (A, B, ``extra`` pointers ..., begin, end) that computes tiles of inner products.

    ``bind`` takes the extra pointers and returns the epilogue. If ``plan`` has several partial sums for each
    result, the only extra pointer is the address of these sums, and no epilogue is emitted.
    """
    f = module.function(name, [PTR] * (2 + extra) + [I64] * 2)
    a, b, *pointers, begin, end = f.parameters
    if plan.parts > 1:
        view = View(pointers[0], plan.gemm.kind, plan.sums)
        _Tiles(f, plan, a, b, lambda part, e, place, value: e.store(view, (part, *place), value)).emit(
            begin, end
        )
    else:
        done = _whole(plan, bind(pointers))
        _Tiles(f, plan, a, b, lambda part, e, place, value: done(e, place, value)).emit(begin, end)
    f.finish()
    gemm = plan.gemm
    grain = gemm.batches if plan.fetched else 1
    return LoopKernel(name, plan.parts * gemm.batches * plan.blocks, grain, gemm.work, str(plan))


def emit_add_parts(
    module: Module, name: str, plan: InnerProduct, extra: int, bind: Callable[[Sequence[Value]], Epilogue]
) -> LoopKernel:
    """Emit the kernel (partial sums, ``extra`` pointers ..., begin, end) that adds partial sums.

    The partial sums of a result are over intervals of k; the kernel applies to each total the epilogue that
    ``bind`` returns for the extra pointers. Its loop runs over the columns of all batches.
    """
    f = module.function(name, [PTR] * (1 + extra) + [I64] * 2)
    source, *pointers, begin, end = f.parameters
    gemm = plan.gemm
    view, done = View(source, gemm.kind, plan.sums), _whole(plan, bind(pointers))
    e = Elements(f, plan.rows if plan.rows > 1 else 0, {})
    with f.loop(begin, end) as loop, f.loop(0, plan.blocks) as block, e.scope():
        batch = loop.index.unsigned_divide(gemm.n)
        column = Variable(gemm.n, "n", loop.index - batch * gemm.n)
        position = _place(plan, batch, block.index, Index.of(column))
        first = e.load(view, (Index(0), *position))
        with f.loop(1, plan.parts, 1, flatten([first])) as part:
            number = Variable(plan.parts, "p", part.index)
            (total,) = unflatten(part.values, [first])
            part.next(*flatten([plus(total, e.load(view, (Index.of(number), *position)))]))
        (total,) = unflatten(part.values, [first])
        done(e, position, total)
    f.finish()
    return LoopKernel(name, gemm.batches * gemm.n, 1, gemm.batches * gemm.n * gemm.m * plan.parts)


def across_lanes(values: Sequence[Element]) -> Element:
    """Emit the sum over the lanes of each vector; return a vector with the sum of ``values[i]`` in lane i.

    The number of values must be a power of two, and at most the number of lanes. For one value, return a
    scalar.
    """
    current, lanes, segment = list(values), _lanes(values[0]), _lanes(values[0])
    while segment > 1:
        half = segment // 2
        low = [lane + within for lane in range(0, lanes, segment) for within in range(half)]
        high = [lane + half for lane in low]
        if len(current) > 1:
            pairs = list(zip(current[::2], current[1::2], strict=True))
            low, high = [*low, *(lane + lanes for lane in low)], [*high, *(lane + lanes for lane in high)]
            current = [plus(_chosen(x, low, y), _chosen(x, high, y)) for x, y in pairs]
        else:
            current = [plus(_chosen(current[0], low), _chosen(current[0], high))]
            lanes = half * (lanes // segment)
        segment = half
    (total,) = current
    if len(values) > 1:
        return total
    return (total[0].extract(0), total[1].extract(0)) if isinstance(total, tuple) else total.extract(0)


def _lanes(element: Element) -> int:
    return element[0].type.lanes if isinstance(element, tuple) else element.type.lanes


def _chosen(a: Element, lanes: Sequence[int], b: Element | None = None) -> Element:
    if isinstance(a, tuple):
        other = b if isinstance(b, tuple) else (None, None)
        return a[0].shuffle(lanes, other[0]), a[1].shuffle(lanes, other[1])
    assert not isinstance(b, tuple)
    return a.shuffle(lanes, b)


_Place: TypeAlias = tuple[Index, Index, Index]
_TileEpilogue: TypeAlias = Callable[[Index, Elements, _Place, Element], None]


def _place(plan: InnerProduct, batch: Value, block: Value, column: Index) -> _Place:
    """Return the (batch, column, row) of one column of results of the register tile with index ``block``.

    The row is an index with a lane for each row of the tile; batch and column are the same in all lanes.
    """
    apart = plan.order == "apart"
    first = batch.function.constant(I64, 0) if apart else block * plan.rows
    rows = Variable(plan.rows if apart else plan.blocks * plan.rows, "m", first)
    rows.is_lane = plan.rows > 1
    row = Index.of(rows)
    if apart:
        row = row * plan.blocks + Index.of(Variable(plan.blocks, "m", block))
    batches = Variable(plan.gemm.batches, "b", batch)
    return Index.of(batches) if plan.gemm.batches > 1 else Index(0), column, row


def _whole(plan: InnerProduct, epilogue: Epilogue) -> Callable[[Elements, _Place, Element], None]:
    """Return a function (elements, place, sums) that emits ``epilogue`` for a vector of complete sums.

    The vector has a lane for each row of a register tile; lanes beyond the rows of the product are masked.
    """

    def done(e: Elements, place: _Place, value: Element) -> None:
        batch, column, row = place
        ragged = plan.gemm.m % plan.rows
        mask = e.index_value(row).compare("slt", plan.gemm.m) if ragged else None
        with e.scope(), e.masked(mask):
            if plan.paired:
                epilogue(e, row, Index(0), Index(0), value)
            elif plan.transposed:
                epilogue(e, batch, column, row, value)
            else:
                epilogue(e, batch, row, column, value)

    return done


class _Tiles:
    """Emits the tasks of `emit_inner_product`: register tiles of inner products, with lanes along k."""

    def __init__(self, f: Function, plan: InnerProduct, a: Value, b: Value, epilogue: _TileEpilogue) -> None:
        self.f, self.plan, self.epilogue = f, plan, epilogue
        self.a, self.b = a, b
        self.e = Elements(f, plan.lanes, {})
        self.zero = constant(f, plan.gemm.kind, 0, plan.lanes)

    def emit(self, begin: Value, end: Value) -> None:
        """Emit the loop over the tasks [begin, end): tiles, each in one batch and one interval of k."""
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        with f.loop(begin, end) as loop:
            remainder = loop.index
            if plan.parts > 1:
                part = remainder.unsigned_divide(gemm.batches * plan.blocks)
                remainder = remainder - part * (gemm.batches * plan.blocks)
                low = part * plan.part
                high = f.intrinsic("smin", low + plan.part, f.constant(I64, gemm.k))
            else:
                part, low, high = f.constant(I64, 0), f.constant(I64, 0), f.constant(I64, gemm.k)
            batch, block = f.constant(I64, 0), remainder
            if gemm.batches > 1 and plan.interleaved:
                block = remainder.unsigned_divide(gemm.batches)
                batch = remainder - block * gemm.batches
            elif gemm.batches > 1:
                batch = remainder.unsigned_divide(plan.blocks)
                block = remainder - batch * plan.blocks
            if plan.fetched:
                self.prefetch(batch, block)
            self.tile(part, batch, block, low, high)

    def prefetch(self, batch: Value, block: Value) -> None:
        """Emit the prefetches that tile ``block`` of batch ``batch`` issues: its share of the next rows of A.

        The rows of all batches alternate in memory, and each batch prefetches an equal part of the next
        tiles' rows.
        """
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        size = storage_bytes(gemm.a_type)
        following = f.intrinsic("smin", block + 1, f.constant(I64, plan.blocks - 1))
        rows = f.offset(self.a, gemm.a.offset * size + following * (plan.rows * gemm.a.row * size))
        first = f.offset(rows, batch * plan.fetched)
        for line in range(0, plan.fetched, LINE):
            prefetch(f.offset(first, line))

    def tile(self, part: Value, batch: Value, block: Value, low: Value, high: Value) -> None:
        """Emit the inner products, over [low, high) of k, of row tile ``block`` of A and all columns of B.

        ``part`` is the index of this interval of k.
        """
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        a = batch_base(f, gemm, gemm.a, batch, self.a, gemm.a_type)
        last = f.constant(I64, gemm.m - 1)
        first_row, distance = (block, plan.blocks) if plan.order == "apart" else (block * plan.rows, 1)
        numbers = [first_row + r * distance for r in range(plan.rows)]
        if gemm.m % plan.rows:
            numbers = [f.intrinsic("smin", number, last) for number in numbers]
        rows = [f.offset(a, number * (gemm.a.row * storage_bytes(gemm.a_type))) for number in numbers]
        for first in range(0, gemm.n, plan.columns):
            count = min(plan.columns, gemm.n - first)
            columns = self.columns(batch, numbers, first, count)
            groups = [rows[r : r + plan.turn] for r in range(0, plan.rows, plan.turn)]
            sums = [s for group in groups for s in self.products(group, columns, low, high)]
            for s in range(count):
                one = [sums[r * count + s] for r in range(plan.rows)]
                self.done(part, batch, block, first + s, across_lanes(one))

    def columns(self, batch: Value, numbers: Sequence[Value], first: int, count: int) -> list[Value]:
        """Emit the addresses of ``count`` columns of B from column ``first`` on, in batch ``batch``.

        If row i is multiplied by column i only, return the addresses of the columns with the indices
        ``numbers`` instead.
        """
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        size = storage_bytes(plan.column_type)
        if plan.paired:
            base = f.offset(self.b, gemm.b.offset * size)
            return [f.offset(base, number * (gemm.b.column * size)) for number in numbers]
        if plan.packs_columns:
            base = f.offset(self.b, batch * (gemm.n * gemm.k * size)) if gemm.batches > 1 else self.b
            return [f.offset(base, (first + s) * gemm.k * size) for s in range(count)]
        base = batch_base(f, gemm, gemm.b, batch, self.b, gemm.b_type)
        return [f.offset(base, (first + s) * gemm.b.column * size) for s in range(count)]

    def products(
        self, rows: Sequence[Value], columns: Sequence[Value], low: Value, high: Value
    ) -> list[Element]:
        """Emit the K loop over [low, high) for some rows and columns; return a vector of sums per result.

        ``rows`` and ``columns`` are addresses, and lanes are along k. Results are ordered by row, then by
        column; if row i is multiplied by column i only, there is one result for each row.
        """
        f, plan = self.f, self.plan
        count = len(rows) * (1 if plan.paired else len(columns))
        start: list[Element] = [self.zero] * (count * plan.vectors)
        full_end = low + ((high - low) & -plan.step)
        with f.loop(low, full_end, plan.step, flatten(start)) as loop:
            sums = unflatten(loop.values, start)
            partial_sums: list[Element] = []
            for v in range(plan.vectors):
                at = loop.index + v * plan.lanes if v else loop.index
                partial_sums += self.step(rows, columns, at, sums[v * count : (v + 1) * count])
            loop.next(*flatten(partial_sums))
        sums = unflatten(loop.values, start)
        total = sums[:count]
        for v in range(1, plan.vectors):
            total = [plus(x, y) for x, y in zip(total, sums[v * count : (v + 1) * count], strict=True)]
        if plan.gemm.k % plan.step == 0:
            return total
        with f.loop(full_end, high, plan.lanes, flatten(total)) as loop:
            numbers = f.constant(I64.vector(plan.lanes), list(range(plan.lanes)))
            mask = (numbers + loop.index.splat(plan.lanes)).compare("slt", high.splat(plan.lanes))
            with self.e.masked(mask):
                partial_sums = self.step(rows, columns, loop.index, unflatten(loop.values, total), mask)
            loop.next(*flatten(partial_sums))
        return unflatten(loop.values, total)

    def step(
        self,
        rows: Sequence[Value],
        columns: Sequence[Value],
        at: Value,
        sums: Sequence[Element],
        mask: Value | None = None,
    ) -> list[Element]:
        """Emit the multiply-add of one vector along k of each row with that of each column, to ``sums``.

        Return the new sums. ``rows`` and ``columns`` are addresses; ``at`` is the vector's first index along
        k. ``mask`` selects the lanes before the end of k; None selects all. If row i is multiplied by column
        i only, each row's vector is multiplied by that of its own column only.
        """
        plan, gemm = self.plan, self.plan.gemm
        depth = Variable(gemm.k, "k", at)
        depth.is_lane = True
        with self.e.scope():
            right = [self.factor(column, depth, plan.column_type, mask) for column in columns]
            results: list[Element] = []
            for n, row in enumerate(rows):  # a row is loaded where it is multiplied: registers are few
                x = self.factor(row, depth, gemm.a_type, mask)
                for y in [right[n]] if plan.paired else right:
                    results.append(multiply_add(self.e, gemm.kind, x, y, sums[len(results)]))
            return results

    def factor(self, base: Value, place: Variable, kind: ElementType, mask: Value | None) -> Element:
        """Emit the load of a vector along k in the accumulator type, with zeros where ``mask`` is false.

        ``base`` is the address of a row or column with elements of type ``kind``, ``place`` the index along
        k. If ``mask`` is None, all lanes are loaded.
        """
        loaded = load_at(self.e, base, Index.of(place), kind)
        value = converted(loaded, kind, self.plan.gemm.kind)
        return value if mask is None else self.e.choose(mask, value, self.zero)

    def done(self, part: Value, batch: Value, block: Value, column: int, value: Element) -> None:
        """Emit the epilogue of a vector of sums in ``column``, with a lane for each row of tile ``block``.

        If the sums are partial, emit their store as sums over the interval of k with index ``part``.
        """
        plan = self.plan
        e = Elements(self.f, plan.rows if plan.rows > 1 else 0, {})
        number = Index.of(Variable(plan.parts, "p", part)) if plan.parts > 1 else Index(0)
        self.epilogue(number, e, _place(plan, batch, block, Index(column)), value)
