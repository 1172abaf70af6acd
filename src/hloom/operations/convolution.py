"""Convolution: the page's Conv, ConvWithGeneralPadding and ConvGeneralDilated.

Sums of products are formed as for ``dot``: integers wrap, pred is or of and, floats are summed term by
term where there are few and in f64 where there are many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from hloom.error_bounds.sums import sum_of_products
from hloom.errors import ShapeError, plural
from hloom.ir.affine import Index, Indices
from hloom.ir.codec import enum, integer
from hloom.ir.contraction import Sparsity, operand_precision, sparsity_config
from hloom.ir.indexing import Accumulation, Addressing, Condition, Read
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, Operation, ProgramShape, Run, operation
from hloom.ir.sharding_rule import Factor
from hloom.ir.traits import ElementCost, Family, Roundoff, shape_elements
from hloom.ir.window import ConvolutionDimensionNumbers, Window, WindowDimension, dim_labels, window
from hloom.operations.arithmetic import Add
from hloom.operations.contraction import (
    check_result_type,
    joint_precision,
    matrix_product,
    meet,
    summands,
)
from hloom.operations.rounding import convert
from hloom.operations.windows import check_window, output_dimension, window_element
from hloom.shape.shape import Shape

CONVOLUTION_KINDS = {"unset": 0, "fprop": 1, "dgrad": 2, "wgrad": 3}


@operation("convolution", "lhs rhs")
class Convolution(Operation):
    """Slides the kernel ``rhs`` over ``lhs`` and sums products, as neural networks do.

    The kernel is not flipped unless ``rhs_reversal`` is set. The base area is lhs after base dilation
    (``lhs_dilate``) and padding with zeros; negative padding crops it. At every window position the
    elements of the (dilated, possibly reversed) kernel are multiplied with those below and summed over the
    window and the input features. There are no products with padding and with the holes of base dilation, so
    that kernel elements over them may be infinite or NaN.

    Arguments:
        lhs: n + 2 dimensions: batch, input features, n spatial ones (n may be 0).
        rhs: the kernel: input features, output features, n spatial dimensions.
        window: for every spatial dimension size, stride, padding, dilations and reversal.
        dim_labels: which dimension plays which role, as ``b01f_01io->b01f``.
        feature_group_count: input features are cut into this many groups, each convolved with its own
            share of the output features (depthwise convolution: as many groups as features).
        batch_group_count: the batch is cut into this many groups, each convolved with its own share of the
            output features; the gradient of a grouped convolution.
        convolution_kind: a hint: forward, or the gradient of the input or of the kernel.
        operand_precision: how inexact a device may be; the evaluation makes no use of it.
        sparsity_config: which operands are known to be sparse.
    """

    family: ClassVar[Family] = Family.CONTRACTION
    element_cost: ClassVar[ElementCost] = ElementCost.COMBINED
    roundoff: ClassVar[Roundoff] = Roundoff.ACCUMULATED
    errors = sum_of_products
    window: Window = window(default=(), always=False)
    dim_labels: ConvolutionDimensionNumbers = dim_labels()
    feature_group_count: int = integer(default=1)
    batch_group_count: int = integer(default=1)
    convolution_kind: str = enum(CONVOLUTION_KINDS, default="unset", proto="conv_kind")
    operand_precision: tuple[str, ...] = operand_precision()
    sparsity_config: Sparsity = sparsity_config()

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        """Return batch, features and space; in groups, tiles of features must be whole groups."""
        n = self.dim_labels
        lhs, rhs = operands
        features = n.kernel_output_feature_dimension
        result = n.output_feature_dimension
        factors: list[Factor] = []
        batch = n.input_batch_dimension
        if self.batch_group_count == 1:
            factors.append(Factor(lhs.dimensions[batch], {0: batch}, n.output_batch_dimension))
        else:
            having = {0: batch, 1: features}
            factors.append(Factor(self.batch_group_count, having, result, kind="grouped"))
        left, right = n.input_feature_dimension, n.kernel_input_feature_dimension
        if self.feature_group_count > 1:
            having = {0: left, 1: features}
            factors.append(Factor(self.feature_group_count, having, result, kind="grouped"))
        else:
            factors.append(Factor(lhs.dimensions[left], {0: left, 1: right}, None, Add()))
        if self.feature_group_count == 1 and self.batch_group_count == 1:
            factors.append(Factor(rhs.dimensions[features], {1: features}, result))
        for number in range(len(self.window)):
            factors += self._dot_like(number, operands)
        for number, w in enumerate(self.window):
            space, kernel = n.input_spatial_dimensions[number], n.kernel_spatial_dimensions[number]
            extent = lhs.dimensions[space]
            factors.append(Factor(extent, {0: space}, n.output_spatial_dimensions[number], kind="halo"))
            if w.base_dilation == 1:
                factors.append(Factor(w.size, {0: space, 1: kernel}, None, Add(), kind="halo"))
        return factors

    def _dot_like(self, number: int, shapes: Sequence[Shape]) -> list[Factor]:
        """Return the factor of a spatial dimension that is a batch dimension or a free one of the kernel."""
        labels, w = self.dim_labels, self.window[number]
        space, kernel = labels.input_spatial_dimensions[number], labels.kernel_spatial_dimensions[number]
        extent, result = shapes[0].dimensions[space], labels.output_spatial_dimensions[number]
        if w == batch_window(w.size) and extent == w.size > 1:
            return [Factor(extent, {0: space, 1: kernel}, result, kind="grouped")]
        if w == free_window(w.size) and extent == 1:
            return [Factor(w.size, {1: kernel}, result, kind="grouped")]
        return []

    def accumulation(
        self, x: Addressing[Condition], i: HloInstruction, indices: Indices
    ) -> Accumulation[Condition]:
        """Loop over the window and the input features; there are no products outside the base."""
        lhs, rhs = i.operands
        n = self.dim_labels
        features = rhs.shape.dimensions[n.kernel_input_feature_dimension]
        output = indices[n.output_feature_dimension]
        outputs = i.shape.dimensions[n.output_feature_dimension]
        group, batch_group = (
            x.divide(output, outputs // count)[0] if count > 1 else Index(0)
            for count in (self.feature_group_count, self.batch_group_count)
        )
        batch = lhs.shape.dimensions[n.input_batch_dimension] // self.batch_group_count

        def terms(position: Indices) -> list[Read[Condition]]:
            *places, feature = position
            left = {n.input_batch_dimension: indices[n.output_batch_dimension] + batch_group * batch}
            left[n.input_feature_dimension] = group * features + feature
            right = {n.kernel_input_feature_dimension: feature, n.kernel_output_feature_dimension: output}
            right.update(zip(n.kernel_spatial_dimensions, places, strict=True))
            inside: Condition | None = None
            for space, into, at, d in zip(
                n.input_spatial_dimensions, n.output_spatial_dimensions, places, self.window, strict=True
            ):
                left[space], condition = window_element(x, indices[into], at, d, lhs.shape.dimensions[space])
                inside = x.both(inside, condition)
            source, kernel = (tuple(by[d] for d in range(len(by))) for by in (left, right))
            return [Read(lhs, source, inside), Read(rhs, kernel)]

        return Accumulation((*(d.size for d in self.window), features), terms)

    def highlights(self) -> Sequence[str]:
        return ("window " + "x".join(str(d.size) for d in self.window),)

    def flops(self, shape: Shape, *operands: Shape, applied: float = 0.0) -> float:
        """Count a multiplication and an addition for each element of the window and each input feature."""
        labels = self.dim_labels
        features = operands[1].dimensions[labels.kernel_input_feature_dimension]
        return 2.0 * shape_elements(shape) * math.prod(d.size for d in self.window) * features

    def infer(self, lhs: Shape, rhs: Shape) -> Shape:
        """Return batch and features by role; spatial sizes are the numbers of window positions."""
        labels = self.dim_labels
        self._check_ranks(lhs, rhs)
        check_window("convolution", self.window)
        kernel = tuple(rhs.dimensions[i] for i in labels.kernel_spatial_dimensions)
        sizes = tuple(d.size for d in self.window)
        if any(a not in (b, Shape.UNBOUNDED) for a, b in zip(kernel, sizes)):
            message = f"the window has the size {sizes}, the kernel's spatial dimensions are {kernel}"
            raise ShapeError(message, rule="convolution.window-size")
        self._check_groups(lhs, rhs)
        features = labels.kernel_output_feature_dimension
        if rhs.dynamic_dimensions[features] and rhs.dimensions[features] != Shape.UNBOUNDED:
            message = f"the kernel's output features must not be dynamic, got {rhs}"
            raise ShapeError(message, rule="convolution.static-output-features")
        result: list[tuple[int, bool]] = [(0, False)] * lhs.rank
        batch = lhs.dimensions[labels.input_batch_dimension]
        result[labels.output_batch_dimension] = (
            batch if batch == Shape.UNBOUNDED else batch // self.batch_group_count,
            lhs.dynamic_dimensions[labels.input_batch_dimension],
        )
        result[labels.output_feature_dimension] = (rhs.dimensions[features], rhs.dynamic_dimensions[features])
        inputs, outputs = labels.input_spatial_dimensions, labels.output_spatial_dimensions
        for d, i, k, o in zip(self.window, inputs, labels.kernel_spatial_dimensions, outputs):
            dynamic = lhs.dynamic_dimensions[i] or rhs.dynamic_dimensions[k]
            result[o] = (output_dimension("convolution", d, lhs.dimensions[i]), dynamic)
        return Shape(
            joint_precision(lhs.element_type, rhs.element_type),
            tuple(size for size, _ in result),
            tuple(dynamic for _, dynamic in result),
        )

    def _check_ranks(self, lhs: Shape, rhs: Shape) -> None:
        spatial = len(self.dim_labels.input_spatial_dimensions)
        if len(self.window) != spatial:
            message = (
                f"the window has {plural(len(self.window), 'dimension')}, "
                f"dim_labels names {spatial} spatial ones"
            )
            raise ShapeError(message, rule="convolution.window-rank")
        for name, shape in (("lhs", lhs), ("rhs", rhs)):
            if not shape.is_array or shape.rank != spatial + 2:
                message = f"{name} must be an array of rank {spatial + 2}, got {shape}"
                raise ShapeError(message, rule="convolution.operand-rank")
        labels = self.dim_labels
        inputs = (labels.input_batch_dimension, labels.input_feature_dimension)
        kernels = (labels.kernel_input_feature_dimension, labels.kernel_output_feature_dimension)
        outputs = (labels.output_batch_dimension, labels.output_feature_dimension)
        for places in (
            (*inputs, *labels.input_spatial_dimensions),
            (*kernels, *labels.kernel_spatial_dimensions),
            (*outputs, *labels.output_spatial_dimensions),
        ):
            if sorted(places) != list(range(spatial + 2)):
                message = f"the roles must name each of the dimensions 0 to {spatial + 1} once, got {places}"
                raise ShapeError(message, rule="convolution.dimension-roles")

    def _check_groups(self, lhs: Shape, rhs: Shape) -> None:
        labels, groups, batch_groups = self.dim_labels, self.feature_group_count, self.batch_group_count
        if groups < 1 or batch_groups < 1:
            message = (
                f"group counts must be positive, got {groups} feature and "
                f"{plural(batch_groups, 'batch group')}"
            )
            raise ShapeError(message, rule="convolution.group-count")
        if groups > 1 and batch_groups > 1:
            message = (
                f"features or the batch can be grouped, not both ({groups} "
                f"and {plural(batch_groups, 'group')})"
            )
            raise ShapeError(message, rule="convolution.one-grouping")
        inputs = lhs.dimensions[labels.input_feature_dimension]
        kernel_inputs = rhs.dimensions[labels.kernel_input_feature_dimension]
        if Shape.UNBOUNDED not in (inputs, kernel_inputs) and inputs != kernel_inputs * groups:
            message = (
                f"{plural(inputs, 'input feature')} cannot be {plural(groups, 'group')} "
                f"of the kernel's {kernel_inputs}"
            )
            raise ShapeError(message, rule="convolution.input-features")
        outputs = rhs.dimensions[labels.kernel_output_feature_dimension]
        if outputs != Shape.UNBOUNDED and (outputs % groups or outputs % batch_groups):
            message = (
                f"{plural(outputs, 'output feature')} cannot be cut into "
                f"{plural(max(groups, batch_groups), 'group')}"
            )
            raise ShapeError(message, rule="convolution.output-features")
        batch = lhs.dimensions[labels.input_batch_dimension]
        if batch != Shape.UNBOUNDED and batch % batch_groups:
            message = f"a batch of {batch} cannot be cut into {plural(batch_groups, 'group')}"
            raise ShapeError(message, rule="convolution.batch-size")

    def check(self, shape: Shape, *operands: Shape, computations: tuple[ProgramShape, ...] = ()) -> None:
        """Check dimensions; the result may have the wider type to which the sums are rounded."""
        check_result_type("convolution", self.infer(*operands), shape)

    def terms(self, *operands: Sequence[int]) -> float:
        """Return the number of kernel elements for one output feature."""
        kernel = operands[1]
        return math.prod(kernel) / max(1, kernel[self.dim_labels.kernel_output_feature_dimension])

    def evaluate(self, run: Run, lhs: Array, rhs: Array) -> Array:
        """Transpose roles and groups into a standard order, sum products, transpose the result back."""
        labels = self.dim_labels
        terms = math.prod(rhs.shape) // max(1, rhs.shape[labels.kernel_output_feature_dimension])
        lhs, rhs = summands(run.shape.element_type, lhs, rhs, terms)
        if self.feature_group_count == 1:
            features = (labels.input_feature_dimension, labels.kernel_input_feature_dimension)
            lhs, rhs = meet(lhs, rhs, [features])
        sums = self._slide(self._grouped_base(lhs), self._grouped_kernel(rhs))
        result = np.moveaxis(sums, 0, -2)
        result = result.reshape(*result.shape[:-2], result.shape[-2] * result.shape[-1])
        order = (labels.output_batch_dimension, *labels.output_spatial_dimensions)
        return convert(result.transpose(np.argsort((*order, labels.output_feature_dimension))), run.dtype)

    def _grouped_base(self, lhs: Array) -> Array:
        """Return the base, without holes and padding, as [group, batch, spatial..., input feature]."""
        labels, groups, batch_groups = self.dim_labels, self.feature_group_count, self.batch_group_count
        order = (labels.input_batch_dimension, *labels.input_spatial_dimensions)
        base = lhs.transpose(*order, labels.input_feature_dimension)
        batch, features = base.shape[0], base.shape[-1]
        base = base.reshape(
            batch_groups, batch // batch_groups, *base.shape[1:-1], groups, features // groups
        )
        base = np.moveaxis(base, -2, 1)
        return base.reshape(batch_groups * groups, *base.shape[2:])

    def _grouped_kernel(self, rhs: Array) -> Array:
        """Return the kernel as [group, spatial..., input feature, output feature]."""
        labels, count = self.dim_labels, self.feature_group_count * self.batch_group_count
        features = (labels.kernel_input_feature_dimension, labels.kernel_output_feature_dimension)
        kernel = rhs.transpose(*labels.kernel_spatial_dimensions, *features)
        kernel = np.flip(kernel, tuple(i for i, d in enumerate(self.window) if d.window_reversal))
        return np.moveaxis(kernel.reshape(*kernel.shape[:-1], count, kernel.shape[-1] // count), -2, 0)

    def _slide(self, base: Array, kernel: Array) -> Array:
        """Return the sums at all window positions; loop over the smaller of window and positions."""
        sizes = base.shape[2:-1]
        positions = tuple(d.output_size(size) for size, d in zip(sizes, self.window))
        groups, batch = base.shape[:2]
        inputs, outputs = kernel.shape[-2:]
        result = np.zeros((groups, batch, *positions, outputs), base.dtype)
        if not result.size or not inputs:
            return result
        everything = (slice(None), slice(None))
        if math.prod(d.size for d in self.window) <= math.prod(positions):
            for offset in np.ndindex(*(d.size for d in self.window)):
                met = list(map(under_tap, offset, positions, self.window, sizes))
                part = base[(*everything, *(elements for _, elements in met))]
                sums = result[(*everything, *(places for places, _ in met))]
                if sums.size:
                    product = matrix_product(part.reshape(groups, -1, inputs), kernel[(slice(None), *offset)])
                    sums += product.reshape(sums.shape)
            return result
        for position in np.ndindex(*positions):
            met = list(map(_under_window, position, self.window, sizes))
            part = base[(*everything, *(elements for _, elements in met))]
            if part.size:
                taps = kernel[(slice(None), *(places for places, _ in met))]
                flat = part.reshape(groups, batch, -1), taps.reshape(groups, -1, outputs)
                result[(*everything, *position)] += matrix_product(*flat)  # a sum of -0 alone is 0
        return result


def under_tap(tap: int, positions: int, d: WindowDimension, size: int) -> tuple[slice, slice]:
    """Return the window positions at which a tap is over an element of the base, and these elements."""
    return _met(positions, tap * d.window_dilation - d.padding_low, d.stride, d.base_dilation, size)


def _under_window(position: int, d: WindowDimension, size: int) -> tuple[slice, slice]:
    """Return the taps that are over an element of the base at one position, and these elements."""
    return _met(d.size, position * d.stride - d.padding_low, d.window_dilation, d.base_dilation, size)


def _met(count: int, start: int, step: int, hole: int, size: int) -> tuple[slice, slice]:
    """Return the i < count for which start + i * step is an element in a base with holes, and these."""
    places = start + step * np.arange(count)
    positions = np.flatnonzero((places % hole == 0) & (places >= 0) & (places // hole < size))
    return _progression(positions), _progression(places[positions] // hole)


def _progression(numbers: Array) -> slice:
    """Return equidistant numbers as a slice."""
    if not numbers.size:
        return slice(0, 0)
    return slice(
        int(numbers[0]), int(numbers[-1]) + 1, int(numbers[1] - numbers[0]) if numbers.size > 1 else 1
    )


def batch_window(size: int) -> WindowDimension:
    """Return the window of a batch: element k of the result is that of the input times that of the kernel."""
    return WindowDimension(size, stride=max(1, size - 1), base_dilation=size)


def free_window(size: int) -> WindowDimension:
    """Return the window with which element k of the result is the input times k of the kernel."""
    return WindowDimension(size, padding_low=size - 1, padding_high=size - 1, window_reversal=True)
