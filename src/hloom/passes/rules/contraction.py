"""Rules for dots: what stands around them goes into their dimension numbers.

The rules propose; `hloom.passes.layout.dot_decomposer` decides, since it knows which dots are
matrix products.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hloom.analysis.instructions import attributes
from hloom.analysis.values import holds
from hloom.ir.instruction import HloInstruction
from hloom.passes.rewriting import Family
from hloom.passes.rules.dimensions import inverse, reshape_groups, true_dimensions
from hloom.passes.rules.reshaping import dimensions_of
from hloom.passes.writing import Writer

FOLDS: Final = Family("dot folds")
"""Rules for every dot that stays, or becomes, as good a product as it was."""
REPAIRS: Final = Family("dot repairs")
"""Rules for dots that are no matrix products, but may become ones."""

BATCH: Final = ("lhs_batch_dims", "rhs_batch_dims")
INNER: Final = ("lhs_contracting_dims", "rhs_contracting_dims")


def batch_of(i: HloInstruction, side: int) -> tuple[int, ...]:
    """The batch dimensions of one operand."""
    return getattr(attributes(i), BATCH[side])


def inner_of(i: HloInstruction, side: int) -> tuple[int, ...]:
    """The contracting dimensions of one operand."""
    return getattr(attributes(i), INNER[side])


def free_of(i: HloInstruction, side: int) -> list[int]:
    """The dimensions of one operand that are neither."""
    taken = (*batch_of(i, side), *inner_of(i, side))
    return [d for d in range(i.operands[side].shape.rank) if d not in taken]


def dot_like(
    i: HloInstruction, operands: Sequence[HloInstruction], numbers: dict[str, tuple[int, ...]] | None = None,
    *, swap: bool = False,
) -> HloInstruction:  # fmt: skip
    """A dot with the attributes and the element type of another; ``swap`` exchanges the precisions."""
    operation: Any = attributes(i).replace(**(numbers or {}))
    if swap:
        operation = operation.replace(operand_precision=operation.operand_precision[::-1])
    w = Writer(i)
    made = HloInstruction(w.module.unique_name("dot"), operation, i.shape, operands)
    made.shape = made.infer_shape().with_element_type(i.shape.element_type)
    made.metadata, made.backend_config = i.metadata, i.backend_config
    return w.computation.add(made)


def _numbers(side: int, batch: Sequence[int], inner: Sequence[int]) -> dict[str, tuple[int, ...]]:
    return {BATCH[side]: tuple(batch), INNER[side]: tuple(inner)}


@FOLDS.rewrites("dot")
def dot_of_transpose(i: HloInstruction) -> HloInstruction | None:
    """``dot(transpose(x), y)`` → ``dot(x, y)`` where the free dimensions of x stay in order; so for y."""
    for side in (0, 1):
        moved = i.operands[side]
        if moved.opcode != "transpose":
            continue
        order, (x,) = dimensions_of(moved), moved.operands
        free = [order[d] for d in free_of(i, side) if moved.shape.dimensions[d] != 1]
        if free != sorted(free):
            continue
        operands = list(i.operands)
        operands[side] = x
        batch, inner = [order[d] for d in batch_of(i, side)], [order[d] for d in inner_of(i, side)]
        made = dot_like(i, operands, _numbers(side, batch, inner))
        return Writer(i).reshape(made, i.shape.dimensions)
    return None


@FOLDS.rewrites("transpose")
def transpose_of_dot(i: HloInstruction) -> HloInstruction | None:
    """``transpose(dot(x, y))`` → ``dot(y, x)`` where that gives the dimensions in their order."""
    (dot,) = i.operands
    if dot.opcode != "dot" or len(dot.users) > 1 or dot.is_root:
        return None
    order = list(dimensions_of(i))
    batch, rows = len(batch_of(dot, 0)), len(free_of(dot, 0))
    if sorted(order[:batch]) != list(range(batch)):
        return None
    sizes = dot.shape.dimensions
    rest = [d for d in order[batch:] if sizes[d] != 1]
    straight = [d for d in range(batch, dot.shape.rank) if sizes[d] != 1]
    swapped = [
        d for d in (*range(batch + rows, dot.shape.rank), *range(batch, batch + rows)) if sizes[d] != 1
    ]
    sides = (0, 1) if rest == straight else (1, 0)
    if rest not in (straight, swapped):
        return None
    numbers = {
        name: tuple(getattr(attributes(dot), names[side])[place] for place in places)
        for names, places in ((BATCH, order[:batch]), (INNER, range(len(inner_of(dot, 0)))))
        for name, side in zip(names, sides, strict=True)
    }
    made = dot_like(dot, [dot.operands[s] for s in sides], numbers, swap=sides == (1, 0))
    return Writer(i).reshape(made, i.shape.dimensions)


@FOLDS.rewrites("dot")
def dot_of_repeated_batch(i: HloInstruction) -> HloInstruction | None:
    """``dot(x, broadcast(y))`` → ``dot(x, y)`` where y repeats in batch dimensions: now rows of x."""
    spread = i.operands[1]
    if spread.opcode != "broadcast":
        return None
    (y,) = spread.operands
    into = dimensions_of(spread)
    batch = batch_of(i, 1)
    gone = [n for n, d in enumerate(batch) if d not in into]
    new = [d for d in range(spread.shape.rank) if d not in into]
    if not gone or any(d not in batch for d in new) or list(into) != sorted(into):
        return None
    left = [n for n in range(len(batch)) if n not in gone]
    lhs = [batch_of(i, 0)[n] for n in left]
    numbers = _numbers(0, lhs, inner_of(i, 0)) | _numbers(
        1, [into.index(batch[n]) for n in left], [into.index(d) for d in inner_of(i, 1)]
    )
    rows = [d for d in range(i.operands[0].shape.rank) if d not in (*lhs, *inner_of(i, 0))]
    if [*lhs, *rows] != [*batch_of(i, 0), *free_of(i, 0)]:
        return None
    return dot_like(i, [i.operands[0], y], numbers)


@FOLDS.rewrites("dot")
def dot_of_converts(i: HloInstruction) -> HloInstruction | None:
    """``dot(convert(x), y)`` → ``dot(x, y)`` where nothing is lost: products convert as they go."""
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
    return dot_like(i, operands)


def _unconverted(x: HloInstruction) -> HloInstruction:
    if x.opcode != "convert" or len(x.users) > 1:
        return x
    (source,) = x.operands
    wide, narrow = x.shape.element_type, source.shape.element_type
    return source if narrow.bits >= 8 and holds(wide, narrow) else x


@FOLDS.rewrites("dot")
def dot_as_product(i: HloInstruction) -> HloInstruction | None:
    """``dot(x, y)`` along sizes of 1, or none → ``broadcast(x) * broadcast(y)``."""
    kind = i.shape.element_type
    lhs, rhs = i.operands
    if kind.is_complex or any(lhs.shape.dimensions[d] != 1 for d in inner_of(i, 0)):
        return None
    if any(not holds(kind, o.shape.element_type) for o in (lhs, rhs)):
        return None
    w = Writer(i)
    batch, rows = len(batch_of(i, 0)), len(free_of(i, 0))
    first = list(range(batch + rows))
    second = [*range(batch), *range(batch + rows, i.shape.rank)]
    factors = [
        w.broadcast(w.convert(_in_order(w, i, side), kind), i.shape.dimensions, into)
        for side, into in ((0, first), (1, second))
    ]
    return w.op("multiply", *factors)


def _in_order(w: Writer, i: HloInstruction, side: int) -> HloInstruction:
    """An operand without its contracting dimensions, its batch dimensions first."""
    x = i.operands[side]
    order = (*batch_of(i, side), *free_of(i, side))
    if (*order, *inner_of(i, side)) != tuple(range(x.shape.rank)):
        x = w.op("transpose", x, dimensions=(*order, *inner_of(i, side)))
    return w.reshape(x, x.shape.dimensions[: len(order)])


@FOLDS.rewrites("dot")
def dot_of_nothing(i: HloInstruction) -> HloInstruction | None:
    """``dot(x, y)`` along a size of 0 → ``0``."""
    if all(i.operands[0].shape.dimensions[d] for d in inner_of(i, 0)):
        return None
    return Writer(i).full(0, i.shape)


@REPAIRS.rewrites("dot")
def dot_of_vector(i: HloInstruction) -> HloInstruction | None:
    """``dot(A, x)`` → ``dot(x, A)`` where rows of A are contracted: lanes then run along its columns."""
    lhs, rhs = i.operands
    columns = [d for d in free_of(i, 1) if rhs.shape.dimensions[d] != 1]
    real = true_dimensions(lhs.shape.dimensions)
    if columns or not real or real[-1] not in free_of(i, 0):
        return None
    numbers = _numbers(0, batch_of(i, 1), inner_of(i, 1)) | _numbers(1, batch_of(i, 0), inner_of(i, 0))
    return Writer(i).reshape(dot_like(i, [rhs, lhs], numbers, swap=True), i.shape.dimensions)


@REPAIRS.rewrites("dot")
def dot_of_reshape(i: HloInstruction) -> HloInstruction | None:
    """``dot(reshape(x), y)`` → ``reshape(dot(x, y))`` where only free dimensions are split or joined."""
    for side in (0, 1):
        if i.operands[side].opcode != "reshape":
            continue
        (x,) = i.operands[side].operands
        groups = reshape_groups(i.operands[side].shape.dimensions, x.shape.dimensions)
        place = {before[0]: after[0] for before, after in groups or () if len(before) == len(after) == 1}
        named = (*batch_of(i, side), *inner_of(i, side))
        if groups is None or any(d not in place for d in named):
            continue
        operands = list(i.operands)
        operands[side] = x
        batch, inner = ([place[d] for d in some] for some in (batch_of(i, side), inner_of(i, side)))
        return Writer(i).reshape(dot_like(i, operands, _numbers(side, batch, inner)), i.shape.dimensions)
    return None


@REPAIRS.rewrites("dot")
def dot_in_canonical_order(i: HloInstruction) -> HloInstruction | None:
    """``dot(x, y)`` → ``dot(transpose(x), y)``: batch, rows, inner of x; batch, inner, columns of y."""
    orders = [
        (*batch_of(i, 0), *free_of(i, 0), *inner_of(i, 0)),
        (*batch_of(i, 1), *inner_of(i, 1), *free_of(i, 1)),
    ]
    w = Writer(i)
    operands = [
        x if order == tuple(range(x.shape.rank)) else w.op("transpose", x, dimensions=order)
        for x, order in zip(i.operands, orders, strict=True)
    ]
    if operands == i.operands:
        return None
    places = [inverse(order) for order in orders]
    numbers: dict[str, tuple[int, ...]] = {}
    for side in (0, 1):
        batch, inner = ([places[side][d] for d in some] for some in (batch_of(i, side), inner_of(i, side)))
        numbers |= _numbers(side, batch, inner)
    return dot_like(i, operands, numbers)
