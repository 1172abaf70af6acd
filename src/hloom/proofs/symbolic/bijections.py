"""Bijections between the positions of two sums: permuted, shifted, reversed and merged loops."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias

from hloom.proofs.symbolic.facts import Facts, within
from hloom.proofs.symbolic.polynomial import Polynomial
from hloom.proofs.symbolic.sizes import Constraint
from hloom.proofs.symbolic.terms import Access, Guard, Term, subterms

Loops: TypeAlias = Sequence[tuple[str, Polynomial]]
"""Loop variables and their extents, outermost first."""
Image: TypeAlias = Mapping[str, Polynomial]
"""The variables of some loops as functions of those of others."""

_ONE = Polynomial.constant(1)


class Positions(Protocol):
    """The positions that a sum runs over."""

    @property
    def variables(self) -> tuple[tuple[str, Polynomial], ...]:
        """The loops."""
        ...

    @property
    def guard(self) -> Guard:
        """The comparisons that hold at the positions that count."""
        ...


def ranges(loops: Loops) -> Guard:
    """Return the comparisons that hold of the variables of loops."""
    return tuple(c for name, extent in loops for c in within(Polynomial.variable(name), extent))


def bijections(
    a: Positions,
    b: Positions,
    terms: tuple[Sequence[Term], Sequence[Term]],
    facts: Facts,
    *,
    keeps_order: bool,
) -> Iterator[Facts]:
    """Yield the facts at the positions of a sum, together with the related position of another sum.

    Every position of either is related to exactly one of the other.

    Args:
        a, b: the sums, which have no variable in common.
        terms: what each sums, which suggests relations.
        facts: what holds outside of the sums.
        keeps_order: whether related positions must come in the same order.
    """
    first, second = a.variables, b.variables
    if {name for name, _ in first} & {name for name, _ in second}:
        return
    (x, count), (y, other) = map(_linear, (first, second))
    if not a.guard and not b.guard and len(first) == len(second) > 1 and facts.are_equal(count, other):
        # Both orders of positions are row-major.
        same = Constraint(x - y, is_equation=True)
        yield facts.assume(same, *ranges(first), *ranges(second))
    for image, is_merger in _images(first, second, terms, facts, keeps_order=keeps_order):
        equations = [
            Constraint(Polynomial.variable(name) - value, is_equation=True) for name, value in image.items()
        ]
        related = facts.assume(*equations)
        here = related.assume(*ranges(first), *a.guard)
        there = related.assume(*ranges(second), *b.guard, *(ranges(first) if is_merger else ()))
        if _entails(here, (*ranges(second), *b.guard)) and _entails(there, (*ranges(first), *a.guard)):
            yield here


def _entails(facts: Facts, guard: Guard) -> bool:
    return all(facts.entail(c) for c in guard) or facts.contradict


def _images(
    first: Loops,
    second: Loops,
    terms: tuple[Sequence[Term], Sequence[Term]],
    facts: Facts,
    *,
    keeps_order: bool,
) -> Iterator[tuple[Image, bool]]:
    """Yield relations of loops that may be bijections of their positions, and whether they merge loops."""
    if len(first) > len(second):
        yield from ((image, True) for image in _mergers(first, second, facts))
    elif len(first) < len(second):
        yield from ((image, True) for image in _mergers(second, first, facts))
    else:
        straight = {w: Polynomial.variable(v) for (v, _), (w, _) in zip(first, second, strict=True)}
        yield straight, False
        for order in itertools.permutations(first):
            names = [name for name, _ in order]
            for image in _affine(names, [name for name, _ in second], terms, facts):
                if image != straight and (
                    not keeps_order or (order == tuple(first) and not _reverses(image))
                ):
                    yield image, False


def _reverses(image: Image) -> bool:
    return any(
        coefficient < 0 for value in image.values() for monomial, coefficient in value.terms if monomial
    )


def _affine(
    names: Sequence[str], others: Sequence[str], terms: tuple[Sequence[Term], Sequence[Term]], facts: Facts
) -> Iterator[Image]:
    """Yield each variable as one of the others, itself or reversed, shifted so that elements agree."""
    yield {w: Polynomial.variable(v) for v, w in zip(names, others, strict=True)}
    mine, theirs = (list(_accesses(each)) for each in terms)
    for x, y in itertools.product(mine, theirs):
        if x.array == y.array:
            yield from _shifted(names, others, facts.normal(x.linear), facts.normal(y.linear))


def _shifted(names: Sequence[str], others: Sequence[str], x: Polynomial, y: Polynomial) -> Iterator[Image]:
    """Yield values of the other variables for which a linear index equals another."""
    factors = {w: _coefficient(y, w) for w in others}
    image: dict[str, Polynomial] = {}
    for v, w in zip(names, others, strict=True):
        variable = Polynomial.variable(v)
        image[w] = -variable if factors[w].terms and _coefficient(x, v) == -factors[w] else variable
    difference = x - y.substitute(image)
    for w in sorted(others, key=lambda w: -_degree(factors[w])):
        shift, difference = difference.divide(factors[w])
        if len(factors[w].terms) == 1 and not shift.variables & {*names, *others}:
            image[w] += shift
    yield image


def _coefficient(polynomial: Polynomial, name: str) -> Polynomial:
    """Return the factor of a variable that occurs linearly."""
    return Polynomial(
        (tuple(v for v in monomial if v != name), c)
        for monomial, c in polynomial.terms
        if monomial.count(name) == 1
    )


def _degree(polynomial: Polynomial) -> int:
    return max((len(monomial) for monomial, _ in polynomial.terms), default=0)


def _accesses(terms: Sequence[Term]) -> Iterator[Access]:
    for term in terms:
        if isinstance(term, Access):
            yield term
        yield from _accesses(subterms(term))


def _linear(loops: Loops) -> tuple[Polynomial, Polynomial]:
    """Return the number of a position in row-major order, and the number of positions."""
    index, count = Polynomial(), _ONE
    for name, size in loops:
        index = index * size + Polynomial.variable(name)
        count *= size
    return index, count


def _mergers(first: Loops, second: Loops, facts: Facts) -> Iterator[Image]:
    """Yield the values of fewer loops of which each runs over the positions of adjacent ones, in order."""
    if not second:
        return
    for cut in itertools.combinations(range(1, len(first)), len(second) - 1):
        groups = [first[x:y] for x, y in itertools.pairwise((0, *cut, len(first)))]
        image: dict[str, Polynomial] = {}
        for group, (name, extent) in zip(groups, second, strict=True):
            index, count = _linear(group)
            if not facts.are_equal(count, extent):
                break
            image[name] = index
        else:
            yield image
