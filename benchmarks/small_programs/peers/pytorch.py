"""The programs in PyTorch, as its users write them; those of several steps run a step at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch
from torch.nn import functional as nn

STEPWISE: Final[set[str]] = set()
"""Programs that are loops in Python: PyTorch compiles one step, and no graph of the whole can be exported."""
compiled: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda step: step  # noqa: E731
"""Compiles a step, or leaves it as it is."""


def stepwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """Register a program that is a loop in Python."""
    STEPWISE.add(function.__name__)
    return function


def gelu(x: Any) -> Any:
    return nn.gelu(x)


def gelu_by_tanh(x: Any) -> Any:
    return nn.gelu(x, approximate="tanh")


def silu(x: Any) -> Any:
    return nn.silu(x)


def softplus(x: Any) -> Any:
    return nn.softplus(x)


def tanh_in_bf16(x: Any, y: Any) -> Any:
    x, y = x.bfloat16(), y.bfloat16()
    return torch.tanh(x * y) + x


def functions_in_f64(x: Any) -> Any:
    return torch.sin(x) * torch.exp(-x * x) + torch.log1p(torch.abs(x))


def powers(x: Any, y: Any) -> Any:
    return x**y


def complex_exponential(real: Any, imaginary: Any) -> Any:
    z = torch.complex(real, imaginary)
    return torch.abs(torch.exp(0.1j * z) * z)


def integer_division(x: Any) -> Any:
    return torch.div(x % 1000, 7, rounding_mode="floor") + (x >> 3) ^ (x * 31)


def adam(weights: Any, gradient: Any, mean: Any, variance: Any) -> Any:
    mean = 0.9 * mean + 0.1 * gradient
    variance = 0.999 * variance + 0.001 * gradient * gradient
    return weights - 1e-3 * mean / (torch.sqrt(variance) + 1e-8), mean, variance


def segment_sum_of_rows(x: Any, segments: Any) -> Any:
    return torch.zeros(5000, 8).index_add(0, segments, x)


def segment_sum(x: Any, segments: Any) -> Any:
    return torch.zeros(5000).index_add(0, segments, x)


def segment_max(x: Any, segments: Any) -> Any:
    return torch.full((5000,), -math.inf).index_reduce(0, segments, x, "amax")


def bincount(x: Any) -> Any:
    return torch.bincount(x, minlength=100).int()


def searchsorted(edges: Any, x: Any) -> Any:
    return torch.searchsorted(edges, x, out_int32=True)


def take_along_axis(x: Any, indices: Any) -> Any:
    return torch.take_along_dim(x, indices.long(), 1)


def one_hot_product(words: Any, table: Any) -> Any:
    return nn.one_hot(words.long(), 100).float() @ table


@stepwise
def page_rank(sources: Any, targets: Any) -> Any:
    degree = torch.zeros(10_000).index_add(0, sources, torch.ones(len(sources))).clamp(min=1)

    @compiled
    def step(rank: Any) -> Any:
        return 0.15 / 10_000 + 0.85 * torch.zeros(10_000).index_add(0, targets, (rank / degree)[sources])

    return repeated(20, step, torch.full((10_000,), 1e-4))


def masked_softmax(x: Any, mask: Any) -> Any:
    return torch.softmax(torch.where(mask < 3, x, -1e9), -1)


def softmax_with_infinities(x: Any, mask: Any) -> Any:
    return torch.softmax(torch.where(mask < 3, x, -math.inf), -1)


def logsumexp(x: Any) -> Any:
    return torch.logsumexp(x, 1)


def sums_of_a_triangle(x: Any) -> Any:
    return torch.tril(x).sum(1)


def variance_of_columns(x: Any) -> Any:
    return x.var(0, correction=0)


def correlation_coefficients(x: Any) -> Any:
    return torch.corrcoef(x)


def distances(x: Any) -> Any:
    return torch.sqrt(((x[:, None] - x[None]) ** 2).sum(-1) + 1e-6)


@stepwise
def k_means(x: Any, centers: Any) -> Any:
    @compiled
    def step(centers: Any) -> Any:
        nearest = nn.one_hot(((x[:, None] - centers[None]) ** 2).sum(-1).argmin(1), 16).float()
        return (nearest.T @ x) / (nearest.sum(0)[:, None] + 1e-6)

    return repeated(10, step, centers)


def cumulative_sum_of_columns(x: Any) -> Any:
    return torch.cumsum(x, 0)


def cumulative_product(x: Any) -> Any:
    return torch.cumprod(x + 0.5, 0)


def cumulative_maximum(x: Any) -> Any:
    return torch.cummax(x, 1).values


def sort(x: Any) -> Any:
    return torch.sort(x).values


def argsort(x: Any) -> Any:
    return torch.argsort(x, stable=True).int()


def top_k(x: Any) -> Any:
    values, indices = torch.topk(x, 10)
    return values, indices.int()


def median(x: Any) -> Any:
    return torch.median(x, 1).values


def quantiles(x: Any) -> Any:
    return torch.quantile(x, torch.tensor([0.1, 0.5, 0.9]))


def spectrum_of_odd_length(x: Any) -> Any:
    return torch.abs(torch.fft.rfft(x))


def fft_of_a_power_of_two(x: Any) -> Any:
    return torch.fft.fft(x).real.clone()


def fft_of_prime_length(x: Any) -> Any:
    return torch.fft.fft(x).real.clone()


def convolution_by_fft(x: Any, y: Any) -> Any:
    return torch.fft.irfft(torch.fft.rfft(x, 8000) * torch.fft.rfft(y, 8000))


def convolution(x: Any, kernel: Any) -> Any:
    return nn.conv1d(x[None, None], kernel.flip(0)[None, None], padding="same")[0, 0]


def correlation_of_an_image(x: Any, kernel: Any) -> Any:
    return nn.conv2d(x, kernel, padding="same")


def depthwise_convolution(x: Any, kernel: Any) -> Any:
    images, weights = x.permute(0, 3, 1, 2), kernel.permute(3, 2, 0, 1)
    return nn.conv2d(images, weights, padding="same", groups=64).permute(0, 2, 3, 1)


def max_pooling(x: Any) -> Any:
    # XLA pads a row and a column at the end only; there a window may be cut.
    return nn.max_pool2d(x.permute(0, 3, 1, 2), 3, 2, ceil_mode=True).permute(0, 2, 3, 1)


def average_pooling(x: Any) -> Any:
    return nn.avg_pool2d(x.permute(0, 3, 1, 2), 2).permute(0, 2, 3, 1)


def resize(x: Any) -> Any:
    return nn.interpolate(x.permute(0, 3, 1, 2), scale_factor=2, mode="bilinear").permute(0, 2, 3, 1)


def solve(a: Any, b: Any) -> Any:
    return torch.linalg.solve(a + 100 * torch.eye(100), b)


def many_inverses(a: Any) -> Any:
    return torch.linalg.inv(a + 4 * torch.eye(4))


def many_matrices_by_vectors(a: Any, x: Any) -> Any:
    return torch.einsum("bij,bj->bi", a, x)


def product_of_three(a: Any, b: Any, c: Any) -> Any:
    return torch.einsum("ijk,jkl,kl->il", a, b, c)


def exchange_of_dimensions(x: Any) -> Any:
    return x.permute(0, 2, 1, 3).contiguous() + 1


def channels_last(x: Any) -> Any:
    return x.permute(0, 2, 3, 1).contiguous() * 2


def joined_and_reversed(a: Any, b: Any) -> Any:
    return torch.cat([a, b.flip(1)], 1).flip(0)


def differences(x: Any) -> Any:
    """Return the five-point stencil at interior points."""
    return x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2] - 4 * x[1:-1, 1:-1]


@stepwise
def heat_by_add(x: Any) -> Any:
    @compiled
    def step(x: Any) -> Any:
        x = x.clone()
        x[1:-1, 1:-1] += 0.1 * differences(x)
        return x

    return repeated(50, step, x)


@stepwise
def heat_on_a_torus(x: Any) -> Any:
    @compiled
    def step(x: Any) -> Any:
        return x + 0.1 * differences(nn.pad(x[None, None], (1, 1, 1, 1), mode="circular")[0, 0])

    return repeated(50, step, x)


@stepwise
def heat_in_three_dimensions(x: Any) -> Any:
    @compiled
    def step(x: Any) -> Any:
        return x + 0.1 * (sum(torch.roll(x, d, axis) for d in (1, -1) for axis in range(3)) - 6 * x)

    return repeated(20, step, x)


@stepwise
def burgers(u: Any) -> Any:
    @compiled
    def step(u: Any) -> Any:
        left, right = torch.roll(u, 1), torch.roll(u, -1)
        return u - 0.01 * u * (right - left) + 0.001 * (left + right - 2 * u)

    return repeated(50, step, u)


@stepwise
def game_of_life(cells: Any) -> Any:
    kernel = torch.ones(1, 1, 3, 3)
    kernel[0, 0, 1, 1] = 0

    @compiled
    def step(x: Any) -> Any:
        count = nn.conv2d(x[None, None], kernel, padding="same")[0, 0]
        return ((count == 3) | ((x == 1) & (count == 2))).float()

    return repeated(20, step, cells.float())


@stepwise
def lorenz_by_rows(y: Any) -> Any:
    def derivative(y: Any) -> Any:
        return torch.stack([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 8 / 3 * y[2]])

    @compiled
    def step(y: Any) -> Any:
        a = derivative(y)
        b = derivative(y + 0.005 * a)
        c = derivative(y + 0.005 * b)
        return y + 0.01 / 6 * (a + 2 * b + 2 * c + derivative(y + 0.01 * c))

    return repeated(200, step, y)


@stepwise
def shortest_paths(d: Any) -> Any:
    @compiled
    def step(d: Any, column: Any, row: Any) -> Any:
        return torch.minimum(d, column[:, None] + row[None])

    for k in range(128):
        d = step(d, d[:, k], d[k])
    return d


@stepwise
def gated_recurrent_unit(x: Any, weights: Any, recurrent: Any) -> Any:
    @compiled
    def step(h: Any, x: Any) -> Any:
        a, b = (x @ weights).chunk(3, 1), (h @ recurrent).chunk(3, 1)
        update, reset = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])
        return (1 - update) * h + update * torch.tanh(a[2] + reset * b[2])

    h = torch.zeros(20, 32)
    for each in x:
        h = step(h, each)
    return h


def repeated(count: int, step: Callable[[Any], Any], state: Any) -> Any:
    """Return the state after some steps."""
    for _ in range(count):
        state = step(state)
    return state
