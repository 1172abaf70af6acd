"""Micro-kernel of direct convolution: register tiles of positions x vectors of output features.

Each step of the loops over taps and input features loads one row of a kernel panel and broadcasts one base
element per position. Border positions, at which some taps are outside the base, have specialized code without
those taps. If that were too much code, the base is a copy with its padding, and the tile selects for each
tap the rows at which it is inside. Products with padding are in no sum: an infinite kernel element would make
them NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Final, TypeAlias

from hloom.codegen.accumulators import flatten, plus, unflatten
from hloom.codegen.elements import Elements
from hloom.codegen.llvm import I8, I64, PTR, Function, Module, Value
from hloom.codegen.llvm.structure import call_apart
from hloom.codegen.loops import LoopKernel
from hloom.codegen.rules.contraction import multiply_add
from hloom.codegen.types import Element, constant, from_storage, storage_bytes, storage_type
from hloom.cpu.kernels.convolution.convolution_tiling import (
    TiledPhase,
    border_tiles,
    has_few_borders,
    tap_axes,
)
from hloom.ir.affine import Index, Indices, Variable
from hloom.records import dataclass
from hloom.shape.element_type import ElementType

DEEP: Final = 512
"""Minimum steps of a loop whose sums start from zero and are added to those of the loop around it: sums of
sums round less. Shorter loops would take longer."""
WRITTEN_OUT: Final = 4
"""Number of iterations up to which an innermost loop is unrolled completely."""

Bound: TypeAlias = "Value | int"
Loops: TypeAlias = "list[tuple[Bound, Bound, int, int]]"
"""(low, high, bytes in the base, bytes in the kernel) of each nested loop over taps, outermost first."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """Emitters of what follows when a tile's sums are complete: fused operations and stores.

    Attributes:
        store: emits the fused operations on a vector of sums and the store of the results. Its arguments are
            the element emitter, the index in the result (with a lane variable), and the sums.
        resume: emits the reload of partial sums that ``store`` stored at an index of the result; None if the
            store rounds them, so that sums cannot be continued.
        looped: whether the code of ``store`` is so long that it is emitted once, in a separate function that
            loops over the vectors of a tile.
    """

    store: Callable[[Elements, Indices, Element], None]
    resume: Callable[[Elements, Indices], Element] | None = None
    looped: bool = False


def emit_direct(
    module: Module,
    name: str,
    tiled: TiledPhase,
    extra: int,
    bind: Callable[[Sequence[Value]], Epilogue],
    kind: type[Tiles],
) -> LoopKernel:
    """Emit the kernel (base, filter or packed filter, extra pointers..., begin, end) that computes a phase.

    A phase is a convolution without base dilation. The kernel loops over pairs of a line and a panel, those
    with indices begin <= n < end. A line has all result positions along the row axis of the tiles, at fixed
    positions along the other axes. A panel has the output features of one tile.

    Args:
        extra: number of extra pointers, to the other inputs of a fusion and to the results.
        bind: makes, from the extra pointers, the emitters of what follows the sums of a tile.
        kind: the class that emits the tiles; it chooses what the vector lanes are.
    """
    f = module.function(name, [PTR, PTR] + [PTR] * extra + [I64, I64])
    x, w, *pointers, begin, end = f.parameters
    tiles = kind(f, tiled, bind, pointers)
    phase, tiling = tiled.phase, tiled.tiling
    ranges = tiling.split.count(phase) if tiling.split is not None else 1
    with f.loop(0, ranges) as part:
        tiles.begin(part.index)
        with f.loop(begin, end) as item:
            tiles.emit_item(item.index, x, w)
    f.finish()
    trips = tiled.lines * tiled.panels * tiling.pieces
    return LoopKernel(name, trips, 1, phase.results * max(1, phase.terms), f"{kind.across}; {tiling}")


class Tiles:
    """Emits a convolution's register tiles: result positions along a row axis x vectors of output features.

    A line of tiles has all positions along the row axis, at fixed positions along the other axes.
    """

    across: ClassVar[str] = "lanes across features"

    def __init__(
        self,
        f: Function,
        tiled: TiledPhase,
        bind: Callable[[Sequence[Value]], Epilogue],
        pointers: Sequence[Value],
    ) -> None:
        self.f, self.tiled, self.bind, self.pointers = f, tiled, bind, pointers
        self.epilogue = bind(pointers)
        self.convolution, self.phase, self.tiling = tiled.convolution, tiled.phase, tiled.tiling
        phase, tiling = tiled.phase, tiled.tiling
        self.kind = tiled.convolution.kind
        self.size = storage_bytes(self.kind)
        self.packed = tiled.packs_kernel
        self.strides, panel = tiled.packed_strides
        self.panel_bytes = (panel if self.packed else tiling.panel) * self.size
        self.positions: list[Index] = [Index(0)] * len(phase.axes)
        self.ranges: list[tuple[Bound, Bound]] = [(0, axis.taps) for axis in phase.axes]
        bytes_ = tiling.rows * tiling.panel * self.size
        self.scratch = f.allocate(I8, bytes_) if self.epilogue.looped else None
        self.loop_axes = tap_axes(phase)
        self.parts: dict[int, tuple[Value, Value]] = {}
        self.first_part: Value | None = None
        self.piece = f.constant(I64, 0)

    def begin(self, part: Value) -> None:
        """Emit the bounds of range ``part`` of the taps (window elements and input features) to add up.

        The tiles emitted afterwards use them. Emits nothing if the taps are not split into ranges.
        """
        split = self.tiling.split
        if split is None:
            return
        f = self.f
        self.first_part = part.compare("eq", 0)
        for n, step in ((split.axis, split.step), *((n, 1) for n in reversed(split.singles))):
            count = -(-self.phase.axes[n].taps // step)
            remainder = part.unsigned_divide(count) if count > 1 else part
            low = (part - remainder * count) * step if count > 1 else f.constant(I64, 0)
            self.parts[n] = low, f.intrinsic("smin", low + step, f.constant(I64, self.phase.axes[n].taps))
            part = remainder

    def emit_item(self, item: Value, x: Value, w: Value) -> None:
        """Emit iteration ``item`` of the kernel's loop: the tiles of one line of results and one panel.

        A line has all result positions along the row axis, a panel the output features of one tile. If lines
        are divided into segments, an iteration computes one segment of a line. ``x`` and ``w`` are the
        addresses of the base (lhs) and of the filter (rhs), or of the packed filter.
        """
        panels, lines, pieces = self.tiled.panels, self.tiled.lines, self.tiling.pieces
        zero = self.f.constant(I64, 0)
        self.piece = zero
        if self.tiling.pieces_first:
            self.piece = item.unsigned_divide(panels * lines)
            item = item - self.piece * (panels * lines)
        elif pieces > 1:
            quotient = item.unsigned_divide(pieces)
            self.piece = item - quotient * pieces
            item = quotient
        if panels == 1:
            line, panel = item, zero
        elif lines == 1:
            line, panel = zero, item
        elif self.tiling.panels_first:
            panel = item.unsigned_divide(lines)
            line = item - panel * lines
        else:
            line = item.unsigned_divide(panels)
            panel = item - line * panels
        self.enter(line, x, w)
        self.run(panel)

    def enter(self, line: Value, x: Value, w: Value) -> None:
        """Emit the start of line ``line``: its positions, its addresses, and its taps inside the base (lhs).

        A line has fixed result positions along all axes but the row axis of the tiles. ``x`` and ``w`` are
        the addresses of the whole base and filter (rhs); the positions, addresses and taps of the line are
        kept in ``self``.
        """
        f = self.f
        remainder = line
        numbers = [n for n in range(len(self.phase.axes)) if n != self.tiling.row]
        for n in reversed(numbers):
            axis = self.phase.axes[n]
            if axis.positions == 1:
                inside = axis.taps_inside(0)
                self.positions[n], self.ranges[n] = Index(0), (inside.start, inside.stop)
                continue
            last = all(self.phase.axes[k].positions == 1 for k in numbers if k < n)
            quotient = remainder if last else remainder.unsigned_divide(axis.positions)
            variable = Variable(axis.positions, "p")
            variable.value = remainder if last else remainder - quotient * axis.positions
            remainder = quotient
            self.positions[n] = Index.of(variable)
            self.ranges[n] = axis.tap_range(variable.value)
            x = f.offset(x, variable.value * (axis.x_position * self.size))
            if axis.w_position:
                phase_bytes = self.tiled.panels * self.panel_bytes
                w = f.offset(
                    w, variable.value * (phase_bytes if self.packed else axis.w_position * self.size)
                )
        for n, (low, high) in self.parts.items():
            first, last_tap = (f.operand(I64, bound) for bound in self.ranges[n])
            self.ranges[n] = f.intrinsic("smax", first, low), f.intrinsic("smin", last_tap, high)
        self.x, self.w = x, w

    def run(self, panel: Value) -> None:
        """Emit a convolution's tiles for the current line of results and panel ``panel`` of output features.

        A line has all result positions along the row axis of the tiles, or a segment of them.
        """
        f, rows = self.f, self.tiling.rows
        self.panel = panel
        self.w_panel = f.offset(self.w, panel * self.panel_bytes)
        if self.tiling.row < 0:
            self._tile(f.constant(I64, 0), [(range(1), None)])
            return
        low, high, others = border_tiles(self.phase.axes[self.tiling.row], rows)
        if self.tiling.pieces == 1:
            if low < high:
                self._inner_tiles(f.constant(I64, low), f.constant(I64, high))
            self._border_tiles(low, high, others)
            return
        step = -(-(high - low) // rows // self.tiling.pieces) * rows
        first = self.piece * step + low
        self._inner_tiles(first, f.intrinsic("smin", first + step, f.constant(I64, high)))
        with f.when(self.piece.compare("eq", 0)):
            self._border_tiles(low, high, others)

    def _inner_tiles(self, low: Value, high: Value) -> None:
        """Emit a loop over the convolution's tiles at positions low <= p < high along the tiles' row axis.

        All window elements of these tiles are inside the base (lhs).
        """
        rows = self.tiling.rows
        with self.f.loop(low, high, rows) as loop:
            self._tile(loop.index, [(range(rows), None)])

    def _border_tiles(self, low: int, high: int, others: Iterator[tuple[int, int]]) -> None:
        """Emit a convolution's tiles at positions p < low and p >= high along the tiles' row axis.

        Window elements of these tiles may be outside the base (lhs). ``others`` yields (first position,
        number of positions) of each tile.
        """
        f, rows, axis = self.f, self.tiling.rows, self.phase.axes[self.tiling.row]
        if has_few_borders(axis):
            for start, count in others:
                self._border_tile(start, count)
            return
        remainder = axis.positions % rows
        with f.loop(0, (axis.positions - remainder - (high - low)) // rows) as tile:
            row = tile.index * rows
            self._selecting_tile(row.compare("slt", low).select(row, row + (high - low)), rows)
        if remainder:
            self._selecting_tile(f.constant(I64, axis.positions - remainder), remainder)

    def _selecting_tile(self, row: Value, rows: int) -> None:
        """Emit a tile that checks at run time at which rows each window element is inside the base (lhs).

        A window element updates the sums of only those rows. The tile has ``rows`` rows: result positions
        along an axis, from ``row`` on.
        """
        f, number = self.f, self.tiling.row
        e, axis = Elements(f, self.tiling.lanes, {}), self.phase.axes[number]
        ranges = [axis.tap_range(row + r) for r in range(rows)]
        x_step = axis.x_tap * self.size
        w_step = (self.strides[number] if self.packed else axis.w_tap) * self.size
        base = f.offset(self.x, row * (axis.x_position * self.size))
        loops, sums = self._loops(None, without_rows=True), self._start(row, rows)
        # Both ends of the range of taps fall from row to row.
        with f.loop(ranges[-1][0], ranges[0][1], 1, flatten(sums)) as tap:
            old = unflatten(tap.values, sums)
            x, w = f.offset(base, tap.index * x_step), f.offset(self.w_panel, tap.index * w_step)
            new = self._nest(loops, x, w, old, range(rows), axis.x_position * self.size)
            inside = [tap.index.compare("sge", low) & tap.index.compare("slt", high) for low, high in ranges]
            selected = [
                e.choose(inside[n // self.tiling.vectors], a, b) for n, (a, b) in enumerate(zip(new, old))
            ]
            tap.next(*flatten(selected))
        self._write_tile(unflatten(tap.values, sums), row, rows)

    def _border_tile(self, row: int, count: int) -> None:
        """Emit a tile at a constant position, without multiply-adds of taps (window elements) in the padding.

        The tile has ``count`` rows: result positions along an axis, from ``row`` on. Consecutive taps that
        are inside the base (lhs) at the same rows share one loop.
        """
        axis = self.phase.axes[self.tiling.row]
        inside = [axis.taps_inside(row + r) for r in range(count)]
        pieces: list[tuple[range, tuple[int, int] | None]] = []
        for tap in range(axis.taps):
            rows = [r for r in range(count) if tap in inside[r]]
            if not rows:
                continue
            valid = range(rows[0], rows[-1] + 1)
            if pieces and pieces[-1][0] == valid and pieces[-1][1] is not None and pieces[-1][1][1] == tap:
                pieces[-1] = valid, (pieces[-1][1][0], tap + 1)
            else:
                pieces.append((valid, (tap, tap + 1)))
        self._tile(self.f.constant(I64, row), pieces, count)

    def _tile(
        self, row: Value, pieces: Sequence[tuple[range, tuple[int, int] | None]], count: int | None = None
    ) -> None:
        """Emit a register tile of results: its initial sums, the multiply-adds, and the stores.

        Args:
            row: the position of its first row along the axis of its rows.
            pieces: (rows of the tile, range of window elements along that axis) of each loop nest of
                multiply-adds; a range of None means all of them.
            count: number of rows of the tile; None for the number in the tiling.
        """
        f, tiling = self.f, self.tiling
        rows = tiling.rows if count is None else count
        axis = self.phase.axes[tiling.row] if tiling.row >= 0 else None
        stride = axis.x_position * self.size if axis is not None else 0
        distance = (
            self.convolution.strip_elements // tiling.rows * self.size if self.convolution.strip else stride
        )
        base = f.offset(self.x, row * distance) if stride else self.x
        sums = self._start(row, rows)
        for valid, taps in pieces:
            loops = self._loops(taps)
            sums = self._nest(loops, base, self.w_panel, sums, valid, stride)
        self._write_tile(sums, row, rows)

    def _start(self, row: Value, rows: int) -> list[Element]:
        """Emit the initial sums of a tile: zero, or the sums of earlier products, loaded from memory.

        The products of a sum may be split into ranges; each range but the first continues from the sums that
        the range before stored. The tile has ``rows`` rows: result positions along an axis, from ``row`` on.
        """
        f, tiling = self.f, self.tiling
        zero = constant(f, self.kind, 0, tiling.lanes)
        if self.first_part is None or self.epilogue.resume is None:
            return [zero] * (rows * tiling.vectors)
        sums: list[Element] = []
        for number in range(rows * tiling.vectors):
            r, v = divmod(number, tiling.vectors)
            e, indices = self._place(self.positions, row + r, self.panel * tiling.panel + v * tiling.lanes)
            sums.append(e.choose(self.first_part, zero, self.epilogue.resume(e, indices)))
        return sums

    def _loops(self, taps: tuple[int, int] | None, *, without_rows: bool = False) -> Loops:
        """Return the loops over the taps of a tile, outermost first, with as few loops as the strides allow.

        A tap is a window element or an input feature. A loop is (low, high, bytes per step in the base, bytes
        per step in the filter).

        Args:
            taps: the range of taps along the axis of the tile's rows; None for all.
            without_rows: leave out the loop over taps along that axis.
        """
        bounds: Loops = []
        inner_taps = 1
        for n in reversed(self.loop_axes):
            if without_rows and n == self.tiling.row:
                continue
            axis = self.phase.axes[n]
            low, high = self.ranges[n] if n != self.tiling.row else taps or (0, axis.taps)
            x, w = axis.x_tap * self.size, (self.strides[n] if self.packed else axis.w_tap) * self.size
            if bounds:
                inner_low, inner_high, inner_x, inner_w = bounds[-1]
                follows = x == inner_x * inner_taps and w == inner_w * inner_taps
                if follows and inner_low == 0 and inner_high == inner_taps:
                    merged_low = low * inner_taps
                    bounds[-1] = merged_low, high * inner_taps, inner_x, inner_w
                    inner_taps *= axis.taps
                    continue
            bounds.append((low, high, x, w))
            inner_taps = axis.taps
        return list(reversed(bounds))

    def _nest(
        self, loops: Loops, x: Value, w: Value, sums: list[Element], rows: range, stride: int
    ) -> list[Element]:
        """Emit nested ``loops`` of multiply-adds over taps (window elements and input features) of a tile.

        Returns the new sums. An inner loop nest of `DEEP` or more steps sums up from zero, and its sums are
        added to the outer ones, to round less.

        Args:
            x, w: addresses of the base (lhs) and of the filter (rhs) at the first tap.
            rows: the rows (result positions) of the tile to update.
            stride: bytes in the base from one row of the tile to the next.
        """
        f = self.f
        if not loops:
            return self._step(x, w, sums, rows, stride)
        if self.kind.is_floating:
            loops = _divided(loops)
        (low, high, x_step, w_step), *inner = loops
        apart = self.kind.is_floating and _extent(inner) >= DEEP
        zero = constant(f, self.kind, 0, self.tiling.lanes)
        taps = range(low, high) if isinstance(low, int) and isinstance(high, int) else None
        if taps is not None and (len(taps) == 1 or (not inner and len(taps) <= WRITTEN_OUT)):
            for tap in taps:
                at = f.offset(x, tap * x_step), f.offset(w, tap * w_step)
                sums = self._nest(inner, *at, sums, rows, stride)
            return sums
        x, w = f.offset(x, low * x_step), f.offset(w, low * w_step)
        with f.loop(low, high, 1, [x, w, *flatten(sums)]) as loop:
            x, w, *values = loop.values
            before = unflatten(values, sums)
            inner_sums = self._nest(inner, x, w, [zero] * len(sums) if apart else before, rows, stride)
            if apart:
                inner_sums = [plus(a, b) for a, b in zip(before, inner_sums, strict=True)]
            loop.next(f.offset(x, x_step), f.offset(w, w_step), *flatten(inner_sums))
        return unflatten(loop.values[2:], sums)

    def _step(self, x: Value, w: Value, sums: list[Element], rows: range, stride: int) -> list[Element]:
        """Emit the multiply-adds of one window element and input feature; return the new sums of the tile.

        The vectors of the filter at ``w`` are multiplied by one broadcast element of the base per row of the
        tile. These elements are ``stride`` bytes apart, from ``x`` on; only ``rows`` are updated.
        """
        f, tiling = self.f, self.tiling
        e = Elements(f, tiling.lanes, {})
        vector = tiling.lanes * self.size
        b = [load_vector(f, f.offset(w, v * vector), self.kind, tiling.lanes) for v in range(tiling.vectors)]
        updated = list(sums)
        for r in rows:
            a = _broadcast(f, f.offset(x, r * stride), self.kind, tiling.lanes)
            for v in range(tiling.vectors):
                number = r * tiling.vectors + v
                updated[number] = multiply_add(e, self.kind, a, b[v], sums[number])
        return updated

    def _write_tile(self, sums: list[Element], row: Value, rows: int) -> None:
        """Emit the fused operations and the store for every vector of a tile's ``sums``.

        If that code is long, it is a separate function that loops over a copy of the tile on the stack. The
        tile has ``rows`` rows: result positions along an axis, from ``row`` on.
        """
        f, tiling = self.f, self.tiling
        first = self.panel * tiling.panel
        if self.scratch is None:
            for number, value in enumerate(sums):
                r, v = divmod(number, tiling.vectors)
                self.epilogue.store(*self._place(self.positions, row + r, first + v * tiling.lanes), value)
            return
        for number, value in enumerate(sums):
            store_vector(f, value, f.offset(self.scratch, number * tiling.lanes * self.size))
        positions = [
            v.value for index in self.positions for v, _ in index.terms if isinstance(v.value, Value)
        ]
        values = (self.scratch, row, f.constant(I64, rows), first, *positions, *self.pointers)
        call_apart(f, "epilogue", values, self._apart)

    def _apart(self, f: Function, parameters: Sequence[Value]) -> None:
        """Emit the body of a function that loads a tile's sums from the stack and stores its results.

        It applies the fused operations in between, vector by vector. The ``parameters`` are: address of the
        tile's sums, its first row, number of rows, first output feature, positions along those other axes
        where they are not constant, extra pointers.
        """
        tiling = self.tiling
        scratch, row, rows, first, *others = parameters
        positions: list[Index] = []
        for index, axis in zip(self.positions, self.phase.axes, strict=True):
            moves = bool(index.terms)
            positions.append(Index.of(Variable(axis.positions, "p", others.pop(0))) if moves else index)
        epilogue = self.bind(others)
        with f.loop(0, rows) as line, f.loop(0, tiling.vectors) as column:
            number = line.index * tiling.vectors + column.index
            address = f.offset(scratch, number * (tiling.lanes * self.size))
            value = load_vector(f, address, self.kind, tiling.lanes)
            at = self._place(positions, row + line.index, first + column.index * tiling.lanes)
            epilogue.store(*at, value)

    def _place(self, axes: Sequence[Index], row: Value, column: Value) -> tuple[Elements, Indices]:
        """Return (emitter, index in the result) for a vector of output features, from index ``column`` on.

        The emitter masks the lanes beyond the last output feature.

        Args:
            axes: the position of the results along each axis of the convolution.
            row: the position that replaces the one along the axis of a tile's rows.
        """
        phase, tiling = self.phase, self.tiling
        e = Elements(Function.of(column), tiling.lanes, {})
        lane = Variable(phase.columns, "n", column)
        lane.is_lane = True
        positions = list(axes)
        if tiling.row >= 0:
            positions[tiling.row] = Index.of(Variable(phase.axes[tiling.row].positions, "r", row))
        index = Index.of(lane)
        if phase.columns % tiling.panel:
            e.mask = e.index_value(index).compare("slt", phase.columns)
        return e, phase.indices(e, positions, index)


def _extent(loops: Loops) -> int:
    """Return the product of the trip counts of ``loops``; 0 if one of the counts is not constant."""
    extents = [high - low if isinstance(low, int) and isinstance(high, int) else 0 for low, high, *_ in loops]
    return math.prod(extents)


def _divided(loops: Loops) -> Loops:
    """Split a single long loop in two: over blocks of steps, and over the steps of a block.

    Returns ``loops`` unchanged if there are several, or if the loop is short, or has no constant bounds that
    are multiples of a block size of at least `DEEP` steps.
    """
    (low, high, x, w), *inner = loops
    if inner or not (isinstance(low, int) and isinstance(high, int)) or high - low < 4 * DEEP:
        return loops
    block = next((b for b in range(DEEP, 4 * DEEP) if low % b == high % b == 0), None)
    if block is None:
        return loops
    return [(low // block, high // block, x * block, w * block), (0, block, x, w)]


def store_vector(f: Function, value: Element, pointer: Value) -> None:
    """Emit the store of a vector: complex as all real parts, then all imaginary parts; booleans as bytes."""
    for number, part in enumerate(value if isinstance(value, tuple) else (value,)):
        stored = part.cast("zext", I8) if part.type.bits == 1 else part
        f.store(stored, f.offset(pointer, number * part.type.lanes * part.type.size))


def load_vector(f: Function, pointer: Value, kind: ElementType, lanes: int) -> Element:
    """Emit the load of a vector that `store_vector` stored; return it."""
    part = storage_type(kind).vector(lanes)
    real = f.load(part, pointer)
    if kind.is_complex:
        return real, f.load(part, f.offset(pointer, lanes * part.size))
    return from_storage(real, kind)


def _broadcast(f: Function, place: Value, kind: ElementType, lanes: int) -> Element:
    """Emit the load of the element at address ``place`` and its broadcast to every lane."""
    stored = storage_type(kind)
    if kind.is_complex:
        imaginary = f.load(stored, f.offset(place, 1, stored))
        return f.load(stored, place).splat(lanes), imaginary.splat(lanes)
    return from_storage(f.load(stored, place), kind).splat(lanes)
