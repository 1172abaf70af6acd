"""What is known about sizes and indices, and what follows from it: polynomial identities, or z3's answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, Final, TypeAlias

from hloom.errors import HloError
from hloom.proofs.symbolic.polynomial import Polynomial
from hloom.proofs.symbolic.sizes import Constraint, Division

EFFORT: Final = 3_000_000
"""Limit on z3's steps for a question; a second or so. Beyond it nothing is known, on every machine alike."""

Formula: TypeAlias = Any
"""A z3 expression; z3 states no types."""


@cache
def solver_library() -> Any:
    """Return the module z3; raise HloError (``prove.solver``) where it is not installed."""
    try:
        return import_module("z3")
    except ImportError:
        message = "proofs for all sizes need z3: pip install 'hloom[prove]'"
        raise HloError(message, rule="prove.solver") from None


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
def relation(comparison: Constraint) -> Formula:
    """Return a comparison as a z3 truth value."""
    value = formula(comparison.polynomial)
    if comparison.is_equation:
        return value == 0 if comparison.holds else value != 0
    return value >= 0 if comparison.holds else value < 0


@dataclass(frozen=True, slots=True)
class Implication:
    """A fact that holds where a guard does: all of the guard's comparisons imply all of the others."""

    guard: tuple[Constraint, ...]
    comparisons: tuple[Constraint, ...]


@dataclass(slots=True)
class Facts:
    """Comparisons that hold, and conclusions from them.

    Attributes:
        comparisons: what holds.
        conditionals: implications that hold.
        definitions: variables that an equation determines, and their values, which contain none of them.
        lows: least values of variables.
    """

    comparisons: tuple[Constraint, ...] = ()
    conditionals: tuple[Implication, ...] = ()
    definitions: dict[str, Polynomial] = field(default_factory=dict[str, Polynomial])
    lows: dict[str, int] = field(default_factory=dict[str, int])
    _answers: dict[Constraint, bool] = field(default_factory=dict[Constraint, bool])
    _solver: Formula = None

    @classmethod
    def of(
        cls,
        comparisons: Iterable[Constraint],
        divisions: Sequence[Division] = (),
        conditionals: Iterable[Implication] = (),
    ) -> Facts:
        """Return the facts of a trail."""
        listed = (*conditionals, *map(division_facts, divisions))
        return cls(conditionals=tuple(listed)).assume(*comparisons)

    def assume(self, *comparisons: Constraint) -> Facts:
        """Return the facts with some more; equations define variables."""
        definitions, lows = dict(self.definitions), dict(self.lows)
        added: list[Constraint] = []
        for comparison in comparisons:
            polynomial = comparison.polynomial.substitute(definitions)
            if polynomial.value is not None and _truth(comparison, polynomial.value):
                continue
            if polynomial != comparison.polynomial:
                comparison = replace(comparison, polynomial=polynomial)
            if least(comparison, lows):
                continue
            learn(comparison, lows)
            added.append(comparison)
            if comparison.is_equation and comparison.holds:
                _define(definitions, polynomial)
        if not added:
            return self
        return Facts((*self.comparisons, *added), self.conditionals, definitions, lows)

    def imply(self, *conditionals: Implication) -> Facts:
        """Return the facts with some more implications."""
        new = tuple(c for c in conditionals if c not in self.conditionals)
        return (
            Facts(self.comparisons, (*self.conditionals, *new), self.definitions, self.lows) if new else self
        )

    def normal(self, polynomial: Polynomial) -> Polynomial:
        """Return a polynomial without the variables that are defined by others."""
        return polynomial.substitute(self.definitions)

    def entail(self, comparison: Constraint) -> bool:
        """Return whether a comparison follows; False too where this is not found out."""
        polynomial = self.normal(comparison.polynomial)
        if polynomial.value is not None and _truth(comparison, polynomial.value):
            return True
        goal = replace(comparison, polynomial=polynomial)
        if least(goal, self.lows):
            return True
        if goal not in self._answers:
            self._answers[goal] = self._refutes(relation(goal.negation()))
        return self._answers[goal]

    def are_equal(self, a: Polynomial, b: Polynomial) -> bool:
        """Return whether two polynomials have one value."""
        return self.entail(Constraint(a - b, is_equation=True))

    @property
    def contradict(self) -> bool:
        """Whether no numbers fulfil the facts."""
        if any(
            c.polynomial.value is not None and not _truth(c, c.polynomial.value) for c in self.comparisons
        ):
            return True
        return self._refutes()

    def _refutes(self, *formulas: Formula) -> bool:
        """Return whether the facts and some formulas have no solution."""
        z3 = solver_library()
        if self._solver is None:
            self._solver = self.assert_into(z3.Solver())
        self._solver.push()
        self._solver.add(*formulas)
        answer = self._solver.check()
        self._solver.pop()
        return bool(answer == z3.unsat)

    def assert_into(self, solver: Formula) -> Formula:
        """Add the facts to a solver, with definitions applied; return it."""
        z3 = solver_library()
        solver.set("rlimit", EFFORT)
        for name, value in self.definitions.items():
            solver.add(variable(name) == formula(value))
        for comparison in self.comparisons:
            solver.add(relation(self._applied(comparison)))
        for conditional in self.conditionals:
            guard = [self._applied(c) for c in conditional.guard]
            is_true = all(g.polynomial.value is not None and _truth(g, g.polynomial.value) for g in guard)
            then = z3.And(*(relation(self._applied(c)) for c in conditional.comparisons))
            solver.add(then if is_true else z3.Implies(z3.And(*map(relation, guard)), then))
        return solver

    def _applied(self, comparison: Constraint) -> Constraint:
        return replace(comparison, polynomial=self.normal(comparison.polynomial))


