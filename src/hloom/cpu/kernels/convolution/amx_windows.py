"""Convolutions as products in AMX tiles: rows are positions, k runs over window elements and input features.

The features of a window element fill whole tiles. Tiles of the base (lhs) are packed from the windows; zeros
stand for elements outside the base.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.codegen.elements import Elements
from hloom.codegen.llvm import I64, Function, Value
from hloom.codegen.rules.contraction import accumulator_type
from hloom.codegen.target import Target
from hloom.codegen.types import storage_bytes
from hloom.cpu.kernels.dot.amx_packing import LINES, PANEL, TileMatrix, TilePacker, group_of
from hloom.cpu.kernels.dot.gemm import Gemm, Matrix
from hloom.cpu.kernels.dot.gemm_amx import AmxPlan, plan_amx
from hloom.cpu.kernels.dot.gemm_pairs import fits_amx
from hloom.ir.affine import Index, Indices, row_major_strides
from hloom.ir.instruction import HloInstruction
from hloom.operations.convolution import Convolution
from hloom.records import dataclass

FEWEST_FEATURES: Final = 16
"""Fewest input features: a tile has 32 or 64."""
MOST_BYTES: Final = 1 << 26
"""Most bytes of packed windows."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A spatial dimension of a convolution.

    Attributes:
        size: positions of the window.
        taps, dilation, is_reversed: elements of the window, their distance, and whether they are reversed.
        stride, low: distance of positions, and elements before the base at the first one.
        extent: elements of the base.
        x_stride, w_stride: distances in the base and in the kernel, in elements.
    """

    size: int
    taps: int
    dilation: int
    is_reversed: bool
    stride: int
    low: int
    extent: int
    x_stride: int
    w_stride: int


@dataclass(frozen=True, slots=True)
class _Windows(TileMatrix):
    """The tiles of a factor of which k runs over window elements and, within each, over features.

    Attributes:
        axes: the spatial dimensions.
        features: the number of input features.
    """

    axes: tuple[Axis, ...]
    features: int

    @property
    def depth(self) -> int:
        """Return the number of input features."""
        return self.features

    def of_step(self, step: Value) -> tuple[list[Value], Value]:
        """Emit the division of the index of a tile along k; return (window element, tile of features)."""
        tiles = -(-self.features // (LINES * self.group))
        tap = step.unsigned_divide(tiles)
        return _divided(tap, [axis.taps for axis in self.axes]), step - tap * tiles


@dataclass(frozen=True, slots=True)
class BaseMatrix(_Windows):
    """The base (lhs): a line is a position of the window.

    Attributes:
        batch_stride: the distance in elements from one element of the batch to the next.
    """

    batch_stride: int

    def packer(self, f: Function) -> TilePacker:
        """Return the emitter of the packing."""
        return _BasePacker(f, self)


@dataclass(frozen=True, slots=True)
class KernelMatrix(_Windows):
    """The kernel (rhs): a line is an output feature."""

    @property
    def form(self) -> str:
        """Return a text that describes the order of the elements in the packed form."""
        axes = [(axis.taps, axis.w_stride, axis.is_reversed) for axis in self.axes]
        return f"{super().form}, windows {axes} of {self.features}, {self.must_be_finite}"

    @property
    def must_be_finite(self) -> bool:
        """Return whether zeros stand for elements outside the base: their products are to be zero."""
        return any(_reaches_outside(axis) for axis in self.axes)

    def packer(self, f: Function) -> TilePacker:
        """Return the emitter of the packing."""
        return _KernelPacker(f, self)


class _BasePacker(TilePacker):
    def __init__(self, f: Function, factor: BaseMatrix) -> None:
        super().__init__(f, factor)
        self.windows = factor

    def begin(self, line: Value) -> None:
        """Emit the first element of the window at each position of a block."""
        f, windows = self.f, self.windows
        sizes = [windows.lines, *[axis.size for axis in windows.axes]]
        self.origins: list[tuple[Value, list[Value]]] = []
        for number in range(LINES):
            last = f.constant(I64, windows.lines - 1)
            position = f.intrinsic("smin", line + number, last) if windows.lines % PANEL else line + number
            batch, *places = _divided(position, sizes)
            starts = [p * axis.stride - axis.low for p, axis in zip(places, windows.axes, strict=True)]
            self.origins.append((batch * windows.batch_stride, starts))

    def along_k(self, base: Value, line: Value, step: Value) -> list[Value]:
        """Emit the loads of features of the windows at 16 positions."""
        f, windows, e = self.f, self.windows, self.e
        taps, tile = windows.of_step(step)
        self.depth.value = tile * e.lanes
        features = None
        if windows.features % e.lanes:
            features = e.index_value(Index.of(self.depth)).compare("slt", windows.features)
        vectors: list[Value] = []
        for offset, starts in self.origins:
            mask = features
            for start, tap, axis in zip(starts, taps, windows.axes, strict=True):
                place = start + tap * axis.dilation
                offset = offset + place * axis.x_stride
                if _reaches_outside(axis):
                    inside = place.compare("ult", axis.extent).splat(e.lanes)
                    mask = inside if mask is None else mask & inside
            with e.scope():
                self.line.value = offset
                vectors.append(self.units(self.load(base, mask)))
        f.split_block()
        return vectors


class _KernelPacker(TilePacker):
    def __init__(self, f: Function, factor: KernelMatrix) -> None:
        super().__init__(f, factor)
        self.windows = factor

    def vectors(self, base: Value, line: Value, step: Value) -> list[Value]:
        """Emit the loads of a tile's elements; see `TilePacker.vectors`."""
        taps, tile = self.windows.of_step(step)
        offset = self.f.constant(I64, 0)
        for tap, axis in zip(taps, self.windows.axes, strict=True):
            number = axis.taps - 1 - tap if axis.is_reversed else tap
            offset = offset + number * axis.w_stride
        return super().vectors(self.f.offset(base, offset * storage_bytes(self.windows.kind)), line, tile)


