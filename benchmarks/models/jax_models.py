"""The models as JAX functions, as JAX's users write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.models import weights
from benchmarks.models.weights import BERT, CACHE, GPT2, SMOLLM, Transformer, Tree

Function = Callable[..., Any]
RATE = 0.01


def normalized(x: Any, p: Tree) -> Any:
    """Layer normalization."""
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * p["scale"] + p["offset"]


def rms_normalized(x: Any, scale: Any) -> Any:
    """Normalization by the root of the mean square, in f32."""
    wide = x.astype(jnp.float32)
    return (wide * lax.rsqrt((wide**2).mean(-1, keepdims=True) + 1e-5)).astype(x.dtype) * scale


def cross_entropy(logits: Any, labels: Any) -> Any:
    """Mean negative log-probability of the labels."""
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits.astype(jnp.float32)), labels[..., None], -1)
    return -chosen.mean()


def descended(loss: Function) -> Function:
    """A step of gradient descent."""

    def step(parameters: Tree, *data: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(parameters, *data)
        return value, jax.tree.map(lambda p, g: p - RATE * g.astype(p.dtype), parameters, gradient)

    return step


# -- transformers with a layer after the other


def attention(sizes: Transformer, x: Any, p: Tree, mask: Any) -> Any:
    """Attention of many heads to all tokens, or to those that the mask shows."""
    q, k, v = (
        part.reshape(-1, sizes.heads, sizes.head) for part in jnp.split(x @ p["qkv"] + p["qkv_bias"], 3, -1)
    )
    scores = jnp.einsum("thd,shd->hts", q, k) / np.sqrt(sizes.head)
    if mask is not None:
        scores = jnp.where(mask, scores, -1e9)
    mixed = jnp.einsum("hts,shd->thd", jax.nn.softmax(scores), v)
    return mixed.reshape(-1, sizes.width) @ p["out"] + p["out_bias"]


def gpt2(p: Tree, tokens: Any) -> Any:
    """Logits of GPT-2: normalization first, tanh GELU, causal."""
    x = p["words"][tokens] + p["positions"][: len(tokens)]
    mask = np.tril(np.ones((len(tokens), len(tokens)), bool))
    for layer in p["layers"]:
        x = x + attention(GPT2, normalized(x, layer["norm1"]), layer, mask)
        hidden = jax.nn.gelu(normalized(x, layer["norm2"]) @ layer["up"] + layer["up_bias"])
        x = x + hidden @ layer["down"] + layer["down_bias"]
    return normalized(x, p["norm"]) @ p["words"].T


def bert(p: Tree, tokens: Any) -> Any:
    """Hidden states of BERT: normalization last, erf GELU."""
    x = normalized(p["words"][tokens] + p["positions"][: len(tokens)], p["norm"])
    for layer in p["layers"]:
        x = normalized(x + attention(BERT, x, layer, None), layer["norm1"])
        hidden = jax.nn.gelu(x @ layer["up"] + layer["up_bias"], approximate=False)
        x = normalized(x + hidden @ layer["down"] + layer["down_bias"], layer["norm2"])
    return x


def adam(loss: Function) -> Function:
    """A step of AdamW."""

    def step(parameters: Tree, mean: Tree, square: Tree, *data: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(parameters, *data)
        mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
        square = jax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, square, gradient)
        update = lambda p, m, s: p - 1e-3 * (m / (jnp.sqrt(s) + 1e-8) + 0.01 * p)  # noqa: E731
        return value, jax.tree.map(update, parameters, mean, square), mean, square

    return step


def gpt2_train() -> tuple[Function, Any]:
    """A step of AdamW on 128 tokens."""
    parameters, tokens = weights.encoder(GPT2)
    loss = lambda p, t: cross_entropy(gpt2(p, t)[:-1], t[1:])  # noqa: E731
    mean = jax.tree.map(np.zeros_like, parameters)
    square = jax.tree.map(lambda p: np.full_like(p, 1e-4), parameters)
    return adam(loss), (parameters, mean, square, tokens)


# -- a transformer that scans over its layers


def turned(x: Any, positions: Any) -> Any:
    """Rotary embedding of the positions."""
    half = x.shape[-1] // 2
    angle = positions[:, None] / 10000 ** (jnp.arange(half) / half)
    cosine, sine = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cosine - b * sine, b * cosine + a * sine], -1).astype(x.dtype)


def times(x: Any, w: Any) -> Any:
    """A product with a matrix, or with s8 numbers and scales of its columns."""
    return (x @ w["narrow"].astype(x.dtype)) * w["scales"] if isinstance(w, dict) else x @ w


def heads(x: Any, w: Any, count: int) -> Any:
    """A product, divided into heads."""
    return times(x, w).reshape(len(x), count, -1)


def feed_forward(x: Any, p: Tree) -> Any:
    """The gated layer."""
    h = rms_normalized(x, p["norms"][1])
    return x + times(jax.nn.silu(times(h, p["gate"])) * times(h, p["up"]), p["down"])


def grouped_attention(sizes: Transformer, q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Attention of queries that share heads of keys."""
    q = q.reshape(len(q), sizes.key_heads, -1, sizes.head)
    scores = jnp.einsum("tkgd,skd->kgts", q, k) / np.sqrt(sizes.head)
    shares = jax.nn.softmax(jnp.where(mask, scores.astype(jnp.float32), -1e9)).astype(q.dtype)
    return jnp.einsum("kgts,skd->tkgd", shares, v).reshape(len(q), sizes.width)


