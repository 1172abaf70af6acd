"""Matrix products: packed panels and register tiles.

C[m, n] = sum over k of A[m, k] * B[k, n], for any strides of A and B, in batches. Lanes run along n. A tile
of rows x vectors of C stays in registers while k runs: every step loads one row of a panel of B and
broadcasts one element of each row of A. B is packed into panels (converted, transposed and padded on the
way) unless it can be read where it is; A is packed where its type or its stride would hurt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hloom.cpu.contraction import accumulator_type, converted, multiply_add
from hloom.cpu.elements import Elements, View
from hloom.cpu.index import Index, Variable, row_major_strides
from hloom.cpu.llvm_text import I1, I8, I64, PTR, Function, Module, Value
from hloom.cpu.loops import LoopKernel
from hloom.cpu.types import (
    Element,
    constant,
    from_storage,
    register_type,
    round_to,
    storage_bytes,
    storage_type,
)
from hloom.ir.instruction import HloInstruction
from hloom.shape.element_type import ElementType

ROWS: Final = 8
VECTORS: Final = 2
BLOCK_BYTES: Final = 1 << 18
"""Bytes of A that stay in the second-level cache while all panels of B pass by."""
MANY_BATCHES: Final = 4
"""From so many on, batches (or row blocks) are what threads share."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix in an array: element strides of its (batch, row, column) dimensions."""

    batch: tuple[int, ...]
    row: int
    column: int


