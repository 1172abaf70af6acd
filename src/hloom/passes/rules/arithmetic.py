"""Rules for elementwise sums, products, quotients, powers and logic.

Complex numbers are excluded unless stated: their products mix infinities and zeros of both parts.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import numpy as np

from hloom.analysis.instructions import operation_of, splat
from hloom.analysis.values import has_no_negative_zero, has_sign, is_all, is_ieee, number, uniform
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import REGISTRY, Operation
from hloom.operations.arithmetic import (
    Add,
    And,
    Complex,
    Divide,
    Maximum,
    Minimum,
    Multiply,
    Or,
    Power,
    Remainder,
    ShiftLeft,
    ShiftRightArithmetic,
    ShiftRightLogical,
    Subtract,
    Xor,
)
from hloom.operations.comparison import Clamp, Compare, Select
from hloom.operations.transcendental import SquareRoot
from hloom.operations.unary import Abs, Imag, Negate, Not, Real
from hloom.passes.rewriting import RuleFamily
from hloom.passes.writing import Writer
from hloom.shape.element_type import F32, F64, ElementType
from hloom.shape.float_format import float_format

RULES: Final = RuleFamily("arithmetic")

Division: TypeAlias = "tuple[HloInstruction, int]"
"""A dividend of a signed type, and a positive divisor."""

COMMUTATIVE: Final = tuple(operation for operation in REGISTRY.values() if operation.commutative)
LARGEST_POWER: Final = 4
"""Largest exponent that is expanded into products: few roundings, and far less work than a power."""


def is_exact(kind: ElementType) -> bool:
    """Return whether a type's sums and products are exact: integers, modulo their range."""
    return kind.is_integer


@RULES.rewrites(*COMMUTATIVE)
def constant_on_the_right(i: HloInstruction, operation: Operation) -> HloInstruction | None:
    """``c + x`` → ``x + c``; same for every commutative operation."""
    a, b = i.operands
    if splat(a) is None or splat(b) is not None:
        return None
    return Writer(i).op(operation, b, a)


# -- neutral elements


@RULES.rewrites(Add, constant=True)
def add_zero(i: HloInstruction, add: Add) -> HloInstruction | None:
    """``x + 0`` → ``x`` of integers, and of floats if the constant is -0 or no element of x is -0."""
    x, zero = i.operands
    if not uniform(i) or i.shape.element_type.is_complex or number(zero) != 0:
        return None
    return x if is_all(zero, -0.0) or has_no_negative_zero(x) else None


@RULES.rewrites(Subtract, constant=True)
def subtract_zero(i: HloInstruction, subtract: Subtract) -> HloInstruction | None:
    """``x - 0`` → ``x``; of floats if the constant is +0 or no element of x is -0."""
    x, zero = i.operands
    if not uniform(i) or number(zero) != 0:
        return None
    return x if is_all(zero, 0.0) or has_no_negative_zero(x) else None


@RULES.rewrites(Multiply, Divide, Power, constant=True)
def multiply_by_one(i: HloInstruction, operation: Multiply | Divide | Power) -> HloInstruction | None:
    """``x * 1``, ``x / 1``, ``power(x, 1)`` → ``x``."""
    x, one = i.operands
    return x if uniform(i) and number(one) == 1 else None


@RULES.rewrites(Multiply, Divide, constant=True)
def multiply_by_minus_one(i: HloInstruction, operation: Multiply | Divide) -> HloInstruction | None:
    """``x * -1``, ``x / -1`` → ``-x``."""
    x, minus_one = i.operands
    if not uniform(i) or number(minus_one) != -1:
        return None
    return Writer(i).op(Negate(), x)


@RULES.rewrites(Maximum, Minimum, constant=True)
def extreme_of_limit(i: HloInstruction, operation: Maximum | Minimum) -> HloInstruction | None:
    """``maximum(x, -inf)`` → ``x``; same for the smallest integer, and ``minimum`` of the opposite limit."""
    x, limit = i.operands
    neutral = i.operation.neutral_element(i.shape.element_type)
    return x if uniform(i) and neutral is not None and number(limit) == neutral else None


