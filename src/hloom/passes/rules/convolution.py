"""Rules for convolutions: what stands around them goes into their window and labels; some are dots."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from hloom.analysis.instructions import attributes
from hloom.analysis.values import is_all, number
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import ConvolutionDimensionNumbers, Window, WindowDimension
from hloom.passes.rewriting import Family
from hloom.passes.rules.dimensions import inverse
from hloom.passes.rules.reshaping import dimensions_of
from hloom.passes.rules.slicing import paddings_of
from hloom.passes.writing import Writer

RULES: Final = Family("convolution")
DOTS: Final = Family("convolutions that are dots")
"""For machines on which the dot is as good."""

Labels = ConvolutionDimensionNumbers


def window_of(i: HloInstruction) -> Window:
    """The window of a convolution."""
    return attributes(i).window


def labels_of(i: HloInstruction) -> Labels:
    """The roles of its dimensions."""
    return attributes(i).dim_labels


def conv_like(i: HloInstruction, lhs: HloInstruction, rhs: HloInstruction, **changes: Any) -> HloInstruction:
    """A convolution with the attributes of another, but for some, and its element type."""
    w = Writer(i)
    made = HloInstruction(
        w.module.unique_name("convolution"), attributes(i).replace(**changes), i.shape, [lhs, rhs]
    )
    made.shape = made.infer_shape().with_element_type(i.shape.element_type)
    made.metadata, made.backend_config = i.metadata, i.backend_config
    return w.computation.add(made)


def relabelled(labels: Labels, part: str, order: Sequence[int]) -> Labels:
    """Labels of an array whose dimension number d is number ``order[d]`` of another, for that other one."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(labels):
        if field.name.startswith(part):
            value: int | tuple[int, ...] = getattr(labels, field.name)
            changes[field.name] = order[value] if isinstance(value, int) else tuple(order[d] for d in value)
    return replace(labels, **changes)


@RULES.rewrites("convolution")
def window_in_plain_words(i: HloInstruction) -> HloInstruction | None:
    """Strides of one position, dilations and reversals of one element → none."""
    labels = labels_of(i)
    window: list[WindowDimension] = []
    for number_, d in enumerate(window_of(i)):
        changes: dict[str, Any] = {}
        if i.shape.dimensions[labels.output_spatial_dimensions[number_]] == 1:
            changes["stride"] = 1
        if d.size == 1:
            changes |= {"window_dilation": 1, "window_reversal": False}
        if i.operands[0].shape.dimensions[labels.input_spatial_dimensions[number_]] == 1:
            changes["base_dilation"] = 1
        window.append(replace(d, **changes))
    if tuple(window) == window_of(i):
        return None
    made = conv_like(i, *i.operands, window=tuple(window))
    return made


@RULES.rewrites("convolution")
def convolution_of_transpose(i: HloInstruction) -> HloInstruction | None:
    """``convolution(transpose(x), k)`` → ``convolution(x, k)`` of other labels; so for the kernel."""
    for side, part in ((0, "input"), (1, "kernel")):
        moved = i.operands[side]
        if moved.opcode == "transpose":
            labels = relabelled(labels_of(i), part, dimensions_of(moved))
            operands = list(i.operands)
            operands[side] = moved.operands[0]
            return conv_like(i, *operands, dim_labels=labels)
    return None


@RULES.rewrites("transpose")
def transpose_of_convolution(i: HloInstruction) -> HloInstruction | None:
    """``transpose(convolution(x, k))`` → ``convolution(x, k)`` of other labels: nothing else uses it."""
    (conv,) = i.operands
    if conv.opcode != "convolution" or len(conv.users) > 1 or conv.is_root:
        return None
    return conv_like(
        conv, *conv.operands, dim_labels=relabelled(labels_of(conv), "output", inverse(dimensions_of(i)))
    )


@RULES.rewrites("convolution")
def convolution_of_reversed_kernel(i: HloInstruction) -> HloInstruction | None:
    """``convolution(x, reverse(k))`` → ``convolution(x, k)`` with those window dimensions reversed."""
    x, mirrored = i.operands
    spatial = labels_of(i).kernel_spatial_dimensions
    if mirrored.opcode != "reverse" or any(d not in spatial for d in dimensions_of(mirrored)):
        return None
    window = tuple(
        replace(d, window_reversal=d.window_reversal != (place in dimensions_of(mirrored)))
        for d, place in zip(window_of(i), spatial, strict=True)
    )
    return conv_like(i, x, mirrored.operands[0], window=window)


