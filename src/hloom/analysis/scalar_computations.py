"""Scalar computations that code generation can inline at every application."""

from __future__ import annotations

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.operations.control_flow import Call, Fusion
from hloom.operations.conversion import Bitcast, BitcastConvert
from hloom.operations.structure import Constant, GetTupleElement, Parameter, Tuple
from hloom.shape.element_type import ElementType


def is_expression(computation: HloComputation) -> bool:
    """Return true if a computation has scalar operations only: no arrays, control flow or host calls."""
    return all(_is_scalar_step(i) for i in computation.instructions)


def _is_scalar_step(i: HloInstruction) -> bool:
    shapes = i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)
    if not all(s.is_array and s.element_count == 1 and s.is_static for s in shapes):
        return False
    if not all(map(is_expression, i.called_computations)):
        return False
    match i.operation:
        case Call() | Fusion() | Parameter() | Constant() | Tuple() | GetTupleElement() | BitcastConvert():
            return True
        case Bitcast():
            return i.operands[0].shape.element_type is i.shape.element_type
        case operation:
            return operation.elementwise or operation.scalar_identity


def applies_expressions(i: HloInstruction) -> bool:
    """Return true if the computations applied to elements are expressions of the elements' types.

    True for instructions that apply none. HLO allows computations of another precision than the elements, or
    whose results have another precision than their accumulators; both require conversions.
    """
    applied = i.operation.applied_types([o.shape.element_type for o in i.operands])
    leaves = i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)
    results = tuple(s.element_type for s in leaves)
    return all(
        is_expression(computation)
        and [p.shape.element_type for p in computation.parameters] == list(types.parameters)
        and (types.is_order or _leaf_types(computation.root) == results == types.parameters[: len(results)])
        for computation, types in zip(i.called_computations if applied else (), applied, strict=True)
    )


def _leaf_types(i: HloInstruction) -> tuple[ElementType, ...]:
    return tuple(s.element_type for s in (i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)))
