"""Row fusions: reductions along the minor dimension and their consumers, in one kernel.

A softmax or a normalization reads a row, reduces it once or twice, and writes a row. The kernel performs all
of that while a row is in the first-level cache: the reductions in order, with their results in registers,
then the results of the kernel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from hloom.codegen.combining import neutral_element
from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm import I8, Function, Module
from hloom.codegen.loops import LoopKernel, begin_kernel, loop_nest, outer_loops, vector_lanes
from hloom.codegen.target import Target
from hloom.codegen.types import Element, storage_bytes
from hloom.cpu.kernels.movement.interleaving import (
    LEAST_LANES,
    MOST_COLUMNS,
    Rows,
    emit_rows_kernel,
    find_rows,
)
from hloom.cpu.kernels.reduction.reduction import RowReduction
from hloom.cpu.program import KERNELS, ProgramEmitter
from hloom.ir.affine import Index, Indices, Variable, linearize
from hloom.ir.instruction import HloInstruction
from hloom.operations.reduction import Reduce
from hloom.plan.accesses import Accesses
from hloom.plan.evaluations import element_work
from hloom.plan.iteration import planned_space
from hloom.plan.kernel import KernelPlan
from hloom.plan.parts import KernelParts
from hloom.plan.registry import ROW_FUSION
from hloom.plan.space import Space, merge_loops, split_space
from hloom.records import dataclass

MOST_SCRATCH: Final = 1 << 17
"""Bytes of a row that may be kept in scratch memory; values of longer rows are recomputed."""


@KERNELS.register(ROW_FUSION)
def emit_row_fusion(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit the kernel call of a row fusion: reductions along rows, and elementwise operations on the rows."""
    i = plan.instruction
    narrow = _narrow_rows(plan.parts, program.module.target)

    def emit(name: str) -> LoopKernel:
        if narrow is not None:
            return emit_rows_kernel(program.module, name, plan.parts, narrow)
        return _row_kernel(program.module, name, plan.parts)

    kernel = program.shared(emit)
    targets = [program.pointer(i, index) for index in program.assignment.values[i]]
    program.call(i, kernel, [*program.input_pointers(i), *targets])


def _narrow_rows(parts: KernelParts, target: Target) -> Rows | None:
    """Return loops in which each vector lane is a row, if rows are too short for lanes along them; else None.

    Lanes along rows are added for each reduction and row, which takes longer than to transpose rows in
    registers, unless there is one reduction, and rows fill vectors.
    """
    inputs, members = parts.inputs, parts.members
    reductions = [m for m in members if m.opcode == "reduce"]
    shapes = {m.operands[0].shape.dimensions for m in reductions}
    if len(shapes) != 1:
        return None
    (sizes,) = shapes
    row_bytes = sizes[-1] * max(storage_bytes(m.operands[0].shape.element_type) for m in reductions)
    if len(reductions) == 1 and sizes[-1] >= LEAST_LANES and row_bytes % target.partial_sum_bytes == 0:
        return None
    wide = tuple(r for r in parts.roots if r.shape.dimensions == sizes)
    of_rows = (sizes[:-1], (*sizes[:-1], 1))
    values = [r for r in parts.roots if r not in wide and r.shape.dimensions in of_rows]
    if not wide or len(wide) + len(values) < len(parts.roots) or sizes[-1] > MOST_COLUMNS:
        return None
    space = planned_space(inputs, wide, members, values)
    rows = find_rows(space, replace(parts, roots=wide), target, reduced=True)
    return rows if not values or (rows is not None and rows.width == sizes[-1]) else None


@dataclass(slots=True)
class RowPlan:
    """The plan of a kernel that computes reductions along rows, and operations on these rows, row by row.

    Attributes:
        rows: the sizes of the dimensions that enumerate the rows.
        length: elements of a row.
        space: the loops over the rows.
        lane: the variable that counts along a row.
        members: the computed instructions.
        reductions: the reductions, in the order of computation; later ones may use earlier ones.
        scratch: for each reduction, the arrays of which its loop also stores the current row to scratch
            memory: they are costly to compute, and later loops read them.
        accesses: the memory accesses of one row.
    """

    rows: tuple[int, ...]
    length: int
    space: Space
    lane: Variable
    members: frozenset[HloInstruction]
    reductions: list[HloInstruction]
    scratch: dict[HloInstruction, list[HloInstruction]]
    accesses: Accesses


