"""stencil-convolutions: write convolutions of few features with small windows as sums of shifted arrays.

The convolution kernels compute tiles of many features. With one feature a convolution is a stencil: the sum,
over the taps of the window, of the shifted base times a scalar. As elementwise operations it is a loop over
vectors of the minor dimension, with bounds checks at the edges only, and fuses with the operations around it.

The products are padded, not the base: a zero of the padding times an infinite element of the kernel would be
NaN.
"""

from __future__ import annotations

import math

import numpy as np

from hloom.analysis.instructions import operation_of
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import PaddingDimension, SliceDimension
from hloom.operations.arithmetic import Add, Multiply
from hloom.operations.convolution import Convolution
from hloom.operations.movement import Pad, Slice
from hloom.passes.expand.window_taps import tap_ranges
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer
from hloom.shape.element_type import F32
from hloom.shape.shape import Shape


class StencilConvolutions(OpExpander, name="stencil-convolutions", of=Convolution):
    """``convolution(x, k)`` → ``0 + pad(slice(x) * k[0]) + pad(slice(x) * k[1]) + ...``.

    Within the rounding errors of sums in the order of the window.

    Attributes:
        limits: tuples of a minimum extent of the result's minor dimension, and for that extent the maximum
            numbers of products of a sum and of input features times output features.
        least: minimum number of elements of the result.
    """

    limits: tuple[tuple[int, int, int], ...] = ((64, 36, 9), (16, 25, 4))
    least: int = 1024

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        """Write a convolution as a sum if its features and its window are small."""
        convolution = operation_of(i, Convolution)
        is_static = all(o.shape.is_static for o in (i, *i.operands))
        pays = is_static and _keeps_order(i, convolution) and self.pays(i, convolution)
        return _sum(w, i, convolution) if pays else None

    def pays(self, i: HloInstruction, convolution: Convolution) -> bool:
        """Return whether sums are short enough for the result's minor dimension."""
        kind, labels = i.shape.element_type, convolution.dim_labels
        grouped = convolution.feature_group_count * convolution.batch_group_count > 1
        if grouped or any(d.base_dilation > 1 for d in convolution.window):
            return False
        if kind.is_complex or kind.is_predicate or kind.bits < 8:
            return False
        inputs, outputs = (
            i.operands[1].shape.dimensions[d]
            for d in (labels.kernel_input_feature_dimension, labels.kernel_output_feature_dimension)
        )
        terms = inputs * math.prod(d.size for d in convolution.window)
        minor = [size for size in i.shape.dimensions if size > 1][-1:]
        return i.shape.element_count >= self.least and any(
            minor[0] >= shortest and terms <= most_terms and inputs * outputs <= most_features
            for shortest, most_terms, most_features in self.limits
        )


def _keeps_order(i: HloInstruction, convolution: Convolution) -> bool:
    """Return whether batch and spatial dimensions have the same order in input and output.

    The feature dimensions must not be minor, unless their size is 1.
    """
    labels, minor = convolution.dim_labels, i.shape.rank - 1
    before = np.argsort((labels.input_batch_dimension, *labels.input_spatial_dimensions))
    after = np.argsort((labels.output_batch_dimension, *labels.output_spatial_dimensions))
    x, feature = i.operands[0].shape, labels.input_feature_dimension
    is_read_in_order = feature < minor or x.dimensions[feature] == 1
    is_written_in_order = labels.output_feature_dimension < minor or i.shape.dimensions[minor] == 1
    return np.array_equal(before, after) and is_read_in_order and is_written_in_order


def _sum(w: Writer, i: HloInstruction, convolution: Convolution) -> HloInstruction:
    """Write the sum of the products over the taps of the window, in row-major order."""
    kind = i.shape.element_type
    kind = F32 if kind.is_floating and kind.bits < 32 else kind
    x, kernel = (w.convert(o, kind) for o in i.operands)
    total = w.full(0, Shape(kind, i.shape.dimensions))
    for tap in np.ndindex(*(d.size for d in convolution.window)):
        for feature in range(x.shape.dimensions[convolution.dim_labels.input_feature_dimension]):
            product = _product(w, convolution, (x, kernel), (tap, feature), i.shape.dimensions)
            if product is not None:
                total = w.op(Add(), total, product)
    return w.convert(total, i.shape.element_type)


def _product(
    w: Writer,
    convolution: Convolution,
    operands: tuple[HloInstruction, HloInstruction],
    term: tuple[tuple[int, ...], int],
    sizes: tuple[int, ...],
) -> HloInstruction | None:
    """Write the product of the base and one tap at all positions; None if the tap only meets padding."""
    labels, (x, kernel), (tap, feature) = convolution.dim_labels, operands, term
    read = [SliceDimension(0, size) for size in x.shape.dimensions]
    read[labels.input_feature_dimension] = SliceDimension(feature, feature + 1)
    factor = [SliceDimension(0, size) for size in kernel.shape.dimensions]
    factor[labels.kernel_input_feature_dimension] = SliceDimension(feature, feature + 1)
    padding = [PaddingDimension(0, 0) for _ in sizes]
    part = list(sizes)
    for d, at, source, place, target in zip(
        convolution.window,
        tap,
        labels.input_spatial_dimensions,
        labels.kernel_spatial_dimensions,
        labels.output_spatial_dimensions,
        strict=True,
    ):
        ranges = tap_ranges(at, d, x.shape.dimensions[source], sizes[target])
        if ranges is None:
            return None
        read[source], padding[target] = ranges
        element = d.size - 1 - at if d.window_reversal else at
        factor[place] = SliceDimension(element, element + 1)
        part[target] = sizes[target] - padding[target].low - padding[target].high
    base, weights = w.op(Slice(slice=tuple(read)), x), w.op(Slice(slice=tuple(factor)), kernel)
    output = labels.output_feature_dimension
    if sizes[output] == 1:
        product = w.op(Multiply(), w.reshape(base, part), w.broadcast(w.reshape(weights, ()), part))
    else:
        others = [d for d in range(len(sizes)) if d != output]
        spread = w.broadcast(w.reshape(base, [part[d] for d in others]), part, others)
        product = w.op(Multiply(), spread, w.broadcast(w.reshape(weights, [sizes[output]]), part, [output]))
    return w.op(Pad(padding=tuple(padding)), product, w.scalar(0, product.shape.element_type))
