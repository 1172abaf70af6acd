"""Emitter of attention gradients: scores, weights and sums of a block of rows, one block after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloom.codegen.accumulators import plus
from hloom.codegen.elements import UNKNOWN_EXTENT, Elements, View
from hloom.codegen.llvm import I8, I64, PTR, Function, Module, Value
from hloom.codegen.llvm.memory import fill_bytes
from hloom.codegen.loops import LoopKernel, loop_nest
from hloom.codegen.rules.contraction import converted
from hloom.codegen.target import Target
from hloom.codegen.types import Element, storage_bytes
from hloom.cpu.kernels.attention.attention_plan import packed
from hloom.cpu.kernels.attention.gradient_plan import (
    BlockPlan,
    Gradient,
    WeightProduct,
    gradient_of,
    plan_blocks,
)
from hloom.cpu.kernels.dot.gemm import Epilogue, Matrix, batch_base, batch_indices, rounded
from hloom.cpu.kernels.dot.gemm_packing import emit_pack_b
from hloom.cpu.kernels.dot.gemm_plan import TilePlan
from hloom.cpu.kernels.dot.gemm_tiles import TileProduct
from hloom.cpu.kernels.reduction.row_fusion import RowEmitter, row_lanes
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.structure import parameter_number
from hloom.plan.kernel import KernelPlan
from hloom.plan.registry import ATTENTION_GRADIENT
from hloom.shape.element_type import ElementType

ROW_WORK: Final = 16
"""Operations for each weight between the products."""


@KERNELS.register(ATTENTION_GRADIENT, workspace=lambda i, target: _workspace(i, target))
def emit_gradient(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit the calls of an attention gradient's kernels: pack operands, if needed; compute the results.

    The loop of the last kernel runs over batches.
    """
    i, module, f = plan.instruction, program.module, program.function
    gradient, blocks = _planned(i, module.target)

    def pointer(array: HloInstruction) -> Value:
        return program.pointer(i.operands[parameter_number(array)])

    space = program.workspace(i)
    factors: list[Value] = []
    for product, source in _factors(gradient, blocks):
        factors.append(pointer(source))
        if product.pack_b == "group":
            panels = packed(product)
            kernel = program.shared(lambda name, panels=panels: emit_pack_b(module, name, panels))
            program.call(i, kernel, [factors[-1], space, f.constant(PTR, 0)])
            factors[-1] = space
            space = f.offset(space, panels.workspace())
    rows = [pointer(s.sources[0]) for s in gradient.scores]
    inputs = [pointer(p) for p in _row_inputs(gradient)]
    results = [program.pointer(i, index) for index in program.assignment.values[i]]
    kernel = program.shared(lambda name: _Blocks(module, name, gradient, blocks).emit())
    program.call(i, kernel, [*rows, *factors, *inputs, *results])


def _planned(i: HloInstruction, target: Target) -> tuple[Gradient, BlockPlan]:
    gradient = gradient_of(i)
    assert gradient is not None
    return gradient, plan_blocks(gradient, target)


def _factors(gradient: Gradient, blocks: BlockPlan) -> list[tuple[TilePlan, HloInstruction]]:
    """Return (plan, array of the second operand) for each matrix product of an attention gradient.

    Products that compute scores come first, then products of the attention weights and other arrays.
    """
    sources = [s.sources[1] for s in gradient.scores] + [s.source for s in gradient.sums]
    return list(zip((*blocks.scores, *blocks.sums), sources, strict=True))


def _row_inputs(gradient: Gradient) -> list[HloInstruction]:
    """Return the inputs, such as a mask, of the operations that compute weights from scores.

    The scores themselves are left out.
    """
    arrays = [s.array for s in gradient.scores]
    return [p for p in gradient.parts.inputs if p not in arrays]


def _workspace(i: HloInstruction, target: Target) -> int:
    return sum(packed(product).workspace() for product, _ in _factors(*_planned(i, target)))


