"""Scatter: updates combined in place in row-major order, with vectors along each window.

Threads share large scatters into single rows: each thread reads all indices, in vectors, compacts those in
its partition of the operand, and applies these updates in order. Where indices ascend, which every run
tests, see `scatter_sorted`; where updates are many and their order does not matter, see `scatter_copies`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.codegen.compaction import compaction_lanes, compress
from hloom.codegen.elements import Elements
from hloom.codegen.llvm import I32, I64, Module, Value, make_type
from hloom.codegen.loops import (
    LoopKernel,
    begin_kernel,
    lanes_text,
    outer_loops,
    vector_lanes,
    work_for_each,
)
from hloom.codegen.target import Target
from hloom.cpu.kernels.movement.scatter_copies import (
    copies_bytes,
    emit_combination,
    emit_copies,
    scatters_into_copies,
)
from hloom.cpu.kernels.movement.scatter_lookups import Lookups, lookups
from hloom.cpu.kernels.movement.scatter_sorted import SortedUpdates
from hloom.cpu.kernels.movement.scatter_update import UPDATE_WORK, Update
from hloom.cpu.program import KERNELS, SHARED_WORK, ProgramEmitter
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.gather_scatter import Scatter
from hloom.operations.structure import parameter_number
from hloom.plan.kernel import KernelPlan
from hloom.runtime.cores import thread_count

LEAST_SHARED: Final = 4096
"""Minimum number of updates for which a second pass over the indices pays."""
CHUNK: Final = 256
"""Number of indices compacted before their updates are applied."""
LANES: Final = 16
MOST_SHARES: Final = 8
LONG_WINDOW: Final = 16
"""Minimum work of a window whose index is compacted by AVX2's longer code."""


def workspace_bytes(i: HloInstruction, target: Target) -> int:
    """Return the size in bytes of a scatter's workspace, which holds private copies of its operand.

    It is 0 if the scatter is computed without such copies.
    """
    scatter = KERNELS.hero(i)
    return copies_bytes(scatter) if scatters_into_copies(scatter) else 0


