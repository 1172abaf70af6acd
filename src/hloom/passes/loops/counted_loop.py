"""Construction of while loops that count from 0 to a number of iterations."""

from __future__ import annotations

from hloom.analysis.instructions import operation_of
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import Add
from hloom.operations.control_flow import While
from hloom.operations.dynamic_slicing import DynamicUpdateSlice
from hloom.operations.structure import GetTupleElement, Tuple
from hloom.passes.simplify.dead_code import remove_dead
from hloom.passes.writing import Body, Inserter
from hloom.shape.element_type import S32
from hloom.shape.shape import Shape


class CountedLoop:
    """A while loop over a counter, to whose state elements are added while its body is being written.

    Args:
        outside: the writer of the computation to which the loop is added.
        trips: the number of iterations.
        name: the name of the body.

    Attributes:
        body: the writer of the body.
        counter: the number of the iteration, an s32 of the body.
    """

    def __init__(self, outside: Inserter, trips: int, name: str) -> None:
        self.outside = outside
        self.trips = trips
        self.body = Body(outside.module, name)
        self.body.metadata = outside.metadata
        self._state = self.body.parameter(Shape.tuple_(()), "state")
        self.body.computation.root = self._state
        self._initial: list[HloInstruction] = []
        self._following: list[HloInstruction] = []
        self._invariants: dict[HloInstruction, HloInstruction] = {}
        self._loop: HloInstruction | None = None
        self.counter = self.carry(outside.scalar(0, S32))
        self.follow(self.counter, self.body.op(Add(), self.counter, self.body.scalar(1, S32)))

    def carry(self, initial: HloInstruction) -> HloInstruction:
        """Add an element to the state; return its value in the body. Until `follow` it does not change."""
        number = len(self._initial)
        self._initial.append(initial)
        element = self.body.op(GetTupleElement(index=number), self._state, shape=initial.shape)
        self._following.append(element)
        return element

    def follow(self, element: HloInstruction, value: HloInstruction) -> None:
        """Set the value that an element, from `carry`, has after an iteration."""
        self._following[operation_of(element, GetTupleElement).index] = value

    def invariant(self, value: HloInstruction) -> HloInstruction:
        """Return the value of an instruction outside of the loop for use in the body."""
        if value not in self._invariants:
            self._invariants[value] = self.carry(value)
        return self._invariants[value]

    def stack(self, value: HloInstruction) -> HloInstruction:
        """Carry an array whose row n is ``value`` in iteration n; return its element of the state."""
        sizes = value.shape.dimensions
        stack = self.carry(self.outside.full(0, Shape(value.shape.element_type, (self.trips, *sizes))))
        zeros = (self.body.scalar(0, S32) for _ in sizes)
        row = self.body.reshape(value, (1, *sizes))
        self.follow(stack, self.body.op(DynamicUpdateSlice(), stack, row, self.counter, *zeros))
        return stack

    def result(self, element: HloInstruction) -> HloInstruction:
        """Return the final value of an element, after the loop. The first call completes the body."""
        if self._loop is None:
            shape = Shape.tuple_(x.shape for x in self._initial)
            self._state.shape = shape
            self.body.computation.root = self.body.op(Tuple(), *self._following)
            remove_dead(self.body.computation)
            state = self.outside.op(Tuple(), *self._initial)
            computations = [self.body.computation, self._condition(shape)]
            self._loop = self.outside.op(While(), state, shape=shape, computations=computations)
        return self.outside.op(
            GetTupleElement(index=operation_of(element, GetTupleElement).index), self._loop
        )

    def _condition(self, state: Shape) -> HloComputation:
        w = Body(self.outside.module, "condition")
        counter = w.op(GetTupleElement(index=0), w.parameter(state))
        w.computation.root = w.compare(counter, "LT", w.scalar(self.trips, S32))
        return w.computation
