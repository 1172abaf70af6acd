"""Reproducible results have the same bits for AVX2 and for AVX-512."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import hloom
from hloom.codegen.target import Target, host, reproducible_target
from hloom.cpu import native
from hloom.cpu.kernels.dot.gemm_plan import DEEP, TilePlan
from hloom.cpu.kernels.dot.matrix_product import plan_of
from hloom.debug.inputs import random_arguments
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.tools.examples.workload import draw_inputs, examples
from tests.cpu.thread_digests import digest
from tests.evaluation import parse

TARGETS = [Target.named("x86_64-linux-gnu", f"x86-64-v{level}") for level in (3, 4)]
EXAMPLES = sorted(path.stem for path in examples().glob("*.hlo"))

needs_avx512 = pytest.mark.skipif(
    os.uname().machine != "x86_64" or not TARGETS[1].features <= host().features,
    reason="code for AVX-512 runs on processors that have it",
)


def convolution(base: str, kernel: str, result: str, attributes: str) -> str:
    return f"""x = {base} parameter(0)
      w = {kernel} parameter(1)
      ROOT y = {result} convolution(x, w), {attributes}"""


def product(kind: str, m: int, k: int, n: int) -> str:
    return f"""x = {kind}[{m},{k}] parameter(0)
      y = {kind}[{k},{n}] parameter(1)
      ROOT z = {kind}[{m},{n}] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"""


def reduction(dimensions: str, result: str) -> str:
    return f"""add {{
      a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT c = f32[] add(a, b)
    }}
    ENTRY e {{
      x = f32[37,53,61] parameter(0)
      zero = f32[] constant(0)
      ROOT y = f32[{result}] reduce(x, zero), dimensions={{{dimensions}}}, to_apply=add
    }}"""


SAME = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
PROGRAMS = {
    "convolution": convolution("f32[2,29,31,24]", "f32[3,3,24,40]", "f32[2,29,31,40]", SAME),
    "large convolution": convolution("f32[1,14,14,160]", "f32[3,3,160,300]", "f32[1,14,14,300]", SAME),
    "few features": convolution("f32[2,29,31,24]", "f32[3,3,24,3]", "f32[2,29,31,3]", SAME),
    "depthwise": convolution(
        "f32[2,29,31,24]", "f32[3,3,1,24]", "f32[2,29,31,24]", f"{SAME}, feature_group_count=24"
    ),
    "strided": convolution(
        "f32[2,29,31,24]",
        "f32[5,5,24,40]",
        "f32[2,15,16,40]",
        "window={size=5x5 stride=2x2 pad=2_2x2_2}, dim_labels=b01f_01io->b01f",
    ),
    "gradient of a kernel": convolution(
        "f32[8,14,14,16]",
        "f32[8,14,14,32]",
        "f32[5,5,16,32]",
        "window={size=14x14 pad=2_2x2_2}, dim_labels=f01b_i01o->01bf",
    ),
    "convolution of f64": convolution("f64[2,9,11,8]", "f64[3,3,8,12]", "f64[2,9,11,12]", SAME),
    "convolution of c64": convolution("c64[2,9,11,8]", "c64[3,3,8,12]", "c64[2,9,11,12]", SAME),
    "sum of rows": reduction("2", "37,53"),
    "sum of columns": reduction("0", "53,61"),
    "sum of all": reduction("0,1,2", ""),
    "reciprocal square root": "x = f32[1000] parameter(0)\n ROOT y = f32[1000] rsqrt(x)",
    "fft": "x = c64[7,60] parameter(0)\n ROOT y = c64[7,60] fft(x), fft_type=FFT, fft_length={60}",
    "cholesky": "x = f32[40,40] parameter(0)\n ROOT y = f32[40,40] cholesky(x), lower=true",
    **{
        f"product {kind} {m} {k} {n}": product(kind, m, k, n)
        for kind in ("f32", "f64", "bf16", "c64")
        for m, k, n in ((1, 300, 1), (1, 300, 200), (200, 300, 1), (5, 77, 3), (70, 1100, 90), (1, 20000, 3))
    },
}


def results(module: HloModule, inputs: Sequence[object], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the digest of a program's result for each target."""
    monkeypatch.setenv("HLOOM_CACHE", "0")
    digests: list[str] = []
    for target in TARGETS:
        monkeypatch.setattr(native, "host", lambda target=target: target)
        digests.append(digest(hloom.compile(module, reproducible=True)(*inputs)))
    return digests


@pytest.mark.parametrize("kind", ["f32", "f64", "c64"])
@pytest.mark.parametrize("m", [9, 17, 70, 600])
@pytest.mark.parametrize("k", [300, 1100, 3072])
@pytest.mark.parametrize("n", [90, 2048])
def test_sums_of_products_have_the_same_blocks(kind: str, m: int, k: int, n: int) -> None:
    """On every processor, so that a machine without AVX-512 tells as well."""
    (dot,) = (
        i for i in parse(f"ENTRY e {{\n{product(kind, m, k, n)}\n}}").instructions() if i.opcode == "dot"
    )
    targets = [*TARGETS, Target.named("aarch64-linux-gnu", "neoverse-v1")]
    plans = [plan_of(dot, reproducible_target(target)) for target in targets]
    # A product in one block adds `DEEP` steps at a time too, if they are more than twice as many.
    blocks = {DEEP if p.steps > 2 * DEEP else p.depth for p in plans if isinstance(p, TilePlan)}
    assert len({type(p) for p in plans}) == 1
    assert len(blocks) <= 1
    assert all(p.depth in (p.steps, *blocks) for p in plans if isinstance(p, TilePlan))


@needs_avx512
@pytest.mark.parametrize("name", PROGRAMS)
def test_operations(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = parse(PROGRAMS[name])
    first, second = results(module, random_arguments(module, 3), monkeypatch)
    assert first == second


@needs_avx512
@pytest.mark.parametrize("name", EXAMPLES)
def test_whole_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = parse((Path(examples()) / f"{name}.hlo").read_text())
    first, second = results(module, draw_inputs(examples(), name), monkeypatch)
    assert first == second


@needs_avx512
def test_the_usual_order_of_additions_follows_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the tests above could not fail."""
    monkeypatch.setenv("HLOOM_CACHE", "0")
    module = parse(product("f32", 1, 300, 1))
    inputs = random_arguments(module, 3)
    digests: set[str] = set()
    for target in TARGETS:
        monkeypatch.setattr(native, "host", lambda target=target: target)
        digests.add(digest(hloom.compile(module)(*inputs)))
    assert len(digests) == 2


def test_a_processor_without_fused_multiply_add_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    old = Target.named("x86_64-linux-gnu", "x86-64-v2")
    monkeypatch.setattr(native, "host", lambda: old)
    with pytest.raises(HloError) as caught:
        hloom.compile(parse(PROGRAMS["reciprocal square root"]), reproducible=True)
    assert caught.value.rule == "compile.reproducible"


def test_reproducible_programs_have_cache_entries_of_their_own() -> None:
    target = host()
    assert target.identity != replace(target, reproducible=not target.reproducible).identity
