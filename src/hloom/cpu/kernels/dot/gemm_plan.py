"""Tiling of matrix products into tasks, cache blocks and register tiles.

After Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008: a tile
of C stays in registers while a panel of B streams from the first-level cache; a block of A stays in the
second-level cache while all panels are read. Operands without unit stride along the lanes are packed, so that
the micro-kernel reads them contiguously.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from hloom.codegen.target import Target, registers
from hloom.codegen.types import register_type, storage_bytes
from hloom.cpu.kernels.dot.gemm import Gemm
from hloom.cpu.kernels.dot.gemm_factors import Factors, factors_of
from hloom.records import dataclass
from hloom.shape import element_type as et

PANEL_BYTES: Final = 1 << 15
"""Bytes of a block of a panel of B, which stays in the first-level cache."""
GROUP_BYTES: Final = 1 << 21
"""Bytes of B that are packed at a time."""
MANY_ROWS: Final = 64
"""Number of rows from which packing pays for a B larger than the second-level cache."""
SECOND_LEVEL: Final = 1 << 20
"""Bytes of a second-level cache."""
STACK_BYTES: Final = 1 << 16
"""Bytes of each scratch area on the stack."""
FEWEST_PANELS: Final = 4
"""Minimum number of panels packed at a time, over which the packing of A is amortized."""
TASKS: Final = 16
"""Number of tasks needed to balance the load of the threads."""
MOST_ROWS: Final = 64
"""Rows of a task."""
BLOCK_ROWS: Final = 512
"""Most rows of a product whose tasks pack a large B in blocks; half if each of them packs columns of A."""
BLOCK_COLUMNS: Final = 64
"""Most columns of such a task."""
BLOCK_BYTES: Final = 1 << 18
"""Bytes of such a block of B, from which panels stream to the first-level cache, if A is not packed."""
FEWEST_BLOCK_TASKS: Final = 8
"""Fewest panels of B in a product whose tasks pack it in blocks."""
NARROW_BYTES: Final = 1 << 16
"""Bytes of B from which packing pays if a panel is no wider than a cache line."""
SLAB_BYTES: Final = 1 << 19
"""Most bytes of A in a slab of steps, so that they stay in the cache while all tasks pack their rows."""
STRIP_ROWS: Final = 24
"""Fewest rows that a task packs of such a slab."""
STRIP_PANELS: Final = 4
"""Panels of the columns to which an epilogue is applied at once, if a panel is narrow."""
DEEP: Final = 512
"""Steps along k that a product without blocks sums before it adds them to the sums of the steps before.
Blocks of reproducible products have as many, on all processors."""
SHALLOW: Final = 32
"""Number of products up to which the stores of results, contiguous along rows, limit a product."""
LINE: Final = 64
"""Bytes of a line of the caches."""
SETS: Final = 64
"""Sets of a first-level cache."""
WAYS: Final = 8
"""Lines of a set."""
PAGE: Final = 4096
"""Distance in bytes between rows whose multiples map to few cache sets."""


@dataclass(frozen=True, slots=True)
class TilePlan:
    """The division of a matrix product C = A B into register tiles, K-blocks and tasks, and its packing.

    A *step* along k adds one unit (``factors.group`` products) to each accumulator. A *panel* is a strip of B
    as wide as a register tile. A *task* is a block of C that one thread computes.

    Attributes:
        gemm: the product that is computed.
        transposed: whether ``gemm`` is the transpose of the dot's product.
        factors: how elements of A and B are packed, and by which instruction they are multiplied.
        whole: lanes of a full vector of accumulators.
        lanes: columns of a vector; fewer than ``whole`` if the result has fewer columns.
        rows, vectors: size of a register tile: its rows, and the vectors of each row.
        depth: steps of a K-block, after which the sums of a register tile are stored, and the next tile
            begins.
        height, width: rows and columns of a task.
        group_columns: columns of B that are packed at a time.
        slab: steps along k that are packed at a time if ``pack_b`` is ``"group"``; else all steps.
        pack_a: whether each task packs its rows of A.
        pack_b: who packs B into panels: nobody (``""``), each task at once (``"task"``) or by K-blocks
            (``"block"``), or a kernel before the tasks of each group of columns (``"group"``).
        in_place: whether the result's array holds the sums between K-blocks. False if tasks pack K-blocks of
            B: rows of the result may be a multiple of a page apart, and would then displace B from the
            caches.
        is_kept: whether the program's caller keeps the packed panels of B, such as weights, between calls.
    """

    gemm: Gemm
    transposed: bool
    factors: Factors
    whole: int
    lanes: int
    rows: int
    vectors: int
    depth: int
    height: int
    width: int
    group_columns: int
    slab: int
    pack_a: bool
    pack_b: str
    in_place: bool
    is_kept: bool = False

    @property
    def panel(self) -> int:
        """Return the number of columns of a panel, the strip of B that a register tile multiplies."""
        return self.lanes * self.vectors

    @property
    def panels(self) -> int:
        """Return the number of panels in a group, the columns of B that are packed at a time."""
        return self.group_columns // self.panel

    @property
    def steps(self) -> int:
        """Return the number of steps along k, each of ``factors.group`` products per accumulator."""
        return -(-self.gemm.k // self.factors.group)

    @property
    def blocks(self) -> int:
        return -(-self.steps // self.depth)

    @property
    def groups(self) -> int:
        return -(-self.gemm.n // self.group_columns)

    @property
    def slabs(self) -> int:
        return -(-self.steps // self.slab)

    @property
    def sums_are_matrix(self) -> bool:
        """Return whether an array of C's size keeps the sums between K-blocks: the result or the workspace.

        Otherwise each task keeps the sums of its own rows and columns on the stack.
        """
        return self.in_place or self.slabs > 1

    @property
    def first_tile_packs(self) -> bool:
        """Return whether the first register tile that multiplies a panel of B also packs this panel.

        This is so if each task packs its K-blocks of B, and the rows of B are contiguous.
        """
        return self.pack_b == "block" and self.gemm.b.column == 1

    @property
    def row_tasks(self) -> int:
        """Return the number of tasks along the rows of C; a task is a block of C that one thread computes."""
        return -(-self.gemm.m // self.height)

    @property
    def column_tasks(self) -> int:
        """Return the number of tasks (blocks of C for a thread) along the columns of one group.

        A group is the columns of B that are packed at a time.
        """
        return -(-min(self.group_columns, self.gemm.n) // self.width)

    @property
    def strip(self) -> int:
        """Return how many columns of C an epilogue of several arrays is applied to at once; 0 for a tile's.

        The pieces of rows that it reads and writes are then longer than a cache line.
        """
        gemm = self.gemm
        is_narrow = self.panel * storage_bytes(gemm.kind) <= LINE and self.lanes == self.whole
        is_plain = self.blocks == 1 and not self.transposed and gemm.n % self.panel == 0
        suits = is_narrow and is_plain and self.height <= MOST_ROWS and not gemm.kind.is_complex
        return STRIP_PANELS * self.panel if suits and self.width >= STRIP_PANELS * self.panel else 0

    @property
    def step_bytes(self) -> int:
        return self.panel * self.factors.unit_bytes

    @property
    def head_bytes(self) -> int:
        """Return the bytes of the initial accumulators at the start of a packed panel; 0 if it has none."""
        return self.panel * storage_bytes(self.gemm.kind) if self.factors.headed else 0

    @property
    def panel_bytes(self) -> int:
        return self.head_bytes + (self.depth if self.pack_b == "block" else self.slab) * self.step_bytes

    def __str__(self) -> str:
        words = [
            f"tiles of {self.rows} rows, {self.vectors} x {self.lanes} columns"
            + (", transposed" if self.transposed else ""),
            f"tasks of {self.height} rows, {self.width} columns, {self.depth} steps deep",
        ]
        if self.factors.group > 1:
            words.append(f"{self.factors.group} products at a time")
        if self.pack_a:
            words.append("rows packed")
        if self.pack_b:
            words.append(f"columns packed, {self.group_columns} by each {self.pack_b}")
        if self.slabs > 1:
            words.append(f"{self.slab} steps at a time")
        return "; ".join(words)

    def workspace(self) -> int:
        """Return the bytes of scratch memory that the kernels share: packed panels, and sums over slabs of k.

        The panels are those of one group of columns of B. A slab is the interval of steps along k that is
        packed at a time; the sums over earlier slabs need memory for all of C unless there is one slab or the
        result's array holds them. Return 0 if B is not packed by groups.
        """
        if self.pack_b != "group":
            return 0
        gemm = self.gemm
        sums = 0 if self.in_place or self.slabs == 1 else gemm.m * gemm.n * storage_bytes(gemm.kind)
        return self.packed_bytes + gemm.batches * sums

    @property
    def packed_bytes(self) -> int:
        """Return the bytes of the packed panels of one group of columns of B, of all batches."""
        return -(-self.gemm.batches * self.panels * self.panel_bytes // 64) * 64


def plan_tiles(
    gemm: Gemm, target: Target, *, plain_result: bool, factors: Callable[[Gemm], Factors] | None = None
) -> TilePlan:
    """Return the plan for computing a product in register tiles.

    ``plain_result``: C is stored in the accumulator type without an epilogue. ``factors`` chooses how
    elements are packed and multiplied; if it is None, `factors_of` does.
    """
    transposed = gemm.n < gemm.m and gemm.n <= 4 and gemm.a.row == 1 and gemm.a.column != 1
    if transposed:
        gemm = gemm.transposed
    return _Planner(
        gemm, target, transposed, plain_result and (not transposed or gemm.m == 1), factors
    ).plan()


def power_of_two(number: int) -> int:
    """Return the least power of two that is at least ``number``."""
    return 1 << (number - 1).bit_length()


def lines_at(distance: int) -> int:
    """Return how many cache lines, ``distance`` bytes apart, fit in half of a first-level cache.

    They are fewer if the distance is a multiple of a large power of two, as the lines then share few cache
    sets.
    """
    return WAYS // 2 * (SETS // math.gcd(distance // LINE, SETS))


class _Planner:
    def __init__(
        self,
        gemm: Gemm,
        target: Target,
        transposed: bool,
        plain_result: bool,
        factors: Callable[[Gemm], Factors] | None,
    ) -> None:
        self.gemm, self.target, self.transposed, self.plain_result = gemm, target, transposed, plain_result
        self.factors: Factors = factors(gemm) if factors is not None else factors_of(gemm, target)
        self.whole = target.vector_bytes // register_type(gemm.kind).size
        least = 2 if self.factors.group == 1 else 4
        self.lanes = max(least, min(self.whole, power_of_two(gemm.n)))
        self.rows, self.vectors = self.tile()
        self.panel = self.lanes * self.vectors

    def tile(self) -> tuple[int, int]:
        """Choose the size of a register tile; return (its rows, the vectors of each row)."""
        gemm, parts = self.gemm, 2 if self.gemm.kind.is_complex else 1
        free = registers(self.target) // parts
        across = -(-gemm.n // self.lanes)
        if gemm.m == 1 and parts == 1:
            # memory limits the product: long strips of the rows of B, an even number of them
            strips = -(-across // (free * 3 // 4))
            return 1, -(-across // (strips + strips % 2))
        if gemm.m <= 8:
            return gemm.m, max(1, min(8, across, (free - 2) // (gemm.m + 1)))
        if free >= 32:
            rows, vectors = 8, 2
        elif free >= 16:
            rows, vectors = (4, 2) if parts == 2 else (6, 2)
        else:
            rows, vectors = 2, 2
        return min(rows, gemm.m), min(vectors, across)

    def plan(self) -> TilePlan:
        gemm, unit = self.gemm, self.factors.unit_bytes
        steps = -(-gemm.k // self.factors.group)
        pack_b = self.packs_b(steps)
        pack_a = self.packs_a()
        widest = -(-gemm.n // self.panel) * self.panel
        if self.packs_slabs(pack_a, pack_b):
            return self.slabs(steps, widest)
        group = widest
        if pack_b == "group":
            fitting = GROUP_BYTES // (steps * unit * self.panel)
            group = min(widest, max(fitting, FEWEST_PANELS) * self.panel)
            count = -(-widest // group)
            group = -(-widest // (count * self.panel)) * self.panel
        if pack_b == "block":
            return self.blocks(steps, pack_a)
        if pack_b == "task":
            return self.made(steps, gemm.m, widest, widest, pack_a, pack_b)
        depth = self.block_depth(steps, pack_a) if self.has_blocks else self.panel_depth(steps)
        height = self.height(depth, group, pack_a)
        width = self.width(group, height)
        in_place = self.plain_result and not gemm.kind.is_complex
        if depth < steps and not in_place:
            while height * width * storage_bytes(gemm.kind) > STACK_BYTES and width > self.panel:
                width = -(-width // (2 * self.panel)) * self.panel
        return self.made(depth, height, width, group, pack_a, pack_b)

    def packs_slabs(self, pack_a: bool, pack_b: str) -> bool:
        """Return whether A and B are packed slab by slab, a slab being an interval of steps along k.

        ``pack_a`` and ``pack_b`` (see `TilePlan`) tell how they would be packed without slabs. Slabs pay if
        columns of A are contiguous: at each step, the rows of a task are then a part of a cache line, so that
        tasks which packed all steps would each fetch all lines of A from memory.
        """
        gemm, factors = self.gemm, self.factors
        by_columns = pack_a and gemm.a.row == 1 and gemm.a.column != 1 and gemm.m > self.rows
        is_plain = not (factors.headed or gemm.kind.is_complex or gemm.kind is et.PRED)
        large = gemm.k * gemm.n * storage_bytes(gemm.kind) > self.scattered_bytes
        return by_columns and is_plain and gemm.batches == 1 and (pack_b in ("group", "block") or large)

    def slabs(self, steps: int, widest: int) -> TilePlan:
        """Return the plan in which B is packed by slabs along k, and each task packs its rows of A.

        A slab is an interval of steps along k. ``steps`` is the number of all steps, ``widest`` the number of
        columns rounded up to whole panels. The rows of a task are a multiple both of a register tile's rows
        and of a vector's lanes.
        """
        gemm, unit = self.gemm, self.factors.unit_bytes
        depth = PANEL_BYTES // (self.panel * unit)
        depth = min(steps, -(-steps // (-(-steps // depth) * 16)) * 16)
        if self.target.reproducible:
            depth = self.common_depth(steps)
        most = min(GROUP_BYTES // (widest * unit), SLAB_BYTES // (gemm.m * unit))
        slab = min(steps, max(1, most // depth) * depth)
        group = min(widest, max(1, GROUP_BYTES // (slab * unit * self.panel)) * self.panel)
        strip = math.lcm(self.rows, self.whole)
        height = min(-(-STRIP_ROWS // strip), -(-gemm.m // strip)) * strip
        count = -(-TASKS // 2 // -(-gemm.m // height))
        width = -(-group // (count * self.panel)) * self.panel
        return self.made(depth, height, width, group, True, "group", slab)

    def panel_depth(self, steps: int) -> int:
        """Return the steps of a K-block such that its part of a panel of B stays in the first-level cache.

        ``steps`` is the number of all steps along k; it is returned if division into K-blocks does not pay.
        """
        if self.target.reproducible:
            return self.common_depth(steps)
        depth = max(16, PANEL_BYTES // (self.panel * self.factors.unit_bytes))
        if steps <= depth * 3 // 2 or self.gemm.m <= self.rows or self.gemm.kind is et.PRED:
            return steps
        depth = -(-steps // -(-steps // depth))
        return min(steps, -(-depth // 8) * 8)

    def common_depth(self, steps: int) -> int:
        """Return the steps of a K-block that is used if results must be the same on all processors.

        ``steps`` is the number of all steps along k; it is returned if there are few.
        """
        return steps if steps <= 2 * DEEP else DEEP

    def blocks(self, steps: int, pack_a: bool) -> TilePlan:
        """Return the plan whose tasks compute all rows of some columns and pack these columns by K-blocks.

        ``steps`` is the number of all steps along k; ``pack_a``: each task packs its rows of A, too.
        """
        gemm = self.gemm
        widest = -(-gemm.n // self.panel) * self.panel
        height = -(-gemm.m // self.rows) * self.rows
        depth = self.block_depth(steps, pack_a)
        return self.made(depth, height, self.block_width(widest), widest, pack_a, "block")

    def block_width(self, widest: int) -> int:
        """Return the columns of a task that packs its columns of B by K-blocks.

        ``widest`` is the number of all columns, rounded up to whole panels.
        """
        return max(self.panel, min(BLOCK_COLUMNS, widest // TASKS) // self.panel * self.panel)

    def block_depth(self, steps: int, pack_a: bool) -> int:
        """Return the steps of a K-block for a large B, when a task multiplies the block by all rows of A.

        ``steps`` is the number of all steps along k; ``pack_a``: each task packs its rows of A.
        """
        if self.target.reproducible:
            return self.common_depth(steps)
        width = self.block_width(-(-self.columns // self.panel) * self.panel)
        columns, most = (width, PANEL_BYTES) if pack_a else (BLOCK_COLUMNS, BLOCK_BYTES)
        count = -(-steps // max(16, most // (columns * self.factors.unit_bytes)))
        return min(steps, -(-steps // (count * 16)) * 16)

    def made(
        self,
        depth: int,
        height: int,
        width: int,
        group: int,
        pack_a: bool,
        pack_b: str,
        slab: int | None = None,
    ) -> TilePlan:
        slab = slab or -(-self.gemm.k // self.factors.group)
        in_place = self.plain_result and not self.gemm.kind.is_complex and pack_b != "block"
        product = (self.gemm, self.transposed, self.factors, self.whole)
        tile = (self.lanes, self.rows, self.vectors)
        return TilePlan(*product, *tile, depth, height, width, group, slab, pack_a, pack_b, in_place)

    def height(self, depth: int, group: int, pack_a: bool) -> int:
        """Return the rows of a task (a block of C for one thread), a multiple of the rows of a register tile.

        ``depth``: steps of a K-block; ``group``: columns of B packed at a time; ``pack_a``: each task packs
        its rows of A.
        """
        gemm = self.gemm
        wide = group >= TASKS * self.panel
        few = wide and self.few_rows_of_large_b
        most = self.many_rows if few else MOST_ROWS
        if wide and self.factors.reads_rows and not pack_a:
            few, most = True, BLOCK_ROWS
        if pack_a:
            most = min(most, STACK_BYTES // ((depth + 16) * self.factors.unit_bytes))
        if not pack_a and depth * self.factors.group >= gemm.k:
            most = max(self.rows, (1 << 18) // (gemm.k * storage_bytes(gemm.a_type)))
        rows_wanted = gemm.m if few else -(-gemm.m * gemm.batches // TASKS)
        height = max(self.rows, min(most, rows_wanted))
        return min(-(-height // self.rows) * self.rows, -(-gemm.m // self.rows) * self.rows)

    @property
    def many_rows(self) -> int:
        """Return how many rows C must have so that packing a large B pays.

        It is twice as many if even the smallest group of packed panels exceeds the cache.
        """
        steps = -(-self.gemm.k // self.factors.group)
        least = FEWEST_PANELS * self.panel * steps * self.factors.unit_bytes
        return 2 * MANY_ROWS if least > GROUP_BYTES else MANY_ROWS

    @property
    def few_rows_of_large_b(self) -> bool:
        """Return whether C has few rows and B exceeds the cache, so that tasks divide only the columns.

        Tasks that divided the rows would each read all of B.
        """
        gemm = self.gemm
        large = 2 * gemm.k * gemm.n * storage_bytes(gemm.b_type) > SECOND_LEVEL
        return large and gemm.batches == 1 and gemm.m <= self.many_rows

    def width(self, group: int, height: int) -> int:
        """Return the columns of a task (a block of C for one thread) that has ``height`` rows.

        It is ``group``, the columns of B packed at a time, unless there would be too few tasks.
        """
        tasks = self.gemm.batches * -(-self.gemm.m // height)
        if tasks >= TASKS // 2:
            return group
        count = -(-TASKS // tasks)
        return max(self.panel, -(-group // (count * self.panel)) * self.panel)

    def packs_a(self) -> bool:
        gemm = self.gemm
        if self.factors.reads_rows:
            return gemm.a.column != 1 or gemm.k % self.factors.group != 0
        if gemm.a_type is not gemm.kind or self.factors.group > 1:
            return True
        if gemm.n <= 2 * self.panel or gemm.m == 1:
            return False
        size = storage_bytes(gemm.kind)
        if gemm.a.column == 1:
            return False
        small = gemm.m * gemm.k * size <= 1 << 18
        return gemm.a.row != 1 or not small or gemm.a.column * size % PAGE == 0

    @property
    def scattered_bytes(self) -> int:
        """Return from how many bytes of B on its rows lie too far apart to be read without packing.

        If a panel is no wider than a cache line, every row of it is in another set of the cache or in another
        page. A with few rows reads a panel too rarely.
        """
        is_narrow = self.panel * storage_bytes(self.gemm.kind) <= LINE
        return NARROW_BYTES if is_narrow and self.gemm.m > 2 * self.rows else SECOND_LEVEL

    @property
    def columns(self) -> int:
        """Return how many columns of B the same A multiplies: those of all batches if these share A."""
        return self.gemm.n * (1 if any(self.gemm.a.batch) else self.gemm.batches)

    @property
    def has_blocks(self) -> bool:
        """Return whether k is divided into K-blocks that suit a large B: each is multiplied by all rows of A.

        It does not depend on whether the caller keeps B packed between calls, as the order of additions must
        not. It is false for narrow elements that are multiplied in groups: these are packed before all tasks,
        since K-blocks cost 4 % more for bf16 in whole models.
        """
        gemm, factors, columns = self.gemm, self.factors, self.columns
        packs_a = self.packs_a()
        least = SECOND_LEVEL if packs_a else self.scattered_bytes  # few columns do not pay for packing A
        is_large = gemm.k * columns * storage_bytes(gemm.kind) >= least
        is_plain = not (factors.headed or factors.group > 1 or gemm.kind.is_complex or gemm.kind is et.PRED)
        is_one = columns == gemm.n * gemm.batches
        has_vectors = 1 in (gemm.b.row, gemm.b.column)
        most = BLOCK_ROWS // 2 if packs_a and gemm.a.column != 1 else BLOCK_ROWS
        is_high = self.rows < gemm.m <= most
        is_wide = columns >= FEWEST_BLOCK_TASKS * self.panel
        return is_large and is_wide and is_plain and is_one and has_vectors and is_high

    def packs_b(self, steps: int) -> str:
        gemm = self.gemm
        size = storage_bytes(gemm.kind)
        fits = -(-gemm.n // self.panel) * self.panel * steps * self.factors.unit_bytes <= STACK_BYTES
        if self.has_blocks and gemm.batches == 1:
            return "block"
        how = "task" if gemm.batches >= TASKS // 4 and fits else "group"
        if self.factors.group > 1 or gemm.b.column != 1:
            return how
        if gemm.m <= self.rows:
            return ""
        if gemm.b_type is not gemm.kind:
            return how
        if gemm.n * size <= 64:
            return ""
        uneven = gemm.b.row * size % 64 != 0 and gemm.m > 4 * self.rows
        wide = gemm.b.row * size % PAGE == 0 and gemm.k >= 64
        many = gemm.m >= BLOCK_ROWS or (gemm.m >= 8 * self.rows and gemm.batches >= TASKS // 4)
        crowded = many and gemm.k > lines_at(gemm.b.row * size)
        large = gemm.k * gemm.n * size > SECOND_LEVEL and gemm.m > self.many_rows
        return how if uneven or wide or crowded or large else ""