@RULES.rewrites(Maximum, Minimum, And, Or)
def same_twice(i: HloInstruction, operation: Maximum | Minimum | And | Or) -> HloInstruction | None:
    """``maximum(x, x)``, ``minimum(x, x)``, ``x & x``, ``x | x`` → ``x``."""
    return i.operands[0] if i.operands[0] is i.operands[1] else None


@RULES.rewrites(And, Or, Xor, Multiply, Add, constant=True)
def logic_with_constant(
    i: HloInstruction, operation: And | Or | Xor | Multiply | Add
) -> HloInstruction | None:
    """``x & 0`` → ``0``, ``x & ~0`` → ``x``, ``x | 0`` → ``x``, ``x | ~0`` → ``~0``, ``x ^ 0`` → ``x``.

    Of pred, ``*`` is ``&`` and ``+`` is ``|``.
    """
    kind = i.shape.element_type
    if isinstance(operation, (Multiply, Add)) and not kind.is_predicate:
        return None
    x, c = i.operands
    value = number(c)
    if value is None:
        return None
    if not value:
        return c if isinstance(operation, (And, Multiply)) else x
    ones = -1 if kind.is_signed else 1 if kind.is_predicate else (1 << kind.bits) - 1
    if not isinstance(operation, Xor) and value == ones:
        return x if isinstance(operation, (And, Multiply)) else c
    return None


@RULES.rewrites(ShiftLeft, ShiftRightArithmetic, ShiftRightLogical, constant=True)
def shift_by_zero(
    i: HloInstruction, operation: ShiftLeft | ShiftRightArithmetic | ShiftRightLogical
) -> HloInstruction | None:
    """``x << 0``, ``x >> 0`` → ``x``."""
    return i.operands[0] if number(i.operands[1]) == 0 else None


# -- integers, which are exact


@RULES.rewrites(Multiply, constant=True)
def integer_times_zero(i: HloInstruction, multiply: Multiply) -> HloInstruction | None:
    """``x * 0`` → ``0`` of integers."""
    return i.operands[1] if is_exact(i.shape.element_type) and number(i.operands[1]) == 0 else None


@RULES.rewrites(Subtract, Xor)
def integer_minus_itself(i: HloInstruction, operation: Subtract | Xor) -> HloInstruction | None:
    """``x - x``, ``x ^ x`` → ``0`` of integers and pred."""
    kind = i.shape.element_type
    if i.operands[0] is not i.operands[1] or not (kind.is_integer or kind.is_predicate):
        return None
    return Writer(i).full(0, i.shape)


@RULES.rewrites(Add, Multiply, And, Or, Xor, constant=True)
def integer_constants_together(
    i: HloInstruction, operation: Add | Multiply | And | Or | Xor
) -> HloInstruction | None:
    """``(x + c) + d`` → ``x + (c + d)`` of integers and pred; same for ``*``, ``&``, ``|`` and ``^``."""
    inner, d = i.operands
    kind = i.shape.element_type
    if inner.operation != operation or not (kind.is_integer or kind.is_predicate) or splat(d) is None:
        return None
    x, c = inner.operands
    if splat(c) is None or splat(x) is not None:
        return None
    w = Writer(i)
    return w.op(operation, x, w.op(operation, c, d))


@RULES.rewrites(Add)
def integer_difference_again(i: HloInstruction, add: Add) -> HloInstruction | None:
    """``(x - y) + y`` → ``x`` of integers."""
    if not is_exact(i.shape.element_type):
        return None
    for a, b in (i.operands, i.operands[::-1]):
        if isinstance(a.operation, Subtract) and a.operands[1] is b:
            return a.operands[0]
    return None


@RULES.rewrites(Subtract, constant=True)
def integer_subtract_constant(i: HloInstruction, subtract: Subtract) -> HloInstruction | None:
    """``x - c`` → ``x + (-c)`` of integers."""
    x, c = i.operands
    kind, value = i.shape.element_type, number(c)
    if not kind.is_integer or value is None:
        return None
    opposite = -int(value) % (1 << kind.bits)
    if opposite > kind.limits[1]:
        opposite -= 1 << kind.bits
    w = Writer(i)
    return w.op(Add(), x, w.full(opposite, i.shape))


