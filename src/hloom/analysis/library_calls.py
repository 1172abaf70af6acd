"""The arithmetic of custom calls by which XLA runs matrix products, convolutions and LAPACK in libraries.

It follows from the call's target and configuration: a dot's dimension numbers are in the backend config, a
convolution's window and labels among the attributes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final

from hloom.analysis.lapack_calls import lapack_flops
from hloom.ir.instruction import HloInstruction
from hloom.ir.traits import shape_elements
from hloom.operations.custom_call import CustomCall
from hloom.shape.shape import Shape


def library_flops(i: HloInstruction) -> float | None:
    """Return the flops of a library call; None for others, or if its configuration cannot be read."""
    operation = i.operation
    lapack = lapack_flops(i)
    if lapack is not None:
        return lapack
    count = _FLOPS.get(operation.custom_call_target) if isinstance(operation, CustomCall) else None
    if count is None:
        return None
    try:
        return count(i)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None


def _result(i: HloInstruction) -> Shape:
    """Return the shape of the computed array; a workspace may follow it in the result tuple."""
    return i.shape.tuple_shapes[0] if i.shape.is_tuple else i.shape


def _cublas_product(i: HloInstruction) -> float:
    """Count a multiplication and an addition for each term of each result element."""
    config: dict[str, Any] = json.loads(i.backend_config)
    config = config.get("gemm_backend_config", config)
    contracting = map(int, config["dot_dimension_numbers"]["lhs_contracting_dimensions"])
    terms = math.prod(i.operands[0].shape.dimensions[d] for d in contracting)
    return 2.0 * shape_elements(_result(i)) * terms


def _onednn_product(i: HloInstruction) -> float:
    """Count a multiplication and an addition per term, for a left operand that may be transposed."""
    config: dict[str, Any] = json.loads(i.backend_config or "{}")
    transposed = bool(config.get("onednn_matmul_config", {}).get("transpose_a", False))
    return 2.0 * shape_elements(_result(i)) * i.operands[0].shape.dimensions[-2 if transposed else -1]


def _convolution(i: HloInstruction, kernel: Shape, output: Shape) -> float:
    """Count a multiplication and an addition for each window position of each output element."""
    operation = i.operation
    assert isinstance(operation, CustomCall)
    labels = operation.dim_labels
    if labels is None:
        raise ValueError("a convolution without labels")
    window = [kernel.dimensions[d] for d in labels.kernel_spatial_dimensions]
    return (
        2.0
        * shape_elements(output)
        * math.prod(window)
        * kernel.dimensions[labels.kernel_input_feature_dimension]
    )


def _forward(i: HloInstruction) -> float:
    return _convolution(i, kernel=i.operands[1].shape, output=_result(i))


def _backward_input(i: HloInstruction) -> float:
    """Count the forward convolution's operations; operand 0 is the gradient of the output."""
    return _convolution(i, kernel=i.operands[1].shape, output=i.operands[0].shape)


def _backward_filter(i: HloInstruction) -> float:
    """Count the forward convolution's operations; operand 1 is the gradient of the output."""
    return _convolution(i, kernel=_result(i), output=i.operands[1].shape)


_FLOPS: Final[dict[str, Callable[[HloInstruction], float]]] = {
    "__cublas$gemm": _cublas_product,
    "__cublas$lt$matmul": _cublas_product,
    "__cublas$lt$matmul$f8": _cublas_product,
    "__onednn$matmul": _onednn_product,
    "__cudnn$convForward": _forward,
    "__cudnn$convForwardGraph": _forward,
    "__cudnn$convBiasActivationForward": _forward,
    "__cudnn$convBackwardInput": _backward_input,
    "__cudnn$convBackwardFilter": _backward_filter,
}
"""Functions that return the flops of a call, by its target."""
