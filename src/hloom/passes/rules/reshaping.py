"""Rules for reshape, transpose and reverse: chains become one, and what moves nothing becomes nothing."""

from __future__ import annotations

from typing import Final

from hloom.analysis.instructions import attributes
from hloom.ir.instruction import HloInstruction
from hloom.passes.rewriting import Family
from hloom.passes.rules.dimensions import inverse, one_to_one, reshape_groups, squeezed, true_dimensions
from hloom.passes.writing import Writer

RULES: Final = Family("reshaping")


def dimensions_of(i: HloInstruction) -> tuple[int, ...]:
    """The attribute ``dimensions``."""
    operation = attributes(i)
    return operation.dimensions


# -- reshape


@RULES.rewrites("reshape")
def reshape_to_the_same(i: HloInstruction) -> HloInstruction | None:
    """``reshape(x)`` → ``x`` of equal dimensions."""
    return i.operands[0] if i.shape.dimensions == i.operands[0].shape.dimensions else None


@RULES.rewrites("reshape")
def reshape_twice(i: HloInstruction) -> HloInstruction | None:
    """``reshape(reshape(x))`` → ``reshape(x)``."""
    (x,) = i.operands
    return Writer(i).reshape(x.operands[0], i.shape.dimensions) if x.opcode == "reshape" else None


@RULES.rewrites("reshape")
def reshape_of_broadcast(i: HloInstruction) -> HloInstruction | None:
    """``reshape(broadcast(x))`` → ``broadcast(reshape(x))`` where repeated and other sizes do not mix."""
    (spread,) = i.operands
    if spread.opcode != "broadcast":
        return None
    (x,) = spread.operands
    own = {d: n for n, d in enumerate(dimensions_of(spread)) if spread.shape.dimensions[d] != 1}
    groups = reshape_groups(spread.shape.dimensions, i.shape.dimensions)
    if groups is None:
        return None
    kept: list[int] = []
    for before, after in groups:
        mine = [d in own for d in before]
        if all(mine):
            kept.extend(after)
        elif any(mine):
            return None
    order = [own[d] for before, _ in groups for d in before if d in own]
    splits = one_to_one([g for g in groups if g[0][0] in own]) is None
    if splits and order != sorted(order):
        return None
    w = Writer(i)
    if order != sorted(order):
        kept = [kept[order.index(n)] for n in sorted(order)]
    inner = w.reshape(x, [i.shape.dimensions[d] for d in kept])
    return w.broadcast(inner, i.shape.dimensions, kept)


@RULES.rewrites("reshape")
def reshape_of_iota(i: HloInstruction) -> HloInstruction | None:
    """``reshape(iota())`` → ``iota()`` where the counting dimension stays one."""
    (iota,) = i.operands
    if iota.opcode != "iota":
        return None
    operation = attributes(iota)
    groups = reshape_groups(iota.shape.dimensions, i.shape.dimensions)
    if groups is None:
        return None
    for before, after in groups:
        if before == (operation.iota_dimension,) and len(after) == 1:
            return Writer(i).op("iota", shape=i.shape, iota_dimension=after[0])
    return None


@RULES.rewrites("dynamic-reshape")
def dynamic_reshape_of_static(i: HloInstruction) -> HloInstruction | None:
    """``dynamic-reshape(x, sizes...)`` → ``reshape(x)`` where the result is static."""
    return Writer(i).reshape(i.operands[0], i.shape.dimensions)


# -- transpose


@RULES.rewrites("transpose")
def transpose_of_nothing(i: HloInstruction) -> HloInstruction | None:
    """``transpose(x)`` → ``reshape(x)`` where only dimensions of size 1 move; ``x`` where none does."""
    (x,) = i.operands
    moved = [d for d in dimensions_of(i) if x.shape.dimensions[d] != 1]
    if moved != sorted(moved):
        return None
    return Writer(i).reshape(x, i.shape.dimensions)


