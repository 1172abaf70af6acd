"""Random-walk Metropolis: 1,000 steps of 32 chains in a scan, with Threefry keys."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

CHAINS, SIZE, STEPS = 32, 4, 1000


def build() -> Any:
    """Return the jitted sampler, the chains and a key."""

    def density(x: Any) -> Any:
        return -0.5 * (x[0] ** 2 / 4 + ((x[1:] - x[:-1] ** 2 / 2) ** 2).sum())

    def advance(x: Any, key: Any) -> Any:
        move, choose = jax.random.split(key)
        proposed = x + 0.5 * jax.random.normal(move, x.shape)
        accepted = jnp.log(jax.random.uniform(choose)) < density(proposed) - density(x)
        return jnp.where(accepted, proposed, x), None

    @jax.jit
    def sample(x: Any, key: Any) -> Any:
        def one(x: Any, key: Any) -> Any:
            return jax.lax.scan(advance, x, jax.random.split(key, STEPS))[0]

        return jax.vmap(one)(x, jax.random.split(key, CHAINS))

    return sample, jnp.zeros((CHAINS, SIZE)), jax.random.key(0)


def step(state: Any) -> Any:
    """Take 1,000 steps; return the next state and the chains."""
    sample, x, key = state
    key, used = jax.random.split(key)
    x = sample(x, used)
    return (sample, x, key), x
