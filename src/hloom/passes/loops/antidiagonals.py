"""The cells of an antidiagonal of a loop nest's table, as the lanes of an array.

Lane i of antidiagonal d is the cell of row i and column d - i. Where that column is outside of the table, the
value of the lane is arbitrary, and nothing reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from hloom.analysis.loops import element_number
from hloom.ir.affine import Index, Indices, Variable
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import PaddingDimension, SliceDimension
from hloom.operations.arithmetic import Add, Multiply, Subtract
from hloom.operations.dynamic_slicing import DynamicSlice
from hloom.operations.gather_scatter import Gather
from hloom.operations.movement import Broadcast, Pad, Reverse, Slice, Transpose
from hloom.operations.structure import Iota
from hloom.passes.loops.counted_loop import CountedLoop
from hloom.passes.loops.element_writer import ElementRequest, ElementWriter, UnsupportedError, Writing
from hloom.passes.loops.loop_nests import Board, Extremum, LoopNest
from hloom.passes.writing import Inserter, Writer
from hloom.shape.element_type import S32
from hloom.shape.shape import Shape

_OLDEST: Final = 4
"""Maximum distance, in rows or antidiagonals, of a cell from those that it depends on."""
_MOST_RECOMPUTED: Final = 16
"""Maximum number of instructions that are recomputed in lanes, where the loops would load their elements."""
_LARGEST_COPY: Final = 1 << 24
"""Maximum number of bytes of an array that is copied into antidiagonal order."""

Position: TypeAlias = tuple[int, tuple[int, ...]]
"""The tuple index of a carried array, and the index of an element of it."""


class Antidiagonals(ElementWriter):
    """Writes the cells of an antidiagonal, one lane for each row of a nest.

    Attributes:
        row, column: the indices of the cell of each lane.
    """

    def __init__(self, nest: LoopNest, loop: CountedLoop) -> None:
        super().__init__(loop, (nest.rows.iterations,))
        self.nest = nest
        row, column = Variable(nest.rows.iterations, "row"), Variable(nest.columns.iterations, "column")
        self.row, self.column = Index.of(row), Index.of(column)
        lane = self.w.op(Iota(iota_dimension=0), shape=Shape(S32, self.dimensions))
        self.values[row] = lane
        self.values[column] = self.w.op(Subtract(), self.lanes(loop.counter), lane)
        self._edges: dict[Position, HloInstruction] = {}
        self._positions: dict[Board, list[Index]] = {}
        self._histories: dict[tuple[HloInstruction, int], HloInstruction] = {}

    def cell(self, cell: HloInstruction) -> HloInstruction:
        """Write the value of an instruction of the inner loop's body, of one element, in each lane."""
        return self.write(ElementRequest(cell, (Index(0),) * cell.shape.rank))

    def last(self, lanes: HloInstruction) -> HloInstruction:
        """Return the element of the last lane."""
        (n,) = self.dimensions
        return self.w.reshape(self.w.op(Slice(slice=(SliceDimension(n - 1, n),)), lanes), ())

    def extremum(self, extremum: Extremum) -> HloInstruction:
        """Carry an extremum for each lane, of the cells computed so far; return the element of the state."""
        initial = self.nest.outer.initial(extremum.number)
        old = self.loop.carry(self.loop.outside.broadcast(initial, self.dimensions))
        new = self.w.op(extremum.operation, old, self.cell(extremum.cell))
        count = self.nest.columns.iterations
        at = self.index_value(self.column)
        has_begun = self.w.compare(at, "GE", self.w.full(0, at.shape))
        inside = self.conjunction(has_begun, self.w.compare(at, "LT", self.w.full(count, at.shape)))
        self.loop.follow(old, self.choose(inside, new, old))
        return old

    def position_of(self, board: Board) -> Sequence[Index]:
        """Return the indices of the element of a board that an iteration updates.

        Each is the number of the row or column times 1 or -1, plus a constant. Raises UnsupportedError for
        others.
        """
        if board not in self._positions:
            shape = self.nest.outer.initial(board.number).shape
            loops = (self.row, self.column)[2 - shape.rank :]
            for start, loop, size in zip(board.position, loops, shape.dimensions, strict=True):
                index = self.position(self.write(ElementRequest(start)), start.shape.element_type, size)
                if [(v, abs(factor)) for v, factor in index.terms] != [(_variable(loop), 1)]:
                    raise UnsupportedError(start.name)
                self._positions.setdefault(board, []).append(index)
        return self._positions[board]

    def write_histories(self) -> None:
        """Carry all requested values of earlier antidiagonals, and those that they are computed from."""
        written: set[tuple[HloInstruction, int]] = set()
        while pending := [key for key in self._histories if key not in written]:
            for value, age in pending:
                new = self.cell(value) if age == 1 else self.history(value, age - 1)
                self.loop.follow(self._histories[value, age], new)
                written.add((value, age))

    def history(self, cell: HloInstruction, age: int) -> HloInstruction:
        """Return the value of an instruction of the inner body in each lane, ``age`` antidiagonals ago."""
        if not 1 <= age <= _OLDEST:
            raise UnsupportedError(cell.name)
        if (cell, age) not in self._histories:
            zeros = self.loop.outside.full(0, Shape(cell.shape.element_type, self.dimensions))
            self._histories[cell, age] = self.loop.carry(zeros)
        return self._histories[cell, age]

    # -- elements of the states of both loops

    def leaf(self, request: ElementRequest) -> Writing | None:
        (i, indices, _), nest = request, self.nest
        number = element_number(i, nest.inner.state)
        if number is not None:
            return self._of_inner_state(request, number)
        number = element_number(i, nest.outer.state)
        if number is not None:
            return self._of_outer_state(request, number)
        number = element_number(i, nest.inner.instruction)
        if number is not None:
            return steps_of(self._above(request, number))
        if i.parent is self.loop.outside.computation and not _is_outer_function(i):
            return steps_of(self.table(i, indices))
        return None

    def _of_inner_state(self, request: ElementRequest, number: int) -> Writing:
        inner, columns, (i, indices, back) = self.nest.inner, self.nest.columns, request
        if number == columns.element:
            return self.number(self.column * columns.step + columns.initial, i.shape.element_type)
        if inner.is_invariant(number):
            return (yield ElementRequest(inner.initial(number), indices, back))
        if number in self.nest.boards:
            return self._of_board(self.nest.boards[number], indices)
        if i.shape.rank:
            raise UnsupportedError(i.name)
        first = yield ElementRequest(inner.initial(number))
        return self.choose(self._is(self.column, 0), first, self.history(inner.following[number], 1))

    def _of_outer_state(self, request: ElementRequest, number: int) -> Writing:
        """Return an element of the outer loop's state: initial in the first row, else from the row above."""
        outer, rows, (i, indices, back) = self.nest.outer, self.nest.rows, request
        row = self.row - back
        if number == rows.element:
            return self.number(row * rows.step + rows.initial, i.shape.element_type)
        if outer.is_invariant(number):
            return (yield ElementRequest(outer.initial(number), indices, back))
        if all(index.is_constant for index in indices):
            return self.table(self._edge(number, tuple(index.constant for index in indices)), (row,))
        if back == _OLDEST:
            raise UnsupportedError(i.name)
        first = self.table(outer.initial(number), indices)
        above = yield ElementRequest(outer.following[number], indices, back + 1)
        return self.choose(self._is(self.row, back), first, above)

    def _above(self, request: ElementRequest, number: int) -> HloInstruction:
        """Return a cell, of the row ``request.back`` rows above, from the inner loop's results."""
        i, indices, back = request
        row = self.nest.rows_of_cells.get(number)
        if row is None or not back:
            raise UnsupportedError(i.name)
        (index,) = indices
        first = 0 if row.step == 1 else self.nest.columns.iterations - 1
        return self._neighbor(row.cell, back, _distance(self.column * row.step + first, index, row.step))

    def _of_board(self, board: Board, indices: Indices) -> HloInstruction:
        """Return an element of a board: a cell that was computed before, or its initial value."""
        position = self.position_of(board)
        initial = self.nest.outer.initial(board.number)
        columns = _distance(position[-1], indices[-1], position[-1].terms[0][1])
        rows = int(columns <= 0)
        if len(position) == 2:
            rows = _distance(position[0], indices[0], position[0].terms[0][1])
        if rows < 0 or (not rows and columns <= 0):
            return self.table(initial, indices)
        n = self.nest.columns.iterations
        cell = self._neighbor(board.cell, rows, columns)
        ends = range(columns) if columns > 0 else range(n + columns, n)
        for loop, numbers in ((self.row, range(rows)), (self.column, ends)):
            for number in numbers:
                rim = tuple(_with_value(index, loop, number) for index in indices)
                cell = self.choose(self._is(loop, number), self.table(initial, rim), cell)
        return cell

    def _neighbor(self, cell: HloInstruction, rows: int, columns: int) -> HloInstruction:
        """Return the cell that is ``rows`` rows above and ``columns`` columns to the left."""
        lanes = self.history(cell, rows + columns)
        (n,) = self.dimensions
        if not rows:
            return lanes
        kept = self.w.op(Slice(slice=(SliceDimension(0, n - rows),)), lanes)
        nothing = self.w.scalar(0, cell.shape.element_type)
        return self.w.op(Pad(padding=(PaddingDimension(rows, 0),)), kept, nothing)

    def _is(self, index: Index, number: int) -> HloInstruction:
        value = self.index_value(index)
        return self.w.compare(value, "EQ", self.w.full(number, value.shape))

    def _edge(self, number: int, position: tuple[int, ...]) -> HloInstruction:
        """Return the values that an element of a carried array has at the start of each row, as an array."""
        if (number, position) not in self._edges:
            self._edges[number, position] = edge_of(self.nest, number, position)
        return self._edges[number, position]

    # -- loads

    def table(self, array: HloInstruction, indices: Indices) -> HloInstruction:
        """Return an element of an array; if indexed by row and column, from a copy in antidiagonal order."""
        loops = (self.row, self.column)
        if array.shape.rank != 2 or any(
            [(v, abs(factor)) for v, factor in index.terms] != [(_variable(loop), 1)]
            for index, loop in zip(indices, loops, strict=True)
        ):
            return super().table(array, indices)
        (n,), w = self.dimensions, self.loop.outside
        if self.loop.trips * n * array.shape.element_type.bytes > _LARGEST_COPY:
            return super().table(array, indices)
        firsts = [index.constant for index in indices]
        backward = tuple(d for d, index in enumerate(indices) if index.terms[0][1] < 0)
        if backward:
            array = w.op(Reverse(dimensions=backward), array)
        sizes = array.shape.dimensions
        firsts = [sizes[d] - 1 - f if d in backward else f for d, f in enumerate(firsts)]
        ends = (n, self.nest.columns.iterations)
        ranges = [
            PaddingDimension(-f, f + end - size) for f, end, size in zip(firsts, ends, sizes, strict=True)
        ]
        cells = w.op(Pad(padding=tuple(ranges)), array, w.scalar(0, array.shape.element_type))
        antidiagonals = self.loop.invariant(antidiagonals_of(w, cells))
        part = DynamicSlice(dynamic_slice_sizes=(1, n))
        return self.w.reshape(self.w.op(part, antidiagonals, self.loop.counter, self.w.scalar(0, S32)), (n,))

    def lookup(self, array: HloInstruction, index: Index) -> HloInstruction:
        """Return a dynamic slice of the array if the lanes read adjacent elements, else gather."""
        factors = dict(index.terms)
        by_row, by_column = (factors.pop(_variable(i), 0) for i in (self.row, self.column))
        by_lane = by_row - by_column
        if factors or abs(by_lane) > 1:
            return self._gathered(array, index)
        if not by_lane:
            return self.lanes(self.w.reshape(self._window(array, index.constant, by_column, 1), ()))
        return self._window(array, index.constant, by_column, by_lane * self.dimensions[0])

    def _gathered(self, array: HloInstruction, index: Index) -> HloInstruction:
        gather = Gather(
            offset_dims=(),
            collapsed_slice_dims=(0,),
            start_index_map=(0,),
            index_vector_dim=1,
            slice_sizes=(1,),
            indices_are_sorted=False,
        )
        return self.w.op(gather, self.loop.invariant(array), self.index_value(index))

    def _window(self, array: HloInstruction, start: int, by_step: int, size: int) -> HloInstruction:
        """Return the elements from ``start + by_step * counter`` on, or backward from there if size < 0."""
        outside, last = self.loop.outside, by_step * (self.loop.trips - 1)
        length = array.shape.dimensions[0]
        if size < 0:
            array = outside.op(Reverse(dimensions=(0,)), array)
            start, by_step, last, size = length - 1 - start, -by_step, -last, -size
        before, end = max(0, -start - min(last, 0)), start + max(last, 0) + size
        if before or end > length:
            pad = Pad(padding=(PaddingDimension(before, max(0, end - length)),))
            array = outside.op(pad, array, outside.scalar(0, array.shape.element_type))
        at = self.w.scalar(start + before, S32)
        if by_step:
            at = self.w.op(Add(), self.w.op(Multiply(), self.loop.counter, self.w.scalar(by_step, S32)), at)
        return self.w.op(DynamicSlice(dynamic_slice_sizes=(size,)), self.loop.invariant(array), at)


