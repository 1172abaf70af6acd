"""The epilogues of the tiles of a matrix product.

A long epilogue is a function of its own, which loops over the vectors of a tile. What it reads from arrays of
the product's dimensions is fetched while earlier tiles multiply.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from hloom.codegen.accumulators import flatten
from hloom.codegen.elements import Elements
from hloom.codegen.llvm import I1, I8, I64, Function, Operand, Value
from hloom.codegen.llvm.memory import prefetch
from hloom.codegen.llvm.structure import call_apart
from hloom.codegen.llvm.structured import choose
from hloom.codegen.types import Element, from_storage, storage_bytes, storage_type
from hloom.cpu.kernels.dot.gemm import Epilogue, Gemm
from hloom.cpu.kernels.dot.gemm_plan import LINE, SHALLOW
from hloom.ir.affine import Index, Variable
from hloom.records import dataclass

AHEAD: Final = 2
"""Tiles of a task by which arrays are fetched ahead: a tile of 128 steps takes less time than a read from
memory."""


@dataclass(frozen=True, slots=True)
class EpilogueArrays:
    """The arrays of a fused epilogue, as `TileEpilogue` passes them to the epilogue's separate function.

    Attributes:
        read: (index among the epilogue's pointers, bytes of an element) for each array that the epilogue
            reads and that has the dimensions of C.
        streamed: a function that takes the epilogue's pointers and returns (condition that the addresses
            allow non-temporal stores, epilogue with such stores). None if ordinary stores are always used.
    """

    read: tuple[tuple[int, int], ...] = ()
    streamed: Callable[[Sequence[Value]], tuple[Value, Epilogue]] | None = None


@dataclass(frozen=True, slots=True)
class ProductEpilogue:
    """The last stage of a product: stores of its sums, or a fusion's operations on them and their stores.

    Attributes:
        count: the number of arrays that the epilogue reads and writes.
        pointers: the addresses of these arrays in the program that calls the kernel.
        bind: takes the addresses as parameters of the kernel; returns the function that emits the epilogue.
        arrays: the arrays of a fused epilogue, which is emitted as a function of its own; None if the
            epilogue only stores the sums.
    """

    count: int
    pointers: Sequence[Value]
    bind: Callable[[Sequence[Value]], Epilogue]
    arrays: EpilogueArrays | None = None


@dataclass(frozen=True, slots=True)
class Strip:
    """A block of C, several register tiles wide, whose sums are kept until its epilogue.

    Attributes:
        row, column: its first row and column in C.
        height, width: its rows and columns.
    """

    row: Value
    column: Value
    height: Value
    width: Value

    def index(self, row: Value, column: Value) -> Value:
        """Emit the number of a sum of the strip, row by row."""
        return (row - self.row) * self.width + (column - self.column)


class TilePlanLike(Protocol):
    """The attributes of a product's plan that `TileEpilogue` reads; `TilePlan` documents them."""

    @property
    def gemm(self) -> Gemm: ...
    @property
    def transposed(self) -> bool: ...
    @property
    def steps(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def panel(self) -> int: ...
    @property
    def lanes(self) -> int: ...
    @property
    def whole(self) -> int: ...
    @property
    def height(self) -> int: ...
    @property
    def depth(self) -> int: ...


class TileEpilogue:
    """Emits the epilogue of register tiles: the operations fused after the dot, and the stores of results.

    Attributes:
        reads: (index among the epilogue's pointers, bytes of an element) for each array to prefetch.
        strip: columns of the tiles whose epilogue is applied at once; 0 if each tile has its own.
    """

    def __init__(
        self,
        f: Function,
        plan: TilePlanLike,
        bind: Callable[[Sequence[Value]], Epilogue],
        pointers: Sequence[Value],
        arrays: EpilogueArrays | None,
        strip: int = 0,
    ) -> None:
        self.f, self.plan, self.bind, self.pointers, self.arrays = f, plan, bind, pointers, arrays
        self.strip = strip if arrays is not None else 0
        self._strip: Strip | None = None
        self.unit = storage_bytes(plan.gemm.kind)
        is_deep = plan.steps > SHALLOW and not plan.transposed
        self.reads = arrays.read if arrays is not None and is_deep else ()
        if arrays is not None:
            sums = plan.height * strip if strip else plan.rows * plan.panel
            self.scratch = f.allocate(I8, sums * self.unit)

    # -- what the epilogue reads

    def ahead(self, batch: Value, row: Value, column: Value, task: tuple[Value, Value]) -> list[Value]:
        """Emit the addresses to prefetch: those that the epilogue will read `AHEAD` register tiles later.

        ``row`` and ``column`` are the place of the current tile in C; ``task`` is (first row, end row) of the
        block of C that the current thread computes. Return one address for each array of ``reads``.
        """
        f, plan, gemm = self.f, self.plan, self.plan.gemm
        if not self.reads:
            return []
        if self._strip is not None:
            element = self._line(batch, row) * gemm.n + (column + self.strip)
            return [f.offset(self.pointers[number], element * size) for number, size in self.reads]
        first, end = task
        later = row + min(AHEAD, plan.height // plan.rows) * plan.rows
        is_next = later.compare("sge", end)
        later = is_next.select(first + (later - end), later)
        column = is_next.select(column + plan.panel, column)
        element = self._line(batch, later) * gemm.n + column
        return [f.offset(self.pointers[number], element * size) for number, size in self.reads]

    def _line(self, batch: Value, row: Value) -> Value:
        return row + batch * self.plan.gemm.m if self.plan.gemm.batches > 1 else row

    def prefetch(self, ahead: Sequence[Value], part: Value, every: int, is_last: Value | None) -> None:
        """Emit the prefetches, for a later tile's epilogue, that belong to one part of a tile's K loop.

        The K loop is divided into parts of ``every`` steps, and each part prefetches a few rows; ``part`` is
        the index of the current part. ``ahead`` has the addresses from `ahead`. ``is_last`` is the condition
        that the K-block is the last one, the only one that prefetches; None if there is one K-block.
        """
        if not self.reads:
            return
        f, plan = self.f, self.plan
        rows = -(-plan.rows // max(1, plan.depth // every))
        is_wanted = part.compare("slt", -(-plan.rows // rows))
        with f.when(is_wanted if is_last is None else is_wanted & is_last):
            for address, (_, size) in zip(ahead, self.reads, strict=True):
                for r in range(rows):
                    line = f.offset(address, (part * rows + r) * (plan.gemm.n * size))
                    for offset in (*range(0, plan.panel * size, LINE), plan.panel * size - 1):
                        prefetch(f.offset(line, offset))

    # -- the epilogue of a tile

    def apply(
        self,
        sums: Sequence[Element],
        place: tuple[Value, Value, Value],
        height: int,
        masks: Sequence[Value | None],
    ) -> None:
        """Emit the epilogue of a register tile: fused operations and stores.

        ``sums`` are the tile's vectors, row by row, of ``height`` rows; ``place`` is the (batch, row, column)
        of the first in C. ``masks`` has, for each vector of a row, the mask of the lanes inside C; None for
        all lanes.
        """
        f, plan, vectors = self.f, self.plan, len(masks)
        batch, row, column = place
        if self.arrays is None:
            epilogue = self.bind(self.pointers)
            for number, value in enumerate(sums):
                r, v = divmod(number, vectors)
                self._vector(epilogue, value, (batch, row + r, column + v * plan.lanes), masks[v])
            return
        if self._strip is not None:
            for number, value in enumerate(sums):
                r, v = divmod(number, vectors)
                index = self._strip.index(row + r, column + v * plan.lanes)
                store_sums(value, f.offset(self.scratch, index * self.unit))
            return
        for number, value in enumerate(sums):
            store_sums(value, f.offset(self.scratch, number * plan.lanes * self.unit))
        masked = any(mask is not None for mask in masks)
        self.call(place, f.constant(I64, height), vectors, masked=masked)

    @contextmanager
    def of_strip(self, batch: Value, strip: Strip) -> Generator[None]:
        """Keep the sums of tiles emitted in the ``with`` block, then emit the epilogue of the strip."""
        self._strip = strip
        yield
        self._strip = None
        place = batch, strip.row, strip.column
        self.call(place, strip.height, strip.width.unsigned_divide(self.plan.lanes), masked=False)

    def call(
        self, place: tuple[Value, Value, Value], height: Value, vectors: Operand, *, masked: bool
    ) -> None:
        """Emit the epilogue of ``height`` rows of ``vectors`` vectors of sums in scratch memory.

        ``place`` is the (batch, row, column) of the first sum in C. ``masked``: a row may extend beyond the
        columns of C.
        """
        f = self.f
        across = vectors if isinstance(vectors, Value) else f.constant(I64, vectors)
        values = (self.scratch, *place, height, across, *self.pointers)
        call_apart(f, "epilogue", values, lambda g, parameters: self._apart(g, parameters, masked))

    def _apart(self, f: Function, parameters: Sequence[Value], masked: bool) -> None:
        """Emit the body of ``f``, a separate function for the epilogue: a loop over the vectors of a tile.

        ``parameters`` are: address of the tile in scratch memory, batch, row, column, rows, vectors per row,
        and the epilogue's pointers. ``masked``: the last vector of a row may extend beyond the columns of C.
        """
        plan, arrays = self.plan, self.arrays
        scratch, batch, row, column, height, vectors, *pointers = parameters

        def loop(epilogue: Epilogue) -> None:
            with f.loop(0, height) as line, f.loop(0, vectors) as across:
                number = line.index * vectors + across.index
                start = column + across.index * plan.lanes
                mask = None
                if masked:
                    lane = Variable(plan.gemm.n, "n", start)
                    lane.is_lane = True
                    mask = Elements(f, plan.lanes, {}).index_value(Index.of(lane)).compare("slt", plan.gemm.n)
                value = load_sums(f.offset(scratch, number * (plan.lanes * self.unit)), plan)
                self._vector(epilogue, value, (batch, row + line.index, start), mask)

        if arrays is None or arrays.streamed is None or plan.transposed or plan.lanes < plan.whole:
            loop(self.bind(pointers))
            return
        allowed, streamed = arrays.streamed(pointers)
        with choose(f, allowed) as choice:
            loop(streamed)
            choice.otherwise()
            loop(self.bind(pointers))

    def _vector(
        self, epilogue: Epilogue, value: Element, place: tuple[Value, Value, Value], mask: Value | None
    ) -> None:
        """Emit the epilogue of the vector of sums ``value`` at ``place``, its (batch, row, column) in C.

        ``mask`` selects the lanes that are stored; None selects all.
        """
        plan, gemm = self.plan, self.plan.gemm
        batch, row, column = place
        e = Elements(Function.of(column), plan.lanes, {})
        line, lane = Variable(gemm.m, "m", row), Variable(gemm.n, "n", column)
        lane.is_lane = True
        matrix = Index.of(Variable(gemm.batches, "b", batch)) if gemm.batches > 1 else Index(0)
        with e.masked(mask):
            if plan.transposed:
                epilogue(e, matrix, Index.of(lane), Index.of(line), value)
            else:
                epilogue(e, matrix, Index.of(line), Index.of(lane), value)


def store_sums(value: Element, pointer: Value) -> None:
    """Emit the store of a vector of accumulators to scratch memory.

    Complex numbers are stored as all real parts, then all imaginary parts; booleans as bytes.
    """
    f = Function.of(pointer)
    for number, part in enumerate(flatten([value])):
        stored = part.cast("zext", I8) if part.type.scalar is I1 else part
        f.store(stored, f.offset(pointer, number * stored.type.lanes, stored.type.scalar))


def load_sums(pointer: Value, plan: TilePlanLike) -> Element:
    """Emit the load of a vector of accumulators that `store_sums` stored."""
    f, lanes, kind = Function.of(pointer), plan.lanes, plan.gemm.kind
    stored = storage_type(kind)
    first = f.load(stored.vector(lanes), pointer)
    if kind.is_complex:
        return first, f.load(stored.vector(lanes), f.offset(pointer, lanes, stored))
    return from_storage(first, kind)
