"""Functions that create and rearrange elements: constants, shapes, slices, tuples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, cast

from hloom.builder.broadcasting import checked_mapping
from hloom.builder.builder import XlaBuilder, XlaOp
from hloom.builder.messages import padding_dimensions
from hloom.builder.operands import (
    ElementTypeLike,
    Operand,
    Operands,
    an_op,
    as_op,
    constant,
    index_ops,
    integers,
    leading_operands,
    op_list,
    page_function,
    shape_of,
    sizes_of,
)
from hloom.errors import ShapeError, plural
from hloom.ir.window import SliceDimension
from hloom.shape.element_type import S32, ElementType
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape

__all__: list[str] = ["Constant", "ConstantFromArray", "ConstantLiteral", "ConstantR0"]
__all__ += ["ConstantR1", "ConstantR2", "Iota", "Parameter"]
__all__ += ["Bitcast", "Broadcast", "BroadcastInDim", "Collapse"]
__all__ += ["DynamicReshape", "Reshape", "Rev", "Transpose"]
__all__ += ["ConcatInDim", "Concatenate", "DynamicSlice", "DynamicUpdateSlice"]
__all__ += ["Pad", "PadInDim", "Slice", "SliceInDim"]
__all__ += ["EmptyTuple", "GetTupleElement", "Tuple"]
__all__ += ["GetDimensionSize", "RemoveDynamicDimension", "SetDimensionSize"]


@page_function()
def Parameter(
    builder: XlaBuilder,
    parameter_number: int,
    shape: Shape | str,
    name: str = "",
    replicated_at_leaf_buffers: Sequence[bool] | None = None,
) -> XlaOp:
    """Declare parameter number `parameter_number` of the computation."""
    op = builder.emit(
        "parameter",
        shape=shape_of(shape),
        name=name or f"p{parameter_number}",
        parameter_number=parameter_number,
    )
    if replicated_at_leaf_buffers is not None:
        op = replicated(op, replicated_at_leaf_buffers)
    return op


def replicated(op: XlaOp, leaves: Sequence[bool]) -> XlaOp:
    """Note which leaves of a parameter have the same value on every replica."""
    operation = op.instruction.operation
    op.instruction.operation = operation.replace(parameter_replication=tuple(map(bool, leaves)))
    return op


@page_function()
def ConstantLiteral(builder: XlaBuilder, literal: object) -> XlaOp:
    """Make a constant of a Literal, or of any value a Literal can be made of."""
    return constant(builder, literal)


@page_function()
def Constant(builder: XlaBuilder, value: object, element_type: ElementTypeLike | None = None) -> XlaOp:
    """Make a constant of a number, list or array; `element_type` converts Python numbers."""
    return constant(builder, value, element_type)


@page_function()
def ConstantR0(builder: XlaBuilder, value: object, element_type: ElementTypeLike | None = None) -> XlaOp:
    """Make a scalar constant."""
    return _constant_of_rank(builder, value, element_type, 0)


@page_function()
def ConstantR1(
    builder: XlaBuilder, values: Any, value: Any = None, element_type: ElementTypeLike | None = None
) -> XlaOp:
    """Make a vector constant: `ConstantR1(b, [1, 2])`, or `ConstantR1(b, length, value)`."""
    if value is not None:
        values = [value] * int(values)
    return _constant_of_rank(builder, values, element_type, 1)


@page_function()
def ConstantR2(builder: XlaBuilder, values: object, element_type: ElementTypeLike | None = None) -> XlaOp:
    """Make a matrix constant."""
    return _constant_of_rank(builder, values, element_type, 2)


@page_function()
def ConstantFromArray(builder: XlaBuilder, values: object) -> XlaOp:
    """Make an array constant of any rank."""
    return constant(builder, values)


def _constant_of_rank(
    builder: XlaBuilder, value: object, element_type: ElementTypeLike | None, rank: int
) -> XlaOp:
    literal = Literal(value)
    if literal.shape.rank != rank:
        raise ShapeError(f"the constant has rank {rank}, got {literal.shape}", rule="builder.constant-rank")
    return constant(builder, value, element_type)


@page_function()
def Iota(builder: XlaBuilder, shape: Shape | str | ElementType, iota_dimension: int = 0) -> XlaOp:
    """Count 0, 1, 2, ... along one dimension; `Iota(b, element_type, size)` has `size` elements."""
    if isinstance(shape, ElementType):
        shape, iota_dimension = Shape(shape, (iota_dimension,)), 0
    return builder.emit("iota", shape=shape_of(shape), iota_dimension=iota_dimension)


@page_function(sizes="broadcast_sizes")
def Broadcast(operand: XlaOp, broadcast_sizes: Sequence[int]) -> XlaOp:
    """Repeat the operand along new major dimensions of these sizes."""
    sizes = sizes_of(broadcast_sizes, "broadcast_sizes")
    shape = operand.shape
    total = (*sizes, *shape.dimensions)
    flags = (*(False,) * len(sizes), *shape.dynamic_dimensions)
    targets = tuple(range(len(sizes), len(total)))
    return operand.builder.emit(
        "broadcast", [operand], shape=Shape(shape.element_type, total, flags), dimensions=targets
    )


@page_function(shape="out_dim_size")
def BroadcastInDim(operand: XlaOp, out_dim_size: Sequence[int], broadcast_dimensions: Sequence[int]) -> XlaOp:
    """Map operand dimension i to dimension `broadcast_dimensions[i]` of an array of `out_dim_size`.

    Dimensions of size 1 are repeated, the result's other dimensions too.
    """
    sizes = sizes_of(out_dim_size, "out_dim_size")
    shape = operand.shape
    targets = checked_mapping(broadcast_dimensions, shape.rank, sizes)
    if any(size not in (1, sizes[t]) for size, t in zip(shape.dimensions, targets, strict=True)):
        message = f"{shape.to_string(layout=False)} cannot become dimensions {list(targets)} of {list(sizes)}"
        raise ShapeError(message, rule="broadcasting.sizes")
    return broadcast_to(operand, sizes, targets)


def broadcast_to(operand: XlaOp, sizes: Sequence[int], targets: Sequence[int]) -> XlaOp:
    """Broadcast the operand, its dimensions becoming `targets`, to sizes that are known to fit."""
    shape = operand.shape
    full = [i for i in range(shape.rank) if shape.dimensions[i] == sizes[targets[i]]]
    if len(full) != shape.rank:
        operand = reshaped(operand, [shape.dimensions[i] for i in full])
    flags = [False] * len(sizes)
    for i in full:
        flags[targets[i]] = shape.dynamic_dimensions[i]
    return operand.builder.emit(
        "broadcast",
        [operand],
        shape=Shape(shape.element_type, tuple(sizes), flags),
        dimensions=tuple(targets[i] for i in full),
    )


@page_function()
def Pad(operand: XlaOp, padding_value: Operand, padding_config: object) -> XlaOp:
    """Pad before, after (negative crops) and between elements.

    `padding_config` is a PaddingConfig, or has for each dimension (low, high), (low, high, interior) or a
    PaddingConfigDimension.
    """
    config = padding_dimensions(padding_config)
    return operand.builder.emit("pad", [operand, as_op(padding_value, operand)], padding=config)


@page_function()
def PadInDim(operand: XlaOp, padding_value: Operand, dimno: int, pad_lo: int, pad_hi: int) -> XlaOp:
    """Pad one dimension."""
    config = [(pad_lo, pad_hi) if i == dimno else (0, 0) for i in range(operand.shape.rank)]
    return Pad(operand, padding_value, config)


@page_function()
def Reshape(operand: Any, dimensions: Any = None, new_sizes: Sequence[int] | None = None) -> XlaOp:
    """Return the elements, in row-major order, in an array of other dimensions.

    `Reshape(operand, new_sizes)`; or `Reshape(operand, dimensions, new_sizes)`, which first collapses the
    operand with its dimensions in the order `dimensions`; or `Reshape(shape, operand)`.
    """
    if isinstance(operand, Shape):
        value = cast("XlaOp", dimensions)
        return value.builder.emit("reshape", [value], shape=operand)
    if new_sizes is None:
        return reshaped(operand, sizes_of(dimensions, "new_sizes"))
    sizes = sizes_of(new_sizes, "new_sizes")
    order = tuple(range(operand.shape.rank)) if dimensions is None else integers(dimensions, "dimensions")
    if order != tuple(range(operand.shape.rank)):
        operand = Transpose(operand, order)
    return reshaped(operand, sizes)


def reshaped(operand: XlaOp, new_sizes: Sequence[int]) -> XlaOp:
    """Reshape to sizes taken from shapes, so that an unbounded size stays unbounded."""
    sizes = tuple(new_sizes)
    flags = operand.shape.dynamic_dimensions if sizes == operand.shape.dimensions else None
    shape = Shape(operand.shape.element_type, sizes, flags)
    return operand.builder.emit("reshape", [operand], shape=shape)


@page_function()
def DynamicReshape(
    operand: XlaOp,
    dim_sizes: Sequence[Operand],
    new_size_bounds: Sequence[int],
    dims_are_dynamic: Sequence[bool],
) -> XlaOp:
    """Reshape to run-time sizes, which `new_size_bounds` limit."""
    sizes = index_ops(operand.builder, list(dim_sizes))
    bounds = sizes_of(new_size_bounds, "new_size_bounds")
    shape = Shape(operand.shape.element_type, bounds, dims_are_dynamic)
    return operand.builder.emit("dynamic-reshape", [operand, *sizes], shape=shape)


@page_function()
def Collapse(operand: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """Collapse consecutive dimensions into one."""
    collapsed = integers(dimensions, "dimensions")
    sizes = operand.shape.dimensions
    if any(not 0 <= dimension < len(sizes) for dimension in collapsed):
        message = f"{operand.shape} has no dimensions {list(collapsed)}"
        raise ShapeError(message, rule="collapse.dimensions-in-range")
    if len(collapsed) <= 1:
        return operand
    if any(b != a + 1 for a, b in pairwise(collapsed)):
        raise ShapeError(
            f"collapsed dimensions are consecutive, got {list(collapsed)}", rule="collapse.consecutive"
        )
    merged = math.prod(sizes[i] for i in collapsed)
    return Reshape(operand, (*sizes[: collapsed[0]], merged, *sizes[collapsed[-1] + 1 :]))


@page_function()
def Transpose(operand: XlaOp, permutation: Sequence[int]) -> XlaOp:
    """Permute dimensions: result dimension i is operand dimension `permutation[i]`."""
    return operand.builder.emit("transpose", [operand], dimensions=integers(permutation, "permutation"))


@page_function()
def Rev(operand: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """Reverse the elements along some dimensions."""
    return operand.builder.emit("reverse", [operand], dimensions=integers(dimensions, "dimensions"))


@page_function()
def Slice(
    operand: XlaOp,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None = None,
) -> XlaOp:
    """Return every stride-th element from start to limit (exclusive) in each dimension."""
    starts, limits = integers(start_indices, "start_indices"), integers(limit_indices, "limit_indices")
    steps = (1,) * len(starts) if strides is None else integers(strides, "strides")
    if not len(starts) == len(limits) == len(steps):
        message = f"starts {list(starts)}, limits {list(limits)} and strides {list(steps)} differ in number"
        raise ShapeError(message, rule="slice.counts")
    ranges = tuple(SliceDimension(*bounds) for bounds in zip(starts, limits, steps, strict=True))
    return operand.builder.emit("slice", [operand], slice=ranges)


@page_function()
def SliceInDim(operand: XlaOp, start_index: int, limit_index: int, stride: int, dimno: int) -> XlaOp:
    """Slice one dimension."""
    axis = operand.shape.axis(dimno)
    starts, limits, strides = (
        [0] * operand.shape.rank,
        list(operand.shape.dimensions),
        [1] * operand.shape.rank,
    )
    starts[axis], limits[axis], strides[axis] = start_index, limit_index, stride
    return Slice(operand, starts, limits, strides)


@page_function(slice_sizes="size_indices")
def DynamicSlice(operand: XlaOp, start_indices: Operands, size_indices: Sequence[int]) -> XlaOp:
    """Return a box of `size_indices` elements at a run-time start, clamped so that the box fits."""
    starts = index_ops(operand.builder, start_indices)
    sizes = integers(size_indices, "size_indices")
    return operand.builder.emit("dynamic-slice", [operand, *starts], dynamic_slice_sizes=sizes)


@page_function()
def DynamicUpdateSlice(operand: XlaOp, update: Operand, start_indices: Operands) -> XlaOp:
    """Replace a box of the operand by `update` at a run-time start, which is clamped."""
    starts = index_ops(operand.builder, start_indices)
    return operand.builder.emit("dynamic-update-slice", [operand, as_op(update, operand), *starts])


@page_function(arrange=leading_operands)
def ConcatInDim(operands: Operands, dimension: int) -> XlaOp:
    """Concatenate arrays along a dimension."""
    values = op_list(operands)
    if not values:
        raise ShapeError("concatenation takes at least one array", rule="concatenate.operands")
    return values[0].builder.emit("concatenate", values, dimensions=(dimension,))


Concatenate = ConcatInDim


@page_function(arrange=leading_operands)
def Tuple(elements: Sequence[XlaOp]) -> XlaOp:
    """Make a tuple of the values. For the empty tuple use `EmptyTuple(builder)`."""
    values = op_list(list(elements))
    return an_op(values).builder.emit("tuple", values)


@page_function()
def EmptyTuple(builder: XlaBuilder) -> XlaOp:
    """Make an empty tuple."""
    return builder.emit("tuple")


@page_function()
def GetTupleElement(tuple_data: XlaOp, index: int) -> XlaOp:
    """Return element number `index` of a tuple."""
    return tuple_data.builder.emit("get-tuple-element", [tuple_data], index=index)


@page_function()
def GetDimensionSize(operand: XlaOp, dimension: int) -> XlaOp:
    """Return the (run-time) size of a dimension as an s32 scalar."""
    return operand.builder.emit("get-dimension-size", [operand], dimensions=(dimension,))


@page_function(val="size")
def SetDimensionSize(operand: XlaOp, size: Operand, dimension: int) -> XlaOp:
    """Set the run-time size of a dimension; elements beyond it are ignored."""
    return operand.builder.emit(
        "set-dimension-size", [operand, as_op(size, operand, S32)], dimensions=(dimension,)
    )


@page_function()
def RemoveDynamicDimension(operand: XlaOp, dimension: int) -> XlaOp:
    """Return the operand with a dimension at its full, static size."""
    axis = operand.shape.axis(dimension)
    size = operand.shape.dimensions[axis]
    shape = operand.shape.with_dynamic_dimension(axis, False)
    return operand.builder.emit(
        "set-dimension-size", [operand, constant(operand.builder, size, S32)], shape=shape, dimensions=(axis,)
    )


@page_function()
def Bitcast(operand: XlaOp, shape: Shape | str) -> XlaOp:
    """Read the operand's buffer in another shape of the same number of bytes."""
    return operand.builder.emit("bitcast", [operand], shape=shape_of(shape))


