"""Elements of values as terms over the elements of a program's arguments.

A term is an element of a *function* at some indices, a number, or a choice between terms by a condition on
indices. A function is closed: it is defined by an operation on elements of other functions, at indices that
are its own parameters, or that it binds (in a sum). Whatever a value depends on besides, such as a device
or a dimension, is in the indices. So two values that are computed alike, on tiles or on whole arrays, are
elements of one function, at different indices, and a value is as large as its own operation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, TypeAlias

from hloom.ir.affine import Index, Indices, Variable
from hloom.proofs.relations.indices import Datum, Quotient, Quotients, free_variables, negated, reduced
from hloom.records import dataclass
from hloom.shape.element_type import ElementType

MOST_CONDITIONS: Final = 8
"""An operation is not applied to the alternatives of more conditions."""


class ClosedFunction:
    """What an operation computes from elements of other functions.

    Attributes:
        head: the operation, and all that its result depends on besides its operands.
        operands: the terms that it is applied to, over its parameters and the variables that it binds.
        bound: the variables that it binds.
    """

    __slots__ = ("bound", "head", "number", "operands", "specialized")

    def __init__(
        self, number: int, head: Head, operands: tuple[Term, ...], bound: tuple[Variable, ...]
    ) -> None:
        self.number = number
        self.head = head
        self.operands = operands
        self.bound = bound
        self.specialized: dict[tuple[int, ...], tuple[ClosedFunction, tuple[int, ...]]] = {}

    def __repr__(self) -> str:
        return f"f{self.number}"


@dataclass(frozen=True)
class Element:
    """The element of a function at indices, of which no two are equal."""

    function: ClosedFunction
    indices: Indices

    @cached_property
    def free(self) -> frozenset[Variable]:
        """The variables on which the element depends."""
        return frozenset[Variable]().union(*map(free_variables, self.indices))


@dataclass(frozen=True)
class Number:
    """An integer, or a predicate as 0 or 1."""

    index: Index

    @cached_property
    def free(self) -> frozenset[Variable]:
        """The variables on which the number depends."""
        return free_variables(self.index)


@dataclass(frozen=True)
class Piecewise:
    """One term where ``condition >= 0``, else another."""

    condition: Index
    yes: Term
    no: Term

    @cached_property
    def free(self) -> frozenset[Variable]:
        """The variables on which condition and alternatives depend."""
        return free_variables(self.condition) | self.yes.free | self.no.free


Term: TypeAlias = Element | Number | Piecewise
TRUE: Final = Number(Index(1))
FALSE: Final = Number(Index(0))
Head: TypeAlias = tuple[Any, ...]
"""An operation, and all that its result depends on besides its operands."""
Renaming: TypeAlias = Mapping[Variable, Index]


class Terms:
    """All functions and indices of a proof; equal ones are one object."""

    def __init__(self) -> None:
        self.quotients = Quotients()
        self._functions: dict[Hashable, ClosedFunction] = {}
        self._data: dict[tuple[Element, int, int], Datum] = {}
        self._parameters: list[Variable] = []
        self._known_parameters: frozenset[Variable] = frozenset()
        self._bound: dict[tuple[int, int], Variable] = {}
        self._axes: dict[tuple[int, int], Index] = {}

    # -- variables

    def axes(self, dimensions: Sequence[int]) -> Indices:
        """Return the index of an element of an array: a variable for each dimension."""
        return tuple(map(self._axis, range(len(dimensions)), dimensions))

    def _axis(self, number: int, extent: int) -> Index:
        key = number, extent
        if key not in self._axes:
            self._axes[key] = Index.of(Variable(extent, "x"))
        return self._axes[key]

    def parameter(self, number: int) -> Variable:
        """Return a parameter of functions; nothing is known of its value, which may be negative."""
        if len(self._parameters) <= number:
            count = len(self._parameters)
            self._parameters += [Variable(1 << 80, "p") for _ in range(count, number + 1)]
            self._known_parameters = frozenset(self._parameters)
        return self._parameters[number]

    def bound(self, number: int, extent: int) -> Variable:
        """Return a bound variable of functions."""
        key = number, extent
        if key not in self._bound:
            self._bound[key] = Variable(extent, "b")
        return self._bound[key]

    def datum(self, element: Element, kind: ElementType) -> Index:
        """Return an element of an integer type as an index."""
        least = -(1 << kind.bits - 1) if kind.is_signed else 0
        return self._datum(element, 1 << kind.bits, least)

    def _datum(self, element: Element, extent: int, least: int) -> Index:
        key = element, extent, least
        if key not in self._data:
            self._data[key] = Datum(element, extent, least)
        return Index(least, [(self._data[key], 1)])

    # -- functions

    def close(
        self,
        head: Head,
        operands: Sequence[Term],
        bound: Sequence[Variable] = (),
        *,
        ordered: bool = False,
    ) -> Element:
        """Return the result of an operation on terms.

        Args:
            head: the operation.
            operands: what it is applied to.
            bound: variables over which it ranges.
            ordered: whether the order of these matters; otherwise it is that of their first use.
        """
        abstraction = _Abstraction(self, bound, ordered=ordered)
        patterns = tuple([abstraction.term(o) for o in operands])
        names = tuple(abstraction.names.values())
        key = head, patterns, names
        function = self._functions.get(key)
        if function is None:
            function = self._functions[key] = ClosedFunction(len(self._functions), head, patterns, names)
        return Element(function, tuple(abstraction.arguments))

    def opened(self, element: Element) -> tuple[Sequence[Term], list[Variable]]:
        """Return the operands of the operation that computes an element, and the variables that it binds."""
        fresh = [Variable(b.extent, "b") for b in element.function.bound]
        return self.opened_over(element, fresh), fresh

    def opened_over(self, element: Element, variables: Sequence[Variable]) -> list[Term]:
        """Return the operands of the operation that computes an element; variables replace those it binds."""
        function = element.function
        renaming = {b: Index.of(v) for b, v in zip(function.bound, variables, strict=True)}
        renaming.update({self.parameter(n): index for n, index in enumerate(element.indices)})
        return [self.at(o, renaming) for o in function.operands]

    # -- substitution

    def at(self, term: Term, renaming: Renaming) -> Term:
        """Return a term with other indices in the place of variables."""
        if not renaming or term.free.isdisjoint(renaming):
            return term
        match term:
            case Element():
                indices = tuple([self.index_at(index, renaming) for index in term.indices])
                return self._element(term.function, indices)
            case Number():
                return Number(self.index_at(term.index, renaming))
            case Piecewise():
                condition = self.index_at(term.condition, renaming)
                return self.choose(condition, self.at(term.yes, renaming), self.at(term.no, renaming))

    def index_at(self, index: Index, renaming: Renaming) -> Index:
        """Return an index with others in the place of variables."""
        total = Index(index.constant)
        kept: list[tuple[Variable, int]] = []
        for variable, coefficient in index.terms:
            other = renaming.get(variable)
            if other is None and isinstance(variable, Quotient | Datum):
                other = self._derived_at(variable, renaming)
            if other is None:
                kept.append((variable, coefficient))
            else:
                total += other * coefficient
        return total + Index(0, kept) if len(kept) < len(index.terms) else index

    def _derived_at(self, variable: Quotient | Datum, renaming: Renaming) -> Index | None:
        if variable.free.isdisjoint(renaming):
            return None
        if isinstance(variable, Quotient):
            return self.quotients.divide(self.index_at(variable.dividend, renaming), variable.divisor)
        element = self.at(variable.element, renaming)
        assert isinstance(element, Element)
        return self.moved_datum(variable, element) - variable.least

    def moved_datum(self, datum: Datum, element: Element) -> Index:
        """Return another element of the same type as an index."""
        return self._datum(element, datum.extent, datum.least)

    def _element(self, function: ClosedFunction, indices: Indices) -> Element:
        """Return an element at indices of which some may be equal."""
        places: dict[Index, int] = {}
        pattern = tuple([places.setdefault(index, n) for n, index in enumerate(indices)])
        if len(places) == len(indices):
            return Element(function, indices)
        if pattern not in function.specialized:
            renaming = {self.parameter(n): Index.of(self.parameter(m)) for n, m in enumerate(pattern)}
            operands = [self.at(o, renaming) for o in function.operands]
            special = self.close(function.head, operands, function.bound, ordered=True)
            numbers = {self.parameter(n): n for n in places.values()}
            order = tuple([numbers[index.terms[0][0]] for index in special.indices])
            function.specialized[pattern] = special.function, order
        special, order = function.specialized[pattern]
        return Element(special, tuple([indices[n] for n in order]))

    # -- choices

    def choose(self, condition: Index, yes: Term, no: Term) -> Term:
        """Return one term where a condition holds, else another."""
        if self._is_true(condition):
            return yes
        if self._is_true(negated(condition)):
            return no
        condition = reduced(condition)
        yes, no = self.assume(yes, condition), self.assume(no, negated(condition))
        return yes if yes == no else Piecewise(condition, yes, no)

    def _is_true(self, condition: Index) -> bool:
        """Return whether a condition holds for all values of its variables; none of parameters is decided."""
        return condition.minimum() >= 0 and free_variables(condition).isdisjoint(self._known_parameters)

    def every(self, conditions: Sequence[Index], yes: Term, no: Term) -> Term:
        """Return one term where all conditions hold, else another."""
        for condition in reversed(conditions):
            yes = self.choose(condition, yes, no)
        return yes

    def piecewise(self, index: Index, pieces: Sequence[tuple[int, Term]], last: Term) -> Term:
        """Return the term of the first piece whose end is above an index, else the last."""
        for end, term in reversed(pieces):
            last = self.choose(index * -1 + (end - 1), term, last)
        return last

    def assume(self, term: Term, fact: Index) -> Term:
        """Return a term for the indices for which a fact holds."""
        if not isinstance(term, Piecewise):
            return term
        if self._is_true(term.condition - fact):
            return self.assume(term.yes, fact)
        if self._is_true(negated(term.condition) - fact):
            return self.assume(term.no, fact)
        yes, no = self.assume(term.yes, fact), self.assume(term.no, fact)
        if yes is term.yes and no is term.no:
            return term
        return yes if yes == no else Piecewise(term.condition, yes, no)

    def sealed(self, term: Term) -> Term:
        """Return a choice that depends on data as an element, to which operations apply as a whole."""
        is_choice = isinstance(term, Piecewise) and any(map(_depends_on_data, conditions_of([term])))
        return self.close(SEALED, [term]) if is_choice else term

    def unsealed(self, term: Term) -> Term:
        """Return the choice that a sealed one is; other terms as they are."""
        if isinstance(term, Element) and term.function.head == SEALED:
            return self.opened(term)[0][0]
        return term


SEALED: Final = ("choice",)
"""The head of a choice whose alternatives are not looked at."""


def by_cases(
    terms: Terms,
    values: Sequence[Term],
    leaf: Callable[[Sequence[Term]], Term],
    variables: Collection[Variable] = (),
) -> Term:
    """Return a function of values that are no choices; of choices, the choice of its results.

    Conditions on some variables stay as they are.
    """
    for value in values:
        for condition in conditions_of([value]):
            if free_variables(condition).isdisjoint(variables):
                facts = condition, negated(condition)
                parts = [[terms.assume(v, fact) for v in values] for fact in facts]
                yes, no = (by_cases(terms, part, leaf, variables) for part in parts)
                return terms.choose(condition, yes, no)
    return leaf(values)


def conditions_of(terms: Sequence[Term]) -> dict[Index, None]:
    """Return the conditions of choices between terms, outermost first."""
    conditions: dict[Index, None] = {}
    pending = list(terms)
    while pending:
        term = pending.pop()
        if isinstance(term, Piecewise):
            conditions[term.condition] = None
            pending += [term.yes, term.no]
    return conditions


def _depends_on_data(condition: Index) -> bool:
    return any(isinstance(v, Datum) for v, _ in condition.terms)


class _Abstraction:
    """Replaces what indices depend on outside a function by its parameters.

    Attributes:
        arguments: the indices that the parameters stand for.
        names: the variables of the function in the place of bound ones.
    """

    def __init__(self, terms: Terms, bound: Sequence[Variable], *, ordered: bool) -> None:
        self._terms = terms
        self._is_bound = frozenset(bound)
        self.names: dict[Variable, Variable] = {}
        self.arguments: dict[Index, int] = {}
        if ordered:
            for variable in bound:
                self._name(variable)

    def term(self, term: Term) -> Term:
        """Return a term over parameters and names."""
        match term:
            case Element():
                return Element(term.function, tuple([self.index(index) for index in term.indices]))
            case Number():
                return Number(self.index(term.index))
            case Piecewise():
                return Piecewise(self.index(term.condition), self.term(term.yes), self.term(term.no))

    def index(self, index: Index) -> Index:
        """Return an index over parameters and names."""
        if not self._is_bound:
            return self._parameter(index)
        free: list[tuple[Variable, int]] = []
        bound: list[tuple[Variable, int]] = []
        for variable, coefficient in index.terms:
            if variable in self._is_bound:
                bound.append((self._name(variable), coefficient))
            elif isinstance(variable, Quotient | Datum) and not variable.free.isdisjoint(self._is_bound):
                bound.append((self._derived(variable), coefficient))
            else:
                free.append((variable, coefficient))
        if not bound:
            return self._parameter(index)
        if not free:
            return Index(index.constant, bound)
        return self._parameter(Index(index.constant, free)) + Index(0, bound)

    def _derived(self, variable: Quotient | Datum) -> Variable:
        if isinstance(variable, Quotient):
            index = self._terms.quotients.quotient(self.index(variable.dividend), variable.divisor)
        else:
            element = self.term(variable.element)
            assert isinstance(element, Element)
            index = self._terms.moved_datum(variable, element)
        return index.terms[0][0]

    def _name(self, variable: Variable) -> Variable:
        if variable not in self.names:
            self.names[variable] = self._terms.bound(len(self.names), variable.extent)
        return self.names[variable]

    def _parameter(self, index: Index) -> Index:
        number = self.arguments.setdefault(index, len(self.arguments))
        return Index.of(self._terms.parameter(number))
