"""Random bits and numbers of the cpu backend: those of the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from tests.native_runs import agree

STATE = np.array([0x123456789ABCDEF0, 0xFFFFFFFFFFFFFFF0, 0xFFFFFFFFFFFFFFFF], np.uint64)


def bits(kind: str, sizes: str, algorithm: str, words: int) -> str:
    result = f"(u64[{words}], {kind}[{sizes}])"
    return f"s = u64[{words}] parameter(0)\nROOT r = {result} rng-bit-generator(s), algorithm={algorithm}"


@pytest.mark.parametrize(
    "sizes", ["", "1", "2", "7", "100", "3,5", "4,33", "3,8,5", "5,3,7", "0", "3,0,2", "2,2,2,3"]
)
@pytest.mark.parametrize("kind", ["u32", "u64", "f32", "s8", "u4", "s2", "bf16", "f64"])
def test_bits(sizes: str, kind: str) -> None:
    agree(bits(kind, sizes, "rng_three_fry", 2), STATE[:2])
    agree(bits(kind, sizes, "rng_philox", 2), STATE[:2])
    if kind in ("u32", "s8"):  # philox, with a word more of state
        agree(bits(kind, sizes, "rng_default", 3), STATE)


def test_published_threefry_value() -> None:
    state, words = agree(bits("u64", "2,2", "rng_three_fry", 2), np.array([1, 2], np.uint64))
    assert state.tolist() == [1, 6]
    assert words[0, 0] == 9236835810183407956


def test_state_goes_on() -> None:
    agree("a = u64[2] rng-get-and-update-state(), delta=5\nb = u64[2] rng-get-and-update-state(), delta=7\n"
          "ROOT r = (u64[2], u64[2]) tuple(a, b)")  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("f32", -1, 2),
        ("f64", 0, 1),
        ("bf16", 1, 1.01),
        ("f16", 3, 3),
        ("s32", -5, 9),
        ("u8", 3, 250),
        ("s64", -(2**62), 2**62),
    ],
)
def test_uniform(kind: str, low: float, high: float) -> None:
    text = (
        f"a = {kind}[] constant({low})\nb = {kind}[] constant({high})\n"
        f"ROOT r = {kind}[6,7] rng(a, b), distribution=rng_uniform"
    )
    agree(text)


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16"])
def test_normal(kind: str) -> None:
    text = (
        f"a = {kind}[] constant(1)\nb = {kind}[] constant(2)\n"
        f"ROOT r = {kind}[50] rng(a, b), distribution=rng_normal"
    )
    agree(text, rounded=True)
