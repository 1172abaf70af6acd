"""Random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hloom.operations.random import philox_4x32, threefry_2x32
from tests import oracle
from tests.arrays import u32, u64
from tests.evaluation import evaluate
from tests.one_operation import apply, refusal


def generate(algorithm: str, state: list[int], shape: str) -> tuple[list[int], np.ndarray[Any, Any]]:
    """The next state and the bits."""
    after, bits = apply(
        "rng-bit-generator",
        u64(state),
        attributes=f"algorithm={algorithm}",
        result=f"(u64[{len(state)}], {shape})",
    )
    return after.tolist(), bits


# The generators, against the test vectors that Random123 publishes.


@pytest.mark.parametrize(
    ("key", "counter", "wanted"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry(key: tuple[int, int], counter: tuple[int, int], wanted: tuple[int, int]) -> None:
    words = [np.array([word], u32) for word in (*key, *counter)]
    found = threefry_2x32((words[0], words[1]), (words[2], words[3]))
    assert tuple(int(word[0]) for word in found) == wanted


@pytest.mark.parametrize(
    ("key", "counter", "wanted"),
    [
        ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        ((0xA4093822, 0x299F31D0), (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
         (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
    ],
)  # fmt: skip
def test_philox(key: tuple[int, int], counter: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    found = philox_4x32(key, tuple(np.array([word], u32) for word in counter))
    assert tuple(int(word[0]) for word in found) == wanted


# Rng-bit-generator.


def test_threefry_of_state_1_2() -> None:
    state, bits = generate("rng_three_fry", [1, 2], "u64[2,2]")
    assert state == [1, 6]
    assert bits.shape == (2, 2)
    assert bits[0, 0] == 9236835810183407956


def test_the_state_carries_on() -> None:
    state, first = generate("rng_philox", [7, 8, 9], "u32[4]")
    state, second = generate("rng_philox", state, "u32[4]")
    _, both = generate("rng_philox", [7, 8, 9], "u32[8]")
    assert [*first, *second] == both.tolist()
    assert state == [7, 10, 9]


def test_a_philox_counter_carries_into_its_upper_half() -> None:
    state, _ = generate("rng_philox", [7, 2**64 - 1, 2**64 - 1], "u32[8]")
    assert state == [7, 1, 0]


def test_default_is_philox() -> None:
    one, other = (generate(name, [1, 2], "u32[5]") for name in ("rng_default", "rng_philox"))
    assert (one[0], one[1].tolist()) == (other[0], other[1].tolist())


@pytest.mark.parametrize("algorithm", ["rng_three_fry", "rng_philox"])
@pytest.mark.parametrize("shape", ["u32[]", "u64[]", "u32[0]", "u32[2,0,3]", "u8[0]"])
def test_scalars_and_nothing(algorithm: str, shape: str) -> None:
    _, bits = generate(algorithm, [1, 2], shape)
    assert list(bits.shape) == [int(size) for size in shape[:-1].split("[")[1].split(",") if size]


@pytest.mark.parametrize("element_type", ["s4", "s8", "s32", "s64", "f16", "bf16", "f32", "f64", "f8e4m3fn"])
def test_other_types_have_the_same_bits(element_type: str) -> None:
    width = {"f8e4m3fn": 8, "bf16": 16}.get(element_type) or int(element_type[1:])
    _, bits = generate("rng_philox", [1, 2], f"{element_type}[7]")
    _, wanted = generate("rng_philox", [1, 2], f"u{width}[7]")
    if width >= 8:
        assert bits.tobytes() == wanted.tobytes()
    else:
        assert (bits.astype(np.int64) % 2**width).tolist() == wanted.astype(np.int64).tolist()


@pytest.mark.parametrize(("algorithm", "words"), [("rng_three_fry", 2), ("rng_philox", 2), ("rng_philox", 3)])
@pytest.mark.parametrize("element_type", ["u8", "u16", "u32", "u64"])
def test_xla_gives_the_same_bits(algorithm: str, words: int, element_type: str) -> None:
    state = u64([2**63 + 12345, 2**64 - 2, 99][:words])
    shapes = [f"{element_type}[{n}]" for n in ("3", "4", "2,2", "3,5", "5,4", "3,1,7", "1", "", "6,0")]
    pairs = [f"(u64[{words}], {shape})" for shape in shapes]
    lines = [f"g{i} = {pair} rng-bit-generator(s), algorithm={algorithm}" for i, pair in enumerate(pairs)]
    results = ", ".join(f"g{i}" for i in range(len(pairs)))
    body = "\n".join(
        [f"s = u64[{words}] parameter(0)", *lines, f"ROOT r = ({', '.join(pairs)}) tuple({results})"]
    )
    leaves = oracle.run(f"HloModule m\nENTRY e {{\n{body}\n}}", state)
    for number, shape in enumerate(shapes):
        after, bits = generate(algorithm, state.tolist(), shape)
        assert after == leaves[2 * number].tolist()
        assert bits.tolist() == leaves[2 * number + 1].tolist()


@pytest.mark.parametrize(
    ("state", "algorithm", "result", "rule"),
    [
        ("u64[3]", "rng_three_fry", "(u64[3], u32[4])", "state"),
        ("u64[4]", "rng_philox", "(u64[4], u32[4])", "state"),
        ("u32[4]", "rng_default", "(u32[4], u32[4])", "state"),
        ("u64[2,1]", "rng_default", "(u64[2,1], u32[4])", "state"),
        ("u64[2]", "rng_default", "u32[4]", "result"),
        ("u64[2]", "rng_default", "(u64[3], u32[4])", "result"),
        ("u64[2]", "rng_default", "(u64[2], pred[4])", "element-type"),
        ("u64[2]", "rng_default", "(u64[2], c64[4])", "element-type"),
    ],
)
def test_rng_bit_generator_refuses(state: str, algorithm: str, result: str, rule: str) -> None:
    error = refusal("rng-bit-generator", state, attributes=f"algorithm={algorithm}", result=result)
    assert error.rule == f"rng-bit-generator.{rule}"


# Rng.


def uniform(low: Any, high: Any, result: str) -> Any:
    return apply("rng", low, high, attributes="distribution=rng_uniform", result=result)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_uniform_floats_fill_their_interval(dtype: Any) -> None:
    values = uniform(dtype(-1), dtype(3), f"f{np.dtype(dtype).itemsize * 8}[4000]").astype(np.float64)
    assert values.min() >= -1
    assert values.max() < 3
    assert abs(values.mean() - 1) < 0.1
    assert abs(values.var() - 16 / 12) < 0.1


@pytest.mark.parametrize(
    ("low", "high", "result"),
    [
        (np.int32(-3), np.int32(4), "s32[4000]"),
        (np.uint8(250), np.uint8(255), "u8[4000]"),
        (np.int64(-(2**63)), np.int64(-(2**63) + 2), "s64[4000]"),
        (np.uint64(2**64 - 3), np.uint64(2**64 - 1), "u64[4000]"),
    ],
)
def test_uniform_integers_take_every_value(low: Any, high: Any, result: str) -> None:
    assert set(uniform(low, high, result).tolist()) == set(range(int(low), int(high)))


def test_uniform_preds() -> None:
    assert uniform(np.False_, np.True_, "pred[9]").tolist() == [False] * 9


def test_normal_numbers() -> None:
    values = apply(
        "rng", np.float32(5), np.float32(2), attributes="distribution=rng_normal", result="f32[4000]"
    )
    assert abs(values.mean() - 5) < 0.2
    assert abs(values.std() - 2) < 0.2
    assert 0.02 < (np.abs(values - 5) > 4).mean() < 0.08


def test_every_use_gives_other_numbers_and_every_evaluation_the_same() -> None:
    text = """
      a = f32[] constant(0)
      b = f32[] constant(1)
      one = f32[8] rng(a, b), distribution=rng_uniform
      other = f32[8] rng(a, b), distribution=rng_uniform
      ROOT r = (f32[8], f32[8]) tuple(one, other)
    """
    first, again = evaluate(text), evaluate(text)
    assert not set(first[0].tolist()) & set(first[1].tolist())
    assert [v.tolist() for v in first] == [v.tolist() for v in again]


@pytest.mark.parametrize(
    ("shapes", "distribution", "result", "rule"),
    [
        (["f32[1]", "f32[]"], "rng_uniform", "f32[4]", "parameters"),
        (["f32[]", "s32[]"], "rng_uniform", "f32[4]", "parameters"),
        (["f64[]", "f64[]"], "rng_uniform", "f32[4]", "parameters"),
        (["f32[]", "f32[]"], "rng_invalid", "f32[4]", "distribution"),
        (["s32[]", "s32[]"], "rng_normal", "s32[4]", "element-type"),
        (["c64[]", "c64[]"], "rng_uniform", "c64[4]", "element-type"),
    ],
)
def test_rng_refuses(shapes: list[str], distribution: str, result: str, rule: str) -> None:
    error = refusal("rng", *shapes, attributes=f"distribution={distribution}", result=result)
    assert error.rule == f"rng.{rule}"


# Rng-get-and-update-state.


def test_the_state_is_returned_before_it_advances() -> None:
    text = """
      one = u64[2] rng-get-and-update-state(), delta=5
      two = u64[2] rng-get-and-update-state(), delta=1, control-predecessors={one}
      ROOT r = (u64[2], u64[2]) tuple(one, two)
    """
    first, second = evaluate(text)
    assert first.tolist() == [0x7012395, 0]
    assert second.tolist() == [0x7012395 + 5, 0]


def test_xla_begins_with_the_same_state() -> None:
    text = "HloModule m\nENTRY e {\n ROOT r = u64[2] rng-get-and-update-state(), delta=5\n}"
    assert oracle.run(text)[0].tolist() == evaluate(text).tolist()


@pytest.mark.parametrize("shape", ["u64[4]", "u32[2]", "u64[2,1]", "(u64[2])"])
def test_the_state_is_u64_2(shape: str) -> None:
    error = refusal("rng-get-and-update-state", attributes="delta=1", result=shape)
    assert error.rule == "rng-get-and-update-state.shape"
