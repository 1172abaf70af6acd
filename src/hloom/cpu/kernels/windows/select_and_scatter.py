"""Select-and-scatter, the gradient of max pooling: windows in order, lanes along a dimension without windows.

Windows that do not overlap combine with initial values only, so that nothing is read back; if they cover the
array, it is not filled first. Where windows are adjacent along the minor dimension, lanes are neighboring
windows. They are, too, where windows overlap along it: the elements are selected together, and combined lane
by lane. Threads share the dimensions along which windows are disjoint.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.codegen.accumulators import nested_reduction, spread
from hloom.codegen.combining import Combiner, as_type
from hloom.codegen.elements import NEAR, Elements
from hloom.codegen.llvm import I32, I64, Module, Value
from hloom.codegen.loops import LoopKernel, begin_kernel, lanes_text, loop_nest, outer_loops, vector_lanes
from hloom.codegen.types import Element, constant, to_storage
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.ir.affine import Index, Indices, Variable, linearize
from hloom.ir.indexing import MOST_UNROLLED
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import WindowDimension
from hloom.operations.window_reduction import SelectAndScatter
from hloom.operations.windows import window_element
from hloom.plan.kernel import KernelPlan

FEWEST: Final = 4
"""Minimum number of neighboring windows that are lanes."""
WIDE: Final = 64
"""Lanes of the vector loop: several registers, whose chains of selections are independent."""


@KERNELS.register("select-and-scatter")
def emit_select_and_scatter(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit a select-and-scatter: a kernel that fills the result, and one that computes all windows.

    The result is not filled with the initial value if windows store every element of it.
    """
    i = plan.instruction
    _, source, initial = i.operands
    if not i.shape.element_count:
        return
    if not _covered(i):
        fill = program.shared(lambda name: _fill_kernel(program.module, name, i))
        program.call(i, fill, [program.pointer(initial), program.pointer(i)])
    if source.shape.element_count:
        kernel = program.shared(lambda name: _Windows(program.module, name, i).emit())
        program.call(i, kernel, [*(program.pointer(o) for o in i.operands), program.pointer(i)])


def _window(i: HloInstruction) -> list[WindowDimension]:
    """Return the dimensions of a select-and-scatter's window, with window reversal, if any, removed."""
    return [replace(d, window_reversal=False) for d in operation_of(i, SelectAndScatter).window]


def untouched(d: WindowDimension, windows: int, size: int) -> bool:
    """Return whether each window is a single element along a dimension: window p has operand element p.

    ``windows`` is the number of windows along the dimension, ``size`` the operand's size in it.
    """
    plain = d.size == 1 and d.stride == 1 and not d.padding_low and d.base_dilation == 1
    return plain and windows <= size


def apart(d: WindowDimension) -> bool:
    """Return whether the windows along a dimension do not overlap."""
    return d.stride >= d.dilated_size and d.base_dilation == 1


def _covered(i: HloInstruction) -> bool:
    """Return whether every element of a select-and-scatter's result is stored by exactly one window."""
    return all(
        apart(d)
        and d.window_dilation == 1
        and d.stride == d.size
        and d.padding_low >= 0
        and n * d.size - d.padding_low >= size
        for d, n, size in zip(_window(i), i.operands[1].shape.dimensions, i.shape.dimensions, strict=True)
    )


def _fill_kernel(module: Module, name: str, i: HloInstruction) -> LoopKernel:
    """Emit the kernel (initial value, result, begin, end) that stores the initial value in all results.

    These are the results of select-and-scatter ``i``.
    """
    initial = i.operands[2]
    count = i.shape.element_count
    f, (source, target), begin, end = begin_kernel(module, name, [initial.shape, i.shape])
    lanes = vector_lanes([i], count)
    elements = Elements(f, lanes, {})
    scatter = Combiner(i.called_computations[1])
    loaded = elements.load(source, ())
    (start,) = scatter.starts([loaded], [initial.shape.element_type])
    value = spread(elements, as_type(start, scatter.accumulators[0], i.shape.element_type))
    lane = Variable(count)
    result = replace(target, dimensions=(count,))
    if lanes:
        body = partial(elements.store, result, (Index.of(lane),), value)
        loop_nest(elements, [lane], body, begin, end)
    else:
        elements.store(result, (Index(0),), value)
    f.finish()
    return LoopKernel(name, count, max(1, lanes), count, lanes_text(lanes))


