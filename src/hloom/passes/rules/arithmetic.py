"""Rules for sums, products, quotients, powers and logic, element by element.

Complex numbers are left alone but where it is said: their products mix infinities and zeros of both parts.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from hloom.analysis.instructions import splat
from hloom.analysis.values import has_no_negative_zero, has_sign, is_all, is_ieee, number, uniform
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import REGISTRY
from hloom.operations.rounding import float_format
from hloom.passes.rewriting import Family
from hloom.passes.writing import Writer
from hloom.shape.element_type import F64, ElementType

RULES: Final = Family("arithmetic")

COMMUTATIVE: Final = tuple(opcode for opcode, operation in REGISTRY.items() if operation.commutative)
LARGEST_POWER: Final = 4
"""Powers up to this exponent are written as products: few roundings, and far less work."""


def is_exact(kind: ElementType) -> bool:
    """Whether numbers of a type are added and multiplied without rounding: integers modulo their range."""
    return kind.is_integer


@RULES.rewrites(*COMMUTATIVE)
def constant_on_the_right(i: HloInstruction) -> HloInstruction | None:
    """``c + x`` → ``x + c``, and so for everything that commutes."""
    a, b = i.operands
    if splat(a) is None or splat(b) is not None:
        return None
    return Writer(i).op(i.opcode, b, a)


# -- neutral elements


@RULES.rewrites("add", constant=True)
def add_zero(i: HloInstruction) -> HloInstruction | None:
    """``x + 0`` → ``x`` of integers, and of floats where 0 is -0 or no element of x is -0."""
    x, zero = i.operands
    if not uniform(i) or i.shape.element_type.is_complex or number(zero) != 0:
        return None
    return x if is_all(zero, -0.0) or has_no_negative_zero(x) else None


@RULES.rewrites("subtract", constant=True)
def subtract_zero(i: HloInstruction) -> HloInstruction | None:
    """``x - 0`` → ``x``; of floats 0 must be +0, or no element of x -0."""
    x, zero = i.operands
    if not uniform(i) or number(zero) != 0:
        return None
    return x if is_all(zero, 0.0) or has_no_negative_zero(x) else None


@RULES.rewrites("multiply", "divide", "power", constant=True)
def multiply_by_one(i: HloInstruction) -> HloInstruction | None:
    """``x * 1``, ``x / 1``, ``power(x, 1)`` → ``x``."""
    x, one = i.operands
    return x if uniform(i) and number(one) == 1 else None


@RULES.rewrites("multiply", "divide", constant=True)
def multiply_by_minus_one(i: HloInstruction) -> HloInstruction | None:
    """``x * -1``, ``x / -1`` → ``-x``."""
    x, minus_one = i.operands
    if not uniform(i) or number(minus_one) != -1:
        return None
    return Writer(i).op("negate", x)


@RULES.rewrites("maximum", "minimum", constant=True)
def extreme_of_limit(i: HloInstruction) -> HloInstruction | None:
    """``maximum(x, -inf)`` → ``x``; so for the smallest integer, and ``minimum`` at the other end."""
    x, limit = i.operands
    neutral = i.operation.neutral_element(i.shape.element_type)
    return x if uniform(i) and neutral is not None and number(limit) == neutral else None


@RULES.rewrites("maximum", "minimum", "and", "or")
def same_twice(i: HloInstruction) -> HloInstruction | None:
    """``maximum(x, x)``, ``minimum(x, x)``, ``x & x``, ``x | x`` → ``x``."""
    return i.operands[0] if i.operands[0] is i.operands[1] else None


@RULES.rewrites("and", "or", "xor", "multiply", "add", constant=True)
def logic_with_constant(i: HloInstruction) -> HloInstruction | None:
    """``x & 0`` → ``0``, ``x & ~0`` → ``x``, ``x | 0`` → ``x``, ``x | ~0`` → ``~0``, ``x ^ 0`` → ``x``.

    Of pred, ``*`` is ``&`` and ``+`` is ``|``.
    """
    kind = i.shape.element_type
    opcode = i.opcode
    if opcode in ("multiply", "add"):
        if not kind.is_predicate:
            return None
        opcode = "and" if opcode == "multiply" else "or"
    x, c = i.operands
    value = number(c)
    if value is None:
        return None
    if not value:
        return c if opcode == "and" else x
    ones = -1 if kind.is_signed else 1 if kind.is_predicate else (1 << kind.bits) - 1
    if opcode != "xor" and value == ones:
        return x if opcode == "and" else c
    return None


@RULES.rewrites("shift-left", "shift-right-arithmetic", "shift-right-logical", constant=True)
def shift_by_zero(i: HloInstruction) -> HloInstruction | None:
    """``x << 0``, ``x >> 0`` → ``x``."""
    return i.operands[0] if number(i.operands[1]) == 0 else None


# -- integers, which are exact


@RULES.rewrites("multiply", constant=True)
def integer_times_zero(i: HloInstruction) -> HloInstruction | None:
    """``x * 0`` → ``0`` of integers."""
    return i.operands[1] if is_exact(i.shape.element_type) and number(i.operands[1]) == 0 else None


@RULES.rewrites("subtract", "xor")
def integer_minus_itself(i: HloInstruction) -> HloInstruction | None:
    """``x - x``, ``x ^ x`` → ``0`` of integers and pred."""
    kind = i.shape.element_type
    if i.operands[0] is not i.operands[1] or not (kind.is_integer or kind.is_predicate):
        return None
    return Writer(i).full(0, i.shape)


@RULES.rewrites("add", "multiply", "and", "or", "xor", constant=True)
def integer_constants_together(i: HloInstruction) -> HloInstruction | None:
    """``(x + c) + d`` → ``x + (c + d)`` of integers and pred; so for ``*``, ``&``, ``|`` and ``^``."""
    inner, d = i.operands
    kind = i.shape.element_type
    if inner.opcode != i.opcode or not (kind.is_integer or kind.is_predicate) or splat(d) is None:
        return None
    x, c = inner.operands
    if splat(c) is None or splat(x) is not None:
        return None
    w = Writer(i)
    return w.op(i.opcode, x, w.op(i.opcode, c, d))


@RULES.rewrites("add")
def integer_difference_again(i: HloInstruction) -> HloInstruction | None:
    """``(x - y) + y`` → ``x`` of integers."""
    if not is_exact(i.shape.element_type):
        return None
    for a, b in (i.operands, i.operands[::-1]):
        if a.opcode == "subtract" and a.operands[1] is b:
            return a.operands[0]
    return None


@RULES.rewrites("subtract", constant=True)
def integer_subtract_constant(i: HloInstruction) -> HloInstruction | None:
    """``x - c`` → ``x + (-c)`` of integers."""
    x, c = i.operands
    kind, value = i.shape.element_type, number(c)
    if not kind.is_integer or value is None:
        return None
    opposite = -int(value) % (1 << kind.bits)
    if opposite > kind.limits[1]:
        opposite -= 1 << kind.bits
    w = Writer(i)
    return w.op("add", x, w.full(opposite, i.shape))


@RULES.rewrites("remainder", constant=True)
def integer_remainder_of_one(i: HloInstruction) -> HloInstruction | None:
    """``x % 1`` → ``0`` of integers."""
    if not is_exact(i.shape.element_type) or number(i.operands[1]) != 1:
        return None
    return Writer(i).full(0, i.shape)


# -- signs


@RULES.rewrites("negate", "not")
def twice_undone(i: HloInstruction) -> HloInstruction | None:
    """``-(-x)``, ``~~x`` → ``x``; complex numbers too."""
    (inner,) = i.operands
    return inner.operands[0] if inner.opcode == i.opcode and has_sign(i.shape.element_type) else None


@RULES.rewrites("abs")
def abs_again(i: HloInstruction) -> HloInstruction | None:
    """``abs(abs(x))`` → ``abs(x)``, ``abs(-x)`` → ``abs(x)``."""
    (x,) = i.operands
    if x.opcode == "abs":
        return x
    if x.opcode == "negate" and has_sign(i.shape.element_type):
        return Writer(i).op("abs", x.operands[0])
    return None


@RULES.rewrites("add")
def add_negated(i: HloInstruction) -> HloInstruction | None:
    """``x + (-y)`` → ``x - y``, ``(-x) + y`` → ``y - x``."""
    if not uniform(i) or not has_sign(i.shape.element_type):
        return None
    for a, b in (i.operands, i.operands[::-1]):
        if b.opcode == "negate":
            return Writer(i).op("subtract", a, b.operands[0])
    return None


@RULES.rewrites("subtract")
def subtract_negated(i: HloInstruction) -> HloInstruction | None:
    """``x - (-y)`` → ``x + y``; ``-0 - x`` → ``-x``."""
    x, y = i.operands
    if not uniform(i) or not has_sign(i.shape.element_type):
        return None
    if y.opcode == "negate":
        return Writer(i).op("add", x, y.operands[0])
    kind = i.shape.element_type
    if not kind.is_complex and (is_all(x, -0.0) or (kind.is_integer and number(x) == 0)):
        return Writer(i).op("negate", y)
    return None


@RULES.rewrites("multiply", "divide")
def both_negated(i: HloInstruction) -> HloInstruction | None:
    """``(-x) * (-y)`` → ``x * y``, ``(-x) / (-y)`` → ``x / y`` of real floats."""
    x, y = i.operands
    if x.opcode != "negate" or y.opcode != "negate" or not i.shape.element_type.is_floating:
        return None
    if not uniform(i) or not has_sign(i.shape.element_type):
        return None
    return Writer(i).op(i.opcode, x.operands[0], y.operands[0])


@RULES.rewrites("multiply", constant=True)
def constant_takes_the_sign(i: HloInstruction) -> HloInstruction | None:
    """``(-x) * c`` → ``x * (-c)``."""
    x, c = i.operands
    kind = i.shape.element_type
    if x.opcode != "negate" or splat(x.operands[0]) is not None:
        return None
    if kind.is_complex or not uniform(i) or not has_sign(kind):
        return None
    w = Writer(i)
    return w.op("multiply", x.operands[0], w.op("negate", c))


# -- quotients and powers


@RULES.rewrites("divide", constant=True)
def divide_by_power_of_two(i: HloInstruction) -> HloInstruction | None:
    """``x / 2**n`` → ``x * 2**-n`` of floats that have infinities, where both powers are normal numbers."""
    x, c = i.operands
    kind = i.shape.element_type
    value = splat(c)
    if value is None or not is_ieee(kind) or not uniform(i):
        return None
    if not np.isfinite(value) or math.frexp(abs(float(value)))[0] != 0.5:
        return None
    exponent, lowest = math.frexp(float(value))[1] - 1, float_format(kind).smallest_exponent
    if exponent < lowest or -exponent < lowest:
        return None
    w = Writer(i)
    return w.op("multiply", x, w.full(1 / float(value), i.shape))


@RULES.rewrites("power", constant=True)
def power_of_constant_exponent(i: HloInstruction) -> HloInstruction | None:
    """``power(x, 0)`` → ``1``; ``power(x, 2)`` → ``x * x``, but for f64: its powers are rounded less well."""
    x, exponent = i.operands
    value = number(exponent)
    kind = i.shape.element_type
    if not uniform(i) or value not in (0, 2) or kind.bits < 4 or (kind is F64 and value):
        return None
    w = Writer(i)
    return w.full(1, i.shape) if value == 0 else w.op("multiply", x, x)


@RULES.rewrites("power", ulps=2, constant=True)
def power_as_products(i: HloInstruction) -> HloInstruction | None:
    """``power(x, 3)`` → ``x * x * x``, ``power(x, 4)`` → ``(x * x) * (x * x)``; of f64 squares too."""
    x, exponent = i.operands
    value = number(exponent)
    if not uniform(i) or value is None or value != int(value) or not 2 <= value <= LARGEST_POWER:
        return None
    kind = i.shape.element_type
    if not (is_ieee(kind) or kind.is_integer):
        return None
    w = Writer(i)
    square = w.op("multiply", x, x)
    return square if value == 2 else w.op("multiply", square, x if value == 3 else square)


@RULES.rewrites("power", ulps=1, constant=True)
def power_as_reciprocal(i: HloInstruction) -> HloInstruction | None:
    """``power(x, -1)`` → ``1 / x`` of floats."""
    x, exponent = i.operands
    if not uniform(i) or number(exponent) != -1 or not is_ieee(i.shape.element_type):
        return None
    w = Writer(i)
    return w.op("divide", w.full(1, i.shape), x)


# -- parts of complex numbers


@RULES.rewrites("real", "imag")
def part_of_complex(i: HloInstruction) -> HloInstruction | None:
    """``real(complex(a, b))`` → ``a``, ``imag(complex(a, b))`` → ``b``; ``real(x)`` → ``x`` of reals."""
    (x,) = i.operands
    if x.opcode == "complex":
        return x.operands[0 if i.opcode == "real" else 1]
    if x.shape.element_type.is_complex:
        return None
    return x if i.opcode == "real" else Writer(i).full(0, i.shape)


@RULES.rewrites("complex")
def complex_of_parts(i: HloInstruction) -> HloInstruction | None:
    """``complex(real(x), imag(x))`` → ``x``."""
    real, imag = i.operands
    if (real.opcode, imag.opcode) != ("real", "imag") or real.operands[0] is not imag.operands[0]:
        return None
    return real.operands[0]


# -- bounds


@RULES.rewrites("clamp")
def clamp_without_a_bound(i: HloInstruction) -> HloInstruction | None:
    """``clamp(-inf, x, hi)`` → ``minimum(x, hi)``, ``clamp(lo, x, inf)`` → ``maximum(x, lo)``."""
    low, x, high = i.operands
    kind = i.shape.element_type
    if not uniform(i) or kind.is_complex or (kind.is_floating and not is_ieee(kind)):
        return None
    limits = (-math.inf, math.inf) if kind.is_floating else kind.limits
    for bound, limit, other, opcode in (
        (low, limits[0], high, "minimum"),
        (high, limits[1], low, "maximum"),
    ):
        if number(bound) == limit:
            w = Writer(i)
            scalar = other.shape.dimensions != x.shape.dimensions
            return w.op(opcode, x, w.broadcast(other, x.shape.dimensions) if scalar else other)
    return None
