"""A training step of a small GPT with donated parameters (optax)."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

WIDTH, HEADS, LENGTH, BATCH, WORDS, LAYERS = 64, 4, 32, 8, 64, 2


def normalized(x: Any, scale: Any) -> Any:
    """Return RMS-normalized rows."""
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


def forward(parameters: Any, tokens: Any) -> Any:
    """Return the logits of every position."""
    h = parameters["embedding"][tokens] + parameters["positions"]
    for layer in parameters["layers"]:
        parts = jnp.split(normalized(h, layer["scale1"]) @ layer["qkv"], 3, -1)
        q, k, v = (a.reshape(BATCH, LENGTH, HEADS, -1).transpose(0, 2, 1, 3) for a in parts)
        scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(WIDTH // HEADS)
        scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), scores, -1e9)
        mixed = (jax.nn.softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(BATCH, LENGTH, WIDTH)
        h = h + mixed @ layer["projection"]
        h = h + jax.nn.gelu(normalized(h, layer["scale2"]) @ layer["up"]) @ layer["down"]
    return h @ parameters["output"]


def build() -> Any:
    """Return the jitted step, the parameters and the tokens."""
    keys = iter(jax.random.split(jax.random.key(0), 3 + 4 * LAYERS))

    def weights(*shape: int) -> Any:
        return jax.random.normal(next(keys), shape) * 0.05

    parameters = {
        "embedding": weights(WORDS, WIDTH),
        "positions": weights(LENGTH, WIDTH),
        "output": weights(WIDTH, WORDS),
        "layers": [
            {
                "qkv": weights(WIDTH, 3 * WIDTH), "projection": weights(WIDTH, WIDTH),
                "up": weights(WIDTH, 4 * WIDTH), "down": weights(4 * WIDTH, WIDTH),
                "scale1": jnp.ones(WIDTH), "scale2": jnp.ones(WIDTH),
            }
            for _ in range(LAYERS)
        ],
    }  # fmt: skip
    optimizer = optax.adamw(1e-2)

    @partial(jax.jit, donate_argnums=(0, 1))
    def train(parameters: Any, state: Any, tokens: Any) -> Any:
        def loss(parameters: Any) -> Any:
            logits = forward(parameters, tokens)[:, :-1]
            return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

        value, gradient = jax.value_and_grad(loss)(parameters)
        changes, state = optimizer.update(gradient, state, parameters)
        return optax.apply_updates(parameters, changes), state, value

    tokens = np.arange(BATCH * LENGTH).reshape(BATCH, LENGTH) * 7 % WORDS
    return train, parameters, optimizer.init(parameters), tokens


def step(state: Any) -> Any:
    """Train on the batch; return the next state and the loss."""
    train, parameters, optimizer_state, tokens = state
    parameters, optimizer_state, loss = train(parameters, optimizer_state, tokens)
    return (train, parameters, optimizer_state, tokens), loss
