"""Batch normalization: training, inference and gradient.

After Ioffe and Szegedy, "Batch Normalization: Accelerating Deep Network Training by Reducing Internal
Covariate Shift" (2015), and the page's algorithms. Everything is computed in f64 and rounded once to the
result's type.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from hloom.error_bounds.approximate import Approximate, rounded, roundoff_unit
from hloom.error_bounds.bounded import Bounded, parts_of
from hloom.error_bounds.floating import wide
from hloom.errors import ShapeError
from hloom.ir.codec import floating, integer
from hloom.ir.operation import Array, ErrorRun, Operation, Run, Value, operation
from hloom.ir.traits import ElementCost, Family, LayoutSource, Roundoff
from hloom.operations.contraction import same_size
from hloom.operations.rounding import convert
from hloom.records import dataclass
from hloom.shape.shape import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class _BatchNorm(Operation, ABC):
    """Common to the three: one value per feature, statistics over all other dimensions."""

    family: ClassVar[Family] = Family.NORMALIZATION
    element_cost: ClassVar[ElementCost] = ElementCost.COMBINED
    roundoff: ClassVar[Roundoff] = Roundoff.ACCUMULATED
    layout_source: ClassVar[LayoutSource] = LayoutSource.OPERANDS
    epsilon: float = floating()
    feature_index: int = integer()

    def features(self, operand: Shape, **vectors: Shape) -> Shape:
        """Check the rules; return the shape of one value per feature."""
        opcode = self.opcode
        if not operand.is_array or not operand.element_type.is_floating:
            message = f"the operand must be of a floating point type, got {operand}"
            raise ShapeError(message, rule=f"{opcode}.element-type")
        if not 0 <= self.feature_index < operand.rank:
            message = f"feature_index {self.feature_index} is out of range in {operand}"
            raise ShapeError(message, rule=f"{opcode}.feature-index")
        for name, vector in vectors.items():
            if not vector.is_array or not vector.element_type.is_floating:
                message = f"{name} must be of a floating point type, got {vector}"
                raise ShapeError(message, rule=f"{opcode}.element-type")
            if vector.rank != 1 or not same_size(vector, 0, operand, self.feature_index):
                message = f"{name} must have one element a feature of {operand}, got {vector}"
                raise ShapeError(message, rule=f"{opcode}.feature-count")
        index = slice(self.feature_index, self.feature_index + 1)
        return Shape(operand.element_type, operand.dimensions[index], operand.dynamic_dimensions[index])

    def errors(self, run: ErrorRun) -> Value:
        """Bound the formulas step by step, each rounded in f32 at least."""
        is_tuple = run.instruction.shape.is_tuple
        values = parts_of(run.value) if is_tuple else (run.value,)
        errors = self.errors_in(roundoff_unit(values[0].dtype), run.operands, values)
        return errors if is_tuple else errors[0]

    def errors_in(
        self, eps: float, operands: Sequence[Bounded], values: Sequence[Array]
    ) -> tuple[Array, ...]:
        """Return the bounds of the results if each step is rounded with an eps."""
        rank = operands[0].value.ndim
        axes = tuple(d for d in range(rank) if d != self.feature_index)
        numbers: list[Approximate] = []
        for operand in operands:
            shape = [1] * rank
            shape[self.feature_index] = operand.value.size
            sizes = operand.value.shape if operand.value.ndim == rank and rank > 1 else tuple(shape)
            numbers.append(
                Approximate(wide(operand.value).reshape(sizes), operand.spread.reshape(sizes), eps)
            )
        with np.errstate(all="ignore"):
            epsilon = Approximate(np.array(self.epsilon), np.array(0.0), eps)
            results = self.approximate(epsilon, axes, *numbers)
        return tuple(rounded(r.error.reshape(v.shape), v) for r, v in zip(results, values, strict=True))

    @abstractmethod
    def approximate(
        self, epsilon: Approximate, axes: tuple[int, ...], *operands: Approximate
    ) -> tuple[Approximate, ...]:
        """Return the results by the formulas; statistics are over ``axes``."""

    def _spread(self, vector: Array, rank: int) -> Array:
        """Return one value per feature, in f64, shaped to broadcast against the operand."""
        shape = [1] * rank
        shape[self.feature_index] = vector.shape[0]
        return vector.astype(np.float64).reshape(shape)

    def _mean(self, array: Array) -> Array:
        """Return the mean over all but the feature dimension, with kept dimensions of size 1."""
        axes = tuple(i for i in range(array.ndim) if i != self.feature_index)
        count = np.float64(np.prod([array.shape[i] for i in axes]))
        with np.errstate(all="ignore"):
            return array.sum(axis=axes, keepdims=True) / count

    def _normalized(self, centered: Array, variance: Array) -> Array:
        with np.errstate(all="ignore"):
            return centered / np.sqrt(variance + np.float32(self.epsilon).astype(np.float64))


@operation("batch-norm-training", "operand scale offset")
class BatchNormTraining(_BatchNorm):
    """Normalizes every feature by its mean and variance over the batch: (output, batch_mean, batch_var).

    ``output = (operand - mean) / sqrt(var + epsilon) * scale + offset``, with the variance of the population.

    Arguments:
        operand: array of any rank.
        scale, offset: gamma and beta, one element a feature.
        epsilon: added to the variance.
        feature_index: the dimension of the features.
    """

    def infer(self, operand: Shape, scale: Shape, offset: Shape) -> Shape:
        """Return (operand, feature, feature)."""
        feature = self.features(operand, scale=scale, offset=offset)
        return Shape.tuple_((operand, feature, feature))

    def approximate(
        self, epsilon: Approximate, axes: tuple[int, ...], *operands: Approximate
    ) -> tuple[Approximate, ...]:
        """Normalize, with the mean of squares of the centered operand as variance."""
        x, scale, offset = operands
        mean = x.mean(axes)
        centered = x - mean
        variance = (centered * centered).mean(axes)
        return centered * (variance + epsilon).inverse_root() * scale + offset, mean, variance

    def evaluate(self, run: Run, operand: Array, scale: Array, offset: Array) -> Value:
        """Normalize by the page's algorithm."""
        x = operand.astype(np.float64)
        mean = self._mean(x)
        centered = x - mean
        variance = self._mean(centered * centered)
        normalized = self._normalized(centered, variance)
        output = normalized * self._spread(scale, x.ndim) + self._spread(offset, x.ndim)
        dtypes = [leaf.element_type.numpy_dtype for leaf in run.shape.tuple_shapes]
        values = (output, mean.reshape(-1), variance.reshape(-1))
        return tuple(convert(value, dtype) for value, dtype in zip(values, dtypes))


