"""Attention of many heads, forward and backward, causal."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

BATCH, LENGTH, HEADS, SIZE = 2, 256, 8, 32


def build() -> Any:
    """Return the jitted gradient and its arguments."""

    @jax.jit
    @jax.value_and_grad
    def loss(qkv: Any) -> Any:
        return (jax.nn.dot_product_attention(*qkv, is_causal=True) ** 2).mean()

    keys = jax.random.split(jax.random.key(0), 3)
    return loss, tuple(jax.random.normal(k, (BATCH, LENGTH, HEADS, SIZE)) for k in keys)


def step(state: Any) -> Any:
    """Run both ways; return the state, the loss and the gradients."""
    loss, qkv = state
    value, gradient = loss(qkv)
    return (loss, qkv), (value, jax.tree.map(jnp.asarray, gradient))
