"""Degrees of fingerprints: bounds from which the probability of a wrong proof follows."""

from __future__ import annotations

import pytest

from hloom.proofs.degrees import CONSTANT, RANDOM, Degree, degree_of, largest, product, total
from tests.evaluation import parse
from tests.reducers import binary

DOT = "f32[4,4] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
TWO, FIVE, FRACTION = Degree(2), Degree(5), Degree(3, True)


def degree(line: str, *degrees: Degree, has_fractions: bool = True, combiner: str = "") -> Degree:
    """Return the degree of one operation on x, y: f32[4,3] and c: f32[]."""
    text = f"""{combiner}
    ENTRY e {{
      x = f32[4,3] parameter(0)
      y = f32[4,3] parameter(1)
      c = f32[] parameter(2)
      ROOT r = {line}
    }}"""
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