@RULES.rewrites(Remainder, constant=True)
def integer_remainder_of_one(i: HloInstruction, remainder: Remainder) -> HloInstruction | None:
    """``x % 1`` → ``0`` of integers."""
    if not is_exact(i.shape.element_type) or number(i.operands[1]) != 1:
        return None
    return Writer(i).full(0, i.shape)


# -- signs


@RULES.rewrites(Negate, Not)
def twice_undone(i: HloInstruction, operation: Negate | Not) -> HloInstruction | None:
    """``-(-x)``, ``~~x`` → ``x``; complex numbers too."""
    (inner,) = i.operands
    return inner.operands[0] if inner.operation == operation and has_sign(i.shape.element_type) else None


@RULES.rewrites(Abs, of=(Abs, Negate))
def abs_again(i: HloInstruction, abs_: Abs, inner: Abs | Negate) -> HloInstruction | None:
    """``abs(abs(x))`` → ``abs(x)``, ``abs(-x)`` → ``abs(x)``."""
    (x,) = i.operands
    if isinstance(inner, Abs):
        return x
    if has_sign(i.shape.element_type):
        return Writer(i).op(Abs(), x.operands[0])
    return None


@RULES.rewrites(Add)
def add_negated(i: HloInstruction, add: Add) -> HloInstruction | None:
    """``x + (-y)`` → ``x - y``, ``(-x) + y`` → ``y - x``."""
    if not uniform(i) or not has_sign(i.shape.element_type):
        return None
    for a, b in (i.operands, i.operands[::-1]):
        if isinstance(b.operation, Negate):
            return Writer(i).op(Subtract(), a, b.operands[0])
    return None


@RULES.rewrites(Subtract)
def subtract_negated(i: HloInstruction, subtract: Subtract) -> HloInstruction | None:
    """``x - (-y)`` → ``x + y``; ``-0 - x`` → ``-x``."""
    x, y = i.operands
    if not uniform(i) or not has_sign(i.shape.element_type):
        return None
    if isinstance(y.operation, Negate):
        return Writer(i).op(Add(), x, y.operands[0])
    kind = i.shape.element_type
    if not kind.is_complex and (is_all(x, -0.0) or (kind.is_integer and number(x) == 0)):
        return Writer(i).op(Negate(), y)
    return None


@RULES.rewrites(Multiply, Divide, of=Negate)
def both_negated(i: HloInstruction, operation: Multiply | Divide, negate: Negate) -> HloInstruction | None:
    """``(-x) * (-y)`` → ``x * y``, ``(-x) / (-y)`` → ``x / y`` of real floats."""
    x, y = i.operands
    if not isinstance(y.operation, Negate) or not i.shape.element_type.is_floating:
        return None
    if not uniform(i) or not has_sign(i.shape.element_type):
        return None
    return Writer(i).op(operation, x.operands[0], y.operands[0])


@RULES.rewrites(Multiply, of=Negate, constant=True)
def constant_takes_the_sign(i: HloInstruction, multiply: Multiply, negate: Negate) -> HloInstruction | None:
    """``(-x) * c`` → ``x * (-c)``."""
    x, c = i.operands
    kind = i.shape.element_type
    if splat(x.operands[0]) is not None:
        return None
    if kind.is_complex or not uniform(i) or not has_sign(kind):
        return None
    w = Writer(i)
    return w.op(Multiply(), x.operands[0], w.op(Negate(), c))


# -- quotients and powers


@RULES.rewrites(Divide, constant=True)
def divide_by_power_of_two(i: HloInstruction, divide: Divide) -> HloInstruction | None:
    """``x / 2**n`` → ``x * 2**-n`` of floats with infinities, where both powers are normal numbers."""
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
    return w.op(Multiply(), x, w.full(1 / float(value), i.shape))


@RULES.rewrites(Power, constant=True)
def power_of_constant_exponent(i: HloInstruction, power: Power) -> HloInstruction | None:
    """``power(x, 0)`` → ``1``; ``power(x, 2)`` → ``x * x`` except in f64, whose powers round less well."""
    x, exponent = i.operands
    value = number(exponent)
    kind = i.shape.element_type
    if not uniform(i) or value not in (0, 2) or kind.bits < 4 or (kind is F64 and value):
        return None
    w = Writer(i)
    return w.full(1, i.shape) if value == 0 else w.op(Multiply(), x, x)