def _planned(parts: KernelParts) -> RowPlan:
    inputs, members = parts.inputs, parts.members
    reductions = [m for m in members if m.opcode == "reduce"]
    *rows, length = reductions[0].operands[0].shape.dimensions
    shapes = [m.shape.dimensions for m in (*members, *inputs) if m.shape.is_array]
    plan = plan_rows(parts, reductions, split_space(rows, shapes))
    indices = (*plan.space.indices, Index.of(plan.lane))
    places = linearize(plan.space.indices, rows), linearize(indices, [*rows, length])
    plan.space = merge_loops(plan.space, [*plan.accesses.linear, *places], plan.accesses.pinned)
    return plan


def plan_rows(parts: KernelParts, reductions: list[HloInstruction], space: Space) -> RowPlan:
    """Return the plan of a row kernel for ``reductions`` along rows and what is computed from them.

    ``parts`` has all operations of the kernel, ``space`` the loops over the rows and the index of a row.
    """
    *rows, length = reductions[0].operands[0].shape.dimensions
    lane = Variable(length)
    row_accesses = partial(_row_accesses, roots=parts.roots, reductions=reductions, space=space, lane=lane)
    first = linearize((*space.indices, Index(0)), (*rows, length))

    def is_local(array: HloInstruction) -> bool:
        distances = [linear - first for linear in row_accesses([*parts.inputs, array]).reads.get(array, ())]
        return all(d.minimum() >= 0 and d.maximum() < length for d in distances)

    room = MOST_SCRATCH // length
    scratch: dict[HloInstruction, list[HloInstruction]] = {}
    shared = _Shared(parts, reductions, tuple(rows), length)
    for reduction in reductions:
        scratch[reduction] = []
        for array in shared.arrays(reduction):
            size = storage_bytes(array.shape.element_type)
            if size <= room and is_local(array):
                room -= size
                scratch[reduction].append(array)
        shared.keep(reduction, scratch[reduction])
    members = frozenset(parts.members)
    accesses = row_accesses(parts.inputs)
    return RowPlan(tuple(rows), length, space, lane, members, reductions, scratch, accesses)


_LEAST_WORK: Final = 4
"""Instructions that cost more than a store and a load."""


class _Shared:
    """The costly arrays that the loop of one reduction computes and that later loops need, too.

    Later loops are those of later reductions and of the results. ``rows`` are the sizes of the dimensions
    that enumerate the rows, ``length`` is the number of elements of a row.
    """

    def __init__(
        self, parts: KernelParts, reductions: Sequence[HloInstruction], rows: tuple[int, ...], length: int
    ) -> None:
        self._members, self._dimensions = set(parts.members), (*rows, length)
        self._known = set(reductions)
        self._starts = {r: [r.operands[0]] for r in reductions}
        self._results = [r for r in parts.roots if is_whole_row(r, rows, length)]
        self._costly = self._costly_arrays(parts.members)

    def _costly_arrays(self, members: Sequence[HloInstruction]) -> set[HloInstruction]:
        """Return the arrays that take more than a few instructions to compute from other costly arrays."""
        costly: set[HloInstruction] = set()
        work: dict[HloInstruction, int] = {}
        for i in members:
            if i.shape.dimensions == self._dimensions:
                operands = dict.fromkeys(o for o in i.operands if o not in costly)
                work[i] = element_work(i) + sum(work.get(o, 0) for o in operands)
                if work[i] >= _LEAST_WORK:
                    costly.add(i)
        return costly

    def arrays(self, reduction: HloInstruction) -> list[HloInstruction]:
        """Return the last costly arrays of the loop of ``reduction`` before later loops read them."""
        computed = self._reached(self._starts[reduction], ())
        reductions = list(self._starts)
        later = [self._starts[r] for r in reductions[reductions.index(reduction) + 1 :]]
        costly = self._costly & computed.keys()
        return [i for i in self._reached(itertools.chain(*later, self._results), costly) if i in costly]

    def keep(self, reduction: HloInstruction, arrays: Iterable[HloInstruction]) -> None:
        """Take ``arrays`` as known in the loops after that of ``reduction``."""
        del self._starts[reduction]
        self._known.update(arrays)

    def _reached(
        self, starts: Iterable[HloInstruction], ends: Container[HloInstruction]
    ) -> dict[HloInstruction, None]:
        """Return the members from which ``starts`` are computed; ignore the operands of ``ends``."""
        visited: dict[HloInstruction, None] = {}
        pending = list(starts)
        while pending:
            i = pending.pop()
            if i in self._members and i not in visited and i not in self._known:
                visited[i] = None
                pending += () if i in ends else i.operands
        return visited


