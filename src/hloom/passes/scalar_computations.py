"""Computations of scalars: which are expressions, so that code may compute them wherever they are called."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.shape.element_type import ElementType

PASSING: Final = frozenset(
    ("parameter", "constant", "tuple", "get-tuple-element", "call", "fusion", "reshape", "broadcast", "copy",
     "bitcast", "transpose")
)  # fmt: skip
"""Operations that hand on a scalar as it is, or hold others that compute one."""


def is_expression(computation: HloComputation) -> bool:
    """Whether a computation only combines scalars, without loops, branches, calls of the host or arrays."""
    return all(_is_scalar_step(i) for i in computation.instructions)


def _is_scalar_step(i: HloInstruction) -> bool:
    shapes = i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)
    if not all(s.is_array and s.element_count == 1 and s.is_static for s in shapes):
        return False
    if i.opcode == "bitcast" and i.operands[0].shape.element_type is not i.shape.element_type:
        return False
    if i.opcode not in PASSING and not i.operation.elementwise and i.opcode != "bitcast-convert":
        return False
    return all(map(is_expression, i.called_computations))


def applies_expressions(i: HloInstruction) -> bool:
    """Whether what an instruction applies to its elements are expressions of the elements' own types.

    True for instructions that apply nothing. The page allows a computation to be of another precision than
    the elements; then elements would have to be converted before and after.
    """
    signature = SIGNATURES.get(i.opcode)
    if signature is None:
        return True
    leaves = i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)
    results = tuple(s.element_type for s in leaves)
    given = [o.shape.element_type for o in i.operands]
    return all(
        is_expression(computation)
        and [p.shape.element_type for p in computation.parameters] == list(wanted)
        and (is_order or _leaf_types(computation.root) == results)
        for computation, (wanted, is_order) in zip(i.called_computations, signature(given), strict=True)
    )


def _leaf_types(i: HloInstruction) -> tuple[ElementType, ...]:
    return tuple(s.element_type for s in (i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)))


Types: TypeAlias = Sequence[ElementType]


def _reducer(types: Types) -> list[tuple[Types, bool]]:
    half = len(types) // 2
    return [((*types[half:], *types[:half]), False)]


def _updater(types: Types) -> list[tuple[Types, bool]]:
    count = len(types) // 2
    return [((*types[:count], *types[count + 1 :]), False)]


SIGNATURES: Final[dict[str, Callable[[Types], list[tuple[Types, bool]]]]] = {
    "reduce": _reducer,
    "reduce-window": _reducer,
    "scatter": _updater,
    "map": lambda types: [(types, False)],
    "sort": lambda types: [([t for t in types for _ in range(2)], True)],
    "select-and-scatter": lambda types: [([types[0]] * 2, True), ([types[0]] * 2, False)],
}
"""The parameter types that operations want of what they apply to elements, from those of their operands; and
whether it is an order, which gives pred: by opcode."""
