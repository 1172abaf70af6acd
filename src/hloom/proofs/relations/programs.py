"""Run a program on terms: the element of each value on any device, at any index."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from hloom.ir.affine import Index, Indices, Variable
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.traits import Family
from hloom.operations.arithmetic import Add, Multiply
from hloom.operations.comparison import Select
from hloom.operations.contraction import Dot
from hloom.operations.control_flow import Conditional, While
from hloom.operations.conversion import Convert
from hloom.operations.convolution import Convolution
from hloom.operations.custom_call import is_identity
from hloom.operations.gather_scatter import Scatter
from hloom.operations.reduction import Map, Reduce
from hloom.operations.structure import Constant, GetDimensionSize, GetTupleElement, Parameter, Tuple
from hloom.operations.window_reduction import ReduceWindow
from hloom.proofs.programs import is_stateful
from hloom.proofs.relations.collectives import Collectives
from hloom.proofs.relations.elements import ElementTerms
from hloom.proofs.relations.laws import Laws
from hloom.proofs.relations.mesh import DeviceAxes, NoRelation
from hloom.proofs.relations.regions import Borders, crossed
from hloom.proofs.relations.scatters import SKIPPED, joined_updates, scattered_update
from hloom.proofs.relations.terms import Element, Number, Term, Terms, by_cases
from hloom.proofs.relations.totals import Totals
from hloom.proofs.sums import combining
from hloom.shape.element_type import F32, PRED, ElementType
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape
from hloom.sharding.tiling.coordinates import Coordinate

Value: TypeAlias = Any
"""The term of an array over its indices, a tuple of values, or None for a token."""
MOST_STEPS: Final = 1 << 8
"""Maximum number of iterations of a loop."""


class RelationEvaluator:
    """Computes the terms of a program's values.

    Args:
        terms: the terms of the proof.
        axes: the digits of device ids.
        borders: those of manual regions, in a global program.
        reals: whether terms that are equal over the real numbers are equal.

    Attributes:
        values: the value of each instruction that ran, of the last run of its computation.
    """

    def __init__(
        self, terms: Terms, axes: DeviceAxes, borders: Borders | None = None, *, reals: bool
    ) -> None:
        self.terms = terms
        self.borders = borders or {}
        self.laws = Laws(terms, reals=reals)
        self.totals = Totals(terms, self.laws)
        self.collectives = Collectives(terms, self.laws, self.totals, axes)
        self.elements = ElementTerms(terms, self.laws, self.read)
        self.values: dict[HloInstruction, Value] = {}

    def run(self, computation: HloComputation, arguments: Sequence[Value]) -> Value:
        """Return the result of a computation."""
        for i in computation.post_order():
            if isinstance(i.operation, Parameter):
                self.values[i] = arguments[i.operation.parameter_number]
            else:
                self.values[i] = self._value(i, [self.values[o] for o in i.operands])
        return self.values[computation.root]

    def read(self, i: HloInstruction, indices: Indices) -> Term:
        """Return the element of an instruction at indices."""
        return self.at(self.values[i], i.shape, indices)

    def at(self, term: Term, shape: Shape, indices: Indices) -> Term:
        """Return the element of an array at indices."""
        return self.terms.at(term, renaming(self.terms.axes(shape.dimensions), indices))

    def _value(self, i: HloInstruction, operands: list[Value]) -> Value:
        if any(leaf.is_array and (leaf.is_dynamic or leaf.is_unbounded) for _, leaf in i.shape.leaves()):
            raise NoRelation(f"the sizes of %{i.name} are dynamic")
        operation = i.operation
        match operation:
            case Tuple():
                return tuple(operands)
            case GetTupleElement():
                return operands[0][operation.index]
            case Constant():
                return self._constant(operation.literal, i.shape)
            case While():
                return self._while(i, operands[0])
            case Conditional():
                return self._conditional(i, operands)
            case GetDimensionSize():
                size = i.operands[0].shape.dimensions[operation.dimensions[0]]
                return self.laws.constant(size, i.shape.element_type)
            case Dot() | Convolution():
                return self._product(i)
            case Reduce() | ReduceWindow():
                return self._reduction(i)
            case Scatter():
                return self._scattered(i, operation)
            case Map():
                return self.run(i.called_computations[0], operands)
            case _ if operation.family is Family.COLLECTIVE:
                return self.collectives.value(i, operands)
            case _ if operation.elementwise:
                return self.elements.elementwise(i, operands)
            case _ if operation.declares_element():
                return self.elements.of(i, self.terms.axes(i.shape.dimensions))
            case _ if i in self.borders:
                return crossed(self.terms, self.collectives.axes, i, operands, self.borders[i])
            case _ if operation.family is Family.STRUCTURE or is_identity(i):
                return operands[0] if operands else None
            case _:
                return self._unknown(i, operands)

    # -- constants

    def _constant(self, literal: Literal, shape: Shape) -> Value:
        if not shape.is_array:
            raise NoRelation("a constant is a tuple")
        array, kind = literal.array, shape.element_type
        if array.size and array.tobytes() == array.reshape(-1)[:1].tobytes() * array.size:
            return self.laws.constant(array.reshape(-1)[0], kind)
        indices = self.terms.axes(shape.dimensions)
        table = self._table(array, indices) if array.ndim == 1 and kind.is_integer else None
        if table is not None:
            return self.laws.number(table, kind)
        pieces = affine_pieces(array.tolist()) if array.ndim == 1 and kind.is_integer else []
        if pieces:
            *others, (_, last) = [(end, self._affine(indices[0], piece)) for end, piece in pieces]
            return self.terms.piecewise(indices[0], others, last)
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        return self.terms.close(("literal", digest, kind.name, array.shape), list(map(Number, indices)))

    def _affine(self, index: Index, piece: tuple[int, int]) -> Term:
        constant, step = piece
        return Number(index * step + constant)

    def _table(self, array: Any, indices: Indices) -> Index | None:
        """Return the entry of a table of multiples of digits of the position; None for other tables."""
        numbers = array.astype(np.int64) - int(array.min())
        step = int(np.gcd.reduce(numbers))
        coordinate = Coordinate.of((numbers // step).tolist())
        if coordinate.listed:
            return None
        total, divide = Index(0), self.terms.quotients.divide
        for stride, size in coordinate.digits:
            above = divide(indices[0], stride)
            total = total * size + (above - divide(above, size) * size)
        return total * step + int(array.min())

    # -- combinations

    def _variables(self, extents: Sequence[int]) -> tuple[list[Variable], Indices]:
        bound = [Variable(extent, "b") for extent in extents]
        return [b for b in bound if b.extent != 1], tuple(map(Index.of, bound))

    def _product(self, i: HloInstruction) -> Term:
        kind, exact = i.shape.element_type, self._exact(i.shape.element_type)
        plan = i.operation.accumulation(self.elements, i, self.terms.axes(i.shape.dimensions))
        assert plan is not None
        variables, position = self._variables(plan.extents)
        factors: list[Term] = []
        for read in plan.terms(position):
            source = read.instruction.shape.element_type
            factor = self.elements.picked(read, self.laws.constant(0, source))
            factors.append(self._integer_as(factor, source, kind))
        if exact is None:
            return by_cases(
                self.terms, factors, lambda each: self._rounded_product(i, each, variables), variables
            )
        product = self.laws.binary(Multiply(), exact, factors[0], factors[1])
        return self._rounded(self.totals.combine(Add(), exact, variables, product), kind)

    def _rounded_product(
        self, i: HloInstruction, factors: Sequence[Term], variables: Sequence[Variable]
    ) -> Term:
        ordered = sorted(factors, key=lambda f: f.function.number if isinstance(f, Element) else -1)
        sources = [o.shape.element_type.name for o in i.operands]
        algorithm = getattr(i.operation, "algorithm", "")
        return self.terms.close(
            (i.opcode, algorithm, i.shape.element_type.name, *sources), ordered, variables
        )

    def _integer_as(self, term: Term, before: ElementType, after: ElementType) -> Term:
        return self.laws.apply(Convert(), after, [before], [term]) if before.is_integer else term

    def _exact(self, kind: ElementType) -> ElementType | None:
        """Return the type in whose ring sums of a type are computed before they are rounded, if any."""
        if self.laws.forms_ring(kind):
            return kind
        return F32 if self.laws.reals and kind.is_floating else None

    def _rounded(self, term: Term, kind: ElementType) -> Term:
        return term if self._exact(kind) in (kind, None) else self.laws.rounded(term, kind)

    def _reduction(self, i: HloInstruction) -> Value:
        half = len(i.operands) // 2
        shape = i.shape if half == 1 else i.shape.tuple_shapes[0]
        plan = i.operation.accumulation(self.elements, i, self.terms.axes(shape.dimensions))
        assert plan is not None
        variables, position = self._variables(plan.extents)
        initial = [self.read(o, ()) for o in plan.initial]
        reads = plan.terms(position)
        pairs = zip(reads, initial, strict=True) if reads else ()
        terms = [self.elements.picked(*pair) for pair in pairs] or initial  # an empty array has no elements
        reducer = i.called_computations[0]
        operation = combining(reducer) if half == 1 else None
        if operation is not None:
            total = self._total(operation(), shape.element_type, variables, terms[0], initial[0])
            if total is not None:
                return total
        words = [o.shape.element_type.name for o in i.operands]
        head = "fold", self.signature(reducer), plan.extents, *words
        results = [
            self.terms.close((n, *head), [*terms, *initial], variables, ordered=True) for n in range(half)
        ]
        return results[0] if half == 1 else tuple(results)

    def _total(
        self, operation: Any, kind: ElementType, variables: Sequence[Variable], term: Term, initial: Term
    ) -> Term | None:
        exact = self._exact(kind) if isinstance(operation, Add | Multiply) else kind
        if exact is None or not self.totals.is_free(operation, exact):
            return None
        total = self.totals.combine(operation, exact, variables, term)
        return self._rounded(self.laws.binary(operation, exact, total, initial), kind)

    def _scattered(self, i: HloInstruction, operation: Scatter) -> Value:
        single = combining(i.called_computations[0]) if i.shape.is_array else None
        if single is None:
            return self._scattered_in_order(i, operation)
        kind = i.shape.element_type
        if self._exact(kind) != kind or not self.totals.is_free(single(), kind):
            return self._scattered_in_order(i, operation)
        neutral = self.totals.neutral(single(), kind)
        update = scattered_update(self.elements, i, operation, neutral)
        total = self.totals.combine(single(), kind, update.variables, update.term)
        return self.laws.binary(single(), kind, self.values[i.operands[0]], total)

    def _scattered_in_order(self, i: HloInstruction, operation: Scatter) -> Value:
        """Return the function of each element and of the sequence of its updates; others are skipped."""
        count = len(i.operands) // 2
        update = joined_updates(self.elements, i, operation)
        body, variables = self.totals.sequence(update.term, update.variables, self.terms.close(SKIPPED, ()))
        olds = [self.values[o] for o in i.operands[:count]]
        words = [o.shape.element_type.name for o in i.operands[:count]]
        head = "scatter", self.signature(i.called_computations[0]), *words
        results = [self.terms.close((n, *head), [*olds, body], variables, ordered=True) for n in range(count)]
        return tuple(results) if i.shape.is_tuple else results[0]

    def signature(self, computation: HloComputation) -> Value:
        """Return the result of a computation of scalars, which tells it from others."""
        arguments = [self.terms.close(("parameter", n), ()) for n in range(len(computation.parameters))]
        return self.run(computation, arguments)

    # -- control flow

    def _while(self, i: HloInstruction, state: Value) -> Value:
        body, condition = i.called_computations
        for _ in range(MOST_STEPS):
            again = self.run(condition, [state])
            if not isinstance(again, Number) or not again.index.is_constant:
                raise NoRelation(f"the number of iterations of %{i.name} is not known")
            if not again.index.constant:
                return state
            state = self.run(body, [state])
        raise NoRelation(f"%{i.name} has too many iterations")

    def _conditional(self, i: HloInstruction, operands: Sequence[Value]) -> Value:
        index, *arguments = operands
        computations = i.called_computations
        kind = i.operands[0].shape.element_type
        if isinstance(index, Number) and index.index.is_constant:
            number = index.index.constant
            number = 1 - number if kind.is_predicate else number
            number = number if 0 <= number < len(computations) else len(computations) - 1
            return self.run(computations[number], [arguments[number]])
        if not index.free.isdisjoint(self.collectives.axes.variables):
            raise NoRelation(f"devices take different branches of %{i.name}")
        results = [self.run(c, [a]) for c, a in zip(computations, arguments, strict=True)]
        if kind.is_predicate:
            return self._chosen(i.shape, index, *results)
        *others, result = results
        for number, other in reversed(list(enumerate(others))):
            here = self.laws.index_of(index, kind) - number
            is_here = self.terms.every((here, here * -1), Number(Index(1)), Number(Index(0)))
            result = self._chosen(i.shape, is_here, other, result)
        return result

    def _chosen(self, shape: Shape, predicate: Term, yes: Value, no: Value) -> Value:
        if shape.is_tuple:
            parts = zip(shape.tuple_shapes, yes, no, strict=True)
            return tuple([self._chosen(each, predicate, a, b) for each, a, b in parts])
        if not shape.is_array:
            return None
        kind = shape.element_type
        return self.laws.apply(Select(), kind, (PRED, kind, kind), (predicate, yes, no))

    # -- operations of which only the dimensions that they treat alike are known

    def _unknown(self, i: HloInstruction, operands: Sequence[Value]) -> Value:
        """Return the result as a function of all elements of the operands that it may depend on."""
        shapes = [o.shape for o in i.operands]
        if is_stateful(i) or not all(shape.is_array for shape in shapes):
            raise NoRelation(f"{i.opcode} has no relation")
        results = i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)
        factors = [
            f for f in i.operation.sharding_rule(i, shapes) if f.kind == "plain" and f.result is not None
        ]
        alike = {f.result for f in factors}
        bound: list[Variable] = []
        terms: list[Term] = []
        sizes: list[object] = []
        axes = self.terms.axes(results[0].dimensions)
        for n, (value, shape) in enumerate(zip(operands, shapes, strict=True)):
            own = {f.operands[n]: axes[f.result] for f in factors if n in f.operands and f.result is not None}
            inner = {d: Variable(size, "b") for d, size in enumerate(shape.dimensions) if d not in own}
            bound += [v for v in inner.values() if v.extent != 1]
            indices = tuple([own[d] if d in own else Index.of(inner[d]) for d in range(shape.rank)])
            terms.append(self.at(value, shape, indices))
            sizes.append((shape.element_type.name, [v.extent for v in inner.values()]))
        signatures = tuple(map(self.signature, i.called_computations))
        values: list[Value] = []
        for n, shape in enumerate(results):
            own_axes = self.terms.axes(shape.dimensions)
            places: list[Term] = [Number(axis) for d, axis in enumerate(own_axes) if d not in alike]
            head = n, i.operation, i.backend_config, signatures, repr(sizes), shape.element_type.name
            values.append(self.terms.close(head, [*terms, *places], bound, ordered=True))
        return tuple(values) if i.shape.is_tuple else values[0]


def affine_pieces(numbers: Sequence[int], most: int = 8) -> list[tuple[int, tuple[int, int]]]:
    """Return for each run of equal steps its end, and constant and step; nothing for more than some runs."""
    pieces: list[tuple[int, tuple[int, int]]] = []
    start = 0
    while start < len(numbers) and len(pieces) <= most:
        end = start + 1
        step = numbers[end] - numbers[start] if end < len(numbers) else 0
        while end < len(numbers) and numbers[end] - numbers[end - 1] == step:
            end += 1
        pieces.append((end, (numbers[start] - step * start, step)))
        start = end
    return pieces if len(pieces) <= most else []


def renaming(axes: Indices, indices: Indices) -> Mapping[Variable, Index]:
    """Return the indices in the place of the variables of dimensions."""
    return {axis.terms[0][0]: index for axis, index in zip(axes, indices, strict=True) if axis.terms}
