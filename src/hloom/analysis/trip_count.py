"""How often loops turn, where an integer that they count up or down tells."""

from __future__ import annotations

from dataclasses import dataclass

from hloom.analysis.loops import Loop, element_number
from hloom.analysis.purity import has_side_effect
from hloom.analysis.values import number
from hloom.ir.annotations import Annotation
from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import Add, Subtract
from hloom.operations.comparison import SWAPPED, Compare


@dataclass(frozen=True, slots=True)
class TripCount(Annotation):
    """A loop that counts. As an annotation of a while: it does so, from these initial values.

    Attributes:
        element: which element of the state is the counter.
        initial, step: its value in the first turn, and what every turn adds.
        turns: how often the body runs.
    """

    element: int
    initial: int
    step: int
    turns: int

    @property
    def final(self) -> int:
        """The counter after the loop."""
        return self.initial + self.turns * self.step

    @property
    def in_body(self) -> tuple[int, int]:
        """Least and largest value of the counter at the beginning of a turn."""
        last = self.initial + max(self.turns - 1, 0) * self.step
        return min(self.initial, last), max(self.initial, last)

    @property
    def in_condition(self) -> tuple[int, int]:
        """Least and largest value of the counter when the condition looks at it."""
        return min(self.initial, self.final), max(self.initial, self.final)


def trip_count(loop: Loop) -> TripCount | None:
    """The trip count of a loop ``for (i = a; i < b; i += c)`` of constants; None if it is not known."""
    test = loop.condition.root
    if not isinstance(test.operation, Compare) or not test.operands[0].shape.element_type.is_integer:
        return None
    direction = test.operation.direction
    counter, bound = test.operands
    if element_number(counter, loop.tested) is None:
        counter, bound, direction = bound, counter, SWAPPED[direction]
    element, limit = element_number(counter, loop.tested), number(bound)
    if element is None or limit is None or counter.shape.rank:
        return None
    initial = number(loop.initial(element))
    step = _step(loop, element)
    if initial is None or not step:
        return None
    turns = _turns(int(initial), int(limit), step, direction)
    if turns is None:
        return None
    found = TripCount(element, int(initial), step, turns)
    low, high = counter.shape.element_type.limits
    return found if low <= found.in_condition[0] and found.in_condition[1] <= high else None


def _step(loop: Loop, element: int) -> int | None:
    """What a turn of the body adds to an element."""
    following = loop.following[element]
    if not isinstance(following.operation, (Add, Subtract)):
        return None
    a, b = following.operands
    if isinstance(following.operation, Add) and element_number(a, loop.state) is None:
        a, b = b, a
    value = number(b)
    if element_number(a, loop.state) != element or value is None:
        return None
    return int(value) if isinstance(following.operation, Add) else -int(value)


def _turns(initial: int, limit: int, step: int, direction: str) -> int | None:
    """The turns of a loop that never wraps around; None if it does not end so."""
    if direction in ("LE", "GE"):
        limit, direction = (limit + 1, "LT") if direction == "LE" else (limit - 1, "GT")
    distance = limit - initial
    if direction == "NE":
        return distance // step if distance % step == 0 and distance // step >= 0 else None
    if direction == "EQ":
        return None if distance == 0 else 0
    if (distance > 0) != (direction == "LT") or distance == 0:
        return 0
    if (step > 0) != (direction == "LT"):
        return None
    return -(-abs(distance) // abs(step))


def condition_is_pure(i: HloInstruction) -> bool:
    """Whether leaving out a loop's tests is noticed by nobody."""
    return not any(has_side_effect(x) for x in i.called_computations[1].instructions)
