"""Emitter of attention: scores, weights and sums of a block of rows, one block after the other."""

from __future__ import annotations

from hloom.codegen.elements import UNKNOWN_EXTENT, Elements, View
from hloom.codegen.llvm import I8, I64, PTR, Module, Value
from hloom.codegen.loops import LoopKernel
from hloom.codegen.target import Target
from hloom.codegen.types import Element, storage_bytes
from hloom.cpu.kernels.attention.attention_plan import (
    Attention,
    attention_of,
    packed,
    plan_products,
    row_bytes,
)
from hloom.cpu.kernels.dot.gemm import batch_base, batch_indices, rounded
from hloom.cpu.kernels.dot.gemm_packing import emit_pack_b
from hloom.cpu.kernels.dot.gemm_plan import TilePlan
from hloom.cpu.kernels.dot.gemm_tiles import TileProduct
from hloom.cpu.kernels.reduction.row_fusion import RowEmitter, row_lanes
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.ir.affine import Index
from hloom.ir.instruction import HloInstruction
from hloom.operations.structure import parameter_number
from hloom.plan.kernel import KernelPlan
from hloom.plan.registry import ATTENTION
from hloom.shape.element_type import ElementType


@KERNELS.register(ATTENTION, workspace=lambda i, target: _workspace(i, target))
def emit_attention(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit the calls of an attention fusion's kernels: pack keys and values, if needed; compute the result.

    The loop of the last kernel runs over blocks; a block is an interval of query rows in one batch.
    """
    i, module, f = plan.instruction, program.module, program.function
    attention = _attention(i)
    products = plan_products(attention, module.target)
    queries, *factors = (program.pointer(i.operands[parameter_number(a)]) for a in attention.arrays)
    space = program.workspace(i)
    pointers = [queries]
    for product, source in zip(products, factors, strict=True):
        if product.pack_b != "group":
            pointers.append(source)
            continue
        panels = packed(product)
        kernel = program.shared(lambda name, panels=panels: emit_pack_b(module, name, panels))
        program.call(i, kernel, [source, space, f.constant(PTR, 0)])
        pointers.append(space)
        space = f.offset(space, panels.workspace())
    kernel = program.shared(
        lambda name: _Blocks(module, name, attention, products, i.shape.element_type).emit()
    )
    inputs = [program.pointer(i.operands[parameter_number(p)]) for p in _row_inputs(attention)]
    result = View.of(program.pointer(i), i.shape)
    program.call(i, kernel, [*pointers, *inputs, result.pointer])


def _attention(i: HloInstruction) -> Attention:
    attention = attention_of(i)
    assert attention is not None
    return attention


def _row_inputs(attention: Attention) -> list[HloInstruction]:
    """Return the inputs, such as a mask, of the operations that turn scores into attention weights.

    The scores themselves are left out.
    """
    return [p for p in attention.parts.inputs if p is not attention.scores]


def _workspace(i: HloInstruction, target: Target) -> int:
    return sum(packed(product).workspace() for product in plan_products(_attention(i), target))


class _Blocks:
    """Emits the kernel of an attention fusion: a loop over blocks of query rows, in all batches.

    The kernel's parameters are (queries, keys, values, other inputs ..., result, begin, end). If an earlier
    kernel packed the keys or the values, the address of the packed panels is passed instead. The kernel
    computes the blocks with indices [begin, end), which count the blocks of all batches.
    """

    def __init__(
        self,
        module: Module,
        name: str,
        attention: Attention,
        products: tuple[TilePlan, TilePlan],
        kind: ElementType,
    ) -> None:
        self.attention, self.name = attention, name
        self.first, self.second = products
        inputs = _row_inputs(attention)
        self.f = f = module.function(name, [PTR] * (4 + len(inputs)) + [I64] * 2)
        self.queries, self.keys, self.values, *pointers, self.result, self.begin, self.end = f.parameters
        self.views = {p: View.of(pointer, p.shape) for p, pointer in zip(inputs, pointers, strict=True)}
        self.scores = TileProduct(f, self.first, lambda _: self.score_epilogue)
        self.sums = TileProduct(f, self.second, lambda _: self.result_epilogue)
        self.kind = kind
        self.row_bytes = row_bytes(attention.scores)
        self.scratch = f.allocate(I8, self.first.height * self.row_bytes)

    def emit(self) -> LoopKernel:
        """Emit the kernel, a loop over the blocks of query rows in all batches; return its `LoopKernel`."""
        f, gemm = self.f, self.first.gemm
        blocks = self.first.row_tasks
        with f.loop(self.begin, self.end) as loop:
            batch = loop.index.unsigned_divide(blocks) if gemm.batches > 1 else f.constant(I64, 0)
            block = loop.index - batch * blocks if gemm.batches > 1 else loop.index
            self.block(batch, block * self.first.height)
        f.finish()
        work = gemm.work + self.second.gemm.work + gemm.batches * gemm.m * gemm.n * 8
        note = f"blocks of {self.first.height} rows; {self.first}; {self.second}"
        return LoopKernel(self.name, gemm.batches * blocks, 1, work, note)

    def block(self, batch: Value, row: Value) -> None:
        """Emit the computation of the block of query rows that begins at ``row``, in batch ``batch``.

        The emitted code computes the scores, replaces them with attention weights in scratch memory, and
        stores the product of these weights and the values to the result.
        """
        f, attention = self.f, self.attention
        self.base = f.offset(self.scratch, row * -self.row_bytes)
        zero = f.constant(I64, 0)
        gemm = self.first.gemm
        queries = batch_base(f, gemm, gemm.a, batch, self.queries, gemm.a_type)
        keys = self.factor(self.scores, batch, self.keys)
        self.scores.task(batch, row, (zero, zero, f.constant(I64, gemm.n)), queries, keys)
        self.weigh(batch, row)
        gemm, kind = self.second.gemm, self.kind
        values = self.factor(self.sums, batch, self.values)
        result = batch_base(f, gemm, attention.result, batch, self.result, kind)
        self.target = View(result, kind, (UNKNOWN_EXTENT,), (attention.result.row, 1))
        self.sums.task(batch, row, (zero, zero, f.constant(I64, gemm.n)), self.base, values)

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

    def weigh(self, batch: Value, row: Value) -> None:
        """Emit the operations, such as a softmax, that turn a block's scores into weights, row by row.

        The block begins at query row ``row`` of batch ``batch``; the weights replace the scores in scratch
        memory.
        """
        f, attention = self.f, self.attention
        rows, gemm = attention.rows, self.first.gemm
        for variable in attention.variables:
            variable.value = f.constant(I64, 0)
        for dimension, index in zip(attention.batch, batch_indices(gemm, batch), strict=True):
            attention.variables[dimension].value = index
        scores, weights = map(self.rows_of, (attention.scores, attention.weights))
        lanes = row_lanes([*attention.parts.members, *attention.parts.inputs], rows)
        emitter = RowEmitter(f, rows, lanes, self.views | {attention.scores: scores})
        end = f.intrinsic("smin", row + self.first.height, f.constant(I64, gemm.m))
        with f.loop(row, end) as loop:
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

    def score_epilogue(self, e: Elements, batch: Index, row: Index, column: Index, value: Element) -> None:
        """Emit the epilogue of Q Kᵀ: the store of ``value``, a vector of scores, to scratch memory.

        ``row`` and ``column`` are the place of the vector in the matrix of scores.
        """
        view = self.rows_of(self.attention.scores)
        block = View(
            view.pointer,
            view.element_type,
            view.dimensions,
            (self.row_bytes // storage_bytes(view.element_type), 1),
        )
        e.store(block, (row, column), rounded(value, self.first.gemm, view.element_type))

    def result_epilogue(self, e: Elements, batch: Index, row: Index, column: Index, value: Element) -> None:
        """Emit the epilogue of weights times V: the store of the vector ``value`` to the result.

        ``row`` and ``column`` are the place of the vector in that product.
        """
        e.store(self.target, (row, column), rounded(value, self.second.gemm, self.kind))
