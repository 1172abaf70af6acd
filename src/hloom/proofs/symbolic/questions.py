"""Questions about integers to z3, of which only what is connected is asked, and each but for names once.

Statements that have no variable in common with a question, nor with what is connected to it, do not change
the answer. So sizes of one dimension do not make those of another harder, and a question about the third
dimension is that about the first, under other names.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field, replace
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, Final, TypeAlias

from hloom.errors import HloError
from hloom.proofs.symbolic.polynomial import Polynomial
from hloom.proofs.symbolic.sizes import Constraint
from hloom.records import dataclass

EFFORT: Final = 3_000_000
"""Limit on z3's steps for a question; a second or so. Beyond it nothing is known, on every machine alike."""
QUESTION: Final = 5_000
"""Steps that each question counts as, besides z3's: what it takes to come to it."""
MOST_EFFORT: Final = 100_000_000
"""Limit on the steps of one proof."""

Formula: TypeAlias = Any
"""A z3 expression; z3 states no types."""


@dataclass(frozen=True, slots=True)
class Implication:
    """A fact that holds where a guard does: all of the guard's comparisons imply all of the others."""

    guard: tuple[Constraint, ...]
    comparisons: tuple[Constraint, ...]
    variables: frozenset[str] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        names = frozenset[str]().union(*(c.variables for c in (*self.guard, *self.comparisons)))
        object.__setattr__(self, "variables", names)


Statement: TypeAlias = "Constraint | Implication"


@cache
def solver_library() -> Any:
    """Return the module z3; raise HloError (``prove.solver``) where it is not installed."""
    try:
        return import_module("z3")
    except ImportError:
        message = "proofs for all sizes need z3: pip install 'hloom[prove]'"
        raise HloError(message, rule="prove.solver") from None


# -- effort


class TooMuchEffort(Exception):
    """A proof takes more steps than it may."""


@dataclass(slots=True)
class Effort:
    """The steps of a proof: how many it may take, and has taken; each question counts once."""

    most: int
    steps: int = 0
    asked: set[tuple[Statement, ...]] = field(default_factory=set[tuple["Statement", ...]])


_EFFORT: ContextVar[Effort | None] = ContextVar("effort", default=None)


@contextmanager
def limited_effort(most: int = MOST_EFFORT) -> Generator[Effort]:
    """Limit the steps of a proof, of its questions that other proofs have asked before too.

    The limit is the same on every machine. Beyond it, questions raise TooMuchEffort.
    """
    effort = Effort(most)
    token = _EFFORT.set(effort)
    try:
        yield effort
    finally:
        _EFFORT.reset(token)


def _spend(steps: int, question: tuple[Statement, ...] = ()) -> None:
    """Count a question to z3, and its steps if the proof under way has not asked it before."""
    effort = _EFFORT.get()
    if effort is None:
        return
    effort.steps += QUESTION if question in effort.asked else QUESTION + steps
    if question:
        effort.asked.add(question)
    if effort.steps > effort.most:
        raise TooMuchEffort


def _checked(solver: Formula) -> tuple[Any, int]:
    """Return a solver's answer within `EFFORT`, and the number of its steps."""
    solver.set("rlimit", EFFORT)
    before = solver.statistics().get_key_value("rlimit count")
    answer = solver.check()
    return answer, solver.statistics().get_key_value("rlimit count") - before


def check(solver: Formula) -> Any:
    """Return the answer of one of z3's solvers within `EFFORT`; TooMuchEffort beyond that of the proof."""
    answer, steps = _checked(solver)
    _spend(steps)
    return answer


# -- questions


@dataclass(frozen=True, slots=True)
class Satisfiability:
    """Whether numbers satisfy some statements.

    Attributes:
        is_possible: None where z3 does not decide it.
        values: of the variables, if numbers satisfy them.
        steps: the number of z3's steps.
    """

    is_possible: bool | None
    values: Mapping[str, int] = field(default_factory=dict[str, int])
    steps: int = 0


def connected(goals: Sequence[Statement], statements: Iterable[Statement]) -> list[Statement]:
    """Return the statements that share variables with goals, directly or by others, and the goals, first."""
    names = set[str]().union(*(goal.variables for goal in goals))
    remaining, result = [s for s in statements if s not in goals], list(goals)
    while True:
        others: list[Statement] = []
        for statement in remaining:
            if names.isdisjoint(statement.variables):
                others.append(statement)
            else:
                names |= statement.variables
                result.append(statement)
        if len(others) == len(remaining):
            return result
        remaining = others


def components(statements: Iterable[Statement]) -> list[list[Statement]]:
    """Return statements in groups that have no variables in common."""
    groups: list[tuple[set[str], list[Statement]]] = []
    for statement in statements:
        names, members = set(statement.variables), list[Statement]()
        separate: list[tuple[set[str], list[Statement]]] = []
        for group in groups:
            if names.isdisjoint(group[0]):
                separate.append(group)
            else:
                names |= group[0]
                members += group[1]
        groups = [*separate, (names, [*members, statement])]
    return [members for _, members in groups]


