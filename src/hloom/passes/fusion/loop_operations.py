"""Operations in fused loops: which run as loops over elements, and what recomputing an element costs."""

from __future__ import annotations

from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.analysis.purity import is_free
from hloom.analysis.values import is_elementwise_bitcast
from hloom.ir.instruction import HloInstruction
from hloom.ir.traits import ElementCost, Family
from hloom.operations.conversion import BitcastConvert
from hloom.operations.gather_scatter import Gather
from hloom.operations.movement import Broadcast, Concatenate, slices_of_one
from hloom.operations.structure import Constant, Iota

_MOST_PARTS: Final = 3
_FEW_READ: Final = 8
"""A broadcast reads few elements if it has this many for each element of its operand."""


def extends(p: HloInstruction) -> bool:
    """Return whether an instruction rotates an array along a dimension, or extends it by few elements."""
    return slices_of_one(p) is not None or _has_borders(p)


def _has_borders(p: HloInstruction) -> bool:
    """Return whether an instruction joins an array and few elements before or after it."""
    if not isinstance(p.operation, Concatenate) or not 1 < len(p.operands) <= _MOST_PARTS:
        return False
    if not p.shape.is_static:
        return False
    largest = max(o.shape.element_count for o in p.operands)
    return (p.shape.element_count - largest) * _FEW_READ <= p.shape.element_count


def _rearranges(p: HloInstruction) -> bool:
    """Return whether an instruction moves elements by index arithmetic alone."""
    operation = p.operation
    return operation.family is Family.MOVEMENT and operation.element_cost <= ElementCost.INDEXED


def is_costless(p: HloInstruction) -> bool:
    """Return whether an element costs nothing to recompute: an affine index, or a constant."""
    return isinstance(p.operation, Constant) or (p.operation.family is Family.MOVEMENT and is_free(p))


def reads_few(p: HloInstruction) -> bool:
    """Return whether an instruction is a broadcast with many elements for each element of its operand."""
    if not isinstance(p.operation, Broadcast) or not p.shape.is_static:
        return False
    source = p.operands[0].shape
    return source.rank > 0 and source.element_count * _FEW_READ <= p.shape.element_count


def is_table(p: HloInstruction) -> bool:
    """Return whether a gather looks up elements of an instruction, at any indices."""
    return any(isinstance(u.operation, Gather) and u.operands[0] is p for u in p.users)


def is_expensive(p: HloInstruction) -> bool:
    """Return whether an element takes as long to recompute as several loads."""
    return p.operation.element_cost >= ElementCost.MODERATE


def in_place(p: HloInstruction) -> bool:
    """Return whether an operation reads its operands at the index it writes, or is free to compute there."""
    return p.operation.elementwise or isinstance(p.operation, Broadcast | Constant | Iota | BitcastConvert)


def gives_starts(p: HloInstruction) -> bool:
    """Return whether a concatenation is the components of gathers' indices, which read one operand each."""
    (dimension,) = operation_of(p, Concatenate).dimensions
    return bool(p.users) and all(
        isinstance(u.operation, Gather)
        and u.operands[0] is not p
        and u.operation.index_vector_dim == dimension
        for u in p.users
    )


def loops(p: HloInstruction) -> bool:
    """Return whether an instruction runs as a loop over its elements."""
    operation = p.operation
    if isinstance(operation, BitcastConvert):
        return is_elementwise_bitcast(p)
    return p.shape.is_array and (operation.elementwise or (_rearranges(p) and not operation.updates_operand))