def antidiagonals_of(w: Inserter, cells: HloInstruction) -> HloInstruction:
    """Return an array whose element [d, i] is cell [i, d - i]; arbitrary where there is no such cell."""
    n, m = cells.shape.dimensions
    steps = n + m - 1
    flat = w.reshape(w.resize(cells, (n, steps + 1)), (n * (steps + 1),))
    return w.op(Transpose(dimensions=(1, 0)), w.reshape(w.resize(flat, (n * steps,)), (n, steps)))


def cells_of(w: Inserter, antidiagonals: HloInstruction) -> HloInstruction:
    """Invert `antidiagonals_of`."""
    steps, n = antidiagonals.shape.dimensions
    flat = w.reshape(w.op(Transpose(dimensions=(1, 0)), antidiagonals), (n * steps,))
    cells = w.reshape(w.resize(flat, (n * (steps + 1),)), (n, steps + 1))
    return w.resize(cells, (n, steps + 1 - n))


def _variable(index: Index) -> Variable:
    """Return the variable of an index of one term."""
    ((variable, _),) = index.terms
    return variable


def _with_value(index: Index, variable: Index, number: int) -> Index:
    """Substitute a number for a variable in an index."""
    factor = dict(index.terms).get(_variable(variable), 0)
    return index - variable * factor + factor * number


