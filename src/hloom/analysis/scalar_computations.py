"""Computations of scalars: which are expressions, so that code may compute them wherever they are called."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.operations.control_flow import Call, Fusion
from hloom.operations.conversion import Bitcast, BitcastConvert
from hloom.operations.structure import Constant, GetTupleElement, Parameter, Tuple
from hloom.shape.element_type import ElementType


def is_expression(computation: HloComputation) -> bool:
    """Whether a computation only combines scalars, without loops, branches, calls of the host or arrays."""
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


def commutes(computation: HloComputation) -> bool:
    """Whether a combiner (accumulators..., values...) plainly does not care which of both are which.

    Choices of one of two numbers by their order count, although NaN may make a difference to them.
    """
    count = len(computation.parameters) // 2
    known: dict[Hashable, int] = {}
    own, swapped = [*range(2 * count)], [*range(count, 2 * count), *range(count)]
    return is_expression(computation) and _number(computation, own, known) == _number(
        computation, swapped, known
    )


def _number(computation: HloComputation, roles: Sequence[int], known: dict[Hashable, int]) -> int:
    """The number of the form of an expression, equal for equal forms.

    Args:
        computation: the expression.
        roles: what its parameters are taken for.
        known: numbers of forms; new ones are added.
    """
    numbers: dict[HloInstruction, int] = {}
    for i in computation.post_order():
        numbers[i] = known.setdefault(_form(i, roles, numbers), len(known))
    return numbers[computation.root]


def _form(i: HloInstruction, roles: Sequence[int], numbers: dict[HloInstruction, int]) -> Hashable:
    """An operation on numbered operands, whose order does not show where it makes no difference."""
    operation: Any = i.operation
    if i.opcode == "parameter":
        number: int = operation.parameter_number
        return "parameter", roles[number]
    if i.opcode == "constant":
        return "constant", str(i.shape), operation.literal.to_bytes()
    operands: Hashable = tuple(numbers[o] for o in i.operands)
    if i.operation.commutative or (i.opcode == "compare" and operation.direction in ("EQ", "NE")):
        operands = tuple(sorted(numbers[o] for o in i.operands))
    elif i.opcode == "abs" and i.operands[0].opcode == "subtract":
        operands = frozenset(numbers[o] for o in i.operands[0].operands)
    elif i.opcode == "select" and _chooses_by_order(i):
        operands = i.operands[0].operation, frozenset(numbers[o] for o in i.operands[1:])
    return i.opcode, str(i.shape), operation, tuple(i.called_computations), operands


def _chooses_by_order(select: HloInstruction) -> bool:
    """``select(compare(a, b), a, b)`` by an order."""
    order, *chosen = select.operands
    operation: Any = order.operation
    return order.opcode == "compare" and operation.direction not in ("EQ", "NE") and chosen == order.operands


def applies_expressions(i: HloInstruction) -> bool:
    """Whether what an instruction applies to its elements are expressions of the elements' own types.

    True for instructions that apply nothing. The page allows a computation to be of another precision than
    the elements; then elements would have to be converted before and after.
    """
    given = [o.shape.element_type for o in i.operands]
    applied = i.operation.applied_types(given)
    leaves = i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)
    results = tuple(s.element_type for s in leaves)
    return all(
        is_expression(computation)
        and [p.shape.element_type for p in computation.parameters] == list(types.parameters)
        and (types.is_order or _leaf_types(computation.root) == results)
        for computation, types in zip(i.called_computations if applied else (), applied, strict=True)
    )


def _leaf_types(i: HloInstruction) -> tuple[ElementType, ...]:
    return tuple(s.element_type for s in (i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)))
