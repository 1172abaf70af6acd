"""Reductions of rows with a few columns: lanes along the rows, an accumulator for each column.

The elements of a row share what does not depend on the column. The sum of forces over all pairs of points
thus computes each distance once, and nothing of the size of all pairs is in memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hloom.analysis.instructions import operation_of
from hloom.codegen.accumulators import spread
from hloom.codegen.combining import Combiner, neutral_element
from hloom.codegen.elements import Elements
from hloom.codegen.llvm import I32, I64, Module, Value
from hloom.codegen.loops import LoopKernel, begin_kernel, emit_steady, outer_loops, vector_lanes
from hloom.codegen.types import Element, register_type
from hloom.ir.affine import Index, Indices, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.reduction import Reduce
from hloom.plan.accesses import Accesses
from hloom.plan.parts import KernelParts
from hloom.plan.space import Space, split_space


def emit_column_reduction(module: Module, name: str, parts: KernelParts, root: HloInstruction) -> LoopKernel:
    """Emit a kernel that reduces an array ``[..., rows, columns]``, of few columns, over its rows.

    Its parameters are (inputs ..., result, begin, end). ``root`` is the reduction. Vector lanes are
    neighbouring rows, and each column has a vector of accumulators. The kernel's loop runs over the result's
    outermost dimension.
    """
    inputs = parts.inputs
    operand, initial = root.operands
    *sizes, columns = root.shape.dimensions
    outer, lane = split_space(sizes, []), Variable(operand.shape.dimensions[-2])
    variables = tuple(v for v in outer.variables if v.trips != 1)
    places = [(*outer.indices, Index(k)) for k in range(columns)]
    reduce = operation_of(root, Reduce)
    sources = [reduce.operand_indices(place, (Index.of(lane),)) for place in places]
    accesses = Accesses(inputs, unrolls=True)
    for source in sources:
        accesses.element(operand, source)
    function, arrays, begin, end = begin_kernel(module, name, [*(i.shape for i in inputs), root.shape])
    views = dict(zip(inputs, arrays, strict=False))
    lanes = vector_lanes([*parts.members, *inputs], lane.trips)
    scalars, vectors = Elements(function, 0, views), Elements(function, lanes, views)
    vectors.unrolls = True
    with outer_loops(function, variables, begin, end), scalars.scope(), vectors.scope():
        emit_steady(vectors, accesses, Space((*variables, lane), ()))
        sums = _Columns(vectors, root, sources, lane).run()
        combiner = Combiner(root.called_computations[0])
        for place, total in zip(places, sums, strict=True):
            start = combiner.starts([scalars.element(initial, ())], [operand.shape.element_type])
            reduced = combiner.combine(scalars, start, [total])
            (value,) = combiner.lower(reduced, [operand.shape.element_type])
            scalars.store(arrays[-1], place, value)
    function.finish()
    work = math.prod(operand.shape.dimensions) * max(1, len(parts.members))
    trips = variables[0].trips if variables else 1
    return LoopKernel(name, trips, 1, work, f"{lanes} lanes along rows, {columns} columns")


class _Columns:
    """Emits the reduction over rows, a vector of rows at a time, with an accumulator for each column."""

    def __init__(
        self, vectors: Elements, root: HloInstruction, sources: Sequence[Indices], lane: Variable
    ) -> None:
        self.function, self.vectors, self.sources, self.lane = vectors.function, vectors, sources, lane
        self.operand = root.operands[0]
        self.combiner = Combiner(root.called_computations[0])
        kind = self.operand.shape.element_type
        neutral = neutral_element(root.called_computations[0], kind)
        assert neutral is not None
        self.start = self.function.constant(register_type(kind).vector(vectors.lanes), neutral)

    def run(self) -> list[Element]:
        """Emit the loop over rows and the reduction across lanes; return a scalar for each column."""
        f, lanes, lane = self.function, self.vectors.lanes, self.lane
        lane.is_lane = True
        end = lane.trips // lanes * lanes
        with f.loop(0, end, lanes, [self.start] * len(self.sources)) as loop, self.vectors.scope():
            lane.value = loop.index
            loop.next(*self.added(loop.values))
        sums: Sequence[Value] = loop.values
        if end < lane.trips:
            lane.value = f.constant(I64, end)
            numbers = f.constant(I32.vector(lanes), list(range(lanes)))
            inside = numbers.compare("ult", lane.trips - end)
            with self.vectors.scope(), self.vectors.masked(inside):
                last = self.added(sums)
            sums = [inside.select(new, old) for new, old in zip(last, sums, strict=True)]
        lane.is_lane, lane.value = False, None
        return [self.across(total) for total in sums]

    def added(self, sums: Sequence[Value]) -> list[Value]:
        """Emit the combination of the next vector of rows with ``sums``, an accumulator for each column.

        Return the new accumulators.
        """
        added: list[Value] = []
        for total, source in zip(sums, self.sources, strict=True):
            term = spread(self.vectors, self.vectors.element(self.operand, source))
            (value,) = self.combiner.combine(self.vectors, [total], [term])
            assert isinstance(value, Value)
            added.append(self.vectors.wide(value))
        return added

    def across(self, total: Value) -> Element:
        """Emit the reduction of the lanes of an accumulator to a scalar, halving the vector in each step."""
        lanes = self.vectors.lanes
        while lanes > 1:
            lanes //= 2
            low, high = total.shuffle(range(lanes)), total.shuffle(range(lanes, 2 * lanes))
            narrow = Elements(self.function, lanes, {})
            (value,) = self.combiner.combine(narrow, [low], [high])
            assert isinstance(value, Value)
            total = narrow.wide(value)
        return total.extract(0)