class _Windows:
    """Emits the kernel (operand, source, initial value, result, begin, end) of a select-and-scatter.

    For each window, the kernel selects an element and combines the source into the result there.
    """

    def __init__(self, module: Module, name: str, i: HloInstruction) -> None:
        self.i, self.name = i, name
        self.window = _window(i)
        shapes = [*(o.shape for o in i.operands), i.shape]
        f, arrays, self.begin, self.end = begin_kernel(module, name, shapes)
        self.f, (self.operand, self.source, self.initial, self.result) = f, arrays
        self.positions = [Variable(size, "p") for size in self.source.dimensions]
        self.select, self.scatter = i.called_computations[0], Combiner(i.called_computations[1])
        self.select_type = self.select.parameters[0].shape.element_type
        self.fresh = all(map(apart, self.window))
        self.side_by_side = self.fresh and self._is_side_by_side()
        self.overlapping = not self.fresh and self._overlap()
        self.lane = self._lane()
        lanes = vector_lanes([*i.operands], self.lane.trips) if self.lane is not None else 0
        while self.lane is not None and 0 < lanes < WIDE and lanes * 2 <= self.lane.trips:
            lanes *= 2
        self.e = Elements(f, lanes, {})

    def _lane(self) -> Variable | None:
        if not self.window or self.positions[-1].extent == 1:
            return None
        alone = untouched(self.window[-1], self.positions[-1].extent, self.operand.dimensions[-1])
        return self.positions[-1] if self.side_by_side or self.overlapping or alone else None

    def _overlap(self) -> bool:
        """Return whether windows overlap along the last dimension, in vectors of windows."""
        if self.result.element_type.is_complex or self.operand.element_type.is_complex:
            return False
        dense = all(d.base_dilation == 1 for d in self.window) and self.operand.count < 1 << 31
        return dense and not apart(self.window[-1]) and self.positions[-1].extent >= FEWEST

    def _is_side_by_side(self) -> bool:
        """Return whether windows are adjacent along the last dimension, so that lanes can be windows."""
        if not self.window or self.result.element_type.is_complex:
            return False
        d, positions = self.window[-1], self.positions[-1].extent
        inside = not d.padding_low and positions * d.size <= self.operand.dimensions[-1]
        close = 1 < d.size <= NEAR and d.stride == d.size and d.window_dilation == 1
        small = math.prod(d.size for d in self.window) <= MOST_UNROLLED
        return inside and close and small and positions >= FEWEST

    def emit(self) -> LoopKernel:
        f, e, lane = self.f, self.e, self.lane
        loops = [v for v in self.positions if v.extent != 1 and v is not lane]
        shared = next((v for v, d in zip(self.positions, self.window) if v in loops and apart(d)), None)
        begin, end = (self.begin, self.end) if shared is not None else (0, None)
        if shared is not None:
            loops = [shared, *(v for v in loops if v is not shared)]
        initial = e.load(self.initial, ())
        (start,) = self.scatter.starts([initial], [self.initial.element_type])
        self.start = as_type(start, self.scatter.accumulators[0], self.result.element_type)
        with outer_loops(f, loops, begin, end), e.scope():
            if lane is None:
                self._position()
            elif self.side_by_side:
                self._vectors(lane)
            elif self.overlapping:
                self._overlapping_vectors(lane)
            else:
                loop_nest(e, [lane], self._position)
        f.finish()
        work = math.prod(self.source.dimensions) * math.prod(d.size for d in self.window)
        trips = shared.trips if shared is not None else 1
        form = lanes_text(e.lanes) + (", side by side" if self.side_by_side or self.overlapping else "")
        return LoopKernel(self.name, trips, 1, work, form)

    def _vectors(self, lane: Variable) -> None:
        """Emit the loop over vectors of windows along ``lane``; the last one may overlap its predecessor."""
        f, lanes = self.f, self.e.lanes
        lane.is_lane = True
        with f.loop(0, -(-lane.trips // lanes) * lanes, lanes) as loop, self.e.scope():
            lane.value = f.intrinsic("smin", loop.index, f.constant(I64, lane.trips - lanes))
            self._position()
        lane.value = None

    # -- vectors of windows that overlap

    def _overlapping_vectors(self, lane: Variable) -> None:
        """Emit the loop over vectors of windows along ``lane``; the last one selects some of them again."""
        f, lanes = self.f, self.e.lanes
        lane.is_lane = True
        whole = lane.trips // lanes * lanes
        with f.loop(0, whole, lanes) as loop, self.e.scope():
            lane.value = loop.index
            self._select_and_combine(0)
        if whole < lane.trips:
            with self.e.scope():
                lane.value = f.constant(I64, lane.trips - lanes)
                self._select_and_combine(whole + lanes - lane.trips)
        lane.value = None

    def _select_and_combine(self, first: int) -> None:
        """Emit the selection of a vector of windows, and the combinations of the lanes from ``first`` on."""
        e, at = self.e, [Index.of(v) for v in self.positions]
        (values,) = self.scatter.lift([e.load(self.source, tuple(at))], [self.source.element_type])
        places = self._first_elements(at)
        distances = self._selected_distances(at)
        start, step, _ = e.parts(self.result.linear(places))
        scalar, flat = Elements(self.f, 0, {}), replace(self.result, dimensions=(self.result.count,))
        kind, accumulated = self.result.element_type, self.scatter.accumulators[0]
        values = spread(e, values)
        assert isinstance(values, Value)
        for number in range(first, e.lanes):
            distance = distances.extract(number)
            is_selected = self.f.when(distance.compare("sge", 0)) if self._may_be_empty() else nullcontext()
            with is_selected, scalar.scope():
                place = (scalar.opaque(start + step * number + distance.cast("sext", I64), flat.count),)
                old = as_type(scalar.load(flat, place), kind, accumulated)
                combined = self.scatter.combine(scalar, [old], [values.extract(number)])
                (new,) = self.scatter.lower(combined, [kind])
                scalar.store(flat, place, new)

    def _first_elements(self, at: Sequence[Index]) -> Indices:
        """Return the indices of the first elements of windows; they may lie in the padding."""
        return tuple(p * d.stride - d.padding_low for p, d in zip(at, self.window, strict=True))

    def _may_be_empty(self) -> bool:
        """Return whether a window may have no element inside of the operand."""
        return any(d.padding_low > 0 or d.padding_high > 0 for d in self.window)

    def _selected_distances(self, at: Sequence[Index]) -> Value:
        """Emit the distances of the selected elements from the first ones of their windows, in elements.

        The distance is -1 for a window without elements.
        """
        variables = [Variable(d.size, "w") for d in self.window]

        def select(state: list[Element], taps: Sequence[Index]) -> list[Element]:
            inside: Value | None = None
            places: list[Index] = []
            for p, tap, d, size in zip(at, taps, self.window, self.operand.dimensions, strict=True):
                index, condition = window_element(self.e, p, tap, d, size)
                places.append(index)
                inside = self.e.both(inside, condition)
            steps = [tap * d.window_dilation for tap, d in zip(taps, self.window, strict=True)]
            distance = self.e.index_value(self.operand.linear(tuple(steps))).cast("trunc", I32)
            return self._challenge(state, tuple(places), inside, distance, first=False)

        state = self._none()
        if math.prod(d.size for d in self.window) <= MOST_UNROLLED:
            for taps in itertools.product(*(range(d.size) for d in self.window)):
                state = select(state, [Index(tap) for tap in taps])
        else:
            looped = [v for v in variables if v.extent != 1]
            state = nested_reduction(
                self.e, looped, state, lambda s: select(s, list(map(Index.of, variables)))
            )
        distances = state[0]
        assert isinstance(distances, Value)
        return distances

    # -- one position of the window

    def _position(self) -> None:
        at = [Index.of(v) for v in self.positions]
        value = self.e.load(self.source, tuple(at))
        (lifted,) = self.scatter.lift([value], [self.source.element_type])
        if math.prod(d.size for d in self.window) > MOST_UNROLLED:
            self._looped(at, lifted)
            return
        table = [
            [window_element(self.e, p, Index(o), d, size) for o in range(d.size)]
            for p, d, size in zip(at, self.window, self.operand.dimensions, strict=True)
        ]
        conditions = [inside for row in table for _, inside in row]
        position: Value | None = None
        for inside in conditions:
            position = self.e.both(position, inside)
        if position is None:
            self._written_out(table, lifted, whole=True)
            return
        with self.f.when(position), self.e.scope():
            self._written_out(table, lifted, whole=True)
        with self.f.when(~position), self.e.scope():
            self._written_out(table, lifted, whole=False)

    def _written_out(
        self, table: Sequence[Sequence[tuple[Index, Value | None]]], value: Element, *, whole: bool
    ) -> None:
        """Emit the selection and scatter of one window (or a vector of them), unrolled.

        Args:
            table: for each dimension, (index in the operand, condition that it is inside) of each window
                element; a condition of None is always true.
            value: the element of the source that belongs to the window.
            whole: whether the window is inside the operand, so that no condition is tested.
        """
        places: list[tuple[Indices, Value | None]] = []
        for entries in itertools.product(*table):
            inside: Value | None = None
            for _, condition in entries:
                inside = self.e.both(inside, None if whole else condition)
            places.append((tuple(index for index, _ in entries), inside))
        state = self._none()
        for number, (index, inside) in enumerate(places):
            first = number == 0 and inside is None
            state = self._challenge(state, index, inside, self.f.constant(I32, number), first=first)
        if self.side_by_side:
            step = self.window[-1].size
            for number in range(0, len(places), step):
                self._put_row(*places[number], number, state, value)
            return
        for number, (index, inside) in enumerate(places):
            self._put(index, inside, self.f.constant(I32, number), state, value)

    def _put_row(
        self, place: Indices, inside: Value | None, number: int, state: list[Element], value: Element
    ) -> None:
        """Emit the store of one row of a vector of adjacent windows, as contiguous results.

        At selected elements, a result is the combination of the initial value and a source; it is the initial
        value at others.

        Args:
            place: the result index of the row's first element.
            inside: the condition that the row is inside the operand; None if it always is.
            number: the row-major index in the window of the row's first element.
            state: the selection: (index of the selected element in its window, its value).
            value: the elements of the source that belong to the windows.
        """
        e, f, step = self.e, self.f, self.window[-1].size
        kind = self.result.element_type
        selected = state[0]
        assert isinstance(selected, Value)
        accumulator = as_type(self.start, kind, self.scatter.accumulators[0])
        (new,) = self.scatter.lower(self.scatter.combine(e, [accumulator], [value]), [kind])
        with f.when(inside) if inside is not None else nullcontext():
            rows: list[Value] = []
            for tap in range(step):
                contribution = spread(e, e.choose(selected.compare("eq", number + tap), new, self.start))
                assert isinstance(contribution, Value)
                rows.append(to_storage(contribution, kind))
            scalar, _, _ = e.parts(self.result.linear(place))
            f.store(_interleaved(rows), f.offset(self.result.pointer, scalar, rows[0].type.scalar))

    def _looped(self, at: Sequence[Index], value: Element) -> None:
        """Emit a window as two loop nests: one selects an element, the other scatters the source to it.

        ``at`` is the position of the window, ``value`` the element of the source that belongs to it.
        """
        sizes = [d.size for d in self.window]
        variables = [Variable(size, "w") for size in sizes]
        looped = [v for v in variables if v.extent != 1]

        def here() -> tuple[Indices, Value | None, Value]:
            places: list[Index] = []
            inside: Value | None = None
            for p, v, d, size in zip(at, variables, self.window, self.operand.dimensions, strict=True):
                position, condition = window_element(self.e, p, Index.of(v), d, size)
                places.append(position)
                inside = self.e.both(inside, condition)
            number = self.e.index_value(linearize([Index.of(v) for v in variables], sizes))
            return tuple(places), inside, number.cast("trunc", I32)

        def select(state: list[Element]) -> list[Element]:
            position, inside, number = here()
            return self._challenge(state, position, inside, number, first=False)

        selected = nested_reduction(self.e, looped, self._none(), select)

        def scatter(_: list[Element]) -> list[Element]:
            position, inside, number = here()
            self._put(position, inside, number, selected, value)
            return []

        nested_reduction(self.e, looped, [], scatter)

    def _none(self) -> list[Element]:
        """Return the initial selection: (row-major index of the selected element in the window, its value).

        The index is -1 until an element is selected.
        """
        e = self.e
        number = self.f.constant(I32.vector(e.lanes), -1)
        return [number, constant(self.f, self.select_type, 0, e.lanes)]

    def _challenge(
        self, state: list[Element], place: Indices, inside: Value | None, number: Value, *, first: bool
    ) -> list[Element]:
        """Emit the choice between a window's selected element and a candidate; return the new selection.

        Args:
            state: the selection: (row-major index of the selected element in the window, or -1; its value).
            place: the index of the candidate in the operand.
            inside: the condition that ``place`` is inside the operand; None if it always is.
            number: the row-major index of the candidate in the window.
            first: whether the candidate is the first element, which is selected without comparison.
        """
        e = self.e
        with e.masked(inside):
            loaded = e.load(self.operand, place)
        candidate = as_type(loaded, self.operand.element_type, self.select_type)
        if first:
            return [e.wide(number), spread(e, candidate)]
        (keeps_old,) = e.apply(self.select, [state[1], candidate])
        assert isinstance(keeps_old, Value) and isinstance(state[0], Value)
        take = state[0].compare("eq", -1) | e.wide(~keeps_old)
        if inside is not None:
            take = e.conjunction(inside, take)
        return [e.choose(take, number, state[0]), spread(e, e.choose(take, candidate, state[1]))]

    def _put(
        self, place: Indices, inside: Value | None, number: Value, state: list[Element], value: Element
    ) -> None:
        """Emit the store of the result at ``place``: combined with ``value``, if that element was selected.

        If not, the result keeps its value, or gets the initial value if windows do not overlap. ``value`` is
        the source's element for the window.

        Args:
            inside: the condition that ``place`` is inside the result; None if it always is.
            number: the row-major index in the window of the element at ``place``.
            state: the selection: (index of the selected element in the window, its value); each lane has its
                own window.
        """
        e = self.e
        assert isinstance(state[0], Value)
        hit = state[0].compare("eq", e.wide(number))
        with self.f.when(inside) if inside is not None else nullcontext(), e.scope():
            kind = self.result.element_type
            old = self.start if self.fresh else e.load(self.result, place)
            accumulator = as_type(old, kind, self.scatter.accumulators[0])
            (new,) = self.scatter.lower(self.scatter.combine(e, [accumulator], [value]), [kind])
            e.store(self.result, place, spread(e, e.choose(hit, new, old)))


def _interleaved(rows: Sequence[Value]) -> Value:
    """Emit the interleaving of vectors: lane 0 of each, then lane 1 of each, and so on; return one vector."""
    count, lanes = len(rows), rows[0].type.lanes
    wide = lanes * count
    interleaved = rows[0].shuffle([lane // count if lane % count == 0 else -1 for lane in range(wide)])
    for number, row in enumerate(rows[1:], 1):
        spread_out = row.shuffle([lane // count if lane % count == number else -1 for lane in range(wide)])
        order = [
            wide + lane if lane % count == number else lane if lane % count < number else -1
            for lane in range(wide)
        ]
        interleaved = interleaved.shuffle(order, spread_out)
    return interleaved
