"""Kernels of attention fusions: loops over blocks of query rows, in register tiles or in AMX tiles."""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from hloom.codegen.elements import UNKNOWN_EXTENT, Elements, View
from hloom.codegen.llvm import F32, I8, I16, I32, I64, PTR, Function, Module, Value
from hloom.codegen.llvm.memory import masked_load, masked_store
from hloom.codegen.llvm.structured import LocalVariable, choose
from hloom.codegen.loops import LoopKernel
from hloom.codegen.target import is_slow_with_subnormals
from hloom.codegen.types import Element, storage_bytes
from hloom.cpu.kernels.attention.attention_plan import Attention, packed, row_bytes
from hloom.cpu.kernels.dot.amx_packing import LINE_BYTES, LINES, PANEL
from hloom.cpu.kernels.dot.gemm import Epilogue, Gemm, batch_base, batch_indices, rounded
from hloom.cpu.kernels.dot.gemm_amx import AmxPlan, AmxProduct, configure_tiles, release_tiles
from hloom.cpu.kernels.dot.gemm_pairs import EXPONENTS, are_exact, emit_least, least_exponent
from hloom.cpu.kernels.dot.gemm_plan import TilePlan
from hloom.cpu.kernels.dot.gemm_tiles import TileProduct
from hloom.cpu.kernels.reduction.row_fusion import RowEmitter, row_lanes
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType

ROWS: Final = 8
"""Rows of weights that are multiplied together where AMX is not exact."""
MOST_TERMS: Final = 1 << 20
"""Most keys for which weights are enlarged; so bounded, no sum overflows."""
MOST_WEIGHT: Final = 2.0**10
MOST_VALUE: Final = 2.0**30
MANTISSA: Final = 7
"""Bits of the mantissa of bf16."""
SMALL: Final = 127 - 60
"""Exponent field of bf16 weights below which they are small."""
SHIFT: Final = 64
"""Exponent of the power of two by which small weights are multiplied."""
LEAST_VALUE: Final = EXPONENTS - (127 - 133 + SHIFT)
"""Exponent field of values from which AMX is exact for small weights so multiplied, and for the others."""