def _reaches_outside(axis: Axis) -> bool:
    last = (axis.size - 1) * axis.stride + (axis.taps - 1) * axis.dilation - axis.low
    return axis.low > 0 or last >= axis.extent


def _divided(number: Value, sizes: Sequence[int]) -> list[Value]:
    """Emit the division of a row-major index by the sizes of its dimensions."""
    parts: list[Value] = []
    for size in reversed(sizes[1:]):
        quotient = number.unsigned_divide(size)
        parts.append(number - quotient * size)
        number = quotient
    return [number, *reversed(parts)]


def amx_convolution(i: HloInstruction, target: Target) -> AmxPlan | None:
    """Return the plan of a convolution in AMX tiles; None if it has another kernel.

    Input features of the base and output features of the result must be contiguous.
    """
    if not target.has("amx-tile") or not i.shape.is_static:
        return None
    operation = operation_of(i, Convolution)
    labels, window = operation.dim_labels, operation.window
    lhs, rhs = (o.shape for o in i.operands)
    in_groups = operation.feature_group_count * operation.batch_group_count > 1
    if in_groups or any(d.base_dilation != 1 or d.padding_low < 0 for d in window):
        return None
    if not (lhs.is_static and rhs.is_static) or 0 in (*lhs.dimensions, *rhs.dimensions, *i.shape.dimensions):
        return None
    x_strides, w_strides = row_major_strides(lhs.dimensions), row_major_strides(rhs.dimensions)
    features = lhs.dimensions[labels.input_feature_dimension]
    order = (
        labels.output_batch_dimension,
        *labels.output_spatial_dimensions,
        labels.output_feature_dimension,
    )
    if x_strides[labels.input_feature_dimension] != 1 or order != tuple(range(i.shape.rank)):
        return None
    axes = tuple(
        Axis(
            i.shape.dimensions[o],
            d.size,
            d.window_dilation,
            d.window_reversal,
            d.stride,
            d.padding_low,
            lhs.dimensions[x],
            x_strides[x],
            w_strides[w],
        )
        for d, x, w, o in zip(
            window,
            labels.input_spatial_dimensions,
            labels.kernel_spatial_dimensions,
            labels.output_spatial_dimensions,
            strict=True,
        )
    )
    kind = accumulator_type(i.shape.element_type)
    outer = tuple(range(i.shape.rank - 1))
    a = Matrix((), 1, 1)
    kernel = labels.kernel_output_feature_dimension, labels.kernel_input_feature_dimension
    b = Matrix((), w_strides[kernel[0]], w_strides[kernel[1]])
    positions, outputs = math.prod(i.shape.dimensions[d] for d in outer), i.shape.dimensions[-1]
    types = lhs.element_type, rhs.element_type
    gemm = Gemm((), positions, outputs, 1, a, b.transposed, kind, *types, ((), outer, (i.shape.rank - 1,)))
    unit = LINES * group_of(gemm)
    taps = math.prod(axis.taps for axis in axes)
    gemm = replace(gemm, k=taps * -(-features // unit) * unit)
    if features < FEWEST_FEATURES or not fits_amx(gemm, target):
        return None
    batch = x_strides[labels.input_batch_dimension]
    base = BaseMatrix(gemm, a, positions, types[0], False, axes, features, batch)
    windows = KernelMatrix(gemm, b, outputs, types[1], True, axes, features)
    return replace(plan_amx(gemm), factors=(base, windows)) if base.bytes <= MOST_BYTES else None


def result_indices(e: Elements, i: HloInstruction, row: Index, column: Index) -> Indices:
    """Emit the index in the result of a position and an output feature."""
    return (*e.divided(row, i.shape.dimensions[:-1]), column)
