"""Scatters with sorted indices, as in segment sums and products with sparse matrices by rows.

Consecutive updates of one element form a chain of dependent loads and stores. To hide their latency a thread
interleaves several streams of updates; the updates of an element all belong to one stream and keep their
order. A binary search finds the updates of each thread, so that a thread reads only the indices of its own
updates, after a test that all indices ascend.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from hloom.codegen.compaction import compaction_lanes
from hloom.codegen.elements import Elements
from hloom.codegen.llvm import I1, I32, I64, Value, make_type
from hloom.codegen.llvm.structured import LocalVariable, choose, repeat
from hloom.cpu.kernels.movement.scatter_lookups import Lookups
from hloom.cpu.kernels.movement.scatter_update import Update
from hloom.ir.affine import Index, Indices, Variable
from hloom.ir.instruction import HloInstruction

STREAMS: Final = 4
"""Number of interleaved streams of a thread. The latency of an update (load, add, store) is some ten cycles,
the throughput one in two or three cycles. Eight streams would take 0.96 of the time."""
TURNS: Final = 64
"""Number of updates of each stream whose lookups are computed in advance."""
LANES: Final = 16
"""Maximum number of lanes of a vector of indices."""
BLOCK: Final = 512
"""Number of indices that the test of the order compares between two branches."""


class SortedUpdates:
    """Emits the updates of a scatter whose indices ascend; each window has a single scatter index.

    Args:
        e: the emitter of single updates, in scalar code.
        i: the scatter.
        variables: the loop variables that index an element of the updates array.
        variable: the one in ``variables`` that enumerates the scatter indices.
        gathers: the gathers whose positions are computed in advance, in vectors.
    """

    def __init__(
        self,
        e: Elements,
        i: HloInstruction,
        variables: list[Variable],
        variable: Variable,
        gathers: list[HloInstruction],
    ) -> None:
        self._e, self._f, self.variable = e, e.function, variable
        self._scatter, self._variables = i, variables
        self._bounds = self._f.allocate(I64, STREAMS + 1)
        self._gathers = gathers
        self._lookups = [Lookups(e, gathers, TURNS + LANES) for _ in range(STREAMS)]

    @contextmanager
    def unless_sorted(self, begin: Value, end: Value, update: Callable[[], None]) -> Generator[None]:
        """Emit a branch at run time: if the scatter indices ascend, interleaved streams of updates are run.

        Otherwise the code that is emitted inside the ``with`` runs.

        Args:
            begin, end: updates with start indices begin <= s < end in the operand are applied.
            update: emits one update.
        """
        with choose(self._f, self._are_sorted()) as choice:
            self._run(self._first(begin), self._first(end), update)
            choice.otherwise()
            yield

    def _are_sorted(self) -> Value:
        """Emit the test whether all scatter indices ascend, equal ones included; return an i1.

        It tests block by block, and stops after the first block that does not ascend.
        """
        f = self._f
        last = f.constant(I64, self.variable.trips - 1)
        position = LocalVariable(f, I64, 0)
        with repeat(f) as loop:
            here = position.get()
            end = f.intrinsic("smin", here + BLOCK, last)
            loop.leave_if(here.compare("sge", last))
            loop.leave_if(~self._ascend(here, end))
            position.set(end)
        return position.get().compare("sge", last)

    def _ascend(self, low: Value, high: Value) -> Value:
        """Emit the test whether the scatter indices low <= n <= high ascend, in vectors; return an i1."""
        f, (e, wide, variables) = self._f, self._vectors()
        update, lanes = Update(e, self._scatter, [], variables), e.lanes
        last = f.constant(I64, self.variable.trips - 1 - lanes)
        with f.loop(low, high, lanes, [f.constant(I1.vector(lanes), 1)]) as loop:
            first = f.intrinsic("smin", loop.index, last)
            indices: list[Value] = []
            is_signed = True
            for wide.value in (first, first + 1):
                with e.scope():
                    ((_, index, is_signed),) = update.components()
                    indices.append(e.wide(index))
            loop.next(loop.values[0] & indices[0].compare("sle" if is_signed else "ule", indices[1]))
        return loop.values[0].bitcast(make_type(f"i{lanes}")).compare("eq", -1)

    def _vectors(self) -> tuple[Elements, Variable, list[Variable]]:
        """Return (emitter of vectors of updates, lane variable, loop variables of the updates array).

        The lane variable is one of the loop variables: it enumerates the scatter indices.
        """
        wide = Variable(self.variable.extent, "w")
        wide.is_lane = True
        e = Elements(self._f, compaction_lanes(self._f.target), self._e.views)
        return e, wide, [wide if v is self.variable else v for v in self._variables]

    def _start(self, number: Value) -> Value:
        """Emit the load of the index in a scatter's operand at which update ``number`` starts."""
        with self._at(number):
            (start,) = Update(self._e, self._scatter, [], self._variables).starts().values()
        return start

    def _first(self, start: Value) -> Value:
        """Emit a binary search for the first update that starts at ``start`` or later; return its index.

        The scatter indices must ascend; ``start`` is an index in the operand. The result is the number of
        updates if none starts so late.
        """
        f = self._f
        low, high = LocalVariable(f, I64, 0), LocalVariable(f, I64, self.variable.trips)
        with repeat(f) as loop:
            loop.leave_if(low.get().compare("sge", high.get()))
            middle = (low.get() + high.get()).logical_shift_right(1)
            is_less = self._start(middle).compare("slt", start)
            low.set(is_less.select(middle + 1, low.get()))
            high.set(is_less.select(high.get(), middle))
        return low.get()

    def _run(self, low: Value, high: Value, update: Callable[[], None]) -> None:
        """Emit the updates low <= n < high of a scatter, divided into streams of about equal length.

        Updates of the same element are in one stream. A loop applies one update of each stream in turn, up to
        the length of the shortest stream; then the rest of each stream follows. ``update`` emits one update.
        """
        f = self._f
        last = f.constant(I64, self.variable.trips - 1)
        shortest = LocalVariable(f, I64, high - low)
        f.store(low, self._bound(0))
        with f.loop(1, STREAMS + 1) as stream:
            number = low + ((high - low) * stream.index).logical_shift_right(STREAMS.bit_length() - 1)
            first = self._first(self._start(f.intrinsic("smin", number, last)))
            first = f.intrinsic("smax", first, low)
            end = stream.index.compare("eq", STREAMS).select(high, first)
            f.store(end, self._bound(stream.index))
            length = end - f.load(I64, self._bound(stream.index - 1))
            shortest.set(f.intrinsic("smin", shortest.get(), length))
        firsts = [f.load(I64, self._bound(stream)) for stream in range(STREAMS)]
        with f.loop(0, shortest.get(), TURNS) as turns:
            end = f.intrinsic("smin", turns.index + TURNS, shortest.get())
            for first, lookups in zip(firsts, self._lookups, strict=True) if self._gathers else ():
                self._look_up(first + turns.index, first + end, lookups)
            with f.loop(turns.index, end) as step:
                for first, lookups in zip(firsts, self._lookups, strict=True):
                    with self._at(first + step.index) as indices:
                        lookups.know(indices, step.index - turns.index)
                        update()
        with f.loop(0, STREAMS) as stream:
            first = f.load(I64, self._bound(stream.index)) + shortest.get()
            end = f.load(I64, self._bound(stream.index + 1))
            with f.loop(first, end) as loop, self._at(loop.index):
                update()

    def _look_up(self, low: Value, high: Value, lookups: Lookups) -> None:
        """Emit a loop that stores in ``lookups`` which elements the gathers read for updates low <= n < high.

        It computes the positions of these elements in the gathered arrays, a vector of updates at a time, and
        stores them in the stack arrays of ``lookups``.
        """
        f, (e, wide, variables) = self._f, self._vectors()
        with f.loop(low, high, e.lanes) as loop, e.scope():
            wide.value = loop.index
            remaining = (high - loop.index).cast("trunc", I32).splat(e.lanes)
            numbers = f.constant(I32.vector(e.lanes), list(range(e.lanes)))
            with e.masked(numbers.compare("ult", remaining)):
                for area, position in lookups.positions(e, tuple(map(Index.of, variables))):
                    f.store(position, f.offset(area, loop.index - low, I32))

    @contextmanager
    def _at(self, number: Value) -> Generator[Indices]:
        """Make ``number`` the current update inside the ``with``; yield its index in the updates array.

        If an update is a window, the loop variables over the window's elements are part of the index.
        """
        with self._e.scope():
            self.variable.value = number
            yield tuple(map(Index.of, self._variables))
            self.variable.value = None

    def _bound(self, stream: Value | int) -> Value:
        """Return the address, on the stack, of the index of a scatter's first update in stream ``stream``.

        That index is also the end of the stream before.
        """
        return self._f.offset(self._bounds, stream, I64)
