"""oneDNN's calls of XLA:CPU: matrix products with fused operations, softmax and layer normalization."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import hloom.ops as ops
from hloom.builder.builder import XlaOp
from hloom.library_calls.arithmetic import ACTIVATIONS, accumulation_type, normalized
from hloom.library_calls.arithmetic import softmax as softmax_along
from hloom.library_calls.emulation import LibraryCall, Results, emulates
from hloom.settings import Settings
from hloom.shape.element_type import F32

_ADDED: Final = ("BIAS", "BINARY_ADD")
"""Fused operations that add an operand."""


@emulates("__onednn$matmul", operands=2)
def product(call: LibraryCall) -> Results:
    """A product of the last two dimensions, then fused operations in their order, each with its operand."""
    settings = call.settings("onednn_matmul_config")
    prepacked = settings.message("optimization_config").flag("weights_prepacked")
    call.require(not prepacked, "its weights are prepacked")
    lhs, rhs, *rest = call.operands
    rank = lhs.shape.rank
    call.require(rhs.shape.rank in (2, rank), f"a product of {lhs.shape} and {rhs.shape}")
    batch = tuple(range(rank - 2)) if rhs.shape.rank == rank else ()
    numbers = {
        "lhs_batch_dims": batch,
        "rhs_batch_dims": batch,
        "lhs_contracting_dims": (rank - (2 if settings.flag("transpose_a") else 1),),
        "rhs_contracting_dims": (rhs.shape.rank - (1 if settings.flag("transpose_b") else 2),),
    }
    kind = accumulation_type(lhs.shape.element_type, rhs.shape.element_type)
    value = ops.DotGeneral(lhs, rhs, numbers, preferred_element_type=kind)
    fusions = settings.message("fusions") if "fusions" in settings.fields else settings
    names = fusions.words("ops") or fusions.words("fused_ops")
    for name in names:
        value = _fused(call, fusions, name, value, rest)
    call.require(not rest, f"{len(rest)} operands are left behind {', '.join(names) or 'the product'}")
    return [value]


def _fused(call: LibraryCall, fusions: Settings, name: str, value: XlaOp, rest: list[XlaOp]) -> XlaOp:
    """Apply one fused operation, which takes its operand from the rest."""
    if name in _ADDED:
        call.require(bool(rest), f"no operand is left for {name}")
        return value + _broadcast(ops.ConvertElementType(rest.pop(0), value.shape.element_type), value)
    if name == "LINEAR":
        return value * _float_of(fusions, "alpha_typecast")
    call.require(name in ACTIVATIONS, f"the fused operation {name}")
    return ACTIVATIONS[name](value)


def _broadcast(x: XlaOp, like: XlaOp) -> XlaOp:
    """Broadcast along missing leading dimensions and dimensions of size 1."""
    sizes = like.shape.dimensions
    first = len(sizes) - x.shape.rank
    kept = [d for d, size in enumerate(x.shape.dimensions) if size == sizes[first + d]]
    return ops.BroadcastInDim(
        ops.Reshape(x, [x.shape.dimensions[d] for d in kept]), sizes, [first + d for d in kept]
    )


def _float_of(settings: Settings, name: str) -> float:
    """Return an f32 that is stored as the integer of the same bits."""
    return struct.unpack("<f", struct.pack("<i", int(settings.number(name))))[0]


@emulates("__onednn$softmax")
def softmax(call: LibraryCall) -> Results:
    """The softmax along an axis."""
    x = call.operands[0]
    axis = call.settings("onednn_softmax_config").integer("softmax_axis")
    return [softmax_along(ops.ConvertElementType(x, F32), axis)[0]]


@emulates("__onednn$layernorm")
def layer_norm(call: LibraryCall) -> Results:
    """A normalization along the last dimension, with an optional scale and shift."""
    settings = call.settings("onednn_layer_norm_config")
    x, *rest = (ops.ConvertElementType(operand, F32) for operand in call.operands)
    epsilon = _float_of(settings, "epsilon_typecast")
    value, _, _ = normalized(x, [x.shape.rank - 1], epsilon)
    words = _rescaling(settings)
    call.require(
        len(rest) == len(words), f"{len(rest)} operands are left for {', '.join(words) or 'nothing'}"
    )
    for word in words:
        operand = _broadcast(rest.pop(0), value)
        value = value * operand if word == "SCALE" else value + operand
    return [value]


def _rescaling(settings: Settings) -> Sequence[str]:
    word = settings.word("rescale", settings.word("fused_ops", "UNDEFINED"))
    return [part for part in ("SCALE", "SHIFT") if part in word.split("_")]
