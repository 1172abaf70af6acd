"""Rules for dots: fold surrounding operations into the dimension numbers.

The rules propose rewrites; `hloom.passes.layout.dot_decomposer` decides, since it knows which dots are
matrix products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.analysis.values import holds
from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import Multiply
from hloom.operations.contraction import Dot
from hloom.operations.conversion import Convert
from hloom.operations.movement import Broadcast, Transpose
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Constant
from hloom.passes.rewriting import RuleFamily
from hloom.passes.rules.dimensions import inverse, reshape_groups, squeezed, true_dimensions
from hloom.passes.writing import Writer
from hloom.shape import element_type as et

FOLDS: Final = RuleFamily("dot folds")
"""Rules for every dot, if it stays or becomes a matrix product."""
REPAIRS: Final = RuleFamily("dot repairs")
"""Rules for dots that are not matrix products but may become ones."""


LONGEST_SHORT: Final = 24
"""Maximum number of elements of a vector, and of rows of a matrix, that are multiplied without a product."""
FEWEST_SHORT: Final = 32
"""Minimum number of such vectors."""


def batch_of(dot: Dot, side: int) -> tuple[int, ...]:
    """Return the batch dimensions of one operand."""
    return (dot.lhs_batch_dims, dot.rhs_batch_dims)[side]


def inner_of(dot: Dot, side: int) -> tuple[int, ...]:
    """Return the contracting dimensions of one operand."""
    return (dot.lhs_contracting_dims, dot.rhs_contracting_dims)[side]


def free_of(i: HloInstruction, dot: Dot, side: int) -> list[int]:
    """Return the dimensions of one operand that are neither batch nor contracting."""
    used = (*batch_of(dot, side), *inner_of(dot, side))
    return [d for d in range(i.operands[side].shape.rank) if d not in used]


def results_of(dot: HloInstruction, side: int) -> dict[int, int]:
    """Return the dimension of a dot's result for each batch or free dimension of an operand."""
    operation = operation_of(dot, Dot)
    batch, free = batch_of(operation, side), free_of(dot, operation, side)
    first = len(batch) if side == 0 else dot.shape.rank - len(free)
    return {d: n for n, d in enumerate(batch)} | {d: first + n for n, d in enumerate(free)}


def renumbered(dot: Dot, side: int, batch: Sequence[int], inner: Sequence[int]) -> Dot:
    """Return a dot with other batch and contracting dimensions of one operand."""
    if side == 0:
        return dot.replace(lhs_batch_dims=tuple(batch), lhs_contracting_dims=tuple(inner))
    return dot.replace(rhs_batch_dims=tuple(batch), rhs_contracting_dims=tuple(inner))


def swapped_dot(dot: Dot) -> Dot:
    """Return the dot with its operands exchanged, which transposes its rows and columns."""
    lhs = {"lhs_batch_dims": dot.rhs_batch_dims, "lhs_contracting_dims": dot.rhs_contracting_dims}
    rhs = {"rhs_batch_dims": dot.lhs_batch_dims, "rhs_contracting_dims": dot.lhs_contracting_dims}
    return dot.replace(**lhs, **rhs, operand_precision=dot.operand_precision[::-1])


@FOLDS.rewrites(Dot)
def dot_of_transpose(i: HloInstruction, dot: Dot) -> HloInstruction | None:
    """``dot(transpose(x), y)`` → ``dot(x, y)`` where the free dimensions of x stay in order; same for y.

    A reshape of the transpose may add and remove dimensions of size 1: a slice of a stack has one.
    """
    for side in (0, 1):
        moved = factor = i.operands[side]
        if isinstance(factor.operation, Reshape):
            (moved,) = factor.operands
        if not isinstance(moved.operation, Transpose):
            continue
        (x,) = moved.operands
        order = _moved_dimensions(factor, moved, moved.operation)
        if order is None or any(d not in order for d in (*batch_of(dot, side), *inner_of(dot, side))):
            continue
        free = [order[d] for d in free_of(i, dot, side) if factor.shape.dimensions[d] != 1]
        if free != sorted(free):
            continue
        operands = list(i.operands)
        operands[side] = x
        batch, inner = ([order[d] for d in some] for some in (batch_of(dot, side), inner_of(dot, side)))
        product_of_operand = Writer(i).like(renumbered(dot, side, batch, inner), *operands)
        return Writer(i).reshape(product_of_operand, i.shape.dimensions)
    return None


def _moved_dimensions(
    factor: HloInstruction, moved: HloInstruction, transpose: Transpose
) -> dict[int, int] | None:
    """Return the dimension of a transpose's operand for each dimension of the transpose, or of its reshape.

    None if the reshape does more than to add and remove dimensions of size 1.
    """
    if factor is moved:
        return dict(enumerate(transpose.dimensions))
    after, before = factor.shape.dimensions, moved.shape.dimensions
    if squeezed(after) != squeezed(before):
        return None
    pairs = zip(true_dimensions(after), true_dimensions(before), strict=True)
    return {d: transpose.dimensions[n] for d, n in pairs}