@KERNELS.register("scatter", fuses=True, workspace=workspace_bytes)
def emit_scatter(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit a scatter: copy operands that must be preserved, and call the kernels that apply the updates."""
    i = plan.instruction
    scatter = plan.hero
    count = len(scatter.operands) // 2
    results = [((n,) if i.shape.is_tuple else ()) for n in range(count)]
    for operand, index in zip(scatter.operands[:count], results, strict=True):
        source = operand if i is scatter else i.operands[parameter_number(operand)]
        view = program.view(i, index)
        if view.count and program.assignment.buffer(source) is not program.assignment.buffer(i, index):
            program.copy_bytes(program.pointer(source), view.pointer, program.leaf_size(i, index))
    updates = scatter.operands[count + 1]
    if 0 in (*updates.shape.dimensions, *scatter.operands[0].shape.dimensions):
        return
    if plan.workspace:
        copies, result = program.workspace(i), program.pointer(i)
        kernel = program.shared(lambda name: emit_copies(program.module, name, plan))
        program.call(i, kernel, [copies, *program.input_pointers(i)])
        kernel = program.shared(lambda name: emit_combination(program.module, name, scatter))
        program.call(i, kernel, [result, copies])
        return
    kernel = program.shared(lambda name: _Kernel(program.module, name, plan).emit())
    program.call(i, kernel, [*(program.pointer(i, index) for index in results), *program.input_pointers(i)])


class _Kernel:
    """Emits the kernel (results..., inputs..., begin, end) that applies the updates of a scatter in place.

    If threads share the scatter, a call of the kernel applies only the updates of windows whose start index s
    in the operand is begin <= s < end; if a window has start indices in several dimensions, s is the
    row-major index that they form.
    """

    def __init__(self, module: Module, name: str, plan: KernelPlan) -> None:
        i, inputs = plan.hero, plan.parts.inputs
        self.name, self.i = name, i
        self.operation = operation_of(i, Scatter)
        count = len(i.operands) // 2
        self.operands, self.indices = i.operands[:count], i.operands[count]
        updates = i.operands[count + 1 :]
        self.f, arrays, self.begin, self.end = begin_kernel(
            module, name, [x.shape for x in (*self.operands, *inputs)]
        )
        self.views = dict(zip(inputs, arrays[count:], strict=True))
        self.indexed = self.operation.scatter_dims_to_operand_dims
        self.sizes = updates[0].shape.dimensions
        self.variables = [Variable(size, "u") for size in self.sizes]
        windows = self.operation.update_window_dims
        lane = self.variables[windows[-1]] if windows and windows[-1] == len(self.sizes) - 1 else None
        if lane is not None and not _minor_window(self.operation, self.operands[0].shape.rank):
            lane = None
        self.lane = lane
        lanes = vector_lanes([*self.operands, *updates], lane.trips) if lane is not None else 0
        self.elements = Elements(self.f, lanes, self.views)
        self.body = Update(self.elements, i, arrays[:count], self.variables)
        self.batch = [v for d, v in enumerate(self.variables) if d not in windows]
        self.inner = [v for d, v in enumerate(self.variables) if d in windows and v is not lane]
        self.outer = self.batch
        if self._order_matters():
            last = max(d for d in range(len(self.sizes)) if d not in windows)
            self.outer, self.inner = self.variables[: last + 1], self.variables[last + 1 :]
            self.inner = [v for v in self.inner if v is not lane]
        for_each = UPDATE_WORK + work_for_each([m for m in plan.parts.members if m is not i])
        self.work = for_each * updates[0].shape.element_count

    def emit(self) -> LoopKernel:
        if self.shares():
            return self.emit_shared()
        by_batch = bool(self.operation.input_batching_dims) and self._first_is_batching()
        loops = self.outer
        begin, end = (self.begin, self.end) if by_batch else (0, None)
        if by_batch:
            loops = [self.batch[0], *(v for v in loops if v is not self.batch[0])]
        with outer_loops(self.f, loops, begin, end), self.elements.scope():
            self.update()
        self.f.finish()
        trips = self.batch[0].trips if by_batch else 1
        return LoopKernel(self.name, trips, 1, self.work, lanes_text(self.elements.lanes))

    def update(self) -> None:
        """Emit the updates of a scatter's current window, unless it exceeds the operand."""
        starts = self.body.starts()
        inside = self.body.inside(starts)
        with nullcontext() if inside is None else self.f.when(inside), self.elements.scope():
            self.window(starts)

    def _order_matters(self) -> bool:
        """Return whether to loop over updates in memory order, rather than window by window.

        Where windows overlap, the updates of a common element must be combined in memory order. Windows
        overlap only along operand dimensions with start indices. Their updates alternate in memory if the
        matching dimension of the updates array precedes one that enumerates windows.
        """
        operation = self.operation
        operand_dimensions = [
            d
            for d in range(self.operands[0].shape.rank)
            if d not in (*operation.inserted_window_dims, *operation.input_batching_dims)
        ]
        moved = [
            u
            for u, d in zip(operation.update_window_dims, operand_dimensions, strict=True)
            if d in self.indexed and self.sizes[u] > 1
        ]
        batch = [u for u, size in enumerate(self.sizes) if u not in operation.update_window_dims and size > 1]
        return bool(moved and batch) and min(moved) < max(batch)

    def _first_is_batching(self) -> bool:
        first = 1 if self.operation.index_vector_dim == 0 else 0
        return first in self.operation.scatter_indices_batching_dims

    def window(self, starts: dict[int, Value]) -> None:
        """Emit the updates of the elements of one window of a scatter, in place.

        ``starts`` maps operand dimensions to the start index of the window.
        """
        loops = self.inner if self.lane is None else [*self.inner, self.lane]
        self.body.window(loops, starts)

    # -- partitioned among threads

    @property
    def cells(self) -> int:
        """Return the number of different starts that a window of a scatter may have in the operand.

        It is the product of the sizes of those operand dimensions that have start indices.
        """
        return math.prod(self.operands[0].shape.dimensions[d] for d in self.indexed)

    def shares(self) -> bool:
        """Return whether threads share the scatter, each applying the updates of its own part of the operand.

        This requires many updates, no batching dimensions, and windows of size 1 along each dimension that
        has start indices.
        """
        operation = self.operation
        batch = [v.trips for v in self.batch]
        return (
            self.work >= SHARED_WORK
            and (self.compaction_pays() or self.tests_order())
            and 1 <= len(self.indexed) <= 3
            and not operation.input_batching_dims
            and all(d in operation.inserted_window_dims for d in self.indexed)
            and math.prod(batch) >= LEAST_SHARED
            and LANES <= batch[-1] < 1 << 31
            and LANES < self.cells < 1 << 31
        )

    def compaction_pays(self) -> bool:
        """Return whether each thread should first select the updates that fall in its part of the operand.

        It selects by compaction: from each vector of scatter indices, it stores those in its part side by
        side. That pays with AVX-512 instructions; the longer code for AVX2 pays if windows take more time.
        """
        lanes = compaction_lanes(self.f.target)
        windows = math.prod(v.trips for v in self.batch)
        return lanes >= LANES or (lanes > 0 and self.work >= LONG_WINDOW * windows)

    def tests_order(self) -> bool:
        """Return whether a scatter's kernel tests at run time whether the scatter indices ascend."""
        return len(self.batch) == len(self.indexed) == 1 and compaction_lanes(self.f.target) > 0

    def emit_shared(self) -> LoopKernel:
        """Emit the scatter kernel that each thread calls: for windows with start indices begin <= s < end.

        If the scatter indices might ascend, the kernel tests them, and applies updates with ascending indices
        as several interleaved streams.
        """
        last = self.batch[-1]
        if self.tests_order():
            ascending = SortedUpdates(self.elements, self.i, self.variables, last, self.lookups())
            with ascending.unless_sorted(self.begin, self.end, lambda: self.window(self.body.starts())):
                self.emit_unsorted()
        else:
            self.emit_unsorted()
        self.f.finish()
        shares = min(max(thread_count(), 2), MOST_SHARES)
        grain = -(-self.cells // shares // LANES) * LANES
        return LoopKernel(self.name, self.cells, grain, self.work)

    def emit_unsorted(self) -> None:
        """Emit the updates of windows whose start index is in the thread's range begin <= s < end.

        The scatter indices may have any order. If compaction of the indices does not pay, the thread whose
        range begins at 0 applies the updates of all threads, and the other threads apply none.
        """
        if self.compaction_pays():
            self.emit_chunks()
            return
        is_first = self.begin.compare("eq", 0)
        with self.f.when(is_first), outer_loops(self.f, self.batch), self.elements.scope():
            self.update()

    def emit_chunks(self) -> None:
        """Emit a loop over chunks of scatter indices that applies the updates of one thread.

        For each chunk, it selects the indices in the thread's range of the operand, then applies their
        updates.
        """
        f = self.f
        last = self.batch[-1]
        start_areas = [f.allocate(I32, CHUNK + LANES) for _ in self.indexed]
        numbers = f.allocate(I32, CHUNK + LANES)
        positions = Lookups(self.elements, self.lookups(), CHUNK + LANES)
        limit = f.constant(I64, last.trips)
        outer = outer_loops(f, self.batch[:-1])
        with outer, self.elements.scope(), f.loop(0, last.trips, CHUNK) as chunk:
            top = f.intrinsic("smin", chunk.index + CHUNK, limit)
            count = self.compact(chunk.index, top, (start_areas, numbers, positions))
            with f.loop(0, count) as loop, self.elements.scope():
                last.value = self.kept_number(numbers, loop.index)
                starts = {
                    d: self.kept_number(area, loop.index)
                    for d, area in zip(self.indexed, start_areas, strict=True)
                }
                positions.know(tuple(map(Index.of, self.variables)), loop.index)
                self.window(starts)
            last.value = None

    def lookups(self) -> list[HloInstruction]:
        """Return the gathers that compute the scatter's updates, and read one element for each update.

        The positions of these elements are computed in advance, together with the scatter indices.
        """
        if self.operation.update_window_dims:
            return []
        count = len(self.operands)
        return list(dict.fromkeys(g for u in self.i.operands[count + 1 :] for g in lookups(u, self.views)))

    def kept_number(self, place: Value, index: Value) -> Value:
        """Emit the load of element ``index`` of the i32 array at ``place``; return it as i64."""
        return self.f.load(I32, self.f.offset(place, index, I32)).cast("zext", I64)

    def compact(
        self,
        low: Value,
        high: Value,
        areas: tuple[Sequence[Value], Value, Lookups],
    ) -> Value:
        """Emit the selection of those updates low <= n < high whose windows start in the thread's range.

        Returns how many are selected. ``areas`` are arrays on the stack that receive, for each selected
        update, its start indices (one array per operand dimension with start indices), its index n, and the
        positions of the elements that gathers read to compute it.
        """
        kept, numbers, positions = areas
        f, lanes = self.f, compaction_lanes(self.f.target)
        last = self.batch[-1]
        wide = Variable(last.extent, "w")
        wide.is_lane = True
        e = Elements(f, lanes, self.views)
        variables = [wide if v is last else v for v in self.variables]
        body, here = Update(e, self.i, [], variables), tuple(map(Index.of, variables))
        steps = f.constant(I32.vector(lanes), list(range(lanes)))
        first = self.begin.cast("trunc", I32).splat(lanes)
        count = (self.end - self.begin).cast("trunc", I32).splat(lanes)
        with f.loop(low, high, lanes, [f.constant(I64, 0)]) as loop, e.scope():
            wide.value = loop.index
            remaining = (high - loop.index).cast("trunc", I32).splat(lanes)
            exact = last.trips % lanes == 0
            with e.masked(None if exact else steps.compare("ult", remaining)):
                starts, inside = body.wide_starts()
                cell: Value | None = None
                for d in self.indexed:
                    size = self.operands[0].shape.dimensions[d]
                    cell = starts[d] if cell is None else cell * size + starts[d]
                assert cell is not None
                mine = (cell - first).compare("ult", count) & inside
                if e.mask is not None:
                    mine = mine & e.lane_mask()
                in_tables = positions.positions(e, here)
            number = loop.index.cast("trunc", I32).splat(lanes) + steps
            for area, vector in [
                *((p, starts[d]) for d, p in zip(self.indexed, kept, strict=True)),
                (numbers, number),
                *in_tables,
            ]:
                f.store(compress(vector, mine), f.offset(area, loop.values[0], I32))
            bits = mine.bitcast(make_type(f"i{lanes}"))
            loop.next(loop.values[0] + f.intrinsic("ctpop", bits).cast("zext", I64))
        return loop.values[0]


def _minor_window(operation: Scatter, rank: int) -> bool:
    """Return whether the windows of a scatter extend along the last dimension of its operand.

    ``rank`` is the operand's number of dimensions.
    """
    return rank - 1 not in (*operation.inserted_window_dims, *operation.input_batching_dims)