def _row_accesses(
    inputs: Sequence[HloInstruction],
    roots: Sequence[HloInstruction],
    reductions: Sequence[HloInstruction],
    space: Space,
    lane: Variable,
) -> Accesses:
    """Return the accesses to ``inputs`` of a row kernel: those of each reduction, then those of ``roots``.

    ``space`` has the index of the row, ``lane`` counts along it.
    """
    accesses = Accesses(inputs)
    for reduction in reductions:
        accesses.element(reduction.operands[0], (*space.indices, Index.of(lane)))
        accesses.know(reduction, space.indices)
    for root in roots:
        if not isinstance(root.operation, Reduce):
            accesses.element(root, _place(root, space.indices, lane, lane.extent))
    return accesses


def _place(root: HloInstruction, kept: Indices, lane: Variable, length: int) -> Indices:
    """Return the index in the result ``root`` at which a row's elements, or its single value, are stored.

    ``kept`` is the index of the row, ``lane`` the variable that counts its ``length`` elements.
    """
    rank = root.shape.rank
    if rank == len(kept):
        return kept
    last = Index.of(lane) if root.shape.dimensions[-1] == length else Index(0)
    return (*kept, last)


def is_whole_row(root: HloInstruction, rows: Sequence[int], length: int) -> bool:
    """Return whether an instruction has an element for each element of the rows, not one per row.

    ``rows`` are the sizes of the dimensions that enumerate the rows, ``length`` the number of elements of a
    row.
    """
    return root.shape.element_count == math.prod(rows) * length


def _row_kernel(module: Module, name: str, parts: KernelParts) -> LoopKernel:
    """Emit the kernel (inputs ..., results ..., begin, end) of a row fusion, which loops over rows."""
    plan, inputs, roots = _planned(parts), parts.inputs, parts.roots
    function, arrays, begin, end = begin_kernel(module, name, [i.shape for i in (*inputs, *roots)])
    lanes = row_lanes([*parts.members, *inputs], plan)
    rows = RowEmitter(function, plan, lanes, dict(zip(inputs, arrays, strict=False)), repeats=True)
    with outer_loops(function, plan.space.variables, begin, end):
        rows.row(roots, arrays[len(inputs) :])
    function.finish()
    trips = plan.space.variables[0].trips if plan.space.variables else 1
    work = math.prod(plan.rows) * plan.length * max(1, len(parts.members))
    return LoopKernel(name, trips, 1, work, f"{lanes} lanes along rows")


def row_lanes(instructions: Sequence[HloInstruction], plan: RowPlan) -> int:
    """Return the number of lanes of the vectors that compute ``instructions`` along the rows of ``plan``.

    If a row is shorter than a vector, and all reductions have a neutral element, the row becomes one masked
    vector; else vectors are no longer than a row.
    """
    widest = vector_lanes(instructions, 1 << 20)
    if plan.length >= widest or not all(_has_neutral(r) for r in plan.reductions):
        return vector_lanes(instructions, plan.length)
    return 1 << (plan.length - 1).bit_length()


def _has_neutral(reduction: HloInstruction) -> bool:
    element_type = reduction.operands[0].shape.element_type
    return neutral_element(reduction.called_computations[0], element_type) is not None


