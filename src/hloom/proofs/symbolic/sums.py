"""Sums of products over the reals, which are equal if they have the same terms in any order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Final, Protocol

import numpy as np

from hloom.operations.arithmetic import Add, Divide, Multiply, Subtract
from hloom.operations.conversion import Convert
from hloom.operations.unary import Negate
from hloom.proofs.symbolic.bijections import bijections, ranges
from hloom.proofs.symbolic.elements import scalar
from hloom.proofs.symbolic.facts import Facts, within
from hloom.proofs.symbolic.polynomial import Polynomial
from hloom.proofs.symbolic.sizes import Constraint
from hloom.proofs.symbolic.terms import Apply, Choose, Guard, Scalar, Sum, Term, substituted
from hloom.records import dataclass

MOST_PRODUCTS: Final = 64
"""Maximum number of products into which a term is expanded."""


class FactorComparer(Protocol):
    """Compares the factors of products."""

    def decided(self, term: Term, facts: Facts) -> Term:
        """Return a term without the choices that the facts decide."""
        ...

    def are_equal(self, a: Term, b: Term, facts: Facts) -> bool:
        """Return whether two elements are equal wherever the facts hold."""
        ...


@dataclass(frozen=True, slots=True)
class Product:
    """A multiple of a product of elements, summed over positions.

    Attributes:
        coefficient: the multiple.
        factors: the elements.
        variables: the loops.
        guard: the positions that count.
    """

    coefficient: Fraction
    factors: tuple[Term, ...] = ()
    variables: tuple[tuple[str, Polynomial], ...] = ()
    guard: Guard = ()

    def times(self, other: Product) -> Product:
        """Return the product of two sums of products, over both loops."""
        return Product(
            self.coefficient * other.coefficient,
            (*self.factors, *other.factors),
            (*self.variables, *other.variables),
            (*self.guard, *other.guard),
        )


def are_equal_sums(comparer: FactorComparer, a: Term, b: Term, facts: Facts) -> bool:
    """Return whether two elements are sums of the same products."""
    first, second = expanded(a), expanded(b)
    if first == [Product(Fraction(1), (a,))] and second == [Product(Fraction(1), (b,))]:
        return False
    products = [*first, *_negated(second)]
    if len(products) > MOST_PRODUCTS:
        return False
    waiting = [p for product in products for p in _reduced(comparer, product, facts)]
    while waiting:
        first = waiting.pop()
        total, others = first.coefficient, list[Product]()
        for other in waiting:
            if _is_same(comparer, first, other, facts):
                total += other.coefficient
            else:
                others.append(other)
        if total:
            return False
        waiting = others
    return True


def expanded(term: Term) -> list[Product]:
    """Return the products whose sum is a term."""
    match term:
        case Scalar(value=value, element_type=kind) if kind.is_integer or kind.is_floating:
            number = np.frombuffer(value, kind.numpy_dtype)[0]
            if kind.is_integer or np.isfinite(float(number)):
                return [Product(Fraction(int(number) if kind.is_integer else float(number)))]
        case Apply(operation=Add(), operands=(x, y)) if not term.element_type.is_predicate:
            return [*expanded(x), *expanded(y)]
        case Apply(operation=Subtract(), operands=(x, y)):
            return [*expanded(x), *_negated(expanded(y))]
        case Apply(operation=Negate(), operands=(x,)):
            return _negated(expanded(x))
        case Apply(operation=Multiply(), operands=(x, y)) if not term.element_type.is_predicate:
            return [p.times(q) for p in expanded(x) for q in expanded(y)]
        case Apply(operation=Divide(), operands=(x, y)) if term.element_type.is_floating:
            inverse = Apply(Divide(), (scalar(1, term.element_type), y), term.element_type)
            return (
                [p.times(Product(Fraction(1), (inverse,))) for p in expanded(x)]
                if x != inverse.operands[0]
                else [Product(Fraction(1), (term,))]
            )
        case Apply(operation=Convert(), operands=(x,)) if _is_exact(x, term):
            return expanded(x)
        case Sum() if _adds(term) and len(term.bodies) == 1:
            start = [p for v in term.initial for p in expanded(v)]
            return [*start, *_steps(term, term.bodies[0], term.guard)]
        case _:
            pass
    return [Product(Fraction(1), (term,))]


def _steps(term: Sum, body: Term, guard: Guard) -> list[Product]:
    """Return the products of a sum's steps where a guard holds, a choice of the body as two sums."""
    if isinstance(body, Choose):
        pieces = _steps(term, body.yes, (*guard, *body.guard))
        for number, comparison in enumerate(body.guard):
            pieces += _steps(term, body.no, (*guard, *body.guard[:number], comparison.negation()))
        return pieces
    choice = next(_choices(body), None)
    if choice is not None:
        pieces = _steps(term, _chosen(body, choice, yes=True), (*guard, *choice.guard))
        for number, comparison in enumerate(choice.guard):
            other = _chosen(body, choice, yes=False)
            pieces += _steps(term, other, (*guard, *choice.guard[:number], comparison.negation()))
        return pieces
    loops = Product(Fraction(1), (), term.variables, guard)
    return [loops.times(p) for p in expanded(body)]


