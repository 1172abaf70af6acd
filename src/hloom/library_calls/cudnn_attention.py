"""cuDNN's fused attention, forward: ``softmax(scale · q kᵀ + bias) v`` with a mask.

Operands: q, k, v, a bias (of ``ScaleBias`` calls), the lengths of the sequences of q and of k (of padding
masks). Results: the attention, for training the logarithms of the softmax's sums, and a workspace.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import hloom.ops as ops
from hloom.builder.builder import XlaOp
from hloom.library_calls.arithmetic import softmax
from hloom.library_calls.emulation import LibraryCall, Results, emulates, full
from hloom.settings import Settings
from hloom.shape.element_type import F32, PRED, S32
from hloom.shape.shape import Shape

_NUMBERS = ("lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch")


@emulates("__cudnn$fmhaSoftmax", "__cudnn$fmhaScaleBiasSoftmax", operands=3)
def attention(call: LibraryCall) -> Results:
    """Attention of queries to keys, in f32."""
    settings = call.settings("cudnn_fmha_backend_config")
    call.require(not settings.number("dropout_rate"), "it drops values at random")
    call.require(settings.number("max_seg_per_batch") <= 1, "its sequences are packed")
    mask = settings.word("mask_type", "CAUSAL" if settings.flag("is_causal_mask") else "NO_MASK")
    call.require(mask in ("NO_MASK", "PADDING", "CAUSAL", "PADDING_CAUSAL"), f"the mask {mask}")
    q, k, v, *rest = call.operands
    scores = _dot(settings, "bmm1", q, k) * settings.number("fmha_scale", 1.0)
    sizes = scores.shape.dimensions
    call.require(len(sizes) == 4, f"its scores have {len(sizes)} dimensions, not 4")
    if "Bias" in call.operation.custom_call_target:
        call.require(bool(rest), "no operand is left for the bias")
        scores = scores + _bias(rest.pop(0), sizes)
    lengths: Sequence[XlaOp] = rest if mask.startswith("PADDING") else ()
    wanted = 2 if mask.startswith("PADDING") else 0
    call.require(len(rest) == wanted, f"{len(rest)} operands are left for {mask}, which has {wanted}")
    seen = _seen(call, settings, mask, sizes, lengths)
    scores = ops.Select(seen, scores, full(call.builder, -math.inf, F32, sizes))
    weights, logarithms = softmax(scores, 3)
    if lengths:
        weights = ops.Select(
            _shorter(call, 2, lengths[0], sizes), weights, full(call.builder, 0.0, F32, sizes)
        )
    results = [_dot(settings, "bmm2", ops.ConvertElementType(weights, v.shape.element_type), v)]
    with_logarithms = len(call.shapes) > 1 and call.shapes[1].dimensions == logarithms.shape.dimensions
    return [*results, logarithms] if with_logarithms else results


def _dot(settings: Settings, name: str, lhs: XlaOp, rhs: XlaOp) -> XlaOp:
    stated = settings.message(f"{name}_dot_dimension_numbers")
    numbers = {f"{part}_dims": stated.integers(f"{part}_dimensions") for part in _NUMBERS}
    return ops.DotGeneral(lhs, rhs, numbers, preferred_element_type=F32)


def _bias(bias: XlaOp, sizes: Sequence[int]) -> XlaOp:
    """Broadcast a bias along its dimensions of size 1."""
    kept = [d for d, size in enumerate(bias.shape.dimensions) if size == sizes[d]]
    sizes_kept = [sizes[d] for d in kept]
    return ops.BroadcastInDim(ops.Reshape(ops.ConvertElementType(bias, F32), sizes_kept), sizes, kept)


def _seen(
    call: LibraryCall, settings: Settings, mask: str, sizes: Sequence[int], lengths: Sequence[XlaOp]
) -> XlaOp:
    """Return which keys each query sees."""
    query, key = (ops.Iota(call.builder, Shape(S32, tuple(sizes)), d) for d in (2, 3))
    seen = full(call.builder, True, PRED, sizes)
    if "CAUSAL" in mask:
        seen = seen & (key <= query)
    window = settings.integer("sliding_window_length")
    if window > 0:
        seen = seen & (key > query - window)
    return seen & _shorter(call, 3, lengths[1], sizes) if lengths else seen


def _shorter(call: LibraryCall, dimension: int, lengths: XlaOp, sizes: Sequence[int]) -> XlaOp:
    """Return which positions along a dimension lie within the sequence of their batch."""
    flat = ops.Reshape(lengths, [sizes[0]])
    return ops.Iota(call.builder, Shape(S32, tuple(sizes)), dimension) < ops.BroadcastInDim(flat, sizes, [0])
