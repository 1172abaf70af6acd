"""Factors: which dimensions of operands and results of an operation belong together.

A factor is an index that an operation loops over. It appears as a dimension of some operands and, unless it
is reduced, of every result. If each device has a tile of every dimension of a factor, it computes a tile of
the result; if the factor is reduced, a summand of it. Source: Shardy's ``OpShardingRule`` (openxla/shardy).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.ir.window import Window, WindowDimension
from hloom.operations.arithmetic import Add
from hloom.operations.contraction import Dot
from hloom.operations.conversion import Copy
from hloom.operations.convolution import Convolution
from hloom.operations.custom_call import CustomCall
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.gather_scatter import Gather, Scatter
from hloom.operations.linear_algebra import Cholesky, Fft, TriangularSolve
from hloom.operations.movement import Broadcast, Concatenate, Pad, Reshape, Reverse, Slice, Transpose
from hloom.operations.reduction import Reduce
from hloom.operations.sorting import Sort
from hloom.operations.structure import Iota
from hloom.operations.window_reduction import ReduceWindow, SelectAndScatter
from hloom.shape.shape import Shape


@dataclass(frozen=True, slots=True)
class Factor:
    """An index of an operation.

    Attributes:
        size: its extent.
        operands: its dimension in each operand that has it, by the operand's number.
        result: its dimension in every result; None if it is reduced.
        combiner: the operation that combines what devices have reduced.
        kind: "plain" if a device computes a tile from tiles; "halo" if it needs elements of its neighbors;
            "indexed" if indices say which elements it needs; "parallel" if they count along the factor;
            "grouped" if tiles must be whole groups.
    """

    size: int
    operands: Mapping[int, int]
    result: int | None
    combiner: Operation | None = None
    kind: str = "plain"


def factors_of(i: HloInstruction, shapes: Sequence[Shape]) -> list[Factor]:
    """Return the factors of an instruction; none if devices must have its whole operands.

    Args:
        i: an instruction with the shape of its whole result.
        shapes: the shapes of its whole operands.
    """
    operation = i.operation
    match operation:
        case Broadcast():
            return _broadcast(operation, i.shape, shapes[0])
        case Transpose():
            pairs = enumerate(operation.dimensions)
            return [Factor(shapes[0].dimensions[s], {0: s}, d) for d, s in pairs]
        case Reshape():
            return _reshape(shapes[0], i.shape)
        case Dot():
            return _dot(operation, shapes[0], shapes[1])
        case Convolution():
            return _convolution(operation, shapes)
        case Reduce():
            return _reduce(i, operation, shapes)
        case Concatenate():
            return _with_halos(i.shape, shapes, {operation.dimensions[0]})
        case Slice():
            kept = _same(shapes[0], i.shape)
            return _with_halos(i.shape, shapes, set(range(i.shape.rank)) - kept)
        case Pad():
            kept = {d for d, p in enumerate(operation.padding) if not (p.low or p.high or p.interior)}
            return _with_halos(i.shape, shapes[:1], set(range(i.shape.rank)) - kept)
        case Reverse():
            return _with_halos(i.shape, shapes, set(operation.dimensions))
        case ReduceWindow():
            arrays = shapes[: len(shapes) // 2]
            return _with_halos(arrays[0], arrays, _windowed(operation.window))
        case DynamicSlice():
            return _dynamic_slice(i.shape, shapes)
        case DynamicUpdateSlice():
            return _dynamic_update(shapes)
        case Iota():
            return [Factor(n, {}, d) for d, n in enumerate(i.shape.dimensions)]
        case Sort():
            return _parallel(shapes[0], shapes, set(operation.dimensions))
        case Gather():
            return _gather(i, operation, shapes, i.shape)
        case SelectAndScatter():
            return _select_and_scatter(operation, shapes)
        case Scatter():
            return _scatter(i, operation, shapes)
        case CustomCall(custom_call_target="TopK"):
            return _parallel(shapes[0], shapes, {shapes[0].rank - 1})
        case Cholesky() | TriangularSolve():
            return _parallel(i.shape, shapes, {i.shape.rank - 2, i.shape.rank - 1})
        case Fft():
            last = i.shape.rank - len(operation.fft_length)
            return _parallel(i.shape, shapes, set(range(last, i.shape.rank)))
        case Copy():
            return _parallel(i.shape, shapes, set())
        case _ if operation.elementwise and i.shape.is_array:
            return _parallel(i.shape, shapes, set())
        case _:
            return []


def _same(a: Shape, b: Shape) -> set[int]:
    """Return the dimensions of the same extent."""
    return {d for d, (m, n) in enumerate(zip(a.dimensions, b.dimensions, strict=True)) if m == n}


def _parallel(result: Shape, operands: Sequence[Shape], whole: set[int]) -> list[Factor]:
    """Return a factor for each dimension that is the same in the result and in all operands of its rank."""
    having = [n for n, shape in enumerate(operands) if shape.is_array and shape.rank == result.rank]
    return [
        Factor(extent, dict.fromkeys(having, d), d)
        for d, extent in enumerate(result.dimensions)
        if d not in whole
    ]


def _broadcast(operation: Broadcast, result: Shape, operand: Shape) -> list[Factor]:
    sources = {into: d for d, into in enumerate(operation.dimensions)}
    found: list[Factor] = []
    for d, extent in enumerate(result.dimensions):
        source = sources.get(d)
        if source is not None and operand.dimensions[source] == extent:
            found.append(Factor(extent, {0: source}, d))
    return found


def _reshape(operand: Shape, result: Shape) -> list[Factor]:
    """Pair dimensions with the same extents before them; a tile of either must be a tile of the other."""
    before = list(accumulate(operand.dimensions, lambda a, b: a * b, initial=1))
    after = list(accumulate(result.dimensions, lambda a, b: a * b, initial=1))
    found: list[Factor] = []
    for d, extent in enumerate(operand.dimensions):
        for e, other in enumerate(result.dimensions):
            if extent > 1 and other > 1 and before[d] == after[e]:
                found.append(Factor(math.gcd(extent, other), {0: d}, e))
    return found


def _dot(operation: Dot, lhs: Shape, rhs: Shape) -> list[Factor]:
    found: list[Factor] = []
    batches = list(zip(operation.lhs_batch_dims, operation.rhs_batch_dims, strict=True))
    contracted = list(zip(operation.lhs_contracting_dims, operation.rhs_contracting_dims, strict=True))
    for number, (left, right) in enumerate(batches):
        found.append(Factor(lhs.dimensions[left], {0: left, 1: right}, number))
    place = len(batches)
    for operand, shape in enumerate((lhs, rhs)):
        bound = {pair[operand] for pair in (*batches, *contracted)}
        for d, extent in enumerate(shape.dimensions):
            if d not in bound:
                found.append(Factor(extent, {operand: d}, place))
                place += 1
    for left, right in contracted:
        found.append(Factor(lhs.dimensions[left], {0: left, 1: right}, None, Add()))
    return found


def _convolution(operation: Convolution, shapes: Sequence[Shape]) -> list[Factor]:
    """Return batch, features and space; in groups, tiles of features must be whole groups."""
    n = operation.dim_labels
    lhs, rhs = shapes
    features = n.kernel_output_feature_dimension
    result = n.output_feature_dimension
    found: list[Factor] = []
    batch = n.input_batch_dimension
    if operation.batch_group_count == 1:
        found.append(Factor(lhs.dimensions[batch], {0: batch}, n.output_batch_dimension))
    else:
        having = {0: batch, 1: features}
        found.append(Factor(operation.batch_group_count, having, result, kind="grouped"))
    left, right = n.input_feature_dimension, n.kernel_input_feature_dimension
    if operation.feature_group_count > 1:
        having = {0: left, 1: features}
        found.append(Factor(operation.feature_group_count, having, result, kind="grouped"))
    else:
        found.append(Factor(lhs.dimensions[left], {0: left, 1: right}, None, Add()))
    if operation.feature_group_count == 1 and operation.batch_group_count == 1:
        found.append(Factor(rhs.dimensions[features], {1: features}, result))
    for number in range(len(operation.window)):
        found += _dot_like(operation, number, shapes)
    for number, window in enumerate(operation.window):
        space, kernel = n.input_spatial_dimensions[number], n.kernel_spatial_dimensions[number]
        extent = lhs.dimensions[space]
        found.append(Factor(extent, {0: space}, n.output_spatial_dimensions[number], kind="halo"))
        if not window.window_reversal and window.base_dilation == 1:
            found.append(Factor(window.size, {0: space, 1: kernel}, None, Add(), kind="halo"))
    return found


def _dot_like(operation: Convolution, number: int, shapes: Sequence[Shape]) -> list[Factor]:
    """Return the factor of a spatial dimension that is a batch dimension or a free one of the kernel."""
    labels, w = operation.dim_labels, operation.window[number]
    space, kernel = labels.input_spatial_dimensions[number], labels.kernel_spatial_dimensions[number]
    extent, result = shapes[0].dimensions[space], labels.output_spatial_dimensions[number]
    if w == batch_window(w.size) and extent == w.size > 1:
        return [Factor(extent, {0: space, 1: kernel}, result, kind="grouped")]
    if w == free_window(w.size) and extent == 1:
        return [Factor(w.size, {1: kernel}, result, kind="grouped")]
    return []


def batch_window(size: int) -> WindowDimension:
    """Return the window of a batch: element k of the result is that of the input times that of the kernel."""
    return WindowDimension(size, stride=max(1, size - 1), base_dilation=size)


def free_window(size: int) -> WindowDimension:
    """Return the window with which element k of the result is the input times k of the kernel."""
    return WindowDimension(size, padding_low=size - 1, padding_high=size - 1, window_reversal=True)


def _select_and_scatter(operation: SelectAndScatter, shapes: Sequence[Shape]) -> list[Factor]:
    """Return the dimensions in which windows neither overlap nor leave the array."""
    found: list[Factor] = []
    for d, w in enumerate(operation.window):
        extent, count = shapes[0].dimensions[d], shapes[1].dimensions[d]
        apart = w.padding_low == 0 and w.base_dilation == 1 and w.dilated_size - w.padding_high <= w.stride
        if apart and w.dilated_size <= w.stride and extent == count * w.stride:
            found.append(Factor(count, {0: d, 1: d}, d, kind="grouped"))
    return found


def _iota_dimension(indices: HloInstruction, axis: int, component: int) -> int | None:
    """Return the dimension along which a component of index vectors counts; None if it does not."""
    match indices.operation:
        case Iota(iota_dimension=d):
            one = axis == indices.shape.rank or indices.shape.dimensions[axis] == 1
            return d if one and d != axis else None
        case Copy():
            return _iota_dimension(indices.operands[0], axis, component)
        case Concatenate(dimensions=(d,)) if d == axis:
            for operand in indices.operands:
                if component < operand.shape.dimensions[axis]:
                    return _iota_dimension(operand, axis, component)
                component -= operand.shape.dimensions[axis]
        case _:
            pass
    return None


def _reduce(i: HloInstruction, operation: Reduce, shapes: Sequence[Shape]) -> list[Factor]:
    count = len(shapes) // 2
    combiner = _plain_combiner(i)
    found: list[Factor] = []
    place = 0
    for d, extent in enumerate(shapes[0].dimensions):
        having = dict.fromkeys(range(count), d)
        if d not in operation.dimensions:
            found.append(Factor(extent, having, place))
            place += 1
        elif combiner is not None and count == 1:
            found.append(Factor(extent, having, None, combiner))
    return found


def _plain_combiner(i: HloInstruction) -> Operation | None:
    """Return the operation of a reducer that is one commutative operation with a neutral element."""
    root = i.called_computations[0].root
    operands = {getattr(o.operation, "parameter_number", None) for o in root.operands}
    if operands != {0, 1} or not root.operation.commutative or not root.shape.is_array:
        return None
    neutral = root.operation.neutral_element(root.shape.element_type)
    return root.operation if neutral is not None else None


def _with_halos(result: Shape, operands: Sequence[Shape], moved: set[int]) -> list[Factor]:
    """Return a factor for each dimension; along some, devices need elements of their neighbors."""
    having = [n for n, shape in enumerate(operands) if shape.is_array and shape.rank == result.rank]
    return [
        Factor(extent, dict.fromkeys(having, d), d, kind="halo" if d in moved else "plain")
        for d, extent in enumerate(result.dimensions)
    ]


def _windowed(window: Window) -> set[int]:
    """Return the dimensions in which a window does more than take each element."""
    return {d for d, w in enumerate(window) if w != WindowDimension(1)}


def _dynamic_slice(result: Shape, shapes: Sequence[Shape]) -> list[Factor]:
    """Return whole dimensions as they are; of others, devices have what lies in their tiles."""
    kept = _same(shapes[0], result)
    found = [Factor(result.dimensions[d], {0: d}, d) for d in sorted(kept)]
    others = [d for d in range(result.rank) if d not in kept and len(shapes) == result.rank + 1]
    return found + [Factor(shapes[0].dimensions[d], {0: d}, None, Add(), kind="indexed") for d in others]


def _dynamic_update(shapes: Sequence[Shape]) -> list[Factor]:
    kept = _same(shapes[0], shapes[1])
    found = [Factor(shapes[0].dimensions[d], {0: d, 1: d}, d) for d in sorted(kept)]
    others = [d for d in range(shapes[0].rank) if d not in kept and len(shapes) == shapes[0].rank + 2]
    return found + [Factor(shapes[0].dimensions[d], {0: d}, d, kind="indexed") for d in others]


def _gather(i: HloInstruction, operation: Gather, shapes: Sequence[Shape], result: Shape) -> list[Factor]:
    """Return the dimensions of indices, whole dimensions of slices, and those that single indices choose."""
    operand, indices = shapes
    batch = [d for d in range(result.rank) if d not in operation.offset_dims]
    sources = [d for d in range(indices.rank) if d != operation.index_vector_dim]
    pairs = dict(zip(operation.start_indices_batching_dims, operation.operand_batching_dims, strict=True))
    found: list[Factor] = []
    for component, d in enumerate(operation.start_index_map):
        axis = _iota_dimension(i.operands[1], operation.index_vector_dim, component)
        if (
            axis is not None
            and operation.slice_sizes[d] == 1
            and indices.dimensions[axis] == operand.dimensions[d]
        ):
            place = batch[sources.index(axis)]
            found.append(Factor(operand.dimensions[d], {0: d, 1: axis}, place, kind="parallel"))
    for d, s in zip(batch, sources, strict=True):
        both = {0: pairs[s], 1: s} if s in pairs else {1: s}
        found.append(Factor(result.dimensions[d], both, d))
    left_out = {*operation.collapsed_slice_dims, *operation.operand_batching_dims}
    window = [d for d in range(operand.rank) if d not in left_out]
    for d, o in zip(window, operation.offset_dims, strict=True):
        if operation.slice_sizes[d] == operand.dimensions[d]:
            found.append(Factor(operand.dimensions[d], {0: d}, o))
    for d in operation.start_index_map:
        if operation.slice_sizes[d] == 1 and operand.dimensions[d] > 1:
            found.append(Factor(operand.dimensions[d], {0: d}, None, Add(), kind="indexed"))
    return found


def _scatter(i: HloInstruction, operation: Scatter, shapes: Sequence[Shape]) -> list[Factor]:
    """Return batching, whole window dimensions, and dimensions of the operand that indices choose."""
    count = len(shapes) // 2
    operand, indices, updates = shapes[0], shapes[count], shapes[count + 1]
    arrays, later = range(count), range(count + 1, 2 * count + 1)
    scattered = [d for d in range(updates.rank) if d not in operation.update_window_dims]
    sources = [d for d in range(indices.rank) if d != operation.index_vector_dim]
    pairs = dict(zip(operation.scatter_indices_batching_dims, operation.input_batching_dims, strict=True))
    combiner = _plain_combiner(i) if count == 1 else None
    found: list[Factor] = []
    for component, d in enumerate(operation.scatter_dims_to_operand_dims):
        axis = _iota_dimension(i.operands[count], operation.index_vector_dim, component)
        known = axis is not None and d in operation.inserted_window_dims
        if known and axis is not None and indices.dimensions[axis] == operand.dimensions[d]:
            having = {count: axis, **dict.fromkeys(later, scattered[sources.index(axis)])}
            both = {**dict.fromkeys(arrays, d), **having}
            found.append(Factor(operand.dimensions[d], both, d, kind="parallel"))
    for u, s in zip(scattered, sources, strict=True):
        having = {count: s, **dict.fromkeys(later, u)}
        extent = updates.dimensions[u]
        if s in pairs:
            found.append(Factor(extent, {**dict.fromkeys(arrays, pairs[s]), **having}, pairs[s]))
        elif combiner is not None:
            found.append(Factor(extent, having, None, combiner, kind="indexed"))
    left_out = {*operation.inserted_window_dims, *operation.input_batching_dims}
    window = [d for d in range(operand.rank) if d not in left_out]
    for d, u in zip(window, operation.update_window_dims, strict=True):
        if updates.dimensions[u] == operand.dimensions[d] and d not in operation.scatter_dims_to_operand_dims:
            having = {**dict.fromkeys(arrays, d), **dict.fromkeys(later, u)}
            found.append(Factor(operand.dimensions[d], having, d))
    for d in operation.scatter_dims_to_operand_dims:
        if d in operation.inserted_window_dims:
            found.append(Factor(operand.dimensions[d], dict.fromkeys(arrays, d), d, kind="indexed"))
    return found
