"""Greedy decoding of a small language model, a token a call, with a cache of keys and values."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

WIDTH, HEADS, LENGTH, WORDS, LAYERS = 256, 8, 256, 512, 4


def build() -> Any:
    """Return the jitted step, weights, caches, and the first token."""
    keys = jax.random.split(jax.random.key(0), 5)
    scale = WIDTH**-0.5
    weights = {
        "qkv": jax.random.normal(keys[0], (LAYERS, WIDTH, 3 * WIDTH)) * scale,
        "out": jax.random.normal(keys[1], (LAYERS, WIDTH, WIDTH)) * scale,
        "up": jax.random.normal(keys[2], (LAYERS, WIDTH, 4 * WIDTH)) * scale,
        "down": jax.random.normal(keys[3], (LAYERS, 4 * WIDTH, WIDTH)) * scale / 2,
    }
    embedding = jax.random.normal(keys[4], (WORDS, WIDTH)) * 0.1

    @partial(jax.jit, donate_argnums=2)
    def decode(weights: Any, embedding: Any, cache: Any, token: Any, position: Any) -> Any:
        def layer(h: Any, xs: Any) -> Any:
            w, (keys, values) = xs
            q, k, v = jnp.split(h @ w["qkv"], 3)
            keys = jax.lax.dynamic_update_index_in_dim(keys, k.reshape(HEADS, -1), position, 0)
            values = jax.lax.dynamic_update_index_in_dim(values, v.reshape(HEADS, -1), position, 0)
            scores = jnp.einsum("hd,thd->ht", q.reshape(HEADS, -1), keys) * (WIDTH // HEADS) ** -0.5
            scores = jnp.where(jnp.arange(LENGTH) <= position, scores, -jnp.inf)
            mixed = jnp.einsum("ht,thd->hd", jax.nn.softmax(scores), values).reshape(-1)
            h = h + mixed @ w["out"]
            h = h + jax.nn.silu(h @ w["up"]) @ w["down"]
            return h * jax.lax.rsqrt((h * h).mean() + 1e-5), (keys, values)

        h, cache = jax.lax.scan(layer, embedding[token], (weights, cache))
        logits = embedding @ h
        return cache, jnp.argmax(logits).astype(jnp.int32), (position + 1) % LENGTH, logits

    shape = (LAYERS, LENGTH, HEADS, WIDTH // HEADS)
    return decode, weights, embedding, (jnp.zeros(shape), jnp.zeros(shape)), jnp.int32(1), jnp.int32(0)


def step(state: Any) -> Any:
    """Decode a token; return the next state and the logits."""
    decode, weights, embedding, cache, token, position = state
    cache, token, position, logits = decode(weights, embedding, cache, token, position)
    return (decode, weights, embedding, cache, token, position), logits
