"""A transformer's training step in JAX, sharded over data and model: the program of the tests of reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

VOCABULARY, WIDTH, HEADS = 64, 32, 4


def parameters(layers: int, seed: int = 0) -> dict[str, Any]:
    """Return random parameters."""
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> Any:
        return jnp.asarray(random.normal(0, shape[0] ** -0.5, shape), jnp.float32)

    def layer() -> dict[str, Any]:
        return {
            "qkv": normal(WIDTH, 3, HEADS, WIDTH // HEADS),
            "out": normal(HEADS, WIDTH // HEADS, WIDTH),
            "up": normal(WIDTH, 4 * WIDTH),
            "down": normal(4 * WIDTH, WIDTH),
        }

    return {"embedding": normal(VOCABULARY, WIDTH), "layers": [layer() for _ in range(layers)]}


SPECS: dict[str, PartitionSpec] = {
    "embedding": PartitionSpec(None, None),
    "qkv": PartitionSpec(None, None, "model", None),
    "out": PartitionSpec("model", None, None),
    "up": PartitionSpec(None, "model"),
    "down": PartitionSpec("model", None),
}
"""The sharding of the parameters, by name."""


def shardings(mesh: Any, layers: int) -> dict[str, Any]:
    """Return the shardings of the parameters over a mesh with the axes data and model."""
    named = {name: NamedSharding(mesh, spec) for name, spec in SPECS.items()}
    layer = {name: named[name] for name in ("qkv", "out", "up", "down")}
    return {"embedding": named["embedding"], "layers": [layer] * layers}


def _normalized(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def loss(weights: Mapping[str, Any], tokens: Any) -> Any:
    """Return the mean cross-entropy of the next tokens."""
    x = weights["embedding"][tokens[:, :-1]]
    length = x.shape[1]
    mask = jnp.tril(jnp.ones((length, length), bool))
    for layer in weights["layers"]:
        q, k, v = jnp.einsum("btd,dchk->cbhtk", _normalized(x), layer["qkv"])
        scores = jnp.einsum("bhtk,bhsk->bhts", q, k) / np.sqrt(WIDTH // HEADS)
        attention = jax.nn.softmax(jnp.where(mask, scores, -1e9))
        x = x + jnp.einsum("bhts,bhsk,hkd->btd", attention, v, layer["out"])
        x = x + jax.nn.gelu(_normalized(x) @ layer["up"]) @ layer["down"]
    logits = _normalized(x) @ weights["embedding"].T
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], 2)
    return -chosen.mean()


def train_step(mesh: Any, layers: int) -> Callable[..., Any]:
    """Return the jitted step: parameters and tokens to parameters and loss."""
    own = shardings(mesh, layers)
    data = NamedSharding(mesh, PartitionSpec("data", None))

    def step(weights: Any, tokens: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(weights, tokens)
        return jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients), value

    return jax.jit(step, in_shardings=(own, data), out_shardings=(own, NamedSharding(mesh, PartitionSpec())))
