"""Cumulative windows: a reduce-window whose windows all begin, or all end, outside the base is a scan.

Cumulative sums, products and maxima have this form. Neighboring lines are scanned with one line per lane; a
line along the lanes is scanned within registers, several vectors per iteration.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

import numpy as np

from hloom.analysis.combiners import grouping
from hloom.analysis.instructions import operation_of
from hloom.codegen.accumulators import flatten, spread, unflatten
from hloom.codegen.combining import Combiner, neutral_element
from hloom.codegen.elements import Elements, View
from hloom.codegen.lines import SCANNED_STEPS_AHEAD, Lines, Place
from hloom.codegen.llvm import I1, I64, Module, Value
from hloom.codegen.loops import VECTOR_BYTES, LoopKernel, begin_kernel, form_of, lanes_text
from hloom.codegen.types import Element, constant, storage_bytes
from hloom.codegen.vector_math.reals import Reals
from hloom.ir.affine import Index, Variable
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import WindowDimension
from hloom.operations.combiners import Grouping
from hloom.operations.structure import Constant
from hloom.operations.window_reduction import ReduceWindow
from hloom.records import dataclass

VECTORS: Final = 8
"""Number of vectors of a line scanned per iteration."""


@dataclass(frozen=True, slots=True)
class Cumulative:
    """A reduce-window that is a scan (prefix reduction) along one dimension.

    Elements and results are numbered from 0 in the order of the scan. Result number o combines the elements
    with numbers less than o + end_offset.

    Attributes:
        axis: the scanned dimension.
        size: the number of elements along it.
        results: the number of results along it.
        end_offset: 1 if each result includes its own element (an inclusive scan), 0 if it does not; other
            values if the window is padded otherwise.
        backward: whether the scan starts at the last element.
        flipped: whether windows combine their last element first (window reversal).
        grouped: whether the combiner is associative, so that elements may be combined before the result up to
            them is known.
    """

    axis: int
    size: int
    results: int
    end_offset: int
    backward: bool
    flipped: bool
    grouped: bool = True

    @property
    def plain(self) -> bool:
        return self.end_offset == 1 and self.results == self.size


def cumulative_of(i: HloInstruction) -> Cumulative | None:
    """Return the scan (prefix reduction) that a reduce-window amounts to; None if it is no scan."""
    window = operation_of(i, ReduceWindow).window
    half = len(i.operands) // 2
    wide = [axis for axis, d in enumerate(window) if d.size > 1]
    if len(wide) != 1 or not i.operands[0].shape.is_static or 0 in i.operands[0].shape.dimensions:
        return None
    (axis,) = wide
    single = [d for n, d in enumerate(window) if n != axis]
    d = window[axis]
    if any(s.stride != 1 or s.padding_low or s.padding_high or s.base_dilation != 1 for s in single):
        return None
    if d.stride != 1 or d.window_dilation != 1 or d.base_dilation != 1:
        return None
    size = i.operands[0].shape.dimensions[axis]
    results = d.output_size(size)
    combiner, flipped = i.called_computations[0], d.window_reversal
    if not may_skip_padding(window, combiner, i.operands[half:]):
        return None
    if results - 1 <= d.padding_low:
        backward, end_offset = False, d.size - d.padding_low
    elif d.size - d.padding_low >= size:
        backward, end_offset = True, size - results + d.padding_low + 1
    else:
        return None
    grouped = grouping(combiner) >= Grouping.ASSOCIATIVE
    if not grouped and backward != flipped:  # a longer window has another first element
        return None
    return Cumulative(axis, size, results, end_offset, backward, flipped, grouped)


def may_skip_padding(
    window: Sequence[WindowDimension], computation: HloComputation, inits: Sequence[HloInstruction]
) -> bool:
    """Return whether a reduce-window may leave out padding elements, which equal the initial values.

    The combination of an initial value with itself must be the initial value. Unless the combiner allows any
    order, windows must also combine their padding before their elements.
    """
    combiner = Combiner(computation)
    if not combiner.uniform:
        return False
    if combiner.plain in ("maximum", "minimum", "and", "or"):
        return True
    literals = [init.operation.literal for init in inits if isinstance(init.operation, Constant)]
    if len(literals) < len(inits):
        return False
    if not combiner.free and not _begins_with_padding(window):
        return False
    from hloom.evaluate.evaluator import Evaluator

    values = [literal.array for literal in literals]
    value = Evaluator().run(computation, [*values, *values])
    results = [np.asarray(r) for r in (value if isinstance(value, tuple) else [value])]
    return all(bool(np.all((r == v) | ((r != r) & (v != v)))) for r, v in zip(results, values, strict=True))


def _begins_with_padding(window: Sequence[WindowDimension]) -> bool:
    """Return whether all windows combine their padding, if any, before their elements."""
    wide = [d for d in window if d.size > 1]
    ends = [
        (d.padding_high, d.padding_low) if d.window_reversal else (d.padding_low, d.padding_high)
        for d in wide
    ]
    return all(last <= 0 and (first <= 0 or n == 0) for n, (first, last) in enumerate(ends))


def emit_cumulative(module: Module, name: str, i: HloInstruction, scan: Cumulative) -> LoopKernel:
    """Emit the kernel (operands..., initial values..., results..., begin, end) of a cumulative reduce-window.

    It loops over lines; a line has all elements along the scanned dimension.
    """
    leaves = i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)
    f, views, begin, end = begin_kernel(module, name, [*(o.shape for o in i.operands), *leaves])
    lines = Lines.of(leaves[0].dimensions, scan.axis, i.operands)
    inside = not lines.lanes and scan.plain and scan.size >= 4 and scan.grouped
    lanes = _register_lanes(i, scan.size) if inside else lines.lanes
    e = Elements(f, lanes, {})
    kind = _InRegisters if inside else _StepByStep
    walk = kind(e, i, scan, views)
    with e.scope():
        walk.prepare()
        lines.walk(e, begin, end, walk.line)
    f.finish()
    trips, grain = lines.trips
    form = f"{lanes_text(lanes)}, in registers" if inside else form_of(lanes, e)
    return LoopKernel(name, trips, grain, lines.count * (scan.size + scan.results), form)


def _register_lanes(i: HloInstruction, size: int) -> int:
    lanes = max(2, VECTOR_BYTES // max(storage_bytes(o.shape.element_type) for o in i.operands))
    while lanes > size:
        lanes //= 2
    return lanes


class _Scan(ABC):
    """Base of the emitters of a cumulative reduce-window, which scans lines along one dimension.

    A line has all elements along the scanned dimension. In subclasses, the vector lanes are neighboring
    lines, or the elements of one line.
    """

    def __init__(self, e: Elements, i: HloInstruction, scan: Cumulative, views: Sequence[View]) -> None:
        self.e, self.f, self.scan = e, e.function, scan
        count = len(views) // 3
        self.operands, self.inits, self.results = views[:count], views[count : 2 * count], views[2 * count :]
        self.combiner = Combiner(i.called_computations[0])
        self.first_is_low = scan.backward == scan.flipped
        """True if new elements are the combiner's second operand: scans can start from initial values."""
        self.starts_with_init = self.first_is_low or self.combiner.free

    def prepare(self) -> None:
        """Emit the loads of a scan's initial values, and convert them to the combiner's accumulator types."""
        loaded = [spread(self.e, self.e.load(v, ())) for v in self.inits]
        self.init = self.combiner.starts(loaded, [v.element_type for v in self.inits])

    def load(self, place: Place, at: Index) -> list[Element]:
        """Emit the load of each operand's element at position ``at`` of the line, counted in memory order.

        ``place`` maps a position in the line to an array index. The elements have the combiner's accumulator
        types.
        """
        index = place(at)
        values = [self.e.load(v, index) for v in self.operands]
        lifted = self.combiner.lift(values, [v.element_type for v in self.operands])
        return [spread(self.e, x) for x in lifted]

    def store(self, place: Place, at: Index, values: Sequence[Element]) -> None:
        """Emit the stores of accumulators as the results at position ``at`` of the line, in memory order.

        Before that, the initial values are combined with them, unless the scan started from the initial
        values. ``place`` maps a position in the line to an array index.
        """
        if not self.starts_with_init:
            values = self.combiner.combine(self.e, self.init, values)
        self.put(place, at, values)

    def put(self, place: Place, at: Index, values: Sequence[Element]) -> None:
        """Emit the stores of accumulators, initial values included, as the results at position ``at``.

        ``place`` maps a position in the line to an array index; there is one accumulator per result array.
        """
        index = place(at)
        values_stored = self.combiner.lower(values, [v.element_type for v in self.results])
        for view, value in zip(self.results, values_stored, strict=True):
            self.e.store(view, index, spread(self.e, value))

    def join(self, earlier: Sequence[Element], later: Sequence[Element]) -> list[Element]:
        """Return the combination of ``earlier`` and ``later`` elements of a scan.

        The earlier ones are the first operand of the combiner, unless windows combine their elements against
        the order of the scan.
        """
        first, second = (earlier, later) if self.first_is_low else (later, earlier)
        return [spread(self.e, x) for x in self.combiner.combine(self.e, first, second)]

    @abstractmethod
    def line(self, place: Place) -> None:
        """Emit the scan of one line; ``place`` maps a position in the line to an array index."""