def ask(statements: Sequence[Statement]) -> Satisfiability:
    """Return whether numbers fulfil all of some statements, and such numbers."""
    remaining, definitions = _eliminated(statements)
    values: dict[str, int] = {}
    is_possible: bool | None = True
    for group in components(remaining):
        names: dict[str, str] = {}
        question = tuple(_renamed(s, names) for s in group)
        answer = _answer(question)
        _spend(answer.steps, question)
        if answer.is_possible is False:
            return answer
        is_possible = is_possible and answer.is_possible
        values |= {n: answer.values[v] for n, v in names.items() if v in answer.values}
    if not is_possible:
        return Satisfiability(is_possible)
    for name in set[str]().union(*(s.variables for s in statements)) - definitions.keys():
        values.setdefault(name, 0)
    return Satisfiability(True, values | {name: value.at(values) for name, value in definitions.items()})


def _eliminated(statements: Sequence[Statement]) -> tuple[list[Statement], dict[str, Polynomial]]:
    """Return statements without the variables that equations define, and the values of these."""
    remaining, definitions = list(dict.fromkeys(statements)), dict[str, Polynomial]()
    while (defined := next(_definitions(remaining), None)) is not None:
        equation, name, value = defined
        new = {name: value}
        definitions = {n: v.substitute(new) for n, v in definitions.items()} | new
        others = dict.fromkeys(_substituted(s, new) for s in remaining if s is not equation)
        remaining = [s for s in others if not is_true(s)]
    return remaining, definitions


def _definitions(statements: Sequence[Statement]) -> Iterator[tuple[Statement, str, Polynomial]]:
    """Yield equations that define a variable, the variable and its value."""
    for equation in statements:
        if isinstance(equation, Constraint) and equation.is_equation and equation.holds:
            for name in sorted(equation.variables):
                value = equation.polynomial.solve(name)
                if value is not None:
                    yield equation, name, value


def _substituted(statement: Statement, definitions: Mapping[str, Polynomial]) -> Statement:
    if definitions.keys().isdisjoint(statement.variables):
        return statement
    if isinstance(statement, Implication):
        guard, then = (
            tuple(replace(c, polynomial=c.polynomial.substitute(definitions)) for c in part)
            for part in (statement.guard, statement.comparisons)
        )
        return Implication(guard, then)
    return replace(statement, polynomial=statement.polynomial.substitute(definitions))


def is_true(statement: Statement) -> bool:
    """Return whether a statement is a comparison of constants that holds."""
    if isinstance(statement, Implication) or statement.variables:
        return False
    return statement.is_true_of(statement.polynomial.value or 0)


def _renamed(statement: Statement, names: dict[str, str]) -> Statement:
    if isinstance(statement, Implication):
        guard, then = (
            tuple(_renamed_comparison(c, names) for c in part)
            for part in (statement.guard, statement.comparisons)
        )
        return Implication(guard, then)
    return _renamed_comparison(statement, names)


def _renamed_comparison(comparison: Constraint, names: dict[str, str]) -> Constraint:
    polynomial = Polynomial(
        (tuple(sorted(names.setdefault(v, f"v{len(names)}") for v in monomial)), coefficient)
        for monomial, coefficient in comparison.polynomial.terms
    )
    return Constraint(polynomial, comparison.is_equation, comparison.holds)


@lru_cache(200_000)
def _answer(statements: tuple[Statement, ...]) -> Satisfiability:
    # z3's tactics for non-linear integers give up where its plain solver answers; that solver gives up where
    # the same, after the equations are solved, answers at once. The order in which both go depends on what
    # their context has seen: each question has its own, so that answers do not depend on questions before.
    z3 = solver_library()
    context = z3.Context()
    solving = z3.Then("simplify", "propagate-values", "solve-eqs", "smt", ctx=context)
    total = 0
    for solver in (z3.SimpleSolver(ctx=context), solving.solver()):
        solver.add(*(truth(s).translate(context) for s in statements))
        found, steps = _checked(solver)
        total += steps
        if found != z3.unknown:
            break
    if found != z3.sat:
        return Satisfiability(False if found == z3.unsat else None, steps=total)
    model = solver.model()
    names = set[str]().union(*(s.variables for s in statements))
    values = {n: model.eval(z3.Int(n, context), model_completion=True).as_long() for n in names}
    return Satisfiability(True, values, total)


# -- formulas


@cache
def variable(name: str) -> Formula:
    """Return a variable as a z3 integer."""
    return solver_library().Int(name)


@lru_cache(100_000)
def formula(polynomial: Polynomial) -> Formula:
    """Return a polynomial as a z3 integer."""
    z3 = solver_library()
    products: list[Formula] = []
    for monomial, coefficient in polynomial.terms:
        factors: list[Formula] = [variable(name) for name in monomial]
        if coefficient != 1 or not factors:
            factors.insert(0, z3.IntVal(coefficient))
        products.append(z3.Product(*factors))
    return z3.Sum(*products) if products else z3.IntVal(0)


@lru_cache(100_000)
def truth(statement: Statement) -> Formula:
    """Return a statement as a z3 truth value."""
    z3 = solver_library()
    if isinstance(statement, Implication):
        guard, then = (z3.And(*map(truth, part)) for part in (statement.guard, statement.comparisons))
        return z3.Implies(guard, then)
    value = formula(statement.polynomial)
    if statement.is_equation:
        return value == 0 if statement.holds else value != 0
    return value >= 0 if statement.holds else value < 0
