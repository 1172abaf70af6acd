"""Reductions along rows and columns, and what is computed from them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.small_programs.program import integers, normal, program


@program(normal(512, 1024), integers(10, 512, 1024))
def masked_softmax(x: Any, mask: Any) -> Any:
    return jax.nn.softmax(jnp.where(mask < 3, x, -1e9))


@program(normal(512, 1024), integers(10, 512, 1024))
def softmax_with_infinities(x: Any, mask: Any) -> Any:
    return jax.nn.softmax(jnp.where(mask < 3, x, -jnp.inf))


@program(normal(512, 1024))
def logsumexp(x: Any) -> Any:
    return jax.nn.logsumexp(x, 1)


@program(normal(512, 768), normal(768))
def layer_norm_gradient(x: Any, scale: Any) -> Any:
    def loss(x: Any, scale: Any) -> Any:
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return jnp.sum(jnp.tanh((x - mean) * lax.rsqrt(variance + 1e-5) * scale))

    return jax.grad(loss, (0, 1))(x, scale)


@program(normal(1024, 1000), integers(1000, 1024))
def cross_entropy_gradient(logits: Any, labels: Any) -> Any:
    def loss(logits: Any) -> Any:
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()

    return jax.grad(loss)(logits)


@program(normal(1024, 1024))
def sums_of_a_triangle(x: Any) -> Any:
    return jnp.tril(x).sum(1)


@program(normal(2000, 512))
def variance_of_columns(x: Any) -> Any:
    return x.var(0)


@program(normal(100, 2000))
def correlation_coefficients(x: Any) -> Any:
    return jnp.corrcoef(x)


@program(normal(1000, 8))
def distances(x: Any) -> Any:
    return jnp.sqrt(((x[:, None] - x[None]) ** 2).sum(-1) + 1e-6)


@program(normal(10_000, 8), normal(16, 8))
def k_means(x: Any, centers: Any) -> Any:
    def step(_: Any, centers: Any) -> Any:
        nearest = jax.nn.one_hot(jnp.argmin(((x[:, None] - centers[None]) ** 2).sum(-1), 1), 16)
        return (nearest.T @ x) / (nearest.sum(0)[:, None] + 1e-6)

    return lax.fori_loop(0, 10, step, centers)
