"""Convolutions as sums over strides, independent of dimension numbers, layouts and base dilation.

Positions address results, and taps address products: every axis has a number of positions, a number of taps,
and the strides of both in the base and the kernel. Batch and groups are axes of one tap; input features are
an axis of one position. A convolution over a dilated base becomes one convolution per phase of the result,
without the taps that meet the holes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from hloom.analysis.instructions import operation_of
from hloom.codegen.elements import Elements
from hloom.codegen.llvm import Value
from hloom.codegen.rules.contraction import accumulator_type
from hloom.codegen.types import storage_bytes
from hloom.ir.affine import Index, Indices, row_major_strides
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import WindowDimension
from hloom.operations.convolution import Convolution
from hloom.records import dataclass
from hloom.shape.element_type import ElementType


@dataclass(frozen=True, slots=True)
class StrideAxis:
    """One axis of the loops of a convolution: positions enumerate results, and taps the products of a sum.

    The taps are window elements or input features. At a position and a tap, the index in the base (lhs) is
    position * step + tap * dilation - low; there is a product only if it is in [0, size).

    Attributes:
        positions, taps: the number of positions and of taps.
        x_position, x_tap: distance in the base, in elements, between neighboring positions, and between
            neighboring taps.
        w_position, w_tap: the same distances in the filter (rhs).
        step, dilation, low, size: the numbers in the formula of the base index.
        targets: (dimension, size) of the result dimensions that the positions enumerate, major first.
        scale, offset: the result index is position * scale + offset.
        padded: whether the base in memory has zeros wherever taps are outside of it.
    """

    positions: int
    taps: int
    x_position: int
    x_tap: int
    w_position: int = 0
    w_tap: int = 0
    step: int = 0
    dilation: int = 0
    low: int = 0
    size: int = 1
    targets: tuple[tuple[int, int], ...] = ()
    scale: int = 1
    offset: int = 0
    padded: bool = False

    @property
    def whole(self) -> tuple[int, int]:
        """Return (first, end) of the result positions at which all taps are inside the base (lhs).

        This is along one axis; taps are window elements. Returns (0, 0) if there is no such position.
        """
        if not self.step:
            return (0, self.positions) if self._inside(0, 0) and self._inside(0, self.taps - 1) else (0, 0)
        first = max(0, -(-self.low // self.step))
        last = (self.size - 1 + self.low - (self.taps - 1) * self.dilation) // self.step
        last = min(self.positions, last + 1)
        return (first, last) if first < last else (0, 0)

    @property
    def bounded(self) -> bool:
        """Return whether, at some position along this axis, a window element is outside the base (lhs)."""
        return self.taps > 0 and self.whole != (0, self.positions)

    def _inside(self, position: int, tap: int) -> bool:
        return 0 <= position * self.step + tap * self.dilation - self.low < self.size

    def taps_inside(self, position: int) -> range:
        """Return the range of the taps of this axis that are inside the base (lhs) at a constant position.

        The position is that of a result; taps are window elements.
        """
        inside = [tap for tap in range(self.taps) if self._inside(position, tap)]
        return range(inside[0], inside[-1] + 1) if inside else range(0)

    def tap_range(self, position: Value) -> tuple[Value | int, Value | int]:
        """Emit the bounds [first, end) of this axis's window elements that are inside the base (lhs).

        ``position`` is the position of the result at run time. Returns constants if all window elements are
        inside at every position.
        """
        if not self.bounded:
            return 0, self.taps
        f = position.function
        offset = position * self.step
        first = f.intrinsic("smax", f.constant(offset.type, self.low) - offset, f.constant(offset.type, 0))
        past = f.constant(offset.type, self.size - 1 + self.low + self.dilation) - offset
        past = f.intrinsic("smax", past, f.constant(offset.type, 0))
        if self.dilation > 1:
            first = (first + (self.dilation - 1)).unsigned_divide(self.dilation)
            past = past.unsigned_divide(self.dilation)
        return first, f.intrinsic("smin", past, f.constant(offset.type, self.taps))


@dataclass(frozen=True, slots=True)
class StridePhase:
    """A convolution without base dilation that computes some or all results of one that may have it.

    Attributes:
        axes: the axes of the loops, each with positions (of results) and taps (of products in a sum).
        x_offset, w_offset: elements from the start of the base (lhs) and of the filter (rhs) to position 0,
            tap 0 on all axes.
        columns: number of output features of a group; their results are adjacent.
        w_column: elements of the filter from one output feature to the next.
        feature: the index of the result's feature dimension.
        rank: number of dimensions of the result.
    """

    axes: tuple[StrideAxis, ...]
    x_offset: int
    w_offset: int
    columns: int
    w_column: int
    feature: int
    rank: int

    @property
    def terms(self) -> int:
        """Return the number of products in the sum of one result, including those with padding elements.

        It is the product of the numbers of taps of all axes.
        """
        return math.prod(axis.taps for axis in self.axes)

    @property
    def results(self) -> int:
        return math.prod(axis.positions for axis in self.axes) * self.columns

    def indices(self, e: Elements, positions: Sequence[Index], column: Index) -> Indices:
        """Return the index in the result of output feature ``column``, given the position along each axis."""
        input_indices = [Index(0)] * self.rank
        for axis, position in zip(self.axes, positions, strict=True):
            if len(axis.targets) == 1:
                ((dimension, _),) = axis.targets
                input_indices[dimension] = input_indices[dimension] + position * axis.scale + axis.offset
            elif axis.targets:
                parts = e.divided(position, tuple(size for _, size in axis.targets))
                for (dimension, _), part in zip(axis.targets, parts, strict=True):
                    input_indices[dimension] = part
        input_indices[self.feature] = input_indices[self.feature] + column
        return tuple(input_indices)


@dataclass(frozen=True, slots=True)
class DirectConvolution:
    """A convolution in terms of strides, divided into phases: convolutions without base dilation.

    Attributes:
        phases: together they compute every result element once.
        kind: the accumulator type.
        x_type, w_type: element types of the base (lhs) as the kernel reads it, and of the filter (rhs).
        source_type: element type of the base array, before any copy.
        x_dimensions: dimensions of the base array, before any copy.
        padding: (low, high) padding of each base dimension if the kernel reads a padded copy of it; else
            None.
        strip: the length of a strip of the last base dimension if the kernel reads a copy of the base in
            which each strip is contiguous; else 0.
        groups: number of groups.
        depth: number of input features of a group.
        x_feature: elements of the base from one input feature to the next.
        x_group: elements of the base from one group to the next.
        outputs: number of output features of all groups.
        repeat: 0 if the vector lanes are output features of one group. Otherwise lanes span groups, and this
            is the number of output features of each group.
        deep: whether the vector lanes are input features.
        w_feature: elements of the filter from one input feature to the next.
    """

    phases: tuple[StridePhase, ...]
    kind: ElementType
    x_type: ElementType
    w_type: ElementType
    source_type: ElementType
    x_dimensions: tuple[int, ...]
    padding: tuple[tuple[int, int], ...] | None
    groups: int
    depth: int
    x_feature: int
    x_group: int
    outputs: int
    w_feature: int
    repeat: int = 0
    deep: bool = False
    strip: int = 0

    @property
    def strip_elements(self) -> int:
        """Return the number of elements of the base (lhs) in one strip.

        A strip is a range of the last dimension, for all indices of the others.
        """
        return math.prod(self.x_dimensions[:-1]) * self.strip

    @property
    def strips(self) -> int:
        return -(-self.x_dimensions[-1] // self.strip)

    @property
    def copied_bytes(self) -> int:
        """Return the size in bytes of the copy of the base (lhs); 0 if the base is read in place."""
        size = storage_bytes(self.kind)
        if self.strip:
            return self.strips * self.strip_elements * size
        return 0 if self.padding is None else math.prod(self.copied_dimensions) * size

    @property
    def copied_dimensions(self) -> tuple[int, ...]:
        """Return the dimensions of the base (lhs) as the kernel reads it: with padding if it is copied."""
        if self.padding is None:
            return self.x_dimensions
        return tuple(n + low + high for n, (low, high) in zip(self.x_dimensions, self.padding, strict=True))


def convolution_of(i: HloInstruction, *, copied: bool = False) -> DirectConvolution | None:
    """Return a convolution instruction in terms of strides; None for dynamic shapes or empty arrays.

    ``copied`` says that the kernel reads a copy of the base (lhs), which has the accumulator type and all
    padding that the windows read.
    """
    operation = operation_of(i, Convolution)
    labels, window = operation.dim_labels, operation.window
    lhs, rhs = (o.shape for o in i.operands)
    static = i.shape.is_static and lhs.is_static and rhs.is_static
    if not static or 0 in (*lhs.dimensions, *rhs.dimensions, *i.shape.dimensions):
        return None
    kind = accumulator_type(i.shape.element_type)
    outputs = rhs.dimensions[labels.kernel_output_feature_dimension]
    depth = rhs.dimensions[labels.kernel_input_feature_dimension]
    batch_groups = operation.batch_group_count
    groups = operation.feature_group_count * batch_groups
    batch = lhs.dimensions[labels.input_batch_dimension] // batch_groups
    feature = labels.output_feature_dimension
    places = list(zip(labels.input_spatial_dimensions, labels.output_spatial_dimensions, strict=True))
    bounds = [(lhs.dimensions[x], i.shape.dimensions[o]) for x, o in places]
    padding = [(0, 0)] * lhs.rank
    if copied:
        for d, (x, _), (size, results) in zip(window, places, bounds, strict=True):
            padding[x] = _reach(d, size, results)
    sizes = [n + low + high for n, (low, high) in zip(lhs.dimensions, padding, strict=True)]
    x_strides, w_strides = row_major_strides(sizes), row_major_strides(rhs.dimensions)
    x_batch, x_feature = x_strides[labels.input_batch_dimension], x_strides[labels.input_feature_dimension]
    w_column = w_strides[labels.kernel_output_feature_dimension]
    w_feature = w_strides[labels.kernel_input_feature_dimension]
    columns = outputs // groups
    x_group = x_batch * batch if batch_groups > 1 else x_feature * depth
    fixed = [
        StrideAxis(batch, 1, x_batch, 0, targets=((labels.output_batch_dimension, batch),)),
        StrideAxis(groups, 1, x_group, 0, w_column * columns, targets=((feature, groups),), scale=columns),
        StrideAxis(1, depth, 0, x_feature, 0, w_feature),
    ]
    choices = [
        [
            _spatial(d, size, results, phase).along(x_strides[x], w_strides[w], o, padding[x][0], copied)
            for phase in range(_phases(d, results))
        ]
        for d, (x, o), w, (size, results) in zip(
            window, places, labels.kernel_spatial_dimensions, bounds, strict=True
        )
    ]
    phases = [
        StridePhase(*_joined(fixed, choice), columns, w_column, feature, i.shape.rank)
        for choice in itertools.product(*choices)
    ]
    types = (kind, kind if copied else lhs.element_type, rhs.element_type, lhs.element_type)
    base = (lhs.dimensions, tuple(padding) if copied else None)
    return DirectConvolution(
        tuple(phases), *types, *base, groups, depth, x_feature, x_group, outputs, w_feature
    )


def across_groups(convolution: DirectConvolution, lanes: int) -> DirectConvolution | None:
    """Return a convolution with vector lanes that span its small groups; None if strides do not allow that.

    They allow it if each group has one output feature and neighboring groups are adjacent in the base (lhs),
    or if the input features of neighboring groups are contiguous and a vector of results needs at most four
    vectors of them.
    """
    c = convolution
    columns = c.phases[0].columns
    side_by_side = columns == 1 and c.x_group == 1
    loaded = lanes * c.depth // columns
    in_turn = c.x_feature == 1 and c.x_group == c.depth and lanes % columns == 0 and loaded <= 4 * lanes
    if c.groups == 1 or c.kind.is_complex or not (side_by_side or in_turn):
        return None
    phases = [
        replace(p, axes=tuple(a for a in p.axes if not a.w_position), columns=c.outputs) for p in c.phases
    ]
    return replace(c, phases=tuple(phases), groups=1, repeat=columns)


def in_strips(convolution: DirectConvolution, rows: Sequence[tuple[int, int]]) -> DirectConvolution | None:
    """Return a convolution changed to read a copy of the base (lhs) in strips of its last dimension.

    Each strip is contiguous in the copy, and the positions of a tile along its row axis are one strip.
    Returns None if the tiles do not allow that, as when the row axis is not the last dimension of the base.

    Args:
        rows: (row axis, number of positions of a tile along it) for each phase.
    """
    c = convolution
    width, strip = c.x_dimensions[-1], rows[0][1]
    phases: list[StridePhase] = []
    for phase, (row, height) in zip(c.phases, rows, strict=True):
        across = phase.axes[row]
        distances = [d for n, a in enumerate(phase.axes) for d in (a.x_position * (n != row), a.x_tap)]
        is_last = across.x_position == 1 and across.positions == width and across.taps == 1
        if row < 0 or not is_last or height != strip or any(d % width for d in (phase.x_offset, *distances)):
            return None
        axes = [
            a
            if n == row
            else replace(a, x_position=a.x_position // width * strip, x_tap=a.x_tap // width * strip)
            for n, a in enumerate(phase.axes)
        ]
        phases.append(replace(phase, axes=tuple(axes), x_offset=phase.x_offset // width * strip))
    return replace(c, phases=tuple(phases), strip=strip)


def across_depth(convolution: DirectConvolution, lanes: int) -> DirectConvolution | None:
    """Return a convolution changed to have input features in its vector lanes; None if that is not possible.

    The input features must be contiguous in the base (lhs), their number a multiple of ``lanes``, and the
    type not complex.
    """
    c = convolution
    if c.x_feature != 1 or c.depth % lanes or c.kind.is_complex:
        return None
    phases: list[StridePhase] = []
    for phase in c.phases:
        axes = [a for a in phase.axes if a.targets]
        axes.append(StrideAxis(1, c.depth // lanes, 0, lanes, 0, lanes * c.w_feature))
        phases.append(replace(phase, axes=tuple(axes)))
    return replace(c, phases=tuple(phases), deep=True)


def _phases(d: WindowDimension, results: int) -> int:
    return min(d.base_dilation // math.gcd(d.stride, d.base_dilation), results)


@dataclass(frozen=True, slots=True)
class _Spatial:
    """One spatial dimension of a phase of a convolution: of a part without base dilation.

    A phase computes results a fixed distance apart, which all use the same window elements. With base
    dilation, the other window elements meet the zeros between the elements of the base (lhs).

    Attributes:
        axis: how many results and window elements the phase has along the dimension, and how they step
            through the base; its strides in memory are not set yet.
        first: the index of the first window element that the phase uses.
        apart: the distance in the window from one element that the phase uses to the next.
        window: the whole convolution's window along the dimension.
    """

    axis: StrideAxis
    first: int
    apart: int
    window: WindowDimension

    def along(
        self, x_stride: int, w_stride: int, dimension: int, before: int, padded: bool
    ) -> tuple[StrideAxis, int, int]:
        """Return (axis with its strides, base offset, filter offset), the offsets of position 0 and tap 0.

        Args:
            x_stride, w_stride: strides of this dimension in the base (lhs) and in the filter (rhs).
            dimension: the index of this spatial dimension in the result's shape.
            before: number of padding elements that precede the base's own in memory.
            padded: whether the base in memory has its padding.
        """
        a, d = self.axis, self.window
        sign = -1 if d.window_reversal else 1
        x_position, x_tap, w_tap = a.step * x_stride, a.dilation * x_stride, sign * self.apart * w_stride
        targets = ((dimension, a.targets[0][1]),)
        axis = replace(a, x_position=x_position, x_tap=x_tap, w_tap=w_tap, targets=targets, padded=padded)
        begin = d.size - 1 - self.first if d.window_reversal else self.first
        return axis, (before - a.low) * x_stride, begin * w_stride if a.taps else 0


def _spatial(d: WindowDimension, size: int, results: int, phase: int) -> _Spatial:
    """Return the part of a convolution along a spatial dimension that phase ``phase`` computes.

    It has every period-th result: ``phase``, ``phase`` + period, ... They all use the same window elements,
    because the others meet the zeros of base dilation. ``size`` and ``results`` are the sizes of the
    dimension in the base (lhs) and in the result.
    """
    hole = d.base_dilation
    common, apart = math.gcd(d.stride, hole), hole // math.gcd(d.window_dilation, hole)
    before = d.padding_low - phase * d.stride
    fits = [tap for tap in range(apart) if (tap * d.window_dilation - before) % hole == 0]
    first = fits[0] if fits else d.size
    taps = max(0, -(-(d.size - first) // apart))
    period = hole // common
    low = (before - first * d.window_dilation) // hole if taps else 0
    positions, step = -(-(results - phase) // period), d.stride // common
    dilation = d.window_dilation * apart // hole
    axis = StrideAxis(positions, taps, 0, 0, step=step, dilation=dilation, low=low, size=size)
    axis = replace(axis, targets=((0, results),), scale=period, offset=phase)
    return _Spatial(axis, first, apart, d)


def _joined(
    fixed: Sequence[StrideAxis], spatial: Sequence[tuple[StrideAxis, int, int]]
) -> tuple[tuple[StrideAxis, ...], int, int]:
    """Collect a convolution's axes; return (axes, total base offset, total filter offset).

    Axes of one position and one tap (window element) are left out.

    Args:
        fixed: the axes of the batch, the groups and the input features.
        spatial: (axis, base offset, filter offset) of each spatial dimension.
    """
    axes = [*fixed, *(axis for axis, _, _ in spatial)]
    nontrivial = [a for a in axes if a.positions != 1 or a.taps != 1 or a.bounded or a.offset]
    return _merged(nontrivial), sum(x for _, x, _ in spatial), sum(w for _, _, w in spatial)


def _reach(d: WindowDimension, size: int, results: int) -> tuple[int, int]:
    """Return the (low, high) padding that the windows along a spatial dimension read.

    It is a number of elements of the base (lhs) before dilation. ``size`` and ``results`` are the sizes of
    the dimension in the base and in the result.
    """
    low = high = 0
    for phase in range(_phases(d, results)):
        axis = _spatial(d, size, results, phase).axis
        last = (axis.positions - 1) * axis.step + (axis.taps - 1) * axis.dilation - axis.low
        if axis.taps:
            low, high = max(low, axis.low), max(high, last - (size - 1))
    return low, high


def _merged(axes: Sequence[StrideAxis]) -> tuple[StrideAxis, ...]:
    """Return a convolution's ``axes``, with neighbors merged where one loop can take the place of both.

    Such neighbors have a single window element each, and are contiguous in the base (lhs) and in the result.
    """
    merged: list[StrideAxis] = []
    for axis in sorted(axes, key=lambda a: a.targets[0][0] if a.targets else -1, reverse=True):
        inner = merged[-1] if merged else None
        if inner is not None and _mergeable(axis) and _mergeable(inner):
            follows = axis.x_position == inner.x_position * inner.positions
            neighbors = axis.targets[-1][0] + 1 == inner.targets[0][0]
            if follows and neighbors:
                positions, targets = axis.positions * inner.positions, (*axis.targets, *inner.targets)
                single = replace(inner, step=0, dilation=0, low=0, size=1, padded=False)
                merged[-1] = replace(single, positions=positions, targets=targets)
                continue
        merged.append(axis)
    return tuple(reversed(merged))


def _mergeable(axis: StrideAxis) -> bool:
    single = axis.taps == 1 and not axis.bounded and axis.scale == 1 and not axis.offset
    return single and not axis.w_position and bool(axis.targets)
