"""Matrix products of cuBLAS and cuBLASLt: ``alpha · lhs · rhs + beta · c`` with an epilogue.

Operands: lhs, rhs, c (if beta is not 0), scales (of 8-bit floats), bias. Results: the product; the input of
the activation (``_AUX`` epilogues) or the largest magnitude (``damax_output``); a workspace.
"""

from __future__ import annotations

from collections.abc import Sequence

import hloom.ops as ops
from hloom.builder.builder import XlaOp
from hloom.errors import plural
from hloom.library_calls.arithmetic import ACTIVATIONS, accumulation_type, dot, largest_of
from hloom.library_calls.emulation import LibraryCall, Results, emulates
from hloom.settings import Settings
from hloom.shape.element_type import ElementType
from hloom.shape.shape import Shape


@emulates("__cublas$gemm", "__cublas$lt$matmul", operands=2)
def product(call: LibraryCall) -> Results:
    """Return the product with its epilogue applied in the accumulation type."""
    settings = call.settings("gemm_backend_config")
    c, others = _addend(call, settings)
    return _with_epilogue(call, settings, _scaled_sum(call, settings, [], c), others)


@emulates("__cublas$lt$matmul$f8", operands=2)
def product_of_8_bit_floats(call: LibraryCall) -> Results:
    """Return the product of scaled 8-bit floats; an 8-bit result is scaled and clamped to finite numbers."""
    settings = call.settings("gemm_backend_config")
    c, others = _addend(call, settings)
    scales = [x for x in others if not x.shape.rank]
    call.require(
        len(scales) >= 2, f"it has {plural(len(scales), 'scalar scale')}; scales of blocks are not emulated"
    )
    if len(scales) == 4 and c is not None:
        c = ops.ConvertElementType(c, scales[2].shape.element_type) * scales[2]
    value = _scaled_sum(call, settings, scales[:2], c)
    results = list(_with_epilogue(call, settings, value, [x for x in others if x.shape.rank]))
    if settings.flag("damax_output"):
        results.append(largest_of(abs(results[0]), range(results[0].shape.rank)))
    if len(scales) > 2:
        results[0] = results[0] * scales[-1]
    kind = call.shapes[0].element_type
    if kind.bits == 8:
        least, most = map(float, kind.limits)
        results[0] = ops.Clamp(least, results[0], most)
    return results


def _addend(call: LibraryCall, settings: Settings) -> tuple[XlaOp | None, list[XlaOp]]:
    """Return the matrix c, or None if beta is 0, and the operands after it."""
    if settings.number("beta"):
        call.require(len(call.operands) > 2, "beta is not 0, but there is no matrix to add")
        return call.operands[2], list(call.operands[3:])
    return None, list(call.operands[2:])


def _scaled_sum(call: LibraryCall, settings: Settings, scales: Sequence[XlaOp], c: XlaOp | None) -> XlaOp:
    """Return alpha · scales · lhs · rhs + beta · c in the accumulation type."""
    lhs, rhs = call.operands[:2]
    kind = accumulation_type(lhs.shape.element_type, rhs.shape.element_type)
    value = dot(lhs, rhs, settings.message("dot_dimension_numbers"), kind)
    for scale in scales:
        value = value * ops.ConvertElementType(scale, kind)
    alpha = _coefficient(settings, kind)
    if alpha != 1:
        value = value * ops.ConstantR0(call.builder, alpha, kind)
    if c is not None:
        beta = ops.ConstantR0(call.builder, settings.number("beta"), kind)
        value = value + ops.ConvertElementType(c, kind) * beta
    return value


def _coefficient(settings: Settings, kind: ElementType) -> complex:
    real, imaginary = settings.number("alpha_real", 1.0), settings.number("alpha_imag")
    return complex(real, imaginary) if kind.is_complex else real


def _with_epilogue(call: LibraryCall, settings: Settings, value: XlaOp, biases: Sequence[XlaOp]) -> Results:
    """Add the bias and apply the activation; with ``_AUX``, return the input of the activation too."""
    words = settings.word("epilogue", "DEFAULT").split("_")
    if "BIAS" in words:
        call.require(len(biases) == 1, f"{plural(len(biases), 'operand')} left for the bias")
        value = value + _along_columns(call, biases[0], value.shape)
    activation = "_".join(w for w in words if w not in ("DEFAULT", "BIAS", "AUX")) or "NONE"
    call.require(activation in ACTIVATIONS, f"the epilogue {'_'.join(words)}")
    result = ACTIVATIONS[activation](value)
    return [result, value] if "AUX" in words else [result]


def _along_columns(call: LibraryCall, bias: XlaOp, shape: Shape) -> XlaOp:
    """Broadcast a bias to the result's shape, along the most minor dimensions of the result's layout."""
    laid_out = next(o.shape for o, op in zip(call.instruction.operands, call.operands) if op is bias)
    into = [0] * laid_out.rank
    for dimension, target in zip(_minor_to_major(laid_out), _minor_to_major(call.shapes[0])):
        into[dimension] = target
    order = sorted(range(len(into)), key=into.__getitem__)
    turned = ops.Transpose(ops.ConvertElementType(bias, shape.element_type), order)
    fits = tuple(shape.dimensions[d] for d in sorted(into)) == turned.shape.dimensions
    call.require(fits, f"a bias {laid_out} does not fit the result {shape}")
    return ops.BroadcastInDim(turned, shape.dimensions, sorted(into))


def _minor_to_major(shape: Shape) -> tuple[int, ...]:
    return shape.layout.minor_to_major if shape.layout is not None else tuple(reversed(range(shape.rank)))
