"""Products of arrays: dots, convolutions, factorizations, Fourier transforms, batch normalization."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from hloom.builder.builder import XlaOp
from hloom.builder.enumerations import Word, enumerated
from hloom.builder.messages import Message, convolution_numbers, dot_numbers
from hloom.builder.operands import ElementTypeLike, Operand, element_type_of, integers, page_function, pair
from hloom.errors import ShapeError, plural
from hloom.ir.contraction import PRECISIONS
from hloom.ir.window import ConvolutionDimensionNumbers, WindowDimension

__all__: list[str] = ["Dot", "DotGeneral", "RaggedDot", "ScaledDot"]
__all__ += ["Conv", "ConvGeneral", "ConvGeneralDilated"]
__all__ += ["ConvWithGeneralDimensions", "ConvWithGeneralPadding"]
__all__ += ["Cholesky", "Fft", "TriangularSolve"]
__all__ += ["BatchNormGrad", "BatchNormInference", "BatchNormTraining"]

Padding: TypeAlias = "str | Sequence[tuple[int, int]]"
"""SAME, VALID, or (low, high) for every window dimension; negative padding crops."""
Precision: TypeAlias = Any
"""default, high or highest for each operand, or one word for all; a PrecisionConfig; None for the default."""


def make_padding(
    padding: Padding, sizes: Sequence[int], window: Sequence[int], strides: Sequence[int]
) -> list[tuple[int, int]]:
    """Return (low, high) of every dimension; `kSame` and `kValid` are spellings of SAME and VALID.

    SAME pads so that ceil(size / stride) windows fit, the odd element at the high end; VALID pads nothing.
    """
    if not isinstance(padding, str):
        return [(int(low), int(high)) for low, high in padding]
    word = padding.upper().removeprefix("K")
    if word == "VALID":
        return [(0, 0)] * len(window)
    if word != "SAME":
        raise ShapeError(
            f"padding is SAME, VALID or pairs of numbers, got {padding!r}", rule="window.padding-kind"
        )
    pairs: list[tuple[int, int]] = []
    for size, extent, stride in zip(sizes, window, strides, strict=True):
        positions = -(-size // stride)
        total = max((positions - 1) * stride + extent - size, 0)
        pairs.append((total // 2, total - total // 2))
    return pairs


def make_window(
    sizes: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Sequence[tuple[int, int]] | None = None,
    base_dilations: Sequence[int] | None = None,
    window_dilations: Sequence[int] | None = None,
    reversal: Sequence[bool] | None = None,
) -> tuple[WindowDimension, ...]:
    """Make a window from its parts, by default 1s and no padding. Raises ShapeError for wrong counts."""
    rank = len(sizes)
    pads = list(padding or [(0, 0)] * rank)
    parts = {
        "window_strides": list(strides or [1] * rank),
        "padding": pads,
        "base_dilations": list(base_dilations or [1] * rank),
        "window_dilations": list(window_dilations or [1] * rank),
        "window_reversal": list(reversal or [False] * rank),
    }
    for name, values in parts.items():
        if len(values) != rank:
            message = (
                f"{name} has {plural(len(values), 'entry', 'entries')} for a "
                f"window of {plural(rank, 'dimension')}"
            )
            raise ShapeError(message, rule="window.rank")
    return tuple(
        WindowDimension(size, stride, low, high, window_dilation, base_dilation, bool(reverse))
        for size, stride, (low, high), base_dilation, window_dilation, reverse in zip(
            sizes, *parts.values(), strict=True
        )
    )


def _precision(precision: Precision) -> tuple[str, ...] | None:
    if precision is None:
        return None
    if hasattr(precision, "operand_precision"):  # a PrecisionConfig
        precision = precision.operand_precision
    words: Iterable[object] = [precision] * 2
    if isinstance(precision, Iterable) and not isinstance(precision, str):
        words = cast("Iterable[Any]", precision)
    return tuple(enumerated(word, PRECISIONS, "precision_config") for word in words)


def _contracted(
    opcode: str,
    operands: list[XlaOp],
    preferred_element_type: ElementTypeLike | None,
    attributes: Mapping[str, Any],
) -> XlaOp:
    """Emit a contraction; its result has the preferred element type, if one is given."""
    element_type = None if preferred_element_type is None else element_type_of(preferred_element_type)
    return operands[0].builder.emit(opcode, operands, element_type=element_type, **attributes)


@page_function()
def Dot(
    lhs: Operand,
    rhs: Operand,
    precision_config: Precision = None,
    preferred_element_type: ElementTypeLike | None = None,
) -> XlaOp:
    """Multiply vectors and matrices: contract the last dimension of lhs with the first of rhs."""
    first, second = pair(lhs, rhs)
    if first.shape.rank < 1 or second.shape.rank < 1:
        raise ShapeError(
            f"Dot takes vectors and matrices, got {first.shape} and {second.shape}", rule="dot.rank"
        )
    numbers = {"lhs_contracting_dims": (first.shape.rank - 1,), "rhs_contracting_dims": (0,)}
    return DotGeneral(first, second, numbers, precision_config, preferred_element_type)


@page_function()
def DotGeneral(
    lhs: Operand,
    rhs: Operand,
    dimension_numbers: Message,
    precision_config: Precision = None,
    preferred_element_type: ElementTypeLike | None = None,
) -> XlaOp:
    """Contract any dimensions, with any batch dimensions.

    `dimension_numbers` is a DotDimensionNumbers, or a mapping with lhs_contracting_dims,
    rhs_contracting_dims, lhs_batch_dims and rhs_batch_dims (or the proto's spelling
    `..._dimensions`); missing ones are empty.
    """
    first, second = pair(lhs, rhs)
    return _contracted(
        "dot",
        [first, second],
        preferred_element_type,
        {"operand_precision": _precision(precision_config), **dot_numbers(dimension_numbers)},
    )


@page_function()
def RaggedDot(
    lhs: XlaOp,
    rhs: XlaOp,
    group_sizes: Operand,
    dimension_numbers: Message,
    precision_config: Precision = None,
    preferred_element_type: ElementTypeLike | None = None,
) -> XlaOp:
    """Contract operands with one dimension of `lhs` divided into groups of run-time sizes.

    `dimension_numbers` is a RaggedDotDimensionNumbers, or has the fields of `DotGeneral` and lhs_ragged_dims,
    rhs_group_dims.
    """
    from hloom.builder.operands import as_op
    from hloom.shape.element_type import S32

    return _contracted(
        "ragged-dot",
        [lhs, rhs, as_op(group_sizes, lhs, S32)],
        preferred_element_type,
        {"operand_precision": _precision(precision_config), **dot_numbers(dimension_numbers, ragged=True)},
    )


@page_function()
def ScaledDot(
    lhs: XlaOp,
    rhs: XlaOp,
    lhs_scale: XlaOp,
    rhs_scale: XlaOp,
    dimension_numbers: Message,
    preferred_element_type: ElementTypeLike | None = None,
) -> XlaOp:
    """Contract operands in narrow types, each with scales for blocks of its elements."""
    operands = [lhs, lhs_scale, rhs, rhs_scale]
    return _contracted("scaled-dot", operands, preferred_element_type, dot_numbers(dimension_numbers))


def default_dimension_numbers(spatial: int) -> ConvolutionDimensionNumbers:
    """Return batch, feature, spatial for input and output; output, input feature, spatial for the kernel."""
    places = tuple(range(2, 2 + spatial))
    return ConvolutionDimensionNumbers(0, 1, places, 1, 0, places, 0, 1, places)


@page_function()
def Conv(
    lhs: XlaOp,
    rhs: XlaOp,
    window_strides: Sequence[int],
    padding: Padding,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: Precision = None,
    preferred_element_type: ElementTypeLike | None = None,
) -> XlaOp:
    """Convolve in the default dimension order; `padding` is SAME or VALID (or pairs)."""
    others = feature_group_count, batch_group_count, precision_config, preferred_element_type
    return ConvGeneralDilated(lhs, rhs, window_strides, padding, None, None, None, *others)


@page_function()
def ConvWithGeneralPadding(
    lhs: XlaOp,
    rhs: XlaOp,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: Precision = None,
    preferred_element_type: ElementTypeLike | None = None,
) -> XlaOp:
    """Convolve in the default dimension order, with padding as (low, high) pairs."""
    others = feature_group_count, batch_group_count, precision_config, preferred_element_type
    return ConvGeneralDilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, None, *others)


@page_function()
def ConvGeneral(
    lhs: XlaOp,
    rhs: XlaOp,
    window_strides: Sequence[int],
    padding: Padding,
    dimension_numbers: object = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: Precision = None,
    preferred_element_type: ElementTypeLike | None = None,
) -> XlaOp:
    """Convolve in any dimension order."""
    others = feature_group_count, batch_group_count, precision_config, preferred_element_type
    return ConvGeneralDilated(lhs, rhs, window_strides, padding, None, None, dimension_numbers, *others)


ConvWithGeneralDimensions = ConvGeneral


@page_function()
def ConvGeneralDilated(
    lhs: XlaOp,
    rhs: XlaOp,
    window_strides: Sequence[int] | None,
    padding: Padding,
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    dimension_numbers: object = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: Precision = None,
    preferred_element_type: ElementTypeLike | None = None,
    window_reversal: Sequence[bool] | None = None,
) -> XlaOp:
    """Convolve with any strides, padding, dilations, dimension order and groups.

    Args:
        lhs, rhs: input and kernel.
        window_strides: a stride for every spatial dimension; empty means 1.
        padding: SAME, VALID or (low, high) pairs; negative numbers crop.
        lhs_dilation, rhs_dilation: distance of neighbouring elements of input and kernel; empty means 1.
        dimension_numbers: a ConvolutionDimensionNumbers (hloom's or the proto's), a mapping with its
            fields, or labels such as `b01f_01io->b01f`.
        feature_group_count, batch_group_count: number of groups of features or batches.

    Raises ShapeError.
    """
    spatial = max(lhs.shape.rank - 2, 0)
    labels = (
        default_dimension_numbers(spatial)
        if dimension_numbers is None
        else convolution_numbers(dimension_numbers)
    )
    if lhs.shape.rank != rhs.shape.rank or lhs.shape.rank < 2:
        message = f"input and kernel have one rank of 2 or more, got {lhs.shape} and {rhs.shape}"
        raise ShapeError(message, rule="convolution.ranks")
    base = [lhs.shape.dimensions[d] for d in labels.input_spatial_dimensions]
    extent = [rhs.shape.dimensions[d] for d in labels.kernel_spatial_dimensions]
    strides = list(window_strides or [1] * len(extent))
    pads = make_padding(padding, base, extent, strides)
    return _contracted(
        "convolution",
        [lhs, rhs],
        preferred_element_type,
        {
            "window": make_window(extent, strides, pads, lhs_dilation, rhs_dilation, window_reversal),
            "dim_labels": labels,
            "feature_group_count": feature_group_count,
            "batch_group_count": batch_group_count,
            "operand_precision": _precision(precision_config),
        },
    )


@page_function()
def Fft(operand: XlaOp, fft_type: Word, fft_length: Sequence[int]) -> XlaOp:
    """Transform by FFT, IFFT, RFFT or IRFFT over the last one to three dimensions."""
    return operand.builder.emit(
        "fft", [operand], fft_type=fft_type, fft_length=integers(fft_length, "fft_length")
    )


@page_function()
def Cholesky(a: XlaOp, lower: bool = True) -> XlaOp:
    """Factor a batch of Hermitian positive definite matrices, of which one triangle is read."""
    return a.builder.emit("cholesky", [a], lower=lower)


@page_function()
def TriangularSolve(
    a: XlaOp, b: XlaOp, left_side: bool, lower: bool, unit_diagonal: bool, transpose_a: Word = "NO_TRANSPOSE"
) -> XlaOp:
    """Solve op(a) x = b, or x op(a) = b, for x; `transpose_a` is NO_TRANSPOSE, TRANSPOSE or ADJOINT."""
    return a.builder.emit(
        "triangular-solve",
        [a, b],
        left_side=left_side,
        lower=lower,
        unit_diagonal=unit_diagonal,
        transpose_a=transpose_a,
    )


@page_function()
def BatchNormTraining(
    operand: XlaOp, scale: XlaOp, offset: XlaOp, epsilon: float, feature_index: int
) -> XlaOp:
    """Return (normalized operand, mean, variance) over all dimensions but the feature's."""
    return operand.builder.emit(
        "batch-norm-training", [operand, scale, offset], epsilon=epsilon, feature_index=feature_index
    )


@page_function()
def BatchNormInference(
    operand: XlaOp,
    scale: XlaOp,
    offset: XlaOp,
    mean: XlaOp,
    variance: XlaOp,
    epsilon: float,
    feature_index: int,
) -> XlaOp:
    """Normalize the operand with given mean and variance."""
    operands = [operand, scale, offset, mean, variance]
    return operand.builder.emit(
        "batch-norm-inference", operands, epsilon=epsilon, feature_index=feature_index
    )


@page_function(batch_mean="mean", batch_var="variance")
def BatchNormGrad(
    operand: XlaOp,
    scale: XlaOp,
    mean: XlaOp,
    variance: XlaOp,
    grad_output: XlaOp,
    epsilon: float,
    feature_index: int,
) -> XlaOp:
    """Return the gradients (operand, scale, offset) of a batch normalization."""
    operands = [operand, scale, mean, variance, grad_output]
    return operand.builder.emit("batch-norm-grad", operands, epsilon=epsilon, feature_index=feature_index)
