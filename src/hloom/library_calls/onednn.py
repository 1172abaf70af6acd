"""oneDNN's matrix products with fused operations, softmax and layer normalization, as XLA:CPU calls them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import hloom.ops as ops
from hloom.builder.builder import XlaOp
from hloom.errors import plural
from hloom.library_calls.arithmetic import ACTIVATIONS, accumulation_type, expanded, normalized
from hloom.library_calls.arithmetic import softmax as softmax_along
from hloom.library_calls.emulation import LibraryCall, Results, emulates
from hloom.settings import Settings
from hloom.shape.element_type import F32

_ADDED: Final = ("BIAS", "BINARY_ADD")
"""Fused operations that add an operand."""


@emulates("__onednn$matmul", operands=2)
def product(call: LibraryCall) -> Results:
    """Return the product along the last two dimensions, with the fused operations applied in order."""
    settings = call.settings("onednn_matmul_config")
    prepacked = settings.message("optimization_config").flag("weights_prepacked")
    call.require(not prepacked, "its weights are prepacked")
    lhs, rhs, *addends = call.operands
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
        value = _fused(call, fusions, name, value, addends)
    call.require(
        not addends, f"{plural(len(addends), 'operand')} left behind {', '.join(names) or 'the product'}"
    )
    return [value]


def _fused(call: LibraryCall, fusions: Settings, name: str, value: XlaOp, addends: list[XlaOp]) -> XlaOp:
    """Apply one fused operation; an addition removes its operand from the front of ``addends``."""
    if name in _ADDED:
        call.require(bool(addends), f"no operand is left for {name}")
        addend = ops.ConvertElementType(addends.pop(0), value.shape.element_type)
        return value + expanded(addend, value.shape.dimensions)
    if name == "LINEAR":
        return value * _float_of(fusions, "alpha_typecast")
    call.require(name in ACTIVATIONS, f"the fused operation {name}")
    return ACTIVATIONS[name](value)


def _float_of(settings: Settings, name: str) -> float:
    """Return the f32 in a field that stores its bits as an integer."""
    return struct.unpack("<f", struct.pack("<i", int(settings.number(name))))[0]


@emulates("__onednn$softmax")
def softmax(call: LibraryCall) -> Results:
    """Return the softmax along an axis, computed in f32."""
    x = call.operands[0]
    axis = call.settings("onednn_softmax_config").integer("softmax_axis")
    return [softmax_along(ops.ConvertElementType(x, F32), axis)[0]]


@emulates("__onednn$layernorm")
def layer_norm(call: LibraryCall) -> Results:
    """Return x normalized along the last dimension, with an optional scale and shift, computed in f32."""
    settings = call.settings("onednn_layer_norm_config")
    x, *factors = (ops.ConvertElementType(operand, F32) for operand in call.operands)
    epsilon = _float_of(settings, "epsilon_typecast")
    value, _, _ = normalized(x, [x.shape.rank - 1], epsilon)
    words = _rescaling(settings)
    text = ", ".join(words) or "nothing"
    call.require(len(factors) == len(words), f"{plural(len(factors), 'operand')} left for {text}")
    for word, factor in zip(words, factors):
        operand = expanded(factor, value.shape.dimensions)
        value = value * operand if word == "SCALE" else value + operand
    return [value]


def _rescaling(settings: Settings) -> Sequence[str]:
    word = settings.word("rescale", settings.word("fused_ops", "UNDEFINED"))
    return [part for part in ("SCALE", "SHIFT") if part in word.split("_")]
