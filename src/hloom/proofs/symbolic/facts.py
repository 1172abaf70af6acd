"""What is known about sizes and indices, and what follows from it: polynomial identities, or z3's answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace

from hloom.proofs.symbolic.polynomial import Polynomial
from hloom.proofs.symbolic.questions import (
    Formula,
    Implication,
    Statement,
    ask,
    components,
    connected,
    formula,
    is_true,
    truth,
    variable,
)
from hloom.proofs.symbolic.sizes import Constraint, Division
from hloom.records import dataclass


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
    _statements: list[Statement] | None = None
    _contradict: bool | None = None

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
            if polynomial.value is not None and comparison.is_true_of(polynomial.value):
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
        if polynomial.value is not None and comparison.is_true_of(polynomial.value):
            return True
        goal = replace(comparison, polynomial=polynomial)
        if least(goal, self.lows):
            return True
        if goal not in self._answers:
            opposite = goal.negation()
            self._answers[goal] = ask(connected([opposite], self.statements())).is_possible is False
        return self._answers[goal]

    def are_equal(self, a: Polynomial, b: Polynomial) -> bool:
        """Return whether two polynomials have one value."""
        return self.entail(Constraint(a - b, is_equation=True))

    @property
    def contradict(self) -> bool:
        """Whether no numbers fulfil the facts."""
        if self._contradict is None:
            groups = components(self.statements())
            self._contradict = any(ask(group).is_possible is False for group in groups)
        return self._contradict

    def statements(self) -> list[Statement]:
        """Return what holds of the variables that are not defined by others."""
        if self._statements is None:
            listed: list[Statement] = [self._applied(c) for c in self.comparisons]
            for conditional in self.conditionals:
                listed += self._simplified(conditional)
            self._statements = [s for s in dict.fromkeys(listed) if s.variables or not is_true(s)]
        return self._statements

    def _simplified(self, conditional: Implication) -> Sequence[Statement]:
        """Return an implication, or its conclusions where its guard holds, with definitions applied."""
        guard = [self._applied(c) for c in conditional.guard]
        guard = [c for c in guard if not (is_true(c) or least(c, self.lows))]
        then = tuple(self._applied(c) for c in conditional.comparisons)
        if not guard:
            return then
        return () if any(_is_false(c) for c in guard) else (Implication(tuple(guard), then),)

    def assert_into(self, solver: Formula) -> None:
        """Add the facts to a solver."""
        solver.add(*(variable(name) == formula(value) for name, value in self.definitions.items()))
        solver.add(*map(truth, self.statements()))

    def _applied(self, comparison: Constraint) -> Constraint:
        polynomial = self.normal(comparison.polynomial)
        return (
            comparison if polynomial is comparison.polynomial else replace(comparison, polynomial=polynomial)
        )


def _is_false(comparison: Constraint) -> bool:
    return comparison.polynomial.value is not None and not is_true(comparison)


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
