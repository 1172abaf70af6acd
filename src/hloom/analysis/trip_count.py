"""Trip counts of while loops with an integer induction variable."""

from __future__ import annotations

from hloom.analysis.loops import TupleLoop, element_number
from hloom.analysis.values import number
from hloom.ir.annotations import Annotation
from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import Add, Subtract
from hloom.operations.comparison import SWAPPED, Compare
from hloom.records import dataclass


@dataclass(frozen=True, slots=True)
class TripCount(Annotation):
    """The induction variable and trip count of a while, valid for its current initial values.

    Attributes:
        element: index of the counter in the loop's state.
        initial, step: initial value of the counter, and its increment per iteration.
        iterations: number of iterations.
    """

    element: int
    initial: int
    step: int
    iterations: int

    @property
    def final(self) -> int:
        """Return the value of the counter after the loop."""
        return self.initial + self.iterations * self.step

    @property
    def in_body(self) -> tuple[int, int]:
        """Return the minimum and maximum of the counter at the start of an iteration."""
        last = self.initial + max(self.iterations - 1, 0) * self.step
        return min(self.initial, last), max(self.initial, last)

    @property
    def in_condition(self) -> tuple[int, int]:
        """Return the minimum and maximum of the counter in the condition."""
        return min(self.initial, self.final), max(self.initial, self.final)


def trip_count(loop: TupleLoop) -> TripCount | None:
    """Return the trip count of ``for (i = a; i < b; i += c)`` with constant a, b, c; None if unknown."""
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
    iterations = _iterations(int(initial), int(limit), step, direction)
    if iterations is None:
        return None
    count = TripCount(element, int(initial), step, iterations)
    low, high = counter.shape.element_type.limits
    return count if low <= count.in_condition[0] and count.in_condition[1] <= high else None


def _step(loop: TupleLoop, element: int) -> int | None:
    """Return the constant that an iteration adds to an element; None if it does anything else."""
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


def _iterations(initial: int, limit: int, step: int, direction: str) -> int | None:
    """Return the number of iterations; None if the loop would end only by wrap-around, or never."""
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
    """Return whether a loop's condition has no side effects, so that its evaluations may be skipped."""
    return not any(x.has_side_effect for x in i.called_computations[1].instructions)
