"""Lowering of elementwise operations on register values, both scalars and vectors.

One small function per opcode, in one file per family. Floats narrower than f32 are passed as f32, and the
result is rounded once; integers narrower than a byte are passed in a byte, and the result is wrapped.
Operands for which LLVM's instructions are undefined (division by zero, over-wide shifts, float to integer out
of range) are replaced first. No lowering calls a library: functions without an instruction are composed of
vector instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloom.codegen.elementwise import arithmetic, bits, comparison, conversion, integral, transcendental
from hloom.codegen.elementwise.registry import LOWERINGS, LoweringContext, lowering
from hloom.codegen.llvm import F64, Value
from hloom.codegen.types import Element, is_small, round_to, wrap
from hloom.errors import HloError
from hloom.ir.operation import Operation
from hloom.operations.conversion import Convert
from hloom.operations.unary import Rounding
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType
from hloom.shape.float_format import float_format

FAMILIES: Final = (arithmetic, bits, comparison, conversion, integral, transcendental)

__all__ = ["FAMILIES", "LOWERINGS", "LoweringContext", "lower_elementwise", "lowering"]


def lower_elementwise(
    operation: Operation,
    operand_types: Sequence[ElementType],
    result_type: ElementType,
    operands: Sequence[Element],
    underflows: bool = False,
) -> Element:
    """Emit an elementwise operation; the result has the register form of its element type.

    The operands are all scalars or all vectors with the same number of lanes. ``underflows``: the result is a
    product or quotient that is often subnormal. Raises HloError for an operation without a lowering.
    """
    rule = LOWERINGS.get(operation.opcode)
    if rule is None:
        raise HloError(f"{operation.opcode} has no lowering", rule="cpu.lowering-missing")
    context = LoweringContext(operation, operand_types, result_type, underflows)
    result = rule.lower(context, *_of_one_width(operands))
    if isinstance(result, tuple):
        return result
    if result_type.is_floating and not isinstance(operation, Convert):  # a conversion rounds
        if rule.exact and _stays_in(operation, result_type) and _all_are(operand_types, result_type):
            return result
        if result_type is et.F8E8M0FNU and operation.opcode in _ABOVE_ZERO:
            result = _above_zero(result)
        needed = result_type is et.BF16 or is_small(result_type) or result.type.scalar is F64
        return round_to(result, result_type) if needed else result
    return result if rule.exact else wrap(result, result_type)


_ABOVE_ZERO: Final = ("power", "atan2")
"""Operations that make small positive numbers of positive ones."""


def _above_zero(value: Value) -> Value:
    """Replace zeros by the smallest number: f8e8m0fnu has no zero, and small values vanish in f32."""
    return value.compare("oeq", 0.0).select(2.0**-149, value)


def _stays_in(operation: Operation, kind: ElementType) -> bool:
    """Return whether exact results are numbers of the type: some types lack -0, others some integers."""
    number = float_format(kind)
    return number.has_negative_zero and (number.largest.is_integer() or not isinstance(operation, Rounding))


def _all_are(operand_types: Sequence[ElementType], result_type: ElementType) -> bool:
    return all(t is result_type or not t.is_floating for t in operand_types)


def _of_one_width(operands: Sequence[Element]) -> Sequence[Element]:
    """Convert floats to f64 if one of them is f64."""
    if len(operands) > 1 and any(isinstance(o, Value) and o.type.scalar is F64 for o in operands):
        return [o.cast("fpext", F64) if isinstance(o, Value) and o.type.is_float else o for o in operands]
    return operands
