"""Training of a neural ordinary differential equation (equinox, diffrax, optax)."""

from __future__ import annotations

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax


def build() -> Any:
    """Return the jitted step, the network, the optimizer's state, and the data."""
    network = eqx.nn.MLP(2, 2, 32, 2, activation=jax.nn.softplus, key=jax.random.key(0))
    optimizer = optax.adam(3e-3)
    times = np.linspace(0, 2, 10, dtype=np.float32)
    angles = np.random.RandomState(0).uniform(0, 6, (16, 1)).astype(np.float32) + times
    paths = np.stack([np.cos(angles), np.sin(angles)], -1)

    def solve(network: Any, start: Any) -> Any:
        term = diffrax.ODETerm(lambda t, y, _: network(y))
        return diffrax.diffeqsolve(
            term, diffrax.Tsit5(), 0.0, 2.0, 0.1, start, saveat=diffrax.SaveAt(ts=times)
        ).ys

    @eqx.filter_jit
    def train(network: Any, state: Any, paths: Any) -> Any:
        def loss(network: Any) -> Any:
            return ((jax.vmap(solve, (None, 0))(network, paths[:, 0]) - paths) ** 2).mean()

        value, gradient = eqx.filter_value_and_grad(loss)(network)
        changes, state = optimizer.update(gradient, state)
        return eqx.apply_updates(network, changes), state, value

    return train, network, optimizer.init(eqx.filter(network, eqx.is_array)), jnp.asarray(paths)


def step(state: Any) -> Any:
    """Train on all paths; return the next state and the loss."""
    train, network, optimizer_state, paths = state
    network, optimizer_state, loss = train(network, optimizer_state, paths)
    return (train, network, optimizer_state, paths), loss
