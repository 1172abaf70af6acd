"""Decisions whether a fused loop recomputes a value for each read, or stores it once.

A step of a stencil reads its operand at several offsets. Fused with the step before, it computes that step
once per offset; fused with all steps before, the work grows with the number of paths through the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.ir.traits import Family
from hloom.operations.movement import Broadcast
from hloom.plan.evaluations import element_work

LOAD: Final = 1
"""Work of reading one stored element."""
_MOST_SOURCES: Final = 200
"""Maximum number of instructions that a search for the readers of an array visits."""


class Recomputation:
    """The work of computing each value of a computation: one element, with its operands transitively.

    The work of a value is divided among its users, so that no path counts twice. Operands that are read at
    several offsets are not included: whether they are stored is decided separately.

    Args:
        order: the instructions of a computation, operands first.
        fusible: returns whether an instruction may join the group of its users.
    """

    def __init__(self, order: Sequence[HloInstruction], fusible: Callable[[HloInstruction], bool]) -> None:
        self._work: dict[HloInstruction, float] = {}
        stored = {i for i in order if _is_read_apart(i) or not fusible(i)}
        for i in order:
            work_of_operands = [
                LOAD if o in stored else self._work[o] / len(o.users)
                for o in i.operands
                if o.shape.is_array and o.shape.rank
            ]
            self._work[i] = element_work(i) + sum(work_of_operands)

    def repeated(self, p: HloInstruction, reads: int, loop: int) -> float:
        """Return the additional work per element of computing a value for each read, not once.

        Args:
            p: the value.
            reads: the number of its elements that each result of a loop reads.
            loop: the number of results.
        """
        elements = max(p.shape.element_count, 1)
        return max(0.0, reads * min(1.0, loop / elements) - 1) * self._work[p]


def _is_read_apart(p: HloInstruction) -> bool:
    """Return whether users read several different elements of a value for one element of their results."""
    return len(p.users) > 1 and any(_moves(u) for u in p.users)


def _moves(u: HloInstruction) -> bool:
    """Return whether an instruction reads elements at other indices than those that it writes."""
    operation = u.operation
    return operation.family is Family.MOVEMENT and not (
        operation.aliases_operand or isinstance(operation, Broadcast)
    )


def reads_twice(
    value: HloInstruction, array: HloInstruction, fusible: Callable[[HloInstruction], bool]
) -> bool:
    """Return whether two or more instructions that compute an update's value read the updated array.

    In a kernel that updates the array in place, each of them would be an array of its own. A loop that
    computes the value apart stores one array.
    """
    visited, waiting, readers = {value}, [value], 0
    while waiting and len(visited) < _MOST_SOURCES:
        i = waiting.pop()
        readers += array in i.operands
        if readers > 1:
            return True
        sources = {o for o in i.operands if o.shape.rank and o not in visited and fusible(o)}
        visited |= sources
        waiting += sources
    return False