class _StepByStep(_Scan):
    """Emits a cumulative reduce-window one element of each line at a time; lanes are neighboring lines."""

    def line(self, place: Place) -> None:
        """Emit the scan of one line in three loops, which store the results in scan order.

        The first is over results that include no element yet, the second over results that each add one
        element, and the third over results that include all elements. Elements that the first result includes
        already are combined before these loops. ``place`` maps a position in the line to an array index.
        """
        scan = self.scan
        before = min(max(scan.end_offset - 1, 0), scan.size)
        early = min(max(1 - scan.end_offset, 0), scan.results)
        both = max(early, min(scan.results, scan.size - scan.end_offset + 1))
        state = self.init if self.starts_with_init else None
        state = self._steps(place, 0, before, state, None)
        self._repeat(place, 0, early, None)
        state = self._steps(place, early, both, state, scan.end_offset - 1)
        self._repeat(place, both, scan.results, state)

    def _steps(
        self, place: Place, low: int, high: int, state: list[Element] | None, ahead: int | None
    ) -> list[Element] | None:
        """Emit a loop that combines elements low <= n < high of the line into ``state``; return the result.

        The state has an accumulator per operand, or is None before the first element. If ``ahead`` is not
        None, the loop is over results low <= n < high instead: it combines element n + ahead, then stores
        result n.
        """
        if low >= high:
            return state
        if state is None:
            state = self._step(place, Index(low), None, ahead)
            low += 1
        number = Variable(high, "s")
        with self.f.loop(low, high, 1, flatten(state)) as loop, self.e.scope():
            number.value = loop.index
            with self.e.prefetching(number, SCANNED_STEPS_AHEAD):
                next_state = self._step(place, Index.of(number), unflatten(loop.values, state), ahead)
            loop.next(*flatten(next_state))
        return unflatten(loop.values, state)

    def _step(
        self, place: Place, number: Index, state: list[Element] | None, ahead: int | None
    ) -> list[Element]:
        values = self.load(place, self._memory(number + (ahead or 0), self.scan.size))
        joined = values if state is None else self.join(state, values)
        if ahead is not None:
            self.store(place, self._memory(number, self.scan.results), joined)
        return joined

    def _repeat(self, place: Place, low: int, high: int, state: list[Element] | None) -> None:
        """Emit a loop that stores the same value as all results low <= n < high of the line.

        It is the accumulators ``state``, or the initial values if ``state`` is None.
        """
        number = Variable(max(high, 1), "s")
        with self.f.loop(low, high) as loop, self.e.scope():
            number.value = loop.index
            at = self._memory(Index.of(number), self.scan.results)
            if state is None:
                self.put(place, at, self.init)
            else:
                self.store(place, at, state)

    def _memory(self, number: Index, size: int) -> Index:
        return number * -1 + (size - 1) if self.scan.backward else number


