"""Integer inequalities: whether conditions on indices exclude each other.

Variables are eliminated one after the other (Fourier and Motzkin). Each inequality is divided by the common
divisor of its coefficients, and its constant is rounded down, which excludes no integers. Conditions that are
said to exclude each other do; others may as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from hloom.ir.affine import Index, Variable
from hloom.proofs.relations.indices import Quotient, negated, reduced

MOST_INEQUALITIES: Final = 300
"""Maximum number of inequalities of an elimination; conditions that need more may hold."""


def exclude_each_other(conditions: Sequence[Index]) -> bool:
    """Return whether conditions ``index >= 0`` are known to hold for no values of their variables."""
    rows = dict.fromkeys(reduced(c) for c in (*conditions, *_ranges(conditions)))
    while True:
        rows = _without_weaker(rows)
        if any(row.is_constant and row.constant < 0 for row in rows):
            return True
        rows = [row for row in rows if row.terms]
        if not rows:
            return False
        variable = _cheapest(rows)
        rows = _eliminated(rows, variable)
        if len(rows) > MOST_INEQUALITIES:
            return False


def follows(conclusion: Index, conditions: Sequence[Index]) -> bool:
    """Return whether ``conclusion >= 0`` is known to hold wherever conditions do."""
    if conclusion.minimum() >= 0:
        return True
    return conclusion.maximum() >= 0 and exclude_each_other([*conditions, negated(conclusion)])


def _ranges(conditions: Iterable[Index]) -> list[Index]:
    """Return the bounds of the variables of conditions, and the inequalities that define each quotient.

    A dividend is not negative (`Quotients.divide`), so that a quotient has the bounds of a variable, too.
    """
    bounds: list[Index] = []
    pending = [v for c in conditions for v, _ in c.terms]
    known: set[Variable] = set()
    while pending:
        v = pending.pop()
        if v in known:
            continue
        known.add(v)
        bounds += [Index(0, [(v, 1)]), Index(v.extent - 1, [(v, -1)])]
        if isinstance(v, Quotient):
            rest = v.dividend - Index(0, [(v, v.divisor)])
            bounds += [rest, rest * -1 + (v.divisor - 1)]
            pending += [u for u, _ in v.dividend.terms]
    return bounds


def _without_weaker(rows: Iterable[Index]) -> list[Index]:
    """Return the strongest of the inequalities that have the same coefficients."""
    least: dict[tuple[tuple[Variable, int], ...], int] = {}
    for row in rows:
        least[row.terms] = min(row.constant, least.get(row.terms, row.constant))
    return [Index(constant, terms) for terms, constant in least.items()]


def _sides(
    rows: Iterable[Index], variable: Variable
) -> tuple[list[tuple[int, Index]], list[tuple[int, Index]]]:
    """Return the inequalities that bound a variable from below and from above, with their coefficients."""
    sides: tuple[list[tuple[int, Index]], list[tuple[int, Index]]] = [], []
    for row in rows:
        for v, c in row.terms:
            if v is variable:
                sides[c < 0].append((abs(c), row))
    return sides


def _cheapest(rows: Sequence[Index]) -> Variable:
    """Return the variable whose elimination adds the fewest inequalities."""
    counts: dict[Variable, list[int]] = {}
    for row in rows:
        for v, c in row.terms:
            counts.setdefault(v, [0, 0])[c < 0] += 1
    return min(counts, key=lambda v: counts[v][0] * counts[v][1] - sum(counts[v]))


def _eliminated(rows: Sequence[Index], variable: Variable) -> list[Index]:
    lower, upper = _sides(rows, variable)
    own = {id(row) for _, row in (*lower, *upper)}
    others = [row for row in rows if id(row) not in own]
    for a, low in lower:
        for b, high in upper:
            step = math.gcd(a, b)
            others.append(reduced(low * (b // step) + high * (a // step)))
    return others
