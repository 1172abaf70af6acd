"""Dots as elements: a loop over the contracted dimensions for every vector of results."""

from __future__ import annotations

from hloom.codegen.accumulators import nested_reduction
from hloom.codegen.elements import Elements, element_rule
from hloom.codegen.llvm import I1, Type, Value
from hloom.codegen.target import fuses
from hloom.codegen.types import Element, constant, register_type, round_to, wrap
from hloom.ir.affine import Indices
from hloom.ir.instruction import HloInstruction
from hloom.plan.index_maps import dot_operand_indices
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType


def accumulator_type(result: ElementType) -> ElementType:
    """Return the type in which products are summed: at least f32 for floats."""
    return et.F32 if result.is_floating and result.bits < 32 else result


@element_rule("dot")
def _dot(e: Elements, instruction: HloInstruction, indices: Indices) -> Element:
    lhs, rhs = instruction.operands
    lhs_index, rhs_index, contracted = dot_operand_indices(instruction, indices)
    result = instruction.shape.element_type
    kind = accumulator_type(result)
    zero = constant(e.function, kind, 0, e.lanes)

    def step(accumulators: list[Element]) -> list[Element]:
        a = converted(e.element(lhs, lhs_index), lhs.shape.element_type, kind)
        b = converted(e.element(rhs, rhs_index), rhs.shape.element_type, kind)
        return [multiply_add(e, kind, a, b, accumulators[0])]

    made = nested_reduction(e, contracted, [zero], step)[0] if contracted else step([zero])[0]
    if isinstance(made, tuple):
        return made
    return wrap(made, result) if kind is result else round_to(made, result)


def converted(value: Element, source: ElementType, target: ElementType) -> Element:
    """Convert a factor to the accumulator's type; exact, since that is never narrower."""
    if isinstance(value, tuple):
        return value if register_type(target) is value[0].type.scalar else (
            value[0].cast("fpext", register_type(target)), value[1].cast("fpext", register_type(target))
        )  # fmt: skip
    register = register_type(target)
    if target.is_complex:
        real = _real(value, source, register)
        return real, value.function.constant(real.type, 0)
    return _real(value, source, register)


def _real(value: Value, source: ElementType, register: Type) -> Value:
    if value.type.scalar is register:
        return value
    if register.is_float:
        if source.is_floating:
            return value.cast("fpext", register)
        return value.cast("sitofp" if source.is_signed else "uitofp", register)
    signed = source.is_integer and source.is_signed
    return value.cast("sext" if signed else "zext", register)


def multiply_add(e: Elements, kind: ElementType, a: Element, b: Element, total: Element) -> Element:
    """Return total + a * b in the accumulator's type."""
    a, b, total = e.together([a, b, total])
    if isinstance(a, tuple) and isinstance(b, tuple) and isinstance(total, tuple):
        f = e.function
        if not fuses(f.target):
            return total[0] + (a[0] * b[0] - a[1] * b[1]), total[1] + (a[0] * b[1] + a[1] * b[0])
        real = f.fma(a[0], b[0], f.fma(-a[1], b[1], total[0]))
        return real, f.fma(a[0], b[1], f.fma(a[1], b[0], total[1]))
    assert isinstance(a, Value) and isinstance(b, Value) and isinstance(total, Value)
    if a.type.scalar is I1:
        return total | (a & b)
    if a.type.is_float and fuses(e.function.target):
        return e.function.fma(a, b, total)
    return a * b + total