@FOLDS.rewrites(Transpose, of=Dot)
def transpose_of_dot(i: HloInstruction, transpose: Transpose, dot: Dot) -> HloInstruction | None:
    """``transpose(dot(x, y))`` → ``dot(y, x)`` where that has the transposed order of dimensions."""
    (product,) = i.operands
    if len(product.users) > 1 or product.is_root:
        return None
    order = list(transpose.dimensions)
    batch, rows = len(batch_of(dot, 0)), len(free_of(product, dot, 0))
    if sorted(order[:batch]) != list(range(batch)):
        return None
    sizes, rank = product.shape.dimensions, product.shape.rank
    free = [d for d in order[batch:] if sizes[d] != 1]
    straight = [d for d in range(batch, rank) if sizes[d] != 1]
    swapped = [d for d in (*range(batch + rows, rank), *range(batch, batch + rows)) if sizes[d] != 1]
    if free not in (straight, swapped):
        return None
    for side in (0, 1):
        dot = renumbered(dot, side, [batch_of(dot, side)[n] for n in order[:batch]], inner_of(dot, side))
    if free == straight:
        transposed = Writer(product).like(dot, *product.operands)
    else:
        transposed = Writer(product).like(swapped_dot(dot), *product.operands[::-1])
    return Writer(i).reshape(transposed, i.shape.dimensions)


@FOLDS.rewrites(Transpose, of=Dot)
def transpose_of_rows(i: HloInstruction, transpose: Transpose, dot: Dot) -> HloInstruction | None:
    """``transpose(dot(x, y))`` → ``transpose(dot(y, x))`` where rows of y become the last dimension.

    The columns of the new product are contiguous in the result, so that its kernel can store them there.
    """
    (product,) = i.operands
    if len(product.users) > 1 or product.is_root:
        return None
    batch, columns, rank = len(batch_of(dot, 0)), len(free_of(product, dot, 1)), product.shape.rank
    minor = next((d for d in reversed(transpose.dimensions) if product.shape.dimensions[d] != 1), 0)
    if not batch <= minor < rank - columns or not true_dimensions(product.shape.dimensions[rank - columns :]):
        return None
    turned = Writer(product).like(swapped_dot(dot), *product.operands[::-1])
    swap = [*range(batch), *range(rank - columns, rank), *range(batch, rank - columns)]
    order = tuple(swap.index(d) for d in transpose.dimensions)
    return Writer(i).op(Transpose(dimensions=order), turned)


@FOLDS.rewrites(Dot)
def dot_of_repeated_batch(i: HloInstruction, dot: Dot) -> HloInstruction | None:
    """``dot(x, broadcast(y))`` → ``dot(x, y)`` where y repeats along batch dimensions, which become rows."""
    spread = i.operands[1]
    if not isinstance(spread.operation, Broadcast):
        return None
    (y,) = spread.operands
    into = spread.operation.dimensions
    batch = batch_of(dot, 1)
    gone = [n for n, d in enumerate(batch) if d not in into]
    new = [d for d in range(spread.shape.rank) if d not in into]
    if not gone or any(d not in batch for d in new) or list(into) != sorted(into):
        return None
    batch_left = [n for n in range(len(batch)) if n not in gone]
    lhs = [batch_of(dot, 0)[n] for n in batch_left]
    rows = [d for d in range(i.operands[0].shape.rank) if d not in (*lhs, *inner_of(dot, 0))]
    if [*lhs, *rows] != [*batch_of(dot, 0), *free_of(i, dot, 0)]:
        return None
    new = renumbered(dot, 0, lhs, inner_of(dot, 0))
    new = renumbered(
        new, 1, [into.index(batch[n]) for n in batch_left], [into.index(d) for d in inner_of(dot, 1)]
    )
    return Writer(i).like(new, i.operands[0], y)


@FOLDS.rewrites(Dot)
def dot_of_converts(i: HloInstruction, dot: Dot) -> HloInstruction | None:
    """``dot(convert(x), y)`` → ``dot(x, y)`` for lossless converts, which the dot performs itself."""
    operands = [_unconverted(o) for o in i.operands]
    if operands == i.operands:
        return None
    kinds = [o.shape.element_type for o in operands]
    natural = [k.is_floating for k in kinds]
    if any(k.is_predicate or k.is_complex for k in kinds) or natural[0] != natural[1]:
        return None
    if natural[0] != i.shape.element_type.is_floating or not all(
        holds(i.shape.element_type, k) for k in kinds
    ):
        return None
    return Writer(i).like(dot, *operands)


