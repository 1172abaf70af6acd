"""Marginal likelihood of a Gaussian process and its gradient, by Cholesky."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np

POINTS = 256


def build() -> Any:
    """Return the jitted gradient, parameters and data."""
    random = np.random.RandomState(0)
    x = np.sort(random.uniform(-3, 3, (POINTS, 1))).astype(np.float32)
    y = (np.sin(2 * x[:, 0]) + 0.1 * random.standard_normal(POINTS)).astype(np.float32)

    @jax.jit
    @jax.value_and_grad
    def likelihood(parameters: Any, x: Any, y: Any) -> Any:
        length, scale, noise = jnp.exp(parameters)
        distance = (x - x.T) ** 2
        covariance = scale * jnp.exp(-distance / length) + (noise + 1e-3) * jnp.eye(POINTS)
        factor = jnp.linalg.cholesky(covariance)
        solved = jsp.linalg.cho_solve((factor, True), y)
        return 0.5 * y @ solved + jnp.log(jnp.diagonal(factor)).sum()

    return likelihood, jnp.array([0.0, 0.0, -2.0]), x, y


def step(state: Any) -> Any:
    """Descend; return the next state and the likelihood."""
    likelihood, parameters, x, y = state
    value, gradient = likelihood(parameters, x, y)
    return (likelihood, parameters - 1e-4 * gradient, x, y), value
