"""Degrees of fingerprints: bounds from which the probability of a wrong proof follows."""

from __future__ import annotations

import pytest

from hloom.proofs.degrees import (
    CONSTANT,
    LARGEST_POWER,
    RANDOM,
    Degree,
    degree_of,
    largest,
    product,
    terms_of,
    total,
)
from tests.evaluation import parse
from tests.reducers import binary

DOT = "f32[4,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
TWO, FIVE, FRACTION = Degree(2), Degree(5), Degree(3, True)

PROGRAM = """{combiner}
    ENTRY e {{
      x = f32[4,3] parameter(0)
      y = f32[4,3] parameter(1)
      c = f32[] parameter(2)
      p = pred[4,3] parameter(3)
      q = pred[4,3] parameter(4)
      o = pred[3,4] parameter(5)
      h = f16[4,3] parameter(6)
      m = s32[4,3] parameter(7)
      n = s32[4,3] parameter(8)
      u = f32[2,1] parameter(9)
      i = s32[] parameter(10)
      j = s32[] parameter(11)
      k = f32[1,3,5] parameter(12)
      s = f32[2,9,3] parameter(13)
      ROOT r = {line}
    }}"""


def degree(line: str, *degrees: Degree, has_fractions: bool = True, combiner: str = "") -> Degree:
    """Return the degree of one operation on parameters: x, y of f32[4,3], c of f32[] and others."""
    text = PROGRAM.format(combiner=combiner, line=line)
    root = parse(text).entry.root
    return degree_of(root, degrees, forms_ring=True, has_fractions=has_fractions)


def test_sums_have_the_largest_degree_and_products_the_sum_of_all() -> None:
    assert largest([TWO, FIVE]) == total([TWO, FIVE]) == FIVE
    assert product([TWO, FIVE]) == Degree(7)
    assert largest([]) == product([]) == RANDOM


def test_sums_of_fractions_multiply_the_denominators() -> None:
    assert total([TWO, FRACTION]) == Degree(5, True)
    assert total([FRACTION], terms=4) == Degree(12, True)
    assert largest([TWO, FRACTION]) == Degree(3, True)


@pytest.mark.parametrize(("line", "degrees", "bound"), [
    ("f32[4,3] add(x, y)", (TWO, FIVE), FIVE),
    ("f32[4,3] multiply(x, y)", (TWO, FIVE), Degree(7)),
    ("f32[4,3] divide(x, y)", (TWO, FIVE), Degree(7, True)),
    ("f32[4,3] divide(x, y)", (TWO, CONSTANT), TWO),
    ("f32[4,3] divide(x, y)", (FRACTION, CONSTANT), FRACTION),
    (DOT, (TWO, FIVE), Degree(7)),
    (DOT, (TWO, FRACTION), Degree(15, True)),
    ("f32[3,4] transpose(x), dimensions={1,0}", (FIVE,), FIVE),
    ("f32[4,3] sine(x)", (FIVE,), RANDOM),
    ("f32[4,3] maximum(x, y)", (TWO, FIVE), FIVE),
    ("f32[4,3] copy(x)", (FRACTION,), FRACTION),
    ("f32[4,3] negate(x)", (FRACTION,), FRACTION),
    ("f32[4,3] logistic(x)", (FIVE,), Degree(1, True)),
    ("f32[4,3] rsqrt(x)", (FIVE,), Degree(1, True)),
    ("f32[4,3] power(x, y)", (TWO, CONSTANT), Degree(2 * LARGEST_POWER, True)),
    ("f32[4,3] divide(x, y)", (CONSTANT, FIVE), Degree(5, True)),
    # A choice is p x + (1 - p) y.
    ("f32[4,3] select(p, x, y)", (TWO, TWO, FIVE), Degree(7)),
    ("f32[4,3] select(p, x, y)", (TWO, TWO, FRACTION), Degree(7, True)),
    # Types without a ring of the field, and comparisons of numbers, have random values.
    ("f16[4,3] add(h, h)", (FIVE, FIVE), RANDOM),
    ("pred[4,3] compare(x, y), direction=LT", (TWO, FIVE), RANDOM),
    ("pred[4,3] compare(p, q), direction=EQ", (TWO, FIVE), Degree(7)),
    ("pred[4,3] and(p, q)", (TWO, FIVE), Degree(7)),
    ("pred[4,3] xor(p, q)", (CONSTANT, CONSTANT), Degree(1)),
    ("pred[4,3] transpose(o), dimensions={1,0}", (FIVE,), FIVE),
    ("pred[4,3] is-finite(x)", (FIVE,), RANDOM),
    # Integers: quotients are functions, bitwise operations are decided bit by bit.
    ("s32[4,3] divide(m, n)", (FIVE, FIVE), Degree(2)),
    ("s32[4,3] remainder(m, n)", (FIVE, FIVE), Degree(2)),
    ("s32[4,3] and(m, n)", (TWO, FIVE), FIVE),
    ("s32[4,3] shift-left(m, n)", (TWO, FIVE), FIVE),
    # An update at an unknown place adds the changes of its elements, by an index of each dimension.
    ("f32[4,3] dynamic-update-slice(x, u, i, j)", (TWO, FIVE, CONSTANT, CONSTANT), FIVE),
    ("f32[4,3] dynamic-update-slice(x, u, i, j)", (TWO, FIVE, CONSTANT, RANDOM), Degree(7)),
    ("f32[4,3] dynamic-update-slice(x, u, i, j)", (TWO, FRACTION, RANDOM, CONSTANT), Degree(12, True)),
])  # fmt: skip
def test_operations(line: str, degrees: tuple[Degree, ...], bound: Degree) -> None:
    assert degree(line, *degrees) == bound


