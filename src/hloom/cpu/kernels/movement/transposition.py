"""Kernels that load along one dimension and store along another: tiles transposed in registers.

Where the lanes of a load would be strided in memory, and the elements along another loop are contiguous, a
square tile of both loops is loaded in whole vectors and transposed by shuffles; the results of the tile are
then computed row by row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm import F32, F64, I64, Function, Module, Type, Value
from hloom.codegen.loops import (
    LoopKernel,
    begin_kernel,
    emit_loop_kernel,
    loop_nest,
    root_values,
    vector_loop,
)
from hloom.codegen.types import Element, from_storage, storage_bytes, storage_type
from hloom.cpu.kernels.movement.interleaving import emit_rows_kernel, find_rows
from hloom.ir.affine import Index, Indices, Variable, linearize
from hloom.ir.instruction import HloInstruction
from hloom.ir.traits import Family
from hloom.plan.evaluations import is_uniform
from hloom.plan.iteration import accesses_of, is_nested, planned_space, result_shapes
from hloom.plan.kernel import KernelPlan
from hloom.plan.parts import KernelParts, merge_narrow_dimensions
from hloom.plan.space import Space
from hloom.records import dataclass
from hloom.shape.element_type import ElementType

MOST_MEMBERS: Final = 24
"""Maximum cost of a body that is emitted once for each row of a tile."""
LEAST_TRIPS: Final = 8
FEW_TILES: Final = 4
"""Tiles one below the other from which on threads share rows."""
LEAST_TILES: Final = 16
"""Fewest tiles beside each other of which threads share the columns."""
STACKED: Final = 4
"""Tiles one below the other that are computed before those beside them: they read adjacent lines of operands
whose rows are in separate pages. One at a time took 1.7 times as long for 2048 x 2048."""


def transposed(vectors: Sequence[Value]) -> list[Value]:
    """Emit the transposition of a square of vectors: lane j of vector i becomes lane i of vector j.

    There must be as many vectors as each has lanes, a power of two.
    """
    count = len(vectors)
    current = list(vectors)
    distance = count // 2
    while distance:
        following = list(current)
        low = [n if not n & distance else n - distance + count for n in range(count)]
        high = [n + distance if not n & distance else n + count for n in range(count)]
        for i in range(count):
            if not i & distance:
                a, b = current[i], current[i + distance]
                following[i], following[i + distance] = a.shuffle(low, b), a.shuffle(high, b)
        current = following
        distance //= 2
        Function.of(vectors[0]).split_block()
    return current


@dataclass(frozen=True, slots=True)
class TransposeTiling:
    """A square tile of the iterations of two loops, in which loaded elements are transposed in registers.

    Attributes:
        across: the loop along which operands are contiguous in memory.
        lane: the innermost loop, along which results are contiguous.
        size: number of iterations of each loop in a tile.
    """

    across: Variable
    lane: Variable
    size: int


def emit_elements_kernel(module: Module, name: str, plan: KernelPlan) -> LoopKernel:
    """Emit the kernel that computes the elements of a plan's results in a loop."""
    repeats = not plan.in_place
    return emit_parts_kernel(module, name, plan.parts, plan.space, repeats=repeats, is_last=plan.is_last)


def emit_parts_kernel(
    module: Module,
    name: str,
    parts: KernelParts,
    space: Space | None = None,
    *,
    repeats: bool = True,
    is_last: bool = False,
) -> LoopKernel:
    """Emit the kernel (inputs..., results..., begin, end) that computes the elements of results in a loop.

    Depending on how it reads its inputs, the loop is over square tiles that are transposed in registers, over
    vectors whose lanes are narrow rows, or over vectors along the innermost loop of ``space``. ``repeats``
    and ``is_last`` are those of `emit_loop_kernel`.
    """
    if space is None:
        parts = merge_narrow_dimensions(parts)
        space = planned_space(parts.inputs, parts.roots, parts.members)
    moves = any(m.operation.family is Family.MOVEMENT and m.operands for m in parts.members)
    tiling = find_tiling(space, parts) if moves else None
    if tiling is not None:
        return TiledKernel(module, name, parts, space, tiling, repeats=repeats).emit()
    if moves or any(m.called_computations for m in parts.members):
        rows = find_rows(space, parts, module.target)
        if rows is not None:
            return emit_rows_kernel(module, name, parts, rows, repeats=repeats)
    return emit_loop_kernel(module, name, parts, space, repeats=repeats, is_last=is_last)


