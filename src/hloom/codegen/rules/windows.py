"""Windows as elements: reduce-window and convolution, a loop over the window for every vector of results."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from hloom.analysis.instructions import operation_of
from hloom.codegen.accumulators import nested_reduction, spread
from hloom.codegen.combining import Combiner
from hloom.codegen.elements import Elements, element_rule, leaf_rule
from hloom.codegen.llvm import I64, Value
from hloom.codegen.rules.contraction import accumulator_type, converted, multiply_add
from hloom.codegen.types import Element, constant, round_to
from hloom.ir.affine import Index, Indices, Variable
from hloom.ir.indexing import undilated
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import WindowDimension
from hloom.operations.convolution import Convolution
from hloom.operations.window_reduction import ReduceWindow
from hloom.plan.accesses import MOST_UNROLLED_WINDOW
from hloom.plan.index_maps import convolution_group


def window_place(
    e: Elements, at: Index, position: Index, d: WindowDimension, size: int
) -> tuple[Index, Value | None]:
    """Return the base index of a window element, and the condition that the element exists.

    Args:
        e: the element emitter.
        at: index of the window.
        position: index inside the window.
        d: the window dimension.
        size: size of the base before dilation.
    """
    element = position * -1 + (d.size - 1) if d.window_reversal else position
    place = at * d.stride + element * d.window_dilation + -d.padding_low
    return undilated(e, place, d.base_dilation, size)


@leaf_rule("reduce-window")
def reduce_window_leaves(e: Elements, instruction: HloInstruction, indices: Indices) -> list[Element]:
    """Emit the reduced window at a result index; positions outside the base count as the initial value."""
    window = operation_of(instruction, ReduceWindow).window
    half = len(instruction.operands) // 2
    operands, initial = instruction.operands[:half], instruction.operands[half:]
    combiner = Combiner(instruction.called_computations[0])
    sizes = operands[0].shape.dimensions
    types = [o.shape.element_type for o in initial]
    inits = [spread(e, e.element(i, ())) for i in initial]
    start, fills = combiner.starts(inits, types), combiner.lift(inits, types)

    def step(accumulators: list[Element], positions: Sequence[Index]) -> list[Element]:
        places: list[Index] = []
        condition: Value | None = None
        for at, position, d, size in zip(indices, positions, window, sizes, strict=True):
            place, inside = window_place(e, at, position, d, size)
            places.append(place)
            condition = e.both(condition, inside)
        with e.masked(condition):
            values = [e.element(o, tuple(places)) for o in operands]
        lifted = combiner.lift(values, [o.shape.element_type for o in operands])
        if condition is not None:
            lifted = [e.choose(condition, x, fill) for x, fill in zip(lifted, fills, strict=True)]
        return [spread(e, x) for x in combiner.combine(e, accumulators, lifted)]

    if 0 in sizes:
        return combiner.lower(folded(e, window, start, lambda a, _: combiner.combine(e, a, fills)), types)
    return combiner.lower(folded(e, window, start, step), types)


def folded(
    e: Elements, window: Sequence[WindowDimension], start: list[Element],
    step: Callable[[list[Element], Sequence[Index]], list[Element]],
) -> list[Element]:  # fmt: skip
    """Carry values through every element of a window, in order; small windows are unrolled."""
    sizes = [d.size for d in window]
    if math.prod(sizes) <= MOST_UNROLLED_WINDOW:
        for offsets in itertools.product(*map(range, sizes)):
            start = step(start, [Index(o) for o in offsets])
        return start
    variables = [Variable(size, "w") for size in sizes]
    positions = [Index.of(v) for v in variables]

    def round_(values: list[Element]) -> list[Element]:
        return step(values, positions)

    return nested_reduction(e, [v for v in variables if v.extent != 1], start, round_)


@element_rule("reduce-window")
def _reduce_window(e: Elements, instruction: HloInstruction, indices: Indices) -> Element:
    return reduce_window_leaves(e, instruction, indices)[0]


@element_rule("convolution")
def _convolution(e: Elements, instruction: HloInstruction, indices: Indices) -> Element:
    """Emit the sum over window and input features, without products outside the base."""
    operation = operation_of(instruction, Convolution)
    lhs, rhs = instruction.operands
    labels, window = operation.dim_labels, operation.window
    result = instruction.shape.element_type
    kind = accumulator_type(result)
    zero = constant(e.function, kind, 0, e.lanes)
    if 0 in (*lhs.shape.dimensions, *rhs.shape.dimensions):
        return zero
    features = rhs.shape.dimensions[labels.kernel_input_feature_dimension]
    outputs = instruction.shape.dimensions[labels.output_feature_dimension]
    positions = [Variable(d.size, "w") for d in window]
    feature = Variable(features, "c")
    output = indices[labels.output_feature_dimension]
    group = _group(e, output, outputs, operation.feature_group_count)
    batch_group = _group(e, output, outputs, operation.batch_group_count)
    batch_size = lhs.shape.dimensions[labels.input_batch_dimension] // operation.batch_group_count
    left: list[Index] = [Index(0)] * lhs.shape.rank
    left[labels.input_batch_dimension] = indices[labels.output_batch_dimension] + batch_group * batch_size
    left[labels.input_feature_dimension] = group * features + Index.of(feature)
    right: list[Index] = [Index(0)] * rhs.shape.rank
    right[labels.kernel_input_feature_dimension] = Index.of(feature)
    right[labels.kernel_output_feature_dimension] = output

    def step(accumulators: list[Element]) -> list[Element]:
        condition: Value | None = None
        for n, (variable, d) in enumerate(zip(positions, window, strict=True)):
            at = indices[labels.output_spatial_dimensions[n]]
            dimension = labels.input_spatial_dimensions[n]
            place, inside = window_place(e, at, Index.of(variable), d, lhs.shape.dimensions[dimension])
            left[dimension] = place
            right[labels.kernel_spatial_dimensions[n]] = Index.of(variable)
            condition = e.both(condition, inside)
        with e.masked(condition):
            a = converted(e.element(lhs, tuple(left)), lhs.shape.element_type, kind)
        b = converted(e.element(rhs, tuple(right)), rhs.shape.element_type, kind)
        if condition is not None:  # both factors: zero times an infinite one is NaN
            a, b = (e.choose(condition, factor, constant(e.function, kind, 0)) for factor in (a, b))
        return [multiply_add(e, kind, a, b, accumulators[0])]

    looped = [v for v in (*positions, feature) if v.extent != 1]
    made = nested_reduction(e, looped, [zero], step)[0]
    return made if isinstance(made, tuple) or kind is result else round_to(made, result)


def _group(e: Elements, output: Index, outputs: int, groups: int) -> Index:
    """Return the group of an output feature."""
    group = convolution_group(output, outputs, groups)
    if group is not None:
        return group
    size = outputs // groups
    e.pin(output)
    value = e.index_value(output)
    return e.opaque(value.unsigned_divide(e.function.constant(I64.vector(value.type.lanes), size)), groups)
