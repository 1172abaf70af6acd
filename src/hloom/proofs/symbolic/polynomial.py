"""Polynomials with integer coefficients: sizes, and the indices computed from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TypeAlias

Monomial: TypeAlias = tuple[str, ...]
"""The variables of a product, sorted; a square has its variable twice."""


class Polynomial:
    """A sum of integer multiples of products of variables, in normal form: equal functions are equal objects.

    Attributes:
        terms: the coefficients, none of them 0, by monomial, sorted.
    """

    __slots__ = ("_hash", "_variables", "terms")

    terms: tuple[tuple[Monomial, int], ...]

    def __init__(self, terms: Iterable[tuple[Monomial, int]] = ()) -> None:
        merged: dict[Monomial, int] = {}
        for monomial, coefficient in terms:
            merged[monomial] = merged.get(monomial, 0) + coefficient
        self._set(tuple(sorted(term for term in merged.items() if term[1])))

    def _set(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)
        self._variables: frozenset[str] | None = None

    @classmethod
    def _normal(cls, terms: tuple[tuple[Monomial, int], ...]) -> Polynomial:
        """Return the polynomial of terms in normal form."""
        polynomial = cls.__new__(cls)
        polynomial._set(terms)
        return polynomial

    @classmethod
    @cache
    def constant(cls, value: int) -> Polynomial:
        """Return a constant."""
        return cls([((), value)])

    @classmethod
    @cache
    def variable(cls, name: str) -> Polynomial:
        """Return a variable."""
        return cls([((name,), 1)])

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Polynomial) and self.terms == other.terms)

    def __add__(self, other: Polynomial) -> Polynomial:
        if not (self.terms and other.terms):
            return self if self.terms else other
        return Polynomial((*self.terms, *other.terms))

    def __neg__(self) -> Polynomial:
        return Polynomial._normal(tuple((monomial, -coefficient) for monomial, coefficient in self.terms))

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + -other if other.terms else self

    def __mul__(self, other: Polynomial) -> Polynomial:
        for a, b in ((self, other), (other, self)):
            factor = b.value
            if factor:
                return a if factor == 1 else Polynomial._normal(tuple((m, factor * c) for m, c in a.terms))
        return Polynomial((tuple(sorted(a + b)), x * y) for a, x in self.terms for b, y in other.terms)

    def __str__(self) -> str:
        parts = [_term_text(monomial, coefficient) for monomial, coefficient in self.terms]
        return " + ".join(parts).replace("+ -", "- ") or "0"

    @property
    def variables(self) -> frozenset[str]:
        """The variables that occur."""
        if self._variables is None:
            self._variables = frozenset(name for monomial, _ in self.terms for name in monomial)
        return self._variables

    @property
    def value(self) -> int | None:
        """The value of a constant; None for other polynomials."""
        if not self.terms:
            return 0
        (monomial, coefficient), *others = self.terms
        return coefficient if not others and not monomial else None

    def at(self, values: Mapping[str, int]) -> int:
        """Return the value where the variables have the given values."""
        total = 0
        for monomial, coefficient in self.terms:
            for name in monomial:
                coefficient *= values[name]
            total += coefficient
        return total

    def substitute(self, definitions: Mapping[str, Polynomial]) -> Polynomial:
        """Return the polynomial with some variables replaced by others."""
        if definitions.keys().isdisjoint(self.variables):
            return self
        total = Polynomial()
        for monomial, coefficient in self.terms:
            product = Polynomial.constant(coefficient)
            for name in monomial:
                product *= definitions.get(name) or Polynomial.variable(name)
            total += product
        return total

    def divide(self, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
        """Split into a multiple of a divisor of one term, and the rest: ``quotient * divisor + rest``."""
        if len(divisor.terms) != 1:
            return Polynomial(), self
        ((needed, factor),) = divisor.terms
        quotient: list[tuple[Monomial, int]] = []
        remainder: list[tuple[Monomial, int]] = []
        for monomial, coefficient in self.terms:
            cofactor = _without(monomial, needed)
            if cofactor is None or coefficient % factor:
                remainder.append((monomial, coefficient))
            else:
                quotient.append((cofactor, coefficient // factor))
        return Polynomial(quotient), Polynomial(remainder)

    def solve(self, name: str) -> Polynomial | None:
        """Return the value of a variable for which the polynomial is 0; None if it does not follow directly.

        The variable must occur once, alone, with a coefficient of 1 or -1.
        """
        holding = [(monomial, c) for monomial, c in self.terms if name in monomial]
        if len(holding) != 1 or holding[0][0] != (name,) or abs(holding[0][1]) != 1:
            return None
        others = Polynomial(term for term in self.terms if term[0] != (name,))
        return -others if holding[0][1] == 1 else others


def _without(monomial: Monomial, needed: Monomial) -> Monomial | None:
    """Return a product without some of its factors; None if it does not have them."""
    factors = list(monomial)
    for name in needed:
        if name not in factors:
            return None
        factors.remove(name)
    return tuple(factors)


def _term_text(monomial: Monomial, coefficient: int) -> str:
    product = "*".join(monomial)
    if not monomial:
        return str(coefficient)
    return product if coefficient == 1 else f"-{product}" if coefficient == -1 else f"{coefficient}*{product}"