def find_tiling(space: Space, parts: KernelParts) -> TransposeTiling | None:
    """Return the tile of two loops in which a kernel should transpose the elements that it loads.

    Returns None if the kernel's expression is too long to unroll, if its loads are contiguous along the
    innermost loop already, or if not exactly one of the other loops makes them contiguous.
    """
    members = parts.members
    count = sum(not is_uniform(m) for m in members)
    if len(space.variables) < 2 or count > MOST_MEMBERS or any(is_nested(m) for m in members):
        return None
    *others, lane = space.variables
    types = [v.shape.element_type for v in (*parts.inputs, *members) if v.shape.is_array]
    if lane.trips < LEAST_TRIPS or any(storage_bytes(t) > 8 for t in types):
        return None
    contiguous: set[Variable] = set()
    for access in accesses_of(parts.inputs, parts.roots, space.indices).linear:
        terms = dict(access.terms)
        if terms.get(lane, 0) in (0, 1):
            continue
        contiguous.update(v for v in others if terms.get(v) == 1 and v.trips >= LEAST_TRIPS)
    if len(contiguous) != 1:
        return None
    (across,) = contiguous
    size = 8 if max(map(storage_bytes, types)) > 4 or min(lane.trips, across.trips) < 16 else 16
    return TransposeTiling(across, lane, size)


class TiledElements(Elements):
    """An emitter of array elements and expressions that loads and transposes whole tiles of two loops.

    The rows of a tile are iterations of the outer one of the two loops.

    Attributes:
        start: the outer loop's iteration at the tile's first row; None while no tile is emitted.
        row: the index in the tile of the row for which code is being emitted.
    """

    def __init__(
        self, function: Function, views: dict[HloInstruction, View], tiling: TransposeTiling
    ) -> None:
        super().__init__(function, tiling.size, views)
        self.tiling = tiling
        self.start: Value | None = None
        self.row = 0
        self._tiles: dict[tuple[Value, Index], list[Element]] = {}

    @contextmanager
    def tile(self, start: Value) -> Generator[None]:
        """Make loads emitted inside the ``with`` read whole tiles, transposed, from row ``start`` on."""
        self.start = start
        self._tiles.clear()
        yield
        self.start = None

    def load(self, view: View, indices: Indices, *, of: HloInstruction | None = None) -> Element:
        """Emit the load of an array element, or of a vector of them; return it.

        Inside a tile, an array that is contiguous along the tile's outer loop, but not along its lanes, is
        loaded and transposed a whole tile at a time; the result is the tile's current row.
        """
        linear = linearize(indices, view.dimensions)
        terms = dict(linear.terms)
        apart = terms.get(self.tiling.lane, 0) not in (0, 1)
        inside = linear.minimum() >= 0 and linear.maximum() < view.count
        plain = all(isinstance(v.value, Value) and not v.value.type.lanes for v in terms)
        if self.start is None or not apart or terms.get(self.tiling.across) != 1 or not (inside and plain):
            return super().load(view, indices, of=of)
        base = linear - Index.of(self.tiling.across)
        key = (view.pointer, base)
        if key not in self._tiles:
            self._tiles[key] = self._load_tile(view, base, terms[self.tiling.lane])
        return self._tiles[key][self.row]

    def _load_tile(self, view: View, base: Index, step: int) -> list[Element]:
        """Emit the loads of a square tile and its transposition; return a vector for each row of the tile.

        Args:
            base: the index in ``view``, in elements, of lane 0 of the tile if the outer loop were at
                iteration 0.
            step: the distance in ``view``, in elements, from one lane to the next.
        """
        f, size = self.function, self.tiling.size
        assert self.start is not None
        first = self.parts(base)[0] + self.start
        kind = view.element_type
        stored = _tile_type(kind)
        vectors = [
            f.load(
                stored.vector(size),
                f.offset(view.pointer, first + lane * step, stored),
                align=_part(kind).size,
            )
            for lane in range(size)
        ]
        return [_element(vector, kind) for vector in transposed(vectors)]


