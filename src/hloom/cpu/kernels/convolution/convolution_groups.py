"""Depthwise and other convolutions in small groups: lanes are output features of neighboring groups.

The base is loaded in vectors instead of being broadcast. Where taps are consecutive along a row of positions,
neighboring positions share their loads: the loop over all taps of the row is unrolled completely.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hloom.codegen.elements import Elements
from hloom.codegen.llvm import I1, Function, Value
from hloom.codegen.llvm.memory import masked_load
from hloom.codegen.rules.contraction import multiply_add
from hloom.codegen.types import Element, from_storage, storage_type
from hloom.cpu.kernels.convolution.convolution_kernel import Epilogue, Tiles, load_vector
from hloom.cpu.kernels.convolution.convolution_tiling import TiledPhase, has_few_borders

MOST_WRITTEN_OUT = 160
"""Maximum number of multiply-adds of a tile's row of taps that is unrolled; longer rows are loops."""


class GroupTiles(Tiles):
    """Emits register tiles of positions x vectors of features; the lanes belong to neighboring groups.

    Such a tile is the part of a convolution's result that is accumulated in registers at the same time.
    """

    across = "lanes across groups"

    def __init__(
        self,
        f: Function,
        tiled: TiledPhase,
        bind: Callable[[Sequence[Value]], Epilogue],
        pointers: Sequence[Value],
    ) -> None:
        super().__init__(f, tiled, bind, pointers)
        convolution, phase, tiling = tiled.convolution, tiled.phase, tiled.tiling
        self.depth = 1 if convolution.x_group == 1 and convolution.repeat == 1 else convolution.depth
        features = [n for n, a in enumerate(phase.axes) if not a.targets] if self.depth > 1 else []
        self.feature_step = self._kernel_step(features[0]) if features else 0
        row = phase.axes[tiling.row] if tiling.row >= 0 else None
        self.written_out = (
            row is not None
            and tiling.rows * row.taps * self.depth <= MOST_WRITTEN_OUT
            and has_few_borders(row)
        )
        skipped = [*features, *([tiling.row] if self.written_out else [])]
        self.loop_axes = [n for n in self.loop_axes if n not in skipped]
        self.loaded = tiling.lanes * self.depth // convolution.repeat
        self.inside: list[int] | None = None
        self.pairs: list[tuple[int, int]] = []

    def _kernel_step(self, axis: int) -> int:
        return (self.strides.get(axis, 0) if self.packed else self.phase.axes[axis].w_tap) * self.size

    def run(self, panel: Value) -> None:
        """Emit a convolution's tiles for the current line of results and panel ``panel`` of output features.

        A line has all result positions along one axis; a panel is as wide as a tile. If the last panel has
        fewer features, its loads are masked.
        """
        line = self.x
        self.x = self.f.offset(line, panel * (self.tiling.vectors * self.loaded * self.size))
        remainder = self.phase.columns % self.tiling.panel
        if not remainder:
            super().run(panel)
            return
        panels = self.phase.columns // self.tiling.panel
        with self.f.when(panel.compare("slt", panels)):
            super().run(panel)
        with self.f.when(panel.compare("eq", panels)):
            there = remainder // self.convolution.repeat * self.depth
            self.inside = [there - v * self.loaded for v in range(self.tiling.vectors)]
            super().run(panel)
            self.inside = None

    def _tile(
        self, row: Value, pieces: Sequence[tuple[range, tuple[int, int] | None]], count: int | None = None
    ) -> None:
        if not self.written_out:
            super()._tile(row, pieces, count)
            return
        axis = self.phase.axes[self.tiling.row]
        pairs = [
            (r, tap) for valid, taps in pieces for r in valid for tap in range(*(taps or (0, axis.taps)))
        ]
        self.pairs = sorted(pairs, key=lambda p: p[0] * axis.x_position + p[1] * axis.x_tap)
        rows = self.tiling.rows if count is None else count
        super()._tile(row, [(range(rows), None)], count)

    def _step(self, x: Value, w: Value, sums: list[Element], rows: range, stride: int) -> list[Element]:
        """Emit the multiply-adds of one window element and all its input features; return a tile's new sums.

        If the loop over the window elements along the tile's row axis is unrolled, the multiply-adds of all
        these window elements are emitted.

        Args:
            x, w: addresses of the base (lhs) and of the filter (rhs) for the first window element.
            sums: the accumulators of the tile.
            rows: the rows (result positions) of the tile to update.
            stride: bytes in the base from one row of the tile to the next.
        """
        f, tiling = self.f, self.tiling
        e = Elements(f, tiling.lanes, {})
        updated = list(sums)
        step, jump = 0, 0
        pairs = [(r, 0) for r in rows]
        if self.written_out:
            axis = self.phase.axes[tiling.row]
            pairs, step, jump = self.pairs, axis.x_tap * self.size, self._kernel_step(tiling.row)
        bases: dict[tuple[int, int], Value] = {}
        kernels: dict[tuple[int, int, int], Element] = {}
        for r, tap in pairs:
            for v in range(tiling.vectors):
                at = r * stride + tap * step
                if (at, v) not in bases:
                    bases[at, v] = self._load(f.offset(x, at), v)
                for c in range(self.depth):
                    if (tap, c, v) not in kernels:
                        offset = tap * jump + c * self.feature_step + v * tiling.lanes * self.size
                        kernels[tap, c, v] = load_vector(f, f.offset(w, offset), self.kind, tiling.lanes)
                    a = from_storage(self._lanes(bases[at, v], c), self.kind)
                    number = r * tiling.vectors + v
                    updated[number] = multiply_add(e, self.kind, a, kernels[tap, c, v], updated[number])
        return updated

    def _load(self, place: Value, vector: int) -> Value:
        """Emit the load of all input features of those groups that vector ``vector`` of a tile computes.

        ``place`` is the address for vector 0. The features stay in memory order: group by group.
        """
        f = self.f
        part = storage_type(self.kind).vector(self.loaded)
        pointer = f.offset(place, vector * self.loaded * self.size)
        if self.inside is None:
            return f.load(part, pointer)
        there = self.inside[vector]
        mask = f.constant(I1.vector(self.loaded), [int(lane < there) for lane in range(self.loaded)])
        return masked_load(part, pointer, mask)

    def _lanes(self, loaded: Value, feature: int) -> Value:
        """Emit a shuffle that gives each lane input feature ``feature`` of the lane's own group.

        ``loaded`` has all input features of these groups, group by group.
        """
        repeat = self.convolution.repeat
        if self.depth == 1 and repeat == 1:
            return loaded
        return loaded.shuffle([lane // repeat * self.depth + feature for lane in range(self.tiling.lanes)])
