"""Rules for changes of element type; they preserve the roundings of the program."""

from __future__ import annotations

from typing import Final

from hloom.analysis.values import holds
from hloom.ir.instruction import HloInstruction
from hloom.operations.conversion import BitcastConvert, Convert, Copy, ReducePrecision
from hloom.passes.rewriting import RuleFamily
from hloom.passes.writing import Writer
from hloom.shape.float_format import float_format

RULES: Final = RuleFamily("conversion")


@RULES.rewrites(Convert)
def convert_to_the_same(i: HloInstruction, convert: Convert) -> HloInstruction | None:
    """``convert(x)`` → ``x`` where the type is the same."""
    (x,) = i.operands
    return x if x.shape.element_type is i.shape.element_type else None


@RULES.rewrites(Convert, of=Convert)
def convert_twice(i: HloInstruction, convert: Convert, inner_convert: Convert) -> HloInstruction | None:
    """``convert(convert(x))`` → ``convert(x)``, where the first one loses nothing that the second keeps.

    That is: the middle type holds every value of the first, or all three are integers, each no wider than the
    one before. Integers converted to floats in between saturate instead of wrapping: the last type must then
    hold every value of the first.
    """
    (middle,) = i.operands
    (x,) = middle.operands
    first, second, third = x.shape.element_type, middle.shape.element_type, i.shape.element_type
    narrowing = all(t.is_integer for t in (first, second, third)) and first.bits >= second.bits >= third.bits
    if not holds(second, first) and not narrowing:
        return None
    saturates = first.is_integer and not second.is_integer and third.is_integer
    if saturates and not holds(third, first):
        return None
    return Writer(i).convert(x, third)


@RULES.rewrites(BitcastConvert)
def bitcast_convert_to_the_same(i: HloInstruction, bitcast_convert: BitcastConvert) -> HloInstruction | None:
    """``bitcast-convert(x)`` → ``x`` where the type is the same."""
    (x,) = i.operands
    return x if x.shape.element_type is i.shape.element_type else None


@RULES.rewrites(BitcastConvert, of=BitcastConvert)
def bitcast_convert_twice(
    i: HloInstruction, bitcast_convert: BitcastConvert, inner: BitcastConvert
) -> HloInstruction | None:
    """``bitcast-convert(bitcast-convert(x))`` → ``bitcast-convert(x)``, or ``x`` of its own type again."""
    (x,) = i.operands
    (source,) = x.operands
    bits = {s.shape.element_type.bits for s in (source, x, i)}
    if any(s.shape.element_type.is_predicate for s in (source, x, i)):
        return None
    if source.shape.element_type is i.shape.element_type and source.shape.dimensions == i.shape.dimensions:
        return source
    if len(bits) > 1:
        return None
    return Writer(i).op(BitcastConvert(), source, shape=i.shape)


@RULES.rewrites(ReducePrecision)
def reduce_precision_of_fewer_bits(i: HloInstruction, operation: ReducePrecision) -> HloInstruction | None:
    """``reduce-precision(x)`` → ``x`` where the format holds x's type, or x is reduced to it already."""
    (x,) = i.operands
    number = float_format(i.shape.element_type)
    if operation.exponent_bits >= number.exponent_bits and operation.mantissa_bits >= number.mantissa_bits:
        return x
    return x if x.operation == operation and operation.mantissa_bits else None


@RULES.rewrites(Copy)
def copy_of_anything(i: HloInstruction, copy: Copy) -> HloInstruction | None:
    """``copy(x)`` → ``x``: buffer assignment inserts the copies that are needed."""
    return i.operands[0]
