"""Programs whose first calls `benchmarks.jax_first_call` times: eager operations, and a training step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

Call = Callable[[], Any]
"""A computation; what it returns is its result, which may still be on its way."""

_UNARY = (
    "sin", "cos", "tan", "tanh", "exp", "log1p", "sqrt", "square", "abs", "negative", "sign", "floor", "ceil",
    "arctan", "sinh", "cosh", "expm1", "cbrt", "isnan", "isfinite", "reciprocal", "rint", "logical_not",
    "cumsum", "cumprod", "sort", "argsort", "flip", "ravel", "transpose", "sum", "prod", "max", "min", "mean",
    "std", "var", "argmax", "argmin", "any", "all", "median", "diff", "trace", "diag", "tril", "triu",
    "count_nonzero", "nanmean", "nansum", "deg2rad", "rad2deg", "signbit", "fliplr", "flipud", "rot90",
)  # fmt: skip
_BINARY = (
    "add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "arctan2", "hypot", "fmod",
    "floor_divide", "equal", "less", "greater", "not_equal", "less_equal", "greater_equal", "logaddexp",
    "copysign", "matmul", "dot", "vdot", "inner", "outer", "kron", "allclose", "logical_and", "append",
)  # fmt: skip


def eager_operations() -> list[Call]:
    """Return a hundred operations of jax.numpy, distinct and not under jit, on small arrays."""
    import jax
    import jax.numpy as jnp

    x = jnp.linspace(0.1, 0.9, 16).reshape(4, 4)
    y = x.T + 0.5
    unary = [partial(getattr(jnp, name), x) for name in _UNARY]
    binary = [partial(getattr(jnp, name), x, y) for name in _BINARY]
    others: list[Call] = [
        lambda: jnp.concatenate([x, y]), lambda: jnp.stack([x, y]), lambda: jnp.where(x > 0.5, x, y),
        lambda: jnp.clip(x, 0.2, 0.8), lambda: x[1], lambda: x[:, 2:], lambda: x.at[0].set(1.0),
        lambda: jnp.roll(x, 1), lambda: jnp.repeat(x, 2), lambda: jnp.tile(x, 2), lambda: jnp.pad(x, 1),
        lambda: jnp.take(x, jnp.array([0, 2]), axis=0), lambda: jnp.einsum("ij,kj->ik", x, y),
        lambda: jax.nn.softmax(x), lambda: jax.nn.relu(x), lambda: x.astype(jnp.int32),
    ]  # fmt: skip
    return [*unary, *binary, *others]


def train_step() -> Call:
    """Return a step of a small GPT under jit: loss, gradients, and Adam's update of all parameters."""
    import jax
    import jax.numpy as jnp

    width, layers, heads, length, words = 64, 4, 4, 32, 128
    keys = iter(jax.random.split(jax.random.key(0), 8 * layers + 2))

    def matrix(*shape: int) -> jax.Array:
        return 0.02 * jax.random.normal(next(keys), shape)

    blocks = [
        {
            "qkv": matrix(width, 3 * width), "out": matrix(width, width), "up": matrix(width, 4 * width),
            "down": matrix(4 * width, width), "norm1": jnp.ones(width), "norm2": jnp.ones(width),
        }
        for _ in range(layers)
    ]  # fmt: skip
    parameters: Any = {"embed": matrix(words, width), "position": matrix(length, width), "blocks": blocks}
    tokens = jnp.arange(4 * (length + 1)).reshape(4, -1) % words

    def norm(x: jax.Array, scale: jax.Array) -> jax.Array:
        return scale * (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    def block(x: jax.Array, p: Any) -> jax.Array:
        batch = x.shape[0]
        projected = (norm(x, p["norm1"]) @ p["qkv"]).reshape(batch, length, 3, heads, width // heads)
        q, k, v = jnp.moveaxis(projected, 2, 0)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (width // heads) ** 0.5
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v).reshape(batch, length, width)
        x = x + mixed @ p["out"]
        return x + jax.nn.gelu(norm(x, p["norm2"]) @ p["up"]) @ p["down"]

    def loss(p: Any, tokens: jax.Array) -> jax.Array:
        x = p["embed"][tokens[:, :-1]] + p["position"]
        for part in p["blocks"]:
            x = block(x, part)
        logits = jax.nn.log_softmax(x @ p["embed"].T)
        return -jnp.take_along_axis(logits, tokens[:, 1:, None], -1).mean()

    @jax.jit
    def step(p: Any, m: Any, v: Any, tokens: jax.Array) -> Any:
        value, gradient = jax.value_and_grad(loss)(p, tokens)
        m = jax.tree.map(lambda a, g: 0.9 * a + 0.1 * g, m, gradient)
        v = jax.tree.map(lambda a, g: 0.99 * a + 0.01 * g * g, v, gradient)
        p = jax.tree.map(lambda a, b, c: a - 1e-3 * b / (jnp.sqrt(c) + 1e-8), p, m, v)
        return value, p, m, v

    zeros = jax.tree.map(jnp.zeros_like, parameters)
    jax.block_until_ready((parameters, zeros, tokens))
    return lambda: step(parameters, zeros, zeros, tokens)
