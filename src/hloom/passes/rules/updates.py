"""Rules for updates of few elements that are written as operations on whole arrays."""

from __future__ import annotations

from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.operations.comparison import Select
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.passes.rewriting import Family
from hloom.passes.writing import Writer

RULES: Final = Family("updates")

_MOST: Final = 32
"""Maximum number of updates between a selection and the value that both its operands update."""
_SMALL: Final = 4
"""An update is small if it has at most a quarter of the elements."""


def is_small_part(u: HloInstruction, x: HloInstruction) -> bool:
    """Return whether an array has much fewer elements than another."""
    return u.shape.element_count * _SMALL <= x.shape.element_count


@RULES.rewrites(Select)
def select_of_updates(i: HloInstruction, select: Select) -> HloInstruction | None:
    """``select(p, update(x, u, at), x)`` → ``update(x, select(p, u, slice(x, at)), at)``; also of chains.

    The updates of both operands are made, each with the elements that are there already where it is not
    selected.
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
    if not selected or not all(is_small_part(u.operands[1], u) for u, _ in selected):
        return None
    w, current = Writer(i), base
    for update, is_first in reversed(selected):
        _, u, *starts = update.operands
        cut = DynamicSlice(dynamic_slice_sizes=u.shape.dimensions)
        there = w.op(cut, current, *starts)
        here = w.op(cut, p, *starts) if p.shape.rank else p
        new = w.op(Select(), here, u, there) if is_first else w.op(Select(), here, there, u)
        current = w.op(DynamicUpdateSlice(), current, new, *starts)
    return current


def _updates_above(x: HloInstruction) -> list[HloInstruction]:
    """Return a value and those that it updates, the last of them first; updates have no other users."""
    chain = [x]
    while isinstance(x.operation, DynamicUpdateSlice) and len(x.users) == 1 and len(chain) <= _MOST:
        x = x.operands[0]
        chain.append(x)
    return chain
