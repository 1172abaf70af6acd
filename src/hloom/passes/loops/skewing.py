"""Rewrites a nest of two loops over a table as one loop over antidiagonals; see `while_loop_skewing`."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.analysis.loops import element_number, picks
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import SliceDimension
from hloom.operations.arithmetic import Subtract
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.movement import Reverse, Slice
from hloom.operations.reduction import Reduce
from hloom.operations.structure import GetTupleElement
from hloom.passes.loops.antidiagonals import Antidiagonals, cells_of
from hloom.passes.loops.counted_loop import CountedLoop
from hloom.passes.loops.element_writer import UnsupportedError
from hloom.passes.loops.loop_nests import Board, Extremum, LoopNest, used_numbers
from hloom.passes.loops.while_loop_invariant_code_motion import copy_out
from hloom.passes.loops.while_loops import rebuild
from hloom.passes.simplify.dead_code import remove_dead
from hloom.passes.writing import Writer
from hloom.shape.element_type import S32


class Skewing:
    """The rewrite of one nest.

    Attributes:
        nest: the nest.
        used: the tuple indices of the inner loop's results that are used.
        w: the writer before the outer loop.
        loop: the new loop.
        lanes: the writer of its body, with one lane for each row of the table.
    """

    def __init__(self, nest: LoopNest) -> None:
        self.nest = nest
        self.used = used_numbers(nest.inner.instruction)
        self.w = Writer(nest.outer.instruction)
        self._before = set(self.w.computation), set(self.w.module.computations)
        self.loop = CountedLoop(self.w, nest.rows.iterations + nest.columns.iterations - 1, "antidiagonals")
        self.lanes = Antidiagonals(nest, self.loop)

    def skew(self) -> bool:
        """Rewrite the loops; return false, without a change, if cells cannot be computed in this order."""
        nest, lanes = self.nest, self.lanes
        rows = {n: nest.rows_of_cells[n] for n in self.used if n in nest.rows_of_cells}
        boards = {n: nest.boards[n] for n in self.used if n in nest.boards}
        extrema = {n: nest.extrema[n] for n in self.used if n in nest.extrema}
        if not self.used or len(rows) + len(boards) + len(extrema) < len(self.used):
            self._discard()
            return False
        is_last = self._needs_last_row_only()
        try:
            stacks = {n: self._stack(row.cell, only_last=is_last) for n, row in rows.items()}
            squares = {n: self._stack(b.cell, only_last=len(b.position) == 1) for n, b in boards.items()}
            lane_extrema = {n: lanes.extremum(extremum) for n, extremum in extrema.items()}
            for board in boards.values():
                lanes.position_of(board)
            lanes.write_histories()
        except UnsupportedError:
            self._discard()
            return False
        tables = {n: self._table(stacks[n], (1, row.step)) for n, row in rows.items()}
        for n, board in boards.items():
            self._replace(board.number, self._updated(board, squares[n]))
        for n, extremum in extrema.items():
            self._replace(extremum.number, self._reduced(extremum, lane_extrema[n]))
        if is_last:
            self._finish(tables)
        else:
            self._read(tables)
        return True

    def _discard(self) -> None:
        """Remove all instructions and computations that were written."""
        instructions, computations = self._before
        for i in reversed([i for i in self.w.computation if i not in instructions]):
            self.w.computation.remove(i)
        for computation in [c for c in self.w.module.computations if c not in computations]:
            self.w.module.remove(computation)

    def _stack(self, cell: HloInstruction, *, only_last: bool) -> HloInstruction:
        """Carry an array of the cells of every antidiagonal, or of the last row only."""
        lanes = self.lanes.cell(cell)
        return self.loop.stack(self.lanes.last(lanes) if only_last else lanes)

    def _table(self, stack: HloInstruction, steps: Sequence[int]) -> HloInstruction:
        """Return the table, or its last row, from antidiagonals; dimensions of step -1 are reversed."""
        w, antidiagonals = self.w, self.loop.result(stack)
        if antidiagonals.shape.rank == 1:
            part = SliceDimension(self.nest.rows.iterations - 1, self.loop.trips)
            table, steps = w.op(Slice(slice=(part,)), antidiagonals), steps[-1:]
        else:
            table = cells_of(w, antidiagonals)
        backward = tuple(d for d, step in enumerate(steps) if step < 0)
        return w.op(Reverse(dimensions=backward), table) if backward else table

    def _updated(self, board: Board, square: HloInstruction) -> HloInstruction:
        """Return the final value of a board: its initial value with the table written into it."""
        initial = self.nest.outer.initial(board.number)
        position = self.lanes.position_of(board)
        table = self._table(square, [index.terms[0][1] for index in position])
        starts = [self.w.scalar(index.minimum(), S32) for index in position]
        return self.w.op(DynamicUpdateSlice(), initial, table, *starts)

    def _reduced(self, extremum: Extremum, lanes: HloInstruction) -> HloInstruction:
        """Return the final value of an extremum: the reduction of its lanes."""
        initial, w = self.nest.outer.initial(extremum.number), self.w
        combiner = w.combiner(extremum.operation, initial.shape.element_type)
        reduce = Reduce(dimensions=(0,))
        return w.op(reduce, self.loop.result(lanes), initial, computations=[combiner])

    def _replace(self, number: int, value: HloInstruction) -> None:
        """Replace a result of the outer loop, which passes the element on unchanged from now on."""
        outer = self.nest.outer
        for pick in picks(outer.instruction, number):
            pick.replace_all_uses_with(value)
        outer.body.root.replace_operand(number, picks(outer.state, number)[0])

    def _needs_last_row_only(self) -> bool:
        """Return whether the used results of the outer loop depend on the last row of cells only."""
        outer, inner = self.nest.outer, self.nest.inner
        pending = [outer.following[n] for n in used_numbers(outer.instruction)]
        seen = set(pending)
        while pending:
            i = pending.pop()
            number = element_number(i, outer.state)
            if number is not None and number != self.nest.rows.element and not outer.is_invariant(number):
                return False
            if element_number(i, inner.instruction) is None:
                fresh = [o for o in i.operands if o not in seen]
                seen.update(fresh)
                pending.extend(fresh)
        return True

    def _finish(self, rows: dict[int, HloInstruction]) -> None:
        """Compute the used results of the outer loop, after it, from the last row of cells."""
        outer, count = self.nest.outer, self.nest.rows
        copies = {pick: row for n, row in rows.items() for pick in picks(self.nest.inner.instruction, n)}
        for pick in picks(outer.state, count.element):
            copies[pick] = self.w.scalar(count.final - count.step, pick.shape.element_type)
        for n in used_numbers(outer.instruction):
            for pick in picks(outer.instruction, n):
                pick.replace_all_uses_with(copy_out(outer.following[n], outer, copies))
        remove_dead(self.w.computation)

    def _read(self, tables: dict[int, HloInstruction]) -> None:
        """Replace the inner loop's results in the outer loop by rows of the tables."""
        outer, inner, count = self.nest.outer, self.nest.inner, self.nest.rows
        arrays = dict(zip(tables, rebuild(outer, range(outer.count), list(tables.values())), strict=True))
        w = Writer(inner.instruction)
        counter = w.op(GetTupleElement(index=count.element), outer.state)
        kind, sizes = counter.shape.element_type, (1, self.nest.columns.iterations)
        row = w.op(Subtract(), counter, w.scalar(count.initial, kind))
        if count.step < 0:
            row = w.op(Subtract(), w.scalar(count.initial, kind), counter)
        for n, array in arrays.items():
            part = w.op(DynamicSlice(dynamic_slice_sizes=sizes), array, row, w.scalar(0, kind))
            for pick in picks(inner.instruction, n):
                pick.replace_all_uses_with(w.reshape(part, sizes[1:]))
        remove_dead(outer.body)
