"""Error bounds of factorizations, solves, transforms and normalizations, for `error_analysis`.

They are those of Higham, Accuracy and Stability of Numerical Algorithms (2nd edition): chapters 8 (triangular
systems), 10 (Cholesky) and 24 (Fourier transforms), applied to the given matrices. Two computations are
compared, so every bound counts twice. Types below 32 bits are computed in f32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hloom.debug.floating import Array, component, eps, ulp, wide
from hloom.ir.instruction import HloInstruction

Bound = Callable[[HloInstruction, list[Any], tuple[Array, ...]], tuple[Array, ...]]


def roundoff(dtype: Any) -> float:
    """Return eps of the type in which numbers of a type are computed."""
    return max(eps(np.float64), min(eps(dtype), eps(np.float32)))


def rounded(error: Array, value: Array) -> Array:
    """Return the bound after rounding to a type narrower than that of the computation."""
    if component(value.dtype).bits >= 32:
        return error
    return error + ulp(np.abs(wide(value)) + error, value.dtype)


def _growth(terms: float) -> float:
    return min(terms, 4 * np.sqrt(terms))


def _magnitude(array: Any) -> Array:
    return np.nan_to_num(np.abs(wide(array)), nan=0.0, posinf=0.0)


# -- linear algebra


def fft(i: HloInstruction, operands: list[Any], values: tuple[Array, ...]) -> tuple[Array, ...]:
    """Bound by 8 log2 N eps of the operand's norm: independent roundings of N log2 N sums."""
    operation: Any = i.operation
    (x,), (value,) = operands, values
    axes = tuple(range(-len(operation.fft_length), 0))
    count = float(math.prod(operation.fft_length))
    size = _magnitude(x.value)
    if operation.fft_type == "IRFFT":
        size = size * np.sqrt(2.0)  # every element but the first represents two
    norm = np.sqrt((size * size).sum(axis=axes, keepdims=True))
    error = 8 * (1 + np.log2(max(count, 1.0))) * roundoff(value.dtype) * norm + x.spread.sum(
        axis=axes, keepdims=True
    )
    error = error / (count or 1.0) if operation.fft_type[0] == "I" else error
    return (np.broadcast_to(error, value.shape),)


def cholesky(i: HloInstruction, operands: list[Any], values: tuple[Array, ...]) -> tuple[Array, ...]:
    """Bound the factor of A + E with |E| <= growth(n + 1) eps |L| |L|*, to first order."""
    operation: Any = i.operation
    (a,), (value,) = operands, values
    n = value.shape[-1]
    lower = wide(value) if operation.lower else np.conj(np.swapaxes(wide(value), -1, -2))
    error = np.zeros(value.shape)
    spread = a.spread if operation.lower else np.swapaxes(a.spread, -1, -2)
    triangle = np.tril(np.ones((n, n)))
    for index in np.ndindex(*value.shape[:-2]):
        factor = lower[index]
        if not np.isfinite(factor).all():
            continue
        own = np.tril(spread[index])
        disturbed = 2 * _growth(n + 1.0) * roundoff(value.dtype) * (np.abs(factor) @ np.abs(factor).T)
        disturbed = disturbed + own + np.tril(own, -1).T
        inverse = np.abs(np.linalg.inv(factor))
        first_order = np.abs(factor) @ ((inverse @ disturbed @ inverse.T) * triangle)
        error[index] = 2 * first_order * triangle
    error = error if operation.lower else np.swapaxes(error, -1, -2)
    return (rounded(error, value),)


def triangular_solve(i: HloInstruction, operands: list[Any], values: tuple[Array, ...]) -> tuple[Array, ...]:
    """The solution of (T + E) x = b with |E| <= growth(m) eps |T|: 2 |T^-1| (|E| |x| + errors of T and b)."""
    operation: Any = i.operation
    (a, b), (value,) = operands, values
    m = a.value.shape[-1]
    mask = np.tril(np.ones((m, m), bool)) if operation.lower else np.triu(np.ones((m, m), bool))
    t = np.where(mask, wide(a.value), 0)
    spread = np.where(mask, a.spread, 0)
    if operation.unit_diagonal:
        t[..., range(m), range(m)], spread[..., range(m), range(m)] = 1, 0
    if operation.transpose_a != "NO_TRANSPOSE":
        t, spread = np.swapaxes(t, -1, -2), np.swapaxes(spread, -1, -2)
    x, e = _magnitude(value), b.spread
    if not operation.left_side:
        t, spread, x, e = (np.swapaxes(array, -1, -2) for array in (t, spread, x, e))
    error = np.zeros(x.shape)
    for index in np.ndindex(*x.shape[:-2]):
        if not np.isfinite(t[index]).all() or (np.diagonal(t[index]) == 0).any():
            continue  # infinities and NaN, which must match for any bound
        inverse = np.abs(np.linalg.inv(t[index]))
        matrix = 2 * _growth(float(m)) * roundoff(value.dtype) * np.abs(t[index]) + spread[index]
        error[index] = 2 * inverse @ (matrix @ x[index] + e[index])
    error = error if operation.left_side else np.swapaxes(error, -1, -2)
    return (rounded(error, value),)