def _unconverted(x: HloInstruction) -> HloInstruction:
    if not isinstance(x.operation, Convert) or len(x.users) > 1:
        return x
    (source,) = x.operands
    wide, narrow = x.shape.element_type, source.shape.element_type
    return source if narrow.bits >= 8 and holds(wide, narrow) else x


@FOLDS.rewrites(Dot)
def dot_as_product(i: HloInstruction, dot: Dot) -> HloInstruction | None:
    """``dot(x, y)`` with contracting dimensions of size 1, or none → ``broadcast(x) * broadcast(y)``."""
    kind = i.shape.element_type
    lhs, rhs = i.operands
    if kind.is_complex or any(lhs.shape.dimensions[d] != 1 for d in inner_of(dot, 0)):
        return None
    if any(not holds(kind, o.shape.element_type) for o in (lhs, rhs)):
        return None
    w = Writer(i)
    batch, rows = len(batch_of(dot, 0)), len(free_of(i, dot, 0))
    first = list(range(batch + rows))
    second = [*range(batch), *range(batch + rows, i.shape.rank)]
    factors = [
        w.broadcast(w.convert(_in_order(w, i, dot, side), kind), i.shape.dimensions, into)
        for side, into in ((0, first), (1, second))
    ]
    return w.op(Multiply(), *factors)


@FOLDS.rewrites(Dot, reorders=True)
def dot_of_short_vectors(i: HloInstruction, dot: Dot) -> HloInstruction | None:
    """``dot(A, x)`` of many short vectors, with small matrices or vectors → ``sum(A * broadcast(x))``.

    The sum runs with vectors of the batch as lanes, and is fused with what computes A and x. In f32 and f64,
    whose products and sums are formed in the result's own type.
    """
    kind, free = i.shape.element_type, [free_of(i, dot, side) for side in (0, 1)]
    if kind not in (et.F32, et.F64) or any(o.shape.element_type is not kind for o in i.operands):
        return None
    if all(free):
        return None
    matrix = int(bool(free[1]))
    sizes = i.operands[matrix].shape.dimensions
    longest = max(math.prod(sizes[d] for d in some) for some in (free[matrix], inner_of(dot, matrix)))
    count = math.prod(sizes[d] for d in batch_of(dot, matrix))
    if not 1 < longest <= LONGEST_SHORT or count < FEWEST_SHORT:
        return None
    w = Writer(i)
    kept = (*batch_of(dot, matrix), *inner_of(dot, matrix))
    order = sorted(range(len(kept)), key=kept.__getitem__)
    vectors = i.operands[1 - matrix]
    here = [(*batch_of(dot, 1 - matrix), *inner_of(dot, 1 - matrix))[n] for n in order]
    if here != list(range(len(here))):
        vectors = w.op(Transpose(dimensions=tuple(here)), vectors)
    factor = w.broadcast(vectors, sizes, [kept[n] for n in order])
    factors = (factor, i.operands[1]) if matrix else (i.operands[0], factor)
    total = w.sum(w.op(Multiply(), *factors), inner_of(dot, matrix))
    left = [d for d in range(len(sizes)) if d not in inner_of(dot, matrix)]
    results = [left.index(d) for d in (*batch_of(dot, matrix), *free[matrix])]
    return total if results == sorted(results) else w.op(Transpose(dimensions=tuple(results)), total)


def _in_order(w: Writer, i: HloInstruction, dot: Dot, side: int) -> HloInstruction:
    """Return an operand without its contracting dimensions, its batch dimensions first."""
    x = i.operands[side]
    order = (*batch_of(dot, side), *free_of(i, dot, side))
    if (*order, *inner_of(dot, side)) != tuple(range(x.shape.rank)):
        x = w.op(Transpose(dimensions=(*order, *inner_of(dot, side))), x)
    return w.reshape(x, x.shape.dimensions[: len(order)])


@FOLDS.rewrites(Dot)
def dot_of_nothing(i: HloInstruction, dot: Dot) -> HloInstruction | None:
    """``dot(x, y)`` with a contracting dimension of size 0 → ``0``."""
    if all(i.operands[0].shape.dimensions[d] for d in inner_of(dot, 0)):
        return None
    return Writer(i).full(0, i.shape)


@REPAIRS.rewrites(Dot)
def dot_of_vector(i: HloInstruction, dot: Dot) -> HloInstruction | None:
    """``dot(A, x)`` → ``dot(x, A)`` where rows of A are contracted, so that lanes run along its columns."""
    lhs, rhs = i.operands
    columns = [d for d in free_of(i, dot, 1) if rhs.shape.dimensions[d] != 1]
    real = true_dimensions(lhs.shape.dimensions)
    if columns or not real or real[-1] not in free_of(i, dot, 0):
        return None
    return Writer(i).reshape(Writer(i).like(swapped_dot(dot), rhs, lhs), i.shape.dimensions)


