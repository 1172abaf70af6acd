"""Rules for reduce and reduce-window.

Rules that change the order of combination declare it, and check that the combiner allows it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from hloom.analysis.combiners import grouping
from hloom.analysis.exchange_symmetry import exchange_symmetry
from hloom.analysis.instructions import operation_of
from hloom.analysis.values import combiner, is_all, number
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.operations.arithmetic import Add, And, Multiply, Or, Subtract, Xor
from hloom.operations.combiners import Grouping
from hloom.operations.comparison import Compare, Select
from hloom.operations.conversion import Convert
from hloom.operations.movement import Broadcast, Concatenate, Transpose
from hloom.operations.reduction import Reduce
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Iota
from hloom.operations.unary import Negate
from hloom.operations.window_reduction import ReduceWindow
from hloom.passes.rewriting import RuleFamily
from hloom.passes.rules.dimensions import reshape_groups, true_dimensions
from hloom.passes.writing import Writer
from hloom.shape.element_type import F32, F64
from hloom.shape.shape import Shape

RULES: Final = RuleFamily("reduction")
MOST_PARTS: Final = 64
"""Maximum number of arrays of a stack that are combined one by one."""


def again(
    i: HloInstruction, inputs: Sequence[HloInstruction], dimensions: Sequence[int], shape: Shape | None = None
) -> HloInstruction:
    """Add the reduction of other arrays along other dimensions, with the same initial values."""
    inits = i.operands[len(i.operands) // 2 :]
    reduction = Writer(i).op(
        Reduce(dimensions=tuple(dimensions)), *inputs, *inits, computations=i.called_computations
    )
    if shape is not None:
        reduction.shape = shape
    return reduction


def arrays_of(i: HloInstruction) -> list[HloInstruction]:
    """Return the reduced arrays."""
    return i.operands[: len(i.operands) // 2]


@RULES.rewrites(Reduce)
def reduce_of_size_one(i: HloInstruction, reduce: Reduce) -> HloInstruction | None:
    """``reduce(x, v)`` along sizes of 1 → ``v + reshape(x)``; mixed with other sizes → without those of 1."""
    sizes = i.operands[0].shape.dimensions
    real = [d for d in reduce.dimensions if sizes[d] != 1]
    if real:
        if len(real) == len(reduce.dimensions):
            return None
        w = Writer(i)
        gone = [d for d in reduce.dimensions if sizes[d] == 1]
        remaining = [d for d in range(len(sizes)) if d not in gone]
        inputs = [w.reshape(x, [sizes[d] for d in remaining]) for x in arrays_of(i)]
        return again(i, inputs, [remaining.index(d) for d in real])
    combine = combiner(i)
    if combine is None:
        return None
    x, v = i.operands
    w = Writer(i)
    return w.op(combine, w.broadcast(v, i.shape.dimensions), w.reshape(x, i.shape.dimensions))


@RULES.rewrites(Convert, of=Reduce)
def convert_of_reduce(i: HloInstruction, convert: Convert, reduce: Reduce) -> HloInstruction | None:
    """``convert(reduce(x, v))`` → ``reduce(convert(x), convert(v))`` of integers with fewer bits.

    The low bits of the result depend on the low bits of the elements only.
    """
    (wide,) = i.operands
    before, after, combine = wide.shape.element_type, i.shape.element_type, combiner(wide)
    narrows = before.is_integer and after.is_integer and after.bits < before.bits
    if not narrows or len(wide.users) != 1 or not isinstance(combine, Add | Multiply | And | Or | Xor):
        return None
    w = Writer(i)
    x, v = wide.operands
    return w.op(reduce, w.convert(x, after), w.convert(v, after), computations=[w.combiner(combine, after)])


@RULES.rewrites(Reduce, of=Transpose, reorders=True)
def reduce_of_transpose(i: HloInstruction, reduce: Reduce, transpose: Transpose) -> HloInstruction | None:
    """``reduce(transpose(x))`` → ``reduce(x)``, or its transpose where kept dimensions are permuted.

    Reduced dimensions are permuted only if the combiner accepts values in any order.
    """
    if len(i.operands) != 2:
        return None
    order = transpose.dimensions
    reduced = [order[d] for d in sorted(reduce.dimensions)]
    moved = [d for d in reduced if i.operands[0].operands[0].shape.dimensions[d] != 1]
    if moved != sorted(moved) and grouping(i.called_computations[0]) is not Grouping.FREE:
        return None
    reduced.sort()
    free = [d for position, d in enumerate(order) if position not in reduce.dimensions]
    reduction = again(i, i.operands[0].operands, reduced)
    if free == sorted(free):
        return reduction
    ranks = sorted(free)
    return Writer(i).op(Transpose(dimensions=tuple(ranks.index(d) for d in free)), reduction)


@RULES.rewrites(Reduce, of=Reshape)
def reduce_of_reshape(i: HloInstruction, reduce: Reduce, reshape: Reshape) -> HloInstruction | None:
    """``reduce(reshape(x))`` → ``reduce(x)`` where only reduced dimensions are split and merged.

    Kept dimensions may be split and merged too; the result is then reshaped.
    """
    if len(i.operands) != 2:
        return None
    (inner,) = arrays_of(i)
    (x,) = inner.operands
    groups = reshape_groups(inner.shape.dimensions, x.shape.dimensions)
    if groups is None or len(true_dimensions(inner.shape.dimensions)) < len(
        true_dimensions(x.shape.dimensions)
    ):
        return None
    reduced: list[int] = []
    for before, after in groups:
        inside = [d in reduce.dimensions for d in before]
        if all(inside):
            reduced.extend(after)
        elif any(inside):
            return None
    if not reduced:
        return None
    return Writer(i).reshape(again(i, [x], reduced), i.shape.dimensions)


@RULES.rewrites(Reduce, of=Broadcast)
def reduce_of_broadcast(i: HloInstruction, reduce: Reduce, broadcast: Broadcast) -> HloInstruction | None:
    """``reduce(broadcast(x), v)`` of an idempotent combiner → ``reduce(x, v)`` without the repetition."""
    operation = combiner(i)
    if operation is None or not operation.idempotent:
        return None
    return _without_copies(i, reduce, broadcast)[0]


@RULES.rewrites(Reduce, of=Broadcast, reorders=True)
def sum_of_broadcast(i: HloInstruction, reduce: Reduce, broadcast: Broadcast) -> HloInstruction | None:
    """``reduce(broadcast(x), 0)`` of add → ``reduce(x) * n``: one rounding instead of n for floats."""
    kind = i.shape.element_type if i.shape.is_array else None
    if not isinstance(combiner(i), Add) or kind is None:
        return None
    if not kind.is_integer and (kind not in (F32, F64) or not is_all(i.operands[1], 0.0)):
        return None
    inner, copies = _without_copies(i, reduce, broadcast)
    if inner is None or copies == 1 or copies > 1 << 20:
        return None
    w = Writer(i)
    if kind.is_integer and number(i.operands[1]) != 0:
        return None
    return w.op(Multiply(), inner, w.full(int(np.int64(copies)), inner.shape))


def _without_copies(
    i: HloInstruction, reduce: Reduce, broadcast: Broadcast
) -> tuple[HloInstruction | None, int]:
    """Return the reduction without dimensions repeated by the broadcast, and their number of copies."""
    spread, v = i.operands
    (x,) = spread.operands
    into, reduced = broadcast.dimensions, reduce.dimensions
    extra = [d for d in reduced if d not in into]
    copies = math.prod(spread.shape.dimensions[d] for d in extra)
    if not extra or not copies:
        return None, 1
    w = Writer(i)
    remaining = [d for d in range(spread.shape.rank) if d not in extra]
    y = w.broadcast(x, [spread.shape.dimensions[d] for d in remaining], [remaining.index(d) for d in into])
    reduced_left = [remaining.index(d) for d in reduced if d in into]
    if reduced_left:
        return again(i, [y], reduced_left), copies
    combine = combiner(i)
    assert combine is not None
    return w.op(combine, w.broadcast(v, i.shape.dimensions), y), copies


@RULES.rewrites(Reduce, of=(Select, Negate))
def sum_of_one_element_each(
    i: HloInstruction, reduce: Reduce, terms: Select | Negate
) -> HloInstruction | None:
    """``reduce(select(iota == broadcast(k), broadcast(u), 0), 0)`` of add → ``select(0 <= k < n, u + 0, 0)``.

    Along the dimension of the iota, of n elements; of negated terms → ``-u + 0``. Bitwise: the others are 0.
    """
    chosen = i.operands[0].operands[0] if isinstance(terms, Negate) else i.operands[0]
    if not isinstance(chosen.operation, Select):
        return None
    is_chosen, u, zero = chosen.operands
    if len(i.operands) != 2 or len(reduce.dimensions) != 1 or not isinstance(combiner(i), Add):
        return None
    if not is_all(i.operands[1], 0.0) or number(zero) != 0 or not isinstance(u.operation, Broadcast):
        return None
    if not isinstance(is_chosen.operation, Compare) or is_chosen.operation.direction != "EQ":
        return None
    k, numbers = sorted(is_chosen.operands, key=lambda o: isinstance(o.operation, Iota))
    kind, (d,) = k.shape.element_type, reduce.dimensions
    last = numbers.shape.dimensions[d] - 1
    if not isinstance(k.operation, Broadcast) or d in (*k.operation.dimensions, *u.operation.dimensions):
        return None
    if numbers.operation != Iota(iota_dimension=d) or not kind.is_integer or not 0 <= last <= kind.limits[1]:
        return None
    w = Writer(i)

    def without_copies(spread: HloInstruction) -> HloInstruction:
        into = [n - (n > d) for n in operation_of(spread, Broadcast).dimensions]
        return w.broadcast(spread.operands[0], i.shape.dimensions, into)

    k, u, zero = without_copies(k), without_copies(u), w.full(0, i.shape)
    u = w.op(Negate(), u) if isinstance(terms, Negate) else u
    is_index = w.compare(k, "LE", w.full(last, k.shape))
    if kind.is_signed:
        is_index = w.op(And(), w.compare(k, "GE", w.full(0, k.shape)), is_index)
    return w.op(Select(), is_index, w.op(Add(), u, zero), zero)


@RULES.rewrites(Reduce, of=Reduce, reorders=True)
def reduce_twice(i: HloInstruction, reduce: Reduce, inner_reduce: Reduce) -> HloInstruction | None:
    """``reduce(reduce(x, v), v)`` → ``reduce(x, v)`` along the dimensions of both, for a neutral v.

    Float sums and products only in f32 and f64, where sums are formed in the result's own type.
    """
    if len(i.operands) != 2 or len(i.operands[0].users) > 1:
        return None
    inner, _ = i.operands
    operation, kind = combiner(i), i.shape.element_type
    if operation is None or operation != combiner(inner) or not _is_neutral(operation, inner.operands[1]):
        return None
    if kind.is_floating and not operation.idempotent and kind not in (F32, F64):
        return None
    remaining = [d for d in range(inner.operands[0].shape.rank) if d not in inner_reduce.dimensions]
    both = sorted([*inner_reduce.dimensions, *(remaining[d] for d in reduce.dimensions)])
    return again(i, [inner.operands[0]], both)


@RULES.rewrites(Reduce, of=Concatenate, reorders=True)
def reduce_of_stack(i: HloInstruction, reduce: Reduce, concatenate: Concatenate) -> HloInstruction | None:
    """``reduce(concatenate(x, y), v)`` along sizes of 1 that are joined → ``v + x + y``.

    Float sums and products only in f32 and f64, where sums are formed in the result's own type.
    """
    joined, combine = i.operands[0], combiner(i)
    if combine is None or len(joined.users) > 1 or reduce.dimensions != concatenate.dimensions:
        return None
    kind, (d,) = i.shape.element_type, reduce.dimensions
    if kind.is_floating and not combine.idempotent and kind not in (F32, F64):
        return None
    parts = joined.operands
    if len(parts) > MOST_PARTS or any(part.shape.dimensions[d] != 1 for part in parts):
        return None
    w = Writer(i)
    total = w.broadcast(i.operands[1], i.shape.dimensions)
    for part in parts:
        total = w.op(combine, total, w.reshape(part, i.shape.dimensions))
    return total


def _is_neutral(operation: Operation, v: HloInstruction) -> bool:
    """Return whether a constant is the combiner's neutral element, up to the sign of a zero sum."""
    neutral = operation.neutral_element(v.shape.element_type)
    return neutral is not None and number(v) == neutral


