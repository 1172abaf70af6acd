"""Rules for updates of few elements that are written as operations on whole arrays."""

from __future__ import annotations

from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.operations.comparison import Select
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.gather_scatter import Scatter
from hloom.operations.movement import Broadcast
from hloom.passes.rewriting import RuleFamily
from hloom.passes.writing import Writer

RULES: Final = RuleFamily("updates")

_MOST: Final = 32
"""Maximum number of updates between a selection and the value that both its operands update."""
_SMALL: Final = 4
"""An update is small if it has at most a quarter of the elements."""


def is_small_part(u: HloInstruction, x: HloInstruction) -> bool:
    """Return whether an array has far fewer elements than another."""
    return u.shape.element_count * _SMALL <= x.shape.element_count


@RULES.rewrites(Select)
def select_of_updates(i: HloInstruction, select: Select) -> HloInstruction | None:
    """``select(p, update(x, u, at), x)`` → ``update(x, select(p, u, slice(x, at)), at)``; also of chains.

    The updates of both operands are made; those of the operand that is not selected write the existing
    elements. A scatter that is not selected gets indices out of bounds, whose updates are dropped.
    """
    p, *operands = i.operands
    if any(o.shape != i.shape for o in operands) or not i.shape.is_static:
        return None
    chains = [_updates_above(o) for o in operands]
    depth = {x: n for n, x in enumerate(chains[1])}
    common = next((n for n, x in enumerate(chains[0]) if x in depth), None)
    if common is None:
        return None
    base = chains[0][common]
    selected = [(u, True) for u in chains[0][:common]] + [(u, False) for u in chains[1][: depth[base]]]
    scalar = _scalar(p)
    if not selected or not all(_can_guard(u, scalar) for u, _ in selected):
        return None
    w, current = Writer(i), base
    for update, is_first in reversed(selected):
        if isinstance(update.operation, Scatter):
            assert scalar is not None
            current = _guarded_scatter(w, update, current, scalar, is_first)
        else:
            current = _guarded_update(w, update, current, p, is_first)
    return current


def _scalar(p: HloInstruction) -> HloInstruction | None:
    """Return the scalar whose value every element of a predicate has; None if elements may differ."""
    if p.shape.rank and isinstance(p.operation, Broadcast):
        p = p.operands[0]
    return None if p.shape.rank else p


def _can_guard(update: HloInstruction, p: HloInstruction | None) -> bool:
    """Return whether an update is small, and a scatter has indices that can be moved out of bounds."""
    if not isinstance(update.operation, Scatter):
        return is_small_part(update.operands[1], update)
    moved, kind = update.operation.scatter_dims_to_operand_dims, update.operands[1].shape.element_type
    if p is None or not moved or not is_small_part(update.operands[2], update):
        return False
    return kind.is_signed or kind.limits[1] >= update.shape.dimensions[moved[0]]


def _guarded_update(
    w: Writer, update: HloInstruction, x: HloInstruction, p: HloInstruction, is_first: bool
) -> HloInstruction:
    """Return an update that writes existing elements where it is not selected by the predicate."""
    _, u, *starts = update.operands
    cut = DynamicSlice(dynamic_slice_sizes=u.shape.dimensions)
    there = w.op(cut, x, *starts)
    here = w.op(cut, p, *starts) if p.shape.rank else p
    new = w.op(Select(), here, u, there) if is_first else w.op(Select(), here, there, u)
    return w.op(DynamicUpdateSlice(), x, new, *starts)


def _guarded_scatter(
    w: Writer, scatter: HloInstruction, x: HloInstruction, p: HloInstruction, is_first: bool
) -> HloInstruction:
    """Return a scatter whose indices are out of bounds, so that its updates are dropped, if not selected."""
    _, indices, updates = scatter.operands
    kind = indices.shape.element_type
    outside = w.full(-1 if kind.is_signed else kind.limits[1], indices.shape)
    pair = (indices, outside) if is_first else (outside, indices)
    guarded = w.op(Select(), p, *pair)
    computations = scatter.called_computations
    return w.op(scatter.operation, x, guarded, updates, shape=scatter.shape, computations=computations)


def _updates_above(x: HloInstruction) -> list[HloInstruction]:
    """Return a value and the values that it updates, the last update first.

    The list ends at the first value that is not an update, or has other users.
    """
    chain = [x]
    while len(x.users) == 1 and len(chain) <= _MOST:
        one_scatter = isinstance(x.operation, Scatter) and len(x.operands) == 3
        if not one_scatter and not isinstance(x.operation, DynamicUpdateSlice):
            break
        x = x.operands[0]
        chain.append(x)
    return chain
