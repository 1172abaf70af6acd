"""Plan of an attention gradient: scores, row operations, sums over the keys and sums over the rows.

A gradient of softmax(Q Kᵀ) V computes two products of scores (Q Kᵀ again, and that of the result's gradient
with Vᵀ), weights from each row of them, and products of the weights: over the keys for the gradient of Q,
over the rows for those of K and V. A kernel computes all of it for a block of rows, whose scores stay in the
second-level cache. `hloom.passes.fusion.attention_gradient` writes these fusions: a product over the rows has
a batch dimension for each part of the rows that one thread sums, in the order of the blocks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.codegen.target import Target
from hloom.codegen.types import storage_bytes
from hloom.cpu.kernels.attention.attention_plan import DEEPEST, FEWEST, LEAST_BLOCK, row_operations
from hloom.cpu.kernels.dot.gemm import Gemm, Matrix, merged, sum_type
from hloom.cpu.kernels.dot.gemm_plan import TilePlan, plan_tiles
from hloom.cpu.kernels.dot.strided import Strided, read_through, written_through
from hloom.cpu.kernels.reduction.row_fusion import RowPlan
from hloom.ir.affine import Variable, row_major_strides
from hloom.ir.instruction import HloInstruction
from hloom.operations.contraction import Dot
from hloom.operations.structure import Parameter
from hloom.passes.layout.product_views import is_view
from hloom.passes.rules.contraction import batch_of, free_of, inner_of, results_of
from hloom.plan.parts import KernelParts, kernel_parts
from hloom.records import dataclass
from hloom.shape.element_type import ElementType

BLOCK_BYTES: Final = 1 << 19
"""Bytes of a block of all scores, on the stack."""
MOST_ROWS: Final = 64
"""Maximum rows of a block, unless one block of `SINGLE` rows is all of them."""
SINGLE: Final = 128
FEWEST_COLUMNS: Final = 8
"""Minimum columns of a product of the weights."""


@dataclass(frozen=True, slots=True)
class ScoreProduct:
    """A matrix product in an attention gradient with an element for each query and key: Q Kᵀ, or dO Vᵀ.

    Attributes:
        array: the product's result, after any reshapes and transposes that give it the dimensions of the
            weights.
        product: the sizes and strides of the batched product; rows are queries, columns are keys.
        sources: the arrays that hold the two operands.
    """

    array: HloInstruction
    product: Gemm
    sources: tuple[HloInstruction, HloInstruction]


@dataclass(frozen=True, slots=True)
class WeightProduct:
    """A product of weights (attention weights or gradients of scores) that gives a result of the fusion.

    Attributes:
        weights: the index in `Gradient.weights` of the first operand.
        over_rows: true: it sums over queries, and has a row for each key; false: it sums over keys, and has a
            row for each query.
        product: the sizes and strides of the batched product; `plan_blocks` replaces the strides of the first
            operand by those in a block's scratch memory.
        source: the array that holds the second operand.
        result: the place of the fusion's result in memory, as a batched matrix with strides.
        kind: the element type of the result.
    """

    weights: int
    over_rows: bool
    product: Gemm
    source: HloInstruction
    result: Matrix
    kind: ElementType


@dataclass(frozen=True, slots=True)
class Gradient:
    """An attention gradient fusion: products that give scores, operations on rows, and products of weights.

    *Scores* have an element for each query and key, such as Q Kᵀ. *Weights* are the arrays that the
    operations on rows compute from all scores: attention weights, and gradients of the scores.

    Attributes:
        scores: the products that give scores.
        weights: the weights, which the kernel keeps in the accumulator type of the products.
        sums: the products of weights and other arrays, one for each result of the fusion.
        parts: the operations from the scores to the weights.
        rows: the plan by which these operations are computed row by row.
        variables: the index of a row: a variable for each dimension of the weights but the last.
        row: the dimension of the weights that is divided into blocks, that of the queries.
        batch: the dimensions of the weights before that of the queries.
    """

    scores: tuple[ScoreProduct, ...]
    weights: tuple[HloInstruction, ...]
    sums: tuple[WeightProduct, ...]
    parts: KernelParts
    rows: RowPlan
    variables: tuple[Variable, ...]
    row: int
    batch: tuple[int, ...]

    @property
    def kind(self) -> ElementType:
        """Return the accumulator type of the matrix products; scores and weights are also stored in it."""
        return self.scores[0].product.kind

    @property
    def row_bytes(self) -> int:
        """Return the distance in bytes between neighbouring rows of scores in scratch memory.

        Rows are padded: rows that are a large power of two apart would compete for the same few cache sets.
        """
        return -(-self.scores[0].product.n * storage_bytes(self.kind) // 64) * 64 + 64

    @property
    def areas(self) -> int:
        """Return the number of scratch areas of a block; area n holds scores n, and later weights n."""
        return max(len(self.scores), len(self.weights))

    @property
    def fitting(self) -> int:
        """Return how many query rows a block may have so that its scratch areas fit into `BLOCK_BYTES`."""
        return BLOCK_BYTES // (self.areas * self.row_bytes)


def gradient_of(fusion: HloInstruction) -> Gradient | None:
    """Return the operations and products of an attention gradient fusion; None if it is unsupported."""
    parts = kernel_parts(fusion)
    reductions = [m for m in parts.members if m.opcode == "reduce"]
    shapes = {r.operands[0].shape.dimensions for r in reductions}
    if len(shapes) != 1:
        return None
    (sizes,) = shapes
    return _Description(parts, sizes, reductions).gradient() if sizes[-1] >= FEWEST else None


def has_gradient_kernel(fusion: HloInstruction) -> bool:
    """Return whether the kernel for attention gradients can compute a fusion.

    The scratch areas of `LEAST_BLOCK` query rows must fit into `BLOCK_BYTES`.
    """
    gradient = gradient_of(fusion)
    return gradient is not None and gradient.fitting >= LEAST_BLOCK


class _Description:
    """Builds the `Gradient` of a fusion: finds its arrays' strides along dimensions of the weights."""

    def __init__(self, parts: KernelParts, sizes: tuple[int, ...], reductions: list[HloInstruction]) -> None:
        self.parts, self.sizes, self.reductions = parts, sizes, reductions
        self.last = len(sizes) - 1
        self.row = self.last - 1

    def gradient(self) -> Gradient | None:
        """Return the `Gradient` of the fusion; None if the kernel cannot compute it.

        For example, the elements of all arrays must lie at constant strides, and the first operand of each
        product that gives a result must have the dimensions of the arrays that are reduced.
        """
        results = [_source(root) for root in self.parts.roots]
        weights = tuple(dict.fromkeys(dot.operands[0] for dot in results if isinstance(dot.operation, Dot)))
        if len(weights) == 0 or any(w.shape.dimensions != self.sizes for w in weights):
            return None
        sums = [self.sums(dot, root, weights) for dot, root in zip(results, self.parts.roots, strict=True)]
        products = [m for m in self.parts.members if isinstance(m.operation, Dot) and m not in results]
        scores = [self.scores(dot) for dot in products]
        known_sums, known_scores = [s for s in sums if s is not None], [s for s in scores if s is not None]
        if len(known_sums) < len(sums) or len(known_scores) < len(scores) or len(scores) == 0:
            return None
        kinds = {s.product.kind for s in known_sums} | {s.product.kind for s in known_scores}
        rows = row_operations(self.parts, [s.array for s in known_scores], weights)
        if rows is None or any(r not in rows[0].members for r in self.reductions):
            return None
        if len(kinds) != 1 or not all(k.is_floating for k in kinds):
            return None
        batch = tuple(range(self.row))
        return Gradient(tuple(known_scores), weights, tuple(known_sums), *rows, self.row, batch)

    def scores(self, dot: HloInstruction) -> ScoreProduct | None:
        """Return the product ``dot``, which computes scores, with its strides; None if unsupported.

        Scores and operands must have strides along the dimensions of the weights, and the rows of the first
        operand must be contiguous.
        """
        array = dot
        while len(array.users) == 1 and is_view(user := next(iter(array.users))):
            array = user
        placed, views = written_through(dot, array), [read_through(o) for o in dot.operands]
        if placed is None or array.shape.dimensions != self.sizes:
            return None
        strides = row_major_strides(self.sizes)
        of_result = {d: strides.index(s) for d, s in enumerate(placed.strides) if s in strides}
        operation = operation_of(dot, Dot)
        axes: list[dict[int, int]] = []
        depths: list[tuple[int, int]] = []
        sources: list[Strided] = []
        for side, view in enumerate(views):
            if view is None or view.packed is not None or not isinstance(view.source.operation, Parameter):
                return None
            depth = merged(dot.operands[side].shape.dimensions, view.strides, inner_of(operation, side))
            if depth is None or depth[0] > DEEPEST or len(of_result) != dot.shape.rank:
                return None
            axes.append({of_result[r]: view.strides[d] for d, r in results_of(dot, side).items()})
            depths.append(depth)
            sources.append(view)
        if self.last in axes[0] or self.row not in axes[0] or self.row in axes[1]:
            return None
        (depth, a_step), (_, b_step) = depths
        if a_step != 1:
            return None
        a, b = sources
        rows = Matrix(self.along(axes[0]), axes[0][self.row], a_step, a.offset)
        columns = Matrix(self.along(axes[1]), b_step, axes[1][self.last], b.offset)
        kind = sum_type(dot.shape.element_type)
        sizes = (self.sizes[self.row], self.sizes[self.last], depth)
        product = self.product(sizes, rows, columns, kind, a.element_type, b.element_type)
        return ScoreProduct(array, product, (a.source, b.source))

    def sums(
        self, dot: HloInstruction, root: HloInstruction, weights: Sequence[HloInstruction]
    ) -> WeightProduct | None:
        """Return the product ``dot`` of weights and another array, with its strides; None if unsupported.

        ``weights`` are all arrays of weights. ``root`` is the result of the fusion that reshapes or
        transposes ``dot``. Rows of the other array and of the result must be contiguous.
        """
        operation = operation_of(dot, Dot)
        values, stored = read_through(dot.operands[1]), written_through(dot, root)
        if values is None or stored is None or not isinstance(values.source.operation, Parameter):
            return None
        summed = inner_of(operation, 0)
        if values.packed is not None or len(summed) != 1 or summed[0] not in (self.row, self.last):
            return None
        over_rows = summed[0] == self.row
        kept = self.last if over_rows else self.row
        free = free_of(dot, operation, 1)
        columns = merged(dot.operands[1].shape.dimensions, values.strides, free)
        rank = dot.shape.rank
        result_columns = merged(dot.shape.dimensions, stored.strides, range(rank - len(free), rank))
        if columns is None or columns[1] != 1 or result_columns is None or result_columns[1] != 1:
            return None
        if columns[0] < FEWEST_COLUMNS:
            return None
        of_weights = batch_of(operation, 0)
        of_values = dict(zip(of_weights, (values.strides[d] for d in batch_of(operation, 1)), strict=True))
        of_result = {d: stored.strides[n] for d, n in results_of(dot, 0).items()}
        step = values.strides[inner_of(operation, 1)[0]]
        factor = Matrix(self.along(of_values), step, columns[1], values.offset)
        result = Matrix(self.along(of_result), of_result[kept], 1, stored.offset)
        inner = Matrix((0,) * self.row, 1, 1)
        sizes = (self.sizes[kept], columns[0], self.sizes[summed[0]])
        kind = sum_type(dot.shape.element_type)
        product = self.product(sizes, inner, factor, kind, kind, values.element_type)
        number = weights.index(dot.operands[0])
        return WeightProduct(number, over_rows, product, values.source, result, root.shape.element_type)

    def product(
        self,
        sizes: tuple[int, int, int],
        a: Matrix,
        b: Matrix,
        kind: ElementType,
        a_type: ElementType,
        b_type: ElementType,
    ) -> Gemm:
        return Gemm(self.sizes[: self.row], *sizes, a, b, kind, a_type, b_type, ((), (), ()))

    def along(self, strides: Mapping[int, int]) -> tuple[int, ...]:
        """Return the stride along each batch dimension of the weights; 0 for those that ``strides`` lacks."""
        return tuple(strides.get(p, 0) for p in range(self.row))


