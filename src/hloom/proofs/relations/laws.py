"""The laws of elementwise operations on terms, over bits or over the real numbers.

Integers that count devices and dimensions are computed; comparisons of integers become conditions. Every
other operation is a function of its operands, whose order does not matter if the operation commutes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from hloom.ir.affine import Index
from hloom.ir.operation import Operation
from hloom.operations.arithmetic import Add, And, Divide, Maximum, Minimum, Multiply, Or, Remainder, Subtract
from hloom.operations.comparison import Clamp, Compare, Select
from hloom.operations.conversion import Convert, Copy
from hloom.operations.unary import Negate, Not
from hloom.proofs.algebra import contains
from hloom.proofs.relations.indices import Datum
from hloom.proofs.relations.terms import (
    FALSE,
    MOST_CONDITIONS,
    TRUE,
    ClosedFunction,
    Element,
    Number,
    Term,
    Terms,
    by_cases,
    conditions_of,
)
from hloom.shape.element_type import F32, F64, ElementType
from hloom.shape.shape import Shape

Types: TypeAlias = Sequence[ElementType]
_DIRECTIONS: Final = {"GE": (0, 1), "GT": (-1, 1), "LE": (0, -1), "LT": (-1, -1)}
"""For each direction the constant and the sign of a - b in the condition that it is not negative."""


class Laws:
    """Applies elementwise operations to terms.

    Args:
        terms: the terms of the proof.
        reals: whether terms that are equal over the real numbers are equal.
    """

    def __init__(self, terms: Terms, *, reals: bool) -> None:
        self.terms = terms
        self.reals = reals
        self._values: dict[ClosedFunction, Any] = {}

    # -- constants

    def constant(self, value: Any, kind: ElementType) -> Term:
        """Return a number of an element type."""
        array = np.asarray(value, kind.numpy_dtype)
        if kind.is_integer or kind.is_predicate:
            return Number(Index(int(array)))
        if self.reals and array == 0:
            array = np.zeros((), array.dtype)
        element = self.terms.close(("constant", kind.name, array.tobytes()), ())
        self._values[element.function] = array
        return element

    def value_of(self, term: Term, kind: ElementType) -> Any:
        """Return the number that a term is; None for one that depends on anything."""
        if isinstance(term, Number) and term.index.is_constant:
            return np.asarray(term.index.constant).astype(kind.numpy_dtype)
        return self._values.get(term.function) if isinstance(term, Element) else None

    def is_constant(self, term: Term, number: float | None, kind: ElementType) -> bool:
        """Return whether a term is a number."""
        return number is not None and term == self.constant(number, kind)

    def forms_ring(self, kind: ElementType) -> bool:
        """Return whether sums and products of a type obey the laws of a ring, and are not rounded."""
        return kind.is_integer or (self.reals and (kind in (F32, F64) or kind.is_complex))

    def rounded(self, term: Term, kind: ElementType) -> Term:
        """Return a real number rounded to a type."""
        return self.terms.close(("round", kind.name), [term])

    # -- operations

    def apply(
        self,
        operation: Operation,
        kind: ElementType,
        sources: Types,
        operands: Sequence[Term],
    ) -> Term:
        """Return the result of an elementwise operation; kind and sources are the types."""
        if isinstance(operation, Select):
            operands = list(map(self.terms.unsealed, operands))
        result = self._applied(operation, kind, sources, operands)
        return result if kind.is_integer or kind.is_predicate else self.terms.sealed(result)

    def _applied(
        self,
        operation: Operation,
        kind: ElementType,
        sources: Types,
        operands: Sequence[Term],
    ) -> Term:
        if len(conditions_of(operands)) > MOST_CONDITIONS:
            return self._function(operation, kind, sources, operands)
        return by_cases(self.terms, operands, lambda each: self._of_elements(operation, kind, sources, each))

    def _of_elements(
        self, operation: Operation, kind: ElementType, sources: Types, operands: Sequence[Term]
    ) -> Term:
        known = self._computed(operation, kind, sources, operands)
        if known is not None:
            return known
        result = self._integers(operation, kind, sources[-1], operands)
        if result is None:
            result = self._simplified(operation, kind, sources, operands)
        return self._function(operation, kind, sources, operands) if result is None else result

    def binary(self, operation: Operation, kind: ElementType, a: Term, b: Term) -> Term:
        """Return the result of an operation on two terms of its type."""
        return self.apply(operation, kind, (kind, kind), (a, b))

    def _function(
        self,
        operation: Operation,
        kind: ElementType,
        sources: Types,
        operands: Sequence[Term],
    ) -> Term:
        if operation.commutative and len(operands) == 2 and sources[0] == sources[1]:
            operands = sorted(operands, key=_rank)
        head = operation, kind.name, *(source.name for source in sources)
        return self.terms.close(head, operands)

    def _computed(
        self,
        operation: Operation,
        kind: ElementType,
        sources: Types,
        operands: Sequence[Term],
    ) -> Term | None:
        values = [self.value_of(o, source) for o, source in zip(operands, sources, strict=True)]
        if any(value is None for value in values):
            return None
        run: Any = _ScalarRun(kind)
        return self.constant(operation.evaluate(run, *values), kind)

    def _simplified(
        self,
        operation: Operation,
        kind: ElementType,
        sources: Types,
        operands: Sequence[Term],
    ) -> Term | None:
        match operation, operands:
            case Copy(), (x,):
                return x
            case Convert(), (x,):
                return self._converted(x, sources[0], kind)
            case Select(), (p, yes, no):
                if isinstance(p, Number) and p.index.is_constant:
                    return yes if p.index.constant else no
                return yes if yes == no else None
            case Clamp(), (low, x, high):
                return self.binary(Minimum(), kind, self.binary(Maximum(), kind, low, x), high)
            case ((Maximum() | Minimum() | And() | Or()), (a, b)):
                return self._extreme(operation, kind, a, b)
            case Not(), (Element(ClosedFunction(head=(Not(), *_))),) if kind.is_predicate:
                return self.terms.opened(operands[0])[0][0]  # type: ignore[arg-type]
            case ((Add() | Multiply()), (a, b)):
                return self._neutral(operation, kind, a, b) or self._neutral(operation, kind, b, a)
            case Subtract(), (a, b) if self.reals and self.is_constant(b, 0, kind):
                return a
            case Divide(), (a, b) if self.is_constant(b, 1, kind):
                return a
            case _:
                return None

    def _extreme(self, operation: Operation, kind: ElementType, a: Term, b: Term) -> Term | None:
        if a == b:
            return a
        for x, y in ((a, b), (b, a)):
            if self.is_constant(x, operation.neutral_element(kind), kind):
                return y
            absorbing = {And: 0, Or: 1}.get(type(operation)) if kind.is_predicate else None  # type: ignore[call-overload]
            if absorbing is not None and self.is_constant(x, absorbing, kind):
                return x
        return None

    def _neutral(self, operation: Operation, kind: ElementType, a: Term, b: Term) -> Term | None:
        """Return the result for a neutral b, or over the reals a product with zero."""
        if kind.is_predicate:
            return None
        zero = (self.reals or kind.is_integer) and self.is_constant(b, 0, kind)
        if isinstance(operation, Multiply):
            return b if zero else a if self.is_constant(b, 1, kind) else None
        return a if zero else None

    def _converted(self, x: Term, before: ElementType, after: ElementType) -> Term | None:
        if before == after:
            return x
        if isinstance(x, Element) and before.is_floating and after.is_floating:
            head = x.function.head
            is_widened = isinstance(head[0], Convert) and head[2] == after.name
            if is_widened and contains(before, after):
                return self.terms.opened(x)[0][0]
        if self.reals and before in (F32, F64) and after.is_floating and not contains(after, before):
            return self.rounded(x, after)
        return None

    # -- integers

    def index_of(self, term: Term, kind: ElementType) -> Index:
        """Return an integer, or an element of an integer type, as an index."""
        if isinstance(term, Number):
            return term.index
        assert isinstance(term, Element)
        return self.terms.datum(term, kind)

    def number(self, index: Index, kind: ElementType) -> Term:
        """Return an index as an element of an integer type, which wraps."""
        low = -(1 << kind.bits - 1) if kind.is_signed else 0
        period = 1 << kind.bits
        least, most = index.minimum(), index.maximum()
        if least < low - period or most >= low + 2 * period:
            return self.terms.close(("wrapped", kind.name), [Number(index)])
        result = self._number(index)
        if most >= low + period:
            result = self.terms.choose(index * -1 + (low + period - 1), result, self._number(index - period))
        if least < low:
            result = self.terms.choose(index - low, result, self._number(index + period))
        return result

    def _number(self, index: Index) -> Term:
        if len(index.terms) == 1:
            variable, coefficient = index.terms[0]
            if isinstance(variable, Datum) and coefficient == 1 and index.constant == variable.least:
                return variable.element
        return Number(index)

    def _integers(
        self, operation: Operation, kind: ElementType, source: ElementType, operands: Sequence[Term]
    ) -> Term | None:
        """Return the result of an operation on integers, of which one at least is a number."""
        if not source.is_integer and not (source.is_predicate and isinstance(operation, Convert | Not)):
            return None
        if isinstance(operation, Compare):
            return self._comparison(operation, source, *operands)
        if not any(isinstance(o, Number) for o in operands) or isinstance(operation, Select):
            return None
        if source.is_predicate and isinstance(operands[0], Element):
            return None
        match operation, [self.index_of(o, source) for o in operands]:
            case Convert(), (a,) if kind.is_integer:
                return self.number(a, kind)
            case Convert(), (a,) if kind.is_predicate:
                return self.terms.every((a, a * -1), FALSE, TRUE)
            case Negate(), (a,):
                return self.number(a * -1, kind)
            case Add(), (a, b):
                return self.number(a + b, kind)
            case Subtract(), (a, b):
                return self.number(a - b, kind)
            case Multiply(), (a, b) if a.is_constant or b.is_constant:
                a, b = (a, b) if b.is_constant else (b, a)
                return self.number(a * b.constant, kind)
            case Divide(), (a, b) if b.is_constant and b.constant > 0 and a.minimum() >= 0:
                return self.number(self.terms.quotients.divide(a, b.constant), kind)
            case Remainder(), (a, b) if b.is_constant and b.constant > 0 and a.minimum() >= 0:
                quotient = self.terms.quotients.divide(a, b.constant)
                return self.number(a - quotient * b.constant, kind)
            case Maximum(), (a, b):
                return self.terms.choose(a - b, *operands)
            case Minimum(), (a, b):
                return self.terms.choose(b - a, *operands)
            case _:
                return None

    def _comparison(self, operation: Compare, source: ElementType, a: Term, b: Term) -> Term | None:
        if operation.comparison_type not in ("", "SIGNED" if source.is_signed else "UNSIGNED"):
            return None
        difference = self.index_of(a, source) - self.index_of(b, source)
        if operation.direction in _DIRECTIONS:
            constant, sign = _DIRECTIONS[operation.direction]
            return self.terms.choose(difference * sign + constant, TRUE, FALSE)
        yes, no = (TRUE, FALSE) if operation.direction == "EQ" else (FALSE, TRUE)
        return self.terms.every((difference, difference * -1), yes, no)


class _ScalarRun:
    """What an elementwise operation is told when it computes a number."""

    def __init__(self, kind: ElementType) -> None:
        self.shape = Shape(kind, ())
        self.dtype = kind.numpy_dtype


def _rank(term: Term) -> tuple[int, int]:
    """Return the position of an operand of an operation that commutes; it does not depend on indices."""
    return (0, term.function.number) if isinstance(term, Element) else (1, 0)