def smollm(p: Tree, tokens: Any) -> Any:
    """Logits of SmolLM2-135M."""
    positions = jnp.arange(len(tokens), dtype=jnp.float32)
    mask = np.tril(np.ones((len(tokens), len(tokens)), bool))

    def layer(x: Any, p: Tree) -> Any:
        h = rms_normalized(x, p["norms"][0])
        q = turned(heads(h, p["q"], SMOLLM.heads), positions)
        k = turned(heads(h, p["k"], SMOLLM.key_heads), positions)
        mixed = grouped_attention(SMOLLM, q, k, heads(h, p["v"], SMOLLM.key_heads), mask)
        return feed_forward(x + times(mixed, p["o"]), p), None

    x, _ = lax.scan(layer, p["words"][tokens], p["layers"])
    return rms_normalized(x, p["norm"]) @ p["words"].T


def smollm_token(p: Tree, keys: Any, values: Any, token: Any, position: Any) -> Any:
    """Logits after a token, and the caches with it."""
    is_narrow = isinstance(p["words"], dict)
    x = p["words"]["narrow"][token] * p["words"]["scales"][token] if is_narrow else p["words"][token]
    mask = jnp.arange(CACHE) <= position

    def layer(x: Any, layer: Any) -> Any:
        p, keys, values = layer
        h, at = rms_normalized(x, p["norms"][0]), position.astype(jnp.float32)[None]
        q = turned(heads(h, p["q"], SMOLLM.heads), at)
        k, v = turned(heads(h, p["k"], SMOLLM.key_heads), at), heads(h, p["v"], SMOLLM.key_heads)
        keys = lax.dynamic_update_slice(keys, k, (position, 0, 0))
        values = lax.dynamic_update_slice(values, v, (position, 0, 0))
        mixed = grouped_attention(SMOLLM, q, keys, values, mask)
        return feed_forward(x + times(mixed, p["o"]), p), (keys, values)

    x, (keys, values) = lax.scan(layer, x[None], (p["layers"], keys, values))
    x = rms_normalized(x, p["norm"])[0]
    words = p["words"]
    logits = (words["narrow"].astype(x.dtype) @ x) * words["scales"] if is_narrow else words @ x
    return logits, keys, values


def smollm_forward(kind: Any = np.float32) -> tuple[Function, Any]:
    """128 tokens."""
    p, tokens = weights.stacked_decoder(SMOLLM)
    return smollm, (jax.tree.map(lambda w: w.astype(kind), p), tokens)


def smollm_train(kind: Any = np.float32) -> tuple[Function, Any]:
    """A step of gradient descent on 128 tokens."""
    _, arguments = smollm_forward(kind)
    return descended(lambda p, t: cross_entropy(smollm(p, t)[:-1], t[1:])), arguments


def smollm_decode(kind: Any = np.float32, *, narrow: bool = False) -> tuple[Function, Any]:
    """A token, after a hundred others."""
    p, tokens = weights.stacked_decoder(SMOLLM)
    p = weights.quantized(p) if narrow else jax.tree.map(lambda w: w.astype(kind), p)
    cache = np.zeros((SMOLLM.layers, CACHE, SMOLLM.key_heads, SMOLLM.head), kind)
    return smollm_token, (p, cache, cache, tokens[0], np.int32(100))


# -- convolutions, recurrence


