"""Convolutions, normalization and attention of cuDNN."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hloom
from tests import agreement
from tests.library_calls.runs import run


def drawn(*sizes: int, seed: int = 0) -> Any:
    """Draw small integers, whose sums of products are exact."""
    return np.random.default_rng(seed).integers(-4, 5, sizes).astype(np.float32)


def convolution_config(**settings: Any) -> str:
    fields = {"activation_mode": "kNone", "conv_result_scale": 1, "side_input_scale": 0, "leakyrelu_alpha": 0}
    return json.dumps({"cudnn_conv_backend_config": fields | settings})


def shape_of(*sizes: int) -> str:
    return f"f32[{','.join(map(str, sizes))}]"


def convolved(x: Any, kernel: Any, sizes: tuple[int, ...], attributes: str) -> Any:
    """Return an ordinary convolution."""
    text = (
        f"HloModule m\nENTRY e {{\n  x = {shape_of(*x.shape)} parameter(0)\n"
        f"  k = {shape_of(*kernel.shape)} parameter(1)\n"
        f"  ROOT r = {shape_of(*sizes)} convolution(x, k){attributes}\n}}"
    )
    return hloom.compile(hloom.HloModule.from_text(text), "evaluator")(x, kernel)


FORMS = {
    "same": ("b01f_01io->b01f", "size=3x3 pad=1_1x1_1", (2, 6, 5, 3), (3, 3, 3, 4), (2, 6, 5, 4), 1),
    "strided": (
        "bf01_oi01->bf01",
        "size=3x2 stride=2x3 pad=1_0x0_1",
        (2, 3, 8, 7),
        (4, 3, 3, 2),
        (2, 4, 4, 3),
        1,
    ),
    "dilated": ("b0f_0io->b0f", "size=3 pad=0_2 rhs_dilate=2", (2, 9, 2), (3, 2, 5), (2, 7, 5), 1),
    "groups": (
        "b01f_o01i->b01f",
        "size=2x2 stride=2x1 pad=0_1x1_0",
        (2, 5, 4, 6),
        (4, 2, 2, 3),
        (2, 3, 4, 4),
        2,
    ),
}


def attributes_of(form: str) -> str:
    labels, window, _, _, _, groups = FORMS[form]
    return f", window={{{window}}}, dim_labels={labels}, feature_group_count={groups}"


@pytest.mark.parametrize("form", FORMS)
def test_convolutions_and_their_gradients(form: str) -> None:
    """A convolution is linear in each operand: <dy, x * k> = <dx, x> = <dk, k> for every x and k."""
    _, _, of_x, of_kernel, of_y, _ = FORMS[form]
    x, kernel, dy = drawn(*of_x), drawn(*of_kernel, seed=1), drawn(*of_y, seed=2)
    attributes, config = attributes_of(form), convolution_config()
    y = convolved(x, kernel, of_y, attributes)
    found = run(f"({shape_of(*of_y)}, u8[16])", "__cudnn$convForward", [x, kernel], config, attributes)
    agreement.equal(found[0], y)
    shape = f"({shape_of(*of_x)}, u8[0])"
    dx = run(shape, "__cudnn$convBackwardInput", [dy, kernel], config, attributes)[0]
    shape = f"({shape_of(*of_kernel)}, u8[0])"
    dk = run(shape, "__cudnn$convBackwardFilter", [x, dy], config, attributes)[0]
    for seed in range(3, 6):
        other = drawn(*of_x, seed=seed)
        agreement.equal(np.vdot(dx, other), np.vdot(dy, convolved(other, kernel, of_y, attributes)))
        other = drawn(*of_kernel, seed=seed)
        agreement.equal(np.vdot(dk, other), np.vdot(dy, convolved(x, other, of_y, attributes)))


@pytest.mark.parametrize(
    ("mode", "function"),
    [
        ("kNone", lambda v: v),
        ("kRelu", lambda v: np.maximum(v, 0)),
        ("kRelu6", lambda v: np.clip(v, 0, 6)),
        ("kLeakyRelu", lambda v: np.where(v > 0, v, 0.25 * v)),
    ],
)
def test_bias_side_input_and_activation(mode: str, function: Any) -> None:
    _, _, of_x, of_kernel, of_y, _ = FORMS["same"]
    x, kernel, bias, side = drawn(*of_x), drawn(*of_kernel, seed=1), drawn(4, seed=2), drawn(*of_y, seed=3)
    config = convolution_config(
        activation_mode=mode, conv_result_scale=0.5, side_input_scale=2, leakyrelu_alpha=0.25
    )
    attributes = attributes_of("same")
    found = run(
        f"({shape_of(*of_y)}, u8[0])",
        "__cudnn$convBiasActivationForward",
        [x, kernel, bias, side],
        config,
        attributes,
    )
    y = convolved(x, kernel, of_y, attributes)
    agreement.equal(found[0], function(0.5 * y + 2 * side + bias))


def test_results_of_8_bits_are_rounded_and_clamped() -> None:
    _, _, of_x, of_kernel, of_y, _ = FORMS["same"]
    x, kernel, bias = drawn(*of_x), drawn(*of_kernel, seed=1), np.full(4, 0.5, np.float32)
    attributes = attributes_of("same")
    operands = [x.astype(np.int8), kernel.astype(np.int8), bias]
    sizes = ",".join(map(str, of_y))
    config = convolution_config(conv_result_scale=2.5)
    found = run(f"(s8[{sizes}], u8[0])", "__cudnn$convBiasActivationForward", operands, config, attributes)
    y = convolved(x, kernel, of_y, attributes)
    agreement.same(found[0], np.clip(np.rint(2.5 * y + 0.5), -128, 127).astype(np.int8))
    found = run(
        f"(s32[{sizes}], u8[0])", "__cudnn$convForward", operands[:2], convolution_config(), attributes
    )
    agreement.same(found[0], y.astype(np.int32))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"activation_mode": "kBandPass"}, "the activation BANDPASS"),
        ({"reordered_int8_nchw_vect": True}, "reordered"),
    ],
)
def test_convolutions_that_are_not_emulated(settings: dict[str, Any], words: str) -> None:
    _, _, of_x, of_kernel, of_y, _ = FORMS["same"]
    operands = [drawn(*of_x), drawn(*of_kernel), drawn(4)]
    with pytest.raises(hloom.HloError, match=words):
        run(
            f"({shape_of(*of_y)}, u8[0])", "__cudnn$convBiasActivationForward", operands,
            convolution_config(**settings), attributes_of("same"),
        )  # fmt: skip


# -- normalization


def norm_config(kind: str) -> str:
    return json.dumps({"cudnn_norm_backend_config": {"epsilon": 0.125, "kind": kind}})


def test_layer_normalization() -> None:
    x, scale, bias = drawn(5, 4, 2, 1), drawn(4, 2, 1, 1, seed=1), drawn(4, 2, 1, 1, seed=2)
    found = run("(f32[5,4,2,1], u8[8])", "__cudnn$norm", [x, scale, bias], norm_config("LAYER_FWD_INFER"))
    rows = x.reshape(5, 8).astype(np.float64)
    factor = 1 / np.sqrt(rows.var(1, keepdims=True) + 0.125)
    wanted = (rows - rows.mean(1, keepdims=True)) * factor * scale.reshape(8) + bias.reshape(8)
    # sums of 8 terms up to 4, a root, and three roundings of values up to 16
    agreement.within(found[0], wanted.reshape(x.shape), 1e-5)
    shape = "(f32[5,4,2,1], f32[5,1,1,1], f32[5,1,1,1], u8[8])"
    trained = run(shape, "__cudnn$norm", [x, scale, bias], norm_config("LAYER_FWD_TRAIN"))
    agreement.same(trained[0], found[0])
    agreement.within(trained[1].reshape(5), rows.mean(1), 1e-6)
    agreement.within(trained[2].reshape(5), factor.reshape(5), 1e-6)


def test_gradients_of_normalization_are_not_emulated() -> None:
    with pytest.raises(hloom.HloError, match="the kind LAYER_BWD"):
        run("(f32[5,4], u8[8])", "__cudnn$norm", [drawn(5, 4), drawn(4), drawn(4)], norm_config("LAYER_BWD"))


# -- attention

NUMBERS = {
    "bmm1_dot_dimension_numbers": {
        "lhs_contracting_dimensions": ["3"], "rhs_contracting_dimensions": ["3"],
        "lhs_batch_dimensions": ["0", "2"], "rhs_batch_dimensions": ["0", "2"],
    },
    "bmm2_dot_dimension_numbers": {
        "lhs_contracting_dimensions": ["3"], "rhs_contracting_dimensions": ["1"],
        "lhs_batch_dimensions": ["0", "1"], "rhs_batch_dimensions": ["0", "2"],
    },
}  # fmt: skip
BATCH, QUERIES, KEYS, HEADS, WIDTH = 2, 5, 7, 3, 4


def attention_config(**settings: Any) -> str:
    fields = {"fmha_scale": 0.5, "dropout_rate": 0, "mask_type": "NO_MASK", "sliding_window_length": 0}
    return json.dumps({"cudnn_fmha_backend_config": fields | NUMBERS | settings})


def attended(q: Any, k: Any, v: Any, *, seen: Any = True, bias: Any = 0.0) -> tuple[Any, Any]:
    """Return attention in f64, and the logarithms of the sums."""
    scores = 0.5 * np.einsum("bqhd,bkhd->bhqk", q, k).astype(np.float64) + bias
    scores = np.where(seen, scores, -np.inf)
    sums = np.exp(scores).sum(-1)
    return np.einsum("bhqk,bkhd->bhqd", np.exp(scores) / sums[..., None], v), np.log(sums)


@pytest.fixture
def inputs() -> list[Any]:
    return [drawn(BATCH, length, HEADS, WIDTH, seed=n) / 4 for n, length in enumerate((QUERIES, KEYS, KEYS))]


RESULT = f"f32[{BATCH},{HEADS},{QUERIES},{WIDTH}]"
QUERY, KEY = np.arange(QUERIES)[:, None], np.arange(KEYS)[None]
NEAR = 1e-5
"""Bound of values up to 1 behind 7 exponentials of numbers up to 4, their sum, a division and a sum of 7."""


@pytest.mark.parametrize(
    ("settings", "seen"),
    [
        ({}, True),
        ({"mask_type": "CAUSAL"}, KEY <= QUERY),
        ({"mask_type": "CAUSAL", "sliding_window_length": 2}, (KEY <= QUERY) & (KEY > QUERY - 2)),
    ],
)
def test_attention(inputs: list[Any], settings: dict[str, Any], seen: Any) -> None:
    found = run(f"({RESULT}, u8[8])", "__cudnn$fmhaSoftmax", inputs, attention_config(**settings))
    agreement.within(found[0], attended(*inputs, seen=seen)[0], NEAR)


def test_attention_for_training_with_a_bias(inputs: list[Any]) -> None:
    bias = drawn(1, HEADS, QUERIES, KEYS, seed=9) / 2
    shape = f"({RESULT}, f32[{BATCH},{HEADS},{QUERIES}], u8[8])"
    found = run(shape, "__cudnn$fmhaScaleBiasSoftmax", [*inputs, bias], attention_config())
    wanted, logarithms = attended(*inputs, bias=bias)
    agreement.within(found[0], wanted, NEAR)
    agreement.within(found[1], logarithms, NEAR)


def test_attention_to_padded_sequences(inputs: list[Any]) -> None:
    queries, keys = np.array([5, 3], np.int32), np.array([7, 2], np.int32)
    found = run(
        f"({RESULT}, u8[8])",
        "__cudnn$fmhaSoftmax",
        [*inputs, queries, keys],
        attention_config(mask_type="PADDING"),
    )
    wanted = attended(*inputs, seen=keys[:, None, None, None] > KEY)[0]
    wanted = np.where(queries[:, None, None, None] > QUERY, wanted, 0)
    agreement.within(found[0], wanted, NEAR)


def test_attention_in_bf16(inputs: list[Any]) -> None:
    narrow = [x.astype(ml_dtypes.bfloat16) for x in inputs]
    found = run(
        f"({RESULT.replace('f32', 'bf16')}, u8[8])", "__cudnn$fmhaSoftmax", narrow, attention_config()
    )
    # weights and results are rounded to 8 bits
    queries, keys, values = inputs
    bound = 2.0**-8 * (1 + attended(queries, keys, np.abs(values))[0])
    agreement.within(found[0], attended(*inputs)[0], bound)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"dropout_rate": 0.1}, "at random"),
        ({"mask_type": "ALIBI"}, "the mask ALIBI"),
        ({"max_seg_per_batch": 2}, "packed"),
        ({"mask_type": "PADDING"}, "0 operands left for PADDING"),
    ],
)
def test_attention_that_is_not_emulated(inputs: list[Any], settings: dict[str, Any], words: str) -> None:
    with pytest.raises(hloom.HloError, match=words) as caught:
        run(f"({RESULT}, u8[8])", "__cudnn$fmhaSoftmax", inputs, attention_config(**settings))
    assert caught.value.rule == "custom-call.emulation"
