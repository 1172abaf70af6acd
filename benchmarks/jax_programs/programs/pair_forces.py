"""Lennard-Jones forces of particles in a periodic box by neighbour lists, with Verlet steps (as jax-md)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

SIDE, BOX, NEIGHBOURS, DT, STEPS = 8, 9.0, 48, 1e-3, 10
COUNT = SIDE**3


def build() -> Any:
    """Return the jitted simulation, positions and velocities."""

    def reach(a: Any, b: Any) -> Any:
        d = a - b
        return d - BOX * jnp.round(d / BOX)

    def neighbours(x: Any) -> Any:
        d = reach(x[:, None], x[None])
        distance = (d * d).sum(-1) + BOX * BOX * jnp.eye(COUNT)
        return jax.lax.top_k(-distance, NEIGHBOURS)[1]

    def energy(x: Any, near: Any) -> Any:
        d = reach(x[:, None], x[near])
        inverse = 1 / (d * d).sum(-1)
        sixth = jnp.where(inverse > 1 / 2.5**2, inverse**3, 0.0)
        return 2 * (sixth * sixth - sixth).sum()

    @jax.jit
    def simulate(x: Any, v: Any) -> Any:
        near = neighbours(x)
        force = jax.grad(lambda x: -energy(x, near))

        def advance(_: Any, state: Any) -> Any:
            x, v = state
            v = v + DT * force(x)
            return jnp.mod(x + DT * v, BOX), v

        return jax.lax.fori_loop(0, STEPS, advance, (x, v))

    grid = np.stack(np.meshgrid(*[np.arange(SIDE) * BOX / SIDE] * 3), -1).reshape(-1, 3)
    random = np.random.RandomState(0)
    x = grid + random.uniform(-0.05, 0.05, grid.shape)
    return simulate, jnp.asarray(x, jnp.float32), jnp.asarray(random.standard_normal(grid.shape), jnp.float32)


def step(state: Any) -> Any:
    """Find neighbours and take ten steps; return the next state and the positions."""
    simulate, x, v = state
    x, v = simulate(x, v)
    return (simulate, x, v), x
