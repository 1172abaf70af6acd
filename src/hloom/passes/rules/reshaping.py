"""Rules for reshape, transpose and reverse: merge chains and remove identities."""

from __future__ import annotations

from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.operations.movement import Broadcast, Reverse, Transpose
from hloom.operations.reshaping import DynamicReshape, Reshape
from hloom.operations.structure import Iota
from hloom.passes.rewriting import RuleFamily
from hloom.passes.rules.dimensions import inverse, one_to_one, reshape_groups, squeezed, true_dimensions
from hloom.passes.writing import Writer

RULES: Final = RuleFamily("reshaping")


# -- reshape


@RULES.rewrites(Reshape)
def reshape_to_the_same(i: HloInstruction, reshape: Reshape) -> HloInstruction | None:
    """``reshape(x)`` → ``x`` of equal dimensions."""
    return i.operands[0] if i.shape.dimensions == i.operands[0].shape.dimensions else None


@RULES.rewrites(Reshape, of=Reshape)
def reshape_twice(i: HloInstruction, reshape: Reshape, inner: Reshape) -> HloInstruction | None:
    """``reshape(reshape(x))`` → ``reshape(x)``."""
    (x,) = i.operands
    return Writer(i).reshape(x.operands[0], i.shape.dimensions)


@RULES.rewrites(Reshape, of=Broadcast)
def reshape_of_broadcast(i: HloInstruction, reshape: Reshape, broadcast: Broadcast) -> HloInstruction | None:
    """``reshape(broadcast(x))`` → ``broadcast(reshape(x))`` where no group mixes repeated and other sizes."""
    (spread,) = i.operands
    (x,) = spread.operands
    nontrivial = {d: n for n, d in enumerate(broadcast.dimensions) if spread.shape.dimensions[d] != 1}
    groups = reshape_groups(spread.shape.dimensions, i.shape.dimensions)
    if groups is None:
        return None
    dimensions_left: list[int] = []
    for before, after in groups:
        mine = [d in nontrivial for d in before]
        if all(mine):
            dimensions_left.extend(after)
        elif any(mine):
            return None
    order = [nontrivial[d] for before, _ in groups for d in before if d in nontrivial]
    splits = one_to_one([g for g in groups if g[0][0] in nontrivial]) is None
    if splits and order != sorted(order):
        return None
    w = Writer(i)
    if order != sorted(order):
        dimensions_left = [dimensions_left[order.index(n)] for n in sorted(order)]
    inner = w.reshape(x, [i.shape.dimensions[d] for d in dimensions_left])
    return w.broadcast(inner, i.shape.dimensions, dimensions_left)


@RULES.rewrites(Reshape, of=Iota)
def reshape_of_iota(i: HloInstruction, reshape: Reshape, iota: Iota) -> HloInstruction | None:
    """``reshape(iota())`` → ``iota()`` where the iota dimension is neither split nor merged."""
    operation = iota
    groups = reshape_groups(i.operands[0].shape.dimensions, i.shape.dimensions)
    if groups is None:
        return None
    for before, after in groups:
        if before == (operation.iota_dimension,) and len(after) == 1:
            return Writer(i).op(Iota(iota_dimension=after[0]), shape=i.shape)
    return None


@RULES.rewrites(DynamicReshape)
def dynamic_reshape_of_static(i: HloInstruction, dynamic_reshape: DynamicReshape) -> HloInstruction | None:
    """``dynamic-reshape(x, sizes...)`` → ``reshape(x)`` where the result is static."""
    return Writer(i).reshape(i.operands[0], i.shape.dimensions)


# -- transpose


@RULES.rewrites(Transpose)
def transpose_of_nothing(i: HloInstruction, transpose: Transpose) -> HloInstruction | None:
    """``transpose(x)`` → ``reshape(x)`` where only dimensions of size 1 move, ``x`` where none moves."""
    (x,) = i.operands
    moved = [d for d in transpose.dimensions if x.shape.dimensions[d] != 1]
    if moved != sorted(moved):
        return None
    return Writer(i).reshape(x, i.shape.dimensions)


