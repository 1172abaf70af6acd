"""Access analysis: the memory that a kernel reads per result element, as symbolic indices.

`Accesses` walks a fused computation from its results like code generation, on indices alone. It records the
linear index of every load, the pinned loop variables, which are used outside addresses (in conditions, as
values, as starts of slices), and the requested elements. Planning chooses and merges loops by them. An
operation without a declaration pins its indices, which prevents merging.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

from hloom.analysis.loops import TupleLoop, picks
from hloom.analysis.trip_count import TripCount
from hloom.analysis.values import affine_position
from hloom.ir.affine import Index, Indices, Variable, linearize
from hloom.ir.indexing import Accumulation, Indexing, Read, Relocation, Steps, Stretches
from hloom.ir.instruction import HloInstruction
from hloom.operations.control_flow import While
from hloom.operations.structure import GetTupleElement, Tuple
from hloom.shape.element_type import ElementType
from hloom.shape.literal import Literal

Conditions: TypeAlias = "frozenset[tuple[Index, int]]"
"""Bounds checks under which an element is computed, as (index, size): 0 <= index < size."""
Request: TypeAlias = Read[Conditions]


class ElementReads(Indexing[Conditions, None]):
    """Interprets `Operation.element`: the operand elements from which an operation computes an element.

    Values of elements are None, since accesses do not depend on them.

    Attributes:
        inputs: the instructions whose values are in memory, dense and row-major.
        unrolls: read every term of an unrolled accumulation, instead of one with symbolic indices.
        bounds: the indices, with sizes, that may pass an end of a dimension, or of a stretch of one.
        relocations: the indices that other ones denote, by these, their stretches and the size.
    """

    def __init__(self, inputs: Collection[HloInstruction] = (), *, unrolls: bool = False) -> None:
        super().__init__()
        self.inputs = frozenset(inputs)
        self.unrolls = unrolls
        self.bounds: dict[tuple[Index, int], None] = {}
        self.relocations: dict[Relocation, Index] = {}
        self._divisions: dict[tuple[Index, int], tuple[Index, Index]] = {}

    def of(self, i: HloInstruction, indices: Indices, conditions: Conditions | None = None) -> list[Request]:
        """Return the reads of operand elements for the element at an index, in order."""
        self.mask = conditions
        steps = i.operation.element(self, i, indices)
        reads = list(steps) if steps is not None else []
        if conditions is None:
            return reads
        return [Read(o, at, conditions | inside if inside else conditions) for o, at, inside in reads]

    def compare(self, index: Index, size: int) -> Conditions:
        self.bounds[index, size] = None
        return frozenset([(index, size)])

    def conjunction(self, a: Conditions, b: Conditions) -> Conditions:
        return a | b

    def is_dense(self, i: HloInstruction) -> bool | None:
        return True if i in self.inputs else None

    def relocated(self, index: Index, stretches: Stretches, size: int) -> Index:
        """Return an opaque index, the same one for equal relocations."""
        for stretch in stretches[:-1]:
            self.bounds[index, stretch.limit] = None
        return self.relocations.setdefault((index, stretches, size), self._opaque(size))

    def division(self, index: Index, divisor: int) -> tuple[Index, Index]:
        """Return opaque quotient and remainder, the same ones for equal divisions."""
        key = index, divisor
        if key not in self._divisions:
            quotient = self._opaque(index.maximum() // divisor + 1)
            self._divisions[key] = quotient, self._opaque(divisor)
        return self._divisions[key]

    def position(self, element: None, element_type: ElementType, extent: int) -> Index:
        """Return an opaque index below ``extent``."""
        return self._opaque(extent)

    def known_position(self, i: HloInstruction, indices: Indices, extent: int) -> Index | None:
        return affine_position(i, indices, extent)

    def choose(self, condition: Conditions, yes: None, no: None) -> None: ...

    def zero(self, element_type: ElementType) -> None: ...

    def literal(self, element_type: ElementType, literal: Literal) -> None: ...

    def number(self, index: Index, element_type: ElementType) -> None:
        """Record that the variables of an index are pinned, since the index is used as a value."""
        self.pin(index)

    def part(self, element: None, number: Index, before: ElementType, after: ElementType) -> None:
        """Record that the variables of a part's number are pinned, since the number is used as a value."""
        self.pin(number)

    def joined(self, elements: Sequence[None], before: ElementType, after: ElementType) -> None: ...

    def elementwise(self, instruction: HloInstruction, operands: Sequence[None]) -> None: ...

    def undeclared(self, i: HloInstruction, indices: Indices) -> Steps[Conditions, None]:
        """Yield the reads of an accumulation's terms, or of an opaque element of each operand."""
        accumulation = i.operation.accumulation(self, i, indices)
        if accumulation is not None:
            for o in accumulation.initial:
                yield Read(o, ())
            for position in _positions(accumulation):
                yield from accumulation.terms(position)
        elif isinstance(i.operation, Tuple | GetTupleElement):
            for o in i.operands:
                yield Read(o, indices)
        else:
            self.pin(*indices)
            for o in i.operands:
                if o.shape.is_array:
                    yield Read(o, tuple(self._opaque(size) for size in o.shape.dimensions))

    def _opaque(self, extent: int) -> Index:
        """Return an index that stands for a computed, not affine value below ``extent``."""
        return Index(0, [(Variable(max(extent, 1), "o"), 1)])


