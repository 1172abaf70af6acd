"""Updates whose indices ascend, as those of segments and of the rows of a sparse matrix do.

Consecutive updates of one element wait for each other: each loads what the one before has stored. Several
streams of updates, which begin at different elements, therefore run in turns. Every element still gets its
updates in their order, and no thread reads the indices of others, but for the test whether they ascend.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

from hloom.codegen.compaction import compaction_lanes
from hloom.codegen.elements import Elements
from hloom.codegen.llvm import I1, I64, Value, make_type
from hloom.codegen.llvm.structured import LocalVariable, choose, repeat
from hloom.cpu.kernels.movement.scatter_update import Update
from hloom.ir.affine import Variable
from hloom.ir.instruction import HloInstruction

STREAMS: Final = 4
"""Streams of a thread. What an update stores can be loaded, and a sum added to it, some ten cycles later; an
update takes two or three if it waits for none. With eight streams a sum takes 0.96 of the time."""
BLOCK: Final = 512
"""Indices that are compared before the next test whether all ascend."""


class SortedUpdates:
    """Emits the updates of a scatter along one dimension, of one index each.

    Attributes:
        variable: the number of an update.
    """

    def __init__(self, e: Elements, i: HloInstruction, variables: list[Variable], variable: Variable) -> None:
        self._e, self._f, self.variable = e, e.function, variable
        self._scatter, self._variables = i, variables
        self._bounds = self._f.allocate(I64, STREAMS + 1)

    @contextmanager
    def unless_sorted(self, begin: Value, end: Value, update: Callable[[], None]) -> Generator[None]:
        """Run the updates of start positions in [begin, end) in streams if indices ascend, else the body."""
        with choose(self._f, self._are_sorted()) as choice:
            self._run(self._first(begin), self._first(end), update)
            choice.otherwise()
            yield

    def _are_sorted(self) -> Value:
        """Emit the test whether indices ascend, in blocks: most that do not fail in the first one."""
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
        """Emit the comparisons of the indices in [low, high) with their successors, in vectors."""
        f, lanes = self._f, compaction_lanes(self._f.target)
        wide = Variable(self.variable.extent, "w")
        wide.is_lane = True
        e = Elements(f, lanes, self._e.views)
        update = Update(e, self._scatter, [], [wide if v is self.variable else v for v in self._variables])
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

    def _start(self, number: Value) -> Value:
        """Emit the index of an update."""
        with self._e.scope():
            self.variable.value = number
            (start,) = Update(self._e, self._scatter, [], self._variables).starts().values()
        self.variable.value = None
        return start

    def _first(self, start: Value) -> Value:
        """Emit a binary search for the first update whose index is not less than a number."""
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
        """Emit the updates in [low, high): one of each stream in turns, then what is left of each stream."""
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
        with f.loop(0, shortest.get()) as step:
            for first in firsts:
                self._update(first + step.index, update)
        with f.loop(0, STREAMS) as stream:
            first = f.load(I64, self._bound(stream.index)) + shortest.get()
            with f.loop(first, f.load(I64, self._bound(stream.index + 1))) as loop:
                self._update(loop.index, update)

    def _update(self, number: Value, update: Callable[[], None]) -> None:
        with self._e.scope():
            self.variable.value = number
            update()
            self.variable.value = None

    def _bound(self, stream: Value | int) -> Value:
        """Return the address of the first update of a stream; that of the last one's end follows."""
        return self._f.offset(self._bounds, stream, I64)