@operation("batch-norm-inference", "operand scale offset mean variance")
class BatchNormInference(_BatchNorm):
    """Normalizes every feature by a given mean and variance.

    ``(operand - mean) / sqrt(variance + epsilon) * scale + offset``

    Arguments:
        operand: array of any rank.
        scale, offset, mean, variance: one element a feature.
        epsilon: added to the variance.
        feature_index: the dimension of the features.
    """

    def infer(self, operand: Shape, scale: Shape, offset: Shape, mean: Shape, variance: Shape) -> Shape:
        """Return the operand's shape."""
        self.features(operand, scale=scale, offset=offset, mean=mean, variance=variance)
        return operand

    def approximate(
        self, epsilon: Approximate, axes: tuple[int, ...], *operands: Approximate
    ) -> tuple[Approximate, ...]:
        """Normalize by the given statistics."""
        x, scale, offset, mean, variance = operands
        return ((x - mean) * (variance + epsilon).inverse_root() * scale + offset,)

    def evaluate(
        self, run: Run, operand: Array, scale: Array, offset: Array, mean: Array, variance: Array
    ) -> Array:
        """Normalize by the page's formula."""
        rank = operand.ndim
        centered = operand.astype(np.float64) - self._spread(mean, rank)
        normalized = self._normalized(centered, self._spread(variance, rank))
        return convert(normalized * self._spread(scale, rank) + self._spread(offset, rank), run.dtype)


@operation("batch-norm-grad", "operand scale mean variance grad_output")
class BatchNormGrad(_BatchNorm):
    """Gradients of ``batch-norm-training``: (grad_operand, grad_scale, grad_offset).

    Arguments:
        operand, scale: as in training.
        mean, variance: the batch statistics that training returned.
        grad_output: gradient with respect to the output of training.
        epsilon: added to the variance.
        feature_index: the dimension of the features.
    """

    def infer(self, operand: Shape, scale: Shape, mean: Shape, variance: Shape, grad_output: Shape) -> Shape:
        """Return (operand, feature, feature)."""
        feature = self.features(operand, scale=scale, mean=mean, variance=variance)
        same = grad_output.is_array and grad_output.element_type.is_floating
        if not same or not grad_output.with_element_type(operand.element_type).compatible(operand):
            message = f"grad_output must have the shape {operand} of the operand, got {grad_output}"
            raise ShapeError(message, rule="batch-norm-grad.grad-output")
        return Shape.tuple_((operand, feature, feature))

    def approximate(
        self, epsilon: Approximate, axes: tuple[int, ...], *operands: Approximate
    ) -> tuple[Approximate, ...]:
        """Differentiate, with the normalized operand written out."""
        x, scale, mean, variance, grad = operands
        inverse = (variance + epsilon).inverse_root()
        unit = (x - mean) * inverse
        products = grad * unit
        inner = grad - grad.mean(axes) - unit * products.mean(axes)
        return scale * inner * inverse, products.sum(axes), grad.sum(axes)

    def evaluate(
        self, run: Run, operand: Array, scale: Array, mean: Array, variance: Array, grad_output: Array
    ) -> Value:
        """Differentiate by the page's formulas, with the normalized operand written out."""
        rank = operand.ndim
        grad = grad_output.astype(np.float64)
        variances = self._spread(variance, rank)
        normalized = self._normalized(operand.astype(np.float64) - self._spread(mean, rank), variances)
        axes = tuple(i for i in range(rank) if i != self.feature_index)
        grad_scale = (grad * normalized).sum(axis=axes)
        grad_offset = grad.sum(axis=axes)
        inner = grad - self._mean(grad) - normalized * self._mean(grad * normalized)
        grad_operand = self._normalized(self._spread(scale, rank) * inner, variances)
        dtypes = [leaf.element_type.numpy_dtype for leaf in run.shape.tuple_shapes]
        return (
            convert(grad_operand, dtypes[0]),
            convert(grad_scale, dtypes[1]),
            convert(grad_offset, dtypes[2]),
        )
