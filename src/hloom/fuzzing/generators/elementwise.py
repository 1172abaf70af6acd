"""Elementwise operations on every element type, special values included."""

from __future__ import annotations

from hloom.fuzzing.generators.case import Body, Case, Generator
from hloom.fuzzing.generators.draw import COMPLEX, EVERY, FLOATS, INTEGERS, SIGNED, Draw

REAL = (*INTEGERS, *FLOATS)

EXACT_UNARY = {
    "abs": (*SIGNED, *FLOATS),
    "negate": (*REAL, *COMPLEX),
    "sign": (*SIGNED, *FLOATS),
    "floor": FLOATS,
    "ceil": FLOATS,
    "round-nearest-afz": FLOATS,
    "round-nearest-even": FLOATS,
    "not": ("pred", *INTEGERS),
    "popcnt": INTEGERS,
    "count-leading-zeros": INTEGERS,
    "is-finite": FLOATS,
    "real": ("f32", "f64", *COMPLEX),
    "imag": ("f32", "f64", *COMPLEX),
}
"""Operations of one operand with one right result, and the types that they take."""

TRANSCENDENTAL = (
    "sqrt", "rsqrt", "cbrt", "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic",
    "sine", "cosine", "tan", "tanh", "erf",
)  # fmt: skip
"""Operations with rounded results.

Inverse and hyperbolic functions with opcodes (asin, acosh ...) are missing: jaxlib's client takes programs as
StableHLO and does not convert these.
"""

REAL_ONLY = ("cbrt", "erf")

EXACT_BINARY = {
    "add": (*EVERY,),
    "subtract": (*REAL, *COMPLEX),
    "multiply": (*EVERY,),
    "divide": REAL,
    "remainder": REAL,
    "maximum": ("pred", *REAL),
    "minimum": ("pred", *REAL),
    "and": ("pred", *INTEGERS),
    "or": ("pred", *INTEGERS),
    "xor": ("pred", *INTEGERS),
    "shift-left": INTEGERS,
    "shift-right-logical": INTEGERS,
    "shift-right-arithmetic": INTEGERS,
    "power": INTEGERS,
    "complex": ("f32", "f64"),
}
ROUNDED_BINARY = {"power": (*FLOATS, *COMPLEX), "atan2": (*FLOATS, *COMPLEX), "divide": COMPLEX}


def unary(draw: Draw) -> Case:
    """Draw an operation of one operand."""
    body = Body(draw)
    if draw.chance(0.5):
        opcode = draw.one(list(EXACT_UNARY))
        element_type = draw.one(EXACT_UNARY[opcode])
    elif draw.chance(0.1):
        opcode, element_type = draw.one(["abs", "sign"]), draw.one(COMPLEX)
    else:
        opcode = draw.one(TRANSCENDENTAL)
        element_type = draw.one(FLOATS if opcode in REAL_ONLY else (*FLOATS, *COMPLEX))
    operand = body.parameter(draw.any_values(element_type, draw.sizes()))
    return body.case(f"{opcode} {element_type}", body.let(f"{opcode}({operand})"))


def binary(draw: Draw) -> Case:
    """Draw an operation of two operands."""
    body = Body(draw)
    table = EXACT_BINARY if draw.chance(0.85) else ROUNDED_BINARY
    opcode = draw.one(list(table))
    element_type = draw.one(table[opcode])
    sizes = draw.sizes()
    lhs, rhs = (body.parameter(draw.any_values(element_type, sizes)) for _ in range(2))
    root = body.let(f"{opcode}({lhs}, {rhs})")
    return body.case(f"{opcode} {element_type}", root)


def compare(draw: Draw) -> Case:
    """Draw a comparison, in the type's own order or in total order."""
    body = Body(draw)
    element_type = draw.one(EVERY)
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


def choose(draw: Draw) -> Case:
    """Select and clamp, with scalar or whole predicates and bounds."""
    body = Body(draw)
    sizes = draw.sizes()
    if draw.chance(0.5):
        element_type = draw.one(EVERY)
        predicate = body.parameter(draw.any_values("pred", () if draw.chance(0.3) else sizes))
        on_true, on_false = (body.parameter(draw.any_values(element_type, sizes)) for _ in range(2))
        root = body.let(f"select({predicate}, {on_true}, {on_false})")
        return body.case(f"select {element_type}", root)
    element_type = draw.one(REAL)
    bounds = () if draw.chance(0.4) else sizes
    low = body.parameter(draw.any_values(element_type, bounds))
    operand = body.parameter(draw.any_values(element_type, sizes))
    high = body.parameter(draw.any_values(element_type, bounds))
    return body.case(f"clamp {element_type}", body.let(f"clamp({low}, {operand}, {high})"))


FAMILIES: dict[str, Generator] = {"unary": unary, "binary": binary, "compare": compare, "select": choose}
