"""Access analysis: the memory that a kernel reads per result element, as symbolic indices.

`Accesses` walks a fused computation from its results as code generation does, on indices alone. It records
the linear index of every load, the loop variables used outside addresses (in conditions, as values, as starts
of slices), and the requested elements. Planning selects and merges loops by them. An operation without a rule
pins all its indices, which keeps its loops unmerged.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Generator, Iterable, Sequence
from typing import Final, TypeAlias

from hloom.analysis.loops import Loop, picks
from hloom.analysis.trip_count import TripCount
from hloom.ir.affine import Index, Indices, Variable, linearize
from hloom.ir.indexing import Indexing, Read, Steps, undilated
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import WindowDimension
from hloom.operations.contraction import Dot
from hloom.operations.control_flow import While
from hloom.operations.convolution import Convolution
from hloom.operations.reduction import Reduce
from hloom.operations.structure import GetTupleElement, Tuple
from hloom.operations.window_reduction import ReduceWindow
from hloom.plan.index_maps import (
    convolution_group,
    dot_operand_indices,
    reduced_operand_indices,
    reduced_sizes,
)
from hloom.shape.element_type import ElementType
from hloom.shape.literal import Literal

MOST_UNROLLED_WINDOW: Final = 16
"""Maximum number of window elements to unroll; larger windows become loops."""


Conditions: TypeAlias = "frozenset[tuple[Index, int]]"
"""Bounds checks under which an element is computed: 0 <= index < size for each."""
Request: TypeAlias = Read[Conditions]


class ElementReads(Indexing[Conditions, None]):
    """The operand elements from which an operation computes an element.

    Attributes:
        inputs: instructions whose values are in memory, dense and row-major.
        unrolls: whether each element of a reduction is a request of its own.
    """

    def __init__(self, inputs: Collection[HloInstruction] = (), *, unrolls: bool = False) -> None:
        super().__init__()
        self.inputs = frozenset(inputs)
        self.unrolls = unrolls
        self._reads: list[Request] = []
        self._divisions: dict[tuple[Index, int], tuple[Index, Index]] = {}

    def of(self, i: HloInstruction, indices: Indices, conditions: Conditions | None = None) -> list[Request]:
        """Return the operand elements that an element is computed from, in order."""
        self.mask = conditions
        steps = i.operation.element(self, i, indices)
        reads = list(steps) if isinstance(steps, Generator) else []
        if conditions is None:
            return reads
        return [Read(o, at, conditions | inside if inside else conditions) for o, at, inside in reads]

    def compare(self, index: Index, size: int) -> Conditions:
        """Return the bounds check."""
        return frozenset([(index, size)])

    def conjunction(self, a: Conditions, b: Conditions) -> Conditions:
        """Return the bounds checks of both."""
        return a | b

    def is_dense(self, i: HloInstruction) -> bool | None:
        """Return true for inputs."""
        return True if i in self.inputs else None

    def division(self, index: Index, divisor: int) -> tuple[Index, Index]:
        """Return opaque indices, the same ones for the same division."""
        key = index, divisor
        if key not in self._divisions:
            quotient = self._opaque(index.maximum() // divisor + 1)
            self._divisions[key] = quotient, self._opaque(divisor)
        return self._divisions[key]

    def position(self, element: None, element_type: ElementType, extent: int) -> Index:
        """Return an opaque index."""
        return self._opaque(extent)

    def choose(self, condition: Conditions, yes: None, no: None) -> None:
        """Record nothing."""

    def zero(self, element_type: ElementType) -> None:
        """Record nothing."""

    def literal(self, element_type: ElementType, literal: Literal) -> None:
        """Record nothing."""

    def number(self, index: Index, element_type: ElementType) -> None:
        """Record that the index is a value."""
        self.pin(index)

    def part(self, element: None, number: Index, before: ElementType, after: ElementType) -> None:
        """Record that the number of the part is a value."""
        self.pin(number)

    def joined(self, elements: Sequence[None], before: ElementType, after: ElementType) -> None:
        """Record nothing."""

    def elementwise(self, instruction: HloInstruction, operands: Sequence[None]) -> None:
        """Record nothing."""

    def undeclared(self, i: HloInstruction, indices: Indices) -> Steps[Conditions, None]:
        """Return the reads of operations that declare none."""
        self._reads = []
        self._operands(i, indices)
        yield from self._reads

    def _read(self, i: HloInstruction, indices: Indices, conditions: Conditions | None = None) -> None:
        """Request the element of an operand, under further conditions."""
        self._reads.append(Read(i, indices, conditions or None))

    # -- rules

    def _operands(self, i: HloInstruction, indices: Indices) -> None:
        match i.operation:
            case Tuple():
                self._all(i.operands, indices)
            case GetTupleElement():
                self._read(i.operands[0], indices)
            case Reduce():
                self._reduce(i, indices)
            case ReduceWindow():
                self._reduce_window(i, indices)
            case Dot():
                left, right, _ = dot_operand_indices(i, indices)
                self._read(i.operands[0], left)
                self._read(i.operands[1], right)
            case Convolution():
                self._convolution(i, indices)
            case _:
                self._unknown(i, indices)

    def _unknown(self, i: HloInstruction, indices: Indices) -> None:
        """Record that any element of any operand may be read."""
        self.pin(*indices)
        for o in i.operands:
            if o.shape.is_array:
                self._read(o, tuple(self._opaque(size) for size in o.shape.dimensions))

    def _all(self, instructions: Iterable[HloInstruction], indices: Indices) -> None:
        for i in instructions:
            self._read(i, indices)

    def _opaque(self, extent: int) -> Index:
        """Return an opaque index: a computed value that is not affine."""
        return Index(0, [(Variable(max(extent, 1), "o"), 1)])

    def _reduce(self, i: HloInstruction, indices: Indices) -> None:
        half = len(i.operands) // 2
        self._all(i.operands[half:], ())
        sizes = reduced_sizes(i)
        if self.unrolls:
            places = [tuple(map(Index, numbers)) for numbers in itertools.product(*map(range, sizes))]
        else:
            places = [tuple(Index.of(Variable(size, "r")) for size in sizes)]
        for place in places:
            self._all(i.operands[:half], reduced_operand_indices(i, indices, place))

    def _window_place(
        self, at: Index, position: Index, d: WindowDimension, size: int
    ) -> tuple[Index, Conditions]:
        """Return the base index of a window element, and its bounds check."""
        element = position * -1 + (d.size - 1) if d.window_reversal else position
        place = at * d.stride + element * d.window_dilation + -d.padding_low
        index, inside = undilated(self, place, d.base_dilation, size)
        return index, inside or frozenset()

    def _reduce_window(self, i: HloInstruction, indices: Indices) -> None:
        assert isinstance(i.operation, ReduceWindow)
        window = i.operation.window
        half = len(i.operands) // 2
        self._all(i.operands[half:], ())
        sizes = i.operands[0].shape.dimensions
        if 0 in sizes:
            return
        if math.prod(d.size for d in window) <= MOST_UNROLLED_WINDOW:
            positions = [tuple(map(Index, o)) for o in itertools.product(*(range(d.size) for d in window))]
        else:
            positions = [tuple(Index.of(Variable(d.size, "w")) for d in window)]
        for position in positions:
            placed = [
                self._window_place(at, p, d, size)
                for at, p, d, size in zip(indices, position, window, sizes, strict=True)
            ]
            source = tuple(place for place, _ in placed)
            for o in i.operands[:half]:
                self._read(o, source, frozenset[tuple[Index, int]]().union(*[checks for _, checks in placed]))

    def _convolution(self, i: HloInstruction, indices: Indices) -> None:
        operation = i.operation
        assert isinstance(operation, Convolution)
        lhs, rhs = i.operands
        if 0 in (*lhs.shape.dimensions, *rhs.shape.dimensions):
            return
        labels = operation.dim_labels
        features = rhs.shape.dimensions[labels.kernel_input_feature_dimension]
        outputs = i.shape.dimensions[labels.output_feature_dimension]
        feature = Index.of(Variable(features, "c"))
        output = indices[labels.output_feature_dimension]
        group = self._group(output, outputs, operation.feature_group_count)
        batch_group = self._group(output, outputs, operation.batch_group_count)
        batch = lhs.shape.dimensions[labels.input_batch_dimension] // operation.batch_group_count
        left: list[Index] = [Index(0)] * lhs.shape.rank
        left[labels.input_batch_dimension] = indices[labels.output_batch_dimension] + batch_group * batch
        left[labels.input_feature_dimension] = group * features + feature
        right: list[Index] = [Index(0)] * rhs.shape.rank
        right[labels.kernel_input_feature_dimension] = feature
        right[labels.kernel_output_feature_dimension] = output
        checks: Conditions = frozenset()
        for n, d in enumerate(operation.window):
            position = Index.of(Variable(d.size, "w"))
            at, dimension = indices[labels.output_spatial_dimensions[n]], labels.input_spatial_dimensions[n]
            left[dimension], checked = self._window_place(at, position, d, lhs.shape.dimensions[dimension])
            right[labels.kernel_spatial_dimensions[n]] = position
            checks |= checked
        self._read(lhs, tuple(left), checks)
        self._read(rhs, tuple(right))

    def _group(self, output: Index, outputs: int, groups: int) -> Index:
        group = convolution_group(output, outputs, groups)
        if group is not None:
            return group
        self.pin(output)
        return self._opaque(groups)


class Accesses:
    """The accesses of a kernel; call `element` for each result.

    Attributes:
        inputs: instructions whose values are in memory, dense and row-major.
        linear: the linear index of each load.
        reads: linear indices by input.
        pinned: variables whose values are used outside addresses.
        requests: the unconditionally computed elements, in order.
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
        """Return the variables whose values are used outside addresses."""
        return self._rules.pinned

    def results(self, roots: Sequence[HloInstruction], indices: Indices) -> None:
        """Record the reads for the results of a kernel: of several roots, or of one tuple-shaped root."""
        for root in dict.fromkeys(roots):
            self.element(root, indices)

    def element(self, i: HloInstruction, indices: Indices) -> None:
        """Record the reads for the element of an instruction at an index; of all leaves of a tuple."""
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
        """Mark the element at an index as computed."""
        self._known.add(Read(i, indices))

    def _while(self, i: HloInstruction, indices: Indices) -> None:
        """Record the reads of a loop inside the kernel; see `hloom.codegen.rules.while_loop`."""
        body, condition = i.called_computations
        assert i.annotation(TripCount) is not None
        loop = Loop(i, body, condition, body.parameters[0], condition.parameters[0])
        carried = [n for n in range(loop.count) if not loop.is_invariant(n)]
        places = {n: indices if i.shape.tuple_shapes[n].rank else () for n in carried}
        for number in range(loop.count):
            if number not in carried:
                for pick in picks(loop.state, number):
                    self._standing[pick] = loop.initial(number)
        for n in carried:
            self.element(loop.initial(n), places[n])
        requests = dict(self.requests)
        for n in carried:
            for pick in picks(loop.state, n):
                self.know(pick, places[n])
        for n in carried:
            self.element(loop.following[n], places[n])
        self.requests = requests
