"""The arithmetic of custom calls by which XLA runs matrix products, convolutions and LAPACK in libraries.

It follows from the call's target and configuration: a dot's dimension numbers are in the backend config, a
convolution's window and labels among the attributes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

from hloom.analysis.lapack_calls import lapack_flops
from hloom.errors import HloError
from hloom.ir.instruction import HloInstruction
from hloom.ir.traits import shape_elements
from hloom.operations.custom_call import CustomCall
from hloom.settings import Settings
from hloom.shape.shape import Shape


def library_flops(i: HloInstruction) -> float | None:
    """Return the flops of a library call; None for others, or if its configuration cannot be read."""
    operation = i.operation
    lapack = lapack_flops(i)
    if lapack is not None:
        return lapack
    count = _FLOPS.get(operation.custom_call_target) if isinstance(operation, CustomCall) else None
    if count is None or len(i.operands) < 2:
        return None
    try:
        return count(i)
    except HloError:
        return None


def _config(i: HloInstruction, section: str) -> Settings:
    """Return a section of the configuration; older programs have its fields without the section."""
    settings = Settings.parse(i.backend_config or "{}", _malformed)
    return settings.message(section) if section in settings.fields else settings


def _malformed(what: str) -> HloError:
    return HloError(
        f"the backend_config of a library call is malformed: {what}", rule="custom-call.emulation"
    )


def _result(i: HloInstruction) -> Shape:
    """Return the shape of the computed array; a workspace may follow it in the result tuple."""
    return i.shape.tuple_shapes[0] if i.shape.is_tuple else i.shape


def _cublas_product(i: HloInstruction) -> float:
    """Count a multiplication and an addition for each term of each result element."""
    numbers = _config(i, "gemm_backend_config").message("dot_dimension_numbers")
    numbers.require("lhs_contracting_dimensions")
    contracting = numbers.integers("lhs_contracting_dimensions")
    terms = _product(i.operands[0].shape, contracting)
    return 2.0 * shape_elements(_result(i)) * terms


def _product(shape: Shape, dimensions: Sequence[int]) -> int:
    """Return the product of the extents of some dimensions."""
    if not all(0 <= d < shape.rank for d in dimensions):
        raise _malformed(f"dimensions {list(dimensions)} of {shape}")
    return math.prod(shape.dimensions[d] for d in dimensions)


def _onednn_product(i: HloInstruction) -> float:
    """Count a multiplication and an addition per term, for a left operand that may be transposed."""
    transposed = _config(i, "onednn_matmul_config").flag("transpose_a")
    lhs = i.operands[0].shape
    return 2.0 * shape_elements(_result(i)) * _product(lhs, [lhs.rank - (2 if transposed else 1)])


def _convolution(i: HloInstruction, kernel: Shape, output: Shape) -> float:
    """Count a multiplication and an addition for each window position of each output element."""
    operation = i.operation
    assert isinstance(operation, CustomCall)
    labels = operation.dim_labels
    if labels is None:
        raise _malformed("a convolution without dim_labels")
    summed = [*labels.kernel_spatial_dimensions, labels.kernel_input_feature_dimension]
    return 2.0 * shape_elements(output) * _product(kernel, summed)


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