# -- windows


@RULES.rewrites(ReduceWindow)
def window_of_one(i: HloInstruction, reduce_window: ReduceWindow) -> HloInstruction | None:
    """``reduce-window(x, v)`` of windows of one element at every position → ``v + x``."""
    combine = combiner(i)
    if combine is None or i.shape.dimensions != i.operands[0].shape.dimensions:
        return None
    plain = (1, 1, 0, 0, 1)
    if any(
        (d.size, d.stride, d.padding_low, d.padding_high, d.base_dilation) != plain
        for d in reduce_window.window
    ):
        return None
    w = Writer(i)
    return w.op(combine, w.broadcast(i.operands[1], i.shape.dimensions), i.operands[0])


@RULES.rewrites(ReduceWindow, reorders=True)
def window_of_everything(i: HloInstruction, reduce_window: ReduceWindow) -> HloInstruction | None:
    """``reduce-window(x, v)`` → ``reshape(reduce(x, v))`` for windows of a whole dimension or size 1."""
    if len(i.operands) != 2:
        return None
    (x,) = arrays_of(i)
    reduced: list[int] = []
    for number_, (d, size) in enumerate(zip(reduce_window.window, x.shape.dimensions, strict=True)):
        if d.padding_low or d.padding_high or d.base_dilation != 1 or d.window_dilation != 1:
            return None
        backwards = d.window_reversal and d.size > 1
        if backwards and grouping(i.called_computations[0]) is not Grouping.FREE:
            return None
        if d.size == size:
            reduced.append(number_)
        elif d.size != 1 or d.stride != 1:
            return None
    if not any(x.shape.dimensions[d] != 1 for d in reduced):
        return None
    return Writer(i).reshape(again(i, [x], reduced), i.shape.dimensions)


@RULES.rewrites(Reduce, reorders=True)
def reduce_of_antisymmetric(i: HloInstruction, reduce: Reduce) -> HloInstruction | None:
    """``reduce(±x, 0)`` along d → ``±reduce(x, 0)`` along d + 1, if exchanging these only changes signs of x.

    The sum of forces on the second points of all pairs is minus that on the first. In another order of terms.
    """
    x, initial = i.operands[0], i.operands[-1]
    if len(reduce.dimensions) != 1:
        return None
    sizes, (d,) = x.shape.dimensions, reduce.dimensions
    if d + 1 >= len(sizes) or not sizes[d] == sizes[d + 1] > 1:
        return None
    if not isinstance(combiner(i), Add) or not is_all(initial, 0.0):
        return None
    sign = 1
    while isinstance(x.operation, Negate):
        x, sign = x.operands[0], -sign
    symmetry = exchange_symmetry(x, d, d + 1)
    if symmetry is None:
        return None
    total = again(i, [x], [d + 1], i.shape)
    # 0 - sum is +0 where the sum of the negative terms is
    return total if sign * symmetry.sign > 0 else Writer(i).op(Subtract(), Writer(i).full(0, i.shape), total)
