"""Quasi-affine indices: affine expressions of variables, of quotients of indices, and of elements.

They extend `hloom.ir.affine`: a `Quotient` and a `Datum` are variables whose value follows from others. Equal
quotients are one variable, so equal indices are equal objects. A remainder is written as the index minus a
multiple of the quotient.
"""

from __future__ import annotations

import math
from typing import Any, Final

from hloom.ir.affine import Index, Variable

_NONE: Final[frozenset[Variable]] = frozenset()


class Quotient(Variable):
    """The floor of an index that is not negative, divided by a number."""

    __slots__ = ("dividend", "divisor", "free")

    def __init__(self, dividend: Index, divisor: int) -> None:
        super().__init__(dividend.maximum() // divisor + 1, "q")
        self.dividend = dividend
        self.divisor = divisor
        self.free = free_variables(dividend)


class Datum(Variable):
    """An integer element of an array whose value is not known, less the least number of its type.

    Attributes:
        element: the element.
        least: the least number of its type.
    """

    __slots__ = ("element", "free", "least")

    def __init__(self, element: Any, extent: int, least: int) -> None:
        super().__init__(extent, "e")
        self.element = element
        self.least = least
        self.free: frozenset[Variable] = element.free


def free_variables(index: Index) -> frozenset[Variable]:
    """Return the variables on which an index depends, those inside quotients and elements too."""
    terms = index.terms
    if not terms:
        return _NONE
    if len(terms) == 1 and type(terms[0][0]) is Variable:
        return frozenset((terms[0][0],))
    found: set[Variable] = set()
    for variable, _ in terms:
        if isinstance(variable, Quotient | Datum):
            found |= variable.free
        else:
            found.add(variable)
    return frozenset(found)


class Quotients:
    """Divides indices; equal quotients are one variable."""

    def __init__(self) -> None:
        self._interned: dict[tuple[Index, int], Quotient] = {}

    def quotient(self, dividend: Index, divisor: int) -> Index:
        """Return a quotient as it is."""
        key = dividend, divisor
        if key not in self._interned:
            self._interned[key] = Quotient(dividend, divisor)
        return Index(0, [(self._interned[key], 1)])

    def divide(self, index: Index, divisor: int) -> Index:
        """Return the floor of a quotient in its simplest form."""
        if divisor == 1:
            return index
        exact = index.divide(divisor)
        if exact is not None:
            return exact
        whole = Index(index.constant // divisor, [(v, c // divisor) for v, c in index.terms])
        rest = index - whole * divisor  # its numbers lie in [0, divisor)
        return whole + self._proper(rest, divisor)

    def _proper(self, rest: Index, divisor: int) -> Index:
        """Divide an index whose numbers lie in [0, divisor)."""
        if rest.maximum() < divisor:
            return Index(0)
        for step in sorted({math.gcd(c, divisor) for _, c in rest.terms} - {1}, reverse=True):
            small = Index(rest.constant % step, [(v, c) for v, c in rest.terms if c % step])
            if small.maximum() < step:
                large = rest - small
                scaled = Index(large.constant // step, [(v, c // step) for v, c in large.terms])
                return self.divide(scaled, divisor // step)
        if len(rest.terms) == 1 and isinstance(rest.terms[0][0], Quotient) and rest.terms[0][1] == 1:
            inner = rest.terms[0][0]
            return self.divide(inner.dividend + rest.constant * inner.divisor, inner.divisor * divisor)
        return self.quotient(rest, divisor)


def reduced(condition: Index) -> Index:
    """Divide a condition ``index >= 0`` by the common divisor of its coefficients."""
    divisor = math.gcd(*(c for _, c in condition.terms))
    if divisor <= 1:
        return condition
    return Index(condition.constant // divisor, [(v, c // divisor) for v, c in condition.terms])


def negated(condition: Index) -> Index:
    """Return the condition ``index < 0`` in the form ``index >= 0``."""
    return condition * -1 + -1
