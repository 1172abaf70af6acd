"""Sums, activations and statistics that several libraries offer."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import hloom.ops as ops
from hloom.builder.builder import XlaBuilder, XlaComputation, XlaOp
from hloom.shape.element_type import F32, F64, S32, ElementType
from hloom.shape.shape import Shape


def accumulation_type(*types: ElementType) -> ElementType:
    """Return the type in which a library sums products: the widest of complex, f64, s32, else f32."""
    for kind in types:
        if kind.is_complex or kind is F64:
            return kind
    return S32 if all(kind.is_integer for kind in types) else F32


def _reduced(
    x: XlaOp, dimensions: Sequence[int], initial: float, combine: Callable[[XlaOp, XlaOp], XlaOp]
) -> XlaOp:
    kind = x.shape.element_type
    builder = XlaBuilder("combiner")
    combine(*(ops.Parameter(builder, n, Shape(kind)) for n in range(2)))
    combiner: XlaComputation = builder.build()
    return ops.Reduce(x, ops.ConstantR0(x.builder, initial, kind), combiner, dimensions)


def sum_of(x: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """Sum along dimensions."""
    return _reduced(x, dimensions, 0.0, ops.Add)


def largest_of(x: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """Return the maximum along dimensions; that of nothing is -inf."""
    return _reduced(x, dimensions, -math.inf, ops.Max)


def spread(x: XlaOp, sizes: Sequence[int], dropped: Sequence[int]) -> XlaOp:
    """Broadcast what was reduced along dimensions to the sizes before."""
    return ops.BroadcastInDim(x, sizes, [d for d in range(len(sizes)) if d not in dropped])


def softmax(x: XlaOp, dimension: int) -> tuple[XlaOp, XlaOp]:
    """Return exp(x) divided by its sum along a dimension, and the logarithm of the sum."""
    sizes, dropped = x.shape.dimensions, [dimension]
    largest = largest_of(x, dropped)
    powers = ops.Exp(x - spread(largest, sizes, dropped))
    total = sum_of(powers, dropped)
    return powers / spread(total, sizes, dropped), ops.Log(total) + largest


def normalized(x: XlaOp, dimensions: Sequence[int], epsilon: float) -> tuple[XlaOp, XlaOp, XlaOp]:
    """Return (x - mean) / sqrt(variance + epsilon) along dimensions, the mean, and 1 / sqrt(...)."""
    sizes = x.shape.dimensions
    count = math.prod(sizes[d] for d in dimensions)
    mean = sum_of(x, dimensions) / float(count)
    centered = x - spread(mean, sizes, dimensions)
    variance = sum_of(centered * centered, dimensions) / float(count)
    factor = ops.Rsqrt(variance + epsilon)
    return centered * spread(factor, sizes, dimensions), mean, factor


def gelu_tanh(x: XlaOp) -> XlaOp:
    """Return the approximation of x Φ(x) by a hyperbolic tangent."""
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
    return 0.5 * x * (1.0 + ops.Tanh(inner))


def gelu_erf(x: XlaOp) -> XlaOp:
    """Return x Φ(x)."""
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
"""Activations by the names of the libraries."""
