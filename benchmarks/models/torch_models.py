"""The models in PyTorch, eager or compiled, on the weights of `weights`."""

# pyright: reportMissingImports=false
from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.nn import functional as nn

from benchmarks.models import weights
from benchmarks.models.weights import BERT, CACHE, GPT2, SMOLLM, Transformer, Tree

Function = Callable[..., Any]
RATE = 0.01


def mapped(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """Return a tree of the results of a function of corresponding leaves."""
    if isinstance(tree, dict):
        return {k: mapped(function, v, *(other[k] for other in others)) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(mapped(function, *each) for each in zip(tree, *others, strict=True))
    return function(tree, *others)


def leaves_of(tree: Tree) -> Iterator[Any]:
    """Yield the leaves of a tree in the order of ``jax.tree.leaves``."""
    if isinstance(tree, dict):
        tree = [tree[key] for key in sorted(tree)]
    if isinstance(tree, (list, tuple)):
        for part in tree:
            yield from leaves_of(part)
    else:
        yield tree


def compiled(function: Function) -> Function:
    """Return the function, compiled if TORCH_COMPILED is 1."""
    return torch.compile(function) if os.environ.get("TORCH_COMPILED") == "1" else function


def normalized(x: Any, p: Tree) -> Any:
    """Layer normalization."""
    return nn.layer_norm(x, x.shape[-1:], p["scale"], p["offset"])


def differentiated(loss: Function) -> Function:
    """Return the function that returns the loss and the gradients of its first argument."""
    loss = compiled(loss)

    def run(parameters: Tree, *data: Any) -> Any:
        value = loss(parameters, *data)
        found = iter(torch.autograd.grad(value, list(leaves_of(parameters))))
        grown = sorted_map(lambda _: next(found), parameters)
        return value.detach(), grown

    return run


def sorted_map(function: Callable[[Any], Any], tree: Tree) -> Tree:
    """Return a tree whose leaves are visited in the order of `leaves_of`."""
    if isinstance(tree, dict):
        return {key: sorted_map(function, tree[key]) for key in sorted(tree)}
    if isinstance(tree, (list, tuple)):
        return [sorted_map(function, part) for part in tree]
    return function(tree)


def descended(loss: Function) -> Function:
    """A step of gradient descent."""
    gradient = differentiated(loss)
    update = compiled(lambda tree, grown: mapped(lambda p, g: p - RATE * g, tree, grown))

    def step(parameters: Tree, *data: Any) -> Any:
        value, grown = gradient(parameters, *data)
        with torch.no_grad():
            return value, update(parameters, grown)

    return step


def adam(loss: Function) -> Function:
    """A step of AdamW."""
    gradient = differentiated(loss)

    @compiled
    def update(parameters: Tree, mean: Tree, square: Tree, grown: Tree) -> Any:
        mean = mapped(lambda m, g: 0.9 * m + 0.1 * g, mean, grown)
        square = mapped(lambda s, g: 0.99 * s + 0.01 * g * g, square, grown)
        one = lambda p, m, s: p - 1e-3 * (m / (torch.sqrt(s) + 1e-8) + 0.01 * p)  # noqa: E731
        return mapped(one, parameters, mean, square), mean, square

    def step(parameters: Tree, mean: Tree, square: Tree, *data: Any) -> Any:
        value, grown = gradient(parameters, *data)
        with torch.no_grad():
            return value, *update(parameters, mean, square, grown)

    return step


def attention(sizes: Transformer, x: Any, p: Tree, *, causal: bool) -> Any:
    """Attention of many heads."""
    parts = (x @ p["qkv"] + p["qkv_bias"]).chunk(3, -1)
    q, k, v = (part.view(-1, sizes.heads, sizes.head).transpose(0, 1)[None] for part in parts)
    mixed = nn.scaled_dot_product_attention(q, k, v, is_causal=causal)[0]
    return mixed.transpose(0, 1).reshape(-1, sizes.width) @ p["out"] + p["out_bias"]


def gpt2(p: Tree, tokens: Any) -> Any:
    """Logits of GPT-2."""
    x = p["words"][tokens] + p["positions"][: len(tokens)]
    for layer in p["layers"]:
        x = x + attention(GPT2, normalized(x, layer["norm1"]), layer, causal=True)
        hidden = nn.gelu(normalized(x, layer["norm2"]) @ layer["up"] + layer["up_bias"], approximate="tanh")
        x = x + hidden @ layer["down"] + layer["down_bias"]
    return normalized(x, p["norm"]) @ p["words"].T


def bert(p: Tree, tokens: Any) -> Any:
    """Hidden states of BERT."""
    x = normalized(p["words"][tokens] + p["positions"][: len(tokens)], p["norm"])
    for layer in p["layers"]:
        x = normalized(x + attention(BERT, x, layer, causal=False), layer["norm1"])
        hidden = nn.gelu(x @ layer["up"] + layer["up_bias"])
        x = normalized(x + hidden @ layer["down"] + layer["down_bias"], layer["norm2"])
    return x


def rms_normalized(x: Any, scale: Any) -> Any:
    """Normalization by the root of the mean square."""
    wide = x.float()
    return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * scale


def turned(x: Any, positions: Any) -> Any:
    """Rotary embedding of the positions."""
    half = x.shape[-1] // 2
    angle = positions[:, None] / 10000 ** (torch.arange(half) / half)
    cosine, sine = torch.cos(angle)[:, None], torch.sin(angle)[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cosine - b * sine, b * cosine + a * sine], -1).to(x.dtype)


def times(x: Any, w: Any) -> Any:
    """A product with a matrix, or with s8 numbers and scales of its columns."""
    return (x @ w["narrow"].to(x.dtype)) * w["scales"] if isinstance(w, dict) else x @ w


def decoder_layer(x: Any, p: Tree, positions: Any, attend: Function) -> Any:
    """A layer of SmolLM2."""
    h = rms_normalized(x, p["norms"][0])
    q = turned(times(h, p["q"]).view(len(x), SMOLLM.heads, -1), positions)
    k = turned(times(h, p["k"]).view(len(x), SMOLLM.key_heads, -1), positions)
    v = times(h, p["v"]).view(len(x), SMOLLM.key_heads, -1)
    x = x + times(attend(q, k, v), p["o"])
    h = rms_normalized(x, p["norms"][1])
    return x + times(nn.silu(times(h, p["gate"])) * times(h, p["up"]), p["down"])


def shared_attention(q: Any, k: Any, v: Any, **options: Any) -> Any:
    """Attention of queries that share heads of keys."""
    parts = [each.transpose(0, 1)[None] for each in (q, k, v)]
    mixed = nn.scaled_dot_product_attention(*parts, enable_gqa=True, **options)[0]
    return mixed.transpose(0, 1).reshape(len(q), -1)


def layers_of(p: Tree) -> Iterator[Tree]:
    """Yield views of the weights of each layer."""
    for number in range(SMOLLM.layers):
        yield mapped(lambda w, number=number: w[number], p["layers"])


def smollm(p: Tree, tokens: Any) -> Any:
    """Logits of SmolLM2-135M."""
    x, positions = p["words"][tokens], torch.arange(len(tokens), dtype=torch.float32)
    attend = lambda q, k, v: shared_attention(q, k, v, is_causal=True)  # noqa: E731
    for layer in layers_of(p):
        x = decoder_layer(x, layer, positions, attend)
    return rms_normalized(x, p["norm"]) @ p["words"].T


def smollm_token(p: Tree, keys: Any, values: Any, token: Any, position: Any) -> Any:
    """Logits after a token; the caches are updated in place."""
    words = p["words"]
    is_narrow = isinstance(words, dict)
    x = (words["narrow"][token] * words["scales"][token] if is_narrow else words[token])[None]
    mask = (torch.arange(CACHE) <= position)[None, None, None]

    for layer, cached_keys, cached_values in zip(layers_of(p), keys, values, strict=True):

        def attend(q: Any, k: Any, v: Any, keys: Any = cached_keys, values: Any = cached_values) -> Any:
            keys[position], values[position] = k[0], v[0]
            return shared_attention(q, keys, values, attn_mask=mask)

        x = decoder_layer(x, layer, position.float()[None], attend)
    x = rms_normalized(x, p["norm"])[0]
    logits = (words["narrow"].to(x.dtype) @ x) * words["scales"] if is_narrow else words @ x
    return logits, keys, values


def convolved(x: Any, p: Tree, stride: int, *, trains: bool) -> Any:
    """A convolution with XLA's SAME padding, and its batch normalization."""
    kernel = p["kernel"]
    padding: list[int] = []
    for extent, size in zip(x.shape[:1:-1], kernel.shape[:1:-1], strict=True):
        total = max((-(-extent // stride) - 1) * stride + size - extent, 0)
        padding += [total // 2, total - total // 2]
    if padding[0] == padding[1]:
        x = nn.conv2d(x, kernel, stride=stride, padding=padding[0])
    else:
        x = nn.conv2d(nn.pad(x, padding), kernel, stride=stride)
    scale, offset = p["norm"]["scale"], p["norm"]["offset"]
    if trains:
        return nn.batch_norm(x, None, None, scale, offset, training=True, eps=1e-5)
    return x * scale[:, None, None] + offset[:, None, None]


def resnet(p: Tree, x: Any, *, trains: bool = False) -> Any:
    """Logits of ResNet-50."""
    x = torch.relu(convolved(x, p["stem"], 2, trains=trains))
    x = nn.max_pool2d(nn.pad(x, (0, 1, 0, 1), value=-torch.inf), 3, 2)
    for block, stride in zip(p["blocks"], weights.strides(), strict=True):
        y = torch.relu(convolved(x, block["reduce"], 1, trains=trains))
        y = torch.relu(convolved(y, block["middle"], stride, trains=trains))
        y = convolved(y, block["expand"], 1, trains=trains)
        shortcut = convolved(x, block["shortcut"], stride, trains=trains) if "shortcut" in block else x
        x = torch.relu(y + shortcut)
    return x.mean((2, 3)) @ p["classes"]


def lstm(p: Tree, tokens: Any) -> Any:
    """Logits of a language model of two LSTM layers."""
    x = p["words"][tokens]
    for layer in p["layers"]:
        zero = torch.zeros(1, *x.shape[1:])
        flat = [layer["input"].T, layer["state"].T, layer["bias"], torch.zeros_like(layer["bias"])]
        x, _, _ = torch._VF.lstm(x, (zero, zero), flat, True, 1, 0.0, True, False, False)
    return x @ p["out"]


def cross_entropy(logits: Any, labels: Any) -> Any:
    """Mean negative log-probability of the labels."""
    return nn.cross_entropy(logits.float().reshape(-1, logits.shape[-1]), labels.reshape(-1))


def _encoder(sizes: Transformer) -> tuple[Tree, Any]:
    p, tokens = weights.encoder(sizes)
    return p, tokens.astype(np.int64)


def _decoder(kind: Any) -> tuple[Tree, Any]:
    p, tokens = weights.stacked_decoder(SMOLLM)
    return mapped(lambda w: torch.from_numpy(w).to(kind), p), tokens.astype(np.int64)


def _resnet(batch: int) -> tuple[Tree, Any, Any]:
    """Return weights and images in PyTorch's orders, in memory channels last as JAX has them."""
    p, images, labels = weights.resnet(batch)
    last = lambda w: torch.from_numpy(w.transpose(3, 2, 0, 1) if w.ndim == 4 else w)  # noqa: E731
    return mapped(last, p), torch.from_numpy(images.transpose(0, 3, 1, 2)), labels.astype(np.int64)


def gpt2_train() -> tuple[Function, Any]:
    """A step of AdamW on 128 tokens."""
    p, tokens = _encoder(GPT2)
    square = mapped(lambda w: np.full_like(w, 1e-4), p)
    loss = lambda p, t: cross_entropy(gpt2(p, t)[:-1], t[1:])  # noqa: E731
    return adam(loss), (p, mapped(np.zeros_like, p), square, tokens)


def smollm_train(kind: Any = torch.float32) -> tuple[Function, Any]:
    """A step of gradient descent on 128 tokens."""
    return descended(lambda p, t: cross_entropy(smollm(p, t)[:-1], t[1:])), _decoder(kind)


def smollm_decode(kind: Any = torch.float32, *, narrow: bool = False) -> tuple[Function, Any]:
    """A token, after a hundred others."""
    p, tokens = _decoder(kind)
    if narrow:
        p = weights.quantized(weights.stacked_decoder(SMOLLM)[0])
    cache = torch.zeros(SMOLLM.layers, CACHE, SMOLLM.key_heads, SMOLLM.head, dtype=kind)
    return smollm_token, (p, cache, cache.clone(), np.int64(tokens[0]), np.int64(100))


def resnet50_train() -> tuple[Function, Any]:
    """A step of gradient descent on four images."""
    return descended(lambda p, x, y: cross_entropy(resnet(p, x, trains=True), y)), _resnet(4)


def lstm_train() -> tuple[Function, Any]:
    """A step of gradient descent on 20 texts of 35 words."""
    p, tokens = weights.lstm()
    return descended(lambda p, t: cross_entropy(lstm(p, t[:-1]), t[1:])), (p, tokens.astype(np.int64))


MODELS: dict[str, Callable[[], tuple[Function, Any]]] = {
    "gpt2_train": gpt2_train,
    "bert_forward": lambda: (bert, _encoder(BERT)),
    "resnet50_forward": lambda: (resnet, _resnet(1)[:2]),
    "resnet50_train": resnet50_train,
    "lstm_train": lstm_train,
    "smollm_forward": lambda: (smollm, _decoder(torch.float32)),
    "smollm_train": smollm_train,
    "smollm_decode": smollm_decode,
    "smollm_forward_bf16": lambda: (smollm, _decoder(torch.bfloat16)),
    "smollm_train_bf16": lambda: smollm_train(torch.bfloat16),
    "smollm_decode_bf16": lambda: smollm_decode(torch.bfloat16),
    "smollm_decode_int8": lambda: smollm_decode(narrow=True),
}
"""By name as in `jax_models`."""


class Model:
    """A model by its name, as `benchmarks.child` runs programs; compiled if TORCH_COMPILED is 1."""

    TOLERANCE = 0.05

    def __init__(self, name: str) -> None:
        self._create = MODELS[name]
        self.COMPARED = weights.COMPARED.get(name)
        self._trains = "train" in name

    def build(self) -> Any:
        """Return the function and its arguments."""
        function, arguments = self._create()
        if not self._trains:
            function = compiled(function)
        arguments = mapped(torch.as_tensor, arguments)
        if self._trains:
            for leaf in leaves_of(arguments[0]):
                leaf.requires_grad_()
        return function, arguments

    def step(self, state: Any) -> Any:
        """Run once, training on what the step before returned; return the state and the results."""
        function, arguments = state
        with torch.set_grad_enabled(self._trains):
            results = function(*arguments)
        if self._trains:
            for leaf in leaves_of(results[1]):
                leaf.requires_grad_()
            arguments = (*results[1:], *arguments[len(results) - 1 :])
        return (function, arguments), results

    def ready(self, result: Any) -> Any:
        """Return the result: PyTorch has computed it."""
        return result

    def arrays(self, result: Any) -> list[np.ndarray]:
        """Return the results as NumPy arrays, in JAX's orders of leaves and dimensions."""
        found = [leaf.detach() for leaf in leaves_of(result)]
        wide = [(leaf.float() if leaf.dtype == torch.bfloat16 else leaf).numpy() for leaf in found]
        is_image = self._create is resnet50_train
        return [w.transpose(2, 3, 1, 0) if is_image and w.ndim == 4 else w for w in wide]
