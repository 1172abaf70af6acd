"""Reads the declarations of operations (`Operation.element`) as relations between elements.

A position that a program computes, such as the start of a slice, is an index with conditions. Where it is
clamped, or is one of several, the declaration is read again for each case.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, TypeAlias, cast

from hloom.ir.affine import Index, Indices
from hloom.ir.indexing import Indexing, Read
from hloom.ir.instruction import HloInstruction
from hloom.proofs.relations.indices import negated
from hloom.proofs.relations.laws import Laws
from hloom.proofs.relations.mesh import NoRelation
from hloom.proofs.relations.terms import Number, Piecewise, Term, Terms
from hloom.shape.element_type import ElementType
from hloom.shape.literal import Literal

Conditions: TypeAlias = tuple[Index, ...]
"""Indices that are not negative."""
MOST_CASES: Final = 12
"""Maximum number of conditions under which a declaration is read."""


class _Undecided(Exception):
    """A condition that no known fact decides."""

    def __init__(self, condition: Index) -> None:
        super().__init__()
        self.condition = condition


class ElementTerms(Indexing[Conditions, Term]):
    """The interpreter of declarations on terms.

    Args:
        terms: the terms of the proof.
        laws: the laws of elementwise operations.
        read: returns the element of an instruction at indices.
    """

    def __init__(self, terms: Terms, laws: Laws, read: Callable[[HloInstruction, Indices], Term]) -> None:
        super().__init__()
        self.terms = terms
        self.laws = laws
        self.element_at = read
        self._facts: list[Index] = []

    def of(self, i: HloInstruction, indices: Indices) -> Term:
        """Return the element of an instruction whose operation declares it."""
        result = self._explored(i, indices, [])
        kind = i.shape.element_type
        return result if kind.is_integer or kind.is_predicate else self.terms.sealed(result)

    def picked(self, read: Read[Conditions], outside: Term) -> Term:
        """Return the operand element of a read; another one where its condition does not hold."""
        return self.terms.every(
            read.condition or (), self.element_at(read.instruction, read.indices), outside
        )

    def _explored(self, i: HloInstruction, indices: Indices, facts: list[Index]) -> Term:
        if len(facts) > MOST_CASES:
            raise NoRelation(f"%{i.name} addresses elements in too many cases")
        self._facts = facts
        try:
            return self._run(i.operation.element(self, i, indices))
        except _Undecided as case:
            condition = case.condition
        yes = self._explored(i, indices, [*facts, condition])
        no = self._explored(i, indices, [*facts, negated(condition)])
        return self.terms.choose(condition, yes, no)

    def _run(self, steps: object) -> Term:
        if not isinstance(steps, Generator):
            return cast("Term", steps)
        generator = cast("Generator[Read[Conditions], Term, Term]", steps)
        try:
            read = next(generator)
            while True:
                read = generator.send(self.element_at(read.instruction, read.indices))
        except StopIteration as stop:
            return stop.value

    def holds(self, condition: Index) -> bool:
        """Return whether a condition holds in the present case."""
        for index, answer in ((condition, True), (negated(condition), False)):
            if index.minimum() >= 0 or any((index - fact).minimum() >= 0 for fact in self._facts):
                return answer
        raise _Undecided(condition)

    # -- indices

    def compare(self, index: Index, size: int) -> Conditions:
        conditions = (index, index * -1 + (size - 1))
        return tuple([c for c in conditions if c.minimum() < 0])

    def conjunction(self, a: Conditions, b: Conditions) -> Conditions:
        return (*a, *b)

    def division(self, index: Index, divisor: int) -> tuple[Index, Index]:
        quotient = self.terms.quotients.divide(index, divisor)
        return quotient, index - quotient * divisor

    def is_dense(self, i: HloInstruction) -> bool:
        """Return false: an element is addressed by the indices of its dimensions."""
        return False

    def position(self, element: Term, element_type: ElementType, extent: int) -> Index:
        while isinstance(element, Piecewise):
            element = element.yes if self.holds(element.condition) else element.no
        index = self.laws.index_of(element, element_type)
        if not self.holds(index):
            return Index(0)
        return index if self.holds(index * -1 + (extent - 1)) else Index(extent - 1)

    # -- elements

    def choose(self, condition: Conditions, yes: Term, no: Term) -> Term:
        return self.terms.every(condition, yes, no)

    def zero(self, element_type: ElementType) -> Term:
        return self.laws.constant(0, element_type)

    def literal(self, element_type: ElementType, literal: Literal) -> Term:
        return self.laws.constant(literal.array.reshape(()), element_type)

    def number(self, index: Index, element_type: ElementType) -> Term:
        if element_type.is_integer:
            return self.laws.number(index, element_type)
        if index.is_constant:
            return self.laws.constant(index.constant, element_type)
        return self.terms.close(("number", element_type.name), [Number(index)])

    def part(self, element: Term, number: Index, before: ElementType, after: ElementType) -> Term:
        return self.terms.close(("part", before.name, after.name), [element, Number(number)])

    def joined(self, elements: Sequence[Term], before: ElementType, after: ElementType) -> Term:
        return self.terms.close(("bits", before.name, after.name), elements)

    def elementwise(self, instruction: HloInstruction, operands: Sequence[Term]) -> Term:
        sources = [o.shape.element_type for o in instruction.operands]
        return self.laws.apply(instruction.operation, instruction.shape.element_type, sources, operands)

    def undeclared(self, i: HloInstruction, indices: Indices) -> Any:
        """Refuse an operation that declares no element."""
        raise NoRelation(f"{i.opcode} declares no element")
