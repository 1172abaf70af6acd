"""Windows over a padded array: taps in the padding are skipped, so that interior taps need no mask.

Interior positions are code without loops; border positions loop over the elements inside the base. Only
lanes along a padded dimension are masked, at its ends.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.codegen.accumulators import flatten, spread, unflatten
from hloom.codegen.combining import Combiner
from hloom.codegen.elements import Elements
from hloom.codegen.llvm import I64, Module, Value
from hloom.codegen.loops import LoopKernel, begin_kernel, lanes_text, loop_nest, outer_loops, vector_lanes
from hloom.codegen.types import Element
from hloom.cpu.kernels.convolution.convolution_plan import StrideAxis
from hloom.cpu.kernels.windows.cumulative import may_skip_padding
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.window_reduction import ReduceWindow

MOST_LANES: Final = 64
MOST_SINGLE: Final = 6
"""Maximum number of positions at the ends of a line that are computed one by one."""
WRITTEN_OUT: Final = 32
"""Number of window elements up to which the window is unrolled completely."""


def is_pooling(i: HloInstruction) -> bool:
    """Return whether `emit_pooling` emits a reduce-window, with windows clipped to the array's elements.

    The window must reach into padding, clipping it must not change the result (the padding is the reduction's
    identity), and there must be enough windows to fill vectors.
    """
    window = operation_of(i, ReduceWindow).window
    half = len(i.operands) // 2
    shape = i.operands[0].shape
    results = i.shape.tuple_shapes[0] if i.shape.is_tuple else i.shape
    if not shape.is_static or 0 in shape.dimensions or 0 in results.dimensions:
        return False
    if not window or results.dimensions[-1] < 4 or any(d.base_dilation != 1 for d in window):
        return False
    if not any(axis.bounded for axis in _axes(i)):
        return False
    computation = i.called_computations[0]
    ordered = any(d.window_reversal for d in window) and not Combiner(computation).free
    return not ordered and may_skip_padding(window, computation, i.operands[half:])


def _axes(i: HloInstruction) -> list[StrideAxis]:
    """Return a reduce-window's axes, each with positions (of windows) and taps (window elements).

    Their strides in arrays are not set.
    """
    window = operation_of(i, ReduceWindow).window
    results = i.shape.tuple_shapes[0] if i.shape.is_tuple else i.shape
    return [
        StrideAxis(
            positions, d.size, 0, 0, step=d.stride, dilation=d.window_dilation, low=d.padding_low, size=size
        )
        for d, positions, size in zip(window, results.dimensions, i.operands[0].shape.dimensions, strict=True)
    ]


def emit_pooling(module: Module, name: str, i: HloInstruction) -> LoopKernel:
    """Emit the kernel (operands..., initial values..., results..., begin, end) of a padded reduce-window.

    A call computes the indices begin <= n < end of the result's first dimension of several elements, without
    counting the last dimension.
    """
    pool = _Pool(module, name, i)
    return pool.emit()


class _Pool:
    """Emits the kernel of a padded reduce-window; vector lanes are windows adjacent in the last dimension."""

    def __init__(self, module: Module, name: str, i: HloInstruction) -> None:
        self.name, self.axes = name, _axes(i)
        count = len(i.operands) // 2
        leaves = i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)
        shapes = [*(o.shape for o in i.operands), *leaves]
        self.f, views, self.begin, self.end = begin_kernel(module, name, shapes)
        self.operands, self.inits, self.results = views[:count], views[count : 2 * count], views[2 * count :]
        self.combiner = Combiner(i.called_computations[0])
        first, last = self.axes[-1].whole
        lanes = vector_lanes(i.operands, max(last - first, 4))
        while 0 < lanes < MOST_LANES and lanes * 2 <= last - first:
            lanes *= 2
        self.vectors, self.scalars = Elements(self.f, lanes, {}), Elements(self.f, 0, {})

    def emit(self) -> LoopKernel:
        f = self.f
        outer = [Variable(axis.positions, "p") for axis in self.axes[:-1]]
        loops = [v for v in outer if v.extent != 1]
        types = [v.element_type for v in self.inits]
        loaded = [self.scalars.load(view, ()) for view in self.inits]
        self.start, self.fills = self.combiner.starts(loaded, types), self.combiner.lift(loaded, types)
        with outer_loops(f, loops, self.begin, self.end), self.vectors.scope(), self.scalars.scope():
            self._line([Index.of(v) for v in outer])
        f.finish()
        work = math.prod(axis.positions * axis.taps for axis in self.axes)
        trips = loops[0].trips if loops else 1
        return LoopKernel(self.name, trips, 1, work, lanes_text(self.vectors.lanes))

    def _line(self, at: list[Index]) -> None:
        """Emit the reductions of all windows along the last dimension.

        Windows without padding are computed as vectors, the others singly. If many windows have padding, or
        those without are too few for a vector, one loop over vectors computes all windows. ``at`` are the
        positions along the other dimensions.
        """
        self.ranges: list[tuple[Value | int, Value | int]] = []
        self.whole: Value | None = None
        for axis, index in zip(self.axes, at, strict=False):
            bounds = axis.tap_range(self.scalars.index_value(index)) if axis.bounded else (0, axis.taps)
            self.ranges.append(bounds)
            low, high = bounds
            if isinstance(low, Value) and isinstance(high, Value):
                inside = low.compare("eq", 0) & high.compare("eq", axis.taps)
                self.whole = self.scalars.both(self.whole, inside)
        minor = self.axes[-1]
        first, last = minor.whole
        ends = minor.positions - (last - first)
        if last - first < self.vectors.lanes or ends > MOST_SINGLE:
            lane = Variable(minor.positions, "p")
            index, taps = [*at, Index.of(lane)], range(minor.taps)
            loop_nest(self.vectors, [lane], partial(self._position, self.vectors, index, taps))
            return
        self._vectors(at, first, last)
        for position in (*range(first), *range(last, minor.positions)):
            with self.scalars.scope():
                self._position(self.scalars, [*at, Index(position)], minor.taps_inside(position))

    def _vectors(self, at: list[Index], first: int, last: int) -> None:
        """Emit the reductions of windows first <= p < last of the last dimension, as vectors of windows.

        They have no padding along that dimension. The last vector may overlap the one before. ``at`` are the
        positions along the other dimensions.
        """
        f, e, count = self.f, self.vectors, last - first
        lane = Variable(count, "p")
        lane.is_lane = True
        end = f.constant(I64, -(-count // e.lanes) * e.lanes)
        with f.loop(0, end, e.lanes) as loop, e.scope():
            lane.value = f.intrinsic("smin", loop.index, f.constant(I64, count - e.lanes))
            self._position(e, [*at, Index.of(lane) + first], range(self.axes[-1].taps))

    def _position(self, e: Elements, at: Sequence[Index], taps: range) -> None:
        """Emit the reduction and the store of a window, or of a vector of adjacent windows.

        ``at`` is the position of the (first) window, ``taps`` are the window elements to combine along the
        last dimension.
        """
        if math.prod(axis.taps for axis in self.axes) > WRITTEN_OUT:
            self._store(e, at, self._looped(e, at, taps))
            return
        if self.whole is None:
            self._store(e, at, self._written_out(e, at, taps))
            return
        with self.f.when(self.whole), e.scope():
            self._store(e, at, self._written_out(e, at, taps))
        with self.f.when(~self.whole), e.scope():
            self._store(e, at, self._looped(e, at, taps))

    def _written_out(self, e: Elements, at: Sequence[Index], minor: range) -> list[Element]:
        """Emit the unrolled reduction of a window, or of a vector of windows; return the accumulators.

        The windows may have padding along the last dimension only. ``minor`` are the window elements to
        combine along that dimension.
        """
        accumulators = [spread(e, x) for x in self.start]
        for taps in itertools.product(*(range(axis.taps) for axis in self.axes[:-1]), minor):
            accumulators = self._step(e, at, [Index(tap) for tap in taps], accumulators)
        return accumulators

    def _looped(self, e: Elements, at: Sequence[Index], minor: range) -> list[Element]:
        """Emit loops that reduce the window elements that are not in the padding; return the accumulators.

        ``minor`` are the window elements to combine along the last dimension; lanes of a vector skip those in
        the padding.
        """
        bounds = [*self.ranges, (minor.start, minor.stop)]
        variables = [Variable(axis.taps, "w") for axis in self.axes]

        def nest(number: int, state: list[Element]) -> list[Element]:
            if number == len(variables):
                return self._step(e, at, [Index.of(v) for v in variables], state)
            if variables[number].extent == 1 and bounds[number] == (0, 1):
                return nest(number + 1, state)
            with self.f.loop(*bounds[number], 1, flatten(state)) as loop, e.scope():
                variables[number].value = loop.index
                next_state = nest(number + 1, unflatten(loop.values, state))
                loop.next(*flatten(next_state))
            return unflatten(loop.values, state)

        return nest(0, [spread(e, x) for x in self.start])

    def _step(
        self, e: Elements, at: Sequence[Index], taps: Sequence[Index], state: list[Element]
    ) -> list[Element]:
        """Emit the combination of the accumulators ``state`` with a window element; return the new state.

        ``taps`` is the element's index in the window, ``at`` the window's position. Lanes in the padding
        combine the initial value, which has no effect.
        """
        places = tuple(
            p * axis.step + tap * axis.dilation + -axis.low
            for axis, p, tap in zip(self.axes, at, taps, strict=True)
        )
        inside = e.inside(places[-1], self.axes[-1].size) if e.lanes else None
        with e.masked(inside):
            values = [e.load(view, places) for view in self.operands]
        lifted = self.combiner.lift(values, [view.element_type for view in self.operands])
        if inside is not None:
            lifted = [e.choose(inside, x, fill) for x, fill in zip(lifted, self.fills, strict=True)]
        return [spread(e, x) for x in self.combiner.combine(e, state, lifted)]

    def _store(self, e: Elements, at: Sequence[Index], state: list[Element]) -> None:
        stored = self.combiner.lower(state, [view.element_type for view in self.results])
        for view, value in zip(self.results, stored, strict=True):
            e.store(view, tuple(at), spread(e, value))