def test_quotients_are_random_numbers_where_there_are_no_inverses() -> None:
    assert degree("f32[4,3] divide(x, y)", TWO, FIVE, has_fractions=False) == Degree(3)
    assert degree("f32[4,3] divide(x, y)", TWO, CONSTANT, has_fractions=False) == TWO


@pytest.mark.parametrize(("opcode", "degrees", "bound"), [
    ("add", (TWO, CONSTANT), TWO),
    ("add", (FRACTION, CONSTANT), Degree(9, True)),
    ("multiply", (TWO, CONSTANT), Degree(6)),
    ("multiply", (FRACTION, CONSTANT), Degree(9, True)),
    ("maximum", (FIVE, CONSTANT), FIVE),
])  # fmt: skip
def test_reductions_of_rows_of_three(opcode: str, degrees: tuple[Degree, ...], bound: Degree) -> None:
    line = "f32[4] reduce(x, c), dimensions={1}, to_apply=f"
    assert degree(line, *degrees, combiner=binary(opcode)) == bound


@pytest.mark.parametrize(("line", "terms"), [
    (DOT, 3),
    ("f32[4] reduce(x, c), dimensions={1}, to_apply=f", 3),
    ("f32[] reduce(x, c), dimensions={0,1}, to_apply=f", 12),
    ("f32[4,3] reduce(x, c), dimensions={}, to_apply=f", 1),
    ("f32[3,3] reduce-window(x, c), window={size=2x1}, to_apply=f", 2),
    ("f32[2,9,5] convolution(s, k), window={size=1}, dim_labels=b0f_0io->b0f", 3),
    ("f32[4,3] negate(x)", 12),
])  # fmt: skip
def test_terms_of_a_sum(line: str, terms: int) -> None:
    with_combiner = f"{binary('add')}\n" if "to_apply" in line else ""
    assert degree(line, TWO, FIVE, combiner=with_combiner) is not None
    text = PROGRAM.format(combiner=with_combiner, line=line)
    assert terms_of(parse(text).entry.root) == terms


def test_reductions_of_predicates_are_products() -> None:
    line = "pred[4] reduce(p, t), dimensions={1}, to_apply=f"
    text = PROGRAM.replace("ROOT", "t = pred[] constant(true)\n      ROOT")
    root = parse(text.format(combiner=binary("and", "pred"), line=line)).entry.root
    assert degree_of(root, (TWO, CONSTANT), forms_ring=True, has_fractions=True) == Degree(6)


def test_a_type_without_a_ring_has_random_numbers() -> None:
    root = parse(PROGRAM.format(combiner="", line="f32[4,3] add(x, y)")).entry.root
    assert degree_of(root, (FIVE, FIVE), forms_ring=False, has_fractions=True) == RANDOM
