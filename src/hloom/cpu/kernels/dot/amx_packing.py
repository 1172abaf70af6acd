"""Packing of a matrix product's factors into the tiles of Intel AMX.

A tile has 16 lines of 64 bytes. The lines of a tile of A are rows of A, 64 bytes along k. Those of a tile of
B are *units*: 4 bytes along k of each of 16 columns. While bf16 numbers are packed, their least magnitudes
are taken, which decide whether AMX is exact (see `gemm_pairs`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from hloom.codegen.elements import Elements
from hloom.codegen.llvm import I16, I32, I64, PTR, Function, Module, Value
from hloom.codegen.loops import LoopKernel
from hloom.cpu.kernels.dot.gemm import Gemm, Matrix, batch_base, batch_indices, load_at
from hloom.cpu.kernels.dot.gemm_pairs import Magnitudes
from hloom.cpu.kernels.movement.transposition import transposed
from hloom.ir.affine import Index, Variable
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
PACKED_TILES: Final = 32
"""Tiles that one task packs."""


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
    def depth(self) -> int:
        """Return the number of elements along k, after which zeros fill the last tile."""
        return self.gemm.k

    @property
    def must_be_finite(self) -> bool:
        """Return whether AMX is not exact for infinite elements and NaN."""
        return False

    @property
    def form(self) -> str:
        """Return a text that describes the order of the elements in the packed form."""
        return f"tiles of {self.matrix} {self.kind} {self.gemm.k} x {self.lines}"

    def packer(self, f: Function) -> TilePacker:
        """Return the emitter of the packing."""
        return TilePacker(f, self)

    @property
    def steps(self) -> int:
        """Return the number of tiles along k."""
        return steps_of(self.gemm)

    @property
    def blocks(self) -> int:
        """Return the number of blocks of 16 lines, an even number."""
        return -(-self.lines // (2 * LINES)) * 2

    @property
    def batches(self) -> int:
        """Return the number of matrices: batch dimensions along which the factor is the same do not count."""
        return math.prod(
            size for size, stride in zip(self.gemm.batch, self.matrix.batch, strict=True) if stride
        )

    def tiles(self, packed: Value, batch: Value) -> Value:
        """Emit the address of the first tile in batch ``batch`` of a packed form."""
        number = batch
        if not all(self.matrix.batch):
            number = Function.of(packed).constant(I64, 0)
            indices = batch_indices(self.gemm, batch)
            for index, size, stride in zip(indices, self.gemm.batch, self.matrix.batch, strict=True):
                number = number * size + index if stride else number
        return Function.of(packed).offset(packed, number * self.matrix_bytes + self.head_bytes)

    @property
    def distinct(self) -> TileMatrix:
        """Return the factor without the batch dimensions along which it is the same."""
        real = [n for n, stride in enumerate(self.matrix.batch) if stride]
        gemm = replace(self.gemm, batch=tuple(self.gemm.batch[n] for n in real))
        return replace(
            self, gemm=gemm, matrix=replace(self.matrix, batch=tuple(self.matrix.batch[n] for n in real))
        )

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


def steps_of(gemm: Gemm) -> int:
    """Return the number of tiles along k."""
    return -(-gemm.k // (LINES * group_of(gemm)))


def group_of(gemm: Gemm) -> int:
    """Return the number of elements in a unit: 2 of bf16, 4 of integers of 8 bits."""
    return 2 if gemm.a_type is et.BF16 else 4


def emit_packing(module: Module, name: str, factor: TileMatrix) -> LoopKernel:
    """Emit the kernel (factor, packed form, begin, end) that packs a factor into tiles."""
    factor = factor.distinct
    f = module.function(name, [PTR, PTR, I64, I64])
    source, target, begin, end = f.parameters
    packer = factor.packer(f)
    with f.loop(begin, end) as loop:
        batch = loop.index.unsigned_divide(factor.tasks)
        number = loop.index - batch * factor.tasks
        base = batch_base(f, factor.gemm, factor.matrix, batch, source, factor.kind)
        packer.task(base, f.offset(target, batch * factor.matrix_bytes), number)
    f.finish()
    trips = factor.batches * factor.tasks
    return LoopKernel(name, trips, 1, factor.batches * factor.lines * factor.gemm.k // 2)


class TilePacker:
    """Emits the packing of a factor, tile by tile."""

    def __init__(self, f: Function, factor: TileMatrix) -> None:
        self.f, self.factor = f, factor
        lanes = LINES * factor.group if factor.is_along_k else LINES
        self.e = Elements(f, lanes, {})
        self.line, self.depth = Variable(factor.lines, "line"), Variable(factor.depth, "k")
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
            self.begin(blocks.index * LINES)
            with f.loop(step, last_step, 1, blocks.values) as steps:
                vectors = self.vectors(base, blocks.index * LINES, steps.index)
                steps.next(
                    *[_smaller(vectors, least, finite=factor.must_be_finite) for least in steps.values]
                )
                place = blocks.index * factor.block_bytes + steps.index * TILE_BYTES + factor.head_bytes
                self.store(vectors, f.offset(target, place))
            blocks.next(*steps.values)
        for least in blocks.values:
            smallest = f.intrinsic("vector.reduce.umin", least, result=I16)
            f.store(smallest, f.offset(target, number, I16))

    def begin(self, line: Value) -> None:
        """Emit what a block of lines has in common, which begins at ``line``."""

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
                if factor.depth % e.lanes:
                    mask = e.index_value(Index.of(self.depth)).compare("slt", factor.depth)
                vectors.append(self.units(self.load(base, mask)))
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
                    if factor.depth % (LINES * factor.group):
                        inside = self.depth.value.compare("slt", factor.depth).splat(LINES)
                        mask = inside if mask is None else mask & inside
                    members.append(self.load(base, mask))
            while len(members) > 1:
                half = len(members) // 2
                members = [a.interleave(b) for a, b in zip(members[:half], members[half:], strict=True)]
            vectors.append(self.units(members[0]))
            f.split_block()
        return vectors

    def units(self, vector: Value) -> Value:
        """Return a vector of elements as units."""
        return vector.bitcast(I32.vector(LINES))

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


def _smaller(vectors: Sequence[Value], least: Value, *, finite: bool) -> Value:
    """Emit the least of ``least`` and the bf16 magnitudes minus 1, as integers, in ``vectors``.

    ``finite``: infinities and NaN count as the least subnormal number, for which AMX is not exact.
    """
    f = least.function
    for vector in vectors:
        magnitude = vector.bitcast(least.type) & 0x7FFF
        if finite:
            magnitude = magnitude.compare("uge", 0x7F80).select(1, magnitude)
        least = f.intrinsic("umin", magnitude - 1, least)
    return least
