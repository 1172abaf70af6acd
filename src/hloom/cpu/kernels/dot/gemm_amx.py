"""Matrix products in the tile registers of Intel AMX.

A tile register holds 16 lines of 64 bytes. One instruction multiplies 16 rows of A by 16 columns of B, over
64 bytes of each along k, and adds the products to 16 x 16 sums of 32 bits. Both factors are packed before:
into tiles of A, whose lines are rows, and tiles of B, whose lines are *units*: 4 bytes along k of each of 16
columns (see `amx_packing`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from hloom.codegen.llvm import I8, I32, I64, PTR, Function, Module, Value
from hloom.codegen.llvm.structured import choose, is_null
from hloom.codegen.loops import LoopKernel
from hloom.cpu.kernels.dot.amx_packing import (
    LINE_BYTES,
    LINES,
    PANEL,
    TILE_BYTES,
    TileMatrix,
    emit_packing,
    steps_of,
)
from hloom.cpu.kernels.dot.gemm import Gemm
from hloom.cpu.kernels.dot.gemm_epilogue import EpilogueArrays, ProductEpilogue, TileEpilogue
from hloom.cpu.kernels.dot.gemm_pairs import emit_large_enough
from hloom.cpu.kernels.dot.gemm_plan import TASKS
from hloom.cpu.program import ProgramEmitter
from hloom.ir.instruction import HloInstruction
from hloom.records import dataclass
from hloom.shape import element_type as et

MOST_DEPTH: Final = 16
"""Tiles along k of a K-block: those of 32 columns of B fill two thirds of a first-level cache."""
MOST_ROWS: Final = 256
"""Rows of a task, whose tiles of a K-block of A stay in the second-level cache."""
MOST_COLUMNS: Final = 128
"""Columns of a task whose sums are kept between K-blocks."""
CONFIGURATION: Final = bytes([1, *[0] * 15, *[LINE_BYTES, 0] * 8, *[0] * 16, *[LINES] * 8, *[0] * 8])
"""The operand of ``ldtilecfg`` that gives each of the 8 tile registers 16 lines of 64 bytes."""
_CONFIGURATION_NAME: Final = "amx_configuration"


@dataclass(frozen=True, slots=True)
class AmxPlan:
    """The division of a product into tasks, K-blocks and tiles.

    A task is a block of C that one thread computes.

    Attributes:
        gemm: the product.
        rows: rows of C that are computed together: those of one tile register, or of two.
        depth: tiles along k of a K-block, after which the sums are stored and the next ones begin.
        height, width: rows and columns of a task.
        row_bytes: the distance of the rows of A if tiles are loaded from rows in memory, which zeros fill up
            to a multiple of 64 bytes; 0 if A is packed.
        factors: A and B, if their elements along k are not at strides.
        lanes, whole, panel, transposed: as in `TilePlan`.
    """

    gemm: Gemm
    rows: int
    depth: int
    height: int
    width: int
    row_bytes: int = 0
    factors: tuple[TileMatrix, TileMatrix] | None = None
    lanes: int = LINES
    whole: int = LINES
    panel: int = PANEL
    transposed: bool = False

    @property
    def a(self) -> TileMatrix:
        gemm = self.gemm
        if self.factors is not None:
            return self.factors[0]
        return TileMatrix(gemm, gemm.a, gemm.m, gemm.a_type, has_units=False)

    @property
    def b(self) -> TileMatrix:
        gemm = self.gemm
        if self.factors is not None:
            return self.factors[1]
        return TileMatrix(gemm, gemm.b.transposed, gemm.n, gemm.b_type, has_units=True)

    @property
    def steps(self) -> int:
        """Return the number of tiles along k."""
        return self.a.steps

    @property
    def blocks(self) -> int:
        """Return the number of K-blocks."""
        return -(-self.steps // self.depth)

    @property
    def row_tasks(self) -> int:
        return -(-self.gemm.m // self.height)

    @property
    def column_tasks(self) -> int:
        return -(-self.gemm.n // self.width)

    def workspace(self) -> int:
        """Return the bytes of the packed factors."""
        return self.a.bytes + self.b.bytes

    def __str__(self) -> str:
        return (
            f"AMX tiles of {self.rows} rows, {self.panel} columns; "
            f"tasks of {self.height} rows, {self.width} columns, {self.depth} tiles deep"
        )


def block_depth(steps: int) -> int:
    """Return the tiles along k of a K-block, for ``steps`` tiles in all."""
    count = 1 if steps <= MOST_DEPTH * 3 // 2 else -(-steps // MOST_DEPTH)
    return -(-steps // count)


def plan_amx(gemm: Gemm) -> AmxPlan:
    """Return the plan for computing a product in AMX tiles."""
    depth = block_depth(steps_of(gemm))
    rows = LINES if gemm.m <= LINES else 2 * LINES
    panels = -(-gemm.n // PANEL)
    height = min(MOST_ROWS, -(-gemm.m // rows) * rows)
    while height > 2 * rows and gemm.batches * -(-gemm.m // height) * panels < TASKS:
        height = -(-height // (2 * rows)) * rows
    tasks = gemm.batches * -(-gemm.m // height)
    width = max(1, panels // -(-TASKS // tasks)) * PANEL
    return AmxPlan(gemm, rows, depth, height, min(width, MOST_COLUMNS))


def emit_amx(
    program: ProgramEmitter,
    i: HloInstruction,
    plan: AmxPlan,
    a: Value,
    b: Value,
    operand: HloInstruction,
    epilogue: ProductEpilogue,
    space: Value,
    otherwise: Callable[[Value], None] | None = None,
) -> None:
    """Emit the kernel calls of a product in AMX tiles: packing of both factors, products.

    Args:
        program: the program.
        i: the dot, or the fusion around it.
        plan: the plan of the product.
        a, b: the addresses of A and B.
        operand: the array of B.
        epilogue: the last stage of the product.
        space: the address of the workspace.
        otherwise: emits another computation of a product of bf16 numbers so small that AMX is not exact, with
            the workspace at an address.
    """
    module, f = program.module, program.function
    a_tiles = f.offset(space, LINE_BYTES if otherwise is not None else 0)
    b_tiles = f.offset(a_tiles, plan.a.bytes)

    def pack(factor: TileMatrix, source: Value, tiles: Value) -> None:
        kernel = program.shared(lambda name: emit_packing(module, name, factor))
        program.call(i, kernel, [source, tiles])

    pack(plan.a, a, a_tiles)
    kept = _kept_tiles(program, plan.b, operand, pack)
    if kept is None:
        pack(plan.b, b, b_tiles)
    else:
        with f.when(is_null(kept)):
            pack(plan.b, b, b_tiles)
        b_tiles = is_null(kept).select(b_tiles, kept)
    kernel = program.shared(lambda name: _emit_products(module, name, plan, epilogue))
    arguments = [a_tiles, b_tiles, *epilogue.pointers]
    if otherwise is None:
        program.call(i, kernel, arguments)
        return
    test = program.shared(lambda name: emit_large_enough(module, name, plan.a.magnitudes, plan.b.magnitudes))
    program.call(i, test, [a_tiles, b_tiles, space])
    with choose(f, f.load(I8, space).compare("ne", 0)) as choice:
        program.call(i, kernel, arguments)
        choice.otherwise()
        otherwise(a_tiles)


def _kept_tiles(
    program: ProgramEmitter,
    factor: TileMatrix,
    operand: HloInstruction,
    pack: Callable[[TileMatrix, Value, Value], None],
) -> Value | None:
    """Emit the address of tiles of B that the caller keeps between calls; at run time null if it keeps none.

    Return None, and emit nothing, if B (``operand``) is not an argument of the program that can be kept.
    ``pack`` emits the packing of a factor from an address to another.
    """
    arguments, gemm = program.packed_arguments, factor.gemm
    is_whole = factor.matrix.offset == 0 and gemm.k * gemm.n == operand.shape.element_count
    if arguments is None or gemm.batches > 1 or not is_whole:
        return None
    argument = arguments.argument_operand(operand)
    if argument is None:
        return None
    parts = replace(factor.matrix, batch=(gemm.k * gemm.n,))
    every = replace(factor, gemm=replace(gemm, batch=(argument.parts,)), matrix=parts)
    form = f"{factor.form}, {argument.parts}"
    return arguments.address(
        argument, factor.matrix_bytes, form, lambda source, target: pack(every, source, target)
    )


def _emit_products(module: Module, name: str, plan: AmxPlan, epilogue: ProductEpilogue) -> LoopKernel:
    """Emit the kernel (packed A, packed B, the epilogue's pointers ..., begin, end) of a product's tasks."""
    f = module.function(name, [PTR] * (2 + epilogue.count) + [I64] * 2)
    a, b, *pointers, begin, end = f.parameters
    arrays = epilogue.arrays or EpilogueArrays()
    AmxProduct(f, plan, TileEpilogue(f, plan, epilogue.bind, pointers, arrays)).run(a, b, begin, end)
    form = str(plan)
    if arrays.streamed is not None:
        f.call(None, "llvm.x86.sse.sfence")
        form += "; stored past the caches"
    f.finish()
    gemm = plan.gemm
    return LoopKernel(name, gemm.batches * plan.row_tasks * plan.column_tasks, 1, gemm.work // 8, form)


class SumsEpilogue(Protocol):
    """The last stage of a product's tiles: it reads sums from scratch memory; see `TileEpilogue`."""

    @property
    def scratch(self) -> Value:
        """Return the address of rows of `PANEL` sums."""
        ...

    def call(self, place: tuple[Value, Value, Value], height: Value, vectors: int, *, masked: bool) -> None:
        """Emit the stage for ``height`` rows of sums from ``place`` on, a (batch, row, column) of C."""
        ...


class AmxProduct:
    """Emits tasks. Tile registers 0 to 3 hold sums, 4 and 5 tiles of A, 6 and 7 tiles of B."""

    def __init__(self, f: Function, plan: AmxPlan, epilogue: SumsEpilogue) -> None:
        self.f, self.plan, self.epilogue = f, plan, epilogue
        self.halves = plan.rows // LINES
        self.kept_line = plan.width * I32.size
        self.kept = f.allocate(I8, plan.height * self.kept_line if plan.blocks > 1 else LINE_BYTES)
        self.b_line = plan.steps * LINE_BYTES
        self.a_line, self.a_step, self.a_distance = self.b_line, TILE_BYTES, LINE_BYTES
        if plan.row_bytes:
            self.a_line, self.a_step, self.a_distance = plan.row_bytes, LINE_BYTES, plan.row_bytes

    def run(self, a: Value, b: Value, begin: Value, end: Value) -> None:
        """Emit the tasks with indices [begin, end), blocks of C, from the packed factors ``a`` and ``b``."""
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        of_batch = plan.row_tasks * plan.column_tasks
        configure_tiles(f)
        with f.loop(begin, end) as loop:
            batch = loop.index.unsigned_divide(of_batch)
            number = loop.index - batch * of_batch
            line = number.unsigned_divide(plan.column_tasks)
            row, column = line * plan.height, (number - line * plan.column_tasks) * plan.width
            end_column = f.intrinsic("smin", column + plan.width, f.constant(I64, gemm.n))
            self.task(batch, row, (column, end_column), plan.a.tiles(a, batch), plan.b.tiles(b, batch))
        release_tiles(f)

    def task(self, batch: Value, row: Value, columns: tuple[Value, Value], a: Value, b: Value) -> None:
        """Emit the computation of a block of C, K-block by K-block.

        The block begins at ``row`` and has the ``columns`` from the first to the end. ``a`` is the address of
        A's first row in the batch, in tiles or in rows, and ``b`` that of B's first tile.
        """
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        self.batch, self.row, self.columns = batch, row, columns
        self.row_end = f.intrinsic("smin", row + plan.height, f.constant(I64, gemm.m))
        with (
            f.loop(0, plan.steps, plan.depth) as steps,
            f.loop(*columns, plan.panel) as panel,
            f.loop(row, self.row_end, plan.rows) as rows,
        ):
            a_tiles = f.offset(a, rows.index * self.a_line + steps.index * self.a_step)
            b_tiles = f.offset(b, panel.index * self.b_line + steps.index * TILE_BYTES)
            self.sums(rows.index, panel.index, steps.index, a_tiles, b_tiles)

    def sums(self, row: Value, column: Value, step: Value, a: Value, b: Value) -> None:
        """Emit the sums of ``plan.rows`` x 32 elements of C over a K-block; after the last, the epilogue.

        ``a`` and ``b`` are the addresses of the first tiles.
        """
        f, plan = self.f, self.plan
        count = f.intrinsic("smin", f.constant(I64, plan.steps) - step, f.constant(I64, plan.depth))
        if plan.blocks == 1:
            self.zero()
            self.multiply(a, b, count)
            self.finish(row, column)
            return
        offset = (row - self.row) * self.kept_line + (column - self.columns[0]) * I32.size
        kept = f.offset(self.kept, offset)
        with choose(f, step.compare("eq", 0)) as choice:
            self.zero()
            choice.otherwise()
            self.move("tileloadd64", kept, self.kept_line)
        self.multiply(a, b, count)
        with choose(f, (step + plan.depth).compare("slt", plan.steps)) as choice:
            self.move("tilestored64", kept, self.kept_line)
            choice.otherwise()
            self.finish(row, column)

    def zero(self) -> None:
        for number in range(2 * self.halves):
            self.f.call(None, "llvm.x86.tilezero", self.f.constant(I8, number))

    def move(self, instruction: str, address: Value, distance: int) -> None:
        """Emit loads or stores of the sums, whose rows are ``distance`` bytes apart from ``address`` on."""
        for number in range(2 * self.halves):
            half, vector = divmod(number, 2)
            self.tile(instruction, number, address, half * LINES * distance + vector * LINE_BYTES, distance)

    def tile(self, instruction: str, number: int, address: Value, offset: int, distance: int) -> None:
        """Emit a load or store of tile register ``number``, whose lines are ``distance`` bytes apart."""
        f = self.f
        operands = f.constant(I8, number), f.offset(address, offset), f.constant(I64, distance)
        f.call(None, f"llvm.x86.{instruction}", *operands)

    def multiply(self, a: Value, b: Value, count: Value) -> None:
        """Emit the loop over ``count`` tiles along k, from the tiles of A and B at ``a`` and ``b`` on."""
        f = self.f
        with f.loop(0, count) as loop:
            a_tile, b_tile = f.offset(a, loop.index * self.a_step), f.offset(b, loop.index * TILE_BYTES)
            self.tile("tileloadd64", 6, b_tile, 0, LINE_BYTES)
            self.tile("tileloadd64", 4, a_tile, 0, self.a_distance)
            self.add_products(0, 4, 6)
            self.tile("tileloadd64", 7, b_tile, LINES * self.b_line, LINE_BYTES)
            self.add_products(1, 4, 7)
            if self.halves > 1:
                self.tile("tileloadd64", 5, a_tile, LINES * self.a_line, self.a_distance)
                self.add_products(2, 5, 6)
                self.add_products(3, 5, 7)

    def add_products(self, *numbers: int) -> None:
        """Emit the addition of products to a tile register of sums; ``numbers`` are sums, A, B."""
        gemm = self.plan.gemm
        name = "tdpbf16ps"
        if gemm.a_type is not et.BF16:
            name = "tdpb" + "".join("s" if t.is_signed else "u" for t in (gemm.a_type, gemm.b_type)) + "d"
        self.f.call(None, f"llvm.x86.{name}", *(self.f.constant(I8, number) for number in numbers))

    def finish(self, row: Value, column: Value) -> None:
        """Emit the store of the sums to the epilogue's memory, and the epilogue."""
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        self.move("tilestored64", self.epilogue.scratch, plan.panel * I32.size)
        height = f.intrinsic("smin", self.row_end - row, f.constant(I64, plan.rows))
        place = self.batch, row, column
        if gemm.n % plan.panel == 0:
            self.epilogue.call(place, height, 2, masked=False)
            return
        with choose(f, column.compare("sle", gemm.n - plan.panel)) as choice:
            self.epilogue.call(place, height, 2, masked=False)
            choice.otherwise()
            self.epilogue.call(place, height, 2, masked=True)


def configure_tiles(f: Function) -> None:
    """Emit the configuration of the tile registers, by which a thread begins to use them."""
    f.module.constant_bytes(_CONFIGURATION_NAME, CONFIGURATION)
    f.call(None, "llvm.x86.ldtilecfg", f.address(_CONFIGURATION_NAME))


def release_tiles(f: Function) -> None:
    """Emit the end of a thread's use of the tile registers; the system saves them no more."""
    f.call(None, "llvm.x86.tilerelease")
