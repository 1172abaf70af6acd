"""Hierarchical regression (eight schools) by Hamiltonian Monte Carlo, 64 chains (blackjax)."""

from __future__ import annotations

from typing import Any

import blackjax
import jax
import jax.numpy as jnp

CHAINS, DRAWS = 64, 50
EFFECTS = (28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0)
ERRORS = (15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0)


def build() -> Any:
    """Return the jitted sampler and its first states."""
    effects, errors = jnp.array(EFFECTS), jnp.array(ERRORS)

    def log_density(p: Any) -> Any:
        scale = jnp.exp(p["log_scale"])
        mean = p["mean"] + scale * p["offsets"]
        prior = -0.5 * (p["mean"] / 5) ** 2 - jnp.log1p((scale / 5) ** 2) + p["log_scale"]
        return prior - 0.5 * jnp.sum(p["offsets"] ** 2) - 0.5 * jnp.sum(((effects - mean) / errors) ** 2)

    hmc = blackjax.hmc(log_density, step_size=0.1, inverse_mass_matrix=jnp.ones(10), num_integration_steps=16)

    @jax.jit
    @jax.vmap
    def sample(state: Any, key: Any) -> Any:
        return jax.lax.scan(lambda s, k: hmc.step(k, s), state, jax.random.split(key, DRAWS))[0]

    first = {"mean": jnp.zeros(CHAINS), "log_scale": jnp.zeros(CHAINS), "offsets": jnp.zeros((CHAINS, 8))}
    return sample, jax.vmap(hmc.init)(first), jax.random.split(jax.random.key(0), CHAINS)


def step(state: Any) -> Any:
    """Draw 50 times in each chain; return the state, and the mean of the chains' means."""
    sample, first, keys = state
    return state, sample(first, keys).position["mean"].mean()
