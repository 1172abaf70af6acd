"""Reductions: as elements (a loop per vector of results), and as kernels with lanes along the reduced row."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from typing import Final

from hloom.analysis.column_reductions import is_column_reduction
from hloom.analysis.combiners import grouping, is_choice
from hloom.analysis.instructions import operation_of, used_results
from hloom.analysis.values import number
from hloom.codegen.accumulators import BLOCK, Blocks, carried, flatten, nested_reduction, spread, unflatten
from hloom.codegen.combining import Combiner, neutral_element
from hloom.codegen.elements import Elements
from hloom.codegen.llvm import I1, I64, Module, Operand, Value
from hloom.codegen.loops import LoopKernel, begin_kernel, emit_loop_kernel, outer_loops, vector_lanes
from hloom.codegen.target import Target, registers
from hloom.codegen.types import Element, register_type, storage_bytes
from hloom.cpu.kernels.movement.interleaving import LEAST_LANES, emit_rows_kernel, find_short_sums
from hloom.cpu.kernels.reduction.column_reduction import emit_column_reduction
from hloom.cpu.kernels.reduction.ordered_reduction import OrderedReduction, ReductionEmitter, lane_zero
from hloom.cpu.kernels.reduction.triangles import RowLimits, triangle_limits
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.ir.affine import Index, Indices, Variable, linearize
from hloom.ir.instruction import HloInstruction
from hloom.operations.combiners import Grouping
from hloom.operations.reduction import Reduce
from hloom.operations.structure import Iota
from hloom.plan.accesses import Accesses
from hloom.plan.iteration import planned_space
from hloom.plan.kernel import KernelPlan
from hloom.plan.parts import KernelParts
from hloom.plan.space import Space, merge_loops, split_space
from hloom.shape.shape import Shape

_LANES: Final = 64
"""Lanes of a row's accumulators."""
_NARROW: Final = 8
_NARROW_BYTES: Final = 24
_LONG: Final = 64
"""Elements of rows from which lanes run along them although their innermost dimension is short."""
_NARROW_CHOICE: Final = 16
"""Longest rows for lanes along the results: elements and bytes of a single array, elements of several."""


def is_row_reduction(instruction: HloInstruction) -> bool:
    """Return whether vector lanes should run along the reduced dimensions, not along the results.

    This pays if the minor dimensions of the operand are reduced, and have enough elements. If the innermost
    one has few, lanes run along the one around it, which needs a neutral element.
    """
    operand = instruction.operands[0].shape
    if 0 in operand.dimensions:
        return False
    reduced = operation_of(instruction, Reduce).dimensions
    length = minor = 1
    for d in reversed(range(operand.rank)):
        if operand.dimensions[d] != 1:
            if d not in reduced:
                break
            minor = operand.dimensions[d] if length == 1 else minor
            length *= operand.dimensions[d]
    if len(instruction.operands) > 2:
        return minor >= 4 and length > _NARROW_CHOICE
    if minor < 4:
        kind = operand.element_type
        return length >= _LONG and neutral_element(instruction.called_computations[0], kind) is not None
    return length > _NARROW or length * storage_bytes(operand.element_type) > _NARROW_BYTES


