"""Matrix products of cuBLAS and cuBLASLt: ``alpha · lhs · rhs + beta · c`` with an epilogue.

Operands are lhs, rhs, c (if beta is not 0), scales (of 8-bit floats), and a bias; results are the product,
then the argument of the activation (``_AUX``) or the largest magnitude, and a workspace.
"""

from __future__ import annotations

from collections.abc import Sequence

import hloom.ops as ops
from hloom.builder.builder import XlaOp
from hloom.library_calls.arithmetic import ACTIVATIONS, accumulation_type, largest_of
from hloom.library_calls.emulation import LibraryCall, Results, emulates
from hloom.settings import Settings
from hloom.shape.element_type import ElementType
from hloom.shape.shape import Shape

_NUMBERS = ("lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch")


@emulates("__cublas$gemm", "__cublas$lt$matmul", operands=2)
def product(call: LibraryCall) -> Results:
    """A product and its epilogue, rounded once."""
    settings = call.settings("gemm_backend_config")
    c, rest = _addend(call, settings)
    value = _scaled_sum(call, settings, [], c)
    return _finished(call, settings, value, rest)


@emulates("__cublas$lt$matmul$f8", operands=2)
def product_of_8_bit_floats(call: LibraryCall) -> Results:
    """A product of scaled 8-bit floats; a result of that kind is scaled, and clamped to finite numbers."""
    settings = call.settings("gemm_backend_config")
    c, rest = _addend(call, settings)
    scales = [x for x in rest if not x.shape.rank]
    call.require(len(scales) >= 2, f"it has {len(scales)} scalar scales; scales of blocks are not emulated")
    if len(scales) == 4 and c is not None:
        c = ops.ConvertElementType(c, scales[2].shape.element_type) * scales[2]
    value = _scaled_sum(call, settings, scales[:2], c)
    results = list(_finished(call, settings, value, [x for x in rest if x.shape.rank]))
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
    """Return the matrix that is added, if there is one, and the operands behind it."""
    if settings.number("beta"):
        call.require(len(call.operands) > 2, "beta is not 0, but there is no matrix to add")
        return call.operands[2], list(call.operands[3:])
    return None, list(call.operands[2:])


def _scaled_sum(call: LibraryCall, settings: Settings, scales: Sequence[XlaOp], c: XlaOp | None) -> XlaOp:
    """Return alpha · scales · lhs · rhs + beta · c in the type of accumulation."""
    lhs, rhs = call.operands[:2]
    kind = accumulation_type(lhs.shape.element_type, rhs.shape.element_type)
    stated = settings.message("dot_dimension_numbers")
    numbers = {f"{name}_dims": stated.integers(f"{name}_dimensions") for name in _NUMBERS}
    value = ops.DotGeneral(lhs, rhs, numbers, preferred_element_type=kind)
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


def _finished(call: LibraryCall, settings: Settings, value: XlaOp, rest: Sequence[XlaOp]) -> Results:
    """Apply the epilogue: add the bias, then activate; return the argument of the activation if asked."""
    words = settings.word("epilogue", "DEFAULT").split("_")
    if "BIAS" in words:
        call.require(len(rest) == 1, f"{len(rest)} operands are left for the bias")
        value = value + _along_columns(call, rest[0], value.shape)
    activation = "_".join(w for w in words if w not in ("DEFAULT", "BIAS", "AUX")) or "NONE"
    call.require(activation in ACTIVATIONS, f"the epilogue {'_'.join(words)}")
    result = ACTIVATIONS[activation](value)
    return [result, value] if "AUX" in words else [result]


def _along_columns(call: LibraryCall, bias: XlaOp, shape: Shape) -> XlaOp:
    """Broadcast a bias; its dimensions are those of the result that are innermost in memory, in order."""
    stated = next(o.shape for o, op in zip(call.instruction.operands, call.operands) if op is bias)
    into = [0] * stated.rank
    for dimension, target in zip(_minor_to_major(stated), _minor_to_major(call.shapes[0])):
        into[dimension] = target
    order = sorted(range(len(into)), key=into.__getitem__)
    turned = ops.Transpose(ops.ConvertElementType(bias, shape.element_type), order)
    fits = tuple(shape.dimensions[d] for d in sorted(into)) == turned.shape.dimensions
    call.require(fits, f"a bias {stated} does not fit the result {shape}")
    return ops.BroadcastInDim(turned, shape.dimensions, sorted(into))


def _minor_to_major(shape: Shape) -> tuple[int, ...]:
    return shape.layout.minor_to_major if shape.layout is not None else tuple(reversed(range(shape.rank)))
