"""Dot products, reductions, normalizations and activations that several libraries offer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import hloom.ops as ops
from hloom.builder.builder import XlaBuilder, XlaComputation, XlaOp
from hloom.settings import Settings
from hloom.shape.element_type import F32, F64, S32, ElementType
from hloom.shape.shape import Shape


def accumulation_type(*types: ElementType) -> ElementType:
    """Return the type in which a library accumulates products of operands of the given types.

    The first complex type or f64; else s32 if all are integers, f32 otherwise.
    """
    for kind in types:
        if kind.is_complex or kind is F64:
            return kind
    return S32 if all(kind.is_integer for kind in types) else F32


def dot(lhs: XlaOp, rhs: XlaOp, numbers: Settings, kind: ElementType) -> XlaOp:
    """Return the dot product in an element type; ``numbers`` has the fields of DotDimensionNumbers."""
    parts = ("lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch")
    dimensions = {f"{part}_dims": numbers.integers(f"{part}_dimensions") for part in parts}
    return ops.DotGeneral(lhs, rhs, dimensions, preferred_element_type=kind)


def expanded(x: XlaOp, sizes: Sequence[int]) -> XlaOp:
    """Broadcast an array as numpy does: along missing leading dimensions and dimensions of size 1."""
    first = len(sizes) - x.shape.rank
    copied = [d for d, size in enumerate(x.shape.dimensions) if size == sizes[first + d]]
    squeezed = ops.Reshape(x, [x.shape.dimensions[d] for d in copied])
    return ops.BroadcastInDim(squeezed, sizes, [first + d for d in copied])


def _reduced(
    x: XlaOp, dimensions: Sequence[int], initial: float, combine: Callable[[XlaOp, XlaOp], XlaOp]
) -> XlaOp:
    kind = x.shape.element_type
    builder = XlaBuilder("combiner")
    combine(*(ops.Parameter(builder, n, Shape(kind)) for n in range(2)))
    combiner: XlaComputation = builder.build()
    return ops.Reduce(x, ops.ConstantR0(x.builder, initial, kind), combiner, dimensions)


def sum_of(x: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """Return the sum along dimensions, which are removed."""
    return _reduced(x, dimensions, 0.0, ops.Add)


def largest_of(x: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """Return the maximum along dimensions, which are removed; -inf for an empty dimension."""
    return _reduced(x, dimensions, -math.inf, ops.Max)


def spread(x: XlaOp, sizes: Sequence[int], dropped: Sequence[int]) -> XlaOp:
    """Broadcast a reduced array along the dropped dimensions; ``sizes`` are those before the reduction."""
    return ops.BroadcastInDim(x, sizes, [d for d in range(len(sizes)) if d not in dropped])


def softmax(x: XlaOp, dimension: int) -> tuple[XlaOp, XlaOp]:
    """Return the softmax of x along a dimension, and the logarithm of the sum of exp(x)."""
    sizes, dropped = x.shape.dimensions, [dimension]
    largest = largest_of(x, dropped)
    powers = ops.Exp(x - spread(largest, sizes, dropped))
    total = sum_of(powers, dropped)
    return powers / spread(total, sizes, dropped), ops.Log(total) + largest


def normalized(x: XlaOp, dimensions: Sequence[int], epsilon: float) -> tuple[XlaOp, XlaOp, XlaOp]:
    """Return ``(x - mean) · factor`` along dimensions, mean and factor, 1 / sqrt(variance + epsilon)."""
    sizes = x.shape.dimensions
    count = math.prod(sizes[d] for d in dimensions)
    mean = sum_of(x, dimensions) / float(count)
    centered = x - spread(mean, sizes, dimensions)
    variance = sum_of(centered * centered, dimensions) / float(count)
    factor = ops.Rsqrt(variance + epsilon)
    return centered * spread(factor, sizes, dimensions), mean, factor


def gelu_tanh(x: XlaOp) -> XlaOp:
    """Return GELU, x Φ(x), approximated by a hyperbolic tangent."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
    return 0.5 * x * (1.0 + ops.Tanh(inner))


def gelu_erf(x: XlaOp) -> XlaOp:
    """Return GELU, x Φ(x), where Φ is the distribution function of the normal distribution."""
    return 0.5 * x * (1.0 + ops.Erf(x * math.sqrt(0.5)))


ACTIVATIONS: Final[dict[str, Callable[[XlaOp], XlaOp]]] = {
    "NONE": lambda x: x,
    "RELU": lambda x: ops.Max(x, 0.0),
    "RELU6": lambda x: ops.Clamp(0.0, x, 6.0),
    "ELU": lambda x: ops.Select(x > 0.0, x, ops.Expm1(x)),
    "SIGMOID": ops.Logistic,
    "SILU": lambda x: x * ops.Logistic(x),
    "TANH": ops.Tanh,
    "GELU": gelu_tanh,
    "GELU_TANH": gelu_tanh,
    "GELU_ERF": gelu_erf,
}
"""Activation functions by the names in library configurations, upper case."""
