"""Rules for reduce and reduce-window.

The order in which a reduction combines its elements is free; rules that change it say so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from hloom.analysis.instructions import attributes
from hloom.analysis.values import combiner, combines_by, is_all, number
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.passes.rewriting import Family
from hloom.passes.rules.dimensions import reshape_groups, true_dimensions
from hloom.passes.rules.reshaping import dimensions_of
from hloom.passes.writing import Writer
from hloom.shape.element_type import F32, F64
from hloom.shape.shape import Shape

RULES: Final = Family("reduction")


def again(
    i: HloInstruction, inputs: Sequence[HloInstruction], dimensions: Sequence[int], shape: Shape | None = None
) -> HloInstruction:
    """The reduction of other arrays along other dimensions, from the same initial values."""
    inits = i.operands[len(i.operands) // 2 :]
    made = Writer(i).op(
        "reduce", *inputs, *inits, dimensions=tuple(dimensions), computations=i.called_computations
    )
    if shape is not None:
        made.shape = shape
    return made


def arrays_of(i: HloInstruction) -> list[HloInstruction]:
    """The arrays that are reduced."""
    return i.operands[: len(i.operands) // 2]


@RULES.rewrites("reduce")
def reduce_of_size_one(i: HloInstruction) -> HloInstruction | None:
    """``reduce(x, v)`` along sizes of 1 → ``v + reshape(x)``; along others too, without those of size 1."""
    sizes = i.operands[0].shape.dimensions
    real = [d for d in dimensions_of(i) if sizes[d] != 1]
    if real:
        if len(real) == len(dimensions_of(i)):
            return None
        w = Writer(i)
        gone = [d for d in dimensions_of(i) if sizes[d] == 1]
        left = [d for d in range(len(sizes)) if d not in gone]
        inputs = [w.reshape(x, [sizes[d] for d in left]) for x in arrays_of(i)]
        return again(i, inputs, [left.index(d) for d in real])
    opcode = combines_by(i)
    if opcode is None:
        return None
    x, v = i.operands
    w = Writer(i)
    return w.op(opcode, w.broadcast(v, i.shape.dimensions), w.reshape(x, i.shape.dimensions))


@RULES.rewrites("reduce", reorders=True)
def reduce_of_transpose(i: HloInstruction) -> HloInstruction | None:
    """``reduce(transpose(x))`` → ``reduce(x)``, or its transpose where the kept dimensions change places."""
    if len(i.operands) != 2 or i.operands[0].opcode != "transpose":
        return None
    order = dimensions_of(i.operands[0])
    reduced = sorted(order[d] for d in dimensions_of(i))
    kept = [d for place, d in enumerate(order) if place not in dimensions_of(i)]
    made = again(i, i.operands[0].operands, reduced)
    if kept == sorted(kept):
        return made
    ranks = sorted(kept)
    return Writer(i).op("transpose", made, dimensions=tuple(ranks.index(d) for d in kept))


@RULES.rewrites("reduce")
def reduce_of_reshape(i: HloInstruction) -> HloInstruction | None:
    """``reduce(reshape(x))`` → ``reduce(x)`` where dimensions are split and joined among reduced ones only.

    And among kept ones only; then the result is reshaped.
    """
    if len(i.operands) != 2 or i.operands[0].opcode != "reshape":
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
        inside = [d in dimensions_of(i) for d in before]
        if all(inside):
            reduced.extend(after)
        elif any(inside):
            return None
    if not reduced:
        return None
    return Writer(i).reshape(again(i, [x], reduced), i.shape.dimensions)


@RULES.rewrites("reduce")
def reduce_of_broadcast(i: HloInstruction) -> HloInstruction | None:
    """``reduce(broadcast(x), v)`` of maximum, minimum, and, or → the reduction of x along what is left."""
    operation = combiner(i)
    if operation is None or not operation.idempotent or i.operands[0].opcode != "broadcast":
        return None
    return _without_copies(i)[0]


@RULES.rewrites("reduce", reorders=True)
def sum_of_broadcast(i: HloInstruction) -> HloInstruction | None:
    """``reduce(broadcast(x), 0)`` of add → ``reduce(x) * n``: where n sums of floats round, once."""
    kind = i.shape.element_type if i.shape.is_array else None
    if combines_by(i) != "add" or i.operands[0].opcode != "broadcast" or kind is None:
        return None
    if not kind.is_integer and (kind not in (F32, F64) or not is_all(i.operands[1], 0.0)):
        return None
    inner, copies = _without_copies(i)
    if inner is None or copies == 1 or copies > 1 << 20:
        return None
    w = Writer(i)
    if kind.is_integer and number(i.operands[1]) != 0:
        return None
    return w.op("multiply", inner, w.full(int(np.int64(copies)), inner.shape))


def _without_copies(i: HloInstruction) -> tuple[HloInstruction | None, int]:
    """The reduction of what was repeated along reduced dimensions, and how often it was; None for nothing."""
    spread, v = i.operands
    (x,) = spread.operands
    into, reduced = dimensions_of(spread), dimensions_of(i)
    extra = [d for d in reduced if d not in into]
    copies = math.prod(spread.shape.dimensions[d] for d in extra)
    if not extra or not copies:
        return None, 1
    w = Writer(i)
    left = [d for d in range(spread.shape.rank) if d not in extra]
    y = w.broadcast(x, [spread.shape.dimensions[d] for d in left], [left.index(d) for d in into])
    rest = [left.index(d) for d in reduced if d in into]
    if rest:
        return again(i, [y], rest), copies
    opcode = combines_by(i)
    assert opcode is not None
    return w.op(opcode, w.broadcast(v, i.shape.dimensions), y), copies


@RULES.rewrites("reduce", reorders=True)
def reduce_twice(i: HloInstruction) -> HloInstruction | None:
    """``reduce(reduce(x, v), v)`` → ``reduce(x, v)`` along the dimensions of both, where v changes nothing.

    Of floats sums and products only in f32 and f64, where sums are formed in the result's own type.
    """
    if len(i.operands) != 2 or i.operands[0].opcode != "reduce" or len(i.operands[0].users) > 1:
        return None
    inner, _ = i.operands
    operation, kind = combiner(i), i.shape.element_type
    if operation is None or operation != combiner(inner) or not _is_neutral(operation, inner.operands[1]):
        return None
    if kind.is_floating and not operation.idempotent and kind not in (F32, F64):
        return None
    left = [d for d in range(inner.operands[0].shape.rank) if d not in dimensions_of(inner)]
    both = sorted([*dimensions_of(inner), *(left[d] for d in dimensions_of(i))])
    return again(i, [inner.operands[0]], both)


def _is_neutral(operation: Operation, v: HloInstruction) -> bool:
    """Return whether combining with a constant changes nothing, up to the sign of a zero sum."""
    neutral = operation.neutral_element(v.shape.element_type)
    return neutral is not None and number(v) == neutral


# -- windows


@RULES.rewrites("reduce-window")
def window_of_one(i: HloInstruction) -> HloInstruction | None:
    """``reduce-window(x, v)`` of windows of one element, all of them → ``v + x``."""
    opcode = combines_by(i)
    operation = attributes(i)
    if opcode is None or i.shape.dimensions != i.operands[0].shape.dimensions:
        return None
    plain = (1, 1, 0, 0, 1)
    if any(
        (d.size, d.stride, d.padding_low, d.padding_high, d.base_dilation) != plain for d in operation.window
    ):
        return None
    w = Writer(i)
    return w.op(opcode, w.broadcast(i.operands[1], i.shape.dimensions), i.operands[0])


@RULES.rewrites("reduce-window", reorders=True)
def window_of_everything(i: HloInstruction) -> HloInstruction | None:
    """``reduce-window(x, v)`` → ``reshape(reduce(x, v))`` of windows that are whole dimensions or 1."""
    operation = attributes(i)
    if len(i.operands) != 2:
        return None
    (x,) = arrays_of(i)
    reduced: list[int] = []
    for number_, (d, size) in enumerate(zip(operation.window, x.shape.dimensions, strict=True)):
        if d.padding_low or d.padding_high or d.base_dilation != 1 or d.window_dilation != 1:
            return None
        if d.size == size:
            reduced.append(number_)
        elif d.size != 1 or d.stride != 1:
            return None
    if not any(x.shape.dimensions[d] != 1 for d in reduced):
        return None
    return Writer(i).reshape(again(i, [x], reduced), i.shape.dimensions)