def index_value(op: XlaOp, index: Any) -> XlaOp:
    """Return `op[index]`: an element of a tuple, or a numpy-style index of integers, slices and `...`."""
    if op.shape.is_tuple:
        return GetTupleElement(op, index if index >= 0 else index + len(op.shape.tuple_shapes))
    places = list(cast("tuple[Any, ...]", index) if isinstance(index, tuple) else (index,))
    rank = op.shape.rank
    if Ellipsis in places:
        at = places.index(Ellipsis)
        places[at : at + 1] = [slice(None)] * (rank - len(places) + 1)
    if len(places) > rank:
        raise ShapeError(
            f"{op.shape} has no {plural(len(places), 'dimension')} to index", rule="builder.index-rank"
        )
    places += [slice(None)] * (rank - len(places))
    ranges: list[tuple[int, int, int]] = []
    reversed_axes: list[int] = []
    for axis, (place, size) in enumerate(zip(places, op.shape.dimensions, strict=True)):
        if isinstance(place, slice):
            start, stop, step = place.indices(size)
            count = len(range(start, stop, step))
            if step < 0:
                reversed_axes.append(axis)
                start, step = start + (count - 1) * step, -step
            ranges.append((start, start + (count - 1) * step + 1, step) if count else (0, 0, 1))
        elif not hasattr(place, "__index__"):
            message = f"integers and slices index a value, got {place!r}; DynamicSlice and Gather take values"
            raise ShapeError(message, rule="builder.index-kind")
        elif not -size <= place < size:
            raise ShapeError(
                f"index {place} is not in dimension {axis} of {op.shape}", rule="builder.index-range"
            )
        else:
            ranges.append((place % size, place % size + 1, 1))
    starts, limits, strides = zip(*ranges, strict=True) if ranges else ((), (), ())
    slice_ = Slice(op, starts, limits, strides)
    if reversed_axes:
        slice_ = Rev(slice_, reversed_axes)
    if all(isinstance(place, slice) for place in places):
        return slice_
    sizes = [s for s, place in zip(slice_.shape.dimensions, places, strict=True) if isinstance(place, slice)]
    return reshaped(slice_, sizes)
