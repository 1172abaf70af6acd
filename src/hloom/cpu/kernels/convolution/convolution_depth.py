"""Convolutions to few output features: lanes are input features, reduced at the end of a tile."""

from __future__ import annotations

from hloom.codegen.elements import UNKNOWN_EXTENT, Elements, View
from hloom.codegen.llvm import I1, I64, PTR, Module, Value
from hloom.codegen.loops import LoopKernel, outer_loops
from hloom.codegen.rules.contraction import converted, multiply_add
from hloom.codegen.types import Element, storage_bytes
from hloom.cpu.kernels.convolution.convolution_kernel import Tiles, load_vector, store_vector
from hloom.cpu.kernels.convolution.convolution_tiling import TiledPhase, tap_axes
from hloom.ir.affine import Index, Variable


def emit_pack_depth(module: Module, name: str, tiled: TiledPhase) -> LoopKernel:
    """Emit the kernel (filter, packed, begin, end) that packs the filters of groups begin <= g < end.

    The packed form suits `DepthTiles`, whose lanes are input features: for each window element, and each
    block of as many input features as a vector has lanes, it has one vector per output feature.
    """
    convolution, phase, tiling = tiled.convolution, tiled.phase, tiled.tiling
    f = module.function(name, [PTR, PTR, I64, I64])
    source, target, begin, end = f.parameters
    strides, group_elements = tiled.packed_strides
    size = storage_bytes(convolution.kind)
    e = Elements(f, tiling.lanes, {})
    group = Variable(convolution.groups, "g")
    taps = [Variable(phase.axes[n].taps, "t") for n in tap_axes(phase)]
    view = View(source, convolution.w_type, (UNKNOWN_EXTENT,))
    with f.loop(begin, end) as loop:
        group.value = loop.index
        with outer_loops(f, taps):
            position = Index.of(group) * sum(axis.w_position for axis in phase.axes)
            offset = Index.of(group) * (group_elements * size)
            for variable, n in zip(taps, tap_axes(phase), strict=True):
                position = position + Index.of(variable) * phase.axes[n].w_tap
                offset = offset + Index.of(variable) * (strides[n] * size)
            row = f.offset(target, e.index_value(offset))
            lane = Variable(tiling.lanes, "c")
            lane.is_lane, lane.value = True, f.constant(I64, 0)
            for column in range(phase.columns):
                at = position + Index.of(lane) * convolution.w_feature + column * phase.w_column
                with e.scope():
                    value = converted(e.load(view, (at,)), convolution.w_type, convolution.kind)
                store_vector(f, value, f.offset(row, column * tiling.lanes * size))
    f.finish()
    return LoopKernel(name, convolution.groups, 1, convolution.groups * group_elements)


class DepthTiles(Tiles):
    """Emits register tiles of positions x output features; the lanes are partial sums over input features."""

    across = "lanes across input features"

    def _step(self, x: Value, w: Value, sums: list[Element], rows: range, stride: int) -> list[Element]:
        f, tiling = self.f, self.tiling
        e = Elements(f, tiling.lanes, {})
        vector = tiling.lanes * self.size
        kernels = [
            load_vector(f, f.offset(w, v * vector), self.kind, tiling.lanes) for v in range(tiling.vectors)
        ]
        updated = list(sums)
        for r in rows:
            base = load_vector(f, f.offset(x, r * stride), self.kind, tiling.lanes)
            for v, kernel in enumerate(kernels):
                number = r * tiling.vectors + v
                updated[number] = multiply_add(e, self.kind, base, kernel, sums[number])
        return updated

    def _write_tile(self, sums: list[Element], row: Value, rows: int) -> None:
        """Emit the sum of each accumulator's lanes, and the fused operations and store of each such scalar.

        Args:
            sums: one accumulator for each row of the tile and output feature, row-major.
            row: the first row, a position of the result along the tile's row axis.
            rows: number of rows of the tile.
        """
        phase, tiling = self.phase, self.tiling
        for number, value in enumerate(sums):
            r, column = divmod(number, tiling.vectors)
            assert isinstance(value, Value)
            e = Elements(self.f, 0, {})
            positions = list(self.positions)
            if tiling.row >= 0:
                variable = Variable(phase.axes[tiling.row].positions, "r")
                variable.value = row + r
                positions[tiling.row] = Index.of(variable)
            self.epilogue.store(e, phase.indices(e, positions, Index(column)), _total(value))


def _total(value: Value) -> Value:
    """Emit the sum of the lanes of a vector (their OR for i1); return the scalar.

    It adds the upper half of the lanes to the lower half until one lane is left.
    """
    lanes = value.type.lanes
    while lanes > 1:
        lanes //= 2
        low, high = value.shuffle(range(lanes)), value.shuffle(range(lanes, 2 * lanes))
        value = low | high if value.type.scalar is I1 else low + high
    return value.extract(0)