class RowEmitter:
    """Emits the code of one row: its reductions in order, then the results.

    ``repeats``: in the loop that stores results, the last vector may overlap the one before it. It must be
    false if results overwrite operands, whose elements must then not be read again.
    """

    def __init__(
        self,
        function: Function,
        plan: RowPlan,
        lanes: int,
        views: dict[HloInstruction, View],
        *,
        repeats: bool = False,
    ) -> None:
        self.function, self.plan, self.repeats = function, plan, repeats
        self.scalars = Elements(function, 0, views)
        self.vectors = Elements(function, lanes, dict(views))
        self.kept = plan.space.indices

    def row(self, roots: Sequence[HloInstruction], targets: Sequence[View]) -> None:
        """Emit the reductions of one row, then the stores of this row of each of ``roots`` to ``targets``."""
        with self.scalars.scope(), self.vectors.scope():
            for reduction in self.plan.reductions:
                self.know_values_of_rows(reduction.operands)
                (value,) = self.reduce(reduction)
                self.know(reduction, value)
            full_rows: list[tuple[HloInstruction, View]] = []
            for root, target in zip(roots, targets, strict=True):
                if is_whole_row(root, self.plan.rows, self.plan.length):
                    full_rows.append((root, target))
                else:
                    index = _place(root, self.kept, self.plan.lane, self.plan.length)
                    self.scalars.store(target, index, self.scalars.element(root, index))
            if full_rows:
                self.know_values_of_rows([root for root, _ in full_rows])
                self.sweep(lambda: self.store(full_rows))

    def know(self, instruction: HloInstruction, value: Element) -> None:
        """Record ``value`` as the current row's element of ``instruction``, which has one element per row.

        Code emitted later for this element uses ``value``.
        """
        for elements in (self.scalars, self.vectors):
            elements.know(instruction, self.kept, value)

    def know_values_of_rows(self, roots: Sequence[HloInstruction]) -> None:
        """Emit, before a loop along the row, the values that are constant in the row, such as a mean.

        They are elements of arrays with one element for each row. ``roots`` are the instructions that the
        loop computes.
        """
        visited: set[HloInstruction] = set()
        pending = list(roots)
        while pending:
            i = pending.pop()
            if i in visited or i not in self.plan.members or i in self.vectors.views:
                continue
            visited.add(i)
            if i.shape.dimensions != self.plan.rows:
                pending += i.operands
            elif i.shape.rank and i not in self.plan.scratch:
                self.know(i, self.scalars.element(i, self.kept))

    def reduce(self, reduction: HloInstruction) -> list[Element]:
        """Emit one reduction of the row; return a list with its value, a scalar.

        Its loop also stores the row of costly arrays to scratch memory, from which later loops read them.
        """
        lane = self.plan.lane
        row = Space((lane,), (Index.of(lane),))
        emitter = RowReduction(self.scalars, self.vectors, reduction, self.kept, row)
        copies = {array: self.aside(array) for array in self.plan.scratch[reduction]}

        def copy(source: Indices, _: list[Element]) -> None:
            for array, view in copies.items():
                self.vectors.store(view, source, self.vectors.element(array, source))

        sums = emitter.run(observe=copy)
        self.vectors.views.update(copies)
        return sums

    def aside(self, array: HloInstruction) -> View:
        """Emit the allocation of scratch memory for one row of ``array``; return a view of it.

        The view takes the indices of the whole array.
        """
        kind = array.shape.element_type
        pointer = self.function.allocate(I8, storage_bytes(kind) * self.plan.length + 64)
        strides = (*(0 for _ in self.plan.rows), 1)
        return View(pointer, kind, array.shape.dimensions, strides)

    def sweep(self, body: Callable[[], None]) -> None:
        """Emit a loop along the row; ``body`` is called to emit the code for a vector or a single element."""
        loop_nest(self.vectors, [self.plan.lane], body, repeats=self.repeats)
        self.plan.lane.is_lane = False

    def store(self, whole: Sequence[tuple[HloInstruction, View]]) -> None:
        """Emit the stores of the current vector of each result; ``whole`` has (result, its memory)."""
        indices = (*self.kept, Index.of(self.plan.lane))
        values = [self.vectors.element(root, indices) for root, _ in whole]
        for (_, target), value in zip(whole, values, strict=True):
            self.vectors.store(target, indices, value)
