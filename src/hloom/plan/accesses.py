"""Access analysis: the memory that a kernel reads per result element, as symbolic indices.

`Accesses` walks a fused computation from its results as code generation does, on indices alone. It records
the linear index of every load, the loop variables used outside addresses (in conditions, as values, as starts
of slices), and the requested elements. Planning selects and merges loops by them. An operation without a rule
pins all its indices, which keeps its loops unmerged.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Final, TypeAlias

from hloom.analysis.loops import Loop, picks
from hloom.analysis.trip_count import TripCount
from hloom.ir.affine import Index, Variable, delinearize, linearize
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import WindowDimension
from hloom.operations.contraction import Dot
from hloom.operations.control_flow import While
from hloom.operations.conversion import BitcastConvert
from hloom.operations.convolution import Convolution
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.gather_scatter import Gather
from hloom.operations.movement import Concatenate, DynamicReshape, Pad, Reshape
from hloom.operations.reduction import Reduce
from hloom.operations.structure import Constant, GetTupleElement, Iota, Tuple
from hloom.operations.window_reduction import ReduceWindow
from hloom.plan.index_maps import (
    Indices,
    convolution_group,
    dot_operand_indices,
    moved_indices,
    reduced_operand_indices,
    reduced_sizes,
)

MOST_UNROLLED_WINDOW: Final = 16
"""Maximum number of window elements to unroll; larger windows become loops."""


Conditions: TypeAlias = "frozenset[tuple[Index, int]]"
"""Bounds checks under which an element is computed: 0 <= index < size for each."""
ALWAYS: Final[Conditions] = frozenset()
Request: TypeAlias = tuple[HloInstruction, Indices, Conditions]
"""The element of an instruction at an index, under conditions."""


class ElementReads:
    """The rules: the operand elements from which an operation computes an element.

    Attributes:
        inputs: instructions whose values are in memory, dense and row-major.
        unrolls: whether each element of a reduction is a request of its own.
        pinned: variables whose values are used outside addresses.
    """

    def __init__(self, inputs: Collection[HloInstruction] = (), *, unrolls: bool = False) -> None:
        self.inputs = frozenset(inputs)
        self.unrolls = unrolls
        self.pinned: set[Variable] = set()
        self._reads: list[Request] = []
        self._conditions: Conditions = ALWAYS
        self._divisions: dict[tuple[Index, tuple[int, ...], bool], Indices] = {}

    def of(self, i: HloInstruction, indices: Indices, conditions: Conditions = ALWAYS) -> list[Request]:
        """Return the operand elements that an element is computed from, in order."""
        self._reads, self._conditions = [], conditions
        self._operands(i, indices)
        return self._reads

    def _read(self, i: HloInstruction, indices: Indices, conditions: Conditions = ALWAYS) -> None:
        """Request the element of an operand, under further conditions."""
        self._reads.append((i, indices, self._conditions | conditions if conditions else self._conditions))

    # -- rules

    def _operands(self, i: HloInstruction, indices: Indices) -> None:
        moved = moved_indices(i, indices)
        if moved is not None:
            self._read(i.operands[0], moved)
            return
        match i.operation:
            case Constant():
                pass
            case Tuple():
                self._all(i.operands, indices)
            case Iota(iota_dimension=dimension):
                self._pin(indices[dimension])
            case Reshape() | DynamicReshape():
                self._reshape(i, indices)
            case Pad():
                self._pad(i, indices)
            case Concatenate():
                self._concatenate(i, indices)
            case DynamicSlice():
                self._dynamic_slice(i, indices)
            case DynamicUpdateSlice():
                self._dynamic_update_slice(i, indices)
            case Gather():
                self._gather(i, indices)
            case BitcastConvert():
                self._bitcast_convert(i, indices)
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
            case operation if operation.elementwise:
                for o in i.operands:
                    self._read(o, indices if o.shape.rank else ())
            case _:
                self._unknown(i, indices)

    def _unknown(self, i: HloInstruction, indices: Indices) -> None:
        """Record that any element of any operand may be read."""
        self._pin(*indices)
        for o in i.operands:
            if o.shape.is_array:
                self._read(o, tuple(self._opaque(size) for size in o.shape.dimensions))

    def _all(self, instructions: Iterable[HloInstruction], indices: Indices) -> None:
        for i in instructions:
            self._read(i, indices)

    def _pin(self, *indices: Index) -> None:
        for index in indices:
            self.pinned.update(v for v, _ in index.terms)

    def _opaque(self, extent: int) -> Index:
        """Return an opaque index: a computed value that is not affine."""
        return Index(0, [(Variable(max(extent, 1), "o"), 1)])

    def _checks(self, index: Index, size: int) -> Conditions:
        """Pin an index that needs a bounds check; return that check."""
        if index.minimum() >= 0 and index.maximum() < size:
            return ALWAYS
        self._pin(index)
        return frozenset([(index, size)])

    def _reshape(self, i: HloInstruction, indices: Indices) -> None:
        (operand, *_) = i.operands
        linear = linearize(indices, i.shape.dimensions)
        sizes = operand.shape.dimensions
        source = delinearize(linear, sizes)
        if source is None and self.is_read_in_order(operand):
            source = (*(Index(0) for _ in sizes[1:]), linear)
        self._read(operand, source if source is not None else self._divided(linear, sizes))

    def is_read_in_order(self, i: HloInstruction) -> bool:
        """Return whether each element depends only on elements at the same linear index."""
        waiting, seen = [i], {i}
        while waiting:
            i = waiting.pop()
            scalar = len(i.operands) == 1 and not i.operands[0].shape.rank
            if i in self.inputs or (scalar and i.operation.index_mapped):
                continue
            if not i.operation.elementwise and not isinstance(i.operation, Reshape):
                return False
            fresh = [o for o in i.operands if o.shape.rank and o not in seen]
            seen.update(fresh)
            waiting.extend(fresh)
        return True

    def _divided(self, linear: Index, dimensions: tuple[int, ...]) -> Indices:
        """Return the multi-index of a linear index; opaque in dimensions that need a division."""
        key = (linear, dimensions, bool(self._conditions))
        if key not in self._divisions:
            self._divisions[key] = self._division(linear, dimensions)
        return self._divisions[key]

    def _division(self, linear: Index, dimensions: tuple[int, ...]) -> Indices:
        if 0 in dimensions:
            return (Index(0),) * len(dimensions)
        found: list[Index] = []
        rest = linear
        for size in reversed(dimensions[1:]):
            outer = rest.divide(size)
            if outer is None:
                self._pin(rest)
                found.append(self._opaque(size))
                outer = self._opaque(rest.maximum() // size + 1)
            else:
                found.append(rest - outer * size)
            rest = outer
        if not dimensions:
            return ()
        outside = self._conditions and not (rest.minimum() >= 0 and rest.maximum() < dimensions[0])
        return (self._opaque(dimensions[0]) if outside else rest, *reversed(found))

    def _pad(self, i: HloInstruction, indices: Indices) -> None:
        operand, padding_value = i.operands
        assert isinstance(i.operation, Pad)
        source: list[Index] = []
        checks = ALWAYS
        for index, size, pad in zip(indices, operand.shape.dimensions, i.operation.padding, strict=True):
            moved = index + -pad.low
            step = pad.interior + 1
            if step > 1:
                exact = moved.divide(step) if moved.minimum() >= 0 else None
                if exact is None or exact * step != moved:
                    self._pin(moved)
                    source.append(self._opaque(size))
                    checks |= {(source[-1], size)}
                    continue
                moved = exact
            checks |= self._checks(moved, size)
            source.append(moved)
        self._read(padding_value, ())
        if 0 not in operand.shape.dimensions or not checks:
            self._read(operand, tuple(source), checks)

    def _concatenate(self, i: HloInstruction, indices: Indices) -> None:
        assert isinstance(i.operation, Concatenate)
        (dimension,) = i.operation.dimensions
        place, start = indices[dimension], 0
        for operand in i.operands:
            size = operand.shape.dimensions[dimension]
            moved = place + -start
            if size and start <= place.maximum() and start + size > place.minimum():
                source = (*indices[:dimension], moved, *indices[dimension + 1 :])
                self._read(operand, source, self._checks(moved, size))
            start += size

    def _start(self, start: HloInstruction, largest: int) -> Index:
        self._read(start, ())
        return self._opaque(largest + 1)

    def _dynamic_slice(self, i: HloInstruction, indices: Indices) -> None:
        operand, *starts = i.operands
        assert isinstance(i.operation, DynamicSlice)
        sizes = i.operation.dynamic_slice_sizes
        sliced = zip(indices, starts, operand.shape.dimensions, sizes, strict=True)
        self._read(operand, tuple(x + self._start(s, extent - size) for x, s, extent, size in sliced))

    def _dynamic_update_slice(self, i: HloInstruction, indices: Indices) -> None:
        operand, update, *starts = i.operands
        checks = ALWAYS
        source: list[Index] = []
        sizes = zip(indices, starts, operand.shape.dimensions, update.shape.dimensions, strict=True)
        for index, start, whole, size in sizes:
            moved = index - self._start(start, whole - size)
            self._pin(moved)
            checks |= {(moved, size)} if size < whole else ALWAYS
            source.append(moved)
        self._read(operand, indices)
        if 0 not in update.shape.dimensions:
            self._read(update, tuple(source), checks)

    def _gather(self, i: HloInstruction, indices: Indices) -> None:
        operation = i.operation
        assert isinstance(operation, Gather)
        operand, start_indices = i.operands
        batch = [x for d, x in enumerate(indices) if d not in operation.offset_dims]
        offsets = iter([indices[d] for d in operation.offset_dims])
        source: list[Index] = []
        for d, whole in enumerate(operand.shape.dimensions):
            index = Index(0)
            if d in operation.start_index_map:
                place = [*batch]
                if operation.index_vector_dim < start_indices.shape.rank:
                    place.insert(operation.index_vector_dim, Index(operation.start_index_map.index(d)))
                self._read(start_indices, tuple(place))
                index = index + self._opaque(whole - operation.slice_sizes[d] + 1)
            if d in operation.operand_batching_dims:
                number = operation.operand_batching_dims.index(d)
                dimension = operation.start_indices_batching_dims[number]
                index = index + batch[dimension - (dimension > operation.index_vector_dim)]
            elif d not in operation.collapsed_slice_dims:
                index = index + next(offsets)
            source.append(index)
        self._read(operand, tuple(source))

    def _bitcast_convert(self, i: HloInstruction, indices: Indices) -> None:
        (operand,) = i.operands
        before, after = operand.shape.element_type.bits, i.shape.element_type.bits
        if before == after:
            self._read(operand, indices)
        elif before > after:
            self._read(operand, indices[:-1])
            if not indices[-1].is_constant:
                self._pin(indices[-1])
        else:
            for number in range(after // before):
                self._read(operand, (*indices, Index(number)))

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
        if d.base_dilation == 1:
            return place, self._checks(place, size)
        self._pin(place)
        index = self._opaque(size)
        return index, frozenset([(index, size)])

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
                self._read(o, source, ALWAYS.union(*[checks for _, checks in placed]))

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
        checks = ALWAYS
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
        self._pin(output)
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
        waiting: list[Request] = [(i, indices, ALWAYS)]
        while waiting:
            i, indices, conditions = waiting.pop()
            i = self._standing.get(i, i)
            request = (i, indices, conditions)
            if request in self._known or (i, indices, ALWAYS) in self._known:
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
        self._known.add((i, indices, ALWAYS))

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
