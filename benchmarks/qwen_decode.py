"""Tokens per second of a model of Qwen3-4B's shape with 4-bit weights, on hloom.

Weights are random; matrices are 4-bit integers, two in a byte, with an f32 scale for each column. The program
generates tokens one after the other, each from the one before, with caches that it updates in place:
``python -m benchmarks.qwen_decode``. Prints the tokens per second of each run, and the bytes of weights that
it reads a second beside the machine's rate.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import hloom
from benchmarks.machine import this_machine
from benchmarks.models.jax_models import rms_normalized, turned
from benchmarks.models.weights import Transformer, Tree

QWEN3_4B = Transformer(layers=36, width=2560, heads=32, key_heads=8, hidden=9728, words=151936)
HEAD = 128
"""The width of a head, which is not the model's width by the number of heads."""
CACHE = 512
"""Positions of the caches."""


def four_bit(rng: np.random.Generator, *shape: int) -> Tree:
    """Return a random matrix, or one for each layer: bytes of two numbers, and scales of columns."""
    packed = np.frombuffer(rng.bytes(int(np.prod(shape)) // 2), np.uint8)
    scales = rng.random((*shape[:-2], shape[-1]), np.float32) * np.float32(0.02 / 7)
    return {"packed": packed.reshape(*shape[:-1], -1), "scales": scales}


def random_weights(sizes: Transformer) -> Tree:
    """Return the weights of all layers, the embedding and the head."""
    rng = np.random.default_rng(0)
    shapes = {
        "q": (sizes.width, sizes.heads * HEAD),
        "k": (sizes.width, sizes.key_heads * HEAD),
        "v": (sizes.width, sizes.key_heads * HEAD),
        "o": (sizes.heads * HEAD, sizes.width),
        "gate": (sizes.width, sizes.hidden),
        "up": (sizes.width, sizes.hidden),
        "down": (sizes.hidden, sizes.width),
    }
    layers = {name: four_bit(rng, sizes.layers, *shape) for name, shape in shapes.items()}
    layers["norms"] = np.ones((sizes.layers, 2, sizes.width), np.float32)
    layers["head_norms"] = np.ones((sizes.layers, 2, HEAD), np.float32)
    words = four_bit(rng, sizes.words, sizes.width)["packed"]
    head = four_bit(rng, sizes.width, sizes.words)
    return {"layers": layers, "words": words, "head": head, "norm": np.ones(sizes.width, np.float32)}


def unpacked(packed: Any) -> Any:
    """Return the 4-bit numbers of bytes, the low bits of each byte first."""
    pairs = lax.bitcast_convert_type(packed, jnp.int4)
    return pairs.reshape(*packed.shape[:-1], -1).astype(jnp.float32)


def times(x: Any, matrix: Tree) -> Any:
    """Return the product with a 4-bit matrix."""
    return (x @ unpacked(matrix["packed"])) * matrix["scales"]


def next_token(p: Tree, state: Any) -> Any:
    """Return (keys, values, token, position) after a token."""
    keys, values, token, position = state
    at = position.astype(jnp.float32)[None]
    mask = jnp.arange(CACHE) <= position

    def heads(x: Any, matrix: Tree, scale: Any = None) -> Any:
        parts = times(x, matrix).reshape(1, -1, HEAD)
        return parts if scale is None else turned(rms_normalized(parts, scale), at)

    def layer(state: Any, inputs: Any) -> Any:
        x, keys, values = state
        number, p = inputs
        h = rms_normalized(x, p["norms"][0])
        q, k = heads(h, p["q"], p["head_norms"][0]), heads(h, p["k"], p["head_norms"][1])
        start = (number, position, 0, 0)
        keys = lax.dynamic_update_slice(keys, k[None].astype(keys.dtype), start)
        values = lax.dynamic_update_slice(values, heads(h, p["v"])[None].astype(values.dtype), start)
        mixed = attention(q, keys[number], values[number], mask)
        x = x + times(mixed, p["o"])
        h = rms_normalized(x, p["norms"][1])
        x = x + times(jax.nn.silu(times(h, p["gate"])) * times(h, p["up"]), p["down"])
        return (x, keys, values), None

    x = unpacked(p["words"][token])[None] * 0.02
    numbers = jnp.arange(QWEN3_4B.layers)
    (x, keys, values), _ = lax.scan(layer, (x, keys, values), (numbers, p["layers"]))
    logits = times(rms_normalized(x, p["norm"]), p["head"])
    return keys, values, jnp.argmax(logits[0]).astype(token.dtype), position + 1


def attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
    """Attention of queries that share heads of keys, as a row."""
    q = q.reshape(k.shape[1], -1, HEAD)
    scores = jnp.einsum("kgd,skd->kgs", q, k.astype(q.dtype)) / np.sqrt(HEAD)
    shares = jax.nn.softmax(jnp.where(mask, scores, -1e9))
    return jnp.einsum("kgs,skd->kgd", shares, v.astype(q.dtype)).reshape(1, -1)


def generate(p: Tree, keys: Any, values: Any, token: Any, position: Any, count: Any) -> Any:
    """Generate a number of tokens; return the last one."""
    state = lax.fori_loop(0, count, lambda _, state: next_token(p, state), (keys, values, token, position))
    return state[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Generate tokens and print how many a second."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.qwen_decode", description=__doc__)
    parser.add_argument("--tokens", type=int, default=16, help="of a run (16)")
    parser.add_argument("--runs", type=int, default=3, help="after the first one (3)")
    options = parser.parse_args(arguments)
    machine = this_machine()
    print(machine)
    p = random_weights(QWEN3_4B)
    weights = sum(x.nbytes for x in jax.tree.leaves((p["layers"], p["head"])))
    cache = np.zeros((QWEN3_4B.layers, CACHE, QWEN3_4B.key_heads, HEAD), jnp.bfloat16)
    values = (p, cache, cache, np.int32(1), np.int32(100), np.int32(options.tokens))
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), values)
    program = hloom.compile(jax.jit(generate).lower(*shapes))
    flat = jax.tree.leaves(values)
    program(*flat[:-1], np.int32(1))
    for _ in range(options.runs):
        start = time.perf_counter()
        program(*flat)
        seconds = (time.perf_counter() - start) / options.tokens
        rate = weights / seconds
        print(
            f"{1 / seconds:.2f} tokens/s, {rate / 1e9:.1f} GB/s of weights ({weights / 1e9:.2f} GB), "
            f"{rate / machine.bandwidth:.0%} of the machine's"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
