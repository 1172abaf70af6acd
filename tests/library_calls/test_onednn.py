"""Calls of oneDNN, and JAX's Threefry."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import pytest

import hloom
from tests import agreement
from tests.arrays import f32
from tests.library_calls.runs import run

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 11
Y = np.arange(40, dtype=np.float32).reshape(2, 4, 5) - 20
BIAS = np.array([3, 0, -5, 7, 100], np.float32)


def matmul(**settings: Any) -> str:
    return json.dumps({"outer_dimension_partitions": [], "onednn_matmul_config": settings})


def bits(value: float) -> int:
    """Return the integer with the bits of an f32."""
    return struct.unpack("<i", struct.pack("<f", value))[0]


def test_products_of_batches() -> None:
    agreement.equal(run("f32[2,3,5]", "__onednn$matmul", [X, Y]), X @ Y)
    turned = [X.swapaxes(1, 2).copy(), Y.swapaxes(1, 2).copy()]
    config = matmul(transpose_a=True, transpose_b=True)
    agreement.equal(run("f32[2,3,5]", "__onednn$matmul", turned, config), X @ Y)
    agreement.equal(run("f32[2,3,5]", "__onednn$matmul", [X, Y[0]]), X @ Y[0])


def test_fused_operations_take_their_operands_in_order() -> None:
    fusions = {"ops": ["BIAS", "RELU", "LINEAR", "BINARY_ADD"], "alpha_typecast": bits(0.5)}
    added = np.arange(5, dtype=np.float32).reshape(1, 1, 5)
    found = run("f32[2,3,5]", "__onednn$matmul", [X, Y, BIAS, added], matmul(fusions=fusions))
    agreement.equal(found, 0.5 * np.maximum(X @ Y + BIAS, 0) + added)


def test_older_configurations_and_scratchpads() -> None:
    found = run("(f32[2,3,5], u8[64])", "__onednn$matmul", [X, Y, BIAS], matmul(fused_ops=["BIAS"]))
    agreement.equal(found[0], X @ Y + BIAS)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (matmul(optimization_config={"weights_prepacked": True}), "prepacked"),
        (matmul(fusions={"ops": ["SWISH"]}), "the fused operation SWISH"),
        (matmul(), "1 operand left behind the product"),
    ],
)
def test_products_that_are_not_emulated(config: str, words: str) -> None:
    with pytest.raises(hloom.HloError, match=words):
        run("f32[2,3,5]", "__onednn$matmul", [X, Y, BIAS], config)


def test_softmax_along_an_axis() -> None:
    config = json.dumps({"onednn_softmax_config": {"softmax_axis": 1}})
    found = run("f32[2,3,4]", "__onednn$softmax", [X / 8], config)
    powers = np.exp(X.astype(np.float64) / 8)
    agreement.within(found, powers / powers.sum(1, keepdims=True), 1e-6)


@pytest.mark.parametrize("rescale", ["UNDEFINED", "SCALE", "SHIFT", "SCALE_AND_SHIFT"])
def test_layer_normalization(rescale: str) -> None:
    scale, shift = f32([1, 2, -1, 0.5]), f32([3, 0, 1, -2])
    config = json.dumps({"onednn_layer_norm_config": {"rescale": rescale, "epsilon_typecast": bits(0.25)}})
    operands = [X, *([scale] if "SCALE" in rescale else []), *([shift] if "SHIFT" in rescale else [])]
    found = run("f32[2,3,4]", "__onednn$layernorm", operands, config)
    wide = X.astype(np.float64)
    wanted = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 0.25)
    wanted = wanted * (scale if "SCALE" in rescale else 1) + (shift if "SHIFT" in rescale else 0)
    agreement.within(found, wanted, 1e-5)


def test_threefry_hashes_as_in_random123() -> None:
    """The known answers of the Random123 library for 20 rounds."""
    ones = 0xFFFFFFFF
    keys = np.array([[0, ones, 0x13198A2E], [0, ones, 0x03707344]], np.uint32)
    words = np.array([[0, ones, 0x243F6A88], [0, ones, 0x85A308D3]], np.uint32)
    found = run("(u32[3], u32[3])", "cu_threefry2x32", [*keys, *words], '"\\003"')
    agreement.same(found[0], np.array([0x6B200159, 0x1CB996FC, 0xC4923A9C], np.uint32))
    agreement.same(found[1], np.array([0x99BA4EFE, 0xBB002BE7, 0x483DF7A0], np.uint32))