class _Blocks:
    """Emits the kernel of an attention gradient: a loop over batches, and blocks of query rows in each.

    The kernel's parameters are (first operands of the products that compute scores ..., second operands of
    all products ..., other inputs ..., results ..., begin, end); [begin, end) are the batches that it
    computes.
    """

    def __init__(self, module: Module, name: str, gradient: Gradient, blocks: BlockPlan) -> None:
        self.name, self.gradient, self.plan = name, gradient, blocks
        inputs = _row_inputs(gradient)
        scores, sums = gradient.scores, gradient.sums
        f = module.function(name, [PTR] * (2 * len(scores) + 2 * len(sums) + len(inputs)) + [I64] * 2)
        self.f: Function = f
        *pointers, self.begin, self.end = f.parameters
        self.rows, self.factors, arrays, self.results = _divided(
            pointers, (len(scores), len(scores) + len(sums), len(inputs), len(sums))
        )
        self.views = {p: View.of(pointer, p.shape) for p, pointer in zip(inputs, arrays, strict=True)}
        self.area = blocks.height * gradient.row_bytes
        self.scratch = f.allocate(I8, gradient.areas * self.area)
        self.copies: dict[tuple[HloInstruction, Matrix, int], Value] = {}
        self.several = scores[0].product.m > blocks.height
        self.gemms = [s.product for s in (*scores, *sums)]
        self.products = [
            TileProduct(f, plan, lambda _, n=n: self.score_epilogue(n))
            for n, plan in enumerate(blocks.scores)
        ]
        self.products += [
            TileProduct(f, plan, lambda _, n=n: self.result_epilogue(n)) for n, plan in enumerate(blocks.sums)
        ]

    def emit(self) -> LoopKernel:
        """Emit the kernel, a loop over the batches; return its `LoopKernel`."""
        f, gemm = self.f, self.gradient.scores[0].product
        with f.loop(self.begin, self.end) as loop:
            self.batch(loop.index)
        f.finish()
        work = sum(each.work for each in self.gemms) + gemm.batches * gemm.m * gemm.n * ROW_WORK
        note = "; ".join(
            [f"blocks of {self.plan.height} rows", *map(str, (*self.plan.scores, *self.plan.sums))]
        )
        return LoopKernel(self.name, gemm.batches, 1, work, note)

    def batch(self, batch: Value) -> None:
        """Emit the computation of the batch with index ``batch``, one block of query rows after the other."""
        f, gradient, gemm = self.f, self.gradient, self.gradient.scores[0].product
        for variable in gradient.variables:
            variable.value = f.constant(I64, 0)
        for dimension, index in zip(gradient.batch, batch_indices(gemm, batch), strict=True):
            gradient.variables[dimension].value = index
        self.left = [
            batch_base(f, s.product, s.product.a, batch, pointer, s.product.a_type)
            for s, pointer in zip(gradient.scores, self.rows, strict=True)
        ]
        self.right = [self.right_factor(n, batch) for n in range(len(self.products))]
        self.targets = [self.target(n, batch) for n in range(len(gradient.sums))]
        if not self.several:
            self.block(batch, f.constant(I64, 0))
            return
        for sums, target in zip(gradient.sums, self.targets, strict=True):
            if sums.over_rows:
                self.clear(sums, target)
        with f.loop(0, gemm.m, self.plan.height) as loop:
            self.block(batch, loop.index)

    def right_factor(self, number: int, batch: Value) -> Value:
        """Emit the address of the second operand of the product with index ``number`` in batch ``batch``.

        If an earlier kernel packed the operand, it is the address of its packed panels.
        """
        f, plan, gemm = self.f, self.products[number].plan, self.gemms[number]
        if plan.pack_b != "group":
            return batch_base(f, gemm, gemm.b, batch, self.factors[number], gemm.b_type)
        place = f.constant(I64, 0)
        for index, size, stride in zip(batch_indices(gemm, batch), gemm.batch, gemm.b.batch, strict=True):
            place = place * size + index if stride else place
        return f.offset(self.factors[number], place * (plan.panels * plan.panel_bytes))

    def target(self, number: int, batch: Value) -> View:
        """Emit the address of result ``number`` of the fusion in batch ``batch``.

        Return it as a view with (row, column) indices.
        """
        sums = self.gradient.sums[number]
        base = batch_base(self.f, sums.product, sums.result, batch, self.results[number], sums.kind)
        return View(base, sums.kind, (UNKNOWN_EXTENT,), (sums.result.row, 1))

    def clear(self, sums: WeightProduct, target: View) -> None:
        """Emit code that fills ``target``, the result of the product ``sums`` in one batch, with zeros.

        Each block of query rows then adds its contribution to the result.
        """
        f, size = self.f, storage_bytes(sums.kind)
        with f.loop(0, sums.product.m) as loop:
            row = f.offset(target.pointer, loop.index * (sums.result.row * size))
            fill_bytes(row, f.constant(I8, 0), sums.product.n * size)

    def block(self, batch: Value, row: Value) -> None:
        """Emit the computation of the block of query rows that begins at ``row``, in batch ``batch``.

        The emitted code computes scores, stores the weights computed from them over the scores, and
        multiplies the weights by other arrays.
        """
        f, gradient, count = self.f, self.gradient, len(self.gradient.scores)
        self.row = row
        end = f.intrinsic("smin", row + self.plan.height, f.constant(I64, gradient.scores[0].product.m))
        self.copies.clear()
        for number, scores in enumerate(gradient.scores):
            gemm = scores.product
            rows = self.copied(self.left[number], (scores.sources[0], gemm.a, gemm.k), gemm.a_type, row, end)
            rows = f.offset(rows, row * (-gemm.k * storage_bytes(gemm.kind)))
            self.products[number].task(batch, row, self.columns(number), rows, self.right[number])
        self.weigh(row, end)
        for number, sums in enumerate(gradient.sums, count):
            product, gemm = self.products[number], sums.product
            weights, factor = self.weights(sums.weights), self.right[number]
            if sums.over_rows:
                factor = self.copied(factor, (sums.source, gemm.b, gemm.n), gemm.b_type, row, end)
                zero = f.constant(I64, 0)
                product.task(batch, zero, self.columns(number), weights, factor, end - row)
            else:
                weights = f.offset(weights, row * -gradient.row_bytes)
                product.task(batch, row, self.columns(number), weights, factor)

    def copied(
        self, base: Value, key: tuple[HloInstruction, Matrix, int], kind: ElementType, row: Value, end: Value
    ) -> Value:
        """Emit the copy of an operand's rows [row, end) to scratch memory, converted to the accumulator type.

        Return the address of the copy, whose rows are contiguous. ``base`` is the address of the operand's
        row 0, and ``kind`` its type. ``key`` is (array, strides, columns); if the block has already copied an
        operand with this key, return that copy's address.
        """
        if key in self.copies:
            return self.copies[key]
        f, (_, matrix, count), wide = self.f, key, self.gradient.kind
        copy = f.allocate(I8, self.plan.height * count * storage_bytes(wide))
        first = f.offset(copy, row * (-count * storage_bytes(wide)))
        views = [
            View(pointer, element_type, (UNKNOWN_EXTENT,), (distance, 1))
            for pointer, element_type, distance in ((base, kind, matrix.row), (first, wide, count))
        ]
        lanes = max(2, f.module.target.vector_bytes // storage_bytes(wide))
        elements, lane = Elements(f, lanes, {}), Variable(count)
        with f.loop(row, end) as loop, elements.scope():
            line = Index.of(Variable(UNKNOWN_EXTENT, "r", loop.index))

            def move() -> None:
                place = (line, Index.of(lane))
                elements.store(views[1], place, converted(elements.load(views[0], place), kind, wide))

            loop_nest(elements, [lane], move)
        lane.is_lane = False
        self.copies[key] = copy
        return copy

    def columns(self, number: int) -> tuple[Value, Value, Value]:
        zero = self.f.constant(I64, 0)
        return zero, zero, self.f.constant(I64, self.products[number].plan.gemm.n)

    def weights(self, number: int) -> Value:
        """Return the address of the scratch area with index ``number`` of a block.

        The area holds the scores with this index, and later the weights with this index.
        """
        return self.f.offset(self.scratch, number * self.area)

    def weigh(self, row: Value, end: Value) -> None:
        """Emit the operations, such as a softmax, that compute weights from scores, for the rows [row, end).

        The weights replace the scores in scratch memory.
        """
        gradient = self.gradient
        scores = {s.array: self.rows_of(s.array, n) for n, s in enumerate(gradient.scores)}
        weights = [self.rows_of(w, n) for n, w in enumerate(gradient.weights)]
        lanes = row_lanes([*gradient.parts.members, *gradient.parts.inputs], gradient.rows)
        emitter = RowEmitter(self.f, gradient.rows, lanes, self.views | scores)
        with self.f.loop(row, end) as loop:
            gradient.variables[gradient.row].value = loop.index
            emitter.row(gradient.weights, weights)

    def rows_of(self, i: HloInstruction, number: int) -> View:
        """Return a view of scratch area ``number`` with the current block's rows of ``i``.

        ``i`` is an array of scores or weights. The view takes the indices of the whole array, but only the
        rows of the current block are in memory.
        """
        kind, gradient = self.gradient.kind, self.gradient
        strides = [0] * i.shape.rank
        strides[gradient.row], strides[-1] = gradient.row_bytes // storage_bytes(kind), 1
        base = self.f.offset(self.weights(number), self.row * -gradient.row_bytes)
        return View(base, kind, (UNKNOWN_EXTENT,), tuple(strides))

    # -- epilogues

    def score_epilogue(self, number: int) -> Epilogue:
        """Return the epilogue of the product that computes the scores with index ``number``.

        It is a function that emits the rounding of scores to their element type, and their store to scratch
        memory.
        """
        scores = self.gradient.scores[number]
        view = self.rows_of(scores.array, number)
        strides = (self.gradient.row_bytes // storage_bytes(self.gradient.kind), 1)
        block = View(view.pointer, view.element_type, view.dimensions, strides)

        def epilogue(e: Elements, _: Index, row: Index, column: Index, value: Element) -> None:
            e.store(block, (row, column), rounded(value, scores.product, scores.array.shape.element_type))

        return epilogue

    def result_epilogue(self, number: int) -> Epilogue:
        """Return the epilogue of the product with result ``number``: it emits the store of a vector.

        If the product sums over query rows, and these are divided into several blocks, the epilogue adds the
        vector to the sums that earlier blocks stored.
        """
        sums, target = self.gradient.sums[number], self.targets[number]

        def epilogue(e: Elements, _: Index, row: Index, column: Index, value: Element) -> None:
            if sums.over_rows and self.several:
                value = plus(e.load(target, (row, column)), value)
            e.store(target, (row, column), rounded(value, sums.product, sums.kind))

        return epilogue


def _divided(values: Sequence[Value], counts: Sequence[int]) -> list[list[Value]]:
    """Return consecutive slices of ``values``, whose lengths are ``counts``."""
    groups: list[list[Value]] = []
    for count in counts:
        first = sum(map(len, groups))
        groups.append(list(values[first : first + count]))
    return groups
