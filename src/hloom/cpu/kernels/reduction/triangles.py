"""Reductions along rows of triangular matrices, such as causal masks.

``select(i >= j, x, 0)`` contributes only neutral elements to a sum over j where j is larger than i. The loop
over a row skips the vectors that consist of neutral elements alone, which does not change the bits of the
results.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hloom.analysis.values import is_all, number
from hloom.codegen.combining import neutral_element
from hloom.ir.affine import Index, Indices, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import Add, Subtract
from hloom.operations.comparison import Compare, Select
from hloom.operations.movement import Broadcast
from hloom.operations.structure import Iota

_DIFFERENCES: Final = {"GE": (1, 0), "GT": (1, -1), "LE": (-1, 0), "LT": (-1, -1)}
"""Sign and offset by direction: ``a`` and ``b`` compare so if ``sign * (a - b) + offset >= 0``."""


class RowLimits(NamedTuple):
    """The half-open interval [low, high) of a row; all elements outside it are neutral for the combiner.

    Attributes:
        low: the first index; None for the first one of the row.
        high: the end; None for the end of the row.
    """

    low: Index | None
    high: Index | None


def triangle_limits(reduction: HloInstruction, source: Indices, lane: Variable) -> RowLimits | None:
    """Return the part of each row that a reduction must read if its operand is a masked triangle, else None.

    Such an operand selects between an array and the combiner's neutral element by a comparison of indices, so
    that elements outside the part are neutral.

    Args:
        reduction: the reduction.
        source: the index of an element of its operand.
        lane: the variable in ``source`` that counts along the row.
    """
    operand, initial = reduction.operands[0], reduction.operands[-1]
    if len(reduction.operands) != 2 or not isinstance(operand.operation, Select):
        return None
    mask, *values = operand.operands
    neutral = neutral_element(reduction.called_computations[0], operand.shape.element_type)
    # adding the neutral 0 turns a sum of -0 into 0, which shows only if the initial value is -0
    if neutral is None or number(initial) is None or is_all(initial, -0.0):
        return None
    is_neutral = [number(value) == neutral for value in values]
    difference = _difference(mask, source)
    if difference is None or sum(is_neutral) != 1:
        return None
    kept = difference if is_neutral[1] else difference * -1 - 1
    coefficient = dict(kept.terms).get(lane, 0)
    if abs(coefficient) != 1 or any(v.trips != v.extent for v, _ in kept.terms):
        return None
    rest = kept - Index.of(lane) * coefficient
    return RowLimits(rest * -1, None) if coefficient == 1 else RowLimits(None, rest + 1)


def _difference(mask: HloInstruction, source: Indices) -> Index | None:
    """Return an affine function of loop variables that is >= 0 exactly where ``mask`` is true.

    ``mask`` must be a comparison of affine integers, else return None. ``source`` is the index, in loop
    variables, of an element of ``mask``.
    """
    match mask.operation:
        case Broadcast(dimensions=dimensions):
            return _difference(mask.operands[0], tuple(source[d] for d in dimensions))
        case Compare(direction=direction) if direction in _DIFFERENCES:
            a, b = (_affine(o, source) for o in mask.operands)
            sign, offset = _DIFFERENCES[direction]
            return None if a is None or b is None else (a - b) * sign + offset
        case _:
            return None


def _affine(i: HloInstruction, indices: Indices) -> Index | None:
    """Return the value of an integer element as an affine function of loop variables.

    ``indices`` is the element's index in ``i``. Return None if the value is not affine or may overflow.
    """
    if not i.shape.element_type.is_integer:
        return None
    constant = number(i)
    if constant is not None:
        return Index(int(constant))
    match i.operation:
        case Iota(iota_dimension=along):
            value = indices[along]
        case Broadcast(dimensions=dimensions):
            return _affine(i.operands[0], tuple(indices[d] for d in dimensions))
        case Add() | Subtract():
            a, b = (_affine(o, indices) for o in i.operands)
            if a is None or b is None:
                return None
            value = a + b if isinstance(i.operation, Add) else a - b
        case _:
            return None
    low, high = i.shape.element_type.limits
    return value if low <= value.minimum() and value.maximum() <= high else None
