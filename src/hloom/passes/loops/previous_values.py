"""previous-value-updates: keep the previous value of an updated array by updating another array later.

A loop that returns both an array with a few new elements and the array without them would copy the whole
array in every iteration::

    a, b = dynamic-update-slice(a, u, at), a

From the second iteration on, b lacks only the elements that the previous iteration wrote. So the loop carries
u and at, and writes u into b one iteration later; the first iteration copies a.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloom.analysis.loops import TupleLoop, element_number
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.control_flow import Conditional, While
from hloom.operations.dynamic_slicing import DynamicUpdateSlice
from hloom.operations.structure import GetTupleElement, Tuple
from hloom.passes.facts import FLAT
from hloom.passes.fuel import consume
from hloom.passes.loops.while_loops import carry, loops_of
from hloom.passes.pipeline import Pass
from hloom.passes.rules.updates import is_small_part
from hloom.passes.writing import Body, Writer
from hloom.shape.element_type import PRED

_LEAST: Final = 256
"""Minimum number of elements of an array that is worth a branch."""
_MOST: Final = 8
"""Maximum number of updates that are made again."""


class PreviousValueUpdates(Pass, name="previous-value-updates", of=While, needs={FLAT}):
    """``a, b = update(a, u, at), a`` → ``b`` is updated as ``a`` was in the iteration before. Bitwise."""

    def run(self, module: HloModule) -> bool:
        """Rewrite the elements of every loop."""
        changed = False
        for loop in loops_of(module):
            for number in range(loop.count):
                changed |= _update_later(loop, number)
        return changed


def _update_later(loop: TupleLoop, number: int) -> bool:
    """Rewrite an element whose next value is the current value of an updated one; return whether it was."""
    old = loop.following[number]
    source = element_number(old, loop.state)
    if source is None or source == number or old.shape.element_count < _LEAST:
        return False
    updates = _updates(loop, source)
    if not updates or not consume(f"%{loop.instruction.name}"):
        return False
    values = [x for update in updates for x in update.operands[1:]]
    outside, w = Writer(loop.instruction), Writer(loop.body.root)
    initial = [outside.scalar(1, PRED), *(outside.full(0, x.shape) for x in values)]
    first, *before = carry(loop, initial, [w.scalar(0, PRED), *values])
    b = w.op(GetTupleElement(index=number), loop.state)
    operand = w.op(Tuple(), old, b, *before)
    branches = [_branch(w, operand, updates, is_first) for is_first in (True, False)]
    following = w.op(Conditional(), first, operand, operand, shape=old.shape, computations=branches)
    loop.body.root.replace_operand(number, following)
    return True


def _updates(loop: TupleLoop, number: int) -> list[HloInstruction]:
    """Return the small updates from an element to its next value, in order; none if there are others."""
    updates: list[HloInstruction] = []
    x = loop.following[number]
    while isinstance(x.operation, DynamicUpdateSlice) and len(updates) < _MOST:
        if not is_small_part(x.operands[1], x):
            return []
        updates.append(x)
        x = x.operands[0]
    return updates[::-1] if element_number(x, loop.state) == number else []


def _branch(
    w: Writer, operand: HloInstruction, updates: Sequence[HloInstruction], is_first: bool
) -> HloComputation:
    """Return a branch: copy the other array, or repeat its updates with the operands carried from before."""
    body = Body(w.module, "copied" if is_first else "updated")
    state = body.parameter(operand.shape, "given")
    count = len(operand.shape.tuple_shapes)
    old, x, *values = (body.op(GetTupleElement(index=n), state) for n in range(count))
    operands = iter(values)
    for update in () if is_first else updates:
        x = body.op(DynamicUpdateSlice(), x, *(next(operands) for _ in update.operands[1:]))
    body.computation.root = old if is_first else x
    return body.computation
