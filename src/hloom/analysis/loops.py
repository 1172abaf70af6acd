"""While loops over tuples: the state elements and their values before and after an iteration."""

from __future__ import annotations

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.operations.structure import GetTupleElement
from hloom.records import dataclass


@dataclass(slots=True)
class TupleLoop:
    """A while whose state is a tuple that body and condition access by element only.

    Its computations must have no other caller.

    Attributes:
        instruction: the while.
        body, condition: the called computations.
        state: the parameter of the body.
        tested: the parameter of the condition.
    """

    instruction: HloInstruction
    body: HloComputation
    condition: HloComputation
    state: HloInstruction
    tested: HloInstruction

    @classmethod
    def of(cls, instruction: HloInstruction) -> TupleLoop:
        """Return a while of this form."""
        body, condition = instruction.called_computations
        return cls(instruction, body, condition, body.parameters[0], condition.parameters[0])

    @property
    def count(self) -> int:
        """Return the number of state elements."""
        return len(self.instruction.shape.tuple_shapes)

    @property
    def following(self) -> list[HloInstruction]:
        """Return the elements after an iteration of the body."""
        return self.body.root.operands

    def initial(self, number: int) -> HloInstruction:
        """Return the initial value of an element."""
        return self.instruction.operands[0].operands[number]

    def is_invariant(self, number: int) -> bool:
        """Return whether the body returns an element unchanged."""
        return element_number(self.following[number], self.state) == number

    @property
    def carried(self) -> list[int]:
        """Return the numbers of the elements that the body changes."""
        return [n for n in range(self.count) if not self.is_invariant(n)]

    @property
    def carried_arrays(self) -> list[int]:
        """Return the numbers of the arrays that the body changes."""
        return [n for n in self.carried if self.instruction.shape.tuple_shapes[n].rank]


def element_number(i: HloInstruction, whole: HloInstruction) -> int | None:
    """Return the index of the tuple element that an instruction extracts; None for other instructions."""
    if not isinstance(i.operation, GetTupleElement) or i.operands[0] is not whole:
        return None
    return i.operation.index


def picks_by_number(whole: HloInstruction) -> dict[int, list[HloInstruction]]:
    """Return the get-tuple-elements of a tuple by number, in one pass over its users."""
    numbered: dict[int, list[HloInstruction]] = {}
    for user in whole.users:
        number = element_number(user, whole)
        if number is not None:
            numbered.setdefault(number, []).append(user)
    return numbered


def picks(whole: HloInstruction, number: int) -> list[HloInstruction]:
    """Return the get-tuple-elements of one element of a tuple."""
    return [u for u in whole.users if element_number(u, whole) == number]
