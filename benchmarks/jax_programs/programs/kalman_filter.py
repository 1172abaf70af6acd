"""A Kalman filter over 200 observations, a scan of small matrices, for 16 series at once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

STATES, OBSERVED, TIMES, SERIES = 4, 2, 200, 16


def build() -> Any:
    """Return the jitted filter and its observations."""
    motion = np.eye(STATES, dtype=np.float32) + 0.1 * np.eye(STATES, k=2, dtype=np.float32)
    seen = np.eye(OBSERVED, STATES, dtype=np.float32)

    def advance(state: Any, y: Any) -> Any:
        mean, covariance = state
        mean, covariance = motion @ mean, motion @ covariance @ motion.T + 0.01 * jnp.eye(STATES)
        spread = seen @ covariance @ seen.T + 0.1 * jnp.eye(OBSERVED)
        gain = jnp.linalg.solve(spread, seen @ covariance).T
        mean = mean + gain @ (y - seen @ mean)
        return (mean, covariance - gain @ seen @ covariance), mean

    @jax.jit
    @jax.vmap
    def run(ys: Any) -> Any:
        return jax.lax.scan(advance, (jnp.zeros(STATES), jnp.eye(STATES)), ys)[1]

    ys = np.random.RandomState(0).standard_normal((SERIES, TIMES, OBSERVED)).cumsum(1).astype(np.float32)
    return run, ys


def step(state: Any) -> Any:
    """Filter; return the state and the means."""
    return state, state[0](state[1])
