"""Plan of an attention fusion: scores, weights computed from the scores of each row, and sums of values.

The scores are a product of queries and keys, the result is a product of the weights and values. Rows of
scores are independent of each other: a kernel computes a block of rows from the first product to the last
one, while the block is in the second-level cache. Every array is described by its strides along the
dimensions of the weights, so that heads stay where they are, and groups of heads share keys and values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from hloom.analysis.instructions import operation_of
from hloom.codegen.target import Target
from hloom.codegen.types import storage_bytes
from hloom.cpu.kernels.dot.amx_packing import LINES, PANEL, steps_of
from hloom.cpu.kernels.dot.gemm import Gemm, Matrix, merged, sum_type
from hloom.cpu.kernels.dot.gemm_amx import AmxPlan, block_depth
from hloom.cpu.kernels.dot.gemm_pairs import fits_amx
from hloom.cpu.kernels.dot.gemm_plan import TASKS, TilePlan, plan_tiles
from hloom.cpu.kernels.dot.strided import Strided, read_through, written_through
from hloom.cpu.kernels.reduction.row_fusion import RowPlan, plan_rows
from hloom.ir.affine import Index, Variable, linearize, row_major_strides
from hloom.ir.instruction import HloInstruction
from hloom.operations.contraction import Dot
from hloom.operations.structure import Parameter
from hloom.passes.layout.product_views import is_view
from hloom.passes.rules.contraction import free_of, inner_of, results_of
from hloom.plan.parts import KernelParts, kernel_parts
from hloom.plan.space import Space
from hloom.records import dataclass

BLOCK_BYTES: Final = 1 << 19
"""Bytes of a block of scores, on the stack."""
MOST_ROWS: Final = 64
"""Maximum rows of a block."""
FEWEST: Final = 16
"""Minimum rows, and minimum length of a row, for which blocks pay."""
FEW_ROWS: Final = 128
"""Rows up to which a block consists of all rows, if there are enough batches."""
LEAST_BLOCK: Final = 8
"""Minimum rows of a block."""
DEEPEST: Final = 256
"""Maximum products of a score: one block of a panel of keys."""

RowOperations: TypeAlias = "tuple[KernelParts, RowPlan, tuple[Variable, ...]]"
"""The operations on rows of scores, their plan, and a variable for each dimension of the rows."""
Axes: TypeAlias = Mapping[int, int]
"""Strides of an array by the dimensions of the weights; none where the array is repeated."""


@dataclass(frozen=True, slots=True)
class Attention:
    """An attention fusion: scores Q Kᵀ, weights computed from each row of scores, and the weights times V.

    Attributes:
        scores: the result of the dot Q Kᵀ, after any reshapes and transposes that give it the dimensions of
            the weights.
        weights: the attention weights; their last dimension, that of the keys, is contracted with V.
        parts: the operations that turn scores into weights, such as a softmax.
        rows: the plan by which these operations are computed row by row.
        variables: the index of a row: a variable for each dimension of the weights but the last.
        row: the dimension of the weights that is divided into blocks of rows.
        batch: the dimensions of the weights besides ``row`` and the last, without those of size 1.
        products: Q Kᵀ and weights times V as batched matrix products: their rows are the indices along
            dimension ``row`` of the weights, their batches those along the dimensions ``batch``.
        arrays: the arrays that hold queries, keys and values.
        result: the place of the fusion's result in memory, as a batched matrix with strides.
    """

    scores: HloInstruction
    weights: HloInstruction
    parts: KernelParts
    rows: RowPlan
    variables: tuple[Variable, ...]
    row: int
    batch: tuple[int, ...]
    products: tuple[Gemm, Gemm]
    arrays: tuple[HloInstruction, HloInstruction, HloInstruction]
    result: Matrix


def attention_of(fusion: HloInstruction) -> Attention | None:
    """Return the arrays, operations and products of an attention fusion; None if it is unsupported.

    Only a fusion with one result and two floating-point dots can be an attention fusion.
    """
    parts = kernel_parts(fusion)
    dots = [m for m in parts.members if isinstance(m.operation, Dot)]
    if len(dots) != 2 or len(parts.roots) != 1:
        return None
    first, second = dots
    weights, scores = second.operands[0], first
    while is_view(weights):
        (weights,) = weights.operands
    while len(scores.users) == 1 and is_view(user := next(iter(scores.users))):
        scores = user
    sizes = weights.shape.dimensions
    if scores is weights or scores.shape.dimensions != sizes or len(sizes) < 2 or sizes[-1] < FEWEST:
        return None
    if not all(m.shape.element_type.is_floating for m in (first, second, weights)):
        return None
    return _Description(first, second, scores, weights).attention(parts)


class _Description:
    """Builds the `Attention` of a fusion: finds its arrays' strides along dimensions of the weights."""

    def __init__(
        self, first: HloInstruction, second: HloInstruction, scores: HloInstruction, weights: HloInstruction
    ) -> None:
        self.first, self.second, self.scores, self.weights = first, second, scores, weights
        self.sizes, self.last = weights.shape.dimensions, weights.shape.rank - 1

    def attention(self, parts: KernelParts) -> Attention | None:
        """Return the `Attention` of the fusion that ``parts`` describe; None if the kernel cannot compute it.

        For example, the elements of all arrays must lie at constant strides, and keys and values must be the
        same for all rows of a block.
        """
        first, second = self.first, self.second
        views = [read_through(o) for o in (*first.operands, *second.operands)]
        placed, stored = written_through(first, self.scores), written_through(second, parts.roots[0])
        if placed is None or stored is None:
            return None
        queries, keys, inner, values = views
        if queries is None or keys is None or inner is None or values is None:
            return None
        if any(view is not None and view.packed for view in views):
            return None
        arrays = queries.source, keys.source, values.source
        if inner.source is not self.weights or any(not isinstance(a.operation, Parameter) for a in arrays):
            return None
        of_first = self.dimensions(placed, first.shape.dimensions)
        of_inner = self.dimensions(inner, second.operands[0].shape.dimensions)
        if of_first is None or of_inner is None:
            return None
        of_second = {r: of_inner[d] for d, r in results_of(second, 0).items() if d in of_inner}
        summed = [of_inner[d] for d in inner_of(operation_of(second, Dot), 0) if d in of_inner]
        axes = [_axes(first, 0, queries, of_first), _axes(first, 1, keys, of_first)]
        axes += [_axes(second, 1, values, of_second), {p: stored.strides[r] for r, p in of_second.items()}]
        blocked = [
            p for p in range(self.last) if p not in axes[1] and p not in axes[2] and self.sizes[p] >= FEWEST
        ]
        if summed != [self.last] or self.last in axes[0] or self.last not in axes[1] or not blocked:
            return None
        row = max(blocked, key=self.sizes.__getitem__)
        batch = tuple(p for p in range(self.last) if p != row and self.sizes[p] != 1)
        products = self.products(row, batch, (queries, keys, values, stored), axes)
        rows = row_operations(parts, [self.scores], [self.weights])
        if products is None or rows is None:
            return None
        return Attention(self.scores, self.weights, *rows, row, batch, products[:2], arrays, products[2])

    def dimensions(self, view: Strided, dimensions: Sequence[int]) -> dict[int, int] | None:
        """Return a map from the dimensions of a transpose of the attention weights to those of the weights.

        Dimensions of size 1 are left out. ``view`` has the strides of the transpose in the array of weights,
        ``dimensions`` its sizes. Return None if these are not the strides and sizes of a transpose.
        """
        places = {stride: p for p, stride in enumerate(row_major_strides(self.sizes)) if self.sizes[p] != 1}
        mapped = {d: places.get(view.strides[d], -1) for d, size in enumerate(dimensions) if size != 1}
        fits = all(p >= 0 and self.sizes[p] == dimensions[d] for d, p in mapped.items())
        return mapped if fits and len(set(mapped.values())) == len(places) == len(mapped) else None

    def products(
        self, row: int, batch: tuple[int, ...], views: Sequence[Strided], axes: Sequence[Axes]
    ) -> tuple[Gemm, Gemm, Matrix] | None:
        """Return (Q Kᵀ, weights times V, place of the result): batched matrix products, and a batched matrix.

        Return None if strides do not allow it. ``row`` and ``batch`` are the dimensions of the weights that
        become rows and batches. ``views`` has the strides of (queries, keys, values, result) along their own
        dimensions, ``axes`` their strides along the dimensions of the weights.
        """
        queries, keys, values, stored = views
        of_queries, of_keys, of_values, of_result = axes
        first, second = self.first, self.second
        one, two = operation_of(first, Dot), operation_of(second, Dot)
        pairs = sorted(zip(inner_of(one, 0), inner_of(one, 1), strict=True))
        depth = merged(first.operands[0].shape.dimensions, queries.strides, [a for a, _ in pairs])
        key_depth = merged(first.operands[1].shape.dimensions, keys.strides, [b for _, b in pairs])
        free = free_of(second, two, 1)
        columns = merged(second.operands[1].shape.dimensions, values.strides, free)
        rank = second.shape.rank
        result_columns = merged(second.shape.dimensions, stored.strides, range(rank - len(free), rank))
        if depth is None or key_depth is None or columns is None or result_columns is None:
            return None
        if depth[0] > DEEPEST or result_columns[1] != 1 or columns[0] < 2:
            return None

        def along(strides: Axes) -> tuple[int, ...]:
            return tuple(strides.get(p, 0) for p in batch)

        n, m, count = self.sizes[self.last], self.sizes[row], tuple(self.sizes[p] for p in batch)
        (value_row,) = (
            values.strides[d] for d in inner_of(two, 1) if second.operands[1].shape.dimensions[d] != 1
        )
        kinds = [v.source.shape.element_type for v in (queries, keys, values)]
        weight_type = self.weights.shape.element_type
        scores = Gemm(
            count,
            m,
            n,
            depth[0],
            Matrix(along(of_queries), of_queries.get(row, 0), depth[1], queries.offset),
            Matrix(along(of_keys), key_depth[1], of_keys[self.last], keys.offset),
            sum_type(first.shape.element_type),
            kinds[0],
            kinds[1],
            ((), (), ()),
        )
        sums = Gemm(
            count,
            m,
            columns[0],
            n,
            Matrix((0,) * len(batch), row_bytes(self.scores) // storage_bytes(weight_type), 1),
            Matrix(along(of_values), value_row, columns[1], values.offset),
            sum_type(second.shape.element_type),
            weight_type,
            kinds[2],
            ((), (), ()),
        )
        return scores, sums, Matrix(along(of_result), of_result.get(row, 0), 1, stored.offset)


def row_operations(
    parts: KernelParts, scores: Sequence[HloInstruction], weights: Sequence[HloInstruction]
) -> RowOperations | None:
    """Return (operations from ``scores`` to ``weights``, their row-by-row plan, index of a row) or None.

    Return None if one of the operations is a dot, if none is a reduction, if a reduced array has dimensions
    other than those of the weights, or if an element is computed from a score with a different index.
    """
    members: dict[HloInstruction, None] = {}
    inputs: dict[HloInstruction, None] = dict.fromkeys(scores)
    waiting = list(weights)
    while waiting:
        i = waiting.pop()
        if i in members or i in inputs:
            continue
        if isinstance(i.operation, Dot):
            return None
        (inputs if isinstance(i.operation, Parameter) else members)[i] = None
        waiting += i.operands
    sizes = weights[0].shape.dimensions
    ordered = tuple(m for m in parts.members if m in members)
    reductions = [m for m in ordered if m.opcode == "reduce"]
    if not reductions or any(r.operands[0].shape.dimensions != sizes for r in reductions):
        return None
    part = KernelParts(tuple(inputs), tuple(weights), ordered)
    variables = tuple(Variable(size, "r") for size in sizes[:-1])
    indices = tuple(map(Index.of, variables))
    plan = plan_rows(part, reductions, Space((), indices))
    place = linearize((*indices, Index.of(plan.lane)), sizes)
    reads = (read for array in scores for read in plan.accesses.reads.get(array, ()))
    return (part, plan, variables) if all(read == place for read in reads) else None


def _axes(dot: HloInstruction, side: int, view: Strided, dimensions: Mapping[int, int]) -> Axes:
    """Return the strides of an operand of ``dot``, as a map from dimensions of the attention weights.

    Dimensions along which the operand does not vary are left out. ``side`` is 0 for the first operand, 1 for
    the second; ``view`` has the operand's strides along its own dimensions. ``dimensions`` maps dimensions of
    the dot's result to those of the weights.
    """
    return {dimensions[r]: view.strides[d] for d, r in results_of(dot, side).items() if r in dimensions}


def row_bytes(scores: HloInstruction) -> int:
    """Return the distance in bytes between neighbouring rows of scores in scratch memory.

    Rows are padded: rows that are a large power of two apart would compete for the same few cache sets.
    """
    size = scores.shape.dimensions[-1] * storage_bytes(scores.shape.element_type)
    return -(-size // 64) * 64 + 64


def has_attention_kernel(fusion: HloInstruction) -> bool:
    """Return whether the attention kernel can compute a fusion of two dots.

    The weights, which are stored over the scores, must not be wider than the scores; and `LEAST_BLOCK` rows
    of scores must fit into a block on the stack.
    """
    attention = attention_of(fusion)
    if attention is None:
        return False
    narrower = storage_bytes(attention.weights.shape.element_type) <= storage_bytes(
        attention.scores.shape.element_type
    )  # weights are stored over the scores
    return narrower and LEAST_BLOCK * row_bytes(attention.scores) <= BLOCK_BYTES


def plan_products(attention: Attention, target: Target) -> tuple[TilePlan, TilePlan]:
    """Return the plans of Q Kᵀ and of weights times V, whose tasks compute the same blocks of query rows.

    If a block has all rows, it packs the keys and values that need packing; otherwise separate kernels pack
    them before the blocks are computed.
    """
    plans = [plan_tiles(gemm, target, plain_result=False) for gemm in attention.products]
    height, single = block_rows(attention, math.lcm(*(plan.rows for plan in plans)))
    first, second = (_of_blocks(plan, height, single) for plan in plans)
    return first, second


def plan_amx_products(attention: Attention, target: Target) -> tuple[AmxPlan, AmxPlan] | None:
    """Return the plans of Q Kᵀ and of weights times V in AMX tiles; None if not all factors are bf16.

    Tiles of weights are loaded from the rows of weights.
    """
    first, second = attention.products
    if not (fits_amx(first, target) and fits_amx(second, target)):
        return None
    rows = LINES if first.m <= LINES else 2 * LINES
    height, _ = block_rows(attention, rows)
    scores, sums = (
        AmxPlan(gemm, rows, block_depth(steps_of(gemm)), height, -(-gemm.n // PANEL) * PANEL)
        for gemm in (first, second)
    )
    return scores, replace(sums, row_bytes=row_bytes(attention.scores))


def block_rows(attention: Attention, step: int) -> tuple[int, bool]:
    """Return (rows of a block, a multiple of ``step``; whether these are all rows, for there are few)."""
    gemm = attention.products[0]
    fitting = BLOCK_BYTES // row_bytes(attention.scores)
    single = gemm.batches >= TASKS // 4 and gemm.m <= min(fitting, FEW_ROWS)
    height = gemm.m if single else min(MOST_ROWS, fitting, max(step, gemm.m * gemm.batches // TASKS))
    blocks = -(-gemm.m // max(step, height // step * step))
    return -(-gemm.m // (blocks * step)) * step, single


def _of_blocks(plan: TilePlan, height: int, single: bool) -> TilePlan:
    """Return ``plan`` with tasks that compute ``height`` rows and all columns.

    ``single``: a task computes all rows, so that it may pack the product's second operand itself. Otherwise
    an operand that needs packing is packed by a separate kernel before the tasks.
    """
    width = -(-plan.gemm.n // plan.panel) * plan.panel
    packs_here = single and plan.pack_b != "block"
    pack_b = plan.pack_b if packs_here or not plan.pack_b else "group"
    return replace(plan, height=height, width=width, group_columns=width, slab=plan.steps, pack_b=pack_b)


def packed(plan: TilePlan) -> TilePlan:
    """Return the plan by which the second operand of ``plan``'s product is packed.

    It lacks the batch dimensions along which the operand does not vary, so that each element is packed once.
    """
    gemm = plan.gemm
    real = [n for n, stride in enumerate(gemm.b.batch) if stride]
    a, b = (Matrix(tuple(m.batch[n] for n in real), m.row, m.column, m.offset) for m in (gemm.a, gemm.b))
    return replace(plan, gemm=replace(gemm, batch=tuple(gemm.batch[n] for n in real), a=a, b=b))
