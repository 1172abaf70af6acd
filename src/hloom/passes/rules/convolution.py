"""Rules for convolutions: fold surrounding operations into window and labels; rewrite some as dots."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from hloom.analysis.values import is_all, is_finite, number
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import ConvolutionDimensionNumbers, SliceDimension, WindowDimension
from hloom.operations.contraction import Dot
from hloom.operations.convolution import Convolution
from hloom.operations.movement import Pad, Reverse, Slice, Transpose
from hloom.passes.rewriting import RuleFamily
from hloom.passes.rules.dimensions import inverse
from hloom.passes.writing import Writer

RULES: Final = RuleFamily("convolution")
DOTS: Final = RuleFamily("convolutions that are dots")
"""Rules for targets on which the dot is as fast."""

Labels = ConvolutionDimensionNumbers


def relabelled(labels: Labels, part: str, places: Sequence[int] | Mapping[int, int]) -> Labels:
    """Return labels of an array whose dimension d moves to ``places[d]``.

    Args:
        labels: the labels.
        part: ``input``, ``kernel`` or ``output``.
        places: a permutation, or the new places of the kept dimensions; dropped ones must be spatial.
    """
    remaining = set(places) if isinstance(places, Mapping) else set(range(len(places)))
    changes: dict[str, int | tuple[int, ...]] = {}
    for field in dataclasses.fields(labels):
        if field.name.startswith(part):
            value: int | tuple[int, ...] = getattr(labels, field.name)
            changes[field.name] = (
                places[value] if isinstance(value, int) else tuple(places[d] for d in value if d in remaining)
            )
    return replace(labels, **changes)


@RULES.rewrites(Convolution)
def window_in_plain_words(i: HloInstruction, convolution: Convolution) -> HloInstruction | None:
    """Stride of a single position, dilation or reversal of a single element → none."""
    labels = convolution.dim_labels
    window: list[WindowDimension] = []
    for number_, d in enumerate(convolution.window):
        if i.shape.dimensions[labels.output_spatial_dimensions[number_]] == 1:
            d = replace(d, stride=1)
        if d.size == 1:
            d = replace(d, window_dilation=1, window_reversal=False)
        if i.operands[0].shape.dimensions[labels.input_spatial_dimensions[number_]] == 1:
            d = replace(d, base_dilation=1)
        window.append(d)
    if tuple(window) == convolution.window:
        return None
    return Writer(i).like(convolution.replace(window=tuple(window)), *i.operands)


@RULES.rewrites(Convolution)
def convolution_of_transpose(i: HloInstruction, convolution: Convolution) -> HloInstruction | None:
    """``convolution(transpose(x), k)`` → ``convolution(x, k)`` with permuted labels; same for the kernel."""
    for side, part in ((0, "input"), (1, "kernel")):
        moved = i.operands[side]
        if isinstance(moved.operation, Transpose):
            labels = relabelled(convolution.dim_labels, part, moved.operation.dimensions)
            operands = list(i.operands)
            operands[side] = moved.operands[0]
            return Writer(i).like(convolution.replace(dim_labels=labels), *operands)
    return None


@RULES.rewrites(Transpose, of=Convolution)
def transpose_of_convolution(
    i: HloInstruction, transpose: Transpose, convolution: Convolution
) -> HloInstruction | None:
    """``transpose(convolution(x, k))`` → ``convolution(x, k)`` with permuted labels, for a single user."""
    (conv,) = i.operands
    if len(conv.users) > 1 or conv.is_root:
        return None
    labels = relabelled(convolution.dim_labels, "output", inverse(transpose.dimensions))
    return Writer(conv).like(convolution.replace(dim_labels=labels), *conv.operands)


@RULES.rewrites(Convolution)
def convolution_of_reversed_kernel(i: HloInstruction, convolution: Convolution) -> HloInstruction | None:
    """``convolution(x, reverse(k))`` → ``convolution(x, k)`` with those window dimensions reversed."""
    x, mirrored = i.operands
    spatial = convolution.dim_labels.kernel_spatial_dimensions
    if not isinstance(mirrored.operation, Reverse):
        return None
    reversed_ = mirrored.operation.dimensions
    if any(d not in spatial for d in reversed_):
        return None
    window = tuple(
        replace(d, window_reversal=d.window_reversal != (dimension in reversed_))
        for d, dimension in zip(convolution.window, spatial, strict=True)
    )
    return Writer(i).like(convolution.replace(window=window), x, mirrored.operands[0])


@RULES.rewrites(Convolution, of=Pad)
def convolution_of_pad(i: HloInstruction, convolution: Convolution, pad: Pad) -> HloInstruction | None:
    """``convolution(pad(x, 0), k)`` → ``convolution(x, k)`` with the padding in the window.

    Zeros of the pad are multiplied with the kernel, padding is not: the kernel's elements must be finite.
    """
    padded, kernel = i.operands
    if not is_all(padded.operands[1], 0.0) or not is_finite(kernel):
        return None
    x = padded.operands[0]
    if x.shape.element_type is not padded.shape.element_type:
        return None
    spatial = convolution.dim_labels.input_spatial_dimensions
    window = list(convolution.window)
    for dimension, p in enumerate(pad.padding):
        if not p.low and not p.high and not p.interior:
            continue
        if dimension not in spatial or min(p.low, p.high) < 0:
            return None
        d = window[spatial.index(dimension)]
        if p.interior and d.base_dilation != 1:
            return None
        low, high = (d.padding_low + p.low * d.base_dilation, d.padding_high + p.high * d.base_dilation)
        window[spatial.index(dimension)] = replace(
            d, padding_low=low, padding_high=high, base_dilation=d.base_dilation * (p.interior + 1)
        )
    return Writer(i).like(convolution.replace(window=tuple(window)), x, kernel)


@RULES.rewrites(Convolution)
def spatial_dimensions_of_one(i: HloInstruction, convolution: Convolution) -> HloInstruction | None:
    """Spatial dimensions with input and window of size 1 → none, by reshapes of the arrays."""
    labels, w = convolution.dim_labels, Writer(i)
    single = WindowDimension(1)
    gone = [
        n
        for n, d in enumerate(convolution.window)
        if d == single and i.operands[0].shape.dimensions[labels.input_spatial_dimensions[n]] == 1
    ]
    if not gone:
        return None
    x, x_places = _without(w, i.operands[0], [labels.input_spatial_dimensions[n] for n in gone])
    k, k_places = _without(w, i.operands[1], [labels.kernel_spatial_dimensions[n] for n in gone])
    removed = [labels.output_spatial_dimensions[n] for n in gone]
    o_places = {d: n for n, d in enumerate(d for d in range(i.shape.rank) if d not in removed)}
    for part, places in (("input", x_places), ("kernel", k_places), ("output", o_places)):
        labels = relabelled(labels, part, places)
    window = tuple(d for n, d in enumerate(convolution.window) if n not in gone)
    smaller = Writer(i).like(convolution.replace(window=window, dim_labels=labels), x, k)
    return w.reshape(smaller, i.shape.dimensions)


def _without(w: Writer, x: HloInstruction, gone: Sequence[int]) -> tuple[HloInstruction, dict[int, int]]:
    """Reshape away dimensions of size 1; return the array and the new places of the others."""
    remaining = [d for d in range(x.shape.rank) if d not in gone]
    return w.reshape(x, [x.shape.dimensions[d] for d in remaining]), {d: n for n, d in enumerate(remaining)}


@DOTS.rewrites(Convolution)
def convolution_of_spaced_elements(i: HloInstruction, convolution: Convolution) -> HloInstruction | None:
    """``convolution(x, k)`` → ``convolution(slice(x), k)`` that is a dot: see `convolution_as_dot`.

    Windows of one element and a stride, or of one position and a dilation, read evenly spaced elements.
    """
    labels = convolution.dim_labels
    x, k = i.operands
    if convolution.feature_group_count != 1 or convolution.batch_group_count != 1:
        return None
    if 0 in (*i.shape.dimensions, *k.shape.dimensions):
        return None
    ranges = [SliceDimension(0, size) for size in x.shape.dimensions]
    for n, d in enumerate(convolution.window):
        dimension = labels.input_spatial_dimensions[n]
        positions = i.shape.dimensions[labels.output_spatial_dimensions[n]]
        if 1 not in (positions, d.size) or d.base_dilation != 1 or d.window_reversal:
            return None
        count, step = (positions, d.stride) if d.size == 1 else (d.size, d.window_dilation)
        start = -d.padding_low
        limit = start + (count - 1) * step + 1
        if start < 0 or limit > x.shape.dimensions[dimension]:
            return None
        ranges[dimension] = SliceDimension(start, limit, step)
    if ranges == [SliceDimension(0, size) for size in x.shape.dimensions]:
        return None
    w = Writer(i)
    read = w.op(Slice(slice=tuple(ranges)), x)
    window = tuple(WindowDimension(d.size) for d in convolution.window)
    return w.like(convolution.replace(window=window), read, k)


@DOTS.rewrites(Convolution, reorders=True)
def convolution_as_dot(i: HloInstruction, convolution: Convolution) -> HloInstruction | None:
    """``convolution(x, k)`` → ``dot(x, k)`` where each window covers one element or the whole dimension.

    A window of one element makes the dimension a row dimension, a window of all elements a contracting one.
    Sums that are zero may differ in sign.
    """
    labels = convolution.dim_labels
    if convolution.feature_group_count != 1 or convolution.batch_group_count != 1:
        return None
    inner = [(labels.input_feature_dimension, labels.kernel_input_feature_dimension)]
    rows = {labels.input_batch_dimension: labels.output_batch_dimension}
    x, k = i.operands
    for n, d in enumerate(convolution.window):
        here, there = labels.input_spatial_dimensions[n], labels.kernel_spatial_dimensions[n]
        size = x.shape.dimensions[here]
        if d == WindowDimension(1):
            rows[here] = labels.output_spatial_dimensions[n]
        elif d == WindowDimension(size):
            inner.append((here, there))
        else:
            return None
    w = Writer(i)
    ones = [
        labels.kernel_spatial_dimensions[n]
        for n, d in enumerate(convolution.window)
        if d == WindowDimension(1)
    ]
    k, k_places = _without(w, k, ones)
    inner = sorted(inner)
    dot = w.op(
        Dot(
            lhs_contracting_dims=tuple(a for a, _ in inner),
            rhs_contracting_dims=tuple(k_places[b] for _, b in inner),
            operand_precision=convolution.operand_precision,
        ),
        x,
        k,
        shape=i.shape,
    )
    dot.shape = dot.infer_shape().with_element_type(i.shape.element_type)
    labelled = [rows[d] for d in sorted(rows)] + [labels.output_feature_dimension]
    assert all(size == 1 for d, size in enumerate(i.shape.dimensions) if d not in labelled)
    order = tuple(labelled.index(d) for d in sorted(labelled))
    moved = dot if order == tuple(range(len(order))) else w.op(Transpose(dimensions=order), dot)
    return w.reshape(moved, i.shape.dimensions)


@RULES.rewrites(Convolution)
def convolution_of_nothing(i: HloInstruction, convolution: Convolution) -> HloInstruction | None:
    """``convolution(x, k)`` → ``0`` where the kernel has no elements, or is zero in integers."""
    _, kernel = i.operands
    zero = i.shape.element_type.is_integer and number(kernel) == 0
    return Writer(i).full(0, i.shape) if zero or not kernel.shape.element_count else None
