"""Stencils: differences of neighbours in loops over time."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from benchmarks.small_programs.program import integers, normal, program


def differences(x: Any) -> Any:
    """Return the five-point stencil at interior points."""
    return x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2] - 4 * x[1:-1, 1:-1]


@program(normal(512, 512))
def heat_by_set(x: Any) -> Any:
    def step(_: Any, x: Any) -> Any:
        return x.at[1:-1, 1:-1].set(x[1:-1, 1:-1] + 0.1 * differences(x))

    return lax.fori_loop(0, 50, step, x)


@program(normal(512, 512))
def heat_by_add(x: Any) -> Any:
    return lax.fori_loop(0, 50, lambda _, x: x.at[1:-1, 1:-1].add(0.1 * differences(x)), x)


@program(normal(512, 512))
def heat_with_edges(x: Any) -> Any:
    return lax.fori_loop(0, 50, lambda _, x: x + 0.1 * differences(jnp.pad(x, 1, mode="edge")), x)


@program(normal(512, 512))
def heat_on_a_torus(x: Any) -> Any:
    return lax.fori_loop(0, 50, lambda _, x: x + 0.1 * differences(jnp.pad(x, 1, mode="wrap")), x)


@program(normal(64, 64, 64))
def heat_in_three_dimensions(x: Any) -> Any:
    def step(_: Any, x: Any) -> Any:
        return x + 0.1 * (sum(jnp.roll(x, d, axis) for d in (1, -1) for axis in range(3)) - 6 * x)

    return lax.fori_loop(0, 20, step, x)


@program(normal(100_000))
def burgers(u: Any) -> Any:
    def step(_: Any, u: Any) -> Any:
        left, right = jnp.roll(u, 1), jnp.roll(u, -1)
        return u - 0.01 * u * (right - left) + 0.001 * (left + right - 2 * u)

    return lax.fori_loop(0, 50, step, u)


@program(integers(2, 256, 256))
def game_of_life(cells: Any) -> Any:
    kernel = jnp.ones((1, 1, 3, 3)).at[0, 0, 1, 1].set(0)

    def step(_: Any, x: Any) -> Any:
        count = lax.conv(x[None, None], kernel, (1, 1), "SAME")[0, 0]
        return ((count == 3) | ((x == 1) & (count == 2))).astype(jnp.float32)

    return lax.fori_loop(0, 20, step, cells.astype(jnp.float32))
