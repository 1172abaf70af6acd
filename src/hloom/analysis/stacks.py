"""Stacks: arrays of which a loop reads or writes one row in each iteration, and every row once.

A row is the part of an array at one index of its first dimension. A scan slices a row of each input, and
updates a row of each output.
"""

from __future__ import annotations

from typing import Final

from hloom.analysis.loops import TupleLoop, element_number, picks
from hloom.analysis.trip_count import TripCount
from hloom.analysis.values import number
from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import Add, Subtract
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.reshaping import Reshape
from hloom.records import dataclass
from hloom.shape.shape import Shape

_DEEPEST: Final = 6
"""Maximum number of operations between the counter and an index."""


@dataclass(frozen=True, slots=True)
class StackRow:
    """The row of a stack that an iteration reads or writes.

    Attributes:
        element: number of the stack in the loop's state.
        index: index of the row, a scalar of the body.
        step: 1 if the loop visits the rows in order, -1 if in reverse order.
    """

    element: int
    index: HloInstruction
    step: int


class Stacks:
    """Finds the rows that the iterations of a loop read and write.

    Args:
        loop: a loop.
        count: its trip count.
    """

    def __init__(self, loop: TupleLoop, count: TripCount) -> None:
        self.loop = loop
        self.count = count

    def row_read(self, i: HloInstruction) -> StackRow | None:
        """Return the row of a loop-invariant stack that a value is; None for other values."""
        part = i.operands[0] if isinstance(i.operation, Reshape) else i
        if not isinstance(part.operation, DynamicSlice):
            return None
        element = element_number(part.operands[0], self.loop.state)
        if element is None or not self.loop.is_invariant(element):
            return None
        return self._row(element, part.operands[0].shape, i.shape, part.operands[1])

    def row_written(self, element: int) -> tuple[HloInstruction, StackRow] | None:
        """Return the value that an iteration writes into a row of an element, and the row."""
        written = self.part_written(element)
        if written is None:
            return None
        part, row = written
        value = part.operands[0] if isinstance(part.operation, Reshape) else part
        return (value, row) if value.shape.dimensions == part.shape.dimensions[1:] else None

    def part_written(self, element: int) -> tuple[HloInstruction, StackRow] | None:
        """Return the array of one row that an iteration writes into an element, and the row.

        The body may use the element for nothing else, nor the condition for anything.
        """
        update = self.loop.following[element]
        if not isinstance(update.operation, DynamicUpdateSlice):
            return None
        array = self.used_once(element)
        if array is None or update.operands[0] is not array:
            return None
        part = update.operands[1]
        row = self.row_of_part(element, array.shape, part.shape, update.operands[2])
        root = self.loop.body.root
        is_last = list(update.users) == [root] and root.operands.count(update) == 1
        return (part, row) if row is not None and is_last else None

    def part_read(self, i: HloInstruction) -> StackRow | None:
        """Return the row of a loop-invariant stack that a dynamic-slice is; None for other instructions."""
        element = element_number(i.operands[0], self.loop.state) if i.operands else None
        if (
            element is None
            or not isinstance(i.operation, DynamicSlice)
            or not self.loop.is_invariant(element)
        ):
            return None
        return self.row_of_part(element, i.operands[0].shape, i.shape, i.operands[1])

    def row_of_part(self, element: int, stack: Shape, part: Shape, index: HloInstruction) -> StackRow | None:
        """Return the row that an array with one row of a stack is; None if it is none."""
        row = Shape(part.element_type, part.dimensions[1:])
        return self._row(element, stack, row, index) if part.rank and part.dimensions[0] == 1 else None

    def used_once(self, element: int) -> HloInstruction | None:
        """Return an element in the body if a single instruction of body and condition uses it."""
        inside = [pick for pick in picks(self.loop.state, element) if pick.users or pick.is_root]
        tested = any(pick.users or pick.is_root for pick in picks(self.loop.tested, element))
        return inside[0] if len(inside) == 1 and len(inside[0].users) == 1 and not tested else None

    def _row(self, element: int, stack: Shape, row: Shape, index: HloInstruction) -> StackRow | None:
        if not stack.is_static or stack.dimensions != (self.count.iterations, *row.dimensions):
            return None
        step = self._step(index)
        return None if step is None else StackRow(element, index, step)

    def _step(self, index: HloInstruction) -> int | None:
        """Return the step of an index that takes the values from 0 to the trip count, or back to 0."""
        linear = self._linear(index)
        if linear is None:
            return None
        constant, factor = linear
        first, step = constant + factor * self.count.initial, factor * self.count.step
        last = self.count.iterations - 1
        return step if (step, first) in ((1, 0), (-1, last)) else None

    def _linear(self, i: HloInstruction, depth: int = _DEEPEST) -> tuple[int, int] | None:
        """Return (a, b) of a scalar ``a + b * counter``; None for other scalars."""
        if element_number(i, self.loop.state) == self.count.element:
            return 0, 1
        value = number(i)
        if value is not None:
            return int(value), 0
        if not depth or not isinstance(i.operation, Add | Subtract):
            return None
        terms = [self._linear(o, depth - 1) for o in i.operands]
        if terms[0] is None or terms[1] is None:
            return None
        sign = 1 if isinstance(i.operation, Add) else -1
        (a, b), (c, d) = terms[0], terms[1]
        return a + sign * c, b + sign * d