def _distance(position: Index, index: Index, factor: int) -> int:
    """Return how many iterations earlier ``index`` was written than ``position``; ``factor`` is 1 or -1."""
    distance = (position - index) * factor
    if not distance.is_constant:
        raise UnsupportedError("a cell at no constant distance")
    return distance.constant


def _is_outer_function(i: HloInstruction) -> bool:
    """Return whether an array is a short elementwise function of broadcast scalars and vectors."""
    pending, seen = [i], {i}
    while pending and len(seen) <= _MOST_RECOMPUTED:
        i = pending.pop()
        if i.shape.rank <= 1:
            continue
        if not (i.operation.elementwise or isinstance(i.operation, Broadcast | Slice)):
            return False
        fresh = [o for o in i.operands if o not in seen]
        seen.update(fresh)
        pending.extend(fresh)
    return not pending and len(seen) > 1


def steps_of(value: HloInstruction) -> Writing:
    """Return the generator of an element that has been written already: it requests no others."""
    yield from ()
    return value


def edge_of(nest: LoopNest, number: int, position: tuple[int, ...]) -> HloInstruction:
    """Return the values of one element of a carried array at the start of each row, computed by a loop.

    Raises UnsupportedError if it depends on cells.
    """
    loop = CountedLoop(Writer(nest.outer.instruction), nest.rows.iterations, "edge")
    edge = _Edge(nest, loop)
    stack = loop.stack(edge.carried((number, position)))
    edge.write_carried()
    return loop.result(stack)


