"""Rules for elementwise operations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.operations.arithmetic import (
    Add,
    And,
    Divide,
    Maximum,
    Minimum,
    Multiply,
    Or,
    Remainder,
    Subtract,
)
from hloom.operations.transcendental import Exponential
from hloom.operations.unary import Abs, Negate, Not
from hloom.proofs.symbolic.rules import RuleBook, Sketch
from hloom.shape.element_type import F32, PRED, S32, U8

RULES: Final = RuleBook("elementwise")
NUMBERS: Final = (F32, S32)
Programs = Iterator[HloInstruction]


# -- sums and differences


@RULES.state(*NUMBERS, axes="N")
def add_constants(w: Sketch) -> Programs:
    """Add(Add(A, c1), c2) ⇒ Add(A, Add(c1, c2))."""
    n = w.sizes("n", "N")
    a, c, d = w.array("A", *n), w.array("c"), w.array("d")
    c, d = w.broadcast(c, n), w.broadcast(d, n)
    yield w.op(Add(), w.op(Add(), a, c), d)
    yield w.op(Add(), a, w.op(Add(), c, d))


@RULES.state(*NUMBERS, axes="N")
def add_zero(w: Sketch) -> Programs:
    """Add(A, 0) ⇒ A."""
    n = w.sizes("n", "N")
    a = w.array("A", *n)
    yield w.op(Add(), a, w.constant(0, *n))
    yield a


@RULES.state(*NUMBERS, axes="N")
def zero_added(w: Sketch) -> Programs:
    """Add(0, A) ⇒ A."""
    n = w.sizes("n", "N")
    a = w.array("A", *n)
    yield w.op(Add(), w.constant(0, *n), a)
    yield a


@RULES.state(*NUMBERS, axes="N")
def constant_on_the_right(w: Sketch) -> Programs:
    """Add(c, A) ⇒ Add(A, c)."""
    n = w.sizes("n", "N")
    a, c = w.array("A", *n), w.broadcast(w.array("c"), n)
    yield w.op(Add(), c, a)
    yield w.op(Add(), a, c)


@RULES.state(*NUMBERS, axes="N")
def subtract_zero(w: Sketch) -> Programs:
    """Sub(A, 0) ⇒ A."""
    n = w.sizes("n", "N")
    a = w.array("A", *n)
    yield w.op(Subtract(), a, w.constant(0, *n))
    yield a


@RULES.state(*NUMBERS, axes="N")
def subtract_constant(w: Sketch) -> Programs:
    """Sub(A, c) ⇒ Add(A, Neg(c))."""
    n = w.sizes("n", "N")
    a, c = w.array("A", *n), w.array("c")
    yield w.op(Subtract(), a, w.broadcast(c, n))
    yield w.op(Add(), a, w.broadcast(w.op(Negate(), c), n))


@RULES.state(*NUMBERS, axes="N")
def subtract_itself(w: Sketch) -> Programs:
    """Sub(A, A) ⇒ 0."""
    n = w.sizes("n", "N")
    a = w.array("A", *n)
    yield w.op(Subtract(), a, a)
    yield w.constant(0, *n)


# -- products


@RULES.state(*NUMBERS, axes="N")
def multiply_by_one(w: Sketch) -> Programs:
    """Mul(A, 1) ⇒ A."""
    n = w.sizes("n", "N")
    a = w.array("A", *n)
    yield w.op(Multiply(), a, w.constant(1, *n))
    yield a


@RULES.state(*NUMBERS, axes="N")
def one_multiplied(w: Sketch) -> Programs:
    """Mul(1, A) ⇒ A."""
    n = w.sizes("n", "N")
    a = w.array("A", *n)
    yield w.op(Multiply(), w.constant(1, *n), a)
    yield a


@RULES.state(*NUMBERS, axes="N")
def multiply_by_zero(w: Sketch) -> Programs:
    """Mul(A, 0) ⇒ 0."""
    n = w.sizes("n", "N")
    a = w.array("A", *n)
    yield w.op(Multiply(), a, w.constant(0, *n))
    yield w.constant(0, *n)


@RULES.state(*NUMBERS, axes="N")
def zero_multiplied(w: Sketch) -> Programs:
    """Mul(0, A) ⇒ 0."""
    n = w.sizes("n", "N")
    a = w.array("A", *n)
    yield w.op(Multiply(), w.constant(0, *n), a)
    yield w.constant(0, *n)


@RULES.state(*NUMBERS, axes="N")
def constants_of_factors(w: Sketch) -> Programs:
    """Mul(Mul(A, c1), Mul(B, c2)) ⇒ Mul(Mul(A, B), Mul(c1, c2))."""
    n = w.sizes("n", "N")
    a, b = w.array("A", *n), w.array("B", *n)
    c, d = (w.broadcast(w.array(name), n) for name in "cd")
    m = Multiply()
    yield w.op(m, w.op(m, a, c), w.op(m, b, d))
    yield w.op(m, w.op(m, a, b), w.op(m, c, d))


@RULES.state(*NUMBERS, axes="N")
def multiply_constants(w: Sketch) -> Programs:
    """Mul(Mul(A, c1), c2) ⇒ Mul(A, Mul(c1, c2))."""
    n = w.sizes("n", "N")
    a = w.array("A", *n)
    c, d = (w.broadcast(w.array(name), n) for name in "cd")
    m = Multiply()
    yield w.op(m, w.op(m, a, c), d)
    yield w.op(m, a, w.op(m, c, d))


@RULES.state(*NUMBERS, axes="NM")
def constant_into_broadcast(w: Sketch) -> Programs:
    """Mul(Mul(A, c), Broadcast(B)) ⇒ Mul(Broadcast(Mul(B, c)), A)."""
    n, k = w.sizes("n", "N"), w.sizes("k", "M")
    a, b, c = w.array("A", *n, *k), w.array("B", *n), w.array("c")
    into, m = range(len(n)), Multiply()
    yield w.op(m, w.op(m, a, w.broadcast(c, (*n, *k))), w.broadcast(b, (*n, *k), into))
    yield w.op(m, w.broadcast(w.op(m, b, w.broadcast(c, n)), (*n, *k), into), a)


@RULES.state(*NUMBERS, axes="N")
def common_factor(w: Sketch) -> Programs:
    """Add(Mul(A, C), Mul(B, C)) ⇒ Mul(Add(A, B), C)."""
    n = w.sizes("n", "N")
    a, b, c = (w.array(name, *n) for name in "ABC")
    yield w.op(Add(), w.op(Multiply(), a, c), w.op(Multiply(), b, c))
    yield w.op(Multiply(), w.op(Add(), a, b), c)


@RULES.state(*NUMBERS, axes="N")
def product_of_magnitudes(w: Sketch) -> Programs:
    """Mul(Abs(A), Abs(A)) ⇒ Mul(A, A)."""
    n = w.sizes("n", "N")
    a = w.array("A", *n)
    yield w.op(Multiply(), w.op(Abs(), a), w.op(Abs(), a))
    yield w.op(Multiply(), a, a)


@RULES.state(axes="N")
def product_of_exponentials(w: Sketch) -> Programs:
    """Mul(Exp(A), Exp(B)) ⇒ Exp(Add(A, B))."""
    n = w.sizes("n", "N")
    a, b = w.array("A", *n), w.array("B", *n)
    e = Exponential()
    yield w.op(Multiply(), w.op(e, a), w.op(e, b))
    yield w.op(e, w.op(Add(), a, b))


# -- quotients and remainders


@RULES.state(*NUMBERS, axes="N")
def divide_by_one(w: Sketch) -> Programs:
    """Div(A, 1) ⇒ A."""
    n = w.sizes("n", "N")
    a = w.array("A", *n)
    yield w.op(Divide(), a, w.constant(1, *n))
    yield a


@RULES.state(axes="N")
def divide_by_constant(w: Sketch) -> Programs:
    """Div(A, c) ⇒ Mul(A, 1 / c)."""
    n = w.sizes("n", "N")
    a, c = w.array("A", *n), w.array("c")
    yield w.op(Divide(), a, w.broadcast(c, n))
    yield w.op(Multiply(), a, w.broadcast(w.op(Divide(), w.constant(1), c), n))


@RULES.state(axes="N")
def quotient_of_quotients(w: Sketch) -> Programs:
    """Div(Div(A, B), Div(C, D)) ⇒ Div(Mul(A, D), Mul(B, C))."""
    n = w.sizes("n", "N")
    a, b, c, d = (w.array(name, *n) for name in "ABCD")
    yield w.op(Divide(), w.op(Divide(), a, b), w.op(Divide(), c, d))
    yield w.op(Divide(), w.op(Multiply(), a, d), w.op(Multiply(), b, c))


@RULES.state(axes="N")
def divide_by_quotient(w: Sketch) -> Programs:
    """Div(A, Div(B, C)) ⇒ Div(Mul(A, C), B)."""
    n = w.sizes("n", "N")
    a, b, c = (w.array(name, *n) for name in "ABC")
    yield w.op(Divide(), a, w.op(Divide(), b, c))
    yield w.op(Divide(), w.op(Multiply(), a, c), b)


@RULES.state(U8, axes="N")
def remainder_twice(w: Sketch) -> Programs:
    """Rem(Rem(A, B), B) ⇒ Rem(A, B)."""
    n = w.sizes("n", "N")
    a, b = w.array("A", *n), w.array("B", *n)
    yield w.op(Remainder(), w.op(Remainder(), a, b), b)
    yield w.op(Remainder(), a, b)


@RULES.state(S32, axes="NM")
def remainder_of_iota(w: Sketch) -> Programs:
    """Rem(Iota, c) ⇒ Iota, where c is at least the size."""
    n, k, m = w.sizes("n", "N"), w.sizes("k", "M"), w.sizes("m")
    sizes, at = (*n, m, *k), len(n)
    c = w.array("c")
    last = w.compare(w.iota(at, *sizes), "LT", w.broadcast(c, sizes))
    w.given(last)
    yield w.op(Remainder(), w.iota(at, *sizes), w.broadcast(c, sizes))
    yield w.iota(at, *sizes)


@RULES.state(S32, axes="NM")
def remainder_of_shifted_iota(w: Sketch) -> Programs:
    """Rem(Add(Iota, c), c) ⇒ Rem(Iota, c), where c is positive."""
    n, k, m = w.sizes("n", "N"), w.sizes("k", "M"), w.sizes("m")
    sizes, at = (*n, m, *k), len(n)
    c = w.broadcast(w.array("c"), sizes)
    w.given(w.compare(c, "GT", w.constant(0, *sizes)))
    yield w.op(Remainder(), w.op(Add(), w.iota(at, *sizes), c), c)
    yield w.op(Remainder(), w.iota(at, *sizes), c)


@RULES.state(S32, axes="N")
def remainder_of_sum(w: Sketch) -> Programs:
    """Rem(Add(X, c), c) ⇒ Rem(X, c), where X is not negative and c is positive."""
    n = w.sizes("n", "N")
    x, c = w.array("X", *n), w.broadcast(w.array("c"), n)
    zero = w.constant(0, *n)
    w.given(w.op(And(), w.compare(x, "GE", zero), w.compare(c, "GT", zero)))
    yield w.op(Remainder(), w.op(Add(), x, c), c)
    yield w.op(Remainder(), x, c)


# -- extremes


@RULES.state(*NUMBERS, axes="N")
def maximum_with_least(w: Sketch) -> Programs:
    """Max(A, -inf) ⇒ A."""
    n = w.sizes("n", "N")
    a = w.array("A", *n)
    yield w.op(Maximum(), a, w.constant(Maximum().neutral_element(w.kind) or 0, *n))
    yield a


@RULES.state(*NUMBERS, axes="N")
def minimum_with_greatest(w: Sketch) -> Programs:
    """Min(A, inf) ⇒ A."""
    n = w.sizes("n", "N")
    a = w.array("A", *n)
    yield w.op(Minimum(), a, w.constant(Minimum().neutral_element(w.kind) or 0, *n))
    yield a


@RULES.state(*NUMBERS, axes="N")
def clamp_twice(w: Sketch) -> Programs:
    """Clamp(c1, Clamp(c1, A, c2), c2) ⇒ Clamp(c1, A, c2)."""
    n = w.sizes("n", "N")
    a, low, high = w.array("A", *n), w.array("low", *n), w.array("high", *n)
    yield w.clamp(low, w.clamp(low, a, high), high)
    yield w.clamp(low, a, high)


@RULES.state(*NUMBERS, axes="N")
def maximum_of_minimum(w: Sketch) -> Programs:
    """Max(Broadcast(c1), Min(A, Broadcast(c2))) ⇒ Clamp(c1, A, c2), where c1 < c2."""
    n = w.sizes("n", "N")
    a, low, high = w.array("A", *n), w.array("low"), w.array("high")
    spread = w.broadcast(low, n), w.broadcast(high, n)
    w.given(w.compare(spread[0], "LT", spread[1]))
    yield w.op(Maximum(), spread[0], w.op(Minimum(), a, spread[1]))
    yield w.clamp(low, a, high)


@RULES.state(*NUMBERS, axes="N")
def minimum_of_maximum(w: Sketch) -> Programs:
    """Min(Broadcast(c2), Max(A, Broadcast(c1))) ⇒ Clamp(c1, A, c2)."""
    n = w.sizes("n", "N")
    a, low, high = w.array("A", *n), w.array("low"), w.array("high")
    yield w.op(Minimum(), w.broadcast(high, n), w.op(Maximum(), a, w.broadcast(low, n)))
    yield w.clamp(low, a, high)


# -- comparisons


def _compare_with_itself(direction: str, value: bool) -> None:
    def statement(w: Sketch) -> Programs:
        n = w.sizes("n", "N")
        a = w.array("A", *n)
        yield w.compare(a, direction, a)
        yield w.constant(value, *n, kind=PRED)

    statement.__name__ = f"compare_{direction.lower()}_with_itself"
    statement.__doc__ = f"{direction.capitalize()}(A, A) ⇒ {value}."
    RULES.state(S32, U8, axes="N")(statement)


for _direction in ("GT", "LT", "NE", "GE", "LE", "EQ"):
    _compare_with_itself(_direction, _direction in ("GE", "LE", "EQ"))


@RULES.state(*NUMBERS, axes="N")
def below_both(w: Sketch) -> Programs:
    """And(Lt(A, c1), Gt(c2, A)) ⇒ Lt(A, Min(c1, c2))."""
    n = w.sizes("n", "N")
    a, c, d = w.array("A", *n), w.array("c"), w.array("d")
    yield w.op(And(), w.compare(a, "LT", w.broadcast(c, n)), w.compare(w.broadcast(d, n), "GT", a))
    yield w.compare(a, "LT", w.broadcast(w.op(Minimum(), c, d), n))


@RULES.state(*NUMBERS, axes="N")
def maximum_above_second(w: Sketch) -> Programs:
    """Gt(Max(A, B), B) ⇒ Gt(A, B)."""
    n = w.sizes("n", "N")
    a, b = w.array("A", *n), w.array("B", *n)
    yield w.compare(w.op(Maximum(), a, b), "GT", b)
    yield w.compare(a, "GT", b)


@RULES.state(*NUMBERS, axes="N")
def maximum_above_first(w: Sketch) -> Programs:
    """Gt(Max(A, B), A) ⇒ Gt(B, A)."""
    n = w.sizes("n", "N")
    a, b = w.array("A", *n), w.array("B", *n)
    yield w.compare(w.op(Maximum(), a, b), "GT", a)
    yield w.compare(b, "GT", a)


# -- logic


def _with_constant(operation: Operation, name: str, value: bool, *, first: bool) -> None:
    """State ``Or(A, True) ⇒ True`` and its like."""
    decides = value is isinstance(operation, Or)

    def statement(w: Sketch) -> Programs:
        n = w.sizes("n", "N")
        a, c = w.array("A", *n), w.constant(value, *n)
        yield w.op(operation, *((c, a) if first else (a, c)))
        yield c if decides else a

    word = f"{value}, A" if first else f"A, {value}"
    statement.__name__ = f"{name.lower()}_{str(value).lower()}_{'first' if first else 'last'}"
    statement.__doc__ = f"{name}({word}) ⇒ {value if decides else 'A'}."
    RULES.state(PRED, axes="N")(statement)


for _operation, _name in ((Or(), "Or"), (And(), "And")):
    for _value in (True, False):
        for _first in (False, True):
            _with_constant(_operation, _name, _value, first=_first)


@RULES.state(PRED, S32, axes="N")
def not_twice(w: Sketch) -> Programs:
    """Not(Not(A)) ⇒ A."""
    n = w.sizes("n", "N")
    a = w.array("A", *n)
    yield w.op(Not(), w.op(Not(), a))
    yield a


@RULES.state(*NUMBERS, axes="N")
def negate_twice(w: Sketch) -> Programs:
    """Negate(Negate(A)) ⇒ A."""
    n = w.sizes("n", "N")
    a = w.array("A", *n)
    yield w.op(Negate(), w.op(Negate(), a))
    yield a


# -- selections


@RULES.state(*NUMBERS, axes="N")
def select_of_one(w: Sketch) -> Programs:
    """Select(P, A, A) ⇒ A."""
    n = w.sizes("n", "N")
    p, a = w.array("P", *n, kind=PRED), w.array("A", *n)
    yield w.select(p, a, a)
    yield a


@RULES.state(*NUMBERS, axes="N")
def select_true(w: Sketch) -> Programs:
    """Select(True, A, B) ⇒ A."""
    n = w.sizes("n", "N")
    a, b = w.array("A", *n), w.array("B", *n)
    yield w.select(w.constant(True, *n, kind=PRED), a, b)
    yield a


@RULES.state(*NUMBERS, axes="N")
def select_false(w: Sketch) -> Programs:
    """Select(False, A, B) ⇒ B."""
    n = w.sizes("n", "N")
    a, b = w.array("A", *n), w.array("B", *n)
    yield w.select(w.constant(False, *n, kind=PRED), a, b)
    yield b


@RULES.state(*NUMBERS, axes="N")
def select_of_not(w: Sketch) -> Programs:
    """Select(Not(P), A, B) ⇒ Select(P, B, A)."""
    n = w.sizes("n", "N")
    p, a, b = w.array("P", *n, kind=PRED), w.array("A", *n), w.array("B", *n)
    yield w.select(w.op(Not(), p), a, b)
    yield w.select(p, b, a)
