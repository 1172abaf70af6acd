"""cuDNN's convolutions, with bias and activation, and their gradients.

Window and labels of a gradient's call are those of the forward convolution. Operands: input and kernel
(forward); output gradient and kernel (gradient of the input); input and output gradient (gradient of the
kernel).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import hloom.ops as ops
from hloom.builder.builder import XlaOp
from hloom.ir.window import ConvolutionDimensionNumbers, Window
from hloom.library_calls.arithmetic import ACTIVATIONS, accumulation_type
from hloom.library_calls.emulation import LibraryCall, Results, emulates
from hloom.settings import Settings
from hloom.shape.element_type import F32

_SECTION: Final = "cudnn_conv_backend_config"
_LEAKY: Final = "LEAKYRELU"


@emulates("__cudnn$convForward", operands=2)
def forward(call: LibraryCall) -> Results:
    """Return the scaled convolution of an input and a kernel."""
    settings = _settings(call)
    return [_rounded(call, _scaled(_convolved(call), settings))]


@emulates("__cudnn$convBiasActivationForward", operands=2)
def with_bias_and_activation(call: LibraryCall) -> Results:
    """Return ``activation(scale · convolution + side scale · side input + bias)``; one bias per feature."""
    settings = _settings(call)
    labels = _labels(call)
    value = _scaled(_convolved(call), settings)
    if value.shape.element_type.is_integer:
        value = ops.ConvertElementType(value, F32)
    kind, sizes = value.shape.element_type, value.shape.dimensions
    if len(call.operands) > 3:
        side = ops.ConvertElementType(call.operands[3], kind)
        value = value + side * settings.number("side_input_scale")
    if len(call.operands) > 2:
        bias = ops.ConvertElementType(call.operands[2], kind)
        value = value + ops.BroadcastInDim(bias, sizes, [labels.output_feature_dimension])
    return [_rounded(call, _activated(call, settings, value))]


@emulates("__cudnn$convBackwardInput", operands=2)
def gradient_of_input(call: LibraryCall) -> Results:
    """Return the gradient of the input: the output gradient convolved with the reversed kernel."""
    labels, groups = _labels(call), call.operation.feature_group_count
    dy, kernel = call.operands[:2]
    kernel = _grouped_by_output(kernel, labels, groups)
    gradient = ConvolutionDimensionNumbers(
        labels.output_batch_dimension,
        labels.output_feature_dimension,
        labels.output_spatial_dimensions,
        labels.kernel_output_feature_dimension,
        labels.kernel_input_feature_dimension,
        labels.kernel_spatial_dimensions,
        labels.input_batch_dimension,
        labels.input_feature_dimension,
        labels.input_spatial_dimensions,
    )
    window: list[dict[str, int]] = []
    result = call.shapes[0].dimensions
    for n, d in enumerate(_window(call)):
        size = dy.shape.dimensions[labels.output_spatial_dimensions[n]]
        low = d.dilated_size - 1 - d.padding_low
        dilated = (size - 1) * d.stride + 1
        high = result[labels.input_spatial_dimensions[n]] + d.dilated_size - 1 - dilated - low
        window.append({"stride": 1, "low": low, "high": high, "lhs": d.stride, "rhs": d.window_dilation})
    reversal = [not d.window_reversal for d in _window(call)]
    return [_rounded(call, _convolution(call, (dy, kernel), window, gradient, (groups, 1), reversal))]


@emulates("__cudnn$convBackwardFilter", operands=2)
def gradient_of_kernel(call: LibraryCall) -> Results:
    """Return the gradient of the kernel: the input convolved with the output gradient as the kernel."""
    labels, groups = _labels(call), call.operation.feature_group_count
    x, dy = call.operands[:2]
    gradient = ConvolutionDimensionNumbers(
        labels.input_feature_dimension,
        labels.input_batch_dimension,
        labels.input_spatial_dimensions,
        labels.output_batch_dimension,
        labels.output_feature_dimension,
        labels.output_spatial_dimensions,
        labels.kernel_input_feature_dimension,
        labels.kernel_output_feature_dimension,
        labels.kernel_spatial_dimensions,
    )
    window: list[dict[str, int]] = []
    for n, d in enumerate(_window(call)):
        base = x.shape.dimensions[labels.input_spatial_dimensions[n]]
        size = dy.shape.dimensions[labels.output_spatial_dimensions[n]]
        high = d.dilated_size + (size - 1) * d.stride - base - d.padding_low
        strides = {"stride": d.window_dilation, "lhs": 1, "rhs": d.stride}
        window.append({"low": d.padding_low, "high": high, **strides})
    call.require(not any(d.window_reversal for d in _window(call)), "a gradient of a reversed kernel")
    value = _convolution(call, (x, dy), window, gradient, (1, groups), [False] * len(window))
    return [_rounded(call, value)]


# -- parts


def _settings(call: LibraryCall) -> Settings:
    settings = call.settings(_SECTION)
    call.require(not settings.flag("reordered_int8_nchw_vect"), "its kernel is reordered for int8x32")
    return settings


def _labels(call: LibraryCall) -> ConvolutionDimensionNumbers:
    labels = call.operation.dim_labels
    if labels is None:
        raise call.refusal("it has no dim_labels")
    rank = len(labels.input_spatial_dimensions) + 2
    call.require(call.operands[0].shape.rank == rank, "its features are vectors (NCHW_VECT_C)")
    return labels


def _window(call: LibraryCall) -> Window:
    window = call.operation.window or ()
    call.require(all(d.base_dilation == 1 for d in window), "its input is dilated")
    return window


def _convolved(call: LibraryCall) -> XlaOp:
    """Return the forward convolution in the accumulation type, unscaled."""
    window = [
        {"stride": d.stride, "low": d.padding_low, "high": d.padding_high, "lhs": 1, "rhs": d.window_dilation}
        for d in _window(call)
    ]
    reversal = [d.window_reversal for d in _window(call)]
    groups = (call.operation.feature_group_count, call.operation.batch_group_count)
    return _convolution(call, call.operands[:2], window, _labels(call), groups, reversal)


def _scaled(value: XlaOp, settings: Settings) -> XlaOp:
    """Scale a convolution; integers become f32 unless the scale is 1."""
    scale = settings.number("conv_result_scale", 1.0)
    if scale == 1:
        return value
    kind = value.shape.element_type
    return ops.ConvertElementType(value, F32 if kind.is_integer else kind) * scale


def _convolution(
    call: LibraryCall,
    operands: Sequence[XlaOp],
    window: Sequence[dict[str, int]],
    labels: ConvolutionDimensionNumbers,
    groups: tuple[int, int],
    reversal: Sequence[bool],
) -> XlaOp:
    lhs, rhs = operands
    return ops.ConvGeneralDilated(
        lhs,
        rhs,
        [d["stride"] for d in window],
        [(d["low"], d["high"]) for d in window],
        [d["lhs"] for d in window],
        [d["rhs"] for d in window],
        labels,
        *groups,
        preferred_element_type=accumulation_type(lhs.shape.element_type, rhs.shape.element_type),
        window_reversal=list(reversal),
    )


def _grouped_by_output(kernel: XlaOp, labels: ConvolutionDimensionNumbers, groups: int) -> XlaOp:
    """Reshape a grouped kernel: move the groups from output features to input features."""
    if groups == 1:
        return kernel
    source, target = labels.kernel_output_feature_dimension, labels.kernel_input_feature_dimension
    sizes = list(kernel.shape.dimensions)
    split = [*sizes[:source], groups, sizes[source] // groups, *sizes[source + 1 :]]
    parts = ops.Reshape(kernel, split)
    order = [d for d in range(len(split)) if d != source]
    order.insert(order.index(target + (target > source)), source)
    turned = ops.Transpose(parts, order)
    sizes[source] //= groups
    sizes[target] *= groups
    return ops.Reshape(turned, sizes)


def _activated(call: LibraryCall, settings: Settings, value: XlaOp) -> XlaOp:
    name = settings.word("activation_mode", "kNone").removeprefix("k").upper()
    if name == _LEAKY:
        return ops.Select(value > 0.0, value, value * settings.number("leakyrelu_alpha"))
    call.require(name in ACTIVATIONS, f"the activation {name}")
    return ACTIVATIONS[name](value)


def _rounded(call: LibraryCall, value: XlaOp) -> XlaOp:
    """Round floats to the nearest integer and clamp, for an integer result; keep other values."""
    kind = call.shapes[0].element_type
    if not kind.is_integer or value.shape.element_type.is_integer:
        return value
    least, most = map(float, kind.limits)
    return ops.Clamp(least, ops.RoundNearestEven(value), most)