@RULES.rewrites("transpose")
def transpose_twice(i: HloInstruction) -> HloInstruction | None:
    """``transpose(transpose(x))`` → ``transpose(x)``."""
    (inner,) = i.operands
    if inner.opcode != "transpose":
        return None
    order = [dimensions_of(inner)[d] for d in dimensions_of(i)]
    return Writer(i).op("transpose", inner.operands[0], dimensions=tuple(order))


@RULES.rewrites("transpose")
def transpose_of_broadcast(i: HloInstruction) -> HloInstruction | None:
    """``transpose(broadcast(x))`` → ``broadcast(x)`` into the permuted dimensions."""
    (spread,) = i.operands
    if spread.opcode != "broadcast":
        return None
    place = inverse(dimensions_of(i))
    into = [place[d] for d in dimensions_of(spread)]
    return Writer(i).broadcast(spread.operands[0], i.shape.dimensions, into)


@RULES.rewrites("transpose")
def transpose_of_iota(i: HloInstruction) -> HloInstruction | None:
    """``transpose(iota())`` → ``iota()`` along the dimension's new place."""
    (iota,) = i.operands
    if iota.opcode != "iota":
        return None
    dimension: int = attributes(iota).iota_dimension
    place = inverse(dimensions_of(i))[dimension]
    return Writer(i).op("iota", shape=i.shape, iota_dimension=place)


@RULES.rewrites("transpose")
def transpose_of_reshape(i: HloInstruction) -> HloInstruction | None:
    """``transpose(reshape(x))`` → ``reshape(transpose(x))`` where only sizes of 1 come or go."""
    (inner,) = i.operands
    if inner.opcode != "reshape":
        return None
    (x,) = inner.operands
    if squeezed(x.shape.dimensions) != squeezed(inner.shape.dimensions) or 0 in x.shape.dimensions:
        return None
    theirs, mine = true_dimensions(inner.shape.dimensions), true_dimensions(x.shape.dimensions)
    back = dict(zip(theirs, mine, strict=True))
    order = [back[d] for d in dimensions_of(i) if d in back]
    ones = [d for d in range(x.shape.rank) if x.shape.dimensions[d] == 1]
    w = Writer(i)
    return w.reshape(w.op("transpose", x, dimensions=(*ones, *order)), i.shape.dimensions)


# -- reverse


@RULES.rewrites("reverse")
def reverse_of_few(i: HloInstruction) -> HloInstruction | None:
    """``reverse(x)`` → ``x`` where only dimensions of size 1 are reversed; else without those."""
    (x,) = i.operands
    real = tuple(d for d in dimensions_of(i) if x.shape.dimensions[d] != 1)
    if len(real) == len(dimensions_of(i)) and real:
        return None
    return Writer(i).op("reverse", x, dimensions=real) if real else x


@RULES.rewrites("reverse")
def reverse_twice(i: HloInstruction) -> HloInstruction | None:
    """``reverse(reverse(x))`` → ``reverse(x)`` of the dimensions that only one of them reverses."""
    (inner,) = i.operands
    if inner.opcode != "reverse":
        return None
    (x,) = inner.operands
    odd = tuple(sorted(set(dimensions_of(i)) ^ set(dimensions_of(inner))))
    return Writer(i).op("reverse", x, dimensions=odd) if odd else x


@RULES.rewrites("reverse")
def reverse_of_broadcast(i: HloInstruction) -> HloInstruction | None:
    """``reverse(broadcast(x))`` → ``broadcast(reverse(x))``; ``broadcast(x)`` along repeated dimensions."""
    (spread,) = i.operands
    if spread.opcode != "broadcast":
        return None
    (x,) = spread.operands
    into = dimensions_of(spread)
    reversed_ = tuple(n for n, d in enumerate(into) if d in dimensions_of(i))
    if not reversed_:
        return spread
    w = Writer(i)
    return w.broadcast(w.op("reverse", x, dimensions=reversed_), i.shape.dimensions, into)
