"""Reductions along rows by combiners that are associative but not commutative, such as that of an argmax.

A block of a row is reduced in a tree: the even and odd lanes of two vectors are neighbors in the row, and
combining them leaves one vector, in order. The block's value is then combined into the accumulator. Where the
combiner is not associative for NaN, a block that holds a NaN is reduced element by element instead.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.codegen.accumulators import flatten, spread, unflatten
from hloom.codegen.combining import Combiner
from hloom.codegen.elements import Elements
from hloom.codegen.llvm import I64, Value, make_type
from hloom.codegen.types import Element
from hloom.ir.affine import Indices, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.combiners import Grouping
from hloom.operations.reduction import Reduce
from hloom.plan.space import Space

VECTORS: Final = 8
"""Maximum number of vectors of a block."""


class ReductionEmitter:
    """Emits the reduction to one result element, or to one element of each result of a variadic reduction.

    Args:
        scalars: emits single elements.
        vectors: emits vectors of elements.
        root: the reduction.
        kept: the index of the result element.
        reduced: the loops over the reduced dimensions.
    """

    def __init__(
        self, scalars: Elements, vectors: Elements, root: HloInstruction, kept: Indices, reduced: Space
    ) -> None:
        self.function, self.scalars, self.vectors, self.reduced = scalars.function, scalars, vectors, reduced
        half = len(root.operands) // 2
        self.operands, self.initial = root.operands[:half], root.operands[half:]
        self.source = operation_of(root, Reduce).operand_indices(kept, reduced.indices)
        self.combiner = Combiner(root.called_computations[0])
        self.types = [o.shape.element_type for o in self.operands]

    def operand_elements(self, e: Elements) -> list[Element]:
        """Emit an element (or vector) of each reduced operand, at the current loop variables."""
        return [spread(e, e.element(o, self.source)) for o in self.operands]


class OrderedReduction(ReductionEmitter):
    """Emits a reduction that combines elements in their order, for combiners that need not commute."""

    def run(self, grouping: Grouping) -> list[Element]:
        """Emit the reduction over all reduced dimensions; return one scalar for each result.

        ``grouping`` tells whether the combiner is associative for all values, or for all but NaN.
        """
        self.grouping = grouping
        initial = [self.scalars.element(i, ()) for i in self.initial]
        start = self.combiner.starts(initial, self.types)
        return self.combiner.lower(self._rows(list(self.reduced.variables), start), self.types)

    def _rows(self, variables: list[Variable], start: list[Element]) -> list[Element]:
        """Emit nested loops over ``variables``, outermost first; return the final accumulators.

        The loops combine all elements along these dimensions with ``start``, the initial accumulators.
        """
        first, *inner = variables
        if not inner:
            return self._row(first, start)
        with self.function.loop(0, first.trips, 1, flatten(start)) as loop, self._scope():
            first.value = loop.index
            sums = self._rows(inner, unflatten(loop.values, start))
            loop.next(*flatten(sums))
        return unflatten(loop.values, start)

    @contextmanager
    def _scope(self) -> Generator[None]:
        with self.scalars.scope(), self.vectors.scope():
            yield

    def _row(self, lane: Variable, start: list[Element]) -> list[Element]:
        """Emit the reduction of a row, given accumulators ``start``; return the final accumulators.

        The emitted code reduces blocks of `VECTORS` vectors, then single vectors, then single elements.
        """
        lanes, done = self.vectors.lanes, 0
        for vectors in (VECTORS, 1):
            size = vectors * lanes
            end = done + (lane.trips - done) // size * size
            if lanes > 1 and end > done:
                with self.function.loop(done, end, size, flatten(start)) as loop, self._scope():
                    sums = self._block(lane, loop.index, vectors, unflatten(loop.values, start))
                    loop.next(*flatten(sums))
                start, done = unflatten(loop.values, start), end
        if done < lane.trips:
            constant = self.function.constant
            start = self._one_by_one(lane, constant(I64, done), constant(I64, lane.trips), start)
        return start

    def _one_by_one(self, lane: Variable, low: Value, high: Value, start: list[Element]) -> list[Element]:
        lane.is_lane = False
        with self.function.loop(low, high, 1, flatten(start)) as loop, self._scope():
            lane.value = loop.index
            values = self._values(self.scalars)
            sums = self.combiner.combine(self.scalars, unflatten(loop.values, start), values)
            loop.next(*flatten(sums))
        return unflatten(loop.values, start)

    def _values(self, e: Elements) -> list[Element]:
        return self.combiner.lift(self.operand_elements(e), self.types)

    def _block(self, lane: Variable, base: Value, vectors: int, start: list[Element]) -> list[Element]:
        """Emit the reduction of ``vectors`` consecutive vectors of a row, the first one at index ``base``.

        ``start`` has the accumulators before; return the new ones. If the combiner is not associative for
        NaN, and an element is NaN, the emitted code combines the elements one by one.
        """
        lanes = self.vectors.lanes
        parts: list[list[Element]] = []
        for number in range(vectors):
            lane.is_lane, lane.value = True, base + number * lanes
            with self.vectors.scope():
                parts.append(self._values(self.vectors))
        lane.is_lane = False
        sums = self.combiner.combine(self.scalars, start, self._tree(parts))
        unordered = self._unordered(parts)
        if unordered is None:
            return sums
        sums = [self.scalars.choose(unordered, old, new) for old, new in zip(start, sums, strict=True)]
        end = unordered.select(base + vectors * lanes, base)
        return self._one_by_one(lane, base, end, sums)

    def _tree(self, parts: list[list[Element]]) -> list[Element]:
        """Emit the reduction of all lanes of ``parts`` to scalars, combining neighbours to keep the order.

        ``parts`` has an entry for each of several consecutive vectors: a vector of every operand. Return a
        scalar for every operand.
        """
        lanes = self.vectors.lanes
        while len(parts) > 1 or lanes > 1:
            if len(parts) == 1:
                lanes //= 2
                pairs = [(parts[0], None)]
            else:
                pairs = list(zip(parts[::2], parts[1::2], strict=True))
            narrow = Elements(self.function, lanes, {})
            parts = [
                [
                    spread(narrow, x)
                    for x in self.combiner.combine(
                        narrow, _strided(low, high, 0, lanes), _strided(low, high, 1, lanes)
                    )
                ]
                for low, high in pairs
            ]
        return [lane_zero(x) for x in parts[0]]

    def _unordered(self, parts: list[list[Element]]) -> Value | None:
        """Emit the condition that any element of the vectors ``parts`` is NaN.

        Return None, and emit nothing, if the combiner is associative even for NaN, so that no test is needed.
        """
        if self.grouping is not Grouping.ASSOCIATIVE_WITHOUT_NAN:
            return None
        unordered: Value | None = None
        for n, kind in enumerate(self.combiner.values):
            if kind.is_floating:
                for part in parts:
                    value = part[n]
                    assert isinstance(value, Value)
                    nan = value.compare("uno", value)
                    unordered = nan if unordered is None else unordered | nan
        assert unordered is not None
        bits = unordered.bitcast(make_type(f"i{self.vectors.lanes}"))
        return bits.compare("ne", 0)


def _strided(low: list[Element], high: list[Element] | None, first: int, lanes: int) -> list[Element]:
    """Emit, for each operand, every second lane of its vectors ``low`` and ``high``, concatenated.

    ``first`` is 0 for even lanes, 1 for odd lanes; the results have ``lanes`` lanes. If ``high`` is None, all
    lanes are taken from ``low``.
    """
    places = [first + 2 * n for n in range(lanes)]

    def taken(a: Value, b: Value | None) -> Value:
        return a.shuffle(places, b)

    elements: list[Element] = []
    for n, a in enumerate(low):
        b = None if high is None else high[n]
        if isinstance(a, tuple):
            assert b is None or isinstance(b, tuple)
            elements.append((taken(a[0], b and b[0]), taken(a[1], b and b[1])))
        else:
            assert b is None or isinstance(b, Value)
            elements.append(taken(a, b))
    return elements


def lane_zero(element: Element) -> Element:
    """Emit the extraction of the first lane as a scalar; of a complex vector, a pair (real, imaginary)."""
    if isinstance(element, tuple):
        return element[0].extract(0), element[1].extract(0)
    return element.extract(0)
