"""Passes that write operations out in other ones: the result is the same, and the operation is gone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hloom.errors import HloError
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.cloning import clone_module
from hloom.passes.expand.async_collective_custom_calls import AsyncCollectiveCustomCalls
from hloom.passes.expand.batchnorm_expander import BatchNormExpander
from hloom.passes.expand.fft_decomposer import FftDecomposer, convolution_length, largest_factor
from hloom.passes.expand.linear_algebra_upcaster import LinearAlgebraUpcaster
from hloom.passes.expand.map_inliner import MapInliner
from hloom.passes.expand.result_caster import ResultCaster
from hloom.passes.expand.rng_expander import RngExpander
from hloom.passes.expand.scaled_dot_rewriter import ScaledDotRewriter
from hloom.passes.expand.synchronous_operations import SynchronousOperations
from hloom.passes.expand.topk_decomposer import TopkDecomposer
from hloom.passes.pipeline import Pass
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import arguments
from tests.reducers import with_reducers


def expanded(expander: Pass, text: str, gone: str = "") -> Any:
    """The module after a pass that changed it; evaluated, it gives what it gave before."""
    before = parse(text)
    before.verify()
    after = clone_module(before)
    assert expander.run(after)
    after.verify()
    assert not expander.run(clone_module(after))
    assert gone not in {i.opcode for i in after.instructions()}
    for seed in range(3):
        given = arguments(np.random.default_rng(seed), text)
        agreement.computed(Evaluator().run(after.entry, given), before, given)
    return after


MAP = """HloModule m
f {{ a = {0}[] parameter(0)
  b = {0}[] parameter(1)
  c = {0}[] constant(3)
  d = {0}[] multiply(a, c)
  ROOT e = {0}[] subtract(d, b) }}
