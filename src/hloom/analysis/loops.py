"""While loops over tuples: which elements they carry, and which of them every iteration hands on."""

from __future__ import annotations

from dataclasses import dataclass

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.operations.structure import GetTupleElement


@dataclass(slots=True)
class Loop:
    """A while whose state is a tuple that body and condition take apart.

    Its computations must have no other caller.

    Attributes:
        instruction: the while.
        body, condition: what it calls.
        state: the parameter of the body.
        tested: the parameter of the condition.
    """

    instruction: HloInstruction
    body: HloComputation
    condition: HloComputation
    state: HloInstruction
    tested: HloInstruction

    @property
    def count(self) -> int:
        """The number of elements."""
        return len(self.instruction.shape.tuple_shapes)

    @property
    def following(self) -> list[HloInstruction]:
        """The elements after a turn of the body."""
        return self.body.root.operands

    def initial(self, number: int) -> HloInstruction:
        """An element before the first turn."""
        return self.instruction.operands[0].operands[number]

    def is_invariant(self, number: int) -> bool:
        """Whether the body hands an element on as it is."""
        return element_number(self.following[number], self.state) == number


def element_number(i: HloInstruction, whole: HloInstruction) -> int | None:
    """Which element of a tuple an instruction picks; None if it does something else."""
    if not isinstance(i.operation, GetTupleElement) or i.operands[0] is not whole:
        return None
    return i.operation.index


def picks(whole: HloInstruction, number: int) -> list[HloInstruction]:
    """The instructions that pick an element of a tuple."""
    return [u for u in whole.users if element_number(u, whole) == number]