class AttentionBlocks(ABC):
    """Emits the kernel of an attention fusion: a loop over blocks of query rows, in all batches.

    The kernel's parameters are (queries, keys, values, other inputs ..., result, begin, end). The first three
    may be addresses of packed forms. The kernel computes the blocks with indices [begin, end), which count
    the blocks of all batches.
    """

    def __init__(
        self,
        module: Module,
        name: str,
        attention: Attention,
        plans: tuple[TilePlan, TilePlan] | tuple[AmxPlan, AmxPlan],
        kind: ElementType,
    ) -> None:
        self.attention, self.name = attention, name
        self.plans, self.kind = plans, kind
        self.height = plans[0].height
        self.gemm, self.second_gemm = attention.products
        inputs = row_inputs(attention)
        self.f = f = module.function(name, [PTR] * (4 + len(inputs)) + [I64] * 2)
        self.queries, self.keys, self.values, *pointers, self.result, self.begin, self.end = f.parameters
        self.views = {p: View.of(pointer, p.shape) for p, pointer in zip(inputs, pointers, strict=True)}
        self.row_bytes = row_bytes(attention.scores)
        self.scratch = f.allocate(I8, self.height * self.row_bytes)

    def emit(self) -> LoopKernel:
        """Emit the kernel, a loop over the blocks of query rows in all batches; return its `LoopKernel`."""
        self.blocks()
        self.f.finish()
        gemm = self.gemm
        work = gemm.work + self.second_gemm.work + gemm.batches * gemm.m * gemm.n * 8
        note = f"blocks of {self.height} rows; {self.plans[0]}; {self.plans[1]}"
        return LoopKernel(self.name, gemm.batches * self.plans[0].row_tasks, 1, work, note)

    def blocks(self) -> None:
        """Emit the loop over the blocks."""
        f, count = self.f, self.plans[0].row_tasks
        with f.loop(self.begin, self.end) as loop:
            batch = loop.index.unsigned_divide(count) if self.gemm.batches > 1 else f.constant(I64, 0)
            block = loop.index - batch * count if self.gemm.batches > 1 else loop.index
            self.block(batch, block * self.height)

    def block(self, batch: Value, row: Value) -> None:
        """Emit the computation of the block of query rows that begins at ``row``, in batch ``batch``.

        The emitted code computes the scores, replaces them with attention weights in scratch memory, and
        stores the product of these weights and the values to the result.
        """
        f, attention = self.f, self.attention
        self.base = f.offset(self.scratch, row * -self.row_bytes)
        self.score(batch, row)
        self.weigh(batch, row)
        result = batch_base(f, self.second_gemm, attention.result, batch, self.result, self.kind)
        self.target = View(result, self.kind, (UNKNOWN_EXTENT,), (attention.result.row, 1))
        self.add_up(batch, row)

    @abstractmethod
    def score(self, batch: Value, row: Value) -> None:
        """Emit the scores of a block, to scratch memory."""

    @abstractmethod
    def add_up(self, batch: Value, row: Value) -> None:
        """Emit the product of a block's weights, in scratch memory, and the values, to ``self.target``."""

    def end_of(self, row: Value) -> Value:
        """Emit the end of the rows of the block that begins at ``row``."""
        return self.f.intrinsic("smin", row + self.height, self.f.constant(I64, self.gemm.m))

    def weigh(self, batch: Value, row: Value) -> None:
        """Emit the operations, such as a softmax, that turn a block's scores into weights, row by row.

        The block begins at query row ``row`` of batch ``batch``; the weights replace the scores in scratch
        memory.
        """
        f, attention = self.f, self.attention
        rows, gemm = attention.rows, self.gemm
        for variable in attention.variables:
            variable.value = f.constant(I64, 0)
        for dimension, index in zip(attention.batch, batch_indices(gemm, batch), strict=True):
            attention.variables[dimension].value = index
        scores, weights = map(self.rows_of, (attention.scores, attention.weights))
        lanes = row_lanes([*attention.parts.members, *attention.parts.inputs], rows)
        emitter = RowEmitter(f, rows, lanes, self.views | {attention.scores: scores})
        with f.loop(row, self.end_of(row)) as loop:
            attention.variables[attention.row].value = loop.index
            emitter.row([attention.weights], [weights])

    def rows_of(self, i: HloInstruction) -> View:
        """Return a view of the scratch memory with the current block's rows of ``i``, scores or weights.

        The view takes the indices of the whole array, but only the rows of the current block are in memory.
        """
        kind = i.shape.element_type
        strides = [0] * i.shape.rank
        strides[self.attention.row], strides[-1] = self.row_bytes // storage_bytes(kind), 1
        return View(self.base, kind, (UNKNOWN_EXTENT,), tuple(strides))

    def store_score(self, e: Elements, batch: Index, row: Index, column: Index, value: Element) -> None:
        """Emit the epilogue of Q Kᵀ: the store of ``value``, a vector of scores, to scratch memory.

        ``row`` and ``column`` are the place of the vector in the matrix of scores.
        """
        view = self.rows_of(self.attention.scores)
        strides = (self.row_bytes // storage_bytes(view.element_type), 1)
        block = View(view.pointer, view.element_type, view.dimensions, strides)
        e.store(block, (row, column), rounded(value, self.gemm, view.element_type))

    def store_result(self, e: Elements, batch: Index, row: Index, column: Index, value: Element) -> None:
        """Emit the epilogue of weights times V: the store of the vector ``value`` to the result.

        ``row`` and ``column`` are the place of the vector in that product.
        """
        e.store(self.target, (row, column), rounded(value, self.second_gemm, self.kind))


def row_inputs(attention: Attention) -> list[HloInstruction]:
    """Return the inputs, such as a mask, of the operations that turn scores into attention weights.

    The scores themselves are left out.
    """
    return [p for p in attention.parts.inputs if p is not attention.scores]


class RegisterBlocks(AttentionBlocks):
    """Computes both products in register tiles.

    If an earlier kernel packed the keys or the values, the address of the packed panels is passed instead.
    """

    def __init__(
        self,
        module: Module,
        name: str,
        attention: Attention,
        plans: tuple[TilePlan, TilePlan],
        kind: ElementType,
    ) -> None:
        super().__init__(module, name, attention, plans, kind)
        self.first = TileProduct(self.f, plans[0], lambda _: self.store_score)
        self.second = TileProduct(self.f, plans[1], lambda _: self.store_result)
        self.enlarged = self.enlargement(plans[1])

    def enlargement(self, plan: TilePlan) -> _Enlargement | None:
        """Return the emitter of the enlargement of small weights; None if they need none or have no bound."""
        f, gemm = self.f, self.second_gemm
        is_single = gemm.a_type is et.F32 and gemm.b_type is et.F32 and gemm.k <= MOST_TERMS
        if not is_single or not is_slow_with_subnormals(f.target):
            return None
        count = self.attention.arrays[2].shape.element_count
        if plan.pack_b == "group":
            panels = packed(plan)
            count = panels.gemm.batches * panels.panels * panels.panel_bytes // F32.size
            if gemm.n % plan.panel:
                return None  # panels have columns that nobody stores
        return _Enlargement(f, self.gemm.n, self.row_bytes, self.values, count)

    def score(self, batch: Value, row: Value) -> None:
        """Emit the scores of a block, to scratch memory."""
        queries = batch_base(self.f, self.gemm, self.gemm.a, batch, self.queries, self.gemm.a_type)
        self.task(self.first, batch, row, queries, self.keys)

    def add_up(self, batch: Value, row: Value) -> None:
        """Emit the product of a block's weights, in scratch memory, and the values, to ``self.target``."""
        if self.enlarged is not None:
            self.enlarged.apply(self.base, row, self.end_of(row))
        self.task(self.second, batch, row, self.base, self.values)

    def store_result(self, e: Elements, batch: Index, row: Index, column: Index, value: Element) -> None:
        """Emit the store of the vector ``value`` to the result, after it is made smaller again."""
        if self.enlarged is not None:
            assert isinstance(value, Value)
            value = value * self.enlarged.inverse.get().splat(value.type.lanes)
        super().store_result(e, batch, row, column, value)

    def task(self, product: TileProduct, batch: Value, row: Value, a: Value, b: Value) -> None:
        """Emit a product's rows from ``row`` on, with all columns.

        ``a`` is the address of A in the batch, ``b`` that of B or its panels in the first batch.
        """
        f = self.f
        zero = f.constant(I64, 0)
        factor = self.factor(product, batch, b)
        product.task(batch, row, (zero, zero, f.constant(I64, product.plan.gemm.n)), a, factor)

    def factor(self, product: TileProduct, batch: Value, pointer: Value) -> Value:
        """Emit the address of the second operand of ``product`` (the keys or the values) in batch ``batch``.

        ``pointer`` is the operand's address in the first batch. If an earlier kernel packed the operand,
        ``pointer`` and the result are addresses of packed panels. If each block packs the operand, the
        packing is emitted, too, and the address of the packed panels is returned.
        """
        f, plan, gemm = self.f, product.plan, product.plan.gemm
        if plan.pack_b != "group":
            return product.b_matrix(pointer, batch)
        number = f.constant(I64, 0)
        for index, size, stride in zip(batch_indices(gemm, batch), gemm.batch, gemm.b.batch, strict=True):
            number = number * size + index if stride else number
        return f.offset(pointer, number * (plan.panels * plan.panel_bytes))


class _Enlargement:
    """Emits the multiplication of a block's f32 weights by 2^`SHIFT`, if some are subnormal.

    Products with subnormal numbers take some processors 100 cycles. Weights of a softmax are few of them, if
    their scores have a wide range. Weights and values are bounded, so that no sum overflows.

    Attributes:
        inverse: the factor of the sums: 2^-`SHIFT`, or 1.
    """

    def __init__(self, f: Function, keys: int, row_bytes: int, values: Value, count: int) -> None:
        self.f, self.keys, self.row_bytes, self.values, self.count = f, keys, row_bytes, values, count
        self.inverse = LocalVariable(f, F32, 1.0)
        self.largest_value = LocalVariable(f, I32, -1)

    def apply(self, base: Value, row: Value, end: Value) -> None:
        """Emit the test for subnormal weights in rows [row, end), and the multiplication of these rows.

        ``base`` is the address of row 0. The emitted code sets `inverse`.
        """
        f = self.f
        self.inverse.set(1.0)

        def smaller(size: Value, least: Value) -> Value:
            return f.intrinsic("umin", size - 1, least)

        least = self.over_rows(base, row, end, -1, smaller, "umin")
        with f.when(least.compare("ult", (1 << 23) - 1)):
            most = self.over_rows(base, row, end, 0, _larger, "umax")
            with f.when(self.largest_value.get().compare("eq", -1)):
                sizes = self.over(self.values, self.count, f.constant(_WIDE, 0), _larger)
                self.largest_value.set(f.intrinsic("vector.reduce.umax", sizes, result=I32))
            is_bounded = self.largest_value.get().compare("ult", _pattern(MOST_VALUE))
            with f.when(is_bounded & most.compare("ult", _pattern(MOST_WEIGHT))):
                self.enlarge(base, row, end)
                self.inverse.set(2.0**-SHIFT)

    def over_rows(
        self,
        base: Value,
        row: Value,
        end: Value,
        start: int,
        join: Callable[[Value, Value], Value],
        name: str,
    ) -> Value:
        """Emit the reduction of the magnitudes of all weights by ``join`` and, in the end, an intrinsic."""
        f = self.f
        with f.loop(row, end, 1, [f.constant(_WIDE, start)]) as rows:
            rows.next(self.over(f.offset(base, rows.index * self.row_bytes), self.keys, rows.values[0], join))
        return f.intrinsic(f"vector.reduce.{name}", rows.values[0], result=I32)

    def over(self, line: Value, count: int, start: Value, join: Callable[[Value, Value], Value]) -> Value:
        """Emit the reduction of the magnitudes of ``count`` numbers at ``line``, in 16 lanes."""
        f, whole = self.f, count // LINES * LINES
        with f.loop(0, whole, LINES, [start]) as loop:
            bits = f.load(_WIDE, f.offset(line, loop.index, I32))
            loop.next(join(bits & 0x7FFFFFFF, loop.values[0]))
        if whole == count:
            return loop.values[0]
        rest = masked_load(_WIDE, f.offset(line, whole, I32), self.rest(count))
        return join(rest & 0x7FFFFFFF, loop.values[0])

    def rest(self, count: int) -> Value:
        """Return the mask of the lanes of the last vector of ``count`` numbers."""
        return self.f.constant(_WIDE, list(range(LINES))).compare("slt", count % LINES)

    def enlarge(self, base: Value, row: Value, end: Value) -> None:
        """Emit the multiplication of rows [row, end) by 2^`SHIFT`, by integer operations on bit patterns.

        The caller has checked that no weight is infinite, NaN or too large.
        """
        f, whole = self.f, self.keys // LINES * LINES

        def larger(bits: Value) -> Value:
            size = bits & 0x7FFFFFFF
            multiple = size.cast("sitofp", F32) * 2.0 ** (SHIFT - 149)
            normal = size + (SHIFT << 23)
            scaled = size.compare("ult", 1 << 23).select(multiple.bitcast(_WIDE), normal)
            return scaled | (bits & -0x80000000)

        with f.loop(row, end) as rows:
            line = f.offset(base, rows.index * self.row_bytes)
            with f.loop(0, whole, LINES) as loop:
                place = f.offset(line, loop.index, I32)
                f.store(larger(f.load(_WIDE, place)), place)
            if whole < self.keys:
                place, mask = f.offset(line, whole, I32), self.rest(self.keys)
                masked_store(larger(masked_load(_WIDE, place, mask)), place, mask)


_WIDE: Final = I32.vector(LINES)


def _larger(size: Value, most: Value) -> Value:
    return most.function.intrinsic("umax", size, most)


def _pattern(number: float) -> int:
    """Return the pattern of an f32 number."""
    return int.from_bytes(struct.pack("<f", number), "little")


class AmxBlocks(AttentionBlocks):
    """Computes both products of bf16 numbers in AMX tiles, from packed queries, keys and values.

    Queries and keys are such that AMX is exact. If the weights of a block are not, the small ones are
    multiplied by a power of two and apart from the others; if values are too small for that, the block's
    second product is computed in f32 from the same tiles.
    """

    def __init__(
        self,
        module: Module,
        name: str,
        attention: Attention,
        plans: tuple[AmxPlan, AmxPlan],
        kind: ElementType,
    ) -> None:
        super().__init__(module, name, attention, plans, kind)
        f = self.f
        self.amx_plans = plans
        scratch = f.allocate(I8, plans[0].rows * PANEL * F32.size)
        self.first = AmxProduct(f, plans[0], _Stage(scratch, self.gemm, self.store_score))
        stores = (self.store_result, self.store_small, self.store_both)
        stages = [_Stage(scratch, self.second_gemm, store) for store in stores]
        self.second, self.of_small, self.of_others = (AmxProduct(f, plans[1], stage) for stage in stages)
        self.small = f.allocate(I8, self.height * self.row_bytes)
        self.sums = f.allocate(I8, self.height * plans[1].width * F32.size)
        self.least_value = least_exponent(emit_least(self.values, plans[1].b.magnitudes))

    def blocks(self) -> None:
        """Emit the loop over the blocks, with the tile registers configured."""
        configure_tiles(self.f)
        super().blocks()
        release_tiles(self.f)

    def score(self, batch: Value, row: Value) -> None:
        """Emit the scores of a block, to scratch memory."""
        plan = self.amx_plans[0]
        columns = self.f.constant(I64, 0), self.f.constant(I64, self.gemm.n)
        self.first.task(
            batch, row, columns, plan.a.tiles(self.queries, batch), plan.b.tiles(self.keys, batch)
        )

    def add_up(self, batch: Value, row: Value) -> None:
        """Emit the product of a block's weights, in scratch memory, and the values, to ``self.target``."""
        f = self.f
        values = self.amx_plans[1].b.tiles(self.values, batch)
        columns = f.constant(I64, 0), f.constant(I64, self.second_gemm.n)
        least = least_exponent(self.least_weight(row))
        with choose(f, are_exact(least, self.least_value)) as choice:
            self.second.task(batch, row, columns, self.base, values)
            choice.otherwise()
            with choose(f, self.least_value.compare("sge", LEAST_VALUE)) as split:
                small = f.offset(self.small, row * -self.row_bytes)
                width = self.amx_plans[1].width
                sums = f.offset(self.sums, row * (-width * F32.size))
                self.small_sums = View(sums, et.F32, (UNKNOWN_EXTENT,), (width, 1))
                self.split(row, small)
                self.of_small.task(batch, row, columns, small, values)
                self.of_others.task(batch, row, columns, self.base, values)
                split.otherwise()
                self.add_up_in_f32(batch, row, values)

    def split(self, row: Value, small: Value) -> None:
        """Emit the move of a block's small weights to rows at ``small``, multiplied by a power of two.

        AMX is exact for what remains, and for what is moved.
        """
        f, wide = self.f, I16.vector(2 * LINES)
        with (
            f.loop(row, self.end_of(row)) as rows,
            f.loop(0, -(-self.gemm.n // wide.lanes) * wide.lanes, wide.lanes) as columns,
        ):
            offset = rows.index * self.row_bytes + columns.index * I16.size
            place = f.offset(self.base, offset)
            bits = f.load(wide, place)
            magnitude = bits & 0x7FFF
            is_small = magnitude.compare("ult", SMALL << MANTISSA)
            # a subnormal number has its mantissa as a multiple of the least one
            multiple = magnitude.cast("zext", I32).cast("sitofp", F32) * 2.0 ** (SHIFT - 133)
            normalized = multiple.bitcast(I32.vector(wide.lanes)).logical_shift_right(16).cast("trunc", I16)
            is_subnormal = magnitude.compare("ult", 1 << MANTISSA)
            scaled = is_subnormal.select(normalized, magnitude + (SHIFT << MANTISSA))
            zero = f.constant(wide, 0)
            moved = magnitude.compare("eq", 0).select(zero, scaled | (bits & -0x8000))
            f.store(is_small.select(moved, zero), f.offset(small, offset))
            f.store(is_small.select(zero, bits), place)

    def store_small(self, e: Elements, batch: Index, row: Index, column: Index, value: Element) -> None:
        """Emit the store of a vector of sums of small weights, to scratch memory."""
        assert isinstance(value, Value)
        e.store(self.small_sums, (row, column), value * 2.0**-SHIFT)

    def store_both(self, e: Elements, batch: Index, row: Index, column: Index, value: Element) -> None:
        """Emit the addition of the sums of small weights, and the store of a vector of the result."""
        small = e.load(self.small_sums, (row, column))
        assert isinstance(value, Value) and isinstance(small, Value)
        self.store_result(e, batch, row, column, value + small)

    def least_weight(self, row: Value) -> Value:
        """Emit the least magnitude of the weights of a block; zeros fill the rows up to whole tiles."""
        f, keys = self.f, self.gemm.n
        wide = I16.vector(2 * LINES)
        whole = -(-keys // wide.lanes) * wide.lanes
        with f.loop(row, self.end_of(row), 1, [f.constant(wide, -1)]) as rows:
            line = f.offset(self.base, rows.index * self.row_bytes)
            if whole > keys:
                beyond = f.constant(I64.vector(wide.lanes), list(range(wide.lanes))).compare(
                    "sge", keys - (whole - wide.lanes)
                )
                last = f.offset(line, (whole - wide.lanes) * I16.size)
                masked_store(f.constant(wide, 0), last, beyond)
            with f.loop(0, whole, wide.lanes, rows.values) as loop:
                bits = f.load(wide, f.offset(line, loop.index, I16))
                loop.next(f.intrinsic("umin", (bits & 0x7FFF) - 1, loop.values[0]))
            rows.next(*loop.values)
        return f.intrinsic("vector.reduce.umin", rows.values[0], result=I16)

    def add_up_in_f32(self, batch: Value, row: Value, values: Value) -> None:
        """Emit the product of a block's weights and the tiles of ``values`` by multiply-adds of f32."""
        f, plan, gemm = self.f, self.amx_plans[1], self.second_gemm
        end = self.end_of(row)
        zeros = [f.constant(F32.vector(LINES), 0.0)] * ROWS
        with f.loop(row, end, ROWS) as rows, f.loop(0, gemm.n, LINES) as columns:
            numbers = [f.intrinsic("smin", rows.index + r, end - 1) for r in range(ROWS)]
            lines = [f.offset(self.base, number * self.row_bytes) for number in numbers]
            tile = f.offset(values, columns.index * (plan.steps * LINE_BYTES))
            with f.loop(0, plan.steps * LINES, 1, zeros) as units:
                pairs = _halves(f.load(I32.vector(LINES), f.offset(tile, units.index * LINE_BYTES)))
                sums: list[Value] = []
                for line, total in zip(lines, units.values, strict=True):
                    weights = f.load(I32, f.offset(line, units.index, I32)).splat(LINES)
                    for weight, value in zip(_halves(weights), pairs, strict=True):
                        total = f.fma(weight, value, total)
                    sums.append(total)
                units.next(*sums)
            stage = _Stage(self.scratch, gemm, self.store_result)
            for number, total in zip(numbers, units.values, strict=True):
                stage.store((batch, number, columns.index), total, masked=gemm.n % LINES != 0)


def _halves(units: Value) -> tuple[Value, Value]:
    """Emit the conversion of units, pairs of bf16 numbers, to f32; return the first and second numbers."""
    wide = F32.vector(units.type.lanes)
    return (units << 16).bitcast(wide), (units & -0x10000).bitcast(wide)


class _Stage:
    """The last stage of an AMX product in a block: it stores the sums.

    Attributes:
        scratch: the address of rows of `PANEL` sums.
        gemm: the product.
        epilogue: emits the store of a vector of sums.
    """

    def __init__(self, scratch: Value, gemm: Gemm, epilogue: Epilogue) -> None:
        self.scratch, self.gemm, self.epilogue = scratch, gemm, epilogue

    def call(self, place: tuple[Value, Value, Value], height: Value, vectors: int, *, masked: bool) -> None:
        """Emit the stores of ``height`` rows of ``vectors`` vectors; see `SumsEpilogue`."""
        f = Function.of(height)
        batch, row, column = place
        with f.loop(0, height) as line:
            for vector in range(vectors):
                offset = line.index * (PANEL * F32.size) + vector * LINE_BYTES
                value = f.load(F32.vector(LINES), f.offset(self.scratch, offset))
                self.store((batch, row + line.index, column + vector * LINES), value, masked=masked)

    def store(self, place: tuple[Value, Value, Value], value: Value, *, masked: bool) -> None:
        """Emit the store of a vector of sums at ``place``, its (batch, row, column)."""
        batch, row, column = place
        e = Elements(Function.of(value), LINES, {})
        line, lane = Variable(self.gemm.m, "m", row), Variable(self.gemm.n, "n", column)
        lane.is_lane = True
        mask = e.index_value(Index.of(lane)).compare("slt", self.gemm.n) if masked else None
        matrix = Index.of(Variable(self.gemm.batches, "b", batch))
        with e.masked(mask):
            self.epilogue(e, matrix, Index.of(line), Index.of(lane), value)