@REPAIRS.rewrites(Dot)
def dot_of_reshape(i: HloInstruction, dot: Dot) -> HloInstruction | None:
    """``dot(reshape(x), y)`` → ``reshape(dot(x, y))`` where only free dimensions are split or merged."""
    for side in (0, 1):
        if not isinstance(i.operands[side].operation, Reshape):
            continue
        (x,) = i.operands[side].operands
        groups = reshape_groups(i.operands[side].shape.dimensions, x.shape.dimensions)
        positions = {before[0]: after[0] for before, after in groups or () if len(before) == len(after) == 1}
        named = (*batch_of(dot, side), *inner_of(dot, side))
        if groups is None or any(d not in positions for d in named):
            continue
        operands = list(i.operands)
        operands[side] = x
        batch, inner = ([positions[d] for d in some] for some in (batch_of(dot, side), inner_of(dot, side)))
        return Writer(i).reshape(
            Writer(i).like(renumbered(dot, side, batch, inner), *operands), i.shape.dimensions
        )
    return None


def _in_memory_order(i: HloInstruction, dot: Dot) -> Dot:
    """Return a dot whose sums are over the dimensions of the larger operand in ascending order."""
    large = int(i.operands[1].shape.element_count > i.operands[0].shape.element_count)
    pairs = sorted(zip(inner_of(dot, 0), inner_of(dot, 1), strict=True), key=lambda pair: pair[large])
    for side in (0, 1):
        dot = renumbered(dot, side, batch_of(dot, side), [pair[side] for pair in pairs])
    return dot


@REPAIRS.rewrites(Dot, reorders=True)
def dot_of_several_sums(i: HloInstruction, dot: Dot) -> HloInstruction | None:
    """``dot(x, y)`` over several dimensions → ``sum(dot(x, y))`` over the longest, the others as batches.

    Applied where these products are smaller than what would have to be transposed instead, and more than one
    number, which takes all elements in either form.
    """
    x, y = i.operands
    pairs = sorted(
        zip(inner_of(dot, 0), inner_of(dot, 1), strict=True), key=lambda pair: x.shape.dimensions[pair[0]]
    )
    if not pairs:
        return None
    *others, longest = pairs
    count = math.prod(x.shape.dimensions[d] for d, _ in others)
    moved = [
        operand.shape.element_count
        for operand, order in zip(i.operands, _canonical_orders(i, _in_memory_order(i, dot)), strict=True)
        if order != tuple(range(operand.shape.rank)) and not isinstance(operand.operation, Constant)
    ]
    if count == 1 or not i.shape.rank or i.shape.element_count * count > max(moved, default=0):
        return None
    for side in (0, 1):
        batch = (*batch_of(dot, side), *(pair[side] for pair in others))
        dot = renumbered(dot, side, batch, [longest[side]])
    w = Writer(i)
    kind, first = i.shape.element_type, len(batch_of(dot, 0)) - len(others)
    products = w.like(dot, x, y)
    if kind.is_floating and kind.bits < et.F32.bits:
        products.shape = products.shape.with_element_type(et.F32)
    return w.convert(w.sum(products, range(first, first + len(others))), kind)


def _canonical_orders(i: HloInstruction, dot: Dot) -> list[tuple[int, ...]]:
    """Return the dimensions of both operands in the order of matrix products."""
    return [
        (*batch_of(dot, 0), *free_of(i, dot, 0), *inner_of(dot, 0)),
        (*batch_of(dot, 1), *inner_of(dot, 1), *free_of(i, dot, 1)),
    ]


@REPAIRS.rewrites(Dot, reorders=True)
def dot_in_canonical_order(i: HloInstruction, dot: Dot) -> HloInstruction | None:
    """``dot(x, y)`` → ``dot(transpose(x), y)``: batch, rows, inner of x; batch, inner, columns of y.

    Several inner dimensions are those of the larger operand in its order, so that it may stay as it is.
    """
    dot = _in_memory_order(i, dot)
    orders = _canonical_orders(i, dot)
    w = Writer(i)
    operands = [
        x if order == tuple(range(x.shape.rank)) else w.op(Transpose(dimensions=order), x)
        for x, order in zip(i.operands, orders, strict=True)
    ]
    if operands == i.operands and dot == i.operation:
        return None
    places = [inverse(order) for order in orders]
    new = dot
    for side in (0, 1):
        batch, inner = (
            [places[side][d] for d in some] for some in (batch_of(dot, side), inner_of(dot, side))
        )
        new = renumbered(new, side, batch, inner)
    return Writer(i).like(new, *operands)