def _source(i: HloInstruction) -> HloInstruction:
    while is_view(i):
        (i,) = i.operands
    return i


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """The plans of all matrix products of an attention gradient, for blocks of the same query rows.

    Attributes:
        height: the number of query rows of a block.
        scores: the plan of each product that gives scores.
        sums: the plan of each product of weights and another array.
    """

    height: int
    scores: tuple[TilePlan, ...]
    sums: tuple[TilePlan, ...]


def plan_blocks(gradient: Gradient, target: Target) -> BlockPlan:
    """Return the height of a block, and the plans of all matrix products for blocks of this height.

    Second operands that need packing are packed by separate kernels before all batches.
    """
    distance = gradient.row_bytes // storage_bytes(gradient.kind)
    scores = [plan_tiles(_of_copies(s.product), target, plain_result=False) for s in gradient.scores]
    rows = gradient.scores[0].product.m
    step = math.lcm(*(plan.rows for plan in scores))
    most = min(MOST_ROWS, gradient.fitting)
    height = rows if rows <= min(SINGLE, gradient.fitting) else max(step, most // step * step)
    height = -(-height // step) * step
    sums: list[TilePlan] = []
    for each in gradient.sums:
        gemm = each.product
        if each.over_rows:
            gemm = replace(gemm, k=min(height, rows), a=replace(gemm.a, column=distance))
            gemm = replace(gemm, b=_contiguous(gemm.b, gemm.n), b_type=gemm.kind)
            plan = plan_tiles(gemm, target, plain_result=False)
            plan = replace(_of_blocks(plan, -(-gemm.m // plan.rows) * plan.rows), pack_a=False, pack_b="")
            sums.append(replace(plan, depth=plan.steps))
        else:
            gemm = replace(gemm, a=replace(gemm.a, row=distance))
            sums.append(_of_blocks(plan_tiles(gemm, target, plain_result=False), height))
    return BlockPlan(height, tuple(_of_blocks(plan, height) for plan in scores), tuple(sums))


def _of_copies(gemm: Gemm) -> Gemm:
    """Return ``gemm`` with its first operand replaced by a contiguous copy in the accumulator type.

    The kernel makes such a copy for each block of rows, as rows that are far apart in memory would displace
    each other from the cache.
    """
    return replace(gemm, a=_contiguous(gemm.a, gemm.k), a_type=gemm.kind)


def _contiguous(matrix: Matrix, columns: int) -> Matrix:
    return Matrix((0,) * len(matrix.batch), columns, 1)


def _of_blocks(plan: TilePlan, height: int) -> TilePlan:
    """Return ``plan`` with tasks that compute ``height`` rows and all columns.

    If the second operand needs packing, a separate kernel packs it before the tasks.
    """
    width = -(-plan.gemm.n // plan.panel) * plan.panel
    pack_b = "group" if plan.pack_b else ""
    return replace(plan, height=height, width=width, group_columns=width, pack_b=pack_b)