@RULES.rewrites(Power, ulps=2, constant=True)
def power_as_products(i: HloInstruction, power: Power) -> HloInstruction | None:
    """``power(x, 3)`` → ``x * x * x``, ``power(x, 4)`` → ``(x * x) * (x * x)``; of f64 squares too."""
    x, exponent = i.operands
    value = number(exponent)
    if not uniform(i) or value is None or not 2 <= value <= LARGEST_POWER or value != int(value):
        return None
    kind = i.shape.element_type
    if not (is_ieee(kind) or kind.is_integer):
        return None
    w = Writer(i)
    square = w.op(Multiply(), x, x)
    return square if value == 2 else w.op(Multiply(), square, x if value == 3 else square)


@RULES.rewrites(Power, ulps=1, constant=True)
def power_as_reciprocal(i: HloInstruction, power: Power) -> HloInstruction | None:
    """``power(x, -1)`` → ``1 / x`` of floats."""
    x, exponent = i.operands
    if not uniform(i) or number(exponent) != -1 or not is_ieee(i.shape.element_type):
        return None
    w = Writer(i)
    return w.op(Divide(), w.full(1, i.shape), x)


@RULES.rewrites(Power, ulps=3, constant=True)
def power_by_root(i: HloInstruction, power: Power) -> HloInstruction | None:
    """``power(x, 1.5)`` → ``x √x``, ``power(x, -1.5)`` → ``1 / √x / x``; of -inf ``inf`` and 0."""
    x, exponent = i.operands
    value = number(exponent)
    if not uniform(i) or value not in (1.5, -1.5) or i.shape.element_type not in (F32, F64):
        return None
    w = Writer(i)
    infinite = w.op(Compare(direction="EQ"), x, w.full(-math.inf, i.shape))
    root = w.op(SquareRoot(), x)
    if value > 0:
        return w.op(Select(), infinite, w.full(math.inf, i.shape), w.op(Multiply(), x, root))
    inverse = w.op(Divide(), w.full(1, i.shape), root)
    return w.op(Select(), infinite, w.full(0, i.shape), w.op(Divide(), inverse, x))


# -- integer quotients and remainders rounded down, as Python's are; HLO rounds quotients towards zero


@RULES.rewrites(And, operands=(Compare, Compare))
def sign_of_indivisible(
    i: HloInstruction, and_: And, first: Compare, second: Compare
) -> HloInstruction | None:
    """``x < 1 & x % y != 0`` → ``x < 0 & x % y != 0``, ``x > -1`` → ``x > 0``: of 0 the remainder is 0."""
    for test, other in (i.operands, i.operands[::-1]):
        sign, rest = operation_of(test, Compare), operation_of(other, Compare)
        x, bound = test.operands
        remainder, zero = other.operands
        if not (isinstance(remainder.operation, Remainder) and x.shape.element_type.is_signed):
            continue
        is_rest = rest.direction == "NE" and number(zero) == 0 and remainder.operands[0] is x
        if is_rest and (sign.direction, number(bound)) in (("LT", 1), ("GT", -1)):
            w = Writer(i)
            return w.op(And(), w.op(sign, x, w.full(0, x.shape), shape=test.shape), other)
    return None


@RULES.rewrites(Select)
def quotient_by_power_of_two(i: HloInstruction, select: Select) -> HloInstruction | None:
    """``x // 2**n``, of quotient and remainder of x with a sign → ``x >> n``, an arithmetic shift."""
    division = quotient_rounded_down(i)
    if division is None or division[1].bit_count() != 1:
        return None
    x, divisor = division
    w = Writer(i)
    return w.op(ShiftRightArithmetic(), x, w.full(divisor.bit_length() - 1, x.shape))


@RULES.rewrites(Select)
def remainder_by_power_of_two(i: HloInstruction, select: Select) -> HloInstruction | None:
    """``x % 2**n``, not negative, of the remainder of x with a sign → ``x & (2**n - 1)``."""
    division = remainder_rounded_down(i)
    if division is None or division[1].bit_count() != 1:
        return None
    x, divisor = division
    w = Writer(i)
    return w.op(And(), x, w.full(divisor - 1, x.shape))


