"""while-loop-invariant-code-motion: what every turn of a loop computes alike is computed before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from hloom.analysis.loops import Loop, element_number
from hloom.analysis.purity import is_free, is_pure
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.control_flow import While
from hloom.operations.structure import Constant
from hloom.passes.facts import FLAT
from hloom.passes.loops.while_loops import loop_of, rebuild
from hloom.passes.registry import register
from hloom.passes.simplify.dead_code import remove_dead
from hloom.shape.shape import Shape


@register
@dataclass(frozen=True, slots=True)
class WhileLoopInvariantCodeMotion:
    """``while (...) { y = f(x); ... }`` with x the same in every turn → ``y = f(x); while (...) { ... }``.

    Attributes:
        growth: a value is carried if it has at most so many bytes for each byte of what it is made of.
        small: or if it has at most so many bytes.
    """

    growth: float = 1.0
    small: int = 4096
    name: ClassVar[str] = "while-loop-invariant-code-motion"
    needs: ClassVar[frozenset[str]] = frozenset((FLAT,))
    settles: ClassVar[bool] = True

    def run(self, module: HloModule) -> bool:
        """Move code out of every loop, inner ones first, so that it may leave several."""
        changed = False
        for computation in module.post_order():
            for instruction in computation:
                if isinstance(instruction.operation, While):
                    changed |= self.move(instruction)
        return changed

    def move(self, instruction: HloInstruction) -> bool:
        """Move what can be moved out of one loop; returns whether there was anything."""
        loop = loop_of(instruction)
        if loop is None:
            return False
        invariant = invariants(loop)
        chosen = [i for i in frontier(loop, invariant) if self.pays(i, loop)]
        if not chosen:
            return False
        copies: dict[HloInstruction, HloInstruction] = {}
        outside = [_copy_out(i, loop, copies) for i in chosen]
        inside = rebuild(loop, range(loop.count), outside)
        for old, new in zip(chosen, inside, strict=True):
            old.replace_all_uses_with(new)
        remove_dead(loop.body)
        return True

    def pays(self, i: HloInstruction, loop: Loop) -> bool:
        """Whether carrying a value is no more than carrying what it is made of."""
        made = _bytes(i.shape)
        return made <= self.small or made <= self.growth * sum(_bytes(s.shape) for s in _sources(i, loop))


def _bytes(shape: Shape) -> int:
    return shape.element_count * shape.element_type.bytes


def invariants(loop: Loop) -> set[HloInstruction]:
    """The instructions of the body that have the same value in every turn."""
    found: set[HloInstruction] = set()
    for i in loop.body.post_order():
        if i.control_predecessors or i.control_successors or not i.shape.is_array or i.shape.is_dynamic:
            continue
        number = element_number(i, loop.state)
        if number is not None:
            if loop.is_invariant(number):
                found.add(i)
        elif isinstance(i.operation, Constant) or (is_pure(i) and all(o in found for o in i.operands)):
            found.add(i)
    return found


def frontier(loop: Loop, invariant: set[HloInstruction]) -> list[HloInstruction]:
    """The last instructions of invariant computations that are work; what costs nothing stays inside."""
    found: dict[HloInstruction, None] = {}
    waiting = [i for i in invariant if i.users and any(user not in invariant for user in i.users)]
    seen: set[HloInstruction] = set()
    while waiting:
        i = waiting.pop()
        if i in seen:
            continue
        seen.add(i)
        if is_free(i):
            waiting.extend(o for o in i.operands if o in invariant)
        else:
            found[i] = None
    return [i for i in loop.body.post_order() if i in found]


def _sources(i: HloInstruction, loop: Loop) -> Iterator[HloInstruction]:
    """The elements of the state that a value is made of."""
    waiting, seen = [i], {i}
    while waiting:
        node = waiting.pop()
        if element_number(node, loop.state) is not None:
            yield node
            continue
        fresh = [o for o in node.operands if o not in seen]
        seen.update(fresh)
        waiting.extend(fresh)


def _copy_out(i: HloInstruction, loop: Loop, copies: dict[HloInstruction, HloInstruction]) -> HloInstruction:
    """A copy of an invariant instruction before the loop, with all it is made of."""
    if i not in copies:
        number = element_number(i, loop.state)
        if number is not None:
            return loop.initial(number)
        computation = loop.instruction.parent
        assert computation is not None and computation.module is not None
        operands = [_copy_out(o, loop, copies) for o in i.operands]
        name = computation.module.unique_name(i.name)
        copies[i] = computation.add(i.clone(name, operands=operands))
    return copies[i]
