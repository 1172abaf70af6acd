"""Partial sums: unreduced arrays, whose value is the sum of the arrays on devices.

Programs annotate them by ``unreduced`` axes. Linear operations map partial sums to partial sums, so that a
loop can accumulate gradients on each device and reduce them once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hloom.analysis.values import combiner
from hloom.ir.instruction import HloInstruction
from hloom.ir.traits import Family
from hloom.operations.arithmetic import Add, Divide, Multiply, Subtract
from hloom.operations.comparison import Select
from hloom.operations.conversion import Convert, Copy
from hloom.operations.custom_call import rotation_of
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.gather_scatter import Gather
from hloom.operations.movement import Broadcast, Concatenate, Pad, Reverse, Slice, Transpose
from hloom.operations.reduction import Reduce
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Constant
from hloom.operations.unary import Negate
from hloom.sharding.planning.decisions import ShardedFactor
from hloom.sharding.tiling.coordinates import Coordinate, same_classes
from hloom.sharding.tiling.tiling import Tiling

_MOVES = (Broadcast, Reshape, Reverse, Slice, Transpose, Copy, DynamicSlice, Gather, Negate)
"""Operations that are linear in their first operand."""
_SUMS = (Add, Subtract, Concatenate)
"""Operations that are jointly linear in all operands."""


def is_linear(i: HloInstruction, unreduced: Sequence[bool]) -> bool:
    """Return true if an operation on partial sums yields partial sums of its result, as it is linear in them.

    ``unreduced`` has a flag for each operand: True if devices hold partial sums of it.
    """
    numbers = {number for number, is_unreduced in enumerate(unreduced) if is_unreduced}
    operation = i.operation
    match operation:
        case Convert():
            kind = i.shape.element_type
            return kind.is_floating or kind.is_complex or kind == i.operands[0].shape.element_type
        case Multiply():
            return len(numbers) == 1
        case Divide():
            return numbers == {0} and i.shape.element_type.is_floating
        case Select():
            return numbers == {1, 2}
        case DynamicUpdateSlice():
            return numbers == {0, 1}
        case Pad():
            return numbers == {0} and _is_zero(i.operands[1])
        case Reduce():
            return isinstance(combiner(i), Add) and numbers == {0} and _is_zero(i.operands[1])
        case _ if isinstance(operation, _MOVES) or rotation_of(i) is not None:
            return numbers == {0}
        case _ if isinstance(operation, _SUMS):
            return len(numbers) == len(unreduced)
        case _:
            return operation.family is Family.CONTRACTION and len(unreduced) == 2 and len(numbers) == 1


def stay_unreduced(tiling: Tiling, target: Tiling | None, sharded: Sequence[ShardedFactor]) -> bool:
    """Return true if the partial results of an operation already are the partial sums that ``target`` wants.

    Then no all-reduce is needed. The partial results must be combined by addition, and each device must have
    the partial result that ``target`` assigns to it.

    Args:
        tiling: the tiling of the result, without partial sums.
        target: the wanted tiling of the result; None, for which this returns false, if none is wanted.
        sharded: the sharded factors (indices of the operation) with their tilings.
    """
    reduced = [(factor, reduced_tiling) for factor, reduced_tiling in sharded if factor.result is None]
    if not reduced or target is None or target.unreduced is None or tiling.unreduced is not None:
        return False
    adds = all(isinstance(factor.combiner, Add) for factor, _ in reduced)
    same = same_classes([reduced_tiling.coordinates[0] for _, reduced_tiling in reduced], target.unreduced)
    return adds and same and tiling == replace(target, unreduced=None)


def scattered_dimension(
    tiling: Tiling, unreduced: Sequence[Coordinate], target: Tiling, dimensions: Sequence[int]
) -> int | None:
    """Return the dimension along which a reduce-scatter of partial sums yields the target tiling.

    The target must shard one more dimension, over the devices that hold the partial sums. Returns None if
    there is no such dimension.

    Args:
        tiling: the tiling of each partial sum.
        unreduced: coordinates (one index per device) that together tell which partial sum a device holds.
        target: the target tiling.
        dimensions: the dimensions of the global array.
    """
    changed = [d for d in range(len(dimensions)) if not tiling.is_sharded_like(d, target, d)]
    if len(changed) != 1 or tiling.is_sharded(changed[0]) or target.unreduced is not None:
        return None
    (d,) = changed
    count = math.prod(coordinate.count for coordinate in unreduced)
    if target.tiles[d] != count or not dimensions[d] or dimensions[d] % count:
        return None
    return d if same_classes(unreduced, target.coordinates[d]) else None


def tiles_as_partial_sums(have: Tiling, want: Tiling) -> list[int]:
    """Return the dimensions to pad with zeros such that tiles become partial sums of a larger tile.

    Padding each tile with zeros to the full extent of these dimensions converts tiling ``have`` to the tiling
    ``want``, which has partial sums, without communication. Returns an empty list if that is not possible.
    """
    if have.unreduced is not None or want.unreduced is None:
        return []
    changed = [d for d in range(len(have.tiles)) if not have.is_sharded_like(d, want, d)]
    if not changed or any(want.is_sharded(d) for d in changed):
        return []
    return changed if same_classes([have.coordinates[d] for d in changed], want.unreduced) else []


def _is_zero(i: HloInstruction) -> bool:
    """Return true if ``i`` is a constant of zeros, possibly broadcast, reshaped, converted or copied."""
    if isinstance(i.operation, (Broadcast, Reshape, Convert, Copy)):
        return _is_zero(i.operands[0])
    if not isinstance(i.operation, Constant):
        return False
    return not np.any(np.asarray(i.operation.literal))
