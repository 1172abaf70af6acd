"""Operand copies of convolutions: the kernel packed into panels, the base with its padding."""

from __future__ import annotations

import math
from contextlib import nullcontext

from hloom.codegen.elements import UNKNOWN_EXTENT, Elements, View
from hloom.codegen.llvm import I64, PTR, Module, Value
from hloom.codegen.loops import LoopKernel, outer_loops, vector_lanes, vector_loop
from hloom.codegen.rules.contraction import converted
from hloom.codegen.types import constant, storage_bytes
from hloom.cpu.kernels.convolution.convolution_kernel import store_vector
from hloom.cpu.kernels.convolution.convolution_plan import DirectConvolution
from hloom.cpu.kernels.convolution.convolution_tiling import TiledPhase, tap_axes
from hloom.ir.affine import Index, Variable


def emit_pack_kernel(module: Module, name: str, tiled: TiledPhase) -> LoopKernel:
    """Emit the kernel (kernel, packed, begin, end) that packs panels of all groups, taps in loop order."""
    convolution, phase, tiling = tiled.convolution, tiled.phase, tiled.tiling
    f = module.function(name, [PTR, PTR, I64, I64])
    source, target, begin, end = f.parameters
    panels = tiled.panels
    strides, panel_elements = tiled.packed_strides
    size = storage_bytes(convolution.kind)
    group_stride = sum(axis.w_position for axis in phase.axes)
    e = Elements(f, tiling.lanes, {})
    with f.loop(begin, end) as loop:
        group = loop.index.unsigned_divide(panels) if convolution.groups > 1 else f.constant(I64, 0)
        number = loop.index - group * panels
        base = f.offset(source, group * (group_stride * storage_bytes(convolution.w_type)))
        out = f.offset(target, loop.index * (panel_elements * size))
        taps = [Variable(phase.axes[n].taps, "t") for n in tap_axes(phase)]
        with outer_loops(f, taps):
            position = Index(0)
            offset = Index(0)
            for variable, n in zip(taps, tap_axes(phase), strict=True):
                position = position + Index.of(variable) * phase.axes[n].w_tap
                offset = offset + Index.of(variable) * (strides[n] * size)
            row = f.offset(out, e.index_value(offset))
            for vector in range(tiling.vectors):
                column = Variable(phase.columns, "n")
                column.is_lane, column.value = True, number * tiling.panel + vector * tiling.lanes
                inside = e.index_value(Index.of(column)).compare("slt", phase.columns)
                mask = inside if phase.columns % tiling.panel else None
                with e.scope(), e.masked(mask):
                    view = View(base, convolution.w_type, (UNKNOWN_EXTENT,))
                    loaded = e.load(view, (position + Index.of(column) * phase.w_column,))
                value = converted(loaded, convolution.w_type, convolution.kind)
                if mask is not None:
                    value = e.choose(mask, value, constant(f, convolution.kind, 0, tiling.lanes))
                store_vector(f, value, f.offset(row, vector * tiling.lanes * size))
    f.finish()
    trips = panels * convolution.groups
    return LoopKernel(name, trips, 1, trips * panel_elements)


def emit_copy_strips(module: Module, name: str, convolution: DirectConvolution) -> LoopKernel:
    """Emit the kernel (base, copy, begin, end) that copies the base in strips of its last dimension."""
    f = module.function(name, [PTR, PTR, I64, I64])
    source_pointer, target_pointer, begin, end = f.parameters
    *outer, width = convolution.x_dimensions
    strip, count = convolution.strip, math.prod(outer)
    source = View(source_pointer, convolution.source_type, (count, width))
    target = View(target_pointer, convolution.kind, (convolution.strips, count, strip))
    element, number = Variable(count, "p"), Variable(width // strip, "s")

    def copy(number: Index, columns: int) -> None:
        """Copy some columns of a strip in whole vectors: some processors have slow masked stores."""
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
    """Emit the kernel (base, copy, begin, end) that copies the base in the accumulator type, zero-padded."""
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
    """Return (size, padding before, padding after) of the base's dimensions, merged where unpadded."""
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