@RULES.rewrites("convolution")
def convolution_of_pad(i: HloInstruction) -> HloInstruction | None:
    """``convolution(pad(x, 0), k)`` → ``convolution(x, k)`` with the padding in the window."""
    padded, kernel = i.operands
    if padded.opcode != "pad" or not is_all(padded.operands[1], 0.0):
        return None
    x = padded.operands[0]
    if x.shape.element_type is not padded.shape.element_type:
        return None
    spatial = labels_of(i).input_spatial_dimensions
    window = list(window_of(i))
    for place, p in enumerate(paddings_of(padded)):
        if not p.low and not p.high and not p.interior:
            continue
        if place not in spatial or min(p.low, p.high) < 0:
            return None
        d = window[spatial.index(place)]
        if p.interior and d.base_dilation != 1:
            return None
        low, high = (d.padding_low + p.low * d.base_dilation, d.padding_high + p.high * d.base_dilation)
        window[spatial.index(place)] = replace(
            d, padding_low=low, padding_high=high, base_dilation=d.base_dilation * (p.interior + 1)
        )
    return conv_like(i, x, kernel, window=tuple(window))


@RULES.rewrites("convolution")
def spatial_dimensions_of_one(i: HloInstruction) -> HloInstruction | None:
    """Spatial dimensions of one input element and a window of one → none, the arrays being reshaped."""
    labels, w = labels_of(i), Writer(i)
    single = WindowDimension(1)
    gone = [
        n
        for n, d in enumerate(window_of(i))
        if d == single and i.operands[0].shape.dimensions[labels.input_spatial_dimensions[n]] == 1
    ]
    if not gone:
        return None
    x, x_places = _without(w, i.operands[0], [labels.input_spatial_dimensions[n] for n in gone])
    k, k_places = _without(w, i.operands[1], [labels.kernel_spatial_dimensions[n] for n in gone])
    removed = [labels.output_spatial_dimensions[n] for n in gone]
    o_places = {d: n for n, d in enumerate(d for d in range(i.shape.rank) if d not in removed)}
    changes: dict[str, Any] = {}
    for part, places in (("input", x_places), ("kernel", k_places), ("output", o_places)):
        for field in dataclasses.fields(labels):
            if field.name.startswith(part):
                value: int | tuple[int, ...] = getattr(labels, field.name)
                changes[field.name] = (
                    places[value]
                    if isinstance(value, int)
                    else tuple(places[d] for d in value if d in places)
                )
    window = tuple(d for n, d in enumerate(window_of(i)) if n not in gone)
    return w.reshape(
        conv_like(i, x, k, window=window, dim_labels=replace(labels, **changes)), i.shape.dimensions
    )


def _without(w: Writer, x: HloInstruction, gone: Sequence[int]) -> tuple[HloInstruction, dict[int, int]]:
    """An array without some dimensions of size 1, and where the others are then."""
    left = [d for d in range(x.shape.rank) if d not in gone]
    return w.reshape(x, [x.shape.dimensions[d] for d in left]), {d: n for n, d in enumerate(left)}


@DOTS.rewrites("convolution", reorders=True)
def convolution_as_dot(i: HloInstruction) -> HloInstruction | None:
    """``convolution(x, k)`` → ``dot(x, k)`` where each window dimension is one element, or all of them, once.

    One element, at every position: the dimension is one of the rows. All elements, at one position: it is
    contracted. Zero sums of the two may differ in sign.
    """
    operation, labels = attributes(i), labels_of(i)
    if operation.feature_group_count != 1 or operation.batch_group_count != 1:
        return None
    inner = [(labels.input_feature_dimension, labels.kernel_input_feature_dimension)]
    rows = {labels.input_batch_dimension: labels.output_batch_dimension}
    x, k = i.operands
    for n, d in enumerate(window_of(i)):
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
        labels.kernel_spatial_dimensions[n] for n, d in enumerate(window_of(i)) if d == WindowDimension(1)
    ]
    k, k_places = _without(w, k, ones)
    inner = sorted(inner)
    dot = w.op(
        "dot", x, k, shape=i.shape, lhs_contracting_dims=tuple(a for a, _ in inner),
        rhs_contracting_dims=tuple(k_places[b] for _, b in inner),
        operand_precision=operation.operand_precision,
    )  # fmt: skip
    dot.shape = dot.infer_shape().with_element_type(i.shape.element_type)
    made = [rows[d] for d in sorted(rows)] + [labels.output_feature_dimension]
    gone = [d for d in range(i.shape.rank) if d not in made]
    ranks = sorted(made)
    order = tuple(made.index(d) for d in ranks)
    moved = dot if order == tuple(range(len(order))) else w.op("transpose", dot, dimensions=order)
    assert all(i.shape.dimensions[d] == 1 for d in gone)
    return w.reshape(moved, i.shape.dimensions)


@RULES.rewrites("convolution")
def convolution_of_nothing(i: HloInstruction) -> HloInstruction | None:
    """``convolution(x, k)`` → ``0`` where the kernel has no elements, or is zero in integers."""
    _, kernel = i.operands
    zero = i.shape.element_type.is_integer and number(kernel) == 0
    return Writer(i).full(0, i.shape) if zero or not kernel.shape.element_count else None
