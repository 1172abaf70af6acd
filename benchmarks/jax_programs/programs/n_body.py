"""Gravitation of all pairs of bodies, leapfrog."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

BODIES, DT = 512, 1e-3


def build() -> Any:
    """Return the jitted step, positions, velocities and masses."""

    def pull(x: Any, mass: Any) -> Any:
        reach = x[None] - x[:, None]
        distance = (reach * reach).sum(-1) + 1e-2
        return (reach * (mass / distance**1.5)[..., None]).sum(1)

    @jax.jit
    def advance(x: Any, v: Any, mass: Any) -> Any:
        v = v + DT / 2 * pull(x, mass)
        x = x + DT * v
        return x, v + DT / 2 * pull(x, mass)

    random = np.random.RandomState(0)
    x, v = (jnp.asarray(random.standard_normal((BODIES, 3)), jnp.float32) for _ in range(2))
    return advance, x, v, jnp.ones(BODIES) / BODIES


def step(state: Any) -> Any:
    """Advance; return the next state and the positions."""
    advance, x, v, mass = state
    x, v = advance(x, v, mass)
    return (advance, x, v, mass), x