@RULES.rewrites(Transpose, of=Transpose)
def transpose_twice(
    i: HloInstruction, transpose: Transpose, inner_transpose: Transpose
) -> HloInstruction | None:
    """``transpose(transpose(x))`` → ``transpose(x)``."""
    (inner,) = i.operands
    order = [inner_transpose.dimensions[d] for d in transpose.dimensions]
    return Writer(i).op(Transpose(dimensions=tuple(order)), inner.operands[0])


@RULES.rewrites(Transpose, of=Broadcast)
def transpose_of_broadcast(
    i: HloInstruction, transpose: Transpose, broadcast: Broadcast
) -> HloInstruction | None:
    """``transpose(broadcast(x))`` → ``broadcast(x)`` into the permuted dimensions."""
    (spread,) = i.operands
    positions = inverse(transpose.dimensions)
    into = [positions[d] for d in broadcast.dimensions]
    return Writer(i).broadcast(spread.operands[0], i.shape.dimensions, into)


@RULES.rewrites(Transpose, of=Iota)
def transpose_of_iota(i: HloInstruction, transpose: Transpose, iota: Iota) -> HloInstruction | None:
    """``transpose(iota())`` → ``iota()`` along the permuted dimension."""
    dimension = iota.iota_dimension
    position = inverse(transpose.dimensions)[dimension]
    return Writer(i).op(Iota(iota_dimension=position), shape=i.shape)


@RULES.rewrites(Transpose, of=Reshape)
def transpose_of_reshape(i: HloInstruction, transpose: Transpose, reshape: Reshape) -> HloInstruction | None:
    """``transpose(reshape(x))`` → ``reshape(transpose(x))`` where only sizes of 1 are added or removed."""
    (inner,) = i.operands
    (x,) = inner.operands
    if squeezed(x.shape.dimensions) != squeezed(inner.shape.dimensions) or 0 in x.shape.dimensions:
        return None
    theirs, mine = true_dimensions(inner.shape.dimensions), true_dimensions(x.shape.dimensions)
    back = dict(zip(theirs, mine, strict=True))
    order = [back[d] for d in transpose.dimensions if d in back]
    ones = [d for d in range(x.shape.rank) if x.shape.dimensions[d] == 1]
    w = Writer(i)
    return w.reshape(w.op(Transpose(dimensions=(*ones, *order)), x), i.shape.dimensions)


# -- reverse


@RULES.rewrites(Reverse)
def reverse_of_few(i: HloInstruction, reverse: Reverse) -> HloInstruction | None:
    """``reverse(x)`` → ``x`` where only dimensions of size 1 are reversed; else → without those."""
    (x,) = i.operands
    real = tuple(d for d in reverse.dimensions if x.shape.dimensions[d] != 1)
    if len(real) == len(reverse.dimensions) and real:
        return None
    return Writer(i).op(Reverse(dimensions=real), x) if real else x


@RULES.rewrites(Reverse, of=Reverse)
def reverse_twice(i: HloInstruction, reverse: Reverse, inner_reverse: Reverse) -> HloInstruction | None:
    """``reverse(reverse(x))`` → ``reverse(x)`` of the dimensions that exactly one of them reverses."""
    (inner,) = i.operands
    (x,) = inner.operands
    odd = tuple(sorted(set(reverse.dimensions) ^ set(inner_reverse.dimensions)))
    return Writer(i).op(Reverse(dimensions=odd), x) if odd else x


@RULES.rewrites(Reverse, of=Broadcast)
def reverse_of_broadcast(i: HloInstruction, reverse: Reverse, broadcast: Broadcast) -> HloInstruction | None:
    """``reverse(broadcast(x))`` → ``broadcast(reverse(x))``; ``broadcast(x)`` along repeated dimensions."""
    (spread,) = i.operands
    (x,) = spread.operands
    into = broadcast.dimensions
    reversed_ = tuple(n for n, d in enumerate(into) if d in reverse.dimensions)
    if not reversed_:
        return spread
    w = Writer(i)
    return w.broadcast(w.op(Reverse(dimensions=reversed_), x), i.shape.dimensions, into)
