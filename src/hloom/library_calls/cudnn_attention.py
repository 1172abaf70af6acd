"""cuDNN's fused attention, forward: ``softmax(scale · q kᵀ + bias) v`` with a mask.

Operands: q, k, v; a bias (``ScaleBias`` calls); the sequence lengths of q and of k (padding masks). Results:
the attention; the logarithms of the softmax's sums (training); a workspace.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import hloom.ops as ops
from hloom.builder.builder import XlaOp
from hloom.errors import plural
from hloom.library_calls.arithmetic import dot, expanded, softmax
from hloom.library_calls.emulation import LibraryCall, Results, emulates, full
from hloom.settings import Settings
from hloom.shape.element_type import F32, PRED, S32
from hloom.shape.shape import Shape


@emulates("__cudnn$fmhaSoftmax", "__cudnn$fmhaScaleBiasSoftmax", operands=3)
def attention(call: LibraryCall) -> Results:
    """Return the attention of queries to keys, computed in f32."""
    settings = call.settings("cudnn_fmha_backend_config")
    call.require(not settings.number("dropout_rate"), "it drops values at random")
    call.require(settings.number("max_seg_per_batch") <= 1, "its sequences are packed")
    mask = settings.word("mask_type", "CAUSAL" if settings.flag("is_causal_mask") else "NO_MASK")
    call.require(mask in ("NO_MASK", "PADDING", "CAUSAL", "PADDING_CAUSAL"), f"the mask {mask}")
    q, k, v, *others = call.operands
    scores = dot(q, k, settings.message("bmm1_dot_dimension_numbers"), F32) * settings.number(
        "fmha_scale", 1.0
    )
    sizes = scores.shape.dimensions
    call.require(len(sizes) == 4, f"its scores have {plural(len(sizes), 'dimension')}, not 4")
    if "Bias" in call.operation.custom_call_target:
        call.require(bool(others), "no operand is left for the bias")
        scores = scores + expanded(ops.ConvertElementType(others.pop(0), F32), sizes)
    lengths: Sequence[XlaOp] = others if mask.startswith("PADDING") else ()
    count = 2 if mask.startswith("PADDING") else 0
    call.require(len(others) == count, f"{plural(len(others), 'operand')} left for {mask}, which has {count}")
    visible = _visible(call, settings, mask, sizes, lengths)
    scores = ops.Select(visible, scores, full(call.builder, -math.inf, F32, sizes))
    weights, logarithms = softmax(scores, 3)
    if lengths:
        inside = _in_sequence(call, 2, lengths[0], sizes)
        weights = ops.Select(inside, weights, full(call.builder, 0.0, F32, sizes))
    weights = ops.ConvertElementType(weights, v.shape.element_type)
    results = [dot(weights, v, settings.message("bmm2_dot_dimension_numbers"), F32)]
    with_logarithms = len(call.shapes) > 1 and call.shapes[1].dimensions == logarithms.shape.dimensions
    return [*results, logarithms] if with_logarithms else results


def _visible(
    call: LibraryCall, settings: Settings, mask: str, sizes: Sequence[int], lengths: Sequence[XlaOp]
) -> XlaOp:
    """Return the predicates (batch, head, query, key) that are true where a query attends to a key."""
    query, key = (ops.Iota(call.builder, Shape(S32, tuple(sizes)), d) for d in (2, 3))
    visible = full(call.builder, True, PRED, sizes)
    if "CAUSAL" in mask:
        visible = visible & (key <= query)
    window = settings.integer("sliding_window_length")
    if window > 0:
        visible = visible & (key > query - window)
    return visible & _in_sequence(call, 3, lengths[1], sizes) if lengths else visible


def _in_sequence(call: LibraryCall, dimension: int, lengths: XlaOp, sizes: Sequence[int]) -> XlaOp:
    """Return the predicates that are true where the index along a dimension is below the batch's length."""
    flat = ops.Reshape(lengths, [sizes[0]])
    return ops.Iota(call.builder, Shape(S32, tuple(sizes)), dimension) < ops.BroadcastInDim(flat, sizes, [0])
