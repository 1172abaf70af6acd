"""Operand copies of convolutions: the kernel packed into panels, the base with its padding."""

from __future__ import annotations

import math
from contextlib import nullcontext

from hloom.codegen.elements import UNKNOWN_EXTENT, Elements, View
from hloom.codegen.llvm import I64, PTR, Function, Module, Value
from hloom.codegen.loops import LoopKernel, outer_loops, vector_lanes, vector_loop
from hloom.codegen.rules.contraction import converted
from hloom.codegen.types import constant, storage_bytes
from hloom.cpu.kernels.convolution.convolution_kernel import store_vector
from hloom.cpu.kernels.convolution.convolution_plan import DirectConvolution
from hloom.cpu.kernels.convolution.convolution_tiling import TiledPhase, tap_axes
from hloom.ir.affine import Index, Variable


def emit_pack_kernel(module: Module, name: str, tiled: TiledPhase) -> LoopKernel:
    """Emit the kernel (filter, packed, begin, end) that packs the filter (rhs) of all groups into panels.

    A panel has the output features of one tile: one row of them for each tap (window element and input
    feature), in the order of the loops over taps. The kernel runs the tasks with indices begin <= n < end: a
    task packs one tap of all panels of a group if the output features are contiguous in memory, else one
    panel.
    """
    convolution, phase, tiling = tiled.convolution, tiled.phase, tiled.tiling
    f = module.function(name, [PTR, PTR, I64, I64])
    source, target, begin, end = f.parameters
    strides, panel_elements = tiled.packed_strides
    size = storage_bytes(convolution.kind)
    axes = [(phase.axes[n], strides[n]) for n in tap_axes(phase)]
    group, panel = Variable(convolution.groups, "g"), Variable(tiled.panels, "p")
    taps = [Variable(axis.taps, "t") for axis, _ in axes]
    tasks, loops = ([group, *taps], [panel]) if phase.w_column == 1 else ([group, panel], taps)
    e = Elements(f, tiling.lanes, {})
    with f.loop(begin, end) as loop:
        number = loop.index
        for task in reversed(tasks):
            quotient = number.unsigned_divide(task.trips)
            task.value, number = number - quotient * task.trips, quotient
        with outer_loops(f, loops), e.scope():
            position = Index.of(group) * sum(axis.w_position for axis in phase.axes)
            offset = (Index.of(group) * tiled.panels + Index.of(panel)) * panel_elements
            for variable, (axis, stride) in zip(taps, axes, strict=True):
                position = position + Index.of(variable) * axis.w_tap
                offset = offset + Index.of(variable) * stride
            row = f.offset(target, e.index_value(offset * size))
            _pack_row(e, tiled, source, position, panel, row)
    f.finish()
    trips = math.prod(task.trips for task in tasks)
    return LoopKernel(name, trips, 1, convolution.groups * tiled.panels * panel_elements)


def _pack_row(
    e: Elements, tiled: TiledPhase, source: Value, position: Index, panel: Variable, row: Value
) -> None:
    """Emit the packing of one row of a panel: one tap of the filter (rhs), for the panel's output features.

    Args:
        position: index of the filter's element for this tap and the group's first output feature, counted
            from ``source``.
        panel: the loop variable whose value is the panel's index.
        row: the address to write to.
    """
    convolution, phase, tiling = tiled.convolution, tiled.phase, tiled.tiling
    f, size, lanes = Function.of(row), storage_bytes(convolution.kind), tiling.lanes
    view = View(source, convolution.w_type, (UNKNOWN_EXTENT,))
    assert isinstance(panel.value, Value)
    for vector in range(tiling.vectors):
        column = Variable(phase.columns, "n")
        column.is_lane, column.value = True, panel.value * tiling.panel + vector * lanes
        inside = e.index_value(Index.of(column)).compare("slt", phase.columns)
        mask = inside if phase.columns % tiling.panel else None
        with e.scope(), e.masked(mask):
            loaded = e.load(view, (position + Index.of(column) * phase.w_column,))
        value = converted(loaded, convolution.w_type, convolution.kind)
        if mask is not None:
            value = e.choose(mask, value, constant(f, convolution.kind, 0, lanes))
        store_vector(f, value, f.offset(row, vector * lanes * size))


