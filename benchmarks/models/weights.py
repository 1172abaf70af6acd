"""Weights and inputs of the models as NumPy arrays, equal for every framework."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Tree = Any
"""Nested dicts and lists of arrays."""
SCALE = 0.02
COMPARED = {"resnet50_train": 1}
"""Steps whose results are compared, of models whose second step amplifies the rounding errors of the first:
offsets of f32 then differ from those of f64 by 1.5 of the largest one, by JAX's own client too."""


@dataclass(frozen=True)
class Transformer:
    """The sizes of a transformer: layers, width, heads, heads of keys, hidden width, words, tokens."""

    layers: int
    width: int
    heads: int
    key_heads: int
    hidden: int
    words: int
    tokens: int = 128

    @property
    def head(self) -> int:
        """The width of a head."""
        return self.width // self.heads


GPT2 = Transformer(12, 768, 12, 12, 3072, 50257)
BERT = Transformer(12, 768, 12, 12, 3072, 30522)
SMOLLM = Transformer(30, 576, 9, 3, 1536, 49152)
CACHE = 512
"""Positions of the caches of a decoding step."""
LSTM_WORDS, LSTM_WIDTH, LSTM_STEPS, LSTM_BATCH = 10_000, 650, 35, 20
RESNET_STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
"""Blocks, width and stride of each stage of ResNet-50."""


class Draw:
    """Random arrays from one seed."""

    def __init__(self, seed: int = 0) -> None:
        self._generator = np.random.default_rng(seed)

    def normal(self, *shape: int, scale: float = SCALE) -> np.ndarray:
        """Return normal f32 numbers."""
        return self._generator.standard_normal(shape, dtype=np.float32) * np.float32(scale)

    def integers(self, high: int, *shape: int) -> np.ndarray:
        """Return s32 numbers from 0 to ``high - 1``."""
        return self._generator.integers(0, high, shape).astype(np.int32)

    def small(self, *shape: int) -> np.ndarray:
        """Return s8 numbers from -127 to 127."""
        return self._generator.integers(-127, 128, shape).astype(np.int8)


def norm(width: int, *leading: int) -> Tree:
    """Return scale and offset of a normalization."""
    return {
        "scale": np.ones((*leading, width), np.float32),
        "offset": np.zeros((*leading, width), np.float32),
    }


def encoder(sizes: Transformer) -> tuple[Tree, np.ndarray]:
    """Return weights of GPT-2's or BERT's form, one dict a layer, and tokens."""
    draw, d, f = Draw(), sizes.width, sizes.hidden

    def layer() -> Tree:
        return {
            "qkv": draw.normal(d, 3 * d),
            "qkv_bias": draw.normal(3 * d),
            "out": draw.normal(d, d),
            "out_bias": draw.normal(d),
            "up": draw.normal(d, f),
            "up_bias": draw.normal(f),
            "down": draw.normal(f, d),
            "down_bias": draw.normal(d),
            "norm1": norm(d),
            "norm2": norm(d),
        }

    weights = {
        "words": draw.normal(sizes.words, d),
        "positions": draw.normal(1024, d),
        "layers": [layer() for _ in range(sizes.layers)],
        "norm": norm(d),
    }
    return weights, draw.integers(sizes.words, sizes.tokens)


def stacked_decoder(sizes: Transformer) -> tuple[Tree, np.ndarray]:
    """Return weights of SmolLM2's form, stacked over the layers, and tokens."""
    draw, d, f, k = Draw(), sizes.width, sizes.hidden, sizes.key_heads * sizes.head
    shapes = {
        "q": (d, d),
        "k": (d, k),
        "v": (d, k),
        "o": (d, d),
        "gate": (d, f),
        "up": (d, f),
        "down": (f, d),
    }
    layers = {name: draw.normal(sizes.layers, *shape) for name, shape in shapes.items()}
    layers["norms"] = np.ones((sizes.layers, 2, d), np.float32)
    weights = {"words": draw.normal(sizes.words, d), "layers": layers, "norm": np.ones(d, np.float32)}
    return weights, draw.integers(sizes.words, sizes.tokens)


def quantized(weights: Tree) -> Tree:
    """Return the matrices of a stacked decoder as s8 numbers with f32 scales of columns (words: of rows)."""
    draw = Draw(1)

    def narrow(matrix: np.ndarray, axis: int) -> Tree:
        scales = np.abs(draw.normal(*np.delete(matrix.shape, axis), scale=1e-3))
        return {"narrow": draw.small(*matrix.shape), "scales": scales}

    layers = {k: v if k == "norms" else narrow(v, 1) for k, v in weights["layers"].items()}
    return {"words": narrow(weights["words"], 1), "layers": layers, "norm": weights["norm"]}


def resnet(batch: int) -> tuple[Tree, np.ndarray, np.ndarray]:
    """Return ResNet-50's weights (HWIO), images (NHWC) and labels."""
    draw, blocks, width = Draw(), [], 64

    def convolution(size: int, features: int, filters: int) -> Tree:
        return {"kernel": draw.normal(size, size, features, filters), "norm": norm(filters)}

    stem = convolution(7, 3, 64)
    for count, filters, _ in RESNET_STAGES:
        for number in range(count):
            block = {
                "reduce": convolution(1, width, filters),
                "middle": convolution(3, filters, filters),
                "expand": convolution(1, filters, 4 * filters),
            }
            if number == 0:
                block["shortcut"] = convolution(1, width, 4 * filters)
            blocks.append(block)
            width = 4 * filters
    weights = {"stem": stem, "blocks": blocks, "classes": draw.normal(width, 1000)}
    return weights, draw.normal(batch, 224, 224, 3, scale=1.0), draw.integers(1000, batch)


def strides() -> list[int]:
    """Return the stride of each block of ResNet-50."""
    return [stride if number == 0 else 1 for count, _, stride in RESNET_STAGES for number in range(count)]


def lstm() -> tuple[Tree, np.ndarray]:
    """Return the weights of a language model of two LSTM layers, and tokens [step + 1, batch]."""
    draw, n = Draw(), LSTM_WIDTH

    def layer() -> Tree:
        return {
            "input": draw.normal(n, 4 * n),
            "state": draw.normal(n, 4 * n),
            "bias": draw.normal(4 * n),
        }

    weights = {
        "words": draw.normal(LSTM_WORDS, n),
        "layers": [layer(), layer()],
        "out": draw.normal(n, LSTM_WORDS),
    }
    return weights, draw.integers(LSTM_WORDS, LSTM_STEPS + 1, LSTM_BATCH)
