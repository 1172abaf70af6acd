"""Training of a convolutional network with batch normalization and dropout (flax linen, optax)."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import numpy as np
import optax


class Network(nn.Module):
    """Two convolutions and two dense layers."""

    @nn.compact
    def __call__(self, x: Any, train: bool) -> Any:
        """Return the logits of a batch of images."""
        for features in (16, 32):
            x = nn.Conv(features, (3, 3))(x)
            x = nn.relu(nn.BatchNorm(use_running_average=not train)(x))
            x = nn.max_pool(x, (2, 2), (2, 2))
        x = nn.Dense(64)(x.reshape(x.shape[0], -1))
        return nn.Dense(10)(nn.Dropout(0.1, deterministic=not train)(nn.gelu(x)))


def build() -> Any:
    """Return the initial state."""
    random = np.random.RandomState(0)
    images = random.standard_normal((32, 16, 16, 3)).astype(np.float32)
    labels = random.randint(0, 10, 32)
    network, optimizer = Network(), optax.adamw(1e-3)
    variables = network.init(jax.random.key(0), images[:2], train=False)

    @jax.jit
    def train(parameters: Any, averages: Any, optimizer_state: Any, key: Any) -> Any:
        key, dropout = jax.random.split(key)

        def loss(parameters: Any) -> Any:
            logits, updated = network.apply(
                {"params": parameters, "batch_stats": averages},
                images, train=True, mutable=["batch_stats"], rngs={"dropout": dropout},
            )  # fmt: skip
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), updated

        (value, updated), gradient = jax.value_and_grad(loss, has_aux=True)(parameters)
        changes, optimizer_state = optimizer.update(gradient, optimizer_state, parameters)
        return (optax.apply_updates(parameters, changes), updated["batch_stats"], optimizer_state, key), value

    start = (
        variables["params"],
        variables["batch_stats"],
        optimizer.init(variables["params"]),
        jax.random.key(1),
    )
    return train, start


def step(state: Any) -> Any:
    """Train on a batch; return the next state and the loss."""
    train, values = state
    values, loss = train(*values)
    return (train, values), loss