def emit_copy_strips(module: Module, name: str, convolution: DirectConvolution) -> LoopKernel:
    """Emit the kernel (base, copy, begin, end) that copies the base (lhs) so that its strips are contiguous.

    A strip is a range of the last dimension, for all indices of the other dimensions. The kernel copies the
    rows begin <= r < end; rows are enumerated by the other dimensions, merged.
    """
    f = module.function(name, [PTR, PTR, I64, I64])
    source_pointer, target_pointer, begin, end = f.parameters
    *outer, width = convolution.x_dimensions
    strip, count = convolution.strip, math.prod(outer)
    source = View(source_pointer, convolution.source_type, (count, width))
    target = View(target_pointer, convolution.kind, (convolution.strips, count, strip))
    element, number = Variable(count, "p"), Variable(width // strip, "s")

    def copy(number: Index, columns: int) -> None:
        """Emit the copy of the first ``columns`` elements of the current row in strip ``number``.

        The vectors have decreasing powers of two as lane counts: masked stores may be slow.
        """
        done = 0
        while done < columns:
            lanes = 1 << ((columns - done).bit_length() - 1)
            e, lane = Elements(f, lanes if lanes > 1 else 0, {}), Variable(lanes, "n", f.constant(I64, 0))
            lane.is_lane = lanes > 1
            place = Index.of(lane) + done
            with e.scope():
                value = e.load(source, (Index.of(element), number * strip + place))
                e.store(target, (number, Index.of(element), place), value)
            done += lanes

    with f.loop(begin, end) as loop:
        element.value = loop.index
        with outer_loops(f, [number]):
            copy(Index.of(number), strip)
        copy(Index(width // strip), width % strip)
    f.finish()
    return LoopKernel(name, count, 1, count * width)


def emit_copy_base(module: Module, name: str, convolution: DirectConvolution) -> LoopKernel:
    """Emit the kernel (base, copy, begin, end) that copies the base (lhs), padded with zeros.

    It converts the elements to the accumulator type. A call makes the indices begin <= n < end of the copy's
    first dimension.
    """
    dimensions = _merged_dimensions(convolution)
    f = module.function(name, [PTR, PTR, I64, I64])
    source_pointer, target_pointer, begin, end = f.parameters
    sizes = tuple(size for size, _, _ in dimensions)
    source = View(source_pointer, convolution.source_type, sizes)
    target = View(target_pointer, convolution.kind, tuple(map(sum, dimensions)))
    variables = [Variable(size) for size in target.dimensions]
    *outer, row = variables
    lanes = vector_lanes([], sizes[-1]) or 1
    e = Elements(f, lanes, {})
    zero = constant(f, convolution.kind, 0, lanes)

    def put(start: int, stop: int, shift: int | None) -> None:
        def body() -> None:
            value = zero
            if shift is not None:
                lows = [low for _, low, _ in dimensions]
                here = tuple(Index.of(v) + -low for v, low in zip(variables, lows, strict=True))
                value = converted(e.load(source, here), convolution.source_type, convolution.kind)
            e.store(target, tuple(map(Index.of, variables)), value)

        if start == stop:
            return
        low, high = f.constant(I64, start), f.constant(I64, stop)
        vector_loop(e, row, low, high, body, exact=(stop - start) % lanes == 0)

    with outer_loops(f, outer, begin, end), e.scope():
        inside: Value | None = None
        for variable, (size, low, high) in zip(outer, dimensions, strict=False):
            if low or high:
                assert isinstance(variable.value, Value)
                inside = e.both(inside, (variable.value - low).compare("ult", size))
        size, low, high = dimensions[-1]
        with f.when(inside) if inside is not None else nullcontext(), e.scope():
            put(0, low, None)
            put(low, low + size, low)
            put(low + size, low + size + high, None)
        if inside is not None:
            with f.when(~inside), e.scope():
                put(0, low + size + high, None)
    f.finish()
    return LoopKernel(name, target.dimensions[0] if outer else 1, 1, target.count)


def _merged_dimensions(convolution: DirectConvolution) -> list[tuple[int, int, int]]:
    """Return (size, padding before, padding after) of the dimensions of the base (lhs), major first.

    A dimension is merged with the next one if the latter has no padding.
    """
    assert convolution.padding is not None
    merged: list[tuple[int, int, int]] = []
    pairs = zip(convolution.x_dimensions, convolution.padding, strict=True)
    for size, (low, high) in reversed(list(pairs)):
        if merged and merged[-1][1:] == (0, 0):
            inner = merged.pop()[0]
            merged.append((size * inner, low * inner, high * inner))
        else:
            merged.append((size, low, high))
    return merged[::-1]
