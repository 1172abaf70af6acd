"""Chains of rigid links with springs, contacts and damping, stepped by a scan (as brax's spring pipeline)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

BODIES, WORLDS, STEPS, DT = 12, 64, 20, 2e-3


def build() -> Any:
    """Return the jitted simulation and its state."""

    def accelerations(x: Any, v: Any) -> Any:
        reach = x[1:] - x[:-1]
        length = jnp.linalg.norm(reach, axis=-1, keepdims=True)
        pull = 400 * (length - 0.2) * reach / length + 2 * (v[1:] - v[:-1])
        force = jnp.zeros_like(x).at[:-1].add(pull).at[1:].add(-pull)
        depth = jnp.maximum(-x[:, 2], 0)
        up = 2000 * depth - jnp.where(depth > 0, 20 * v[:, 2], 0)
        force = (
            force.at[:, 2].add(up - 9.81).at[:, :2].add(-jnp.where(depth > 0, 5.0, 0.1)[:, None] * v[:, :2])
        )
        return force

    @jax.jit
    @jax.vmap
    def simulate(x: Any, v: Any) -> Any:
        def advance(state: Any, _: Any) -> Any:
            x, v = state
            v = v + DT * accelerations(x, v)
            return (x + DT * v, v), None

        return jax.lax.scan(advance, (x, v), None, length=STEPS)[0]

    x = np.random.RandomState(0).uniform(0.1, 0.9, (WORLDS, BODIES, 3)).astype(np.float32)
    return simulate, jnp.asarray(x), jnp.zeros((WORLDS, BODIES, 3))


def step(state: Any) -> Any:
    """Advance all worlds by 20 steps; return the next state and the positions."""
    simulate, x, v = state
    x, v = simulate(x, v)
    return (simulate, x, v), x
