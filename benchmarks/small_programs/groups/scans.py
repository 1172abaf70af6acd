"""Cumulative operations, recurrences, sorts and selections."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.small_programs.program import integers, normal, program, uniform


@program(normal(1000, 1000))
def cumulative_sum_of_columns(x: Any) -> Any:
    return jnp.cumsum(x, 0)


@program(uniform(1_000_000))
def cumulative_product(x: Any) -> Any:
    return jnp.cumprod(x + 0.5)


@program(normal(1000, 1000))
def cumulative_maximum(x: Any) -> Any:
    return lax.cummax(x, 1)


@program(uniform(64, 10_000), normal(64, 10_000))
def associative_scan(a: Any, b: Any) -> Any:
    def combined(left: Any, right: Any) -> Any:
        return left[0] * right[0], left[1] * right[0] + right[1]

    return lax.associative_scan(combined, (a, b), axis=1)[1]


@program(uniform(10_000, 64), normal(10_000, 64))
def linear_recurrence(a: Any, b: Any) -> Any:
    return lax.scan(lambda h, x: (h * x[0] + x[1],) * 2, jnp.zeros(64), (a, b))[1]


@program(normal(64, 20, 32), normal(32, 96, scale=0.1), normal(32, 96, scale=0.1))
def gated_recurrent_unit(x: Any, weights: Any, recurrent: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        a, b = jnp.split(x @ weights, 3, 1), jnp.split(h @ recurrent, 3, 1)
        update, reset = jax.nn.sigmoid(a[0] + b[0]), jax.nn.sigmoid(a[1] + b[1])
        return (1 - update) * h + update * jnp.tanh(a[2] + reset * b[2]), None

    return lax.scan(step, jnp.zeros((20, 32)), x)[0]


@program(normal(200_000))
def sort(x: Any) -> Any:
    return jnp.sort(x)


@program(normal(100_000))
def argsort(x: Any) -> Any:
    return jnp.argsort(x)


@program(normal(64, 10_000))
def top_k(x: Any) -> Any:
    return lax.top_k(x, 10)


@program(normal(500, 1001))
def median(x: Any) -> Any:
    return jnp.median(x, 1)


@program(normal(100_000))
def quantiles(x: Any) -> Any:
    return jnp.quantile(x, jnp.array([0.1, 0.5, 0.9]))


@program(integers(1000, 50_000))
def unique(x: Any) -> Any:
    return jnp.unique(x, size=1000)
