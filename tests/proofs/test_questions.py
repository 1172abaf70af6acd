"""Questions to z3: answers are those of trying all numbers; only what is connected is asked, and once."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping

import pytest

from hloom.proofs.symbolic import questions
from hloom.proofs.symbolic.polynomial import Polynomial
from hloom.proofs.symbolic.questions import (
    Implication,
    Statement,
    TooMuchEffort,
    ask,
    components,
    connected,
    limited_effort,
)
from hloom.proofs.symbolic.sizes import Constraint

pytest.importorskip("z3", reason="z3 is not installed")

NAMES = ("a", "b", "c", "d")
A, B, C, D = map(Polynomial.variable, NAMES)
TWO = Polynomial.constant(2)


def at_least_zero(polynomial: Polynomial) -> Constraint:
    return Constraint(polynomial, is_equation=False)


def is_zero(polynomial: Polynomial) -> Constraint:
    return Constraint(polynomial, is_equation=True)


BOUNDS = [c for v in (A, B, C, D) for c in (at_least_zero(TWO - v), at_least_zero(TWO + v))]
"""Every variable is in -2 to 2."""


def drawn(draw: random.Random) -> Statement:
    """Return a comparison of a polynomial of few terms, or an implication of two."""
    terms = [(tuple(sorted(draw.choices(NAMES, k=draw.randint(0, 2)))), draw.randint(-2, 2)) for _ in "abc"]
    comparison = Constraint(Polynomial(terms), draw.random() < 0.5, draw.random() < 0.7)
    other = at_least_zero(draw.choice((A, B, -C, D - TWO)))
    return comparison if draw.random() < 0.8 else Implication((other,), (comparison,))


def holds(statement: Statement, values: Mapping[str, int]) -> bool:
    if isinstance(statement, Implication):
        return not all(holds(c, values) for c in statement.guard) or all(
            holds(c, values) for c in statement.comparisons
        )
    return statement.is_true_of(statement.polynomial.at(values))


@pytest.mark.parametrize("seed", range(60))
def test_answers_are_those_of_trying_all_numbers(seed: int) -> None:
    draw = random.Random(seed)
    statements = [drawn(draw) for _ in range(draw.randint(1, 5))] + BOUNDS
    grid = (dict[str, int](zip(NAMES, v, strict=True)) for v in itertools.product(range(-2, 3), repeat=4))
    is_possible = any(all(holds(s, values) for s in statements) for values in grid)
    answer = ask(statements)
    assert answer.is_possible is is_possible
    assert not is_possible or all(holds(s, answer.values) for s in statements)


def test_only_what_is_connected_is_asked() -> None:
    ab, bc, d = at_least_zero(A - B), is_zero(B * C), at_least_zero(D)
    assert connected([at_least_zero(C)], [ab, d, bc]) == [at_least_zero(C), bc, ab]
    assert sorted(map(len, components([ab, d, bc]))) == [1, 2]


def test_a_question_is_asked_once_but_for_names() -> None:
    ask([at_least_zero(A * B - TWO), at_least_zero(A)])
    before = questions._answer.cache_info()  # pyright: ignore[reportPrivateUsage]
    ask([at_least_zero(C * D - TWO), at_least_zero(C)])
    after = questions._answer.cache_info()  # pyright: ignore[reportPrivateUsage]
    assert (after.misses, after.hits) == (before.misses, before.hits + 1)


def test_steps_are_those_of_questions_that_were_answered_before_too() -> None:
    """The number of steps of a proof is the same whether or not its questions were cached."""
    question = [is_zero(A * A + B * B - Polynomial.constant(97 * 89)), at_least_zero(A - B)]
    costs: list[int] = []
    for _ in "ab":
        with limited_effort() as effort:
            ask(question)
        costs.append(effort.steps)
    assert costs[0] == costs[1] > questions.QUESTION


def test_questions_beyond_the_effort_of_a_proof_are_not_answered() -> None:
    with limited_effort(3 * questions.QUESTION), pytest.raises(TooMuchEffort):
        for n in range(5):
            ask([at_least_zero(A - Polynomial.constant(n))])
    assert ask([at_least_zero(A)]).is_possible


def test_answers_do_not_depend_on_the_questions_before() -> None:
    """Values and steps are the same after each order of the questions."""
    draw = random.Random(7)
    asked = [[*BOUNDS, *(drawn(draw) for _ in range(6))] for _ in range(12)]
    answers: list[list[questions.Satisfiability]] = []
    for order in (range(12), reversed(range(12))):
        questions._answer.cache_clear()
        answered = {n: questions._answer(tuple(asked[n])) for n in order}
        answers.append([answered[n] for n in range(12)])
    assert answers[0] == answers[1]