def _positions(accumulation: Accumulation[Conditions]) -> list[Indices]:
    """Return the positions of an accumulation's loops: all if it is unrolled, else one of variables."""
    if not accumulation.unrolled:
        return [tuple(Index.of(Variable(extent, "k")) for extent in accumulation.extents)]
    return [tuple(map(Index, numbers)) for numbers in itertools.product(*map(range, accumulation.extents))]


class Accesses:
    """The accesses of a kernel; call `element` for each result.

    Attributes:
        inputs: the instructions whose values are in memory, dense and row-major.
        linear: the linear indices of all loads.
        reads: the linear indices of the loads of each input.
        requests: the elements, as (instruction, indices), that are computed unconditionally, in order.
    """

    def __init__(self, inputs: Collection[HloInstruction], *, unrolls: bool = False) -> None:
        self.inputs = frozenset(inputs)
        self.linear: dict[Index, None] = {}
        self.reads: dict[HloInstruction, set[Index]] = {}
        self.requests: dict[tuple[HloInstruction, Indices], None] = {}
        self._rules = ElementReads(self.inputs, unrolls=unrolls)
        self._standing: dict[HloInstruction, HloInstruction] = {}
        self._known: set[Request] = set()

    @property
    def pinned(self) -> set[Variable]:
        """The loop variables whose values are used outside addresses."""
        return self._rules.pinned

    @property
    def bounds(self) -> dict[tuple[Index, int], None]:
        """The indices that may pass an end of a dimension; see `ElementReads`."""
        return self._rules.bounds

    @property
    def relocations(self) -> Iterable[Relocation]:
        """The relocated indices; see `ElementReads`."""
        return self._rules.relocations

    def results(self, roots: Sequence[HloInstruction], indices: Indices) -> None:
        """Record the accesses for the element of each root at an index."""
        for root in dict.fromkeys(roots):
            self.element(root, indices)

    def element(self, i: HloInstruction, indices: Indices) -> None:
        """Record the accesses for the element of an instruction at an index; for a tuple, of all leaves."""
        waiting: list[Request] = [Read(i, indices)]
        while waiting:
            i, indices, conditions = waiting.pop()
            i = self._standing.get(i, i)
            request = Read(i, indices, conditions)
            if request in self._known or (i, indices, None) in self._known:
                continue
            if not conditions:
                self.requests[i, indices] = None
            self._known.add(request)
            if i in self.inputs:
                linear = linearize(indices, i.shape.dimensions)
                self.linear[linear] = None
                self.reads.setdefault(i, set()).add(linear)
            elif isinstance(i.operation, While):
                self._while(i, indices)
            else:
                waiting.extend(reversed(self._rules.of(i, indices, conditions)))

    def know(self, i: HloInstruction, indices: Indices) -> None:
        """Record that the element at an index has been computed, so that it is not read again."""
        self._known.add(Read(i, indices))

    def _while(self, i: HloInstruction, indices: Indices) -> None:
        """Record the accesses of a loop inside the kernel; see `hloom.codegen.rules.while_loop`."""
        assert i.annotation(TripCount) is not None
        loop, shapes = TupleLoop.of(i), i.shape.tuple_shapes
        carried, dimensions = loop.carried, shapes[loop.carried_arrays[0]].dimensions
        places = {n: indices if shapes[n].rank else () for n in carried}
        for number in range(loop.count):
            if number not in carried:
                for pick in picks(loop.state, number):
                    self._standing[pick] = loop.initial(number)
                if shapes[number].dimensions == dimensions:
                    self.element(loop.initial(number), indices)
        for n in carried:
            self.element(loop.initial(n), places[n])
        requests = dict(self.requests)
        for n in carried:
            for pick in picks(loop.state, n):
                self.know(pick, places[n])
        for n in carried:
            self.element(loop.following[n], places[n])
        self.requests = requests
