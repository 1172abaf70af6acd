"""Factors: which dimensions of operands and results of an operation belong together.

A factor is an index that an operation loops over. It appears as a dimension of some operands and, unless it
is reduced, of every result. If each device has a tile of every dimension of a factor, it computes a tile of
the result; if the factor is reduced, a summand of it. Source: Shardy's ``OpShardingRule`` (openxla/shardy).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.operations.arithmetic import Add
from hloom.operations.contraction import Dot
from hloom.operations.conversion import Copy
from hloom.operations.convolution import Convolution
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.gather_scatter import Gather
from hloom.operations.linear_algebra import Cholesky, Fft, TriangularSolve
from hloom.operations.movement import Broadcast, Concatenate, Pad, Reshape, Reverse, Slice, Transpose
from hloom.operations.reduction import Reduce
from hloom.operations.sorting import Sort
from hloom.shape.shape import Shape


@dataclass(frozen=True, slots=True)
class Factor:
    """An index of an operation.

    Attributes:
        size: its extent.
        operands: its dimension in each operand that has it, by the operand's number.
        result: its dimension in every result; None if it is reduced.
        combiner: the operation that combines what devices have reduced.
    """

    size: int
    operands: Mapping[int, int]
    result: int | None
    combiner: Operation | None = None


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
            return _parallel(i.shape, shapes, {operation.dimensions[0]})
        case Slice():
            kept = _same(shapes[0], i.shape)
            return _parallel(i.shape, shapes, set(range(i.shape.rank)) - kept)
        case Pad():
            kept = {d for d, p in enumerate(operation.padding) if not (p.low or p.high or p.interior)}
            return _parallel(i.shape, shapes[:1], set(range(i.shape.rank)) - kept)
        case Reverse():
            return _parallel(i.shape, shapes, set(operation.dimensions))
        case DynamicSlice():
            return _parallel(i.shape, shapes[:1], set(range(i.shape.rank)) - _same(shapes[0], i.shape))
        case DynamicUpdateSlice():
            return _parallel(i.shape, shapes[:2], set(range(i.shape.rank)) - _same(shapes[0], shapes[1]))
        case Sort():
            return _parallel(shapes[0], shapes, set(operation.dimensions))
        case Gather():
            return _gather(operation, shapes[1], i.shape)
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


def with_local_shape(operation: Operation, local: Shape) -> Operation:
    """Return the operation for results of a tile's shape: attributes that state extents are adapted."""
    match operation:
        case Slice():
            dimensions = list(operation.slice)
            for d, (one, extent) in enumerate(zip(dimensions, local.dimensions, strict=True)):
                if one.start == 0 and one.stride == 1:
                    dimensions[d] = replace(one, limit=extent)
            return replace(operation, slice=tuple(dimensions))
        case DynamicSlice():
            return replace(operation, dynamic_slice_sizes=local.dimensions)
        case _:
            return operation


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
    numbers = operation.dim_labels
    lhs, rhs = shapes
    if operation.batch_group_count != 1:
        return []
    batch = numbers.input_batch_dimension
    found = [Factor(lhs.dimensions[batch], {0: batch}, numbers.output_batch_dimension)]
    if operation.feature_group_count == 1:
        features = numbers.kernel_output_feature_dimension
        result = numbers.output_feature_dimension
        found.append(Factor(rhs.dimensions[features], {1: features}, result))
        left, right = numbers.input_feature_dimension, numbers.kernel_input_feature_dimension
        found.append(Factor(lhs.dimensions[left], {0: left, 1: right}, None, Add()))
    return found


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


def _gather(operation: Gather, indices: Shape, result: Shape) -> list[Factor]:
    batch = [d for d in range(result.rank) if d not in operation.offset_dims]
    sources = [d for d in range(indices.rank) if d != operation.index_vector_dim]
    if operation.operand_batching_dims:
        return []
    return [Factor(result.dimensions[d], {1: s}, d) for d, s in zip(batch, sources, strict=True)]
