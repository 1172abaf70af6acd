"""Generators of elementwise operations on every element type, with special values."""

from __future__ import annotations

from collections.abc import Mapping

from hloom.fuzzing.generators.case import Case, CaseBody, family
from hloom.fuzzing.generators.draw import COMPLEX, EVERY, FLOATS, INTEGERS, Draw
from hloom.fuzzing.generators.opcodes import choices

REAL = (*INTEGERS, *FLOATS)


@family("unary", weight=6, corners=True)
def unary(draw: Draw, body: CaseBody) -> Case:
    """Draw an elementwise operation of one operand."""
    opcode, element_type = _choice(draw, choices(1, exact=draw.chance(0.5)))
    operand = body.parameter(draw.any_values(element_type, draw.sizes()))
    return body.case(f"{opcode} {element_type}", body.let(f"{opcode}({operand})"))


@family("binary", weight=6, corners=True)
def binary(draw: Draw, body: CaseBody) -> Case:
    """Draw an elementwise operation of two operands."""
    opcode, element_type = _choice(draw, choices(2, exact=draw.chance(0.85)))
    sizes = draw.sizes()
    lhs, rhs = (body.parameter(draw.any_values(element_type, sizes)) for _ in range(2))
    root = body.let(f"{opcode}({lhs}, {rhs})")
    return body.case(f"{opcode} {element_type}", root)


def _choice(draw: Draw, table: Mapping[str, tuple[str, ...]]) -> tuple[str, str]:
    """Draw an operation, and one of its element types, from a table."""
    opcode = draw.one(list(table))
    return opcode, draw.one(table[opcode])


@family("compare", weight=2)
def compare(draw: Draw, body: CaseBody) -> Case:
    """Draw a comparison, by the type's default order or by total order."""
    element_type = draw.element_type(EVERY)
    directions = ["EQ", "NE"] if element_type in COMPLEX else ["EQ", "NE", "LT", "LE", "GT", "GE"]
    attributes = f"direction={draw.one(directions)}"
    if element_type in FLOATS and draw.chance(0.4):
        attributes += ", type=TOTALORDER"
    sizes = draw.sizes()
    lhs = draw.any_values(element_type, sizes)
    rhs = draw.any_values(element_type, sizes)
    if draw.chance(0.5):
        equal = draw.numbers.random(sizes) < 0.3
        rhs[equal] = lhs[equal]
    operands = f"{body.parameter(lhs)}, {body.parameter(rhs)}"
    label = "compare total" if "TOTAL" in attributes else "compare"
    return body.case(f"{label} {element_type}", body.let(f"compare({operands}), {attributes}"))


@family("select")
def choose(draw: Draw, body: CaseBody) -> Case:
    """Draw a select or clamp, with scalar or array predicates and bounds."""
    sizes = draw.sizes()
    if draw.chance(0.5):
        element_type = draw.element_type(EVERY)
        predicate = body.parameter(draw.any_values("pred", () if draw.chance(0.3) else sizes))
        on_true, on_false = (body.parameter(draw.any_values(element_type, sizes)) for _ in range(2))
        root = body.let(f"select({predicate}, {on_true}, {on_false})")
        return body.case(f"select {element_type}", root)
    element_type = draw.element_type(REAL)
    bounds = () if draw.chance(0.4) else sizes
    low = body.parameter(draw.any_values(element_type, bounds))
    operand = body.parameter(draw.any_values(element_type, sizes))
    high = body.parameter(draw.any_values(element_type, bounds))
    return body.case(f"clamp {element_type}", body.let(f"clamp({low}, {operand}, {high})"))
