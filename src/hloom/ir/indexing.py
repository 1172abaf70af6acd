"""Interface over which operations declare the operand elements that a result element reads.

`Operation.element` computes an element of a result at a symbolic index from operand elements, which it yields
as `Read`s, in steps::

    def element(self, x, i, indices):  # of a pad without holes
        operand, padding_value = i.operands
        source = tuple(index - pad.low for index, pad in zip(indices, self.padding))
        inside = None
        for index, size in zip(source, operand.shape.dimensions):
            inside = x.both(inside, x.inside(index, size))
        outside = yield Read(padding_value, ())
        return x.choose(inside, (yield Read(operand, source, inside)), outside)

`hloom.plan.accesses` interprets it by recording the reads, `hloom.codegen.elements` by emitting code. The
steps run on one explicit stack, whatever the depth of a program.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias, TypeVar

from hloom.ir.affine import Index, Indices, Variable, leading_indices, linearize
from hloom.ir.window import dilate
from hloom.records import dataclass

if TYPE_CHECKING:
    from hloom.ir.instruction import HloInstruction
    from hloom.shape.element_type import ElementType
    from hloom.shape.literal import Literal

Condition = TypeVar("Condition")
"""A bounds check; None instead of one that always holds."""
Element = TypeVar("Element")
"""An element, or a vector of elements."""


class Read(NamedTuple, Generic[Condition]):
    """The element of an instruction at an index; where the condition is false, its value is arbitrary."""

    instruction: HloInstruction
    indices: Indices
    condition: Condition | None = None


class Stretch(NamedTuple):
    """The elements of a dimension before a limit: number n is element ``start + step * n`` of an array."""

    limit: int
    start: int
    step: int


Stretches: TypeAlias = tuple[Stretch, ...]
"""The elements of a dimension, from 0 on, by ascending limits."""

Relocation: TypeAlias = tuple[Index, Stretches, int]
"""An index into stretches of a dimension, with its size; see `Addressing.relocate`."""


Steps: TypeAlias = Generator[Read[Condition], Element, Element]
"""A generator that yields the operand elements that it needs, and returns its element."""


MOST_UNROLLED: Final = 16
"""Maximum number of elements of a window of which each is written out; larger windows become loops."""


@dataclass(frozen=True, slots=True)
class Accumulation(Generic[Condition]):
    """The loops that accumulate operand elements into a result element, and the terms of each step.

    Attributes:
        extents: of the loops, outermost first.
        terms: returns the operand elements of the step at a position of the loops.
        initial: scalars from which accumulators start.
        unrolled: whether the steps are written out.
    """

    extents: tuple[int, ...]
    terms: Callable[[Indices], Sequence[Read[Condition]]]
    initial: Sequence[HloInstruction] = ()
    unrolled: bool = False


class Addressing(ABC, Generic[Condition]):
    """An interpreter of indices and bounds checks.

    Attributes:
        pinned: variables whose values are used outside addresses; their loops cannot be merged with others.
        unrolls: whether each step of a reduction is written out.
    """

    def __init__(self) -> None:
        self.pinned: set[Variable] = set()
        self.unrolls = False

    def pin(self, *indices: Index) -> None:
        """Record that the values of indices are used outside addresses."""
        for index in indices:
            self.pinned.update([v for v, _ in index.terms])

    # -- conditions

    def inside(self, index: Index, size: int) -> Condition | None:
        """Return the condition 0 <= index < size; None if it always holds."""
        if index.minimum() >= 0 and index.maximum() < size:
            return None
        self.pin(index)
        return self.compare(index, size)

    def both(self, a: Condition | None, b: Condition | None) -> Condition | None:
        """Return the conjunction of two conditions."""
        if a is None or b is None:
            return b if a is None else a
        return self.conjunction(a, b)

    @abstractmethod
    def compare(self, index: Index, size: int) -> Condition:
        """Return the condition 0 <= index < size."""

    @abstractmethod
    def conjunction(self, a: Condition, b: Condition) -> Condition:
        """Return the conjunction of two conditions that may fail."""

    # -- indices

    def linear(self, indices: Indices, dimensions: Sequence[int]) -> Index:
        """Return the row-major linear index."""
        return linearize(indices, dimensions)

    def divide(self, index: Index, divisor: int) -> tuple[Index, Index]:
        """Return quotient and remainder of an index by a constant, affine where possible.

        Results that are not affine are arbitrary numbers in their ranges where the index is negative.
        """
        quotient = index.divide(divisor)
        if quotient is not None:
            return quotient, index - quotient * divisor
        self.pin(index)
        return self.division(index, divisor)

    def is_one(self, number: int) -> bool:
        """Return whether a divisor is 1, so that nothing need be divided."""
        return number == 1

    def relocate(self, index: Index, stretches: Stretches, size: int) -> Index | None:
        """Return the index, in [0, size), that an index into stretches denotes.

        Returns:
            None if reads need conditions instead.
        """
        first, last = 0, len(stretches) - 1
        while first < last and index.minimum() >= stretches[first].limit:
            first += 1
        while first < last and index.maximum() < stretches[last - 1].limit:
            last -= 1
        if first < last:
            self.pin(index)
            return self.relocated(index, stretches[first : last + 1], size)
        return index * stretches[first].step + stretches[first].start

    def divided(self, linear: Index, dimensions: Sequence[int]) -> Indices:
        """Return the multi-index of a linear index, by divisions where it is not affine."""
        if 0 in dimensions or not dimensions:
            return (Index(0),) * len(dimensions)
        minor: list[Index] = []
        for size in reversed(dimensions[1:]):
            linear, remainder = self.divide(linear, size)
            minor.append(remainder)
        return (linear, *reversed(minor))

    def relocated(self, index: Index, stretches: Stretches, size: int) -> Index | None:
        """Return the index that one into several stretches denotes; None: by conditions."""

    @abstractmethod
    def division(self, index: Index, divisor: int) -> tuple[Index, Index]:
        """Return quotient and remainder as computed values; see `divide`."""


class Indexing(Addressing[Condition], Generic[Condition, Element]):
    """An interpreter of element declarations.

    Attributes:
        mask: the condition under which the present element is needed; None: always.
    """

    def __init__(self) -> None:
        super().__init__()
        self.mask: Condition | None = None

    def reshaped(self, i: HloInstruction, linear: Index) -> Indices:
        """Return the index of the element of an array at a row-major linear index."""
        sizes = i.shape.dimensions
        leading, rest = leading_indices(linear, sizes)
        if len(leading) == len(sizes):
            return leading
        if self.is_read_in_order(i, len(leading)):  # reshapes drop the indices of sizes of 1
            last = max(d for d, size in enumerate(sizes) if size != 1)
            return tuple(leading[d] if d < len(leading) else rest * (d == last) for d in range(len(sizes)))
        return *leading, *self.divided(rest, sizes[len(leading) :])

    def is_read_in_order(self, i: HloInstruction, leading: int = 0) -> bool:
        """Return whether elements depend only on elements at the same place in order.

        The place is the indices of some leading dimensions, and the linear index in the others.
        """
        pending, seen = [(i, leading)], {(i, leading)}
        while pending:
            i, leading = pending.pop()
            dense = self.is_dense(i)
            scalar = i.operation.scalar_identity and not i.operands[0].shape.rank
            if dense is not None or scalar:
                if dense is False:
                    return False
                continue
            inner = i.operation.leading_of_operands(leading, i.shape.rank)
            if inner is None:
                return False
            fresh = [(o, inner) for o in i.operands if o.shape.rank > inner and (o, inner) not in seen]
            seen.update(fresh)
            pending.extend(fresh)
        return True

    @abstractmethod
    def is_dense(self, i: HloInstruction) -> bool | None:
        """Return whether an array in memory is dense and row-major; None for one that is computed."""

    @abstractmethod
    def position(self, element: Element, element_type: ElementType, extent: int) -> Index:
        """Return an integer element as an index, clamped to [0, extent)."""

    def known_position(self, i: HloInstruction, indices: Indices, extent: int) -> Index | None:
        """Return an integer element as an index in [0, extent) if ``indices`` determine it; else None."""
        return None

    # -- elements

    @abstractmethod
    def choose(self, condition: Condition, yes: Element, no: Element) -> Element:
        """Return one element if the condition holds, else the other."""

    @abstractmethod
    def zero(self, element_type: ElementType) -> Element:
        """Return 0."""

    @abstractmethod
    def literal(self, element_type: ElementType, literal: Literal) -> Element:
        """Return the element of a literal of one element."""

    @abstractmethod
    def number(self, index: Index, element_type: ElementType) -> Element:
        """Return an index as an element."""

    @abstractmethod
    def part(self, element: Element, number: Index, before: ElementType, after: ElementType) -> Element:
        """Return a part of the bits of an element as an element of a narrower type; part 0 is the lowest."""

    @abstractmethod
    def joined(self, elements: Sequence[Element], before: ElementType, after: ElementType) -> Element:
        """Return the bits of some elements, the lowest first, as one element of a wider or as wide a type."""

    @abstractmethod
    def elementwise(self, instruction: HloInstruction, operands: Sequence[Element]) -> Element:
        """Return the element of an elementwise operation."""

    @abstractmethod
    def undeclared(self, i: HloInstruction, indices: Indices) -> Steps[Condition, Element] | Element:
        """Return the steps of an operation that declares none."""


def elementwise(
    x: Indexing[Condition, Element], i: HloInstruction, indices: Indices
) -> Steps[Condition, Element]:
    """Read the operands at the same index; a select's predicate and a clamp's bounds may be scalars."""
    operands: list[Element] = []
    for o in i.operands:
        operands.append((yield Read(o, indices if o.shape.rank else ())))
    return x.elementwise(i, operands)


def undilated(
    x: Addressing[Condition], index: Index, dilation: int, size: int
) -> tuple[Index, Condition | None]:
    """Return the element of a dimension at an index after its dilation, and the condition that there is one.

    Args:
        x: the interpreter.
        index: an index into the dilated dimension, which may be outside.
        dilation: the step between elements.
        size: of the dimension before dilation.
    """
    if x.is_one(dilation):
        return index, x.inside(index, size)
    quotient, remainder = x.divide(index, dilation)
    inside = x.inside(index, dilate(size, dilation))
    return quotient, x.both(x.inside(remainder, 1), inside)
