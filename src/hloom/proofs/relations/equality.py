"""Decide whether two terms are equal for all indices for which conditions hold.

Choices are decided by the conditions, or divided into two cases. In each case two numbers are equal if their
difference is neither positive nor negative, by the inequalities that hold there; two elements of one function
are equal if their indices are; two elements of different functions, if these apply the same operation to
operands that are equal for all values of the variables that it binds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final

from hloom.ir.affine import Index
from hloom.ir.operation import Operation
from hloom.proofs.relations.indices import Datum, negated
from hloom.proofs.relations.inequalities import exclude_each_other, follows
from hloom.proofs.relations.terms import ClosedFunction, Element, Number, Piecewise, Term, Terms

MOST_CASES: Final = 1 << 12
"""Maximum number of pairs of terms that are compared; terms that need more are not found equal."""
MOST_DIGITS: Final = 16
"""Maximum number of values of variables that are tried one by one."""
Facts = tuple[Index, ...]


class Equality:
    """Compares terms.

    Args:
        terms: the terms of the proof.
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._cases = 0

    def holds(self, a: Term, b: Term, facts: Sequence[Index] = ()) -> bool:
        """Return whether two terms are known to be equal for all indices for which facts hold."""
        self._cases = 0
        return self._equal(a, b, tuple(facts))

    def _equal(self, a: Term, b: Term, facts: Facts) -> bool:
        if a == b:
            return True
        self._cases += 1
        if self._cases > MOST_CASES:
            return False
        a, b = self._decided(a, facts), self._decided(b, facts)
        for term in (a, b):
            if isinstance(term, Piecewise):
                cases = term.condition, negated(term.condition)
                return all(self._equal(a, b, (*facts, case)) for case in cases)
        return a == b or self._equal_alternatives(a, b, facts) or self._equal_by_digits(a, b, facts)

    def _equal_alternatives(self, a: Term, b: Term, facts: Facts) -> bool:
        """Return whether terms that are no choices are equal."""
        if isinstance(a, Element) and isinstance(b, Element):
            return self._same_indices(a, b, facts) or self._same_operands(a, b, facts)
        return self._same_numbers(_index(a, facts), _index(b, facts), facts)

    def _equal_by_digits(self, a: Term, b: Term, facts: Facts) -> bool:
        """Return whether terms are equal for each value of the variables of few values that facts are about.

        Facts that no integers satisfy may have solutions between them: those of a digit between two tiles.
        """
        variables = {v: None for fact in facts for v, _ in fact.terms if v.extent <= MOST_DIGITS}
        if not variables or math.prod(v.extent for v in variables) > MOST_DIGITS:
            return False
        for numbers in itertools.product(*[range(v.extent) for v in variables]):
            values = [Index(-n, [(v, 1)]) for v, n in zip(variables, numbers, strict=True)]
            case = (*facts, *values, *[value * -1 for value in values])
            if not exclude_each_other(case) and not self._equal_alternatives(a, b, case):
                return False
        return True

    def _decided(self, term: Term, facts: Facts) -> Term:
        """Return the alternative of a choice that facts imply."""
        term = self._terms.unsealed(term)
        while isinstance(term, Piecewise):
            if follows(term.condition, facts):
                term = self._terms.unsealed(term.yes)
            elif follows(negated(term.condition), facts):
                term = self._terms.unsealed(term.no)
            else:
                break
        return term

    @staticmethod
    def _same_numbers(a: Index | None, b: Index | None, facts: Facts) -> bool:
        if a is None or b is None:
            return False
        return a == b or (follows(a - b, facts) and follows(b - a, facts))

    def _same_indices(self, a: Element, b: Element, facts: Facts) -> bool:
        if a.function is not b.function:
            return False
        return all(self._same_numbers(x, y, facts) for x, y in zip(a.indices, b.indices, strict=True))

    def _same_operands(self, a: Element, b: Element, facts: Facts) -> bool:
        """Return whether one operation is applied to equal operands.

        The variables that the operations bind correspond by their positions: if their order matters, it is
        that of the operation; if it does not, any correspondence of variables of equal extents will do.
        """
        first, second = a.function, b.function
        extents = [[v.extent for v in function.bound] for function in (first, second)]
        if not first.operands or first.head != second.head or extents[0] != extents[1]:
            return False
        operands, bound = self._terms.opened(a)
        others = self._terms.opened_over(b, bound)
        orders = [others, others[::-1]] if self._commutes(first) else [others]
        return any(
            all(self._equal(x, y, facts) for x, y in zip(operands, order, strict=True)) for order in orders
        )

    @staticmethod
    def _commutes(function: ClosedFunction) -> bool:
        """Return whether a function is an operation on two values of one type whose order does not matter."""
        operation, *types = function.head
        is_binary = isinstance(operation, Operation) and len(function.operands) == 2
        return is_binary and operation.commutative and len(set(types[1:])) == 1


def _index(term: Term, facts: Facts) -> Index | None:
    """Return a number, or an element that facts are about, as an index."""
    if isinstance(term, Number):
        return term.index
    data = (v for fact in facts for v, _ in fact.terms if isinstance(v, Datum) and v.element == term)
    datum = next(data, None)
    return None if datum is None else Index(datum.least, [(datum, 1)])
