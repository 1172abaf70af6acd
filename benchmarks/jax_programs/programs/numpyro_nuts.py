"""Logistic regression by the No-U-Turn sampler (numpyro)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS


def model(x: Any, y: Any) -> None:
    """Draw weights, and outcomes by them."""
    w = numpyro.sample("w", dist.Normal(jnp.zeros(x.shape[1]), 1.0).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def build() -> Any:
    """Return the sampler and its data."""
    random = np.random.RandomState(0)
    x = random.standard_normal((200, 4)).astype(np.float32)
    y = (x @ np.array([1.0, -2.0, 0.5, 0.0]) + random.standard_normal(200) > 0).astype(np.int32)
    return MCMC(NUTS(model), num_warmup=100, num_samples=100, progress_bar=False), x, y


def step(state: Any) -> Any:
    """Sample; return the state, and the mean of the weights."""
    sampler, x, y = state
    sampler.run(jax.random.key(0), x, y)
    return state, sampler.get_samples()["w"].mean(0)


TOLERANCE = 0.2
"""Chains part after some rounded comparisons: means of 100 draws agree to the posterior's deviation."""
