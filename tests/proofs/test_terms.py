"""Terms of any size: what they are made of, what they depend on, and what replaces their variables."""

from __future__ import annotations

import pytest

from hloom.operations.arithmetic import Add, Maximum
from hloom.proofs.symbolic.elements import scalar
from hloom.proofs.symbolic.polynomial import Polynomial
from hloom.proofs.symbolic.sizes import Constraint
from hloom.proofs.symbolic.terms import (
    Access,
    Apply,
    Choose,
    IndexValue,
    Sum,
    Term,
    substituted,
    subterms,
    variables_of,
)
from hloom.shape.element_type import F32, S32

Q, J, K, N = (Polynomial.variable(name) for name in "ijkn")
BELOW = Constraint(J - N, is_equation=False)
X = Access((0,), Q * N + J, F32, ((Q, N), (J, N)))
ROW = IndexValue(Q, S32)
ZERO = scalar(0, F32)
CHOICE = Choose((BELOW,), X, ZERO)
TOTAL = Sum(
    Add(),
    True,
    (("k", N),),
    (Constraint(K - J, is_equation=False),),
    (Access((1,), K, F32),),
    (ZERO, ROW),
    0,
    F32,
)
SUMMED = Apply(Add(), (CHOICE, TOTAL), F32)


@pytest.mark.parametrize(
    ("term", "parts", "variables"),
    [
        (X, (), {"i", "j", "n"}),
        (ROW, (), {"i"}),
        (ZERO, (), set[str]()),
        (CHOICE, (X, ZERO), {"i", "j", "n"}),
        (TOTAL, (TOTAL.bodies[0], ZERO, ROW), {"i", "j", "k", "n"}),
        (SUMMED, (CHOICE, TOTAL), {"i", "j", "k", "n"}),
    ],
)
def test_parts_and_variables(term: Term, parts: tuple[Term, ...], variables: set[str]) -> None:
    assert subterms(term) == parts
    assert variables_of(term) == variables


def test_variables_are_replaced_everywhere() -> None:
    """In indices, coordinates, conditions, extents, bodies and initial values; types stay."""
    image = {"i": J, "n": N + Polynomial.constant(1)}
    more = N + Polynomial.constant(1)
    x = Access((0,), J * more + J, F32, ((J, more), (J, more)))
    choice = Choose((Constraint(J - more, is_equation=False),), x, ZERO)
    row = IndexValue(J, S32)
    total = Sum(Add(), True, (("k", more),), TOTAL.guard, TOTAL.bodies, (ZERO, row), 0, F32)
    for term, expected in ((X, x), (ROW, row), (CHOICE, choice), (TOTAL, total), (ZERO, ZERO)):
        assert substituted(term, image) == expected
        assert substituted(term, {}) is term
    replaced = substituted(SUMMED, image)
    assert replaced == Apply(Add(), (choice, total), F32)
    result = substituted(X, image)
    assert isinstance(result, Access) and result.coordinates == ((J, more), (J, more))
    assert substituted(TOTAL, {"j": Q}) == Sum(
        Add(),
        True,
        TOTAL.variables,
        (Constraint(K - Q, is_equation=False),),
        TOTAL.bodies,
        TOTAL.initial,
        0,
        F32,
    )


def test_types_of_terms() -> None:
    assert CHOICE.element_type is F32
    products = Sum("products f32", True, (), (), (X,), (), 0, F32)
    assert products.combiner_is_products
    assert not TOTAL.combiner_is_products
    assert not Sum(Maximum(), True, (), (), (X,), (), 0, F32).combiner_is_products
    assert not Sum("fold", False, (), (), (X,), (), 0, F32).combiner_is_products
