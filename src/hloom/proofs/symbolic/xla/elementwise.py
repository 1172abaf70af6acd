"""Rules for elementwise operations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import Add, Maximum, Minimum, Multiply, Remainder
from hloom.proofs.symbolic.formulas import state_formulas
from hloom.proofs.symbolic.rules import RuleBook, Sketch
from hloom.shape.element_type import F32, PRED, S32, U8

RULES: Final = RuleBook("elementwise")
NUMBERS: Final = (F32, S32)
Programs = Iterator[HloInstruction]


state_formulas(
    RULES,
    *NUMBERS,
    add_constants="Add(Add(A, c), d) ⇒ Add(A, Add(c, d))",
    add_zero="Add(A, 0) ⇒ A",
    zero_added="Add(0, A) ⇒ A",
    constant_on_the_right="Add(c, A) ⇒ Add(A, c)",
    subtract_zero="Subtract(A, 0) ⇒ A",
    subtract_constant="Subtract(A, c) ⇒ Add(A, Negate(c))",
    subtract_itself="Subtract(A, A) ⇒ 0",
    multiply_by_one="Multiply(A, 1) ⇒ A",
    one_multiplied="Multiply(1, A) ⇒ A",
    multiply_by_zero="Multiply(A, 0) ⇒ 0",
    zero_multiplied="Multiply(0, A) ⇒ 0",
    constants_of_factors="Multiply(Multiply(A, c), Multiply(B, d)) ⇒ "
    "Multiply(Multiply(A, B), Multiply(c, d))",
    multiply_constants="Multiply(Multiply(A, c), d) ⇒ Multiply(A, Multiply(c, d))",
    common_factor="Add(Multiply(A, C), Multiply(B, C)) ⇒ Multiply(Add(A, B), C)",
    product_of_magnitudes="Multiply(Abs(A), Abs(A)) ⇒ Multiply(A, A)",
    divide_by_one="Divide(A, 1) ⇒ A",
    clamp_twice="Clamp(L, Clamp(L, A, H), H) ⇒ Clamp(L, A, H)",
    maximum_of_minimum="Maximum(c, Minimum(A, d)) ⇒ Clamp(c, A, d), where Lt(c, d)",
    minimum_of_maximum="Minimum(d, Maximum(A, c)) ⇒ Clamp(c, A, d)",
    below_both="And(Lt(A, c), Gt(d, A)) ⇒ Lt(A, Minimum(c, d))",
    maximum_above_second="Gt(Maximum(A, B), B) ⇒ Gt(A, B)",
    maximum_above_first="Gt(Maximum(A, B), A) ⇒ Gt(B, A)",
    negate_twice="Negate(Negate(A)) ⇒ A",
    select_of_one="Select(P, A, A) ⇒ A",
    select_true="Select(True, A, B) ⇒ A",
    select_false="Select(False, A, B) ⇒ B",
    select_of_not="Select(Not(P), A, B) ⇒ Select(P, B, A)",
)
state_formulas(
    RULES,
    product_of_exponentials="Multiply(Exponential(A), Exponential(B)) ⇒ Exponential(Add(A, B))",
    divide_by_constant="Divide(A, c) ⇒ Multiply(A, Divide(1, c))",
    quotient_of_quotients="Divide(Divide(A, B), Divide(C, D)) ⇒ Divide(Multiply(A, D), Multiply(B, C))",
    divide_by_quotient="Divide(A, Divide(B, C)) ⇒ Divide(Multiply(A, C), B)",
)
state_formulas(RULES, U8, remainder_twice="Remainder(Remainder(A, B), B) ⇒ Remainder(A, B)")
state_formulas(
    RULES,
    S32,
    remainder_of_sum="Remainder(Add(A, c), c) ⇒ Remainder(A, c), where And(Ge(A, 0), Gt(c, 0))",
)
state_formulas(RULES, PRED, S32, not_twice="Not(Not(A)) ⇒ A")
state_formulas(
    RULES,
    S32,
    U8,
    compare_gt_with_itself="Gt(A, A) ⇒ False",
    compare_lt_with_itself="Lt(A, A) ⇒ False",
    compare_ne_with_itself="Ne(A, A) ⇒ False",
    compare_ge_with_itself="Ge(A, A) ⇒ True",
    compare_le_with_itself="Le(A, A) ⇒ True",
    compare_eq_with_itself="Eq(A, A) ⇒ True",
)
state_formulas(
    RULES,
    PRED,
    or_true_last="Or(A, True) ⇒ True",
    or_true_first="Or(True, A) ⇒ True",
    or_false_last="Or(A, False) ⇒ A",
    or_false_first="Or(False, A) ⇒ A",
    and_true_last="And(A, True) ⇒ A",
    and_true_first="And(True, A) ⇒ A",
    and_false_last="And(A, False) ⇒ False",
    and_false_first="And(False, A) ⇒ False",
)


@RULES.state(*NUMBERS, axes="NM")
def constant_into_broadcast(w: Sketch) -> Programs:
    """Mul(Mul(A, c), Broadcast(B)) ⇒ Mul(Broadcast(Mul(B, c)), A)."""
    n, k = w.sizes("n", "N"), w.sizes("k", "M")
    a, b, c = w.array("A", *n, *k), w.array("B", *n), w.array("c")
    into, m = range(len(n)), Multiply()
    yield w.op(m, w.op(m, a, w.broadcast(c, (*n, *k))), w.broadcast(b, (*n, *k), into))
    yield w.op(m, w.broadcast(w.op(m, b, w.broadcast(c, n)), (*n, *k), into), a)


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
