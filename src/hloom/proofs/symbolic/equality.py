"""Equality of two terms for all sizes and indices that fulfil some facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from hloom.ir.operation import Operation
from hloom.operations.arithmetic import Add
from hloom.proofs.symbolic.bijections import bijections, ranges
from hloom.proofs.symbolic.elements import scalar
from hloom.proofs.symbolic.exhaustion import are_equal_everywhere
from hloom.proofs.symbolic.facts import Facts
from hloom.proofs.symbolic.polynomial import Polynomial
from hloom.proofs.symbolic.scalars import NOT_NEGATIVE_ZERO, Scalars, is_same_polynomial
from hloom.proofs.symbolic.sizes import Constraint
from hloom.proofs.symbolic.sums import are_equal_sums
from hloom.proofs.symbolic.terms import (
    Access,
    Apply,
    Choose,
    Guard,
    IndexValue,
    Scalar,
    Sum,
    Term,
    substituted,
    subterms,
    variables_of,
)
from hloom.records import dataclass

MOST_CASES: Final = 400
"""Maximum number of cases into which conditions on indices divide a proof."""
_ONE: Final = Polynomial.constant(1)


_VALUES: Final[dict[tuple[Term, Term, bool], bool]] = {}
"""Whether pairs of terms with numbered leaves are equal, over the reals or over bits."""


class TooManyCases(Exception):
    """A proof has more cases than are looked at."""


@dataclass(slots=True)
class Comparer:
    """Compares terms.

    Attributes:
        exact: whether numbers are real and unbounded.
        cases: the number of cases that are left.
    """

    exact: bool
    cases: int = MOST_CASES

    def are_equal(self, a: Term, b: Term, facts: Facts) -> bool:
        """Return whether two elements are equal wherever the facts hold; False where it is not found out."""
        if facts.contradict:
            return True
        facts = facts.assume(*_single_steps((a, b), facts))
        self.cases -= 1
        if self.cases < 0:
            raise TooManyCases
        a, b = self.decided(a, facts), self.decided(b, facts)
        guard = _undecided(a) or _undecided(b)
        if guard is None:
            return self._are_equal_everywhere(a, b, facts)
        return all(self.are_equal(a, b, case) for case in cases_of(guard, facts))

    def decided(self, term: Term, facts: Facts) -> Term:
        """Return a term without the choices and loops that the facts decide."""
        match term:
            case Choose():
                if all(facts.entail(c) for c in term.guard):
                    return self.decided(term.yes, facts)
                if any(facts.entail(c.negation()) for c in term.guard):
                    return self.decided(term.no, facts)
                return term
            case Apply():
                return replace(term, operands=tuple(self.decided(o, facts) for o in term.operands))
            case Access():
                return replace(term, linear=facts.normal(term.linear))
            case IndexValue():
                index = facts.normal(term.index)
                number = index.value
                return replace(term, index=index) if number is None else scalar(number, term.element_type)
            case Sum():
                return self._without_single_steps(term, facts)
            case Scalar():
                return term

    def _without_single_steps(self, term: Sum, facts: Facts) -> Term:
        """Return a sum without loops of one step; its only term if no loop is left, its start if no term."""
        initial = tuple(self.decided(v, facts) for v in term.initial)
        inside = facts.assume(*ranges(term.variables))
        if (
            any(facts.are_equal(extent, Polynomial()) for _, extent in term.variables)
            or inside.assume(*term.guard).contradict
        ):
            return initial[term.output] if initial else scalar(0, term.element_type)
        single = {name for name, extent in term.variables if facts.are_equal(extent, _ONE)}
        if single:
            zeros = dict.fromkeys(single, Polynomial())
            term = _substituted(term, zeros)
            term = replace(term, variables=tuple(v for v in term.variables if v[0] not in single))
        term = _without_repetitions(_flattened(replace(term, initial=initial)), facts)
        if term.variables or not all(facts.entail(c) for c in term.guard):
            return term
        bodies = tuple(self.decided(body, facts) for body in term.bodies)
        if not term.initial and self.exact:
            return bodies[0]
        if isinstance(term.combiner, Operation) and len(bodies) == 1:
            return Apply(term.combiner, (initial[0], bodies[0]), term.element_type)
        return replace(term, guard=(), bodies=bodies)

    # -- terms without conditions outside of sums

    def _are_equal_everywhere(self, a: Term, b: Term, facts: Facts) -> bool:
        leaves: list[Term] = []
        a, b = self._shared(a, leaves, facts), self._shared(b, leaves, facts)
        if self._has_same_value(a, b, facts):
            return True
        if not self.exact:
            return False
        return are_equal_sums(self, a, b, facts)

    def _has_same_value(self, a: Term, b: Term, facts: Facts) -> bool:
        """Return whether two terms are equal whatever their leaves are; remember the answer."""
        names: dict[Term, Term] = {}
        key = _renamed(a, names), _renamed(b, names), self.exact
        if self.exact and any(isinstance(leaf, IndexValue) for leaf in names):
            return Scalars(facts, exact=True).are_equal(a, b)
        if key not in _VALUES:
            is_ring = is_same_polynomial(key[0], key[1])
            _VALUES[key] = (
                is_ring
                or (not self.exact and are_equal_everywhere(key[0], key[1]))
                or Scalars(Facts(), exact=self.exact).are_equal(key[0], key[1])
            )
        return _VALUES[key]

    def _shared(self, term: Term, leaves: list[Term], facts: Facts) -> Term:
        """Return a term whose equal elements of arrays, and equal sums, are equal objects."""
        if isinstance(term, Apply):
            return replace(term, operands=tuple(self._shared(o, leaves, facts) for o in term.operands))
        if isinstance(term, Scalar):
            return term
        for leaf in leaves:
            if self._is_same_leaf(leaf, term, facts):
                return leaf
        leaves.append(term)
        return term

    def _is_same_leaf(self, a: Term, b: Term, facts: Facts) -> bool:
        match a, b:
            case Access(), Access():
                return a.array == b.array and (
                    _has_same_coordinates(a, b, facts) or facts.are_equal(a.linear, b.linear)
                )
            case IndexValue(), IndexValue():
                return a.element_type is b.element_type and facts.are_equal(a.index, b.index)
            case Sum(), Sum():
                return self.is_same_sum(a, b, facts)
            case _:
                return False

    # -- sums

    def is_same_sum(self, a: Sum, b: Sum, facts: Facts) -> bool:
        """Return whether two sums have the same terms: a bijection between their positions keeps them."""
        if a.combiner != b.combiner or a.output != b.output or len(a.bodies) != len(b.bodies):
            return False
        if len(a.initial) != len(b.initial):
            return False
        if not all(self.are_equal(x, y, facts) for x, y in zip(a.initial, b.initial, strict=True)):
            return False
        keeps_order = not a.is_free
        relations = bijections(a, b, (a.bodies, b.bodies), facts, keeps_order=keeps_order)
        return any(
            all(self.are_equal(x, y, here) for x, y in zip(a.bodies, b.bodies, strict=True))
            for here in relations
        )


def _has_same_coordinates(a: Access, b: Access, facts: Facts) -> bool:
    """Return whether two indices of an array are equal along each dimension."""
    return len(a.coordinates) == len(b.coordinates) and all(
        facts.are_equal(x, y) and facts.are_equal(n, m)
        for (x, n), (y, m) in zip(a.coordinates, b.coordinates, strict=True)
    )


def _single_steps(terms: Sequence[Term], facts: Facts) -> Iterator[Constraint]:
    """Yield that the variables of loops of one step are 0."""
    for term in terms:
        if isinstance(term, Sum):
            for name, extent in term.variables:
                if facts.are_equal(extent, _ONE):
                    yield Constraint(Polynomial.variable(name), is_equation=True)
        yield from _single_steps(subterms(term), facts)


def _flattened(term: Sum) -> Sum:
    """Return an extreme of extremes as one, where the inner ones start at the neutral element."""
    match term:
        case Sum(combiner=Operation() as combiner, bodies=(Sum() as inner,), guard=()):
            neutral = combiner.neutral_element(inner.element_type) if combiner.idempotent else None
            starts = neutral is not None and inner.initial == (scalar(neutral, inner.element_type),)
            if starts and inner.combiner == combiner:
                return replace(
                    term,
                    variables=(*term.variables, *inner.variables),
                    guard=inner.guard,
                    bodies=inner.bodies,
                )
        case _:
            pass
    return term


def _without_repetitions(term: Sum, facts: Facts) -> Sum:
    """Return an extreme without loops that repeat its elements at least once."""
    if not isinstance(term.combiner, Operation) or not term.combiner.idempotent:
        return term
    used = {v for c in term.guard for v in c.polynomial.variables}.union(*map(variables_of, term.bodies))
    some = (Constraint(extent - _ONE, is_equation=False) for _, extent in term.variables)
    repeats = {
        name
        for (name, _), exists in zip(term.variables, some, strict=True)
        if name not in used and facts.entail(exists)
    }
    return replace(term, variables=tuple(v for v in term.variables if v[0] not in repeats))


def _substituted(term: Sum, definitions: dict[str, Polynomial]) -> Sum:
    """Return a sum with some index variables replaced."""
    result = substituted(term, definitions)
    assert isinstance(result, Sum)
    return result


def cases_of(guard: Guard, facts: Facts) -> Iterator[Facts]:
    """Yield the facts with each way in which the comparisons hold or fail: all, or one of them first."""
    yield facts.assume(*guard)
    for number, comparison in enumerate(guard):
        if not facts.entail(comparison):
            yield facts.assume(*guard[:number], comparison.negation())


def _renamed(term: Term, names: dict[Term, Term]) -> Term:
    """Return a term with numbers for its leaves."""
    if isinstance(term, Apply):
        return replace(term, operands=tuple(_renamed(o, names) for o in term.operands))
    if isinstance(term, Scalar):
        return term
    if term not in names:
        name = (len(names), NOT_NEGATIVE_ZERO) if _starts_at_zero(term) else (len(names),)
        names[term] = Access(name, Polynomial(), term.element_type)
    return names[term]


def _starts_at_zero(term: Term) -> bool:
    """Return whether an element is a sum that starts at +0, so that it is not -0."""
    if not isinstance(term, Sum) or not isinstance(term.combiner, Add):
        return False
    return term.initial == (scalar(0, term.element_type),)


def _undecided(term: Term) -> Guard | None:
    """Return the condition of an outermost choice outside of sums; None if there is none."""
    if isinstance(term, Choose):
        return term.guard
    operands = term.operands if isinstance(term, Apply) else ()
    return next((guard for guard in map(_undecided, operands) if guard is not None), None)
