"""Packing of the factors of a matrix product, in the order in which the micro-kernel reads them.

B becomes panels: for each step along k the adjacent factors of a panel's columns. A becomes rows, at a
distance that avoids conflicts between cache sets; if its columns are contiguous, it becomes steps of adjacent
rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hloom.codegen.elements import Elements
from hloom.codegen.llvm import I8, I64, PTR, Function, Module, Value
from hloom.codegen.llvm.memory import prefetch
from hloom.codegen.loops import LoopKernel
from hloom.codegen.types import Element, register_type, storage_bytes
from hloom.cpu.kernels.dot.gemm import batch_base, load_at
from hloom.cpu.kernels.dot.gemm_plan import LINE, TilePlan
from hloom.cpu.kernels.movement.transposition import transposed
from hloom.ir.affine import Index, Variable

CHUNK: Final = 16
"""Steps along k that one task packs."""
FEWEST_STEPS: Final = 8
"""Fewest steps between two prefetches."""


def emit_pack_b(module: Module, name: str, plan: TilePlan) -> LoopKernel:
    """Emit a kernel that packs one group of columns of B into panels, strips as wide as a register tile.

    Its parameters are (B, packed panels, part_number, begin, end). ``part_number``, an integer passed as a
    pointer, selects the group and the steps along k: see `part_of_b`. The loop runs over the chunks of all
    batches; chunks are parts of the group that are packed independently.
    """
    f = module.function(name, [PTR, PTR, PTR, I64, I64])
    source, target, group, begin, end = f.parameters
    gemm = plan.gemm
    packer = PanelPacker(f, plan)
    part_number = f.convert("ptrtoint", group, I64)
    chunks = packer.chunks
    with f.loop(begin, end) as loop:
        batch = loop.index.unsigned_divide(chunks) if gemm.batches > 1 else f.constant(I64, 0)
        base = batch_base(f, gemm, gemm.b, batch, source, gemm.b_type)
        panels = f.offset(target, batch * (plan.panels * plan.panel_bytes))
        chunk = loop.index - batch * chunks
        packer.run(base, panels, part_number, chunk, chunk + 1)
    f.finish()
    return LoopKernel(name, gemm.batches * chunks, 1, gemm.batches * gemm.k * min(plan.group_columns, gemm.n))


def part_of_b(plan: TilePlan, part_number: Value) -> tuple[Value, Value, Value]:
    """Emit (first column, first step, end step) of the part of B that ``part_number`` selects.

    B is packed by groups of columns, and each group by slabs, intervals of steps along k; ``part_number`` is
    group * slabs + slab. A step is ``plan.factors.group`` consecutive indices of k.
    """
    f = part_number.function
    if plan.slabs == 1:
        return part_number * plan.group_columns, f.constant(I64, 0), f.constant(I64, plan.steps)
    group = part_number.unsigned_divide(plan.slabs)
    begin = (part_number - group * plan.slabs) * plan.slab
    first = group * plan.group_columns
    return first, begin, f.intrinsic("smin", begin + plan.slab, f.constant(I64, plan.steps))


class PanelPacker:
    """Emits the packing of a group of columns of B into panels.

    A panel is a strip of B as wide as a register tile, stored step by step along k. Threads pack separate
    chunks: one vector of columns if columns of B are contiguous in memory, else `CHUNK` steps of all columns.
    """

    def __init__(self, f: Function, plan: TilePlan) -> None:
        self.f, self.plan = f, plan
        gemm = plan.gemm
        self.e = Elements(f, plan.lanes, {})
        self.by_columns = gemm.b.row == 1 and gemm.b.column != 1
        self.row, self.column = Variable(gemm.k, "k"), Variable(gemm.n, "n")
        self.size, self.kind = storage_bytes(gemm.b_type), plan.factors.read_as(gemm.b_type)

    @property
    def chunks(self) -> int:
        plan = self.plan
        return plan.group_columns // plan.lanes if self.by_columns else -(-plan.slab // CHUNK)

    def run(self, base: Value, panels: Value, part_number: Value, low: Value, high: Value) -> None:
        """Emit the packing of the chunks with indices [low, high) of part ``part_number`` of B.

        The part is a group of columns at an interval of steps along k: see `part_of_b`. ``base`` is
        the address of B, ``panels`` that of the packed panels.
        """
        f, plan = self.f, self.plan
        first, begin, end = part_of_b(plan, part_number)
        if plan.slabs > 1:
            panels = f.offset(panels, begin * -plan.step_bytes)
        with f.loop(low, high) as loop, self.e.scope():
            if self.by_columns:
                self.columns(base, panels, first, loop.index, begin, end)
            else:
                start = begin + loop.index * CHUNK
                self.rows(base, panels, first, start, f.intrinsic("smin", start + CHUNK, end))

    def block(self, base: Value, panels: Value, first: Value, end: Value, low: Value, high: Value) -> None:
        """Emit the packing of the columns [first, end) of B, for the steps [low, high) along k.

        Each column must be contiguous in memory. ``base`` is the address of B. ``panels`` is the address that
        step 0 would have in the packed panels, which begin with step ``low``.
        """
        lanes = self.plan.lanes
        with self.f.loop(0, (end - first + lanes - 1).unsigned_divide(lanes)) as loop:
            self.columns(base, panels, first, loop.index, low, high)

    @property
    def share(self) -> int:
        """Return how many runs of the next K-block of B each register tile of a task prefetches.

        A run is contiguous in memory: one column of a panel if columns of B are contiguous, else one row of
        it. The runs of a panel are divided among the tiles that multiply the panel.
        """
        plan = self.plan
        runs = plan.panel if self.by_columns else plan.depth
        return -(-runs // -(-plan.height // plan.rows))

    @property
    def prefetching_steps(self) -> int:
        """Return the number of steps along k from one prefetch of a register tile to its next one.

        The prefetches are spread evenly over the tile's K loop: all at once, they would fill the buffers for
        outstanding cache misses, and the loads of factors would wait.
        """
        if self.by_columns:
            return LINE // self.size
        return max(FEWEST_STEPS, -(-self.plan.depth // self.share))

    def following(self, base: Value, column: Value, step: Value, tile: Value) -> Value:
        """Emit the first address that the register tile with index ``tile`` in a panel prefetches.

        The address is in the next K-block of B; after the last K-block of a task, in the first one of the
        next task's columns. ``step`` is the first step of the current K-block, ``column`` the first column of
        the panel, and ``base`` the address of B.
        """
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        following = step + plan.depth
        ends = following.compare("sge", plan.steps)
        row = ends.select(f.constant(I64, 0), following)
        column = ends.select(column + plan.width, column)
        start = f.offset(base, (row * gemm.b.row + column * gemm.b.column) * self.size)
        return f.offset(start, tile * (self.share * self.distance))

    @property
    def distance(self) -> int:
        """Return the bytes from one column of B to the next if columns are contiguous, else between rows."""
        b = self.plan.gemm.b
        return (b.column if self.by_columns else b.row) * self.size

    def prefetch(self, start: Value, step: Value) -> None:
        """Emit the prefetches that a register tile issues at ``step`` of its K loop.

        ``start`` is the first address to prefetch, in the next K-block of B; later steps fetch what follows.
        """
        f = self.f
        if self.by_columns:
            for run in range(self.share):
                prefetch(f.offset(start, step * self.size + run * self.distance))
            return
        every = self.prefetching_steps
        runs = -(-self.share // -(-self.plan.depth // every))
        first = f.offset(start, step.unsigned_divide(every) * (runs * self.distance))
        for run in range(runs):
            for offset in (*range(0, self.plan.panel * self.size, LINE), self.plan.panel * self.size - 1):
                prefetch(f.offset(first, run * self.distance + offset))

    def place(self, panels: Value, panel: Value, step: Value, vector: int) -> Value:
        """Emit the address, in the packed panels of B, of vector ``vector`` at one step of a panel.

        ``panels`` is the address of all panels; ``panel``, ``step`` and ``vector`` are indices.
        """
        f, plan = self.f, self.plan
        head = plan.head_bytes + vector * plan.lanes * plan.factors.unit_bytes
        return f.offset(panels, panel * plan.panel_bytes + step * plan.step_bytes + head)

    def rows(self, base: Value, panels: Value, first: Value, low: Value, high: Value) -> None:
        """Emit the packing of the steps [low, high) of all panels of a group of columns of B, row by row.

        Vectors are loaded along rows of B. ``base`` is the address of B, ``first`` the first column of the
        group.
        """
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        full_panels = gemm.n // plan.panel
        last = f.intrinsic(
            "smin", f.constant(I64, plan.panels), full_panels - first.unsigned_divide(plan.panel)
        )
        with f.loop(0, last) as panel, f.loop(low, high) as step:
            for vector in range(plan.vectors):
                self.vector(base, panels, first, panel.index, step.index, vector, masked=False)
        if gemm.n % plan.panel:
            with f.when(last.compare("slt", plan.panels)), f.loop(low, high) as step:
                for vector in range(-(-(gemm.n % plan.panel) // plan.lanes)):
                    self.vector(base, panels, first, last, step.index, vector, masked=True)

    def vector(
        self,
        base: Value,
        panels: Value,
        first: Value,
        panel: Value,
        step: Value,
        vector: int,
        *,
        masked: bool,
    ) -> None:
        """Emit the packing of one vector of columns of B at one step along k.

        The vector gets index ``vector`` in the panel with index ``panel``. ``base`` is the address of B,
        ``panels`` that of the packed panels, ``first`` their first column. ``masked``: zeros replace the
        columns beyond those of B.
        """
        plan, gemm = self.plan, self.plan.gemm
        column = first + panel * plan.panel
        self.column.value = column + vector * plan.lanes if vector else column
        self.column.is_lane = True
        values: list[Element] = []
        with self.e.scope():
            inside = self.e.index_value(Index.of(self.column)).compare("slt", gemm.n) if masked else None
            for member in range(plan.factors.group):
                self.row.value = step * plan.factors.group + member if plan.factors.group > 1 else step
                mask = inside
                if gemm.k % plan.factors.group:
                    within = self.row.value.compare("slt", gemm.k)
                    mask = within.splat(plan.lanes) if mask is None else mask & within.splat(plan.lanes)
                index = Index.of(self.row) * gemm.b.row + Index.of(self.column) * gemm.b.column
                with self.e.masked(mask):
                    values.append(load_at(self.e, base, index, self.kind))
            plan.factors.pack(values, gemm.b_type, self.place(panels, panel, step, vector))

    def columns(
        self, base: Value, panels: Value, first: Value, number: Value, low: Value, high: Value
    ) -> None:
        """Emit the packing of a vector of columns, each contiguous in memory, by transposing square blocks.

        Args:
            base: the address of B.
            panels: the address of the packed panels.
            first: the first column of the panels.
            number: the index of the vector of columns, counted from ``first``.
            low, high: the interval [low, high) of steps along k; each bound is a multiple of the lanes, or
                the number of all steps.
        """
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        lanes = plan.lanes
        panel = number.unsigned_divide(plan.vectors)
        vector = number - panel * plan.vectors
        start = first + number * lanes
        last = f.constant(I64, gemm.n - 1)
        columns = [
            f.offset(base, f.intrinsic("smin", start + lane, last) * (gemm.b.column * self.size))
            for lane in range(lanes)
        ]
        first_vector = self.place(panels, panel, f.constant(I64, 0), 0)
        target = f.offset(first_vector, vector * (lanes * plan.factors.unit_bytes))
        wide = lanes * plan.factors.group
        full_end = f.constant(I64, gemm.k // wide * lanes)
        with f.when(start.compare("slt", gemm.n)):
            with f.loop(low, f.intrinsic("smin", high, full_end), lanes) as loop:
                self.square(columns, loop.index, target, lanes)
            if gemm.k % wide:
                with f.when(high.compare("sgt", full_end)):
                    self.square(columns, full_end, target, plan.steps - gemm.k // wide * lanes)

    def square(self, columns: list[Value], step: Value, target: Value, count: int) -> None:
        """Emit the packing of ``count`` steps along k, from ``step`` on, of a vector of columns.

        The emitted code transposes one square block. ``columns`` are the columns' addresses in B; ``target``
        is the address of the packed vector at step 0.
        """
        f, plan, gemm, group = self.f, self.plan, self.plan.gemm, self.plan.factors.group
        e = Elements(f, plan.lanes * group, {})
        step_variable = Variable(gemm.k, "k", step * group if group > 1 else step)
        step_variable.is_lane = True
        mask = None
        if count < plan.lanes or gemm.k % group:
            mask = e.index_value(Index.of(step_variable)).compare("slt", gemm.k)
        loaded: list[Element] = []
        for column in columns:
            with e.scope(), e.masked(mask):
                value = load_at(e, column, Index.of(step_variable), self.kind)
            loaded.append(plan.factors.pack_units(value, gemm.b_type))
        for lane, value in enumerate(transposed_factors(loaded)[:count]):
            plan.factors.store_units(value, f.offset(target, (step + lane) * plan.step_bytes))

    def heads(self, panels: Value, low: Value, high: Value) -> None:
        """Emit the computation of the heads of the packed panels with indices [low, high).

        A head holds the initial accumulators of a panel's columns. ``panels`` is the address of all panels.
        """
        f, plan = self.f, self.plan
        sums = register_type(plan.gemm.kind).vector(plan.lanes)
        with f.loop(low, high) as panel:
            first = f.offset(panels, panel.index * plan.panel_bytes)
            zeros = [f.constant(sums, 0)] * plan.vectors
            with f.loop(0, plan.steps, 1, zeros) as step:
                vectors: list[Value] = []
                for vector, total in enumerate(step.values):
                    address = self.place(first, f.constant(I64, 0), step.index, vector)
                    factors = plan.factors.load(f, address, plan.lanes)
                    assert isinstance(factors, Value)
                    vectors.append(plan.factors.sum_up(self.e, factors, total))
                step.next(*vectors)
            for vector, total in enumerate(step.values):
                f.store(total, f.offset(first, vector * plan.lanes, sums.scalar))


def emit_heads(module: Module, name: str, plan: TilePlan) -> LoopKernel:
    """Emit a kernel (panels, begin, end) that computes the heads of the packed panels of B of all batches.

    A head is the beginning of a panel, and holds the initial accumulators of its columns: see
    `Factors.headed`.
    """
    f = module.function(name, [PTR, I64, I64])
    panels, begin, end = f.parameters
    PanelPacker(f, plan).heads(panels, begin, end)
    f.finish()
    count = plan.gemm.batches * plan.panels
    return LoopKernel(name, count, 1, count * plan.steps * plan.vectors)


def transposed_factors(values: list[Element]) -> list[Element]:
    """Emit the transposition of a square matrix, whose rows are the vectors ``values``; return the new rows.

    The real and imaginary parts of complex numbers are transposed separately.
    """
    first = [v[0] if isinstance(v, tuple) else v for v in values]
    real = transposed(first)
    second = [v[1] for v in values if isinstance(v, tuple)]
    return list(zip(real, transposed(second), strict=True)) if second else list(real)


class RowPacker:
    """Emits the packing of the rows of A that a task needs into scratch memory, one K-block at a time.

    A task is a block of C that one thread computes.

    Attributes:
        row: bytes from one packed row to the next.
        step: bytes from one packed step along k to the next.
    """

    def __init__(self, f: Function, plan: TilePlan) -> None:
        self.f, self.plan = f, plan
        gemm, unit = plan.gemm, plan.factors.unit_bytes
        self.by_columns = gemm.a.row == 1 and gemm.a.column != 1
        self.lanes = plan.whole if self.by_columns else plan.whole * plan.factors.group
        if self.by_columns:
            rows = -(-plan.height // self.lanes) * self.lanes
            self.row, self.step, size = unit, rows * unit, plan.depth * rows * unit
        else:
            depth = -(-plan.depth * plan.factors.group // self.lanes) * self.lanes
            self.row = (-(-depth * unit // plan.factors.group // 64) * 64) + 64
            self.step, size = unit, plan.height * self.row
        self.e, self.kind = Elements(f, self.lanes, {}), plan.factors.read_as(gemm.a_type)
        self.target = f.allocate(I8, size)

    def run(self, base: Value, row: Value, end: Value, step: Value, count: Value) -> None:
        """Emit the packing of the rows [row, end) of A to scratch memory, for ``count`` steps from ``step``.

        Steps are along k. ``base`` is the address of A.
        """
        pack: Callable[[Value, Value, Value, Value, Value], None]
        pack = self.columns if self.by_columns else self.rows
        pack(base, row, end, step, count)

    def rows(self, base: Value, row: Value, end: Value, step: Value, count: Value) -> None:
        """Emit the packing of the rows [row, end) of A to scratch memory, for ``count`` steps from ``step``.

        Steps are along k, and so are the vectors that are loaded. ``base`` is the address of A.
        """
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        group = plan.factors.group
        low, high = step * group, f.intrinsic("smin", (step + count) * group, f.constant(I64, gemm.k))
        line, depth = Variable(gemm.m, "m"), Variable(gemm.k, "k")
        depth.is_lane = True
        even = gemm.k % self.lanes == 0 and plan.depth * group % self.lanes == 0
        with f.loop(row, end) as rows:
            line.value = rows.index
            target = f.offset(self.target, (rows.index - row) * self.row)
            with f.loop(low, high, self.lanes) as loop, self.e.scope():
                depth.value = loop.index
                mask = (
                    None
                    if even
                    else self.e.index_value(Index.of(depth)).compare("slt", high.splat(self.lanes))
                )
                index = Index.of(line) * gemm.a.row + Index.of(depth) * gemm.a.column
                with self.e.masked(mask):
                    value = load_at(self.e, base, index, self.kind)
                offset = (loop.index - low) * plan.factors.unit_bytes
                shift = group.bit_length() - 1
                plan.factors.pack_row(
                    value, gemm.a_type, f.offset(target, offset >> shift if shift else offset)
                )

    def columns(self, base: Value, row: Value, end: Value, step: Value, count: Value) -> None:
        """Emit the packing of the rows [row, end) of A to scratch memory, for ``count`` steps from ``step``.

        Steps are along k; vectors are loaded across rows, from contiguous columns of A. ``base`` is the
        address of A.
        """
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        group = plan.factors.group
        line, depth = Variable(gemm.m, "m"), Variable(gemm.k, "k")
        line.is_lane = True
        with f.loop(0, count) as loop, f.loop(row, end, self.lanes) as rows, self.e.scope():
            line.value = rows.index
            mask = None
            # vectors start at multiples of the task's height
            if gemm.m % self.lanes or plan.height % self.lanes:
                mask = self.e.index_value(Index.of(line)).compare("slt", gemm.m)
            values: list[Element] = []
            for member in range(group):
                depth.value = (step + loop.index) * group + member
                inside = mask
                if gemm.k % group:
                    within = depth.value.compare("slt", gemm.k).splat(self.lanes)
                    inside = within if mask is None else mask & within
                index = Index.of(line) * gemm.a.row + Index.of(depth) * gemm.a.column
                with self.e.masked(inside):
                    values.append(load_at(self.e, base, index, self.kind))
            offset = loop.index * self.step + (rows.index - row) * self.row
            plan.factors.pack_column(values, gemm.a_type, f.offset(self.target, offset))