def convolved(x: Any, p: Tree, stride: int, *, trains: bool) -> Any:
    """A convolution and its batch normalization, with the batch's statistics in training."""
    x = lax.conv_general_dilated(
        x, p["kernel"], (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    if trains:
        mean, square = x.mean((0, 1, 2)), (x * x).mean((0, 1, 2))
        x = (x - mean) * lax.rsqrt(square - mean * mean + 1e-5)
    return x * p["norm"]["scale"] + p["norm"]["offset"]


def resnet(p: Tree, x: Any, *, trains: bool = False) -> Any:
    """Logits of ResNet-50."""
    x = jax.nn.relu(convolved(x, p["stem"], 2, trains=trains))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for block, stride in zip(p["blocks"], weights.strides(), strict=True):
        y = jax.nn.relu(convolved(x, block["reduce"], 1, trains=trains))
        y = jax.nn.relu(convolved(y, block["middle"], stride, trains=trains))
        y = convolved(y, block["expand"], 1, trains=trains)
        shortcut = convolved(x, block["shortcut"], stride, trains=trains) if "shortcut" in block else x
        x = jax.nn.relu(y + shortcut)
    return x.mean((1, 2)) @ p["classes"]


def resnet50_forward() -> tuple[Function, Any]:
    """One image."""
    p, images, _ = weights.resnet(1)
    return resnet, (p, images)


def resnet50_train() -> tuple[Function, Any]:
    """A step of gradient descent on four images."""
    return descended(lambda p, x, y: cross_entropy(resnet(p, x, trains=True), y)), weights.resnet(4)


def lstm(p: Tree, tokens: Any) -> Any:
    """Logits of a language model of two LSTM layers."""
    x = p["words"][tokens]
    for layer in p["layers"]:

        def step(state: Any, x: Any, layer: Tree = layer) -> Any:
            h, c = state
            i, f, g, o = jnp.split(x @ layer["input"] + h @ layer["state"] + layer["bias"], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros(x.shape[1:])
        _, x = lax.scan(step, (zero, zero), x)
    return x @ p["out"]


def lstm_train() -> tuple[Function, Any]:
    """A step of gradient descent on 20 texts of 35 words."""
    return descended(lambda p, t: cross_entropy(lstm(p, t[:-1]), t[1:])), weights.lstm()


MODELS: dict[str, Callable[[], tuple[Function, Any]]] = {
    "gpt2_train": gpt2_train,
    "bert_forward": lambda: (bert, weights.encoder(BERT)),
    "resnet50_forward": resnet50_forward,
    "resnet50_train": resnet50_train,
    "lstm_train": lstm_train,
    "smollm_forward": smollm_forward,
    "smollm_train": smollm_train,
    "smollm_decode": smollm_decode,
    "smollm_forward_bf16": lambda: smollm_forward(jnp.bfloat16),
    "smollm_train_bf16": lambda: smollm_train(jnp.bfloat16),
    "smollm_decode_bf16": lambda: smollm_decode(jnp.bfloat16),
    "smollm_decode_int8": lambda: smollm_decode(narrow=True),
}


class Model:
    """A model by its name, as `benchmarks.child` runs programs."""

    def __init__(self, name: str) -> None:
        self._create = MODELS[name]
        # The offsets of normalizations begin as zeros, and their gradients cancel: results of f32 differ
        # from those of f64 by up to 0.07 (JAX's own client) and 0.09 (hloom) of the largest element.
        self.TOLERANCE = 0.2 if name == "resnet50_train" else 0.05
        self.COMPARED = weights.COMPARED.get(name)
        self._trains, self._decodes = "train" in name, "decode" in name

    def build(self) -> Any:
        """Return the jitted function and its arguments on the device.

        What a step returns for the next one is donated: parameters and moments, or caches.
        """
        function, arguments = self._create()
        donated = (1, 2) if self._decodes else ()
        if self._trains:  # data are arrays, all else is trees
            donated = tuple(n for n, a in enumerate(arguments) if isinstance(a, dict))
        return jax.jit(function, donate_argnums=donated), jax.tree.map(jnp.asarray, arguments)

    def step(self, state: Any) -> Any:
        """Run once, on what the step before returned and the same data; return the state and the results."""
        function, arguments = state
        results = function(*arguments)
        if self._decodes:
            arguments = (arguments[0], *results[1:], *arguments[3:])
        if self._trains:
            arguments = (*results[1:], *arguments[len(results) - 1 :])
        return (function, arguments), results

    def cost(self, state: Any) -> dict[str, float]:
        """Return operations and bytes of a step, as the compiler counts them."""
        function, arguments = state
        return function.lower(*arguments).compile().cost_analysis()
