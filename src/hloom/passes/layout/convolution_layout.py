"""convolution-layout: transpose convolutions so that the feature dimensions are minor, as kernels need."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hloom.analysis.instructions import operation_of
from hloom.ir.instruction import HloInstruction
from hloom.operations.convolution import Convolution
from hloom.operations.movement import Transpose
from hloom.passes.op_expander import OpExpander
from hloom.passes.rules.convolution import relabelled
from hloom.passes.rules.dimensions import inverse
from hloom.passes.writing import Writer


class ConvolutionLayout(OpExpander, name="convolution-layout", of=Convolution):
    """``convolution(x, k)`` → ``transpose(convolution(transpose(x), transpose(k)))``.

    Spatial dimensions of the base precede the last of its other two; the output features of kernel and result
    become minor. Run it last: other passes fold transposes into convolutions.

    Attributes:
        least_features: minimum number of output features,
        least_terms: and of products in a sum, for ungrouped convolutions.
    """

    least_features: int = 8
    least_terms: int = 32

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        convolution = operation_of(i, Convolution)
        return arranged(i, convolution) if self.pays(i, convolution) else None

    def pays(self, i: HloInstruction, convolution: Convolution) -> bool:
        """Return whether a static convolution has enough output features and terms per sum."""
        labels = convolution.dim_labels
        kernel = i.operands[1].shape
        if not (i.shape.is_static and i.operands[0].shape.is_static and kernel.is_static):
            return False
        groups = convolution.feature_group_count * convolution.batch_group_count
        outputs = kernel.dimensions[labels.kernel_output_feature_dimension]
        terms = math.prod(kernel.dimensions) // max(1, outputs)
        return outputs >= self.least_features and (groups > 1 or terms >= self.least_terms)


def arranged(i: HloInstruction, convolution: Convolution) -> HloInstruction | None:
    """Return a convolution between transposes; None if its features are minor already."""
    labels = convolution.dim_labels
    batch, feature = labels.input_batch_dimension, labels.input_feature_dimension
    first, last = sorted((batch, feature))
    base = [first, *labels.input_spatial_dimensions, last]
    if max(batch, feature) == i.operands[0].shape.rank - 1:
        base = list(range(i.operands[0].shape.rank))
    taps = [*labels.kernel_spatial_dimensions]
    taps.insert(0 if base.index(feature) == 0 else len(taps), labels.kernel_input_feature_dimension)
    kernel = [*taps, labels.kernel_output_feature_dimension]
    if labels.kernel_output_feature_dimension == i.operands[1].shape.rank - 1:
        kernel = list(range(i.operands[1].shape.rank))
    outputs = labels.output_feature_dimension
    result = [d for d in range(i.shape.rank) if d != outputs] + [outputs]
    if not any(map(_moves, (base, kernel, result))):
        return None
    for part, order in (("input", base), ("kernel", kernel), ("output", result)):
        labels = relabelled(labels, part, inverse(tuple(order)))
    x, k = (_transposed(i, o, order) for o, order in zip(i.operands, (base, kernel), strict=True))
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
