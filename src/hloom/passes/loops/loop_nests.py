"""Nests of two loops that compute a table row by row, and the results of the inner loop by kind.

A result is a new row of cells, a *board* that both loops update in place, or an extremum of all cells.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Final

from hloom.analysis.loops import TupleLoop, element_number, picks
from hloom.analysis.stacks import Stacks
from hloom.analysis.trip_count import TripCount, trip_count
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.operations.arithmetic import And, Maximum, Minimum, Or
from hloom.operations.dynamic_slicing import DynamicUpdateSlice
from hloom.passes.loops.while_loops import loop_of
from hloom.records import dataclass

_IDEMPOTENT: Final = (And, Maximum, Minimum, Or)
"""Idempotent operations: the result does not depend on the order or on repetition of the operands."""


@dataclass(frozen=True, slots=True)
class CellRow:
    """An array that the inner loop fills with the cells of one row.

    Attributes:
        cell: the scalar that an iteration of the inner loop writes.
        step: 1 if it writes the cells in ascending order, -1 if in descending order.
    """

    cell: HloInstruction
    step: int


@dataclass(frozen=True, slots=True)
class Board:
    """An array that both loops carry, of which each iteration of the inner one updates one element.

    Attributes:
        number: its tuple index in the state of the outer loop.
        cell: the value of the updated element, an array of one element.
        position: the indices of that element, by row and column or by column only; scalars of the inner body.
    """

    number: int
    cell: HloInstruction
    position: tuple[HloInstruction, ...]


@dataclass(frozen=True, slots=True)
class Extremum:
    """A scalar that both loops carry, such as the maximum of all cells.

    Attributes:
        number: its tuple index in the state of the outer loop.
        cell: the scalar that an iteration combines with it.
        operation: the combination.
    """

    number: int
    cell: HloInstruction
    operation: Operation


class LoopNest:
    """A loop over rows with a loop over columns in its body.

    Attributes:
        outer, inner: the loops.
        rows, columns: their trip counts.
    """

    def __init__(self, outer: TupleLoop, inner: TupleLoop, rows: TripCount, columns: TripCount) -> None:
        self.outer = outer
        self.inner = inner
        self.rows = rows
        self.columns = columns
        self._stacks = Stacks(inner, columns)

    @classmethod
    def of(cls, outer: TupleLoop) -> LoopNest | None:
        """Return a loop as a nest; None unless its body has exactly one loop, with known trip counts."""
        loops = [loop for i in outer.body.instructions if (loop := loop_of(i)) is not None]
        rows = trip_count(outer)
        columns = trip_count(loops[0]) if len(loops) == 1 else None
        if rows is None or columns is None:
            return None
        if any(x.has_side_effect for loop in (outer, *loops) for x in loop.body.instructions):
            return None
        return cls(outer, loops[0], rows, columns)

    @cached_property
    def rows_of_cells(self) -> dict[int, CellRow]:
        """The results of the inner loop that are rows of cells, by tuple index."""
        written = {n: self._stacks.row_written(n) for n in self.inner.carried}
        return {
            n: CellRow(w[0], w[1].step) for n, w in written.items() if w is not None and not w[0].shape.rank
        }

    @cached_property
    def boards(self) -> dict[int, Board]:
        """The results of the inner loop that are boards, by tuple index."""
        boards: dict[int, Board] = {}
        for n, number in self._shared():
            update = self.inner.following[n]
            if not isinstance(update.operation, DynamicUpdateSlice):
                continue
            array, cell, *position = update.operands
            rank = array.shape.rank
            is_updated = element_number(array, self.inner.state) == n and list(update.users) == [
                self.inner.body.root
            ]
            if is_updated and cell.shape.element_count == 1 and len(position) == rank and rank in (1, 2):
                boards[n] = Board(number, cell, tuple(position))
        return boards

    @cached_property
    def extrema(self) -> dict[int, Extremum]:
        """The results of the inner loop that are extrema, by tuple index."""
        extrema: dict[int, Extremum] = {}
        for n, number in self._shared():
            following = self.inner.following[n]
            if following.shape.rank or not isinstance(following.operation, _IDEMPOTENT):
                continue
            mine = [element_number(o, self.inner.state) == n for o in following.operands]
            once = [list(p.users) for p in picks(self.inner.state, n)] == [[following]]
            if sum(mine) == 1 and once and list(following.users) == [self.inner.body.root]:
                extrema[n] = Extremum(number, following.operands[mine.index(False)], following.operation)
        return extrema

    def _shared(self) -> Iterable[tuple[int, int]]:
        """Yield the inner and outer tuple indices of state elements that only the inner loop changes."""
        inner, outer = self.inner, self.outer
        state = inner.instruction.operands[0]
        for n in inner.carried:
            number = element_number(inner.initial(n), outer.state)
            after = picks(inner.instruction, n)
            if number is None or len(after) != 1 or outer.following[number] is not after[0]:
                continue
            before = [list(p.users) for p in picks(outer.state, number)]
            tested = (*picks(inner.tested, n), *picks(outer.tested, number))
            is_read = any(p.users or p.is_root for p in tested) or before != [[state]]
            if not is_read and list(after[0].users) == [outer.body.root]:
                yield n, number


def used_numbers(i: HloInstruction) -> list[int]:
    """Return the numbers of the elements of a tuple that have users, in order."""
    used = (element_number(pick, i) for pick in i.users if pick.users or pick.is_root)
    return sorted({n for n in used if n is not None})