ENTRY e {{ x = f32[3,4] parameter(0)
  y = f32[{1}] parameter(1)
  ROOT r = {0}[3,4] map(x, y), dimensions={{0,1}}, to_apply=f }}"""


@pytest.mark.parametrize(("kind", "sizes"), [("f32", "3,4"), ("f32", ""), ("f64", "3,4"), ("bf16", "3,4")])
def test_map(kind: str, sizes: str) -> None:
    expanded(MapInliner(), MAP.format(kind, sizes), "map")


def test_map_of_a_loop_stays() -> None:
    text = """HloModule m
    body { s = s32[] parameter(0)
      ROOT r = s32[] add(s, s) }
    condition { s = s32[] parameter(0)
      c = s32[] constant(100)
      ROOT r = pred[] compare(s, c), direction=LT }
    f { a = s32[] parameter(0)
      ROOT w = s32[] while(a), condition=condition, body=body }
    ENTRY e { x = s32[3] parameter(0)
      ROOT r = s32[3] map(x), dimensions={0}, to_apply=f }"""
    assert not MapInliner().run(parse(text))


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("index", [0, 1, 2])
def test_batch_normalization(kind: str, index: int) -> None:
    features = f"{kind}[{(4, 5, 3)[index]}]"
    x = f"{kind}[4,5,3]"
    options = f"epsilon=0.001, feature_index={index}"
    vectors = "".join(f"p{n} = {features} parameter({n})\n" for n in (1, 2))
    training = (
        f"x = {x} parameter(0)\n{vectors}"
        f"ROOT r = ({x}, {features}, {features}) batch-norm-training(x, p1, p2), {options}"
    )
    expanded(BatchNormExpander(), training, "batch-norm-training")
    variance = f"v = {features} parameter(3)\ns = {features} multiply(v, v)\n"
    inference = (
        f"x = {x} parameter(0)\n{vectors}m = {features} parameter(4)\n{variance}"
        f"ROOT r = {x} batch-norm-inference(x, p1, p2, m, s), {options}"
    )
    expanded(BatchNormExpander(), inference, "batch-norm-inference")
    gradient = (
        f"x = {x} parameter(0)\n{vectors}{variance}g = {x} parameter(4)\n"
        f"ROOT r = ({x}, {features}, {features}) batch-norm-grad(x, p1, p2, s, g), {options}"
    )
    expanded(BatchNormExpander(), gradient, "batch-norm-grad")


def test_copies_in_two_steps() -> None:
    text = "x = f32[4] parameter(0)\ns = (f32[4], f32[4], u32[]) copy-start(x)\nROOT r = f32[4] copy-done(s)"
    expanded(SynchronousOperations(), text, "copy-start")


def test_computations_in_two_steps() -> None:
    text = """HloModule m
    c { p = f32[4] parameter(0)
      ROOT q = f32[4] add(p, p) }
    ENTRY e { x = f32[4] parameter(0)
      s = ((f32[4]), f32[4], u32[]) async-start(x), calls=c
      u = ((f32[4]), f32[4], u32[]) async-update(s)
      ROOT r = f32[4] async-done(u) }"""
    expanded(SynchronousOperations(), text, "async-start")


@pytest.mark.parametrize(
    "config",
    [
        "[",
        "3",
        '{"replica_groups": 3}',
        '{"replica_groups": [[0.5]]}',
        '{"replica_groups": [0], "channel_id": 1}',
    ],
)
def test_fields_of_collectives_in_custom_calls_are_checked(config: str) -> None:
    module = parse(
        with_reducers("""HloModule m
        ENTRY e { x = f32[4] parameter(0)
          s = f32[4] custom-call(x), custom_call_target="all-reduce-start", called_computations={add}
          ROOT r = f32[4] custom-call(s), custom_call_target="all-reduce-done" }""")
    )
    start = module.entry.root.operands[0]
    start.frontend_attributes = {"async_collective_config": config}
    with pytest.raises(HloError) as error:
        AsyncCollectiveCustomCalls().run(module)
    assert error.value.rule == "collective.async-config"
    assert error.value.instruction == "s"


@pytest.mark.parametrize("kind", ["f32", "f64", "s32", "u8", "pred", "bf16"])
@pytest.mark.parametrize("largest", ["true", "false"])
def test_topk(kind: str, largest: str) -> None:
    text = f"x = {kind}[3,9] parameter(0)\nROOT r = ({kind}[3,4], s32[3,4]) topk(x), k=4, largest={largest}"
    expanded(TopkDecomposer(bits=0), text, "topk")


def test_small_topk_stays() -> None:
    text = "x = f32[3,9] parameter(0)\nROOT r = (f32[3,4], s32[3,4]) topk(x), k=4, largest=true"
    assert not TopkDecomposer().run(parse(text))


@pytest.mark.parametrize(
    ("kind", "distribution"),
    [(k, "rng_uniform") for k in ("f32", "f64", "bf16", "s32", "u8", "s64")]
    + [("f32", "rng_normal"), ("f64", "rng_normal")],
)
def test_rng(kind: str, distribution: str) -> None:
    text = (
        f"a = {kind}[] parameter(0)\nb = {kind}[] parameter(1)\n"
        f"ROOT r = {kind}[5,3] rng(a, b), distribution={distribution}"
    )
    expanded(RngExpander(), text, "rng")


def test_narrow_and_small_matrices() -> None:
    text = """
    a = {0}[2,{1},{1}] parameter(0)
    b = {0}[2,{1},3] parameter(1)
    ROOT r = {0}[2,{1},3] triangular-solve(a, b), left_side=true, lower=true, unit_diagonal=true,
      transpose_a=NO_TRANSPOSE
    """
    for kind, n, wide in (("bf16", 20, "f32"), ("f32", 4, "f64"), ("c64", 4, "c128")):
        after = expanded(LinearAlgebraUpcaster(), text.format(kind, n))
        (solve,) = [i for i in after.instructions() if i.opcode == "triangular-solve"]
        assert solve.shape.element_type.name == wide
    assert not LinearAlgebraUpcaster().run(parse(text.format("f32", 40)))


@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [("FFT", "c64", "c64"), ("IFFT", "c128", "c128"), ("RFFT", "f32", "c64"), ("IRFFT", "c64", "f32")],
)
@pytest.mark.parametrize("lengths", [(47,), (3, 53), (53, 4)])
def test_awkward_transforms(kind: str, before: str, after: str, lengths: tuple[int, ...]) -> None:
    half = (*lengths[:-1], lengths[-1] // 2 + 1)
    sizes = [
        ",".join(map(str, (2, *s)))
        for s in ((half if kind == "IRFFT" else lengths), (half if kind == "RFFT" else lengths))
    ]
    text = (
        f"x = {before}[{sizes[0]}] parameter(0)\n"
        f"ROOT r = {after}[{sizes[1]}] fft(x), fft_type={kind}, fft_length={{{','.join(map(str, lengths))}}}"
    )
    after_module = expanded(FftDecomposer(), text)
    assert all(
        set(i.operation.fft_length) <= {3, 4, 64, 32, 128}
        for i in after_module.instructions()
        if i.opcode == "fft"
    )  # type: ignore[attr-defined]


def test_scaled_dot() -> None:
    text = """
    a = f8e4m3fn[4,64] parameter(0)
    s = f32[4,2] parameter(1)
    b = bf16[64,3] parameter(2)
    t = f32[] parameter(3)
    ROOT r = f32[4,3] scaled-dot(a, s, b, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    """
    expanded(ScaledDotRewriter(), text, "scaled-dot")


def test_results_narrower_than_products() -> None:
    text = """
    a = f64[4,6] parameter(0)
    b = f32[6,3] parameter(1)
    ROOT r = f32[4,3] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    """
    after = expanded(ResultCaster(), text)
    (dot,) = [i for i in after.instructions() if i.opcode == "dot"]
    assert dot.shape.element_type.name == "f64"
    assert not ResultCaster().run(parse(text.replace("f64", "f32")))


@pytest.mark.parametrize("least", [1, 17, 256, 257, 513, 1025, 4097, 8198, 100_003])
def test_convolutions_are_as_short_as_lanes_along_them_allow(least: int) -> None:
    """A power of two up to 256; beyond it the next multiple of 256 without primes over 5."""
    power = 1 << (least - 1).bit_length()
    length = convolution_length(least)
    assert least <= length <= power
    if length != power:
        assert length % 256 == 0
        assert largest_factor(length) <= 5
    assert length == power or not any(largest_factor(m) <= 5 for m in range(-(-least // 256), length // 256))