def _part(kind: ElementType) -> Type:
    return storage_type(kind)


def _tile_type(kind: ElementType) -> Type:
    """Return the type as which elements of a tile are loaded and shuffled.

    It is an integer of 64 bits for a complex number; other elements keep their type in memory.
    """
    return I64 if kind.is_complex else storage_type(kind)


def _element(vector: Value, kind: ElementType) -> Element:
    if not kind.is_complex:
        return from_storage(vector, kind)
    part = F32 if storage_type(kind) is F32 else F64
    return vector.bitcast(part.vector(2 * vector.type.lanes)).deinterleave()


class TiledKernel:
    """Emits a kernel that loads and transposes square tiles of its inputs, and computes results from them.

    ``repeats`` says that an element may be computed and stored twice; ``strides`` are those of the results if
    they are parts of larger arrays.
    """

    def __init__(
        self,
        module: Module,
        name: str,
        parts: KernelParts,
        space: Space,
        tiling: TransposeTiling,
        *,
        repeats: bool = True,
        strides: tuple[int, ...] | None = None,
    ) -> None:
        self.name, self.roots, self.space, self.tiling, self.repeats = (
            name,
            parts.roots,
            space,
            tiling,
            repeats,
        )
        inputs, results = parts.inputs, result_shapes(parts.roots)
        self.f, arrays, self.begin, self.end = begin_kernel(
            module, name, [*(i.shape for i in inputs), *results]
        )
        self.e = TiledElements(self.f, dict(zip(inputs, arrays, strict=False)), tiling)
        self.targets = arrays[len(inputs) :]
        if strides is not None:
            self.targets = [replace(target, strides=strides) for target in self.targets]
        self.scalars = [i for i in inputs if i.shape.rank == 0]
        self.work = math.prod(results[0].dimensions) * max(1, len(parts.members))

    def emit(self) -> LoopKernel:
        for scalar in self.scalars:
            self.e.element(scalar, ())
        first, size = self.space.variables[0], self.tiling.size
        grain = size if first is self.tiling.across else 1
        if self.has_few_rows:
            first, grain = self.tiling.lane, STACKED * size
            self.columns(self.begin, self.end)
        else:
            self.nest(list(self.space.variables[:-1]), self.begin, self.end)
        self.f.finish()
        return LoopKernel(self.name, first.trips, grain, self.work, f"tiles of {size}")

    @property
    def has_few_rows(self) -> bool:
        """Return whether threads share columns: tiles that overlap would store to the rows of two threads."""
        across, lane, size = self.tiling.across, self.tiling.lane, self.tiling.size
        is_plane = self.space.variables == (across, lane) and self.repeats
        return is_plane and across.trips < FEW_TILES * size and lane.trips >= LEAST_TILES * size

    def columns(self, low: Value, high: Value) -> None:
        """Emit the loop over the tiles in columns low <= c < high, and inside it over all rows."""
        across, lane, size = self.tiling.across, self.tiling.lane, self.tiling.size
        end = low + ((high - low) & -size)
        lane.is_lane = True

        def rows() -> None:
            full = across.trips // size * size
            self.loop(across, self.f.constant(I64, 0), self.f.constant(I64, full), size, self.tile)
            if full < across.trips:
                across.value = self.f.constant(I64, across.trips - size)
                with self.e.scope():
                    self.tile()
                across.value = None

        self.loop(lane, low, end, size, rows)
        with self.f.when(end.compare("slt", high)), self.e.scope():
            lane.value = self.f.intrinsic("smax", high - size, self.f.constant(I64, 0))
            rows()
        lane.value = None
        lane.is_lane = False

    def nest(self, variables: list[Variable], low: Value, high: Value, tiled: bool = False) -> None:
        """Emit nested loops over ``variables`` and, inside them, the innermost loop over vectors of results.

        The first variable runs from ``low`` to ``high``. ``tiled`` says that a loop around these ones runs
        over whole tiles.
        """
        if not variables:
            self.innermost(tiled)
            return
        first, *inner = variables
        zero = self.f.constant(I64, 0)
        limit = self.f.constant(I64, inner[0].trips) if inner else zero
        if first is not self.tiling.across:
            self.loop(first, low, high, 1, lambda: self.nest(inner, zero, limit, tiled))
            return
        size = self.tiling.size
        tiled_end = low + ((high - low) & -size)
        if inner:
            self.loop(first, low, tiled_end, size, lambda: self.nest(inner, zero, limit, True))
        else:
            self.stacks(low, tiled_end)
        if first.trips % size and self.repeats:
            with self.f.when(tiled_end.compare("slt", high)), self.e.scope():
                first.value = self.f.intrinsic("smax", high - size, zero)
                self.nest(inner, zero, limit, True)
            first.value = None
        elif first.trips % size:
            self.loop(first, tiled_end, high, 1, lambda: self.nest(inner, zero, limit, False))

    def loop(self, variable: Variable, low: Value, high: Value, step: int, body: Callable[[], None]) -> None:
        """Emit a loop from ``low`` to ``high`` that sets ``variable``; ``body`` emits the loop's body."""
        with self.f.loop(low, high, step) as loop, self.e.scope():
            variable.value = loop.index
            body()
        variable.value = None

    def stacks(self, low: Value, high: Value) -> None:
        """Emit the loops over tiles in rows low <= r < high, in stacks of `STACKED` tiles.

        The tiles of a stack are one below the other; the next stack is beside them, along the lanes.
        """
        across, size = self.tiling.across, self.tiling.size
        with self.f.loop(low, high, STACKED * size) as loop, self.e.scope():
            end = self.f.intrinsic("smin", loop.index + STACKED * size, high)
            self.lanes(loop.index, end, lambda: self.loop(across, loop.index, end, size, self.tile))

    def innermost(self, tiled: bool) -> None:
        """Emit the innermost loop: over vectors of results, or over transposed tiles if ``tiled``."""
        if not tiled:
            loop_nest(self.e, [self.tiling.lane], self.body, repeats=self.repeats)
            return
        start = self.tiling.across.value
        assert isinstance(start, Value)
        self.lanes(start, start + self.tiling.size, self.tile)
        self.tiling.across.value = start

    def lanes(self, low: Value, high: Value, tiles: Callable[[], None]) -> None:
        """Emit a loop along the lanes over whole tiles, which ``tiles`` emits, and code for remaining lanes.

        These are too few for a tile. Tiles that overlap the last ones compute them or, if elements must not
        be stored twice, vectors without tiles, in rows low <= r < high.
        """
        lane, size = self.tiling.lane, self.tiling.size
        tiled_end = lane.trips // size * size
        lane.is_lane = True
        last, limit = self.f.constant(I64, tiled_end), self.f.constant(I64, lane.trips)
        self.loop(lane, self.f.constant(I64, 0), last, size, tiles)
        if tiled_end < lane.trips and self.repeats:
            lane.value = limit - size
            with self.e.scope():
                tiles()
            lane.value = None
        elif tiled_end < lane.trips:
            with self.f.loop(low, high) as rows, self.e.scope():
                self.tiling.across.value = rows.index
                vector_loop(self.e, lane, last, limit, self.body, exact=False, repeats=self.repeats)

    def tile(self) -> None:
        """Emit one transposed tile: the computation and store of its results, row by row, unrolled."""
        start = self.tiling.across.value
        assert isinstance(start, Value)
        with self.e.tile(start):
            for row in range(self.tiling.size):
                self.e.row = row
                self.tiling.across.value = start + row if row else start
                with self.e.scope():
                    self.body()
        self.tiling.across.value = start

    def body(self) -> None:
        """Emit the computation and store of one vector of each of the kernel's results."""
        values = root_values(self.e, self.roots, self.space.indices)
        for target, value in zip(self.targets, values, strict=True):
            self.e.store(target, self.space.indices, value)
