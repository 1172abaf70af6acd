"""while-loop-invariant-code-motion: hoist loop-invariant computations out of while loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from hloom.analysis.loops import TupleLoop, element_number
from hloom.analysis.purity import is_free, is_pure
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.control_flow import While
from hloom.operations.movement import Slice
from hloom.operations.structure import Constant
from hloom.passes.facts import FLAT
from hloom.passes.fuel import consume
from hloom.passes.loops.while_loops import loops_of, rebuild
from hloom.passes.pipeline import Pass
from hloom.passes.simplify.dead_code import remove_dead
from hloom.shape.shape import Shape

_LEAST_COLUMN: Final = 16
"""Elements of a column that is worth an array of its own: a vector of f32."""


class WhileLoopInvariantCodeMotion(
    Pass, name="while-loop-invariant-code-motion", of=While, needs={FLAT}, settles=True
):
    """``while (...) { y = f(x); ... }`` with a loop-invariant x → ``y = f(x); while (...) { ... }``.

    What costs nothing stays, but for columns of arrays: their elements are not adjacent.

    Attributes:
        growth: hoist a value if its size is at most this multiple of the size of its sources in the state.
        small: hoist any value of at most this many bytes.
    """

    growth: float = 1.0
    small: int = 4096

    def run(self, module: HloModule) -> bool:
        """Hoist out of every loop, inner ones first, so that code may leave several loops."""
        changed = False
        for loop in loops_of(module):
            changed |= consume(f"%{loop.instruction.name}") and self.move(loop)
        return changed

    def move(self, loop: TupleLoop) -> bool:
        """Hoist out of one loop; return whether anything changed."""
        invariant = invariants(loop)
        movable = [i for i in frontier(loop.body, invariant, _is_free_in_loops) if self.pays(i, loop)]
        if not movable:
            return False
        copies: dict[HloInstruction, HloInstruction] = {}
        outside = [copy_out(i, loop, copies) for i in movable]
        inside = rebuild(loop, range(loop.count), outside)
        for old, new in zip(movable, inside, strict=True):
            old.replace_all_uses_with(new)
        remove_dead(loop.body)
        return True

    def pays(self, i: HloInstruction, loop: TupleLoop) -> bool:
        """Return whether carrying a value costs no more memory than carrying its sources."""
        produced = _bytes(i.shape)
        return produced <= self.small or produced <= self.growth * sum(
            _bytes(s.shape) for s in _sources(i, loop)
        )


def _bytes(shape: Shape) -> int:
    return shape.element_count * shape.element_type.bytes


def invariants(loop: TupleLoop) -> set[HloInstruction]:
    """Return the loop-invariant instructions of the body."""
    invariant: set[HloInstruction] = set()
    for i in loop.body.post_order():
        if i.has_control_dependencies or not i.shape.is_array or i.shape.is_dynamic:
            continue
        number = element_number(i, loop.state)
        if number is not None:
            if loop.is_invariant(number):
                invariant.add(i)
        elif isinstance(i.operation, Constant) or (is_pure(i) and all(o in invariant for o in i.operands)):
            invariant.add(i)
    return invariant


def frontier(
    computation: HloComputation,
    invariant: set[HloInstruction],
    stays: Callable[[HloInstruction], bool] = is_free,
) -> list[HloInstruction]:
    """Return the last of the invariant instructions of a computation that do not stay in it."""
    border: dict[HloInstruction, None] = {}
    waiting = [i for i in invariant if i.users and any(user not in invariant for user in i.users)]
    seen: set[HloInstruction] = set()
    while waiting:
        i = waiting.pop()
        if i in seen:
            continue
        seen.add(i)
        if stays(i):
            waiting.extend(o for o in i.operands if o in invariant)
        else:
            border[i] = None
    return [i for i in computation.post_order() if i in border]


def _is_free_in_loops(i: HloInstruction) -> bool:
    """Return whether it costs nothing to compute an instruction in every iteration."""
    return is_free(i) and not _is_column(i)


def _is_column(i: HloInstruction) -> bool:
    """Return whether an instruction slices a column of at least a vector: its elements are not adjacent."""
    if not isinstance(i.operation, Slice) or i.shape.element_count < _LEAST_COLUMN:
        return False
    return i.shape.dimensions[-1] == 1 < i.operands[0].shape.dimensions[-1]


def _sources(i: HloInstruction, loop: TupleLoop) -> Iterator[HloInstruction]:
    """Yield the elements of the state that a value depends on."""
    waiting, seen = [i], {i}
    while waiting:
        node = waiting.pop()
        if element_number(node, loop.state) is not None:
            yield node
            continue
        fresh = [o for o in node.operands if o not in seen]
        seen.update(fresh)
        waiting.extend(fresh)


def copy_out(
    i: HloInstruction, loop: TupleLoop, copies: dict[HloInstruction, HloInstruction]
) -> HloInstruction:
    """Copy an invariant instruction and its operands, transitively, to before the loop."""
    if i not in copies:
        number = element_number(i, loop.state)
        if number is not None:
            return loop.initial(number)
        computation = loop.instruction.parent
        assert computation is not None and computation.module is not None
        operands = [copy_out(o, loop, copies) for o in i.operands]
        name = computation.module.unique_name(i.name)
        copies[i] = computation.add(i.clone(name, operands=operands))
    return copies[i]
