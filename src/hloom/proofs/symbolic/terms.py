"""Terms: an element of a result, as a function of its index and of the elements of parameters."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TypeAlias

from hloom.ir.operation import Operation
from hloom.proofs.symbolic.polynomial import Polynomial
from hloom.proofs.symbolic.sizes import Constraint
from hloom.records import dataclass
from hloom.shape.element_type import ElementType

Guard: TypeAlias = tuple[Constraint, ...]
"""Comparisons that all hold."""


@dataclass(frozen=True, slots=True)
class Access:
    """An element of a parameter, or of a constant array.

    Attributes:
        array: what is read: the number of the parameter and the path in its tuple, or the constant's bytes.
        linear: the row-major linear index.
        element_type: of the array.
        coordinates: the index along each dimension, and the size of the dimension.
    """

    array: tuple[int | bytes, ...]
    linear: Polynomial
    element_type: ElementType
    coordinates: tuple[tuple[Polynomial, Polynomial], ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number of a type, as the bytes of its numpy value."""

    value: bytes
    element_type: ElementType


@dataclass(frozen=True, slots=True)
class IndexValue:
    """An index as an element of a type."""

    index: Polynomial
    element_type: ElementType


@dataclass(frozen=True, slots=True)
class Apply:
    """An elementwise operation on elements."""

    operation: Operation
    operands: tuple[Term, ...]
    element_type: ElementType


@dataclass(frozen=True, slots=True)
class Choose:
    """One of two elements, by a condition on indices."""

    guard: Guard
    yes: Term
    no: Term

    @property
    def element_type(self) -> ElementType:
        return self.yes.element_type


@dataclass(frozen=True, slots=True)
class Sum:
    """The combination of the elements of a set of positions, in no order if the combiner allows any.

    Attributes:
        combiner: the operation, or the text of the computation.
        is_free: whether values may be combined in any order and grouping.
        variables: the loops, outermost first, with their extents.
        guard: the positions that count.
        bodies: the elements at a position, one for each array.
        initial: the values from which the results start; empty for 0.
        output: the number of the result.
        element_type: of the result.
    """

    combiner: Operation | str
    is_free: bool
    variables: tuple[tuple[str, Polynomial], ...]
    guard: Guard
    bodies: tuple[Term, ...]
    initial: tuple[Term, ...]
    output: int
    element_type: ElementType

    @property
    def combiner_is_products(self) -> bool:
        """Whether it is the sum of a dot or a convolution."""
        return isinstance(self.combiner, str) and self.combiner.startswith("products ")


Term: TypeAlias = Access | Scalar | IndexValue | Apply | Choose | Sum


def subterms(term: Term) -> tuple[Term, ...]:
    """Return the terms of which a term is made."""
    match term:
        case Apply():
            return term.operands
        case Choose():
            return term.yes, term.no
        case Sum():
            return (*term.bodies, *term.initial)
        case _:
            return ()


def variables_of(term: Term) -> set[str]:
    """Return the variables on which a term depends, loop variables of its sums included."""
    match term:
        case Access(linear=index) | IndexValue(index=index):
            return set(index.variables)
        case Choose(guard=guard):
            names = {name for c in guard for name in c.polynomial.variables}
        case Sum(guard=guard, variables=loops):
            extents = {name for _, extent in loops for name in extent.variables}
            names = extents | {name for c in guard for name in c.polynomial.variables}
        case _:
            names = set[str]()
    return names.union(*map(variables_of, subterms(term)))


def substituted(term: Term, definitions: dict[str, Polynomial]) -> Term:
    """Return a term with some index variables replaced."""
    if not definitions:
        return term

    def guard(comparisons: Guard) -> Guard:
        return tuple(replace(c, polynomial=c.polynomial.substitute(definitions)) for c in comparisons)

    match term:
        case Access():
            coordinates = tuple(
                (i.substitute(definitions), n.substitute(definitions)) for i, n in term.coordinates
            )
            return replace(term, linear=term.linear.substitute(definitions), coordinates=coordinates)
        case IndexValue():
            return replace(term, index=term.index.substitute(definitions))
        case Apply():
            return replace(term, operands=tuple(substituted(o, definitions) for o in term.operands))
        case Choose():
            yes, no = substituted(term.yes, definitions), substituted(term.no, definitions)
            return Choose(guard(term.guard), yes, no)
        case Sum():
            return replace(
                term,
                variables=tuple((name, extent.substitute(definitions)) for name, extent in term.variables),
                guard=guard(term.guard),
                bodies=tuple(substituted(b, definitions) for b in term.bodies),
                initial=tuple(substituted(v, definitions) for v in term.initial),
            )
        case Scalar():
            return term