# -- normalization


@dataclass(frozen=True)
class Approximate:
    """Numbers in f64 with bounds of their errors, and eps of the type in which they are computed."""

    value: Array
    error: Array
    eps: float

    def _rounded(self, value: Array, error: Array, size: Array | None = None) -> Approximate:
        return Approximate(value, error + 2 * self.eps * (np.abs(value) if size is None else size), self.eps)

    def __add__(self, other: Approximate) -> Approximate:
        return self._rounded(self.value + other.value, self.error + other.error)

    def __sub__(self, other: Approximate) -> Approximate:
        return self._rounded(self.value - other.value, self.error + other.error)

    def __mul__(self, other: Approximate) -> Approximate:
        error = np.abs(self.value) * other.error + self.error * (np.abs(other.value) + other.error)
        return self._rounded(self.value * other.value, error)

    def sum(self, axes: tuple[int, ...]) -> Approximate:
        """Sum along axes, keeping them with size 1."""
        count = float(np.prod([self.value.shape[a] for a in axes]))
        size = _growth(count) * np.abs(self.value).sum(axis=axes, keepdims=True)
        total = self.value.sum(axis=axes, keepdims=True)
        return self._rounded(total, self.error.sum(axis=axes, keepdims=True), size)

    def mean(self, axes: tuple[int, ...]) -> Approximate:
        """Average along axes, keeping them with size 1."""
        count = max(1.0, float(np.prod([self.value.shape[a] for a in axes])))
        total = self.sum(axes)
        return Approximate(total.value / count, total.error / count, self.eps)

    def inverse_root(self) -> Approximate:
        """Return 1 / sqrt with its bound."""
        value = self.value**-0.5
        ends = [np.abs(np.maximum(self.value + s * self.error, 1e-300) ** -0.5 - value) for s in (-1, 1)]
        return self._rounded(value, np.maximum(*ends), 2 * value)


def batch_norm(
    i: HloInstruction, operands: list[Any], values: tuple[Array, ...], step: float = 0.0
) -> tuple[Array, ...]:
    """Evaluate the page's formulas, each step rounded with an eps: that of f32 at least, unless stated."""
    operation: Any = i.operation
    rank, feature = operands[0].value.ndim, operation.feature_index
    axes = tuple(d for d in range(rank) if d != feature)
    step = step or roundoff(values[0].dtype)
    given: list[Approximate] = []
    for operand in operands:
        form = (
            operand.value.shape
            if operand.value.ndim == rank and rank > 1
            else _beside(operand.value, rank, feature)
        )
        given.append(Approximate(wide(operand.value).reshape(form), operand.spread.reshape(form), step))
    epsilon = Approximate(np.array(operation.epsilon), np.array(0.0), step)
    with np.errstate(all="ignore"):
        made = _FORMULAS[i.opcode](given, epsilon, axes)
    return tuple(rounded(m.error.reshape(v.shape), v) for m, v in zip(made, values, strict=True))


def _beside(vector: Array, rank: int, feature: int) -> tuple[int, ...]:
    return tuple(vector.size if d == feature else 1 for d in range(rank))


def _training(
    given: list[Approximate], epsilon: Approximate, axes: tuple[int, ...]
) -> tuple[Approximate, ...]:
    x, scale, offset = given
    mean = x.mean(axes)
    centered = x - mean
    variance = (centered * centered).mean(axes)
    return centered * (variance + epsilon).inverse_root() * scale + offset, mean, variance


def _inference(
    given: list[Approximate], epsilon: Approximate, axes: tuple[int, ...]
) -> tuple[Approximate, ...]:
    x, scale, offset, mean, variance = given
    return ((x - mean) * (variance + epsilon).inverse_root() * scale + offset,)


def _gradient(
    given: list[Approximate], epsilon: Approximate, axes: tuple[int, ...]
) -> tuple[Approximate, ...]:
    x, scale, mean, variance, grad = given
    inverse = (variance + epsilon).inverse_root()
    unit = (x - mean) * inverse
    products = grad * unit
    inner = grad - grad.mean(axes) - unit * products.mean(axes)
    return scale * inner * inverse, products.sum(axes), grad.sum(axes)


_FORMULAS = {
    "batch-norm-training": _training,
    "batch-norm-inference": _inference,
    "batch-norm-grad": _gradient,
}

FACTORIZATIONS: dict[str, Bound] = {
    "fft": fft,
    "cholesky": cholesky,
    "triangular-solve": triangular_solve,
    **dict.fromkeys(_FORMULAS, batch_norm),
}
"""The bounds of each result of an operation, from the instruction, its operands and its values."""
