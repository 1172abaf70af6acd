"""Implicit broadcasting of the element-wise functions, after XLA's page "Broadcasting semantics".

A scalar meets any array; arrays of one rank meet where sizes are equal or one of them is 1; arrays of
different ranks need `broadcast_dimensions`, which map the dimensions of the smaller one to the larger one's.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hloom.builder.builder import XlaOp
from hloom.builder.operands import integers
from hloom.errors import ShapeError, plural
from hloom.shape.shape import Shape


def broadcast_operands(
    opcode: str, lhs: XlaOp, rhs: XlaOp, broadcast_dimensions: Sequence[int] | None
) -> tuple[XlaOp, XlaOp]:
    """Broadcast both operands to their common shape; raises ShapeError if there is none."""
    small, large = (lhs, rhs) if lhs.shape.rank <= rhs.shape.rank else (rhs, lhs)
    for operand in (lhs, rhs):
        if not operand.shape.is_array:
            raise ShapeError(f"{opcode} takes arrays, got {operand.shape}", rule="broadcasting.arrays")
    mapping = _mapping(opcode, small.shape, large.shape, broadcast_dimensions)
    small_axes = {target: source for source, target in enumerate(mapping)}
    pairs = [
        _joined(opcode, (small, small_axes.get(axis)), (large, axis), lhs.shape, rhs.shape)
        for axis in range(large.shape.rank)
    ]
    sizes, sources = [size for size, _, _ in pairs], {i: (op, axis) for i, (_, op, axis) in enumerate(pairs)}
    dynamic = [op.shape.dynamic_dimensions[axis] for op, axis in sources.values()]
    wide = expand(large, sizes, dynamic, range(large.shape.rank), sources)
    narrow = expand(small, sizes, dynamic, mapping, sources)
    return (narrow, wide) if small is lhs else (wide, narrow)


def _mapping(
    opcode: str, small: Shape, large: Shape, broadcast_dimensions: Sequence[int] | None
) -> tuple[int, ...]:
    """Return for each dimension of the smaller array the dimension of the larger one that it maps to."""
    identity = tuple(range(small.rank))
    if broadcast_dimensions is None or (not broadcast_dimensions and small.rank == large.rank):
        if small.rank not in (0, large.rank):
            message = (
                f"{opcode} of {small.to_string(layout=False)} and {large.to_string(layout=False)} needs "
                "broadcast_dimensions, because the ranks differ"
            )
            raise ShapeError(message, rule="broadcasting.ranks")
        return identity
    return checked_mapping(broadcast_dimensions, small.rank, large.dimensions)


def checked_mapping(broadcast_dimensions: Sequence[int], rank: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the dimensions of an array of some sizes that those of a smaller array become, if they fit."""
    mapping = integers(broadcast_dimensions, "broadcast_dimensions")
    if len(mapping) != rank:
        message = (
            f"broadcast_dimensions {list(mapping)} needs one entry for each of {plural(rank, 'dimension')}"
        )
        raise ShapeError(message, rule="broadcasting.dimensions-count")
    if any(not 0 <= target < len(sizes) for target in mapping):
        message = f"broadcast_dimensions {list(mapping)} name dimensions of sizes {list(sizes)}"
        raise ShapeError(message, rule="broadcasting.dimensions-in-range")
    if any(a >= b for a, b in pairwise(mapping)):
        message = f"broadcast_dimensions must be strictly increasing, got {list(mapping)}"
        raise ShapeError(message, rule="broadcasting.dimensions-increasing")
    return mapping


def _joined(
    opcode: str, small: tuple[XlaOp, int | None], large: tuple[XlaOp, int], lhs: Shape, rhs: Shape
) -> tuple[int, XlaOp, int]:
    """Return the size of one result dimension, and the operand and axis that it comes from."""
    op, axis = small
    other, other_axis = large
    size = other.shape.dimensions[other_axis]
    if axis is None:
        return size, other, other_axis
    extent = op.shape.dimensions[axis]
    if extent == size:
        if op.shape.dynamic_dimensions[axis]:
            return extent, op, axis
        return size, other, other_axis
    if extent == 1:
        return size, other, other_axis
    if size == 1:
        return extent, op, axis
    message = (
        f"{opcode} of {lhs.to_string(layout=False)} and {rhs.to_string(layout=False)}: "
        f"sizes {extent} and {size} are neither equal nor 1"
    )
    raise ShapeError(message, rule="broadcasting.sizes")


def expand(
    op: XlaOp,
    sizes: Sequence[int],
    dynamic: Sequence[bool],
    mapping: Sequence[int],
    sources: dict[int, tuple[XlaOp, int]],
) -> XlaOp:
    """Place the dimensions of `op` at `mapping` in an array of `sizes`; repeat sizes of 1.

    A repeated dimension that is dynamic gets its run-time size from the operand named in `sources`.
    """
    from hloom.builder.data_movement import GetDimensionSize, SetDimensionSize, broadcast_to, reshaped

    shape = op.shape
    if tuple(mapping) == tuple(range(len(sizes))) and shape.dimensions == tuple(sizes):
        return op
    full = [axis for axis in range(shape.rank) if shape.dimensions[axis] == sizes[mapping[axis]]]
    targets = [mapping[axis] for axis in full]
    if len(full) != shape.rank:
        op = reshaped(op, [shape.dimensions[axis] for axis in full])
    result = broadcast_to(op, sizes, targets)
    for axis, is_dynamic in enumerate(dynamic):
        if is_dynamic and axis not in targets:
            other, other_axis = sources[axis]
            result = SetDimensionSize(result, GetDimensionSize(other, other_axis), axis)
    return result


def like(op: XlaOp, other: XlaOp) -> XlaOp:
    """Broadcast a scalar to the dimensions of `other`; return anything else unchanged."""
    if op.shape.rank or not other.shape.rank:
        return op
    shape = other.shape
    sources = {axis: (other, axis) for axis in range(shape.rank)}
    return expand(op, shape.dimensions, shape.dynamic_dimensions, (), sources)
