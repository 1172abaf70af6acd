"""The kernel of a matrix product: register tiles of C, in the order of `gemm_plan`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from hloom.codegen.accumulators import flatten, plus, unflatten
from hloom.codegen.elements import Elements
from hloom.codegen.llvm import I8, I64, PTR, Function, Module, Value
from hloom.codegen.llvm.memory import masked_load, masked_store, prefetch
from hloom.codegen.loops import LoopKernel
from hloom.codegen.rules.contraction import converted
from hloom.codegen.types import Element, constant, from_storage, register_type, storage_bytes, storage_type
from hloom.cpu.kernels.dot.gemm import Epilogue, batch_base
from hloom.cpu.kernels.dot.gemm_epilogue import EpilogueArrays, Strip, TileEpilogue, store_sums
from hloom.cpu.kernels.dot.gemm_packing import FEWEST_STEPS, PanelPacker, RowPacker, part_of_b
from hloom.cpu.kernels.dot.gemm_plan import DEEP, SHALLOW, TilePlan
from hloom.ir.affine import Index, Variable


def emit_gemm(
    module: Module,
    name: str,
    plan: TilePlan,
    extra: int,
    bind: Callable[[Sequence[Value]], Epilogue],
    arrays: EpilogueArrays | None = None,
) -> LoopKernel:
    """Emit the kernel that computes tasks of a matrix product, blocks of C, in register tiles.

    The kernel's loop runs over the tasks of one group of columns. Its parameters are (A, B or packed panels,
    number, ``extra`` pointers ..., begin, end); the number selects the columns and the steps along k: see
    `part_of_b`. ``bind`` takes the extra pointers and returns the epilogue of a vector of sums.
    ``arrays`` are those of a fused epilogue, which then becomes a separate function that loops over the
    vectors of a tile; None for an epilogue that is emitted inline. If the result's array holds the sums
    between K-blocks, it is the first extra pointer; if the workspace does, its address precedes the pointers
    for ``bind``.
    """
    f = module.function(name, [PTR] * (3 + extra) + [I64] * 2)
    a, b, number, *pointers, begin, end = f.parameters
    product = TileProduct(f, plan, bind, pointers, arrays)
    product.tasks(a, b, f.convert("ptrtoint", number, I64), begin, end)
    form = str(plan)
    if arrays is not None and arrays.streamed is not None:
        f.call(None, "llvm.x86.sse.sfence")
        form += "; stored past the caches"
    f.finish()
    gemm = plan.gemm
    trips = gemm.batches * plan.row_tasks * plan.column_tasks
    work = gemm.batches * gemm.m * min(gemm.n, plan.group_columns) * gemm.k
    return LoopKernel(name, trips, 1, work, form)


class TileProduct:
    """Emits the code of a matrix product's tasks: packing, K-blocks, register tiles and their epilogues.

    A task is a block of C that one thread computes.
    """

    def __init__(
        self,
        f: Function,
        plan: TilePlan,
        bind: Callable[[Sequence[Value]], Epilogue],
        pointers: Sequence[Value] = (),
        arrays: EpilogueArrays | None = None,
    ) -> None:
        self.f, self.plan = f, plan
        gemm = plan.gemm
        self.rows = RowPacker(f, plan) if plan.pack_a else None
        self.panels = PanelPacker(f, plan) if plan.pack_b in ("task", "block") else None
        self.prefetched = self.panels if plan.pack_b == "block" else None
        if plan.is_kept:
            panels = replace(gemm.b, row=plan.panel, column=plan.steps)
            units = replace(gemm, b=panels, b_type=gemm.kind)
            assert plan.factors.unit_bytes == storage_bytes(gemm.kind)
            self.prefetched = PanelPacker(f, replace(plan, gemm=units))
        self.unit = storage_bytes(gemm.kind)
        self.begin, self.end = f.constant(I64, 0), f.constant(I64, plan.steps)
        if plan.in_place:
            self.sums = pointers[0]
        elif plan.slabs > 1:
            self.sums, *pointers = pointers
        elif plan.blocks > 1:
            self.sums = f.allocate(I8, plan.height * plan.width * self.unit)
        if self.panels is not None:
            columns = plan.width if plan.pack_b == "block" else plan.group_columns
            self.packed = f.allocate(I8, columns // plan.panel * plan.panel_bytes)
        self.epilogue = TileEpilogue(f, plan, bind, pointers, arrays, plan.strip)

    def tasks(self, a: Value, b: Value, number: Value, begin: Value, end: Value) -> None:
        """Emit the loop over the tasks [begin, end), blocks of C in the columns that ``number`` selects.

        ``number`` also selects the steps along k: see `part_of_b`. ``a`` is the address of A, ``b``
        that of B or of its packed panels.
        """
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        of_batch = plan.row_tasks * plan.column_tasks
        first, self.begin, self.end = part_of_b(plan, number)
        if plan.slabs > 1:
            b = f.offset(b, self.begin * -plan.step_bytes)
        limit = f.intrinsic("smin", first + plan.group_columns, f.constant(I64, gemm.n))
        with f.loop(begin, end) as loop:
            batch = loop.index.unsigned_divide(of_batch) if gemm.batches > 1 else f.constant(I64, 0)
            remainder = loop.index - batch * of_batch if gemm.batches > 1 else loop.index
            line = remainder.unsigned_divide(plan.column_tasks) if plan.column_tasks > 1 else remainder
            row = line * plan.height
            column, column_end = first, limit
            if plan.column_tasks > 1:
                column = first + (remainder - line * plan.column_tasks) * plan.width
                column_end = f.intrinsic("smin", column + plan.width, limit)
            a_base = batch_base(f, gemm, gemm.a, batch, a, gemm.a_type)
            b_base = self.b_matrix(b, batch)
            origin = column if plan.pack_b == "block" else first
            self.task(batch, row, (origin, column, column_end), a_base, b_base)

    def b_matrix(self, b: Value, batch: Value) -> Value:
        """Emit the address of B in batch ``batch``, or that of its packed panels; return the address.

        ``b`` is the address of all batches of B, or of panels that an earlier kernel packed. If each task
        packs all of B at once, that packing is emitted, too.
        """
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        if plan.pack_b == "group":
            size = plan.panels * plan.panel_bytes
            return f.offset(b, batch * size) if gemm.batches > 1 else b
        base = batch_base(f, gemm, gemm.b, batch, b, gemm.b_type)
        if self.panels is None or plan.pack_b == "block":
            return base
        zero = f.constant(I64, 0)
        self.panels.run(base, self.packed, zero, zero, f.constant(I64, self.panels.chunks))
        if plan.factors.headed:
            self.panels.heads(self.packed, zero, f.constant(I64, plan.panels))
        return self.packed

    def task(
        self,
        batch: Value,
        row: Value,
        columns: tuple[Value, Value, Value],
        a_base: Value,
        b_base: Value,
        steps: Value | None = None,
    ) -> None:
        """Emit one task, a block of C in batch ``batch`` from ``row`` on, with all its K-blocks.

        ``columns`` is (first column of the packed panels, first column of the task, end column); ``a_base``
        and ``b_base`` are the addresses of A and B in the batch. ``steps`` is the number of steps along k, or
        None for that of the plan; a value computed at run time is allowed if the product is neither packed
        nor divided along k.
        """
        f, plan = self.f, self.plan
        self.batch = batch
        self.row = row
        self.row_end = f.intrinsic("smin", row + plan.height, f.constant(I64, plan.gemm.m))
        self.first, self.column, self.column_end = columns
        self.a_base, self.b_base = a_base, b_base
        if plan.blocks == 1:
            self.block(f.constant(I64, 0), f.constant(I64, plan.steps) if steps is None else steps)
            return
        with f.loop(self.begin, self.end, plan.depth) as loop:
            steps_left = self.end - loop.index
            self.block(loop.index, f.intrinsic("smin", steps_left, f.constant(I64, plan.depth)))

    def block(self, step: Value, count: Value) -> None:
        """Emit one K-block of a task: packing, then all register tiles.

        The K-block has ``count`` steps along k from ``step`` on.
        """
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        self.step, self.count = step, count
        self.panel_base = self.b_base
        if plan.pack_b == "block":
            assert self.panels is not None
            self.panel_base = f.offset(self.packed, step * -plan.step_bytes)
            if not plan.first_tile_packs:
                columns = self.column, self.column_end
                self.panels.block(self.b_base, self.panel_base, *columns, step, step + count)
        if self.rows is not None:
            self.rows.run(self.a_base, self.row, self.row_end, step, count)
        tail = self.tail
        full_end = f.intrinsic("smin", self.row_end, f.constant(I64, gemm.m - sum(tail)))
        if plan.steps <= SHALLOW and plan.pack_b not in ("block", "group"):
            with f.loop(self.row, full_end, plan.rows) as line:
                self.columns(
                    lambda column, vectors, masked: self.tile(line.index, plan.rows, column, vectors, masked)
                )
        elif self.epilogue.strip:
            self.strips(full_end)
        else:
            self.columns(lambda column, vectors, masked: self.lines(full_end, column, vectors, masked))
        for number, height in enumerate(tail):
            row = full_end + sum(tail[:number])
            with f.when(self.row_end.compare("sgt", row)):
                self.columns(
                    lambda column, vectors, masked, row=row, height=height: self.tile(
                        row, height, column, vectors, masked
                    )
                )

    @property
    def tail(self) -> list[int]:
        """Return the heights of the register tiles that compute the last rows of C, below the full tiles.

        A small remainder is divided evenly with the last full tile, as too few accumulators would not hide
        the latency of additions; not if this tile is the first one, which packs B. Return an empty list if
        all tiles are full.
        """
        plan, m = self.plan, self.plan.gemm.m
        remainder = m % plan.rows
        least = 2 * plan.rows if plan.first_tile_packs else plan.rows + 1
        if 0 < 2 * remainder <= plan.rows and m >= least and (m - remainder) % plan.height:
            both = plan.rows + remainder
            return [-(-both // 2), both // 2]
        return [remainder] if remainder else []

    def columns(self, body: Callable[[Value, int, bool], None]) -> None:
        """Emit a loop over a task's panels; ``body(first column, vectors, masked)`` emits the code for one.

        ``vectors`` is the number of vectors in a row of the panel; ``masked`` tells whether the last of them
        extends beyond the columns of C.
        """
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        remainder = gemm.n % plan.panel
        full_end = f.constant(I64, gemm.n - remainder)
        limit = f.intrinsic("smin", self.column_end, full_end) if remainder else self.column_end
        if gemm.n >= plan.panel:
            with f.loop(self.column, limit, plan.panel) as loop:
                body(loop.index, plan.vectors, False)
        if remainder:  # tasks of a group of fewer columns than others may begin behind the last column
            has_end = self.column_end.compare("sgt", full_end) & self.column.compare("sle", full_end)
            with f.when(has_end):
                body(full_end, -(-remainder // plan.lanes), remainder % plan.lanes != 0)

    def strips(self, end: Value) -> None:
        """Emit the full register tiles up to row ``end``, several panels at a time, before their epilogue."""
        f, plan, row, width = self.f, self.plan, self.row, self.epilogue.strip
        with f.when(end.compare("sgt", row)), f.loop(self.column, self.column_end, width) as strips:
            column = strips.index
            limit = f.intrinsic("smin", column + width, self.column_end)
            strip = Strip(row, column, end - row, limit - column)
            with self.epilogue.of_strip(self.batch, strip), f.loop(column, limit, plan.panel) as loop:
                self.lines(end, loop.index, plan.vectors, False)

    def lines(self, end: Value, column: Value, vectors: int, masked: bool) -> None:
        """Emit the full register tiles of the panel at ``column``, one after the other, up to row ``end``.

        ``vectors`` is the number of vectors in a tile's row; ``masked``: the last extends beyond the columns
        of C.
        """
        f, row, rows = self.f, self.row, self.plan.rows
        if self.plan.first_tile_packs:
            self.tile(row, rows, column, vectors, masked, packs=True)
            row = row + rows
        with f.loop(row, end, rows) as loop:
            self.tile(loop.index, rows, column, vectors, masked)

    # -- one tile

    def tile(
        self, row: Value, height: int, column: Value, vectors: int, masked: bool, *, packs: bool = False
    ) -> None:
        """Emit one register tile over the current K-block, and its epilogue after the last K-block.

        The tile has ``height`` rows of ``vectors`` vectors, from (``row``, ``column``) of C on. ``masked``:
        the last vector extends beyond the columns of C. ``packs``: the tile also packs its panel of B.
        """
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        e = Elements(f, plan.lanes, {})
        masks: list[Value | None] = [None] * vectors
        if masked:
            lane = Variable(gemm.n, "n", column + (vectors - 1) * plan.lanes)
            lane.is_lane = True
            masks[-1] = e.index_value(Index.of(lane)).compare("slt", gemm.n)
        places: list[Value] = []
        if plan.blocks > 1 or plan.in_place:
            tile = itertools.product(range(height), range(vectors))
            places = [self.place(row + r, column + v * plan.lanes) for r, v in tile]
        start = [*self.first_sums(column, vectors)] * height
        for address in places:
            prefetch(address, writes=True)
        sums = self.products(row, height, column, masks, start, packs=packs)
        if plan.blocks > 1:  # added last: a long sum adds blocks, which keeps its rounding error small
            again = self.step.compare("sgt", 0).splat(plan.lanes)
            kept = [self.kept(address, again, masks[n % vectors]) for n, address in enumerate(places)]
            sums = [plus(before, value) for before, value in zip(kept, sums, strict=True)]
        if plan.blocks == 1:
            self.epilogue.apply(sums, (self.batch, row, column), height, masks)
        elif plan.in_place:
            self.keep(sums, places, masks)
        else:
            last = (self.step + self.count).compare("sge", plan.steps)
            done, keep, after = f.new_block(), f.new_block(), f.new_block()
            f.branch(last, done, keep)
            f.start(keep)
            self.keep(sums, places, masks)
            f.jump(after)
            f.start(done)
            self.epilogue.apply(sums, (self.batch, row, column), height, masks)
            f.jump(after)
            f.start(after)

    def place(self, row: Value, column: Value) -> Value:
        """Emit the address where the vector of sums at (row, column) of C is kept between K-blocks."""
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        if not plan.sums_are_matrix:
            offset = (row - self.row) * plan.width + (column - self.column)
            return f.offset(self.sums, offset * self.unit)
        line = row + self.batch * gemm.m if gemm.batches > 1 else row
        return f.offset(self.sums, (line * gemm.n + column) * self.unit)

    def first_sums(self, column: Value, vectors: int) -> list[Element]:
        """Emit the initial accumulators of one row of a register tile: ``vectors`` vectors at ``column``.

        They are zeros, with one exception: in the first K-block, they are loaded from the beginning of the
        packed panel of B if it holds initial accumulators (see `Factors.headed`).
        """
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        if not plan.factors.headed:
            return [constant(f, gemm.kind, 0, plan.lanes)] * vectors
        number = (column - self.first).unsigned_divide(plan.panel)
        head = f.offset(self.b_base, number * plan.panel_bytes)
        wide = register_type(gemm.kind).vector(plan.lanes)
        heads = [f.load(wide, f.offset(head, v * plan.lanes, wide.scalar)) for v in range(vectors)]
        if plan.blocks == 1:
            return [*heads]
        return [self.step.compare("eq", 0).select(each, f.constant(wide, 0)) for each in heads]

    def kept(self, place: Value, again: Value, mask: Value | None) -> Element:
        """Emit the load from ``place`` of a vector of sums over earlier K-blocks; in the first one, zeros.

        ``again`` is the condition, in all lanes, that this is not the first K-block. ``mask`` selects the
        lanes inside C; None selects all.
        """
        f, plan, kind = self.f, self.plan, self.plan.gemm.kind
        stored = storage_type(kind)
        on = again if mask is None or not plan.sums_are_matrix else again & mask
        first = masked_load(stored.vector(plan.lanes), place, on)
        if kind.is_complex:
            return first, masked_load(stored.vector(plan.lanes), f.offset(place, plan.lanes, stored), on)
        return from_storage(first, kind)

    def keep(self, sums: Sequence[Element], places: Sequence[Value], masks: Sequence[Value | None]) -> None:
        """Emit the stores of a register tile's sums at ``places``, to which the next K-block adds.

        ``masks`` has, for each vector of a row, the mask of the lanes inside C; None for all lanes.
        """
        for number, (value, address) in enumerate(zip(sums, places, strict=True)):
            mask = masks[number % len(masks)]
            if mask is not None and self.plan.sums_are_matrix:
                assert isinstance(value, Value)
                masked_store(value, address, mask)
            else:
                store_sums(value, address)

    def products(
        self,
        row: Value,
        height: int,
        column: Value,
        masks: Sequence[Value | None],
        start: list[Element],
        *,
        packs: bool,
    ) -> list[Element]:
        """Emit the K loop of a register tile over the current K-block; return its sums, row by row.

        The tile has ``height`` rows from (``row``, ``column``) of C on. ``masks`` has, for each vector of a
        row, the mask of the lanes inside C; None for all lanes. ``start`` has the initial accumulators.
        ``packs``: the loop also packs the tile's panel of B.
        """
        f, plan, vectors = self.f, self.plan, len(masks)
        e = Elements(f, plan.lanes, {})
        rows, a_step = self.a_rows(row, height)
        base, b_step = self.b_panel(column)

        def steps(low: Value, high: Value, start: Sequence[Element]) -> list[Element]:
            with f.loop(low, high, 1, flatten(start)) as loop:
                sums = unflatten(loop.values, start)
                line = f.offset(base, loop.index * b_step)
                b: Iterable[Element] = (self.b_vector(line, v, masks[v]) for v in range(vectors))
                if packs:
                    b = self.packed_vectors(self.step + loop.index, column, masks, line)
                elif height > 1:
                    b = list(b)  # a single row loads and converts each vector where it is multiplied
                offset = loop.index * a_step
                following: list[Element] = []
                for r in range(height):
                    a = plan.factors.broadcast(f, f.offset(rows[r], offset), plan.lanes)
                    totals = sums[r * vectors : (r + 1) * vectors]
                    following += [
                        plan.factors.multiply(e, a, vector, total)
                        for vector, total in zip(b, totals, strict=True)
                    ]
                loop.next(*flatten(following))
            return unflatten(loop.values, start)

        if (
            plan.blocks == 1
            and plan.steps > 2 * DEEP
            and (plan.gemm.kind.is_floating or plan.gemm.kind.is_complex)
            and not plan.factors.headed
        ):
            with f.loop(0, plan.steps, DEEP, flatten(start)) as block:
                end = f.intrinsic("smin", block.index + DEEP, self.count)
                pairs = zip(unflatten(block.values, start), steps(block.index, end, start), strict=True)
                block.next(*flatten([plus(before, added) for before, added in pairs]))
            return unflatten(block.values, start)
        if self.prefetched is None and not self.epilogue.reads:
            return steps(f.constant(I64, 0), self.count, start)
        every, share = max(FEWEST_STEPS, plan.depth // plan.rows), None
        if self.prefetched is not None:
            tile = (row - self.row).unsigned_divide(plan.rows)
            share = self.prefetched.following(self.b_base, column, self.step, tile)
            every = self.prefetched.prefetching_steps
        ahead = self.epilogue.ahead(self.batch, row, column, (self.row, self.row_end))
        is_last = (self.step + self.count).compare("sge", plan.steps) if plan.blocks > 1 else None
        with f.loop(0, self.count, every, flatten(start)) as part:
            if self.prefetched is not None and share is not None:
                self.prefetched.prefetch(share, part.index)
            self.epilogue.prefetch(ahead, part.index.unsigned_divide(every), every, is_last)
            end = f.intrinsic("smin", part.index + every, self.count)
            part.next(*flatten(steps(part.index, end, unflatten(part.values, start))))
        return unflatten(part.values, start)

    def a_rows(self, row: Value, height: int) -> tuple[list[Value], int]:
        """Emit the addresses of a tile's rows of A at the first step of the current K-block.

        Return (the addresses, bytes from one step along k to the next). ``row`` is the first of the
        ``height`` rows. The addresses are in packed memory if the task packs A.
        """
        f, gemm = self.f, self.plan.gemm
        if self.rows is not None:
            first, distance, step = row - self.row, self.rows.row, self.rows.step
            base = self.rows.target
        else:
            size = storage_bytes(gemm.a_type)
            first, distance, step = row, gemm.a.row * size, gemm.a.column * size * self.plan.factors.group
            base = f.offset(self.a_base, self.step * step) if self.plan.blocks > 1 else self.a_base
        start = f.offset(base, first * distance)
        return [f.offset(start, r * distance) for r in range(height)], step

    def b_panel(self, column: Value) -> tuple[Value, int]:
        """Emit the address of the panel of B at ``column``; return (address, bytes per step along k).

        The address is that of the current K-block's first step, in the packed panel or in B.
        """
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        if plan.pack_b:
            number = (column - self.first).unsigned_divide(plan.panel)
            offset, step = number * plan.panel_bytes + plan.head_bytes, plan.step_bytes
        else:
            size = storage_bytes(gemm.b_type)
            offset, step = column * (gemm.b.column * size), gemm.b.row * size
        return f.offset(self.panel_base, offset + self.step * step), step

    def b_vector(self, line: Value, vector: int, mask: Value | None) -> Element:
        """Emit the load of the vector with index ``vector`` of a tile's columns of B at one step along k.

        ``line`` is the address of the step, in the packed panel or in B. ``mask`` selects the lanes inside B;
        None selects all.
        """
        if self.plan.pack_b:
            lanes, unit = self.plan.lanes, self.plan.factors.unit_bytes
            return self.plan.factors.load(self.f, self.f.offset(line, vector * lanes * unit), lanes)
        return self.unpacked_vector(line, vector, mask)

    def packed_vectors(
        self, step: Value, column: Value, masks: Sequence[Value | None], line: Value
    ) -> list[Element]:
        """Emit the loads of a tile's vectors of B at ``step``, and their stores into the packed panel.

        Return the vectors. ``column`` is the first of the tile's columns; ``line`` is the address of the step
        in the panel. ``masks`` has, for each vector, the mask of the lanes inside B; None for all lanes.
        """
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        source = f.offset(self.b_base, (step * gemm.b.row + column) * storage_bytes(gemm.b_type))
        vectors = [self.unpacked_vector(source, v, mask) for v, mask in enumerate(masks)]
        for v, vector in enumerate(vectors):
            plan.factors.store_units(vector, f.offset(line, v * plan.lanes * plan.factors.unit_bytes))
        return vectors

    def unpacked_vector(self, line: Value, vector: int, mask: Value | None) -> Element:
        """Emit the load of vector ``vector`` of the row of B at address ``line``, in the accumulator type.

        ``mask`` selects the lanes inside B; None selects all.
        """
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        size = storage_bytes(gemm.b_type)
        pointer = f.offset(line, vector * plan.lanes * size)
        stored, lanes = storage_type(gemm.b_type), plan.lanes
        if not gemm.b_type.is_complex:
            wide = stored.vector(lanes)
            loaded = f.load(wide, pointer) if mask is None else masked_load(wide, pointer, mask)
            return converted(from_storage(loaded, gemm.b_type), gemm.b_type, gemm.kind)
        wide = stored.vector(2 * lanes)
        if mask is None:
            both = f.load(wide, pointer)
        else:
            both = masked_load(wide, pointer, mask.shuffle([lane // 2 for lane in range(2 * lanes)]))
        pair = both.shuffle(range(0, 2 * lanes, 2)), both.shuffle(range(1, 2 * lanes, 2))
        return converted(pair, gemm.b_type, gemm.kind)
