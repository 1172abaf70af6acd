"""The normal form of sums, products and extremes over indices.

A total over devices of totals over tiles is the total over the whole dimension: ``a`` and ``r`` are merged
into ``k`` where a term depends on ``n * a + r`` only. Conditions that exclude terms shorten ranges, or leave
one term. Factors, and terms of sums, that do not depend on a variable are taken out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from itertools import permutations

from hloom.ir.affine import Index, Variable
from hloom.ir.operation import Operation
from hloom.operations.arithmetic import Add, And, Divide, Maximum, Minimum, Multiply, Or, Subtract
from hloom.operations.comparison import Select
from hloom.operations.unary import Negate
from hloom.proofs.relations.indices import Quotient, free_variables, negated
from hloom.proofs.relations.laws import Laws
from hloom.proofs.relations.terms import Element, Piecewise, Term, Terms, conditions_of
from hloom.records import dataclass
from hloom.shape.element_type import ElementType

COMBINERS = (Add, Multiply, Maximum, Minimum, And, Or)
"""Operations whose operands may be combined in any order, if they are not rounded."""


@dataclass
class _Range:
    """Terms to combine: those of a body for all values of variables for which conditions hold.

    Attributes:
        variables: the variables; ``devices`` are those of them that number devices.
        conditions: indices that are not negative.
        body: the term.
    """

    variables: list[Variable]
    body: Term
    conditions: list[Index] = field(default_factory=list[Index])
    devices: frozenset[Variable] = frozenset()

    def uses(self, variable: Variable) -> bool:
        """Return whether the terms depend on a variable."""
        return variable in self.body.free or any(variable in free_variables(c) for c in self.conditions)


class Totals:
    """Combines terms over indices.

    Args:
        terms: the terms of the proof.
        laws: the laws of elementwise operations.
    """

    def __init__(self, terms: Terms, laws: Laws) -> None:
        self.terms = terms
        self.laws = laws

    def is_free(self, operation: Operation, kind: ElementType) -> bool:
        """Return whether values of a type may be combined in any order and grouping."""
        if isinstance(operation, Add | Multiply):
            return self.laws.forms_ring(kind)
        return isinstance(operation, COMBINERS) and not kind.is_complex

    def combine(
        self,
        operation: Operation,
        kind: ElementType,
        variables: Sequence[Variable],
        body: Term,
        devices: frozenset[Variable] = frozenset(),
    ) -> Term:
        """Return the combination of a term for all values of variables; the operation `is_free`."""
        return self._combined(operation, kind, _Range(list(variables), body, devices=devices))

    def sequence(
        self, body: Term, variables: Sequence[Variable], skipped: Term
    ) -> tuple[Term, list[Variable]]:
        """Return a shorter sequence of terms, which are skipped where the body is ``skipped``.

        The terms that remain keep their order: a variable starts later and ends earlier, or is replaced by
        its only value, if this depends on no variable but those before it.
        """
        terms = _Range(list(variables), body)
        while True:
            if isinstance(terms.body, Piecewise) and not self._skips(terms, skipped):
                break
            if not isinstance(terms.body, Piecewise) and not self._restricted(terms, keeps_order=True):
                break
        return self.terms.every(terms.conditions, terms.body, skipped), terms.variables

    def _skips(self, terms: _Range, skipped: Term) -> bool:
        """Move a condition of the body, whose other terms are skipped, to the range."""
        body = terms.body
        assert isinstance(body, Piecewise)
        for fact, term, other in (
            (body.condition, body.yes, body.no),
            (negated(body.condition), body.no, body.yes),
        ):
            if other == skipped:
                terms.conditions.append(fact)
                terms.body = term
                return True
        return False

    def _combined(self, operation: Operation, kind: ElementType, terms: _Range) -> Term:
        neutral = self.neutral(operation, kind)
        units = [v for v in terms.variables if v.extent == 1]
        if units:
            self._replace(terms, {v: Index(0) for v in units}, units)
        while True:
            if any(v.extent == 0 for v in terms.variables):
                return neutral
            terms.body = self._unsealed(terms)
            if isinstance(terms.body, Piecewise):
                parts = self._with_summand(operation, kind, terms) or self._alternatives(terms, neutral)
                if parts is not None:
                    condition, yes, no = parts
                    totals = [self._combined(operation, kind, part) for part in (yes, no)]
                    if condition is not None:
                        return self.terms.choose(condition, *totals)
                    return self.laws.binary(operation, kind, *totals)
            elif self._flattened(operation, kind, terms):
                pass
            elif not (self._merged(terms) or self._restricted(terms)):
                break
        return self._closed(operation, kind, terms, neutral)

    def neutral(self, operation: Operation, kind: ElementType) -> Term:
        """Return the term that an operation combines with any other into the other."""
        number = 0 if isinstance(operation, Add) else operation.neutral_element(kind)
        return self.laws.constant(0 if number is None else number, kind)

    def _replace(self, terms: _Range, renaming: dict[Variable, Index], gone: Sequence[Variable]) -> None:
        terms.body = self.terms.at(terms.body, renaming)
        conditions = [self.terms.index_at(c, renaming) for c in terms.conditions]
        terms.conditions = [c for c in conditions if c.minimum() < 0]
        terms.variables = [v for v in terms.variables if v not in gone]

    # -- conditions

    def _unsealed(self, terms: _Range) -> Term:
        """Return the choice that the body is, if it is made by numbers of the terms."""
        choice = self.terms.unsealed(terms.body)
        numbers = {v for c in conditions_of([choice]) for v, _ in c.terms}
        return terms.body if numbers.isdisjoint(terms.variables) else choice

    def _with_summand(
        self, operation: Operation, kind: ElementType, terms: _Range
    ) -> tuple[None, _Range, _Range] | None:
        """Return the ranges of x where a condition holds, and of y, for a choice of ``x + y`` or ``y``."""
        body = terms.body
        assert isinstance(body, Piecewise)
        for fact, longer, shorter in (
            (body.condition, body.yes, body.no),
            (negated(body.condition), body.no, body.yes),
        ):
            if not isinstance(longer, Element) or longer.function.head != (operation, *[kind.name] * 3):
                continue
            operands, _ = self.terms.opened(longer)
            for n, operand in enumerate(operands):
                if operand == shorter:
                    extra = _Range(
                        list(terms.variables), operands[1 - n], [*terms.conditions, fact], terms.devices
                    )
                    rest = _Range(list(terms.variables), shorter, list(terms.conditions), terms.devices)
                    return None, extra, rest
        return None

    def _alternatives(self, terms: _Range, neutral: Term) -> tuple[Index | None, _Range, _Range] | None:
        """Move a condition of the body to the range; else return two ranges to combine.

        The first part is a condition that decides between them, if it depends on no variable.
        """
        body = terms.body
        assert isinstance(body, Piecewise)
        condition = body.condition

        def part(fact: Index, term: Term, *, keeps: bool) -> _Range:
            conditions = [*terms.conditions, fact] if keeps else list(terms.conditions)
            return _Range(list(terms.variables), term, conditions, terms.devices)

        if free_variables(condition).isdisjoint(terms.variables):
            yes = part(condition, body.yes, keeps=False)
            return condition, yes, part(negated(condition), body.no, keeps=False)
        for fact, term, other in (
            (condition, body.yes, body.no),
            (negated(condition), body.no, body.yes),
        ):
            if other == neutral:
                terms.conditions.append(fact)
                terms.body = term
                return None
        return (
            None,
            part(condition, body.yes, keeps=True),
            part(negated(condition), body.no, keeps=True),
        )

    def _restricted(self, terms: _Range, *, keeps_order: bool = False) -> bool:
        """Replace a variable that the conditions restrict to fewer values."""
        for v in terms.variables:
            bounds = [(c, k) for c in terms.conditions if (k := _coefficient(c, v))]
            after = terms.variables[terms.variables.index(v) :] if keeps_order else [v]
            if self._shortened(terms, v, bounds) or self._single(terms, v, bounds, after):
                return True
            if not keeps_order and self._divided(terms, v):
                return True
        return False

    def _shortened(self, terms: _Range, v: Variable, bounds: Sequence[tuple[Index, int]]) -> bool:
        """Drop the values of a variable that conditions on it alone exclude."""
        own = [(c, k) for c, k in bounds if len(c.terms) == 1]
        if not own:
            return False
        lows = [-(c.constant // k) for c, k in own if k > 0]
        highs = [c.constant // -k for c, k in own if k < 0]
        low, high = max([0, *lows]), min([v.extent - 1, *highs])
        for c, _ in own:
            terms.conditions.remove(c)
        shorter = Variable(max(high - low + 1, 0), "b")
        terms.variables[terms.variables.index(v)] = shorter
        if v in terms.devices:
            terms.devices |= {shorter}
        value = Index(low) if shorter.extent == 1 else Index(low, [(shorter, 1)])
        self._replace(terms, {v: value}, [shorter] if shorter.extent == 1 else [])
        return True

    def _single(
        self,
        terms: _Range,
        v: Variable,
        bounds: Sequence[tuple[Index, int]],
        excluded: Sequence[Variable],
    ) -> bool:
        """Replace a variable by the only value that two conditions admit, if no excluded one is in it."""
        for (a, up), (b, down) in permutations(bounds, 2):
            gap = a + b
            if up > 0 and down == -up and gap.is_constant and gap.constant == up - 1:
                rest = b + Index(0, [(v, up)])  # v * up <= rest < (v + 1) * up
                if not free_variables(rest).isdisjoint(excluded):
                    continue
                inside = [rest, rest * -1 + (up * v.extent - 1)]
                value = self.terms.quotients.divide(rest, up)
                terms.conditions += inside
                self._replace(terms, {v: value}, [v])
                return True
        return False

    def _divided(self, terms: _Range, v: Variable) -> bool:
        """Replace a variable of which only the values are used that make an index divisible by a number.

        ``divisor * q - (rest + v) >= 0`` for ``q = (rest + v) // divisor`` holds only if they are equal. Then
        ``v = divisor * q - rest``, so that each such v in its range belongs to one q.
        """
        for c in terms.conditions:
            for q, k in c.terms:
                if not isinstance(q, Quotient) or k != q.divisor or c != Index(0, [(q, k)]) - q.dividend:
                    continue
                rest = q.dividend - Index(0, [(v, 1)])
                if v in free_variables(rest):
                    continue
                fresh = Variable(q.extent, "b")
                value = Index(0, [(fresh, q.divisor)]) - rest
                terms.variables.append(fresh)
                if v in terms.devices:
                    terms.devices |= {fresh}
                terms.conditions = [other for other in terms.conditions if other != c]
                terms.conditions += [value, value * -1 + (v.extent - 1)]
                self._replace(terms, {v: value}, [v])
                return True
        return False

    # -- variables

    def _merged(self, terms: _Range) -> bool:
        """Merge two variables of which only a number with these two digits is used."""
        for major, minor in permutations(terms.variables, 2):
            if not self._is_pair(terms, major, minor):
                continue
            merged = Variable(major.extent * minor.extent, "b")
            renaming = {minor: Index(0, [(merged, 1), (major, -minor.extent)])}
            body = self.terms.at(terms.body, renaming)
            conditions = [self.terms.index_at(c, renaming) for c in terms.conditions]
            if major in body.free or any(major in free_variables(c) for c in conditions):
                continue
            terms.body, terms.conditions = body, conditions
            terms.variables = [v for v in terms.variables if v not in (major, minor)]
            terms.variables.append(merged)
            if {major, minor} <= terms.devices:
                terms.devices |= {merged}
            return True
        return False

    @staticmethod
    def _is_pair(terms: _Range, major: Variable, minor: Variable) -> bool:
        """Return whether the indices of the body may depend on the two digits of a number only."""
        has_both = False
        for index in (*_indices(terms.body), *terms.conditions):
            high, low = _coefficient(index, major), _coefficient(index, minor)
            if high != minor.extent * low:
                return False
            has_both = has_both or low != 0 or major in free_variables(index)
        return has_both

    def _flattened(self, operation: Operation, kind: ElementType, terms: _Range) -> bool:
        """Combine the terms of a total, and take out factors that do not depend on a variable."""
        body = terms.body
        if not isinstance(body, Element):
            return False
        head = body.function.head
        if head == _head(operation, kind):
            (inner,), bound = self.terms.opened(body)
            terms.body = inner
            terms.variables += bound
            return True
        product = isinstance(head[0], Multiply) and head[1] == kind.name
        if not isinstance(operation, Add) or not product:
            return False
        factors = list(self.terms.opened(body)[0])
        moved = False
        for n, factor in enumerate(factors):
            other = factors[1 - n]
            own = [v for v in terms.variables if v in factor.free and v not in other.free]
            own = [v for v in own if not any(v in free_variables(c) for c in terms.conditions)]
            if own:
                factors[n] = self.combine(operation, kind, own, factor, terms.devices)
                moved = True
            terms.variables = [v for v in terms.variables if v not in own]
        if moved:
            terms.body = self.laws.binary(Multiply(), kind, *factors)
        return moved

    # -- the result

    def _closed(self, operation: Operation, kind: ElementType, terms: _Range, neutral: Term) -> Term:
        unused = [v for v in terms.variables if not terms.uses(v)]
        if unused and isinstance(operation, Add):
            count = self.laws.constant(math.prod(v.extent for v in unused), kind)
            terms.body = self.laws.binary(Multiply(), kind, terms.body, count)
        if isinstance(operation, Add) or operation.idempotent:
            terms.variables = [v for v in terms.variables if v not in unused]
        own = [c for c in terms.conditions if not free_variables(c).isdisjoint(terms.variables)]
        others = [c for c in terms.conditions if free_variables(c).isdisjoint(terms.variables)]
        if not terms.variables:
            return self.terms.every(others, terms.body, neutral)
        if not terms.devices.isdisjoint(terms.variables):
            distributed = self._distributed(operation, kind, terms)
            if distributed is not None:
                return distributed
        body = self.terms.every(own, terms.body, neutral)
        head = _head(operation, kind)
        extra = tuple(v.extent for v in unused if v in terms.variables)
        total = self.terms.close((*head, *extra), [body], terms.variables)
        return self.terms.every(others, total, neutral)

    def _distributed(self, operation: Operation, kind: ElementType, terms: _Range) -> Term | None:
        """Combine the operands of a linear operation over the devices instead of its results."""
        body = terms.body
        if not isinstance(body, Element):
            return None
        linear, *types = body.function.head
        if not isinstance(linear, Operation) or any(t not in (kind.name, "pred") for t in types):
            return None
        operands, _ = self.terms.opened(body)

        def total(term: Term) -> Term:
            part = _Range(list(terms.variables), term, list(terms.conditions), terms.devices)
            return self._combined(operation, kind, part)

        is_fixed = [o.free.isdisjoint(terms.variables) for o in operands]
        sources = [kind] * len(operands)
        match operation, linear:
            case Add(), (Add() | Subtract() | Negate()):
                return self.laws.apply(linear, kind, sources, list(map(total, operands)))
            case Add(), Divide() if is_fixed[1]:
                return self.laws.apply(linear, kind, sources, [total(operands[0]), operands[1]])
            case Add(), Select() if is_fixed[0]:
                chosen = [operands[0], total(operands[1]), total(operands[2])]
                return self.laws.terms.close(body.function.head, chosen)
            case _ if operation == linear:
                return self.laws.apply(linear, kind, sources, list(map(total, operands)))
            case _:
                return None


def _head(operation: Operation, kind: ElementType) -> tuple[str, str, str]:
    return "total", operation.opcode, kind.name


def _coefficient(index: Index, variable: Variable) -> int:
    return next((c for v, c in index.terms if v is variable), 0)


def _indices(term: Term) -> list[Index]:
    """Return the indices of a term."""
    if isinstance(term, Element):
        return list(term.indices)
    if isinstance(term, Piecewise):
        return [term.condition, *_indices(term.yes), *_indices(term.no)]
    return [term.index]