@KERNELS.register("reduce")
def emit_reduce(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit a reduction: a kernel with lanes along reduced dimensions, or a loop over result elements."""
    root, targets = plan.hero, program.targets(plan.instruction)
    if is_column_reduction(root) and targets[0].count:
        kernel = program.shared(lambda name: emit_column_reduction(program.module, name, plan.parts, root))
        program.call(
            plan.instruction, kernel, [*program.input_pointers(plan.instruction), targets[0].pointer]
        )
        return
    narrow = None
    is_empty = any(t.count == 0 for t in targets)
    if not is_row_reduction(root) or is_empty:
        terms = math.prod(operation_of(root, Reduce).reduced_sizes(root.operands[0].shape))
        narrow = None if is_empty else find_short_sums(plan.parts, root, terms, program.module.target)
        if narrow is None:
            program.elements(plan)
            return
    used = used_results(plan.instruction)

    def emit(name: str) -> LoopKernel:
        if narrow is not None:
            return emit_rows_kernel(program.module, name, plan.parts, narrow)
        return emit_row_reduction(program.module, name, plan.parts, root, used)

    kernel = program.shared(emit)
    pointers = [*program.input_pointers(plan.instruction), *(t.pointer for t in targets)]
    program.call(plan.instruction, kernel, pointers)


def emit_row_reduction(
    module: Module, name: str, parts: KernelParts, root: HloInstruction, used: Container[int]
) -> LoopKernel:
    """Emit a kernel that reduces rows of the operand with vector accumulators.

    Its parameters are (inputs ..., results ..., begin, end), where [begin, end) is an interval of the
    outermost loop over result elements. ``root`` is the reduction; ``used`` has the indices of those of its
    results that are used.
    """
    inputs, members = parts.inputs, parts.members
    half = len(root.operands) // 2
    results = root.shape.tuple_shapes if root.shape.is_tuple else (root.shape,)
    kept_sizes = results[0].dimensions
    sizes = operation_of(root, Reduce).reduced_sizes(root.operands[0].shape)
    outer, reduced = _planned(inputs, root, kept_sizes, sizes)
    combiner = root.called_computations[0]
    plain = half == 1 and neutral_element(combiner, results[0].element_type) is not None
    order = Grouping.FREE if plain else grouping(combiner)
    if order is Grouping.SEQUENTIAL or not (plain or Combiner(combiner).uniform):
        roots = (root,) * half
        space = planned_space(inputs, roots, members)
        return emit_loop_kernel(module, name, KernelParts(inputs, roots, members), space)
    position = None
    if order is Grouping.ASSOCIATIVE and is_choice(combiner, used):
        position = position_operand(root)
    in_lanes = plain or ((order is Grouping.FREE or position is not None) and len(reduced.variables) == 1)
    function, arrays, begin, end = begin_kernel(module, name, [*(i.shape for i in inputs), *results])
    views = dict(zip(inputs, arrays, strict=False))
    reduce, short = operation_of(root, Reduce), _short_loop(reduced) if plain else None
    sources = [reduce.operand_indices(outer.indices, indices) for indices in _indices(reduced, short)]
    if short is not None:
        reduced = replace(reduced, variables=reduced.variables[:-1], merged=reduced.merged[:-1])
    lane = reduced.variables[-1]
    lanes = vector_lanes([*members, *inputs], lane.trips) or 1
    most, chains = _LANES, 1
    if position is not None:
        most, chains = _chains_of_choice(module.target, results, lane.trips)
    lanes = min(lanes, most)
    while in_lanes and lanes * 2 <= min(lane.trips, most):
        lanes *= 2
    limits = triangle_limits(root, sources[0], lane) if in_lanes and short is None else None
    scalars = Elements(function, 0, views)
    vectors = Elements(function, lanes, views)
    with outer_loops(function, outer.variables, begin, end), scalars.scope(), vectors.scope():
        if in_lanes:
            reduction = RowReduction(scalars, vectors, root, outer.indices, reduced)
            reduction.limits, reduction.sources = limits, sources
            values = reduction.run(position, chains)
        else:
            values = OrderedReduction(scalars, vectors, root, outer.indices, reduced).run(order)
        for target, value in zip(arrays[len(inputs) :], values, strict=True):
            scalars.store(target, outer.indices, value)
    function.finish()
    trips = outer.variables[0].trips if outer.variables else 1
    work = math.prod(kept_sizes) * math.prod(sizes) * max(1, len(members))
    form = ", in order" if not in_lanes else "" if limits is None else " of a triangle"
    return LoopKernel(name, trips, 1, work, f"{lanes} lanes along rows{form}")


def _short_loop(reduced: Space) -> Variable | None:
    """Return the innermost loop if it is so short that lanes should run along the loop around it."""
    match reduced.variables:
        case [*_, around, last] if last.trips < LEAST_LANES <= around.trips:
            return last
        case _:
            return None


def _indices(reduced: Space, short: Variable | None) -> list[Indices]:
    """Return the indices of the elements that are reduced at each step: of all iterations of a short loop."""
    if short is None:
        return [reduced.indices]
    return [reduced.at({short: number}) for number in range(short.trips)]


def _chains_of_choice(target: Target, results: Sequence[Shape], trips: int) -> tuple[int, int]:
    """Return (lanes of a vector, number of accumulators) for a combiner that selects an argument.

    An example is argmax. ``trips`` is the length of a row. For long rows, there are several independent
    accumulators of one register each: with vectors of several registers, LLVM would pack the comparison masks
    and unpack them again.
    """
    lanes = target.vector_bytes // max(storage_bytes(r.element_type) for r in results)
    chains = min(registers(target) // 4 // len(results), trips // (4 * lanes))
    return (lanes, chains) if chains > 1 else (_LANES, 1)


def position_operand(root: HloInstruction) -> int | None:
    """Return the index of the operand of a reduction that holds positions, such as that of an argmax.

    It is an integer iota along the only reduced dimension. Return None if there is no such operand.
    """
    reduce = operation_of(root, Reduce)
    for index, operand in enumerate(root.operands[: len(root.operands) // 2]):
        sizes, kind = operand.shape.dimensions, operand.shape.element_type
        long = [d for d in reduce.dimensions if sizes[d] != 1]
        match operand.operation:
            case Iota(iota_dimension=along) if kind.is_integer and long == [along]:
                if sizes[along] - 1 <= kind.limits[1]:
                    return index
            case _:
                pass
    return None


def _planned(
    inputs: Sequence[HloInstruction], root: HloInstruction, kept_sizes: Sequence[int], sizes: Sequence[int]
) -> tuple[Space, Space]:
    """Return (loops over the results, loops over the reduced dimensions) of the reduction ``root``.

    Dimensions are merged where the strides of ``inputs`` allow. ``kept_sizes`` and ``sizes`` are the sizes of
    the results and of the reduced dimensions.
    """
    outer, reduced = split_space(kept_sizes, []), split_space(sizes, [])
    accesses = Accesses(inputs)
    source = operation_of(root, Reduce).operand_indices(outer.indices, reduced.indices)
    for operand in root.operands[: len(root.operands) // 2]:
        accesses.element(operand, source)
    written = linearize(outer.indices, kept_sizes)
    return (
        merge_loops(outer, [*accesses.linear, written], accesses.pinned),
        merge_loops(reduced, accesses.linear, accesses.pinned),
    )


class RowReduction(ReductionEmitter):
    """Emits a reduction with accumulators that are vectors along the reduced row.

    Attributes:
        limits: the part of a row that must be read, since elements outside it are neutral for the combiner;
            None for the whole row.
        sources: the indices of the elements that each step reads; empty for those of the loops.
    """

    limits: RowLimits | None = None
    sources: Sequence[Indices] = ()

    def run(
        self,
        position: int | None = None,
        chains: int = 1,
        observe: Callable[[Indices, list[Element]], None] = lambda source, values: None,
    ) -> list[Element]:
        """Emit the reduction; return one scalar for each result.

        ``position`` is for a combiner that selects one of its arguments, such as argmax: the index of the
        operand that holds positions in the row. Lanes, and the ``chains`` accumulator vectors, are combined
        in the order of these positions; None for a combiner that needs no such order. ``observe`` is called
        with the index and the elements of each vector that is read.
        """
        self._position, self._observe = position, observe
        outer, lane = self.reduced.variables[:-1], self.reduced.variables[-1]
        neutral = neutral_element(self.combiner.computation, self.types[0]) if len(self.types) == 1 else None
        initial = [self.scalars.element(i, ()) for i in self.initial]
        lanes = self.vectors.lanes
        if neutral is not None:
            start: list[Element] = [
                self.function.constant(register_type(self.types[0]).vector(lanes), neutral)
            ]
            blocks = self.combiner.blocks(self.vectors)

            def row(values: list[Element]) -> list[Element]:
                return self._row(lane, 0, values, blocks)

            sums = nested_reduction(self.vectors, outer, start, row, blocks, lane.trips // lanes)
        else:
            sums = self._side_by_side(lane, chains)
        total = self._across(sums)
        is_extreme = self.combiner.plain in ("maximum", "minimum")
        if not is_extreme or number(self.initial[0]) != neutral:
            start = self.combiner.starts(initial, self.types)
            total = self.combiner.combine(self.scalars, start, total)
        return self.combiner.lower(total, self.types)

    def _side_by_side(self, lane: Variable, chains: int) -> list[Element]:
        """Emit the reduction of a row with ``chains`` independent accumulators; return their combination.

        It is for combiners without a neutral element: the first vectors of the row are the initial
        accumulators. The vectors after the last full iteration of the loop are combined at the end.
        """
        lane.is_lane = True
        lanes = self.vectors.lanes
        step = chains * lanes
        starts: list[list[Element]] = []
        for chain in range(chains):
            lane.value = self.function.constant(I64, chain * lanes)
            with self.vectors.scope():
                starts.append(self._observed())
        if chains == 1:
            return self._row(lane, lanes, starts[0])
        end, width = lane.trips // step * step, len(self.types)
        start = [x for each in starts for x in each]
        with self.function.loop(step, end, step, flatten(start)) as loop:
            accumulators, sums = unflatten(loop.values, start), list[Element]()
            for chain in range(chains):
                lane.value = loop.index + chain * lanes
                with self.vectors.scope():
                    sums += self._combined(accumulators[chain * width : (chain + 1) * width])
            loop.next(*flatten(sums))
        sums = unflatten(loop.values, start)
        total, rest = sums[:width], sums[width:]
        while rest:
            total = self.combiner.combine(self.vectors, *self._in_order(self.vectors, total, rest[:width]))
            total, rest = [spread(self.vectors, x) for x in total], rest[width:]
        return self._row(lane, end, total)

    def _row(
        self, lane: Variable, low: int, start: list[Element], blocks: Blocks | None = None
    ) -> list[Element]:
        """Emit the combination of a row's vectors, from index ``low`` on, with the accumulators ``start``.

        Return the new accumulators. If the lanes do not divide the row, the last vector overlaps the one
        before it, and only its new lanes count; if the row is shorter than a vector, the vector is masked.
        ``blocks`` tells how the blocks of a long sum are added, which reduces rounding errors; None if the
        sum is not divided.
        """
        lane.is_lane = True
        lanes = self.vectors.lanes
        end = lane.trips // lanes * lanes

        def body(index: Value, accumulators: list[Element]) -> list[Element]:
            lane.value = index
            return self._combined(accumulators)

        is_short = len(range(low, end, lanes)) <= BLOCK
        limits = (*self._vectors(low, end), lanes)
        sums = carried(self.vectors, limits, start, body, None if is_short else blocks)
        if end < lane.trips:
            first = max(0, lane.trips - lanes)
            lane.value = self.function.constant(I64, first)
            fresh = [end <= first + number < lane.trips for number in range(lanes)]
            inside = self.function.constant(I1.vector(lanes), fresh)
            with self.vectors.scope(), self.vectors.masked(None if first else inside):
                last_sums = self._combined(sums)
            sums = [self.vectors.choose(inside, m, old) for m, old in zip(last_sums, sums, strict=True)]
        lane.is_lane = False
        return sums

    def _vectors(self, low: int, end: int) -> tuple[Operand, Operand]:
        """Emit (begin, end) of the part of [low, end) in a row that must be read: that inside `limits`.

        They are rounded to whole vectors, begin down and end up. Elements outside `limits` are neutral for
        the combiner. Without limits, return (low, end).
        """
        if self.limits is None:
            return low, end
        lanes, f = self.vectors.lanes, self.function

        def clamped(index: Index) -> Value:
            position = self.vectors.index_value(index) & -lanes
            return f.intrinsic(
                "smin", f.intrinsic("smax", position, f.constant(I64, low)), f.constant(I64, end)
            )

        first, last = self.limits
        return low if first is None else clamped(first), end if last is None else clamped(last + lanes - 1)

    def _combined(self, accumulators: list[Element]) -> list[Element]:
        for source in self.sources or [self.source]:
            self.source = source
            combined = self.combiner.combine(self.vectors, accumulators, self._observed())
            # a combiner that ignores its arguments returns a scalar
            accumulators = [spread(self.vectors, x) for x in combined]
        return accumulators

    def _observed(self) -> list[Element]:
        values = self.operand_elements(self.vectors)
        self._observe(self.source, values)
        return values

    def _across(self, accumulators: list[Element]) -> list[Element]:
        """Emit the reduction across the lanes of each accumulator; return one scalar for each of them.

        Each step combines the lower half of the lanes with the upper half. Vectors stay as wide as a register
        of 16 bytes: LLVM has no single instructions for some operations on shorter ones.
        """
        lanes = left = self.vectors.lanes
        least = 16 // max(map(storage_bytes, self.types))
        while left > 1:
            half = left // 2
            width = max(half, min(least, lanes))
            low = [_lanes(a, range(width)) for a in accumulators]
            high = [_lanes(a, [half + lane % half for lane in range(width)]) for a in accumulators]
            narrow = Elements(self.function, width, {})
            if self._position is not None:
                low, high = self._in_order(narrow, low, high)
            accumulators = [spread(narrow, x) for x in self.combiner.combine(narrow, low, high)]
            lanes, left = width, half
        return [lane_zero(a) for a in accumulators]

    def _in_order(
        self, e: Elements, low: list[Element], high: list[Element]
    ) -> tuple[list[Element], list[Element]]:
        """Emit the exchange of ``low`` and ``high`` in the lanes in which ``high`` has the smaller position.

        ``low`` and ``high`` are two candidates of a combiner that selects an argument, such as argmax: each
        has a vector for every operand, and one operand holds positions. Return (low, high), now in the order
        of positions.
        """
        assert self._position is not None
        first, second = low[self._position], high[self._position]
        assert isinstance(first, Value) and isinstance(second, Value)
        ordered = first.compare("ult", second)
        pairs = list(zip(low, high, strict=True))
        return [e.choose(ordered, a, b) for a, b in pairs], [e.choose(ordered, b, a) for a, b in pairs]


def _lanes(element: Element, lanes: Sequence[int]) -> Element:
    if isinstance(element, tuple):
        return element[0].shuffle(lanes), element[1].shuffle(lanes)
    return element.shuffle(lanes)
