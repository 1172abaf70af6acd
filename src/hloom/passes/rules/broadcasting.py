"""Rules for broadcast: merge chains, and compute before broadcasting instead of after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloom.analysis.instructions import splat
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import REGISTRY, Operation
from hloom.operations.movement import Broadcast, Transpose
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Iota
from hloom.passes.rewriting import RuleFamily
from hloom.passes.rules.dimensions import reshape_groups, squeezed, true_dimensions
from hloom.passes.writing import Writer
from hloom.shape.shape import Shape

RULES: Final = RuleFamily("broadcasting")

COMPUTED: Final = tuple(cls for cls in REGISTRY.values() if cls.elementwise and not cls.aliases_operand)
"""Elementwise operations that do not alias an operand."""


@RULES.rewrites(Broadcast)
def broadcast_to_the_same(i: HloInstruction, broadcast: Broadcast) -> HloInstruction | None:
    """``broadcast(x)`` → ``x``, ``reshape(x)`` or ``transpose(x)`` where no element is repeated."""
    (x,) = i.operands
    into = broadcast.dimensions
    real = [d for d in into if i.shape.dimensions[d] != 1]
    if real == sorted(real) and x.shape.element_count == i.shape.element_count and x.shape.rank:
        return Writer(i).reshape(x, i.shape.dimensions)
    if i.shape.rank != x.shape.rank or not x.shape.rank:
        return None
    return Writer(i).op(Transpose(dimensions=tuple(into.index(d) for d in range(i.shape.rank))), x)


@RULES.rewrites(Broadcast, of=Broadcast)
def broadcast_twice(
    i: HloInstruction, broadcast: Broadcast, inner_broadcast: Broadcast
) -> HloInstruction | None:
    """``broadcast(broadcast(x))`` → ``broadcast(x)``."""
    (inner,) = i.operands
    into = [broadcast.dimensions[d] for d in inner_broadcast.dimensions]
    return Writer(i).broadcast(inner.operands[0], i.shape.dimensions, into)


@RULES.rewrites(Broadcast, of=Reshape)
def broadcast_of_reshape(i: HloInstruction, broadcast: Broadcast, reshape: Reshape) -> HloInstruction | None:
    """``broadcast(reshape(x))`` → ``broadcast(x)`` or ``broadcast(reshape(x))`` without sizes of 1."""
    (inner,) = i.operands
    if 0 in i.shape.dimensions:
        return None
    (x,) = inner.operands
    into = [broadcast.dimensions[d] for d in true_dimensions(inner.shape.dimensions)]
    if squeezed(x.shape.dimensions) == x.shape.dimensions == squeezed(inner.shape.dimensions):
        return Writer(i).broadcast(x, i.shape.dimensions, into)
    if 1 in inner.shape.dimensions:
        w = Writer(i)
        return w.broadcast(w.reshape(x, squeezed(inner.shape.dimensions)), i.shape.dimensions, into)
    return None


@RULES.rewrites(Broadcast, of=Iota)
def broadcast_of_iota(i: HloInstruction, broadcast: Broadcast, iota: Iota) -> HloInstruction | None:
    """``broadcast(iota())`` → ``iota()`` of more dimensions."""
    dimension = iota.iota_dimension
    return Writer(i).op(Iota(iota_dimension=broadcast.dimensions[dimension]), shape=i.shape)


@RULES.rewrites(Iota)
def iota_of_one(i: HloInstruction, iota: Iota) -> HloInstruction | None:
    """``iota()`` → ``0`` along a dimension of size 1."""
    dimension = iota.iota_dimension
    if i.shape.dimensions[dimension] != 1 or i.shape.element_type.is_complex:
        return None
    return Writer(i).full(0, i.shape)


@RULES.rewrites(*COMPUTED)
def elementwise_of_broadcasts(i: HloInstruction, operation: Operation) -> HloInstruction | None:
    """``f(broadcast(x), broadcast(y))`` → ``broadcast(f(x, y))`` where both repeat along the same dimensions.

    Broadcasts of scalars match any dimensions.
    """
    if not i.shape.rank:
        return None
    into: tuple[int, ...] | None = None
    for operand in i.operands:
        match operand.operation:
            case Broadcast(dimensions=()):
                continue
            case Broadcast(dimensions=dimensions):
                if into is not None and into != dimensions:
                    return None
                into = dimensions
            case _:
                if operand.shape.rank and splat(operand) is None:
                    return None
    into = into or ()
    sizes = [i.shape.dimensions[d] for d in into]
    w = Writer(i)
    operands = [_before_spreading(w, operand, sizes) for operand in i.operands]
    return w.broadcast(_again(w, operands, sizes), i.shape.dimensions, into)


def _again(w: Writer, operands: Sequence[HloInstruction], sizes: Sequence[int]) -> HloInstruction:
    """Add the replaced elementwise operation on operands of other dimensions."""
    shape = Shape(w.source.shape.element_type, sizes)
    clone = w.source.clone(w.module.unique_name(w.source.opcode), operands=operands, shape=shape)
    clone.sharding = None
    return w.computation.add(clone)


def _before_spreading(w: Writer, operand: HloInstruction, sizes: list[int]) -> HloInstruction:
    """Return the operand of a broadcast, or a scalar broadcast to ``sizes``."""
    if operand.shape.rank == 0:
        return operand
    if isinstance(operand.operation, Broadcast) and list(operand.operands[0].shape.dimensions) == sizes:
        return operand.operands[0]
    source = operand
    while isinstance(source.operation, Broadcast) and source.shape.rank:
        source = source.operands[0]
    if not source.shape.rank:
        return w.broadcast(source, sizes)
    value = splat(operand)
    assert value is not None
    return w.full(value, Shape(operand.shape.element_type, sizes))


@RULES.rewrites(*COMPUTED)
def elementwise_of_reshapes(i: HloInstruction, operation: Operation) -> HloInstruction | None:
    """``f(reshape(x), reshape(y))`` → ``reshape(f(x, y))`` where x and y have the same dimensions.

    Broadcasts may be among the operands if they can be broadcast to those dimensions instead.
    """
    source: Shape | None = None
    for operand in i.operands:
        if isinstance(operand.operation, Reshape) and operand.shape.rank:
            if source is not None and source.dimensions != operand.operands[0].shape.dimensions:
                return None
            source = operand.operands[0].shape
        elif not isinstance(operand.operation, Broadcast) and operand.shape.rank:
            return None
    if source is None or not source.rank:
        return None
    if any(not _reshapes_freely(o, source) for o in i.operands):
        return None
    w = Writer(i)
    operands = [w.reshape(o, source.dimensions) if o.shape.rank else o for o in i.operands]
    return w.reshape(_again(w, operands, source.dimensions), i.shape.dimensions)


def _reshapes_freely(operand: HloInstruction, source: Shape) -> bool:
    """Return whether a reshape of an operand folds into its broadcast, or reshapes only a smaller array."""
    if not isinstance(operand.operation, Broadcast) or not operand.shape.rank:
        return True
    nontrivial = {d for d in operand.operation.dimensions if operand.shape.dimensions[d] != 1}
    groups = reshape_groups(operand.shape.dimensions, source.dimensions)
    return groups is not None and all(
        not nontrivial.intersection(before) or (len(before) == len(after) == 1) for before, after in groups
    )
