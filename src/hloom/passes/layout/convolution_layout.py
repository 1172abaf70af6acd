"""convolution-layout: transpose convolutions so that features are minor and fill vectors, as kernels need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.ir.instruction import HloInstruction
from hloom.operations.convolution import Convolution
from hloom.operations.movement import Transpose
from hloom.passes.op_expander import OpExpander
from hloom.passes.rules.convolution import relabelled
from hloom.passes.rules.dimensions import inverse
from hloom.passes.writing import Writer

LANES: Final = 16
"""Lanes of a vector of f32 with AVX-512. Kernels also sum half vectors of input features."""


class ConvolutionLayout(OpExpander, name="convolution-layout", of=Convolution):
    """``convolution(x, k)`` → ``transpose(convolution(transpose(x), transpose(k)))``.

    Spatial dimensions of the base precede the last of its other two; the output features of kernel and result
    become minor. Convolutions of few output features sum vectors of input features: these become minor, and
    their number a multiple of the lanes, by zeros. Run it last: other passes fold transposes into
    convolutions.

    Attributes:
        least_features: minimum number of output features,
        least_terms: and of products in a sum, for ungrouped convolutions.
        least_depth: minimum number of input features,
        least_taps: and of window elements, for convolutions of fewer output features.
    """

    least_features: int = 8
    least_terms: int = 2
    least_depth: int = 16
    least_taps: int = 4

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        convolution = operation_of(i, Convolution)
        if not all(x.shape.is_static for x in (i, *i.operands)):
            return None
        outputs, depth, taps = _sizes(i, convolution)
        groups = convolution.feature_group_count * convolution.batch_group_count
        if outputs >= self.least_features:
            pays = groups > 1 or depth * taps >= self.least_terms
            return arranged(i, convolution, i.operands) if pays else None
        is_minor = convolution.dim_labels.input_feature_dimension == i.operands[0].shape.rank - 1
        pays = groups == 1 and taps >= self.least_taps and (is_minor or depth >= self.least_depth)
        if not pays or i.shape.element_type.is_complex:
            return None
        operands = _padded_features(w, i, convolution, outputs, depth)
        new = arranged(i, convolution, operands, deep=True) if depth >= self.least_depth else None
        return w.like(convolution, *operands) if new is None and operands != i.operands else new


def _sizes(i: HloInstruction, convolution: Convolution) -> tuple[int, int, int]:
    """Return the numbers of output features, of input features in a group, and of window elements."""
    labels, kernel = convolution.dim_labels, i.operands[1].shape.dimensions
    outputs = kernel[labels.kernel_output_feature_dimension]
    depth = kernel[labels.kernel_input_feature_dimension]
    return outputs, depth, math.prod(kernel[d] for d in labels.kernel_spatial_dimensions)


def _padded_features(
    w: Writer, i: HloInstruction, convolution: Convolution, outputs: int, depth: int
) -> Sequence[HloInstruction]:
    """Return the operands with input features padded by zeros to whole vectors; without change if few."""
    lanes = LANES if depth > 2 * LANES else LANES // 2
    if depth % (LANES // 2) == 0 or depth <= (LANES // 2 if outputs == 1 else 2 * LANES):
        return i.operands
    labels = convolution.dim_labels
    features = labels.input_feature_dimension, labels.kernel_input_feature_dimension
    wide: list[HloInstruction] = []
    for x, feature in zip(i.operands, features, strict=True):
        sizes = list(x.shape.dimensions)
        sizes[feature] = -(-depth // lanes) * lanes
        wide.append(w.resize(x, sizes))
    return wide


def arranged(
    i: HloInstruction, convolution: Convolution, operands: Sequence[HloInstruction], *, deep: bool = False
) -> HloInstruction | None:
    """Return a convolution between transposes; None if its features are minor already.

    ``deep``: the input features of the base become minor, not the last of these and the batch.
    """
    labels = convolution.dim_labels
    batch, feature = labels.input_batch_dimension, labels.input_feature_dimension
    first, last = (batch, feature) if deep else sorted((batch, feature))
    base = [first, *labels.input_spatial_dimensions, last]
    if (feature if deep else max(batch, feature)) == operands[0].shape.rank - 1:
        base = list(range(operands[0].shape.rank))
    taps = [*labels.kernel_spatial_dimensions]
    taps.insert(0 if base.index(feature) == 0 else len(taps), labels.kernel_input_feature_dimension)
    kernel = [*taps, labels.kernel_output_feature_dimension]
    if labels.kernel_output_feature_dimension == operands[1].shape.rank - 1:
        kernel = list(range(operands[1].shape.rank))
    outputs = labels.output_feature_dimension
    result = [d for d in range(i.shape.rank) if d != outputs] + [outputs]
    if not any(map(_moves, (base, kernel, result))):
        return None
    for part, order in (("input", base), ("kernel", kernel), ("output", result)):
        labels = relabelled(labels, part, inverse(tuple(order)))
    x, k = (_transposed(i, o, order) for o, order in zip(operands, (base, kernel), strict=True))
    rearranged = Writer(i).like(convolution.replace(dim_labels=labels), x, k)
    return _transposed(i, rearranged, inverse(tuple(result)))


def _moves(order: Sequence[int]) -> bool:
    return list(order) != sorted(order)


def _transposed(i: HloInstruction, x: HloInstruction, order: Sequence[int]) -> HloInstruction:
    """Transpose an array; reshape it instead if only dimensions of size 1 move."""
    if not _moves(order):
        return x
    writer = Writer(i)
    sizes = x.shape.dimensions
    if not _moves([d for d in order if sizes[d] != 1]):
        return writer.reshape(x, [sizes[d] for d in order])
    return writer.op(Transpose(dimensions=tuple(order)), x)
