"""Training of a gated recurrent network on sequences."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

WIDTH, BATCH, LENGTH, INPUTS = 64, 16, 50, 8


def build() -> Any:
    """Return the jitted step, weights and data."""
    random = np.random.RandomState(0)

    def weights(*shape: int) -> Any:
        return jnp.asarray(random.standard_normal(shape) / np.sqrt(shape[0]), jnp.float32)

    parameters = {"x": weights(INPUTS, 3 * WIDTH), "h": weights(WIDTH, 3 * WIDTH), "out": weights(WIDTH, 1)}
    xs = random.standard_normal((LENGTH, BATCH, INPUTS)).astype(np.float32)

    def cell(p: Any, h: Any, x: Any) -> Any:
        ours, theirs = jnp.split(h @ p["h"], 3, -1), jnp.split(x @ p["x"], 3, -1)
        reset, update = (jax.nn.sigmoid(a + b) for a, b in zip(ours[:2], theirs[:2], strict=True))
        new = jnp.tanh(theirs[2] + reset * ours[2])
        return update * h + (1 - update) * new

    @jax.jit
    def train(parameters: Any, xs: Any) -> Any:
        def loss(p: Any) -> Any:
            h = jax.lax.scan(lambda h, x: (cell(p, h, x), None), jnp.zeros((BATCH, WIDTH)), xs)[0]
            return ((h @ p["out"] - xs[:5].sum((0, 2))[:, None]) ** 2).mean()

        value, gradient = jax.value_and_grad(loss)(parameters)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, parameters, gradient), value

    return train, parameters, jnp.asarray(xs)


def step(state: Any) -> Any:
    """Train on the batch; return the next state and the loss."""
    train, parameters, xs = state
    parameters, loss = train(parameters, xs)
    return (train, parameters, xs), loss