def quotient_rounded_down(i: HloInstruction) -> Division | None:
    """Return the operands if a select is ``x // c`` of a signed x and a positive constant, else None."""
    if not isinstance(i.operation, Select) or not isinstance(i.operands[0].operation, And):
        return None
    p, sum_, quotient = i.operands
    division = _by_positive(quotient, Divide)
    if division is None or not _is_sum(sum_, quotient, -1):
        return None
    x, divisor = division
    for test, other in (p.operands, p.operands[::-1]):
        if _is_negative(test, x) and isinstance(other.operation, Compare):
            remainder, zero = other.operands
            is_rest = other.operation.direction == "NE" and number(zero) == 0
            if is_rest and _by_positive(remainder, Remainder) == (x, divisor):
                return division
    return None


def remainder_rounded_down(i: HloInstruction) -> Division | None:
    """Return the operands if a select is ``x % c`` of a signed x and a positive constant, else None."""
    p, sum_, remainder = i.operands
    division = _by_positive(remainder, Remainder)
    if division is None or not (_is_negative(p, remainder) and _is_sum(sum_, remainder, division[1])):
        return None
    return division


def _by_positive(i: HloInstruction, operation: type[Divide | Remainder]) -> Division | None:
    """Return the operands of a signed division or remainder by a positive constant; None for others."""
    if not isinstance(i.operation, operation) or not i.shape.element_type.is_signed:
        return None
    divisor = number(i.operands[1])
    return (i.operands[0], int(divisor)) if divisor is not None and divisor > 0 else None


def _is_sum(i: HloInstruction, x: HloInstruction, constant: int) -> bool:
    """Return whether an instruction adds a constant to x."""
    return isinstance(i.operation, Add) and i.operands[0] is x and number(i.operands[1]) == constant


def _is_negative(test: HloInstruction, x: HloInstruction) -> bool:
    """Return whether an instruction is the test ``x < 0``."""
    if not isinstance(test.operation, Compare) or test.operation.direction != "LT":
        return False
    return test.operands[0] is x and number(test.operands[1]) == 0


# -- parts of complex numbers


@RULES.rewrites(Real, Imag)
def part_of_complex(i: HloInstruction, operation: Real | Imag) -> HloInstruction | None:
    """``real(complex(a, b))`` → ``a``, ``imag(complex(a, b))`` → ``b``; ``real(x)`` → ``x`` of reals."""
    (x,) = i.operands
    if isinstance(x.operation, Complex):
        return x.operands[0 if isinstance(operation, Real) else 1]
    if x.shape.element_type.is_complex:
        return None
    return x if isinstance(operation, Real) else Writer(i).full(0, i.shape)


@RULES.rewrites(Complex, operands=(Real, Imag))
def complex_of_parts(
    i: HloInstruction, complex_: Complex, first: Real, second: Imag
) -> HloInstruction | None:
    """``complex(real(x), imag(x))`` → ``x``."""
    real, imag = i.operands
    return real.operands[0] if real.operands[0] is imag.operands[0] else None


# -- bounds


@RULES.rewrites(Clamp)
def clamp_without_a_bound(i: HloInstruction, clamp: Clamp) -> HloInstruction | None:
    """``clamp(-inf, x, hi)`` → ``minimum(x, hi)``, ``clamp(lo, x, inf)`` → ``maximum(x, lo)``."""
    low, x, high = i.operands
    kind = i.shape.element_type
    if not uniform(i) or kind.is_complex or (kind.is_floating and not is_ieee(kind)):
        return None
    limits = (-math.inf, math.inf) if kind.is_floating else kind.limits
    for bound, limit, other, extreme in (
        (low, limits[0], high, Minimum()),
        (high, limits[1], low, Maximum()),
    ):
        if number(bound) == limit:
            w = Writer(i)
            scalar = other.shape.dimensions != x.shape.dimensions
            return w.op(extreme, x, w.broadcast(other, x.shape.dimensions) if scalar else other)
    return None