def _choices(term: Term) -> Iterator[Choose]:
    """Yield the choices among the operands of operations."""
    if isinstance(term, Choose):
        yield term
    elif isinstance(term, Apply):
        for operand in term.operands:
            yield from _choices(operand)


def _chosen(term: Term, choice: Choose, *, yes: bool) -> Term:
    """Return a term with one of the sides of a choice in its place."""
    if term == choice:
        return choice.yes if yes else choice.no
    if isinstance(term, Apply):
        return replace(term, operands=tuple(_chosen(o, choice, yes=yes) for o in term.operands))
    return term


def _negated(products: Sequence[Product]) -> list[Product]:
    return [replace(p, coefficient=-p.coefficient) for p in products]


def _adds(term: Sum) -> bool:
    kind = term.element_type
    return not kind.is_predicate and (isinstance(term.combiner, Add) or term.combiner_is_products)


def _is_exact(x: Term, term: Term) -> bool:
    before, after = x.element_type, term.element_type
    return (before.is_integer and after.is_integer) or (before.is_floating and after.is_floating)


def _reduced(comparer: FactorComparer, product: Product, facts: Facts) -> list[Product]:
    """Return a product without loops of one step, nothing if it is 0 or has no positions."""
    inside = facts.assume(*ranges(product.variables), *product.guard)
    if not product.coefficient or inside.contradict:
        return []
    for name, _ in product.variables:
        value = _only_value(name, product, facts, inside)
        if value is not None:
            return _reduced(comparer, _at(product, name, value), facts)
    return [replace(product, factors=tuple(comparer.decided(f, inside) for f in product.factors))]


def _only_value(name: str, product: Product, facts: Facts, inside: Facts) -> Polynomial | None:
    """Return the only value of a loop variable at the positions that count; None if there may be more."""
    bounds = [c.polynomial for c in (*ranges(product.variables), *product.guard)]
    values = dict.fromkeys(v for b in bounds if name in b.variables and (v := b.solve(name)) is not None)
    others = {n for n, _ in product.variables}
    for value in values:
        # The comparison p < 0 leaves p = -1.
        for candidate in (value, value + Polynomial.constant(1), value - Polynomial.constant(1)):
            if candidate.variables & others or not inside.are_equal(Polynomial.variable(name), candidate):
                continue
            remaining = _at(product, name, candidate)
            there = facts.assume(*ranges(remaining.variables))
            equal = there.assume(Constraint(Polynomial.variable(name) - candidate, is_equation=True))
            extent = dict(product.variables)[name]
            if all(equal.entail(c) for c in within(Polynomial.variable(name), extent)):
                return candidate
    return None


def _at(product: Product, name: str, value: Polynomial) -> Product:
    """Return a product with one value for a loop variable."""
    image = {name: value}
    guard = tuple(replace(c, polynomial=c.polynomial.substitute(image)) for c in product.guard)
    variables = tuple(v for v in product.variables if v[0] != name)
    return replace(
        product,
        factors=tuple(substituted(f, image) for f in product.factors),
        variables=variables,
        guard=guard,
    )


def _is_same(comparer: FactorComparer, a: Product, b: Product, facts: Facts) -> bool:
    """Return whether two products are equal but for their coefficients."""
    if len(a.factors) != len(b.factors):
        return False
    if a.variables == b.variables and a.guard == b.guard:
        inside = facts.assume(*ranges(a.variables), *a.guard)
        return _same_factors(comparer, a.factors, b.factors, inside)
    relations = bijections(a, b, (a.factors, b.factors), facts, keeps_order=False)
    return any(_same_factors(comparer, a.factors, b.factors, here) for here in relations)


def _same_factors(comparer: FactorComparer, a: Sequence[Term], b: Sequence[Term], facts: Facts) -> bool:
    """Return whether factors are equal in some order."""
    if not a:
        return True
    first, *others = a
    for number, other in enumerate(b):
        if first.element_type is not other.element_type and not first.element_type.is_floating:
            continue
        remaining = [*b[:number], *b[number + 1 :]]
        if comparer.are_equal(first, other, facts) and _same_factors(comparer, others, remaining, facts):
            return True
    return False
