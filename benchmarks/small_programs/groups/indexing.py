"""Gathers, scatters, segments and searches."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.small_programs.program import in_order, integers, normal, program, uniform


@program(normal(200_000, 8), in_order(integers(5000, 200_000)))
def segment_sum_of_rows(x: Any, segments: Any) -> Any:
    return jax.ops.segment_sum(x, segments, 5000, indices_are_sorted=True)


@program(normal(200_000), integers(5000, 200_000))
def segment_sum(x: Any, segments: Any) -> Any:
    return jax.ops.segment_sum(x, segments, 5000)


@program(normal(200_000), integers(5000, 200_000))
def segment_max(x: Any, segments: Any) -> Any:
    return jax.ops.segment_max(x, segments, 5000)


@program(uniform(500_000))
def histogram(x: Any) -> Any:
    return jnp.histogram(x, 64, range=(0, 1))[0]


@program(integers(100, 500_000))
def bincount(x: Any) -> Any:
    return jnp.bincount(x, length=100)


@program(in_order(uniform(10_000)), uniform(100_000))
def searchsorted(edges: Any, x: Any) -> Any:
    return jnp.searchsorted(edges, x)


@program(uniform(100_000), in_order(uniform(1000)), normal(1000))
def interpolation(x: Any, points: Any, values: Any) -> Any:
    return jnp.interp(x, points, values)


@program(normal(1000, 1000), integers(1000, 1000, 100))
def take_along_axis(x: Any, indices: Any) -> Any:
    return jnp.take_along_axis(x, indices, 1)


@program(normal(5000, 64), integers(5000, 8192))
def embedding_gradient(table: Any, words: Any) -> Any:
    return jax.grad(lambda table: (table[words] ** 2).sum())(table)


@program(normal(256, 256), uniform(256, 256, high=255), uniform(256, 256, high=255))
def map_coordinates(image: Any, y: Any, x: Any) -> Any:
    return jax.scipy.ndimage.map_coordinates(image, [y, x], 1)


@program(integers(10_000, 100_000), integers(10_000, 100_000))
def page_rank(sources: Any, targets: Any) -> Any:
    degree = jnp.maximum(jnp.zeros(10_000).at[sources].add(1.0), 1)

    def step(_: Any, rank: Any) -> Any:
        return 0.15 / 10_000 + 0.85 * jnp.zeros(10_000).at[targets].add((rank / degree)[sources])

    return lax.fori_loop(0, 20, step, jnp.full(10_000, 1e-4))


@program(integers(100, 4096), normal(100, 64))
def one_hot_product(words: Any, table: Any) -> Any:
    return jax.nn.one_hot(words, 100) @ table
