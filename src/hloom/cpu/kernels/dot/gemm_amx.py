"""Matrix products in the tile registers of Intel AMX.

A tile register holds 16 lines of 64 bytes. One instruction multiplies 16 rows of A by 16 columns of B, over
64 bytes of each along k, and adds the products to 16 x 16 sums of 32 bits. Both factors are packed before:
into tiles of A, whose lines are rows, and tiles of B, whose lines are *units*: 4 bytes along k of each of 16
columns. While bf16 factors are packed, their least magnitudes are taken (see `gemm_pairs`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from hloom.codegen.elements import Elements
from hloom.codegen.llvm import I8, I16, I32, I64, PTR, Function, Module, Value
from hloom.codegen.llvm.structured import choose, is_null
from hloom.codegen.loops import LoopKernel
from hloom.cpu.kernels.dot.gemm import Gemm, Matrix, batch_base, load_at
from hloom.cpu.kernels.dot.gemm_epilogue import EpilogueArrays, ProductEpilogue, TileEpilogue
from hloom.cpu.kernels.dot.gemm_pairs import Magnitudes, emit_large_enough
from hloom.cpu.kernels.dot.gemm_plan import TASKS
from hloom.cpu.kernels.movement.transposition import transposed
from hloom.cpu.program import ProgramEmitter
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.records import dataclass
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType

LINES: Final = 16
"""Lines of a tile register."""
LINE_BYTES: Final = 64
"""Bytes of a line."""
TILE_BYTES: Final = LINES * LINE_BYTES
PANEL: Final = 2 * LINES
"""Columns of C that are computed together."""
MOST_DEPTH: Final = 16
"""Tiles along k of a K-block: those of 32 columns of B fill two thirds of a first-level cache."""
MOST_ROWS: Final = 256
"""Rows of a task, whose tiles of a K-block of A stay in the second-level cache."""
MOST_COLUMNS: Final = 128
"""Columns of a task whose sums are kept between K-blocks."""
PACKED_TILES: Final = 32
"""Tiles that one task packs."""
CONFIGURATION: Final = bytes([1, *[0] * 15, *[LINE_BYTES, 0] * 8, *[0] * 16, *[LINES] * 8, *[0] * 8])
"""The operand of ``ldtilecfg`` that gives each of the 8 tile registers 16 lines of 64 bytes."""
_CONFIGURATION_NAME: Final = "amx_configuration"


@dataclass(frozen=True, slots=True)
class TileMatrix:
    """A factor of a product, and its packed form: for each batch, the tiles of blocks of 16 lines.

    A line is a row of A or a column of B. The tiles of a block follow each other along k. For bf16, the least
    magnitudes that the packing tasks saw precede the tiles of a batch.

    Attributes:
        gemm: the product.
        matrix: the strides of the factor: ``row`` from one line to the next, ``column`` along k.
        lines: the number of lines.
        kind: the element type in memory.
        has_units: whether lines of the tiles are units, as for B, and not rows.
    """

    gemm: Gemm
    matrix: Matrix
    lines: int
    kind: ElementType
    has_units: bool

    @property
    def group(self) -> int:
        """Return the number of elements in a unit of 4 bytes."""
        return group_of(self.gemm)

    @property
    def steps(self) -> int:
        """Return the number of tiles along k."""
        return -(-self.gemm.k // (LINES * self.group))

    @property
    def blocks(self) -> int:
        """Return the number of blocks of 16 lines, an even number."""
        return -(-self.lines // (2 * LINES)) * 2

    @property
    def batches(self) -> int:
        """Return the number of matrices; 1 if all batches have the same one."""
        return self.gemm.batches if any(self.matrix.batch) else 1

    @property
    def is_along_k(self) -> bool:
        """Return whether vectors are loaded along k, and not across lines."""
        return self.matrix.column == 1 or self.matrix.row != 1

    @property
    def span(self) -> tuple[int, int]:
        """Return how many tiles a packing task has along lines and along k."""
        if self.is_along_k:
            return 1, min(self.steps, PACKED_TILES)
        return min(self.blocks, PACKED_TILES), 1

    @property
    def tasks(self) -> int:
        """Return the number of packing tasks of a matrix."""
        across, along = self.span
        return -(-self.blocks // across) * -(-self.steps // along)

    @property
    def head_bytes(self) -> int:
        """Return the bytes before the tiles of a matrix: for bf16, a least magnitude for each task."""
        return -(-2 * self.tasks // LINE_BYTES) * LINE_BYTES if self.kind is et.BF16 else 0

    @property
    def block_bytes(self) -> int:
        return self.steps * TILE_BYTES

    @property
    def matrix_bytes(self) -> int:
        """Return the bytes of the packed form of one batch."""
        return self.head_bytes + self.blocks * self.block_bytes

    @property
    def bytes(self) -> int:
        return self.batches * self.matrix_bytes

    @property
    def magnitudes(self) -> Magnitudes:
        """Return where the packed form has the least magnitudes of the factor's elements."""
        return Magnitudes(self.tasks, self.batches, self.matrix_bytes)


