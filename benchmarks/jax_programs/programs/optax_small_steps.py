"""Many small steps of an optimizer from Python: 50 calls of a program of microseconds (optax)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax


def build() -> Any:
    """Return the jitted step, parameters, the optimizer's state and data."""
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))
    x = np.random.RandomState(0).standard_normal((32, 8)).astype(np.float32)

    @jax.jit
    def train(parameters: Any, state: Any, x: Any) -> Any:
        def loss(p: Any) -> Any:
            return ((jnp.tanh(x @ p["w1"] + p["b1"]) @ p["w2"] - x[:, :1]) ** 2).mean()

        value, gradient = jax.value_and_grad(loss)(parameters)
        changes, state = optimizer.update(gradient, state)
        return optax.apply_updates(parameters, changes), state, value

    parameters = {"w1": jnp.eye(8) / 2, "b1": jnp.zeros(8), "w2": jnp.ones((8, 1)) / 8}
    return train, parameters, optimizer.init(parameters), jnp.asarray(x)


def step(state: Any) -> Any:
    """Take 50 steps; return the next state and the last loss."""
    train, parameters, optimizer_state, x = state
    loss = None
    for _ in range(50):
        parameters, optimizer_state, loss = train(parameters, optimizer_state, x)
    return (train, parameters, optimizer_state, x), loss
