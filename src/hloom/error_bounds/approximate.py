"""Arithmetic on approximate numbers in f64, for bounds that follow an algorithm step by step.

Two computations are compared, so every rounding counts twice. Types below 32 bits are computed in f32 and
rounded once. Bounds of whole algorithms are those of Higham, Accuracy and Stability of Numerical Algorithms
(2nd edition): chapters 8 (triangular systems), 10 (Cholesky) and 24 (Fourier transforms).
"""

from __future__ import annotations

import numpy as np

from hloom.error_bounds.floating import Array, component, eps, ulp, wide
from hloom.error_bounds.sums import growth
from hloom.records import dataclass


def roundoff_unit(dtype: object) -> float:
    """Return eps of the type in which numbers of a type are computed."""
    return max(eps(np.float64), min(eps(dtype), eps(np.float32)))


def rounded(error: Array, value: Array) -> Array:
    """Return the bound after rounding to a type narrower than the computation's."""
    if component(value.dtype).bits >= 32:
        return error
    return error + ulp(np.abs(wide(value)) + error, value.dtype)


@dataclass(frozen=True)
class Approximate:
    """Numbers in f64 with error bounds, and eps of the type in which they are computed."""

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
        size = growth(count) * np.abs(self.value).sum(axis=axes, keepdims=True)
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
