"""Element rules of dot and convolution: a loop over the terms of a sum for every vector of results."""

from __future__ import annotations

from collections.abc import Sequence

from hloom.codegen.accumulators import accumulated
from hloom.codegen.elements import Elements, element_rule
from hloom.codegen.llvm import I1, Type, Value
from hloom.codegen.target import fuses
from hloom.codegen.types import Element, constant, register_type, round_to, wrap
from hloom.ir.affine import Indices
from hloom.ir.indexing import Read
from hloom.ir.instruction import HloInstruction
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType


def accumulator_type(result: ElementType) -> ElementType:
    """Return the type in which products are summed: at least f32 for floats."""
    return et.F32 if result.is_floating and result.bits < 32 else result


@element_rule("dot", "convolution")
def _sum_of_products(e: Elements, instruction: HloInstruction, indices: Indices) -> Element:
    accumulation = instruction.operation.accumulation(e, instruction, indices)
    assert accumulation is not None
    result = instruction.shape.element_type
    kind = accumulator_type(result)

    def step(accumulators: list[Element], terms: Sequence[Read[Value]]) -> list[Element]:
        a, b = (converted(e.read(term), term.instruction.shape.element_type, kind) for term in terms)
        inside = terms[0].condition
        if inside is not None:  # both factors: zero times an infinite one is NaN
            a, b = (e.choose(inside, factor, constant(e.function, kind, 0)) for factor in (a, b))
        return [multiply_add(e, kind, a, b, accumulators[0])]

    (total,) = accumulated(e, accumulation, [constant(e.function, kind, 0, e.lanes)], step)
    if isinstance(total, tuple):
        return total
    return wrap(total, result) if kind is result else round_to(total, result)


def converted(value: Element, source: ElementType, target: ElementType) -> Element:
    """Convert a factor to the accumulator's type; exact, since that is never narrower."""
    register = register_type(target)
    if isinstance(value, tuple):
        if register is value[0].type.scalar:
            return value
        return value[0].cast("fpext", register), value[1].cast("fpext", register)
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