class _Edge(ElementWriter):
    """Writes elements of carried arrays at constant positions, one row in an iteration."""

    def __init__(self, nest: LoopNest, loop: CountedLoop) -> None:
        super().__init__(loop, ())
        self.nest = nest
        row = Variable(nest.rows.iterations, "row")
        self.row = Index.of(row)
        self.values[row] = loop.counter
        self._carried: dict[Position, HloInstruction] = {}

    def leaf(self, request: ElementRequest) -> Writing | None:
        i, indices, _ = request
        number = element_number(i, self.nest.outer.state)
        if number is not None:
            return self._of_state(request, number)
        return steps_of(self.table(i, indices)) if i.parent is self.loop.outside.computation else None

    def _of_state(self, request: ElementRequest, number: int) -> Writing:
        outer, rows, (i, indices, _) = self.nest.outer, self.nest.rows, request
        if number == rows.element:
            return self.number(self.row * rows.step + rows.initial, i.shape.element_type)
        if outer.is_invariant(number):
            return (yield ElementRequest(outer.initial(number), indices))
        if not all(index.is_constant for index in indices):
            raise UnsupportedError(i.name)
        return self.carried((number, tuple(index.constant for index in indices)))

    def carried(self, position: Position) -> HloInstruction:
        """Carry one element of an array that the outer loop carries; return its value in the body."""
        if position not in self._carried:
            w, (number, indices) = self.loop.outside, position
            part = Slice(slice=tuple(SliceDimension(n, n + 1) for n in indices))
            first = w.reshape(w.op(part, self.nest.outer.initial(number)), ())
            self._carried[position] = self.loop.carry(first)
        return self._carried[position]

    def write_carried(self) -> None:
        """Write the next values of the carried elements, and of those that they depend on."""
        written: set[Position] = set()
        while pending := [key for key in self._carried if key not in written]:
            for number, position in pending:
                following = ElementRequest(self.nest.outer.following[number], tuple(map(Index, position)))
                self.loop.follow(self._carried[number, position], self.write(following))
                written.add((number, position))

    def lookup(self, array: HloInstruction, index: Index) -> HloInstruction:
        slice_ = DynamicSlice(dynamic_slice_sizes=(1,))
        return self.w.reshape(self.w.op(slice_, self.loop.invariant(array), self.index_value(index)), ())
