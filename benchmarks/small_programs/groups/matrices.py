"""Products, systems of equations, and arrays in another order."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from benchmarks.small_programs.program import normal, program


@program(normal(100, 100), normal(100, 10))
def solve(a: Any, b: Any) -> Any:
    return jnp.linalg.solve(a + 100 * jnp.eye(100), b)


@program(normal(500, 4, 4))
def many_inverses(a: Any) -> Any:
    return jnp.linalg.inv(a + 4 * jnp.eye(4))


@program(normal(1000, 32, 32), normal(1000, 32))
def many_matrices_by_vectors(a: Any, x: Any) -> Any:
    return jnp.einsum("bij,bj->bi", a, x)


@program(normal(16, 32, 16), normal(32, 16, 24), normal(16, 24))
def product_of_three(a: Any, b: Any, c: Any) -> Any:
    return jnp.einsum("ijk,jkl,kl->il", a, b, c)


@program(normal(16, 64, 32, 48))
def exchange_of_dimensions(x: Any) -> Any:
    return x.transpose(0, 2, 1, 3) + 1


@program(normal(8, 64, 56, 56))
def channels_last(x: Any) -> Any:
    return x.transpose(0, 2, 3, 1) * 2


@program(normal(1000, 500), normal(1000, 500))
def joined_and_reversed(a: Any, b: Any) -> Any:
    return jnp.concatenate([a, b[:, ::-1]], 1)[::-1]
