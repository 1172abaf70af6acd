"""Summands: arrays that are the sum of what devices hold, which later operations may add up.

A program states them by ``unreduced`` axes. An operation that is linear in an operand gives summands of its
result from those of the operand, so that a loop adds gradients on each device and reduces them once.
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
from hloom.sharding.planning.decisions import Cut
from hloom.sharding.tiling.coordinates import Column, same_classes
from hloom.sharding.tiling.tiling import Tiling

_MOVES = (Broadcast, Reshape, Reverse, Slice, Transpose, Copy, DynamicSlice, Gather, Negate)
"""Operations that are linear in their first operand."""
_SUMS = (Add, Subtract, Concatenate)
"""Operations that are linear in all operands together."""


def is_linear(i: HloInstruction, held: Sequence[bool]) -> bool:
    """Return true if an operation gives summands of its result from summands of some operands.

    Args:
        i: the instruction.
        held: for each operand whether devices hold summands of it; they hold the others whole.
    """
    numbers = {number for number, is_held in enumerate(held) if is_held}
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
            return len(numbers) == len(held)
        case _:
            return operation.family is Family.CONTRACTION and len(held) == 2 and len(numbers) == 1


def are_left(made: Tiling, target: Tiling | None, accepted: Sequence[Cut]) -> bool:
    """Return true if partial sums of an operation are the summands that its result is to have.

    Args:
        made: the tiles of the result, without regard to sums.
        target: the wanted tiles of the result.
        accepted: the factors that are cut.
    """
    reduced = [cut for factor, cut in accepted if factor.result is None]
    if not reduced or target is None or target.summands is None or made.summands is not None:
        return False
    adds = all(isinstance(factor.combiner, Add) for factor, _ in accepted if factor.result is None)
    same = same_classes([cut.column(0) for cut in reduced], target.summands)
    return adds and same and made == replace(target, summands=None)


def scattered_dimension(
    made: Tiling, summed: Sequence[Column], target: Tiling, dimensions: Sequence[int]
) -> int | None:
    """Return the dimension along which a reduce-scatter gives the target; None if there is none.

    The target must cut one more dimension, as the summands are spread.

    Args:
        made: the tiles of the summands.
        summed: the columns over which they are spread.
        target: the wanted tiles.
        dimensions: the extents of the whole array.
    """
    more = [d for d in range(len(dimensions)) if not made.same_cut(d, target, d)]
    if len(more) != 1 or made.cuts(more[0]) or target.summands is not None:
        return None
    (d,) = more
    count = math.prod(column.count for column in summed)
    if target.tiles[d] != count or not dimensions[d] or dimensions[d] % count:
        return None
    return d if same_classes(summed, target.column(d)) else None


def parts_as_summands(have: Tiling, want: Tiling) -> list[int]:
    """Return the dimensions along which tiles in zeros are the wanted summands; none if they are not."""
    if have.summands is not None or want.summands is None:
        return []
    more = [d for d in range(len(have.tiles)) if not have.same_cut(d, want, d)]
    if not more or any(want.cuts(d) for d in more):
        return []
    return more if same_classes([have.column(d) for d in more], want.summands) else []


def _is_zero(i: HloInstruction) -> bool:
    """Return true for a constant all of whose elements are zero."""
    if isinstance(i.operation, (Broadcast, Reshape, Convert, Copy)):
        return _is_zero(i.operands[0])
    if not isinstance(i.operation, Constant):
        return False
    return not np.any(np.asarray(i.operation.literal))