@dataclass(frozen=True, slots=True)
class Gemm:
    """The numbers of a batched matrix product.

    Attributes:
        batch: batch sizes.
        m, n, k: sizes.
        a, b: where A[m, k] and B[k, n] lie.
        kind: the type in which products are summed.
        a_type, b_type: types of the operands.
        pack_a, pack_b: whether an operand is packed first.
    """

    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    kind: ElementType
    a_type: ElementType
    b_type: ElementType
    pack_a: bool
    pack_b: bool

    @property
    def lanes(self) -> int:
        """Lanes of a vector of results."""
        return 64 // register_type(self.kind).size

    @property
    def rows(self) -> int:
        """Rows of a register tile."""
        return min(self.m, ROWS // 2 if self.kind.is_complex else ROWS)

    @property
    def vectors(self) -> int:
        """Vectors in a row of a register tile."""
        return min(VECTORS, -(-self.n // self.lanes))

    @property
    def panel(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes

    @property
    def panels(self) -> int:
        """Number of panels."""
        return -(-self.n // self.panel)

    @property
    def batches(self) -> int:
        """Number of products."""
        return math.prod(self.batch)

    @property
    def packed_a_stride(self) -> int:
        """Elements from row to row of the packed A: padded, so that rows do not share cache sets."""
        return -(-self.k // 16) * 16 + 16

    def workspace(self) -> tuple[int, int]:
        """Bytes of the packed A and the packed B."""
        size = storage_bytes(self.kind)
        a = self.batches * self.m * self.packed_a_stride * size if self.pack_a else 0
        b = self.batches * self.panels * self.panel * self.k * size if self.pack_b else 0
        return -(-a // 64) * 64, -(-b // 64) * 64


def gemm_of(dot: HloInstruction) -> Gemm | None:
    """A dot as a matrix product of strided matrices; None where its dimensions do not merge into that."""
    operation: Any = dot.operation
    lhs, rhs = (o.shape for o in dot.operands)
    result = dot.shape.element_type
    if not (dot.shape.is_static and lhs.is_static and rhs.is_static) or 0 in (
        *lhs.dimensions,
        *rhs.dimensions,
    ):
        return None
    lhs_contracting: tuple[int, ...] = operation.lhs_contracting_dims
    rhs_contracting: tuple[int, ...] = operation.rhs_contracting_dims
    lhs_batch: tuple[int, ...] = operation.lhs_batch_dims
    rhs_batch: tuple[int, ...] = operation.rhs_batch_dims
    lhs_kept = _others(lhs.rank, lhs_batch, lhs_contracting)
    rhs_kept = _others(rhs.rank, rhs_batch, rhs_contracting)
    m = _merged(lhs.dimensions, lhs_kept)
    n = _merged(rhs.dimensions, rhs_kept)
    contracting = sorted(zip(lhs_contracting, rhs_contracting, strict=True))
    a_k = _merged(lhs.dimensions, [a for a, _ in contracting])
    b_k = _merged(rhs.dimensions, [b for _, b in contracting])
    if m is None or n is None or a_k is None or b_k is None:
        return None
    lhs_strides, rhs_strides = row_major_strides(lhs.dimensions), row_major_strides(rhs.dimensions)
    a = Matrix(tuple(lhs_strides[d] for d in lhs_batch), m[1], a_k[1])
    b = Matrix(tuple(rhs_strides[d] for d in rhs_batch), b_k[1], n[1])
    kind = accumulator_type(result)
    size = storage_bytes(kind)
    types = lhs.element_type, rhs.element_type
    lanes = 64 // register_type(kind).size
    far = a.column * size % 4096 == 0 or (a.row * size % 4096 == 0 and m[0] >= 16)
    pack_a = types[0] is not kind or (far and n[0] > 2 * lanes * VECTORS)
    ragged = n[0] % (lanes * min(VECTORS, -(-n[0] // lanes))) != 0
    wide = b.row * size % 4096 == 0 and a_k[0] >= 64
    pack_b = types[1] is not kind or b.column != 1 or ragged or wide
    batch = tuple(lhs.dimensions[d] for d in lhs_batch)
    return Gemm(batch, m[0], n[0], a_k[0], a, b, kind, *types, pack_a, pack_b)


def product_of(dot: HloInstruction) -> Gemm | None:
    """A dot as a matrix product, if it is worth one."""
    gemm = gemm_of(dot)
    if gemm is None or gemm.n == 1 or math.prod((gemm.batches, gemm.m, gemm.n)) < 16:
        return None
    return gemm


def _others(rank: int, *taken: Sequence[int]) -> list[int]:
    return [d for d in range(rank) if not any(d in some for some in taken)]


def _merged(dimensions: Sequence[int], chosen: Sequence[int]) -> tuple[int, int] | None:
    """(size, stride) of several dimensions as one; None if they do not follow each other in memory."""
    strides = row_major_strides(dimensions)
    size, stride = 1, 1
    for d in reversed(chosen):
        if dimensions[d] == 1:
            continue
        if size == 1:
            size, stride = dimensions[d], strides[d]
        elif strides[d] == stride * size:
            size *= dimensions[d]
        else:
            return None
    return size, stride


# -- packing


def emit_pack_b(module: Module, name: str, gemm: Gemm) -> LoopKernel:
    """(B, packed, begin, end): panels of B, each k x panel, converted and padded with zeros; over all
    panels.
    """
    f = module.function(name, [PTR, PTR, I64, I64])
    source, target, begin, end = f.parameters
    size, lanes, panel = storage_bytes(gemm.kind), gemm.lanes, gemm.panel
    last = gemm.n % panel
    elements = Elements(f, lanes, {})
    with f.loop(begin, end) as loop:
        batch = loop.index.unsigned_divide(gemm.panels) if gemm.batches > 1 else f.constant(I64, 0)
        number = loop.index - batch * gemm.panels
        base = _batch_base(f, gemm, gemm.b, batch, source, gemm.b_type)
        column = number * panel
        out = f.offset(target, loop.index * (gemm.k * panel * size))
        with f.loop(0, gemm.k) as row:
            row_target = f.offset(out, row.index * (panel * size))
            for vector in range(gemm.vectors):
                lane_column = Variable(gemm.n, "n")
                lane_column.value, lane_column.is_lane = column + vector * lanes, True
                row_variable = Variable(gemm.k, "k")
                row_variable.value = row.index
                index = Index.of(row_variable) * gemm.b.row + Index.of(lane_column) * gemm.b.column
                with (
                    elements.scope(),
                    elements.masked(_column_mask(elements, lane_column, gemm) if last else None),
                ):
                    loaded = _load_at(elements, base, index, gemm.b_type)
                value = converted(loaded, gemm.b_type, gemm.kind)
                if last:
                    mask = _column_mask(elements, lane_column, gemm)
                    value = elements.choose(mask, value, constant(f, gemm.kind, 0, lanes))
                _store_vector(f, value, f.offset(row_target, vector * lanes * size), gemm)
    f.finish()
    return LoopKernel(name, gemm.batches * gemm.panels, 1, gemm.batches * gemm.k * gemm.n)


def _column_mask(elements: Elements, column: Variable, gemm: Gemm) -> Value:
    index = elements.index_value(Index.of(column))
    return index.compare("slt", gemm.n)


def emit_pack_a(module: Module, name: str, gemm: Gemm) -> LoopKernel:
    """(A, packed, begin, end): rows of A one after the other, converted, at a padded stride; all rows."""
    f = module.function(name, [PTR, PTR, I64, I64])
    source, target, begin, end = f.parameters
    size, lanes = storage_bytes(gemm.kind), gemm.lanes
    elements = Elements(f, lanes, {})
    with f.loop(begin, end) as loop:
        batch = loop.index.unsigned_divide(gemm.m) if gemm.batches > 1 else f.constant(I64, 0)
        row = Variable(gemm.m, "m")
        row.value = loop.index - batch * gemm.m
        base = _batch_base(f, gemm, gemm.a, batch, source, gemm.a_type)
        out = f.offset(target, loop.index * (gemm.packed_a_stride * size))
        column = Variable(gemm.k, "k")
        column.is_lane = True

        def step(start: Value, mask: Value | None) -> None:
            column.value = start
            index = Index.of(row) * gemm.a.row + Index.of(column) * gemm.a.column
            with elements.scope(), elements.masked(mask):
                loaded = _load_at(elements, base, index, gemm.a_type)
            _store_vector(f, converted(loaded, gemm.a_type, gemm.kind), f.offset(out, start * size), gemm)

        whole = gemm.k // lanes * lanes
        with f.loop(0, whole, lanes) as inner:
            step(inner.index, None)
        if whole < gemm.k:
            tail = f.constant(I1.vector(lanes), [int(whole + lane < gemm.k) for lane in range(lanes)])
            step(f.constant(I64, whole), tail)
    f.finish()
    return LoopKernel(name, gemm.batches * gemm.m, 1, gemm.batches * gemm.k * gemm.m)


def _batch_base(
    f: Function, gemm: Gemm, matrix: Matrix, batch: Value, base: Value, kind: ElementType
) -> Value:
    """The address of a matrix of the batch."""
    if gemm.batches == 1:
        return base
    offset = f.constant(I64, 0)
    rest = batch
    for size, stride in zip(reversed(gemm.batch), reversed(matrix.batch), strict=True):
        quotient = rest.unsigned_divide(size)
        offset = offset + (rest - quotient * size) * stride
        rest = quotient
    return f.offset(base, offset * storage_bytes(kind))


def _load_at(elements: Elements, base: Value, index: Index, kind: ElementType) -> Element:
    """The element at a linear index behind an address."""
    view = View(base, kind, (1 << 40,))
    return elements.load(view, (index,))


def _store_vector(f: Function, value: Element, pointer: Value, gemm: Gemm) -> None:
    """A vector as it is packed: all real parts, then all imaginary ones."""
    for number, part in enumerate(value if isinstance(value, tuple) else (value,)):
        f.store(part, f.offset(pointer, number * gemm.lanes * part.type.size))


def _load_packed(f: Function, pointer: Value, gemm: Gemm, lanes: int) -> Element:
    """What `_store_vector` stored."""
    part = register_type(gemm.kind).vector(lanes)
    real = f.load(part, pointer)
    return (real, f.load(part, f.offset(pointer, lanes * part.size))) if gemm.kind.is_complex else real


# -- the product


Finish = Callable[[Elements, Index, Index, Index, Element], None]
"""(elements, batch, row, column along the lanes, sum) → stores the result, with what is fused into it."""


def emit_gemm(
    module: Module,
    name: str,
    gemm: Gemm,
    extra: int,
    finish: Callable[[Sequence[Value]], Finish],
    *,
    looped: bool = False,
) -> LoopKernel:
    """(A or packed A, B or packed B, extra pointers ..., begin, end): blocks of rows of C, over all batches.

    ``finish`` is called once with the extra pointers and returns what is done with each vector of sums;
    ``looped`` says that this is much code, to be made once per tile and run in a loop.
    """
    f = module.function(name, [PTR, PTR] + [PTR] * extra + [I64, I64])
    a, b, *pointers, begin, end = f.parameters
    tile = _Tile(f, gemm, finish(pointers), looped=looped)
    blocks = -(-gemm.m // gemm.rows)
    zero = f.constant(I64, 0)
    if gemm.batches >= MANY_BATCHES:
        with f.loop(begin, end) as batch:
            tile.enter(batch.index, a, b)
            _row_blocks(f, gemm, tile, zero, f.constant(I64, blocks))
        trips = gemm.batches
    else:
        split_panels = blocks < MANY_BATCHES and gemm.panels > blocks
        with f.loop(0, gemm.batches) as batch:
            tile.enter(batch.index, a, b)
            if split_panels:
                _few_rows(f, gemm, tile, begin, end)
            else:
                _row_blocks(f, gemm, tile, begin, end)
        trips = gemm.panels if split_panels else blocks
    f.finish()
    return LoopKernel(name, trips, 1, gemm.batches * gemm.m * gemm.n * gemm.k)


def _few_rows(f: Function, gemm: Gemm, tile: _Tile, begin: Value, end: Value) -> None:
    """All rows for a range of panels."""
    with f.loop(begin, end) as panel:
        for row in range(0, gemm.m, gemm.rows):
            tile.run(f.constant(I64, row), min(gemm.rows, gemm.m - row), panel.index)


def _row_blocks(f: Function, gemm: Gemm, tile: _Tile, begin: Value, end: Value) -> None:
    """A range of row blocks: some at a time, so that they stay in the cache while all panels pass by."""
    whole, rest = gemm.m // gemm.rows, gemm.m % gemm.rows
    limit = f.intrinsic("smin", end, f.constant(I64, whole)) if rest else end
    step = max(1, min(BLOCK_BYTES // (gemm.k * storage_bytes(gemm.kind) * gemm.rows), whole))
    with f.loop(begin, limit, step) as some:
        last = f.intrinsic("smin", some.index + step, limit)
        with f.loop(0, gemm.panels) as panel, f.loop(some.index, last) as block:
            tile.run(block.index * gemm.rows, gemm.rows, panel.index)
    if rest:
        with f.when(end.compare("sgt", whole)), f.loop(0, gemm.panels) as panel:
            tile.run(f.constant(I64, whole * gemm.rows), rest, panel.index)


class _Tile:
    """Emits the product of some rows of A and a panel of B."""

    def __init__(self, f: Function, gemm: Gemm, finish: Finish, *, looped: bool) -> None:
        self.f, self.gemm, self.finish, self.looped = f, gemm, finish, looped
        self.batch = Variable(gemm.batches, "b")
        if looped:
            self.scratch = f.allocate(I8, gemm.rows * gemm.panel * storage_bytes(gemm.kind))

    def enter(self, batch: Value, a: Value, b: Value) -> None:
        """Begin with the matrices of one batch."""
        f, gemm = self.f, self.gemm
        self.batch.value = batch
        size = storage_bytes(gemm.kind)
        if gemm.pack_a:
            self.a = f.offset(a, batch * (gemm.m * gemm.packed_a_stride * size)) if gemm.batches > 1 else a
            self.a_row, self.a_column = gemm.packed_a_stride, 1
        else:
            self.a = _batch_base(f, gemm, gemm.a, batch, a, gemm.a_type)
            self.a_row, self.a_column = gemm.a.row, gemm.a.column
        if gemm.pack_b:
            self.b = (
                f.offset(b, batch * (gemm.panels * gemm.panel * gemm.k * size)) if gemm.batches > 1 else b
            )
        else:
            self.b = _batch_base(f, gemm, gemm.b, batch, b, gemm.b_type)

    def run(self, row: Value, height: int, panel: Value) -> None:
        """All of k for one tile, then what is done with the sums."""
        f, gemm = self.f, self.gemm
        size, lanes = storage_bytes(gemm.kind), gemm.lanes
        if gemm.pack_b:
            base, step = f.offset(self.b, panel * (gemm.k * gemm.panel * size)), gemm.panel * size
        else:
            base, step = f.offset(self.b, panel * (gemm.panel * size)), gemm.b.row * size
        rows = [f.offset(self.a, (row + r) * (self.a_row * size)) for r in range(height)]
        zero = constant(f, gemm.kind, 0, lanes)
        start = [zero] * (height * gemm.vectors)
        flat = [v for element in start for v in _parts(element)]
        elements = Elements(f, lanes, {})
        with f.loop(0, gemm.k, 1, flat) as loop:
            sums = _elements(loop.values, gemm)
            line = f.offset(base, loop.index * step)
            b = [
                _load_packed(f, f.offset(line, v * lanes * size), gemm, lanes)
                if gemm.pack_b
                else self._load_b(line, v)
                for v in range(gemm.vectors)
            ]
            made: list[Element] = []
            for r in range(height):
                place = f.offset(rows[r], loop.index * (self.a_column * size))
                a = self._broadcast_a(place)
                made += [
                    multiply_add(elements, gemm.kind, a, b[v], sums[r * gemm.vectors + v])
                    for v in range(gemm.vectors)
                ]
            loop.next(*(v for element in made for v in _parts(element)))
        self._finish_tile(_elements(loop.values, gemm), row, height, panel)

    def _load_b(self, line: Value, vector: int) -> Element:
        f, gemm = self.f, self.gemm
        stored = storage_type(gemm.b_type)
        width = storage_bytes(gemm.b_type) * gemm.lanes
        pointer = f.offset(line, vector * width)
        if gemm.kind.is_complex:
            both = f.load(stored.vector(2 * gemm.lanes), pointer)
            return both.shuffle(range(0, 2 * gemm.lanes, 2)), both.shuffle(range(1, 2 * gemm.lanes, 2))
        return from_storage(f.load(stored.vector(gemm.lanes), pointer), gemm.b_type)

    def _broadcast_a(self, place: Value) -> Element:
        f, gemm = self.f, self.gemm
        if gemm.kind.is_complex and not gemm.pack_a:
            part = storage_type(gemm.a_type)
            return f.load(part, place).splat(gemm.lanes), f.load(part, f.offset(place, 1, part)).splat(
                gemm.lanes
            )
        stored = storage_type(gemm.kind)
        return from_storage(f.load(stored, place), gemm.kind).splat(gemm.lanes)

    def _finish_tile(self, sums: list[Element], row: Value, height: int, panel: Value) -> None:
        """Hand every vector of sums on; where much follows, by a loop over a copy of the tile in memory."""
        gemm = self.gemm
        if not self.looped:
            for number, value in enumerate(sums):
                r, v = divmod(number, gemm.vectors)
                self._finish_vector(value, row + r, panel * gemm.panel + v * gemm.lanes)
            return
        f = self.f
        vector = gemm.lanes * storage_bytes(gemm.kind)
        for number, value in enumerate(sums):
            _store_vector(f, value, f.offset(self.scratch, number * vector), gemm)
        with f.loop(0, height) as line, f.loop(0, gemm.vectors) as column:
            place = (line.index * gemm.vectors + column.index) * vector
            value = _load_packed(f, f.offset(self.scratch, place), gemm, gemm.lanes)
            self._finish_vector(value, row + line.index, panel * gemm.panel + column.index * gemm.lanes)

    def _finish_vector(self, value: Element, row: Value, column: Value) -> None:
        gemm = self.gemm
        elements = Elements(self.f, gemm.lanes, {})
        row_variable, lane = Variable(gemm.m, "m"), Variable(gemm.n, "n")
        row_variable.value = row
        lane.is_lane, lane.value = True, column
        mask = _column_mask(elements, lane, gemm) if gemm.n % gemm.panel else None
        with elements.masked(mask):
            self.finish(elements, Index.of(self.batch), Index.of(row_variable), Index.of(lane), value)


def _parts(element: Element) -> tuple[Value, ...]:
    return element if isinstance(element, tuple) else (element,)


def _elements(values: Sequence[Value], gemm: Gemm) -> list[Element]:
    if gemm.kind.is_complex:
        return [(values[i], values[i + 1]) for i in range(0, len(values), 2)]
    return list(values)


def rounded(value: Element, gemm: Gemm, result: ElementType) -> Element:
    """A sum in the result's type."""
    return value if isinstance(value, tuple) or gemm.kind is result else round_to(value, result)
