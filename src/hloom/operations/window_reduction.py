"""Reductions of windows: reduce-window and select-and-scatter.

Windows are reduced for all positions at once. Long windows cost no more than a logarithm of their length,
so a cumulative sum may be written as a window as long as the axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, cast

import numpy as np

from hloom.error_bounds.bounded import Bounded, finite, is_inexact_type
from hloom.error_bounds.floating import wide
from hloom.error_bounds.rules import no_bound
from hloom.error_bounds.sums import growth
from hloom.errors import ShapeError
from hloom.ir.affine import Index, Indices
from hloom.ir.indexing import MOST_UNROLLED, Accumulation, Addressing, Condition, Read
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, ErrorRun, Operation, ProgramShape, Run, Value, operation
from hloom.ir.sharding_rule import Factor, with_halos
from hloom.ir.traits import AppliedTypes, ElementCost, Family, LayoutSource, Roundoff, shape_elements
from hloom.ir.window import Window, WindowDimension, window
from hloom.operations.combined_errors import combined_errors, reduction_errors
from hloom.operations.comparison import Compare
from hloom.operations.reduction import (
    Arrays,
    Reducer,
    ReductionResult,
    check_reducer,
    same_arrays,
    same_type,
    split_operands,
)
from hloom.operations.rounding import convert
from hloom.operations.windows import dilated_and_padded, window_element, windowed_shape
from hloom.shape.element_type import PRED, ElementType
from hloom.shape.shape import Shape


def slide(reducer: Reducer, arrays: Arrays, axis: int, d: WindowDimension) -> Arrays:
    """Reduce windows along one axis of a padded base, at every position.

    Blocks of 1, 2, 4 ... window elements are combined from their halves, so that a window of w elements takes
    about 2 log2(w) combinations of whole arrays, however long it is.
    """
    positions = max(0, arrays[0].shape[axis] - d.dilated_size + 1)

    def cut(blocks: Arrays, start: int, length: int) -> Arrays:
        index = (slice(None),) * axis + (slice(start, start + length),)
        return tuple(b[index] for b in blocks)

    def join(first: Arrays, second: Arrays) -> Arrays:
        return reducer.combine(second, first) if d.window_reversal else reducer.combine(first, second)

    blocks, size, offset = arrays, 1, 0
    result: Arrays = ()
    while True:
        if d.size & size:
            piece = cut(blocks, offset * d.window_dilation, positions)
            result = join(result, piece) if result else piece
            offset += size
        if offset == d.size or not positions:
            break
        step = size * d.window_dilation
        length = blocks[0].shape[axis] - step
        blocks = join(cut(blocks, 0, length), cut(blocks, step, length))
        size *= 2
    strided = (slice(None),) * axis + (slice(None, positions, d.stride),)
    return tuple(r[strided] for r in (result or blocks))


def slide_one_by_one(reducer: Reducer, arrays: Arrays, init: Arrays, window: Window) -> Arrays:
    """Fold the elements of all windows of a padded base into the initial values, in window order."""
    bases = arrays[0].shape
    positions = tuple(max(0, (size - d.dilated_size) // d.stride + 1) for size, d in zip(bases, window))
    result = tuple(np.broadcast_to(i, positions) for i in init)
    for offset in np.ndindex(*(d.size for d in window)):
        starts = [
            (d.size - 1 - o if d.window_reversal else o) * d.window_dilation for o, d in zip(offset, window)
        ]
        index = tuple(
            slice(s, s + (p - 1) * d.stride + 1 if p else s, d.stride)
            for s, p, d in zip(starts, positions, window)
        )
        result = reducer.combine(result, tuple(a[index] for a in arrays))
    return result


# -- the operations


@operation("reduce-window", "*operands", computations=["to_apply"])
class ReduceWindow(ReductionResult):
    """Combines the elements of every window of an array with a computation; pooling and cumulative sums.

    The base area is the operand with base dilation and padding, both filled with the initial value. Each
    window position gives one element: the initial value combined with all elements of the window.

    Arguments:
        operands: arrays of equal dimensions, then one scalar initial value for each.
        window: for every dimension size, stride, padding and dilations.
        to_apply: an associative computation of scalars, accumulators first.
    """

    window: Window = window(default=(), always=False)

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        """Return all dimensions; along windows, tiles need parts of other tiles."""
        arrays = operands[: len(operands) // 2]
        moved = {d for d, w in enumerate(self.window) if w != WindowDimension(1)}
        return with_halos(arrays[0], arrays, moved)

    def accumulation(
        self, x: Addressing[Condition], i: HloInstruction, indices: Indices
    ) -> Accumulation[Condition]:
        """Loop over the window; elements outside the base count as the initial value."""
        half = len(i.operands) // 2
        operands, initial = i.operands[:half], i.operands[half:]
        sizes = operands[0].shape.dimensions
        extents = tuple(d.size for d in self.window)

        def terms(position: Indices) -> list[Read[Condition]]:
            if 0 in sizes:
                return []
            source: list[Index] = []
            inside: Condition | None = None
            for place, at, d, size in zip(indices, position, self.window, sizes, strict=True):
                index, condition = window_element(x, place, at, d, size)
                source.append(index)
                inside = x.both(inside, condition)
            return [Read(o, tuple(source), inside) for o in operands]

        return Accumulation(extents, terms, initial, unrolled=math.prod(extents) <= MOST_UNROLLED)

    def highlights(self) -> Sequence[str]:
        return ("window " + "x".join(str(d.size) for d in self.window),)

    def flops(self, shape: Shape, *operands: Shape, applied: float = 0.0) -> float:
        """Count the reducer in each window; a cumulative window continues from the one before it."""
        sizes = operands[0].dimensions
        steps = [2 if _is_cumulative(d, n) else d.size for d, n in zip(self.window, sizes, strict=True)]
        return max(1.0, applied) * shape_elements(shape) * (math.prod(steps) - 1)

    def infer(self, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> Shape:
        """Return one element per window position, of the types of the initial values."""
        inputs, inits = split_operands("reduce-window", operands)
        same_arrays("reduce-window", inputs)
        shape = windowed_shape("reduce-window", inputs[0], self.window)
        check_reducer("reduce-window", computations[0], inputs, inits)
        dynamic = tuple(any(array.dynamic_dimensions[i] for array in inputs) for i in range(shape.rank))
        return Shape.maybe_tuple([Shape(i.element_type, shape.dimensions, dynamic) for i in inits])

    def terms(self, *operands: Sequence[int]) -> float:
        """Return the number of elements of a window and the initial value."""
        return 1 + math.prod(d.size for d in self.window)

    def errors(self, run: ErrorRun) -> Value:
        """Bound sums, products and extremes."""
        return reduction_errors(run)

    def evaluate(self, run: Run, *operands: Array) -> Value:
        """Reduce windows along one dimension after the other, the last one first."""
        inputs, inits = split_operands("reduce-window", operands)
        reducer = Reducer(run, 0, math.prod(d.size for d in self.window))
        init = reducer.lift(inits, values=False)
        fills = reducer.lift(inits)
        by_axis = dict(enumerate(self.window))
        arrays = tuple(dilated_and_padded(a, by_axis, fill) for a, fill in zip(reducer.lift(inputs), fills))
        if not reducer.may_group(arrays):
            return reducer.lower(slide_one_by_one(reducer, arrays, init, self.window), run.shape)
        for axis in reversed(range(len(self.window))):
            arrays = slide(reducer, arrays, axis, self.window[axis])
        return reducer.lower(reducer.combine(init, arrays), run.shape)


@operation("select-and-scatter", "operand source init_value", computations=["select", "scatter"])
class SelectAndScatter(Operation):
    """Selects one element in every window of ``operand`` and scatters ``source`` there.

    This is the gradient of max pooling. The result has the operand's shape and begins as the initial
    value. Every window position has an element in ``source``, which is combined with the current result
    at the position of the window's selected element. Padding is never selected.

    Arguments:
        operand: the array in which elements are selected.
        source: one element a window position.
        init_value: the initial value of every element of the result.
        window: for every dimension size, stride, padding and dilations.
        select: (a, b) -> pred, true if a, which has the smaller index, is kept rather than b.
        scatter: (current value, source element) -> new value.
    """

    layout_source: ClassVar[LayoutSource] = LayoutSource.OPERANDS
    family: ClassVar[Family] = Family.COMBINATION
    element_cost: ClassVar[ElementCost] = ElementCost.COMBINED
    roundoff: ClassVar[Roundoff] = Roundoff.COMBINED
    window: Window = window(default=(), always=False)

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        """Return the dimensions in which windows neither overlap nor leave the array."""
        factors: list[Factor] = []
        for d, w in enumerate(self.window):
            extent, count = operands[0].dimensions[d], operands[1].dimensions[d]
            apart = (
                w.padding_low == 0 and w.base_dilation == 1 and w.dilated_size - w.padding_high <= w.stride
            )
            if apart and w.dilated_size <= w.stride and extent == count * w.stride:
                factors.append(Factor(count, {0: d, 1: d}, d, kind="grouped"))
        return factors

    def highlights(self) -> Sequence[str]:
        return ("window " + "x".join(str(d.size) for d in self.window),)

    def flops(self, shape: Shape, *operands: Shape, applied: float = 0.0) -> float:
        """Count the comparisons in each window, and one combination."""
        return max(1.0, applied) * shape_elements(operands[1]) * math.prod(d.size for d in self.window)

    def applied_types(self, operands: Sequence[ElementType]) -> Sequence[AppliedTypes]:
        """Return two elements each for the select and the scatter computation."""
        return (AppliedTypes((operands[0],) * 2, is_order=True), AppliedTypes((operands[0],) * 2))

    def infer(
        self, operand: Shape, source: Shape, init_value: Shape, *, computations: tuple[ProgramShape, ...] = ()
    ) -> Shape:
        """Return the operand's shape."""
        select, scatter = computations
        if not operand.is_array or not source.is_array:
            message = f"operand and source must be arrays, got {operand} and {source}"
            raise ShapeError(message, rule="select-and-scatter.operand-arrays")
        if len(select.parameters) != 2 or not (
            select.result.is_scalar and select.result.element_type is PRED
        ):
            message = f"select must be (a, b) -> pred[], it is {select}"
            raise ShapeError(message, rule="select-and-scatter.select")
        if not all(p.is_scalar and same_type(p, operand) for p in select.parameters):
            message = f"select must take elements of {operand}, it is {select}"
            raise ShapeError(message, rule="select-and-scatter.select-types")
        windows = windowed_shape("select-and-scatter", operand, self.window)
        if not windows.with_element_type(source.element_type).compatible(source):
            message = f"source must have the dimensions {windows.dimensions} of the windows, got {source}"
            raise ShapeError(message, rule="select-and-scatter.source")
        check_reducer("select-and-scatter", scatter, [source], [init_value])
        if not same_type(scatter.result, operand):
            message = f"the operand is {operand}, scatter returns {scatter.result}"
            raise ShapeError(message, rule="select-and-scatter.scatter-type")
        return operand

    def terms(self, *operands: Sequence[int]) -> float:
        """Return the number of elements of a window and the initial value."""
        return 1 + math.prod(d.size for d in self.window)

    def errors(self, run: ErrorRun) -> Value:
        """Bound sums and products; a source element may move to any element that may be selected."""
        if not is_inexact_type(run.value):
            raise no_bound(run)
        operand, source, _ = run.operands
        moved: Any = 0.0
        if operand.error is not None:
            moved = self._sums_of_undecided(run, operand, finite(source.value) + source.spread)
        rate = growth(self.terms())
        return combined_errors(run, rate, in_place=True, selector=0, moved=moved)

    def _sums_of_undecided(self, run: ErrorRun, x: Bounded, sizes: Array) -> Array:
        """Return, for each element, the sum of the source magnitudes of the windows that may select it.

        Windows whose selection is decided do not count. Raises NoBound for a selection of other elements than
        the largest or the smallest.
        """
        sign = self._sign_of_selection(run)
        index: Array = np.arange(x.value.size, dtype=np.int64)
        base = dilated_and_padded(index.reshape(x.value.shape), dict(enumerate(self.window)), np.array(-1))
        offsets = np.ndindex(*(d.size for d in self.window))
        candidates = np.stack([base[self._candidates(offset, sizes.shape)] for offset in offsets])
        number, error = sign * wide(x.value).reshape(-1)[candidates], x.spread.reshape(-1)[candidates]
        least = np.max(np.where(candidates >= 0, number - error, -np.inf), axis=0)
        near = (candidates >= 0) & (number + error >= least)
        near &= near.sum(axis=0) > 1
        sums: Array = np.zeros(x.value.size)
        np.add.at(sums, candidates[near], np.broadcast_to(sizes, candidates.shape)[near])
        return sums.reshape(x.value.shape)

    def _sign_of_selection(self, run: ErrorRun) -> int:
        """Return 1 if the selection is of the largest element, -1 of the smallest."""
        computation = run.instruction.called_computations[0]
        test, parameters = computation.root, computation.parameters
        direction = test.operation.direction if isinstance(test.operation, Compare) else ""
        if direction not in ("GE", "GT", "LE", "LT") or set(test.operands) != set(parameters):
            raise no_bound(run, "selects inexact numbers by another comparison")
        swapped = test.operands[0] is not parameters[0]
        return 1 if (direction[0] == "G") != swapped else -1

    def _candidates(self, offset: Sequence[int], positions: Sequence[int]) -> tuple[slice, ...]:
        """Return the elements of the padded base at one offset in all windows."""
        starts = [o * d.window_dilation for o, d in zip(offset, self.window, strict=True)]
        return tuple(
            slice(s, s + (n - 1) * d.stride + 1, d.stride)
            for s, n, d in zip(starts, positions, self.window, strict=True)
        )

    def evaluate(self, run: Run, operand: Array, source: Array, init_value: Array) -> Array:
        """Select in all windows at once; then combine the k-th source element of every place, k = 0, 1, …

        Every combination is rounded to the result's type, as in a scatter.
        """
        reducer = Reducer(run, 1, math.prod(d.size for d in self.window))
        result = convert(np.broadcast_to(init_value, operand.size), run.dtype).copy()
        places = self._selected(run, operand, source.shape).ravel()
        order = np.flatnonzero(places >= 0)
        order = order[np.argsort(places[order], kind="stable")]
        (values,) = reducer.lift([source.ravel()[order]])
        places = places[order]
        first = np.flatnonzero(np.diff(places, prepend=-1))
        turn = np.arange(len(places)) - np.repeat(first, np.diff(first, append=len(places)))
        for number in range(int(turn.max()) + 1 if len(turn) else 0):
            now = turn == number
            accumulators = reducer.lift([result[places[now]]], values=False)
            (combined,) = reducer.combine(accumulators, (values[now],))
            result[places[now]] = convert(combined, run.dtype)
        return result.reshape(operand.shape)

    def _selected(self, run: Run, operand: Array, positions: tuple[int, ...]) -> Array:
        """Return the linear index of the element selected in every window; -1 where a window holds none."""
        index = cast(Array, np.arange(operand.size, dtype=np.int64)).reshape(operand.shape)
        base = dilated_and_padded(index, dict(enumerate(self.window)), np.array(-1))
        selected = np.full(positions, -1, np.int64)
        if not operand.size or not selected.size:
            return selected
        signature = run.instruction.called_computations[0].program_shape
        elements, additions = (
            convert(operand.ravel(), p.element_type.numpy_dtype) for p in signature.parameters
        )
        for offset in np.ndindex(*(d.size for d in self.window)):
            candidate = base[self._candidates(offset, positions)]
            selects: Any = run.map(0, elements[selected], additions[candidate])
            selected = np.where((candidate >= 0) & ((selected < 0) | ~selects), candidate, selected)
        return selected


def _is_cumulative(d: WindowDimension, size: int) -> bool:
    """Return whether the windows along a dimension are prefixes or suffixes of it."""
    plain = d.stride == d.base_dilation == d.window_dilation == 1
    return plain and d.size == size > 1 and sorted((d.padding_low, d.padding_high)) == [0, size - 1]
