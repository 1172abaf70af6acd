"""convolution-layout: transpose convolutions so that the feature dimensions are minor, as kernels need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.convolution import Convolution
from hloom.operations.movement import Transpose
from hloom.passes.fuel import consume
from hloom.passes.registry import register
from hloom.passes.rules.convolution import convolution_like, relabelled
from hloom.passes.rules.dimensions import inverse
from hloom.passes.writing import Writer


@register
@dataclass(frozen=True, slots=True)
class ConvolutionLayout:
    """``convolution(x, k)`` → ``transpose(convolution(transpose(x), transpose(k)))``.

    Spatial dimensions of the base precede the last of its other two; the output features of kernel and result
    become minor. Run it last: other passes fold transposes into convolutions.

    Attributes:
        least_features: minimum number of output features,
        least_terms: and of products in a sum, for ungrouped convolutions.
    """

    least_features: int = 8
    least_terms: int = 32
    name: ClassVar[str] = "convolution-layout"

    def run(self, module: HloModule) -> bool:
        """Transpose every convolution for which it is profitable."""
        changed = False
        for computation in module.computations:
            for instruction in list(computation):
                operation = instruction.operation
                if isinstance(operation, Convolution) and self.pays(instruction, operation):
                    changed |= consume(f"%{instruction.name}") and arrange(instruction, operation)
        return changed

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


def arrange(i: HloInstruction, convolution: Convolution) -> bool:
    """Transpose one convolution unless its features are minor already; return whether it changed."""
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
        return False
    for part, order in (("input", base), ("kernel", kernel), ("output", result)):
        labels = relabelled(labels, part, inverse(tuple(order)))
    x, k = (_transposed(i, o, order) for o, order in zip(i.operands, (base, kernel), strict=True))
    rearranged = convolution_like(i, convolution.replace(dim_labels=labels), x, k)
    Writer(i).replace(_transposed(i, rearranged, inverse(tuple(result))))
    return True


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