def conditional_formula(conditional: Implication) -> Formula:
    """Return an implication as a z3 truth value."""
    z3 = solver_library()
    guard, then = (z3.And(*map(relation, c)) for c in (conditional.guard, conditional.comparisons))
    return z3.Implies(guard, then)


def least(comparison: Constraint, lows: dict[str, int]) -> bool:
    """Return whether a comparison follows from the least values of variables, without a solver."""
    polynomial = comparison.polynomial
    if comparison.is_equation and comparison.holds:
        return False
    if comparison.holds or comparison.is_equation:
        bound = _lower_bound(polynomial, lows)
        if bound is not None and bound >= (1 if comparison.is_equation else 0):
            return True
    if comparison.is_equation or not comparison.holds:
        bound = _lower_bound(-polynomial, lows)
        if bound is not None and bound >= 1:
            return True
    return False


def learn(comparison: Constraint, lows: dict[str, int]) -> None:
    """Add the least value that a comparison states of a single variable."""
    if comparison.is_equation:
        return
    one = Polynomial.constant(1)
    polynomial = comparison.polynomial if comparison.holds else -comparison.polynomial - one
    names = polynomial.variables
    if len(names) == 1:
        (name,) = names
        offset = polynomial - Polynomial.variable(name)
        if offset.value is not None:
            lows[name] = max(lows.get(name, -offset.value), -offset.value)


def _lower_bound(polynomial: Polynomial, lows: dict[str, int]) -> int | None:
    total = 0
    for monomial, coefficient in polynomial.terms:
        if monomial and (coefficient < 0 or any(lows.get(name, -1) < 0 for name in monomial)):
            return None
        product = coefficient
        for name in monomial:
            product *= lows[name]
        total += product
    return total


def division_facts(division: Division) -> Implication:
    """Return what defines quotient and remainder, where the divisor is positive."""
    quotient, remainder = Polynomial.variable(division.quotient), Polynomial.variable(division.remainder)
    return divided(division.dividend, division.divisor, quotient, remainder)


def divided(
    dividend: Polynomial, divisor: Polynomial, quotient: Polynomial, remainder: Polynomial
) -> Implication:
    """Return what defines quotient and remainder by a divisor, where it is positive."""
    one = Polynomial.constant(1)
    return Implication(
        (Constraint(divisor - one, is_equation=False),),
        (
            Constraint(dividend - quotient * divisor - remainder, is_equation=True),
            Constraint(remainder, is_equation=False),
            Constraint(divisor - one - remainder, is_equation=False),
        ),
    )


def within(index: Polynomial, size: Polynomial) -> tuple[Constraint, Constraint]:
    """Return the comparisons 0 <= index < size."""
    above = size - Polynomial.constant(1) - index
    return Constraint(index, is_equation=False), Constraint(above, is_equation=False)


def _define(definitions: dict[str, Polynomial], polynomial: Polynomial) -> None:
    """Let a polynomial that is 0 define one of its variables, the last that it can."""
    for name in sorted(polynomial.variables, key=_rank, reverse=True):
        value = polynomial.solve(name)
        if value is not None:
            new = {name: value}
            for other, old in definitions.items():
                definitions[other] = old.substitute(new)
            definitions[name] = value
            return


def _rank(name: str) -> tuple[bool, int, str]:
    """Order variables: those that divisions define are replaced by others last."""
    return not name.startswith(("quotient", "remainder")), len(name), name


def _truth(comparison: Constraint, value: int) -> bool:
    return (value == 0 if comparison.is_equation else value >= 0) == comparison.holds