class _InRegisters(_Scan):
    """Emits a cumulative reduce-window whose vector lanes are the elements of one line.

    A vector is scanned by log2(lanes) shifted combinations, and then combined with the total of all earlier
    vectors. For a floating-point sum, that total is carried along with the sum of its rounding errors.
    """

    def line(self, place: Place) -> None:
        """Emit the scan of one line: a loop over blocks of several vectors, then the remaining elements.

        ``place`` maps a position in the line to an array index.
        """
        size, lanes = self.scan.size, self.e.lanes
        block = lanes * min(VECTORS, size // lanes)
        full_end = size // block * block
        carry = [*self.init, *self._errors()] if self.starts_with_init else None
        first = 0
        if carry is None:
            carry = self._block(place, self._base(self.f.constant(I64, 0), block), block, None)
            first = block
        with self.f.loop(first, full_end, block, flatten(carry)) as loop, self.e.scope():
            next_state = self._block(
                place, self._base(loop.index, block), block, unflatten(loop.values, carry)
            )
            loop.next(*flatten(next_state))
        if full_end < size:
            start = 0 if self.scan.backward else full_end
            carry = unflatten(loop.values, carry)
            self._block(place, self.f.constant(I64, start), size - full_end, carry)

    def _base(self, done: Value, block: int) -> Value:
        """Return the first position, in memory order, of the next block of ``block`` elements of a line.

        ``done`` elements of the line have been scanned; a backward scan begins at the end of the line.
        """
        return self.f.constant(I64, self.scan.size - block) - done if self.scan.backward else done

    def _block(self, place: Place, base: Value, count: int, carry: list[Element] | None) -> list[Element]:
        """Emit the scan of ``count`` elements of a line from position ``base`` on; return the new carry.

        The carry from block to block is the total of the elements before, followed by its rounding error if
        it is a floating-point sum; None before the first element.
        """
        e, lanes = self.e, self.e.lanes
        starts = range(0, count, lanes)
        places: list[Index] = []
        for start in starts:
            lane = Variable(self.scan.size, "s")
            lane.is_lane, lane.value = True, base + start
            places.append(Index.of(lane))
        valid = [min(lanes, count - start) for start in starts]
        masks = [None if n == lanes else self._lanes_below(n) for n in valid]
        vectors: list[list[Element]] = []
        for at, mask, n in zip(places, masks, valid, strict=True):
            with e.masked(mask):
                vectors.append(self._local(self.load(place, at), n))
        order = range(len(vectors))
        prefix = carry and self._rounded(carry)
        total: list[Element] | None = None
        for k in reversed(order) if self.scan.backward else order:
            scanned = vectors[k]
            before = self.join(prefix, total) if prefix and total else prefix or total
            with e.masked(masks[k]):
                self.store(place, places[k], self.join(before, scanned) if before else scanned)
            last = self._total(scanned)
            total = self.join(total, last) if total else last
        assert total is not None
        return self._advanced(carry, total)

    @property
    def _is_rounded_sum(self) -> bool:
        return self.combiner.plain == "add" and self.combiner.accumulators[0].is_floating

    def _errors(self) -> list[Element]:
        return [self.f.constant(flatten(self.init)[0].type, 0.0)] if self._is_rounded_sum else []

    def _rounded(self, carry: list[Element]) -> list[Element]:
        """Return the total in a carry, with its rounding error added if it is a floating-point sum.

        A carry is a total and, for such sums, its rounding error. An error of 0 is not added, so that a sum
        of -0 stays -0.
        """
        if not self._is_rounded_sum:
            return carry
        high, error = flatten(carry)
        return [error.compare("oeq", 0.0).select(high, high + error)]

    def _advanced(self, carry: list[Element] | None, total: list[Element]) -> list[Element]:
        """Return the carry after a block of elements: ``carry`` combined with the block's ``total``.

        A carry is the total of the elements before, followed by its rounding error if it is a floating-point
        sum; None before the first element.
        """
        if carry is None:
            return [*total, *self._errors()]
        if not self._is_rounded_sum:
            return self.join(carry, total)
        high, error, added = flatten([*carry, *total])
        high, lost = Reals(high).two_sum(high, added)
        error = error + lost
        defined = error.compare("oeq", error)  # an infinite sum has no error
        return [high, defined.select(error, 0.0)]

    def _lanes_below(self, count: int) -> Value:
        return self.f.constant(I1.vector(self.e.lanes), [int(lane < count) for lane in range(self.e.lanes)])

    def _total(self, scanned: Sequence[Element]) -> list[Element]:
        """Return the totals of scanned vectors: the last lane, in scan order, broadcast to every lane.

        There is one vector for each operand of the reduce-window.
        """
        lanes = self.e.lanes
        return [_shuffled(x, [0 if self.scan.backward else lanes - 1] * lanes) for x in scanned]

    def _local(self, values: list[Element], valid: int) -> list[Element]:
        """Return the scan of one vector per operand, as if no elements came before the vector's.

        Only the first ``valid`` lanes have elements.
        """
        lanes, backward = self.e.lanes, self.scan.backward
        kind = self.combiner.accumulators[0]
        neutral = neutral_element(self.combiner.computation, kind) if len(values) == 1 else None
        if valid < lanes or kind.is_complex:
            neutral = None
        step = 1
        while step < valid:
            sources = [lane + step if backward else lane - step for lane in range(lanes)]
            if neutral is not None:
                fill = constant(self.f, kind, neutral, lanes)
                moved = [
                    _shuffled(x, [s if 0 <= s < lanes else lanes for s in sources], fill) for x in values
                ]
                values = self.join(moved, values)
            else:
                there = self.f.constant(I1.vector(lanes), [int(0 <= s < valid) for s in sources])
                moved = [_shuffled(x, [s if 0 <= s < lanes else 0 for s in sources]) for x in values]
                joined = self.join(moved, values)
                values = [self.e.choose(there, new, old) for new, old in zip(joined, values, strict=True)]
            step *= 2
        return values


def _shuffled(element: Element, lanes: Sequence[int], other: Element | None = None) -> Element:
    """Return a shuffle of a vector ``element``, complex or not, that takes lane ``lanes[k]`` into lane k.

    If the vector has n lanes, number n + j takes lane j of ``other``.
    """
    if isinstance(element, tuple):
        second = other if isinstance(other, tuple) else (None, None)
        return element[0].shuffle(lanes, second[0]), element[1].shuffle(lanes, second[1])
    assert other is None or isinstance(other, Value)
    return element.shuffle(lanes, other)
