"""Random numbers and simulations with them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.small_programs.program import integers, key, normal, program


@program(key)
def uniform_numbers(key: Any) -> Any:
    return jax.random.uniform(key, (1_000_000,))


@program(key)
def permutation(key: Any) -> Any:
    return jax.random.permutation(key, 100_000)


@program(key, normal(1000, 100))
def categorical(key: Any, logits: Any) -> Any:
    return jax.random.categorical(key, logits)


@program(key, integers(2, 256, 256))
def ising_model(key: Any, up: Any) -> Any:
    rows, columns = jnp.mgrid[:256, :256]

    def step(number: Any, state: Any) -> Any:
        spins, key = state
        key, drawn = jax.random.split(key)
        neighbours = sum(jnp.roll(spins, d, axis) for d in (1, -1) for axis in (0, 1))
        accepted = jax.random.uniform(drawn, spins.shape) < jnp.exp(-0.8 * spins * neighbours)
        return jnp.where(accepted & ((rows + columns + number) % 2 == 0), -spins, spins), key

    return lax.fori_loop(0, 20, step, (2.0 * up - 1, key))[0]


@program(key, normal(8))
def metropolis(key: Any, x: Any) -> Any:
    def step(x: Any, key: Any) -> Any:
        moving, accepting = jax.random.split(key)
        moved = x + 0.1 * jax.random.normal(moving, x.shape)
        better = jnp.log(jax.random.uniform(accepting)) < 0.5 * (x @ x - moved @ moved)
        x = jnp.where(better, moved, x)
        return x, x[0]

    return lax.scan(step, x, jax.random.split(key, 500))[1]
