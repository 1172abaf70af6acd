"""stencil-updates: write large updates that are stencils of the updated array as selections.

``x.at[1:-1, 1:-1].add(0.1 * laplacian(x))`` reads neighbours of the elements that it writes, and cannot be
made in place: one kernel would store the update, another copy it into x. As a selection of old and new
elements it is one loop that reads x and writes another array, as stencils of rotated arrays are; a loop that
carries x exchanges the two.

An update of n elements moves 4n of them in two kernels; the selection moves 2m, for an array of m, and
computes m of them. Both took as long at three quarters of the array. Smaller updates, such as rows of a
stack, stay in place.
"""

from __future__ import annotations

from typing import Final

from hloom.analysis.values import start_numbers
from hloom.ir.affine import Index, Variable, linearize
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import PaddingDimension
from hloom.operations.comparison import Select
from hloom.operations.dynamic_slicing import DynamicUpdateSlice
from hloom.operations.movement import Concatenate, Pad
from hloom.passes.fusion.loop_operations import extends, loops
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer
from hloom.plan.accesses import Accesses
from hloom.shape.element_type import PRED
from hloom.shape.shape import Shape

_LEAST: Final = 0.75
"""Minimum part of an array that an update covers."""
_MOST: Final = 200
"""Maximum number of instructions of a stencil."""


class StencilUpdates(OpExpander, name="stencil-updates", of=DynamicUpdateSlice):
    """``dynamic-update-slice(x, f(x), c)`` → ``select(pad(true, false), pad(f(x), 0), x)``. Bitwise."""

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        """Rewrite an update of most of an array at constant indices, if it is a stencil of the array."""
        x, update, *indices = i.operands
        is_plain = i.shape.is_static and not i.has_control_dependencies and len(update.users) == 1
        is_uniform = len({a.shape.element_type for a in (i, x, update)}) == 1
        covers = update.shape.element_count >= _LEAST * x.shape.element_count
        if not (is_plain and is_uniform and covers):
            return None
        room = [size - n for size, n in zip(x.shape.dimensions, update.shape.dimensions, strict=True)]
        starts = start_numbers(indices, room)
        if starts is None or not _reads_others(x, update, starts):
            return None
        padding = Pad(padding=tuple(PaddingDimension(s, n - s) for s, n in zip(starts, room, strict=True)))
        is_new = w.op(padding, w.full(True, Shape(PRED, update.shape.dimensions)), w.scalar(False, PRED))
        new = w.op(padding, update, w.scalar(0, update.shape.element_type))
        return w.op(Select(), is_new, new, x)


def _reads_others(x: HloInstruction, update: HloInstruction, starts: list[int]) -> bool:
    """Return whether a loop over the elements of an update reads others of x than those that it replaces."""
    stencil = _loop(update, x)
    inputs = {o for member in stencil for o in member.operands if o not in stencil}
    indices = tuple(Index.of(Variable(size)) for size in update.shape.dimensions)
    accesses = Accesses(inputs)
    if stencil:
        accesses.element(update, indices)
    own = linearize([index + start for index, start in zip(indices, starts, strict=True)], x.shape.dimensions)
    return not accesses.reads.get(x, set()) <= {own}


def _loop(value: HloInstruction, x: HloInstruction) -> set[HloInstruction]:
    """Return the instructions that compute a value from x, and from others, in one loop."""
    loop: set[HloInstruction] = set()
    waiting = [value]
    while waiting and len(loop) < _MOST:
        i = waiting.pop()
        if i is not x and i not in loop and _joins(i):
            loop.add(i)
            waiting += i.operands
    return loop


def _joins(i: HloInstruction) -> bool:
    """Return whether an instruction may be a part of a loop over the elements of its users."""
    is_joined = not isinstance(i.operation, Concatenate) or extends(i)
    return i.shape.is_static and not i.has_control_dependencies and loops(i) and is_joined
