"""The programs in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

f32 = np.float32


def gelu_by_tanh(x: Any) -> Any:
    return f32(0.5) * x * (1 + np.tanh(f32(0.7978845608) * (x + f32(0.044715) * x * x * x)))


def silu(x: Any) -> Any:
    return x / (1 + np.exp(-x))


def softplus(x: Any) -> Any:
    return np.logaddexp(x, f32(0))


def functions_in_f64(x: Any) -> Any:
    return np.sin(x) * np.exp(-x * x) + np.log1p(np.abs(x))


def powers(x: Any, y: Any) -> Any:
    return x**y


def integer_division(x: Any) -> Any:
    return (x % 1000) // 7 + (x >> 3) ^ (x * 31)


def population_count(x: Any) -> Any:
    return np.bitwise_count(x).sum(dtype=np.int32)


def adam(weights: Any, gradient: Any, mean: Any, variance: Any) -> Any:
    mean = f32(0.9) * mean + f32(0.1) * gradient
    variance = f32(0.999) * variance + f32(0.001) * gradient * gradient
    return weights - f32(1e-3) * mean / (np.sqrt(variance) + f32(1e-8)), mean, variance


def histogram(x: Any) -> Any:
    return np.histogram(x, 64, range=(0, 1))[0].astype(f32)


def bincount(x: Any) -> Any:
    return np.bincount(x, minlength=100).astype(np.int32)


def searchsorted(edges: Any, x: Any) -> Any:
    return np.searchsorted(edges, x).astype(np.int32)


def interpolation(x: Any, points: Any, values: Any) -> Any:
    return np.interp(x, points, values).astype(f32)


def take_along_axis(x: Any, indices: Any) -> Any:
    return np.take_along_axis(x, indices, 1)


def masked_softmax(x: Any, mask: Any) -> Any:
    x = np.where(mask < 3, x, f32(-1e9))
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def logsumexp(x: Any) -> Any:
    most = x.max(1)
    return most + np.log(np.exp(x - most[:, None]).sum(1))


def sums_of_a_triangle(x: Any) -> Any:
    return np.tril(x).sum(1)


def variance_of_columns(x: Any) -> Any:
    return x.var(0)


def correlation_coefficients(x: Any) -> Any:
    return np.corrcoef(x, dtype=f32)


def distances(x: Any) -> Any:
    return np.sqrt(((x[:, None] - x[None]) ** 2).sum(-1) + f32(1e-6))


def cumulative_sum_of_columns(x: Any) -> Any:
    return np.cumsum(x, 0)


def cumulative_product(x: Any) -> Any:
    return np.cumprod(x + f32(0.5))


def cumulative_maximum(x: Any) -> Any:
    return np.maximum.accumulate(x, 1)


def sort(x: Any) -> Any:
    return np.sort(x)


def argsort(x: Any) -> Any:
    return np.argsort(x, stable=True).astype(np.int32)


def median(x: Any) -> Any:
    return np.median(x, 1)


def quantiles(x: Any) -> Any:
    return np.quantile(x, f32([0.1, 0.5, 0.9]))


def spectrum_of_odd_length(x: Any) -> Any:
    return np.abs(np.fft.rfft(x))


def fft_of_a_power_of_two(x: Any) -> Any:
    return np.fft.fft(x).real.copy()


def fft_of_prime_length(x: Any) -> Any:
    return np.fft.fft(x).real.copy()


def convolution(x: Any, kernel: Any) -> Any:
    return np.convolve(x, kernel, mode="same")


def solve(a: Any, b: Any) -> Any:
    return np.linalg.solve(a + 100 * np.eye(100, dtype=f32), b)


def many_inverses(a: Any) -> Any:
    return np.linalg.inv(a + 4 * np.eye(4, dtype=f32))


def many_matrices_by_vectors(a: Any, x: Any) -> Any:
    return np.einsum("bij,bj->bi", a, x)


def product_of_three(a: Any, b: Any, c: Any) -> Any:
    return np.einsum("ijk,jkl,kl->il", a, b, c, optimize=True)


def exchange_of_dimensions(x: Any) -> Any:
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3)) + 1


def channels_last(x: Any) -> Any:
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1)) * 2


def joined_and_reversed(a: Any, b: Any) -> Any:
    return np.concatenate([a, b[:, ::-1]], 1)[::-1].copy()


def heat_by_add(x: Any) -> Any:
    x = x.copy()
    for _ in range(50):
        x[1:-1, 1:-1] += f32(0.1) * (
            x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2] - 4 * x[1:-1, 1:-1]
        )
    return x


def burgers(u: Any) -> Any:
    for _ in range(50):
        left, right = np.roll(u, 1), np.roll(u, -1)
        u = u - f32(0.01) * u * (right - left) + f32(0.001) * (left + right - 2 * u)
    return u


def shortest_paths(d: Any) -> Any:
    for k in range(128):
        d = np.minimum(d, d[:, k][:, None] + d[k][None])
    return d
