"""Writes single elements of instructions as HLO into the body of a loop.

It interprets the element declarations of operations (`hloom.ir.indexing`), from which kernels are also
planned and emitted. Here an element becomes an array with one lane for each value of a variable, or a scalar.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Sequence
from typing import NamedTuple, TypeAlias

from hloom.analysis.purity import is_pure
from hloom.ir.affine import Index, Indices, Variable, linearize
from hloom.ir.indexing import Indexing, Read
from hloom.ir.instruction import HloInstruction
from hloom.operations.arithmetic import Add, And, Multiply, Subtract
from hloom.operations.comparison import Clamp, Select
from hloom.operations.structure import Constant
from hloom.passes.loops.counted_loop import CountedLoop
from hloom.shape.element_type import S32, ElementType
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape


class UnsupportedError(Exception):
    """Raised for an element that cannot be written; the rewrite is abandoned."""


class ElementRequest(NamedTuple):
    """The element of an instruction at an index.

    Attributes:
        back: how many iterations of the outer loop ago it was computed.
    """

    instruction: HloInstruction
    indices: Indices = ()
    back: int = 0


Writing: TypeAlias = Generator[Read[HloInstruction] | ElementRequest, HloInstruction, HloInstruction]
"""A generator that yields requests for the elements it depends on, and returns the element."""


class ElementWriter(Indexing[HloInstruction, HloInstruction]):
    """Writes elements into the body of a loop; indices are affine in variables.

    Args:
        loop: the loop.
        dimensions: the dimensions of the array that an element becomes: its lanes; none for scalars.

    Attributes:
        values: the values of variables, s32 of these dimensions.
    """

    def __init__(self, loop: CountedLoop, dimensions: tuple[int, ...]) -> None:
        super().__init__()
        self.loop = loop
        self.w = loop.body
        self.dimensions = dimensions
        self.values: dict[Variable, HloInstruction] = {}
        self._elements: dict[ElementRequest, HloInstruction] = {}
        self._indices: dict[HloInstruction, Index] = {}
        """The elements that are indices."""
        self._numbers: dict[Index, HloInstruction] = {}

    def write(self, request: ElementRequest) -> HloInstruction:
        """Write an element, and all that it depends on.

        Raises UnsupportedError.
        """
        pending = [] if request in self._elements else [(request, self._writing(request))]
        value: HloInstruction | None = None
        while pending:
            current, writing = pending[-1]
            try:
                wanted = writing.send(value) if value is not None else next(writing)
            except StopIteration as stop:
                value = self._elements[current] = stop.value
                pending.pop()
                continue
            if isinstance(wanted, Read):
                wanted = ElementRequest(wanted.instruction, wanted.indices, current.back)
            value = self._elements.get(wanted)
            if value is None:
                pending.append((wanted, self._writing(wanted)))
        return self._elements[request]

    def _writing(self, request: ElementRequest) -> Writing:
        leaf = self.leaf(request)
        if leaf is not None:
            return (yield from leaf)
        i, indices, _ = request
        if i.has_control_dependencies or not i.shape.is_array or i.shape.is_dynamic:
            raise UnsupportedError(i.name)
        if isinstance(i.operation, Constant):
            if i.shape.element_count > 1:
                return self.table(self.loop.outside.copy(i), indices)
        elif not is_pure(i):
            raise UnsupportedError(i.name)
        steps = i.operation.element(self, i, indices)
        return (yield from steps) if isinstance(steps, Generator) else steps

    @abstractmethod
    def leaf(self, request: ElementRequest) -> Writing | None:
        """Return the generator of an element that is not written from its operation, such as a loop's state.

        Returns None for all others.
        """

    @abstractmethod
    def lookup(self, array: HloInstruction, index: Index) -> HloInstruction:
        """Return the element of a one-dimensional array before the loop at an index."""

    def table(self, array: HloInstruction, indices: Indices) -> HloInstruction:
        """Return the element of an array before the loop."""
        if not array.shape.rank:
            return self.lanes(self.loop.invariant(array))
        flat = self.loop.outside.reshape(array, (array.shape.element_count,))
        return self.lookup(flat, linearize(indices, array.shape.dimensions))

    def lanes(self, scalar: HloInstruction) -> HloInstruction:
        """Return a scalar in every lane."""
        return self.w.broadcast(scalar, self.dimensions)

    def _of_type(self, element_type: ElementType) -> Shape:
        return Shape(element_type, self.dimensions)

    # -- indices

    def index_value(self, index: Index) -> HloInstruction:
        """Return an index as an s32 in every lane."""
        if index not in self._numbers:
            total = self._full(index.constant, S32) if index.constant or not index.terms else None
            for variable, factor in index.terms:
                term = self.values[variable]
                if factor != 1:
                    term = self.w.op(Multiply(), term, self._full(factor, S32))
                total = term if total is None else self.w.op(Add(), total, term)
            assert total is not None
            self._numbers[index] = total
        return self._numbers[index]

    def _full(self, value: int, element_type: ElementType) -> HloInstruction:
        return self.w.full(value, self._of_type(element_type))

    def compare(self, index: Index, size: int) -> HloInstruction:
        """Write the test ``0 <= index < size``, without the comparisons that always hold."""
        value, condition = self.index_value(index), None
        if index.minimum() < 0:
            condition = self.w.compare(value, "GE", self._full(0, S32))
        if index.maximum() >= size or condition is None:
            condition = self.both(condition, self.w.compare(value, "LT", self._full(size, S32)))
        assert condition is not None
        return condition

    def conjunction(self, a: HloInstruction, b: HloInstruction) -> HloInstruction:
        return self.w.op(And(), a, b)

    def division(self, index: Index, divisor: int) -> tuple[Index, Index]:
        """Refuse quotients that are not affine."""
        raise UnsupportedError("a quotient of an index")

    def is_dense(self, i: HloInstruction) -> None:
        """Return None: arrays are computed."""

    def position(self, element: HloInstruction, element_type: ElementType, extent: int) -> Index:
        """Return an element, clamped to the extent, as an index: affine, or a new variable."""
        index = self._indices.get(element)
        if index is not None and index.minimum() >= 0 and index.maximum() < extent:
            return index
        if extent == 1:
            return Index(0)
        if element_type.bits > (32 if element_type.is_signed else 31):
            raise UnsupportedError("a wide index")
        zero, last = self._full(0, S32), self._full(extent - 1, S32)
        value = self.w.op(Clamp(), zero, self.w.convert(element, S32), last)
        variable = Variable(extent, "position", value)
        self.values[variable] = value
        return Index(0, [(variable, 1)])

    # -- elements

    def choose(self, condition: HloInstruction, yes: HloInstruction, no: HloInstruction) -> HloInstruction:
        return self.w.op(Select(), condition, yes, no)

    def zero(self, element_type: ElementType) -> HloInstruction:
        return self._full(0, element_type)

    def literal(self, element_type: ElementType, literal: Literal) -> HloInstruction:
        value = literal.array.reshape(())
        element = self.lanes(self.w.scalar(value, element_type))
        if element_type.is_integer:
            self._indices[element] = Index(int(value))
        return element

    def number(self, index: Index, element_type: ElementType) -> HloInstruction:
        element = self.w.convert(self.index_value(index), element_type)
        if element_type.is_integer:
            self._indices[element] = index
        return element

    def part(
        self, element: HloInstruction, number: Index, before: ElementType, after: ElementType
    ) -> HloInstruction:
        """Refuse parts of elements."""
        raise UnsupportedError("a part of an element")

    def joined(
        self, elements: Sequence[HloInstruction], before: ElementType, after: ElementType
    ) -> HloInstruction:
        """Refuse elements of several parts."""
        raise UnsupportedError("an element of several parts")

    def elementwise(self, instruction: HloInstruction, operands: Sequence[HloInstruction]) -> HloInstruction:
        """Copy the instruction with lanes; record sums of indices as affine."""
        element = self.w.copy(instruction, operands, self._of_type(instruction.shape.element_type))
        if isinstance(instruction.operation, Add | Subtract):
            a, b = (self._indices.get(o) for o in operands)
            if a is not None and b is not None:
                index = a + b if isinstance(instruction.operation, Add) else a - b
                low, high = instruction.shape.element_type.limits
                if low <= index.minimum() and index.maximum() <= high:
                    self._indices[element] = index
        return element

    def undeclared(self, i: HloInstruction, indices: Indices) -> HloInstruction:
        """Refuse operations that declare no elements."""
        raise UnsupportedError(i.name)