@dataclass(frozen=True, slots=True)
class AmxPlan:
    """The division of a product into tasks, K-blocks and tiles.

    A task is a block of C that one thread computes.

    Attributes:
        gemm: the product.
        rows: rows of C that are computed together: those of one tile register, or of two.
        depth: tiles along k of a K-block, after which the sums are stored and the next ones begin.
        height, width: rows and columns of a task.
        lanes, whole, panel, transposed: as in `TilePlan`.
    """

    gemm: Gemm
    rows: int
    depth: int
    height: int
    width: int
    lanes: int = LINES
    whole: int = LINES
    panel: int = PANEL
    transposed: bool = False

    @property
    def a(self) -> TileMatrix:
        gemm = self.gemm
        return TileMatrix(gemm, gemm.a, gemm.m, gemm.a_type, has_units=False)

    @property
    def b(self) -> TileMatrix:
        gemm = self.gemm
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


def group_of(gemm: Gemm) -> int:
    """Return the number of elements in a unit: 2 of bf16, 4 of integers of 8 bits."""
    return 2 if gemm.a_type is et.BF16 else 4


def plan_amx(gemm: Gemm) -> AmxPlan:
    """Return the plan for computing a product in AMX tiles."""
    steps = -(-gemm.k // (LINES * group_of(gemm)))
    count = 1 if steps <= MOST_DEPTH * 3 // 2 else -(-steps // MOST_DEPTH)
    depth = -(-steps // count)
    rows = LINES if gemm.m <= LINES else 2 * LINES
    panels = -(-gemm.n // PANEL)
    height = min(MOST_ROWS, -(-gemm.m // rows) * rows)
    while height > 2 * rows and gemm.batches * -(-gemm.m // height) * panels < TASKS:
        height = -(-height // (2 * rows)) * rows
    tasks = gemm.batches * -(-gemm.m // height)
    width = max(1, panels // -(-TASKS // tasks)) * PANEL
    return AmxPlan(gemm, rows, depth, height, min(width, MOST_COLUMNS))


# -- packing


def _emit_packing(module: Module, name: str, factor: TileMatrix) -> LoopKernel:
    """Emit the kernel (factor, packed form, begin, end) that packs a factor into tiles."""
    f = module.function(name, [PTR, PTR, I64, I64])
    source, target, begin, end = f.parameters
    packer = _TilePacker(f, factor)
    with f.loop(begin, end) as loop:
        batch = loop.index.unsigned_divide(factor.tasks)
        number = loop.index - batch * factor.tasks
        base = batch_base(f, factor.gemm, factor.matrix, batch, source, factor.kind)
        packer.task(base, f.offset(target, batch * factor.matrix_bytes), number)
    f.finish()
    trips = factor.batches * factor.tasks
    return LoopKernel(name, trips, 1, factor.batches * factor.lines * factor.gemm.k // 2)


class _TilePacker:
    def __init__(self, f: Function, factor: TileMatrix) -> None:
        self.f, self.factor = f, factor
        lanes = LINES * factor.group if factor.is_along_k else LINES
        self.e = Elements(f, lanes, {})
        self.line, self.depth = Variable(factor.lines, "line"), Variable(factor.gemm.k, "k")
        (self.depth if factor.is_along_k else self.line).is_lane = True
        self.kind = et.U16 if factor.kind is et.BF16 else factor.kind

    def task(self, base: Value, target: Value, number: Value) -> None:
        """Emit one packing task of the matrix at ``base``, whose packed form is at ``target``."""
        f, factor = self.f, self.factor
        across, along = factor.span
        parts = -(-factor.steps // along)
        first = number.unsigned_divide(parts)
        step = (number - first * parts) * along
        last_block = f.intrinsic("smin", (first + 1) * across, f.constant(I64, factor.blocks))
        last_step = f.intrinsic("smin", step + along, f.constant(I64, factor.steps))
        none = [f.constant(I16.vector(2 * LINES), -1)] if factor.head_bytes else []
        with f.loop(first * across, last_block, 1, none) as blocks:
            with f.loop(step, last_step, 1, blocks.values) as steps:
                vectors = self.vectors(base, blocks.index * LINES, steps.index)
                steps.next(*[_smaller(vectors, least) for least in steps.values])
                place = blocks.index * factor.block_bytes + steps.index * TILE_BYTES + factor.head_bytes
                self.store(vectors, f.offset(target, place))
            blocks.next(*steps.values)
        for least in blocks.values:
            smallest = f.intrinsic("vector.reduce.umin", least, result=I16)
            f.store(smallest, f.offset(target, number, I16))

    def vectors(self, base: Value, line: Value, step: Value) -> list[Value]:
        """Emit the loads of a tile's elements, from ``line`` on, as 16 vectors of 16 units.

        Each vector has the units of a line, if vectors are loaded along k; else a unit of each line. Zeros
        follow the factor's last element along k.
        """
        load = self.along_k if self.factor.is_along_k else self.across_lines
        return load(base, line, step)

    def along_k(self, base: Value, line: Value, step: Value) -> list[Value]:
        f, factor, e = self.f, self.factor, self.e
        vectors: list[Value] = []
        for number in range(LINES):
            with e.scope():
                last = f.constant(I64, factor.lines - 1)
                self.line.value = (
                    f.intrinsic("smin", line + number, last) if factor.lines % PANEL else line + number
                )
                self.depth.value = step * e.lanes
                mask = None
                if factor.gemm.k % e.lanes:
                    mask = e.index_value(Index.of(self.depth)).compare("slt", factor.gemm.k)
                vectors.append(self.load(base, mask).bitcast(I32.vector(LINES)))
        return vectors

    def across_lines(self, base: Value, line: Value, step: Value) -> list[Value]:
        f, factor, e = self.f, self.factor, self.e
        self.line.value = line
        vectors: list[Value] = []
        for unit in range(LINES):
            members: list[Value] = []
            for member in range(factor.group):
                with e.scope():
                    self.depth.value = (step * LINES + unit) * factor.group + member
                    mask = None
                    if factor.lines % PANEL:
                        mask = e.index_value(Index.of(self.line)).compare("slt", factor.lines)
                    if factor.gemm.k % (LINES * factor.group):
                        inside = self.depth.value.compare("slt", factor.gemm.k).splat(LINES)
                        mask = inside if mask is None else mask & inside
                    members.append(self.load(base, mask))
            while len(members) > 1:
                half = len(members) // 2
                members = [a.interleave(b) for a, b in zip(members[:half], members[half:], strict=True)]
            vectors.append(members[0].bitcast(I32.vector(LINES)))
            f.split_block()
        return vectors

    def load(self, base: Value, mask: Value | None) -> Value:
        matrix = self.factor.matrix
        index = Index.of(self.line) * matrix.row + Index.of(self.depth) * matrix.column
        with self.e.masked(mask):
            value = load_at(self.e, base, index, self.kind)
        assert isinstance(value, Value)
        return value

    def store(self, vectors: list[Value], target: Value) -> None:
        """Emit the stores of a tile's vectors as its lines, at ``target``."""
        if self.factor.has_units == self.factor.is_along_k:
            vectors = transposed(vectors)
        for number, vector in enumerate(vectors):
            self.f.store(vector, self.f.offset(target, number * LINE_BYTES))


def _smaller(vectors: Sequence[Value], least: Value) -> Value:
    """Emit the least of ``least`` and the bf16 magnitudes minus 1, as integers, in ``vectors``."""
    f = least.function
    for vector in vectors:
        least = f.intrinsic("umin", (vector.bitcast(least.type) & 0x7FFF) - 1, least)
    return least


# -- multiplication


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
        kernel = program.shared(lambda name: _emit_packing(module, name, factor))
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
    form = f"tiles of {factor.matrix} {factor.kind} {gemm.k} x {gemm.n}, {argument.parts}"
    return arguments.address(
        argument, factor.matrix_bytes, form, lambda source, target: pack(every, source, target)
    )


def _emit_products(module: Module, name: str, plan: AmxPlan, epilogue: ProductEpilogue) -> LoopKernel:
    """Emit the kernel (packed A, packed B, the epilogue's pointers ..., begin, end) of a product's tasks."""
    f = module.function(name, [PTR] * (2 + epilogue.count) + [I64] * 2)
    a, b, *pointers, begin, end = f.parameters
    module.constant_bytes(_CONFIGURATION_NAME, CONFIGURATION)
    f.call(None, "llvm.x86.ldtilecfg", f.address(_CONFIGURATION_NAME))
    arrays = epilogue.arrays or EpilogueArrays()
    product = _AmxProduct(f, plan, TileEpilogue(f, plan, epilogue.bind, pointers, arrays))
    with f.loop(begin, end) as loop:
        product.task(a, b, loop.index)
    f.call(None, "llvm.x86.tilerelease")
    form = str(plan)
    if arrays.streamed is not None:
        f.call(None, "llvm.x86.sse.sfence")
        form += "; stored past the caches"
    f.finish()
    gemm = plan.gemm
    return LoopKernel(name, gemm.batches * plan.row_tasks * plan.column_tasks, 1, gemm.work // 8, form)


class _AmxProduct:
    """Emits tasks. Tile registers 0 to 3 hold sums, 4 and 5 tiles of A, 6 and 7 tiles of B."""

    def __init__(self, f: Function, plan: AmxPlan, epilogue: TileEpilogue) -> None:
        self.f, self.plan, self.epilogue = f, plan, epilogue
        self.a, self.b = plan.a, plan.b
        self.halves = plan.rows // LINES
        self.kept_line = plan.width * I32.size
        self.kept = f.allocate(I8, plan.height * self.kept_line if plan.blocks > 1 else LINE_BYTES)

    def task(self, a: Value, b: Value, number: Value) -> None:
        """Emit the task with index ``number``: a block of C in one batch, K-block by K-block."""
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        of_batch = plan.row_tasks * plan.column_tasks
        batch = number.unsigned_divide(of_batch)
        number = number - batch * of_batch
        line = number.unsigned_divide(plan.column_tasks)
        self.batch = batch
        self.row, self.column = line * plan.height, (number - line * plan.column_tasks) * plan.width
        self.row_end = f.intrinsic("smin", self.row + plan.height, f.constant(I64, gemm.m))
        self.column_end = f.intrinsic("smin", self.column + plan.width, f.constant(I64, gemm.n))
        tiles = [
            f.offset(pointer, batch * factor.matrix_bytes if factor.batches > 1 else f.constant(I64, 0))
            for pointer, factor in ((a, self.a), (b, self.b))
        ]
        self.a_tiles, self.b_tiles = (
            f.offset(pointer, factor.head_bytes)
            for pointer, factor in zip(tiles, (self.a, self.b), strict=True)
        )
        with (
            f.loop(0, plan.steps, plan.depth) as steps,
            f.loop(self.column, self.column_end, plan.panel) as columns,
            f.loop(self.row, self.row_end, plan.rows) as rows,
        ):
            self.sums(rows.index, columns.index, steps.index)

    def sums(self, row: Value, column: Value, step: Value) -> None:
        """Emit the sums of ``plan.rows`` x 32 elements of C over a K-block; after the last, the epilogue."""
        f, plan = self.f, self.plan
        kept = f.offset(self.kept, (row - self.row) * self.kept_line + (column - self.column) * I32.size)
        if plan.blocks == 1:
            self.zero()
        else:
            with choose(f, step.compare("eq", 0)) as choice:
                self.zero()
                choice.otherwise()
                self.move("tileloadd64", kept, self.kept_line)
        a, b = (
            f.offset(tiles, line * (plan.steps * LINE_BYTES) + step * TILE_BYTES)
            for tiles, line in ((self.a_tiles, row), (self.b_tiles, column))
        )
        self.multiply(
            a, b, f.intrinsic("smin", f.constant(I64, plan.steps) - step, f.constant(I64, plan.depth))
        )
        if plan.blocks == 1:
            self.finish(row, column)
            return
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

    def tile(
        self, instruction: str, number: int, address: Value, offset: int, distance: int = LINE_BYTES
    ) -> None:
        f = self.f
        operands = f.constant(I8, number), f.offset(address, offset), f.constant(I64, distance)
        f.call(None, f"llvm.x86.{instruction}", *operands)

    def multiply(self, a: Value, b: Value, count: Value) -> None:
        """Emit the loop over ``count`` tiles along k, from the tiles of A and B at ``a`` and ``b`` on."""
        f, block = self.f, self.plan.steps * TILE_BYTES
        with f.loop(0, count) as loop:
            offset = loop.index * TILE_BYTES
            a_tile, b_tile = f.offset(a, offset), f.offset(b, offset)
            self.tile("tileloadd64", 6, b_tile, 0)
            self.tile("tileloadd64", 4, a_tile, 0)
            self.add_products(0, 4, 6)
            self.tile("tileloadd64", 7, b_tile, block)
            self.add_products(1, 4, 7)
            if self.halves > 1:
                self.tile("tileloadd64", 5, a_tile, block)
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
