"""Tiling of convolutions into register tiles, loop order over taps, and the choice of operand copies."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from hloom.codegen.target import Target, fuses, registers
from hloom.codegen.types import register_type, storage_bytes
from hloom.cpu.kernels.convolution.convolution_plan import DirectConvolution, StrideAxis, StridePhase
from hloom.records import dataclass

MANY_ITEMS: Final = 16
"""Number of tasks (lines times panels) that balances the load of the threads."""
LEAST_PIECE: Final = 8
"""Minimum number of tiles in a segment of a line."""
LEAST_OPERANDS: Final = 4
"""Minimum number of vector registers of a tile that are not accumulators."""
REPEATED_BYTES: Final = 64
"""Bytes of a vector across groups, whatever the processor: lanes of several groups are loaded together."""
BORDERS: Final = 24
"""Maximum number of specialized border tiles; beyond it, rows of tiles need a base with its padding."""
RESIDENT_BYTES: Final = 1 << 19
"""Bytes of a kernel that stays in the cache while all positions are computed."""
CHUNK_BYTES: Final = 1 << 17
"""Maximum bytes of a larger kernel that a range of taps reads."""
CHUNK_TERMS: Final = 64
"""Minimum number of products in a range of taps; each range stores and reloads the sums."""
SPREAD_BYTES: Final = 1 << 17
"""Bytes between the first and last row of a panel up to which it is read in place about as fast as packed."""
SPREAD_POSITIONS: Final = 400
"""Minimum number of positions for which packing a panel with more between its rows takes less time."""
CONFLICT_POSITIONS: Final = 96
"""The same for a panel whose rows do not fit into the sets of the second-level cache that they share."""
LINE: Final = 64
"""Bytes of a line of the caches."""
FIRST_LEVEL: Final = 1 << 15
"""Bytes of a first-level cache."""
FEWEST_READS: Final = 8
"""Fewest times that tiles read each element of a base that is copied in strips."""
COMMON: Final = Target.named("x86_64-linux-gnu", "x86-64-v3")
"""The target with the fewest registers of those with reproducible results."""


@dataclass(frozen=True, slots=True)
class Split:
    """A split of a convolution's taps into ranges: all tiles run for one range before the next range.

    A tap is a window element or an input feature. The part of the filter (rhs) that a range reads stays in
    the cache meanwhile.

    Attributes:
        singles: the indices of those axes of which each range has a single tap, outermost first.
        axis: the index of the next inner axis, of which each range has several taps.
        step: number of taps of ``axis`` in a range.
    """

    singles: tuple[int, ...]
    axis: int
    step: int

    def count(self, phase: StridePhase) -> int:
        """Return the number of ranges into which this split divides the products of each sum.

        ``phase`` is the convolution whose products they are.
        """
        taps = [phase.axes[n].taps for n in self.singles]
        return math.prod(taps) * -(-phase.axes[self.axis].taps // self.step)


@dataclass(frozen=True, slots=True)
class ConvolutionTiling:
    """The register tiles of a convolution, positions along one axis x output features, and their loop order.

    Attributes:
        row: the index of the axis along which a tile has several result positions, its rows; -1 for tiles of
            one row.
        rows: number of rows of a tile.
        vectors: number of vectors of output features in a tile.
        lanes: number of lanes of a vector.
        split: the ranges of taps (window elements, input features) that all tiles run through one after
            another; None if all taps are one range.
        panels_first: whether all lines run for one panel before the next panel. A line has all positions
            along the row axis, and a panel the output features of one tile.
        pieces: number of segments into which lines are divided, so that there are enough tasks for the
            threads.
        pieces_first: whether all lines and panels run for one segment before the next segment.
    """

    row: int
    rows: int
    vectors: int
    lanes: int
    split: Split | None = None
    panels_first: bool = False
    pieces: int = 1
    pieces_first: bool = False

    def __str__(self) -> str:
        words = [f"tiles of {self.rows} positions, {self.vectors} x {self.lanes} features"]
        if self.panels_first:
            words.append("panels first")
        if self.split is not None:
            words.append(f"taps in ranges of {self.split.step} of axis {self.split.axis}")
        if self.pieces > 1:
            words.append(f"lines in {self.pieces} pieces{', pieces first' * self.pieces_first}")
        return "; ".join(words)

    @property
    def panel(self) -> int:
        return self.vectors * self.lanes

    def panels(self, phase: StridePhase) -> int:
        """Return the number of panels of a group's output features; a panel is as wide as a register tile."""
        return -(-phase.columns // self.panel)

    def lines(self, phase: StridePhase) -> int:
        """Return the number of lines of tiles: the product of the positions of all axes but the tiles' own.

        A line has all positions along the axis of a tile's rows.
        """
        return math.prod(axis.positions for n, axis in enumerate(phase.axes) if n != self.row)


def tiling_of(
    convolution: DirectConvolution, phase: StridePhase, target: Target, *, resumable: bool
) -> ConvolutionTiling:
    """Return the register tiles with the least estimated cycles for a convolution without base dilation.

    That is ``phase``. The products of a sum may be split into ranges if sums are ``resumable``: can be stored
    and reloaded without loss. The rows of a tile and the ranges determine the order of additions: if results
    must be the same on all targets, both are chosen for the target `COMMON`.

    Args:
        convolution: the convolution that ``phase`` computes a part of.
    """
    common = None
    if target.reproducible:
        common = tiling_of(convolution, phase, COMMON, resumable=resumable)
    if convolution.deep:
        return _deep_tiling(convolution, phase, target, common)
    tiling = _cheapest(convolution, phase, target, common)
    if common is None:
        return _ordered(convolution, phase, tiling, resumable=resumable)
    tiling = _ordered(convolution, phase, tiling, resumable=False)
    return replace(tiling, split=common.split, panels_first=tiling.panels_first or common.panels_first)


def _cheapest(
    convolution: DirectConvolution, phase: StridePhase, target: Target, common: ConvolutionTiling | None
) -> ConvolutionTiling:
    """Return the register tiles of a convolution with the least estimated cycles.

    ``phase`` is the part of the convolution to tile. The tiles have as many rows as ``common``, the tiles for
    the target `COMMON`, unless that is None.
    """
    kind = convolution.kind
    full = (REPEATED_BYTES if convolution.repeat else target.vector_bytes) // register_type(kind).size
    lanes = min(full, max(4, 1 << (phase.columns - 1).bit_length()))
    row = row_axis(phase)
    positions = phase.axes[row].positions if row >= 0 else 1
    columns = -(-phase.columns // lanes)
    cycles = _cycles_across if convolution.repeat else _cycles
    best: tuple[float, ConvolutionTiling] | None = None
    for vectors in range(1, min(4, columns) + 1):
        most = accumulators(convolution, lanes, vectors, target) // vectors
        candidates = range(1, min(positions, most) + 1)
        if common is not None:
            candidates = range(common.rows, common.rows + (vectors == 1 or common.rows <= most))
        for rows in candidates:
            full_tiles, remainder = divmod(positions, rows)
            cost = full_tiles * cycles(rows, vectors) + (cycles(remainder, vectors) if remainder else 0)
            cost *= (
                -(-columns // vectors) * (1.02 if remainder else 1.0) * (1.01 if rows * vectors > 24 else 1.0)
            )
            if convolution.repeat and vectors == 1:
                cost *= 1.02  # several vectors load longer contiguous runs of the base
            if best is None or cost < best[0]:
                best = cost, ConvolutionTiling(row, rows, vectors, lanes)
    assert best is not None
    return best[1]


def _deep_tiling(
    convolution: DirectConvolution, phase: StridePhase, target: Target, common: ConvolutionTiling | None
) -> ConvolutionTiling:
    """Return the tiles for vector lanes along input features: one vector of partial sums per output feature.

    The tiles have as many rows as ``common``, the tiles for the target `COMMON`, unless that is None.
    """
    row = row_axis(phase)
    positions = phase.axes[row].positions if row >= 0 else 1
    lanes = next(a for a in phase.axes if not a.targets).x_tap
    most = min(positions, max(1, accumulators(convolution, lanes, phase.columns, target) // phase.columns))
    rows = -(-positions // -(-positions // most)) if common is None else common.rows
    tiling = ConvolutionTiling(row, rows, phase.columns, lanes)
    return replace(tiling, pieces=_pieces(phase, tiling))


def accumulators(convolution: DirectConvolution, lanes: int, vectors: int, target: Target) -> int:
    """Return how many accumulators fit into the registers beside ``vectors`` vectors of the filter (rhs).

    A processor that cannot broadcast a memory operand needs registers for an element of the base (lhs), and
    one without fused multiply-add needs a register for a product.
    """
    kind = convolution.kind
    each = max(1, lanes * register_type(kind).size // target.vector_bytes)
    if kind.is_complex:
        each = 2
    operands = vectors * each + (not target.has("avx512f")) * each + (not fuses(target))
    free = registers(target) - max(LEAST_OPERANDS, operands)
    return max(1, free // (2 if convolution.repeat and each == 1 else each))


def _cycles(rows: int, vectors: int) -> float:
    # a panel of the kernel often streams from the second-level cache
    return max(rows * vectors / 2, (rows + vectors) / 2, 1.5 * vectors, 4) + 0.5


def _cycles_across(rows: int, vectors: int) -> float:
    """Return the estimated cycles of one step of a tile of ``rows`` x ``vectors`` accumulators.

    The lanes span groups: each multiply-add of the step, one per accumulator, loads its own vector of the
    base (lhs).
    """
    return max(rows * vectors, 4) + 0.5


def _ordered(
    convolution: DirectConvolution, phase: StridePhase, tiling: ConvolutionTiling, *, resumable: bool
) -> ConvolutionTiling:
    """Return ``tiling`` with a loop order that keeps the operand read most often in the cache.

    If sums are ``resumable`` (can be stored and reloaded without loss), the products of each sum may be split
    into ranges as well.
    """
    size = storage_bytes(convolution.kind)
    tiling = replace(tiling, pieces=_pieces(phase, tiling))
    panel_bytes = tiling.panel * phase.terms * size
    kernel_bytes = panel_bytes * tiling.panels(phase) * convolution.groups
    base_bytes = math.prod(convolution.copied_dimensions) * size
    if kernel_bytes <= RESIDENT_BYTES:
        return tiling
    panels_first = tiling.lines(phase) * kernel_bytes > tiling.panels(phase) * base_bytes
    split = _split(phase, tiling, size) if resumable and panel_bytes > CHUNK_BYTES else None
    return replace(tiling, split=split, panels_first=panels_first or split is not None)


def _pieces(phase: StridePhase, tiling: ConvolutionTiling) -> int:
    """Return the number of segments of a line: more than 1 if lines are few and long, to occupy all threads.

    A line has all positions along the row axis of the tiles.
    """
    if tiling.row < 0:
        return 1
    low, high, _ = border_tiles(phase.axes[tiling.row], tiling.rows)
    items = tiling.lines(phase) * tiling.panels(phase)
    return max(1, min((high - low) // tiling.rows // LEAST_PIECE, MANY_ITEMS // items))


def _split(phase: StridePhase, tiling: ConvolutionTiling, size: int) -> Split | None:
    """Return a split of the sums' products into ranges, each of which reads a small part of the filter.

    The outermost loops over products are split. Returns None if each range would have too few products.
    ``size`` is the number of bytes of an element.
    """
    singles: list[int] = []
    inside = phase.terms
    for n in tap_axes(phase):
        axis = phase.axes[n]
        inside //= axis.taps
        if n == tiling.row or inside < CHUNK_TERMS:
            break
        step = CHUNK_BYTES // (inside * tiling.panel * size)
        if step > 0:
            return Split(tuple(singles), n, step)
        singles.append(n)
    return Split(tuple(singles[:-1]), singles[-1], 1) if singles else None


def row_axis(phase: StridePhase) -> int:
    """Return the index of the axis along which tiles have several positions; -1 if no axis is suitable.

    Prefers axes with few positions whose taps are partly outside the base (lhs), then many positions, then a
    small stride in the base.
    """
    best, best_rows = (False, -1, 0), -1
    for number, axis in enumerate(phase.axes):
        few = has_few_borders(axis)
        if axis.positions > 1 and not axis.w_position and (few or axis.padded):
            score = (few, min(axis.positions, 6), -abs(axis.x_position))
            if best_rows < 0 or score > best:
                best, best_rows = score, number
    return best_rows


def has_few_borders(axis: StrideAxis) -> bool:
    """Return whether an axis has so few tiles with taps outside the base (lhs) that each gets its own code.

    Otherwise such a tile selects at run time, for each tap, the rows at which the tap is inside.
    """
    return border_pieces(axis) <= BORDERS


def border_pieces(axis: StrideAxis) -> int:
    """Return the approximate number of tiles with their own code that border positions of an axis need.

    At these positions, windows reach into padding.
    """
    if not axis.bounded:
        return 0
    first, last = axis.whole
    outside = [p for p in range(axis.positions) if not first <= p < last]
    return -(-len(outside) // 8) * len({axis.taps_inside(p) for p in outside}) * 2


def needs_copy(convolution: DirectConvolution, phase: StridePhase) -> bool:
    """Return whether the kernel needs a copy of the base (lhs): to convert its type, or to pad it.

    It is padded if too many positions have window elements in the padding for each to get its own code.
    """
    if convolution.x_type is not convolution.kind:
        return True
    return row_axis(phase) < 0 and any(a.bounded and a.positions > 1 for a in phase.axes)


def strips_pay(tiled: TiledPhase) -> bool:
    """Return whether it pays to copy the base (lhs) so that each strip of its last dimension is contiguous.

    It does if tiles read short, distant parts of the base: without a copy, each tap reads another cache line,
    and does so again for every panel of the filter (rhs).
    """
    c, phase, tiling = tiled.convolution, tiled.phase, tiled.tiling
    if c.padding is not None or c.groups > 1 or c.deep or c.repeat or c.kind.is_complex or tiling.row < 0:
        return False
    size = storage_bytes(c.kind)
    reads = tiled.panels * tiled.lines
    distance = min((abs(a.x_tap) for a in phase.axes if a.taps > 1), default=0) * size
    # Addresses a power of two apart share few sets of the cache.
    taken = phase.terms * max(LINE, distance & -distance)
    return distance >= 2 * LINE and taken > FIRST_LEVEL and reads >= FEWEST_READS


def strip_by_strip(
    convolution: DirectConvolution, phase: StridePhase, tiling: ConvolutionTiling
) -> ConvolutionTiling:
    """Return a tiling that runs all lines and panels for a few strips of the base before the next strips.

    These strips of the copied base (lhs) then stay in the cache with a panel of the filter (rhs).
    """
    ranges = tiling.split.count(phase) if tiling.split is not None else 1
    low, high, _ = border_tiles(phase.axes[tiling.row], tiling.rows)
    parts = -(-convolution.copied_bytes // ranges // CHUNK_BYTES)
    pieces = max(tiling.pieces, min((high - low) // tiling.rows, parts))
    return replace(
        tiling, pieces=pieces, pieces_first=pieces > 1, panels_first=pieces > 1 or tiling.panels_first
    )


def tap_axes(phase: StridePhase) -> list[int]:
    """Return the indices of the axes of the loops over products, in descending order of base strides.

    Axes with a single window element, which is always inside the base (lhs), are left out.
    """
    numbers = [n for n, axis in enumerate(phase.axes) if axis.taps != 1 or axis.bounded]
    return sorted(numbers, key=lambda n: -abs(phase.axes[n].x_tap))


@dataclass(frozen=True, slots=True)
class TiledPhase:
    """A phase of a convolution, with its register tiles.

    A phase is a convolution without base dilation that computes some or all results of ``convolution``.
    """

    convolution: DirectConvolution
    phase: StridePhase
    tiling: ConvolutionTiling

    @property
    def panels(self) -> int:
        """Return the number of panels of a group's output features; a panel is as wide as a register tile."""
        return self.tiling.panels(self.phase)

    @property
    def lines(self) -> int:
        """Return the number of lines of tiles: the product of the positions of all axes but the tiles' own.

        A line has all positions along the axis of a tile's rows.
        """
        return self.tiling.lines(self.phase)

    @property
    def packs_kernel(self) -> bool:
        convolution, phase, kind = self.convolution, self.phase, self.convolution.kind
        if convolution.deep or convolution.w_type is not kind or kind.is_complex or phase.w_column != 1:
            return True
        far = any(axis.w_tap * storage_bytes(kind) % 4096 == 0 and axis.taps >= 16 for axis in phase.axes)
        return phase.columns % self.tiling.panel != 0 or far or self._packing_pays

    @property
    def _packing_pays(self) -> bool:
        """Return whether packing the filter (rhs) into panels saves more time than it takes.

        A panel has the output features of a tile: one row of them for each window element and input feature.
        Packing pays if these rows are far apart in the filter, and many positions read each panel.
        """
        phase, kind = self.phase, self.convolution.kind
        positions = math.prod(axis.positions for axis in phase.axes if not axis.w_position)
        stride = min((abs(axis.w_tap) for axis in phase.axes if axis.taps > 1), default=0) * storage_bytes(
            kind
        )
        if stride <= self.tiling.panel * storage_bytes(kind) or phase.terms * stride <= SPREAD_BYTES:
            return False
        # Addresses a power of two apart share few sets of the cache.
        conflicts = phase.terms * (stride & -stride) > RESIDENT_BYTES
        return positions >= (CONFLICT_POSITIONS if conflicts else SPREAD_POSITIONS)

    @property
    def packed_strides(self) -> tuple[dict[int, int], int]:
        """Return (strides, elements of a panel) of the filter (rhs) packed into panels, each one tile wide.

        ``strides`` maps the index of an axis to the number of elements in a panel from one window element (or
        input feature) of this axis to the next.
        """
        stride = self.tiling.panel
        strides: dict[int, int] = {}
        for number in reversed(tap_axes(self.phase)):
            strides[number] = stride
            stride *= self.phase.axes[number].taps
        return strides, stride

    @property
    def packed_bytes(self) -> int:
        panels = self.panels * self.convolution.groups
        size = panels * self.packed_strides[1] * storage_bytes(self.convolution.kind)
        return -(-size // 64) * 64


def border_tiles(axis: StrideAxis, rows: int) -> tuple[int, int, Iterator[tuple[int, int]]]:
    """Return (first, end, others) of the tiles along an axis, each with up to ``rows`` result positions.

    Positions first <= p < end are those of the interior tiles, in which all window elements are inside the
    base (lhs). ``others`` yields (first position, number of positions) of each other tile.
    """
    first, last = axis.whole
    low, high = -(-first // rows), last // rows
    if high - low < 2:
        low = high = 0
    starts = [t * rows for t in range(-(-axis.positions // rows)) if not low <= t < high]
    return low * rows, high * rows, ((s, min(rows, axis.positions - s)) for s in starts)
