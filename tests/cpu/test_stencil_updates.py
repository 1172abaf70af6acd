"""Updates of the interior of an array by stencils of it: one loop, whose rims are apart."""

from __future__ import annotations

import numpy as np
import pytest

import hloom
from hloom.evaluate.evaluator import Evaluator
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import agree, arguments


def shape(kind: str, sizes: tuple[int, ...]) -> str:
    return f"{kind}[{','.join(map(str, sizes))}]"


def step(kind: str, sizes: tuple[int, ...], width: int, x: str = "x") -> str:
    """Return the lines that add their neighbours in each dimension to all elements but a rim."""
    inside = shape(kind, tuple(size - 2 * width for size in sizes))
    own = [f"[{width}:{size - width}]" for size in sizes]
    lines = [f"{x}_0 = {inside} slice({x}), slice={{{', '.join(own)}}}"]
    for dimension, size in enumerate(sizes):
        for start in (0, 2 * width):
            ranges = list(own)
            ranges[dimension] = f"[{start}:{size - 2 * width + start}]"
            number = len(lines) // 2
            lines.append(f"{x}_n{number} = {inside} slice({x}), slice={{{', '.join(ranges)}}}")
            lines.append(f"{x}_{number + 1} = {inside} add({x}_{number}, {x}_n{number})")
    indices = ", ".join(["width"] * len(sizes))
    last = f"{x}_{2 * len(sizes)}"
    return "\n".join([*lines, f"{x}_new = {shape(kind, sizes)} dynamic-update-slice({x}, {last}, {indices})"])


SIZES = [(100,), (20_000,), (9, 70), (130, 131), (200, 90), (40, 30, 41), (6, 5, 30, 40), (3, 20_000)]
CASES = [
    *(("f32", sizes, 1) for sizes in SIZES),
    *((kind, sizes, 1) for kind in ("s8", "f64", "c64", "bf16") for sizes in [(130, 131), (40, 30, 41)]),
    ("f32", (130, 131), 7),
    ("f32", (300, 3000), 12),
]


@pytest.mark.parametrize(("kind", "sizes", "width"), CASES)
def test_neighbours_are_added_to_all_elements_but_a_rim(
    kind: str, sizes: tuple[int, ...], width: int
) -> None:
    text = f"""
    x = {shape(kind, sizes)} parameter(0)
    width = s32[] constant({width})
    {step(kind, sizes, width)}
    ROOT r = {shape(kind, sizes)} copy(x_new)"""
    agree(text, *arguments(np.random.default_rng(0), text))


@pytest.mark.parametrize("sizes", [(150, 140), (40, 30, 41)])
def test_two_steps(sizes: tuple[int, ...]) -> None:
    text = f"""
    x = {shape("f32", sizes)} parameter(0)
    width = s32[] constant(1)
    {step("f32", sizes, 1)}
    {step("f32", sizes, 1, "x_new")}
    ROOT r = {shape("f32", sizes)} negate(x_new_new)"""
    agree(text, *arguments(np.random.default_rng(1), text))


TIME = """HloModule m
more {
  s = (s32[], f32[150,140]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(COUNT)
  ROOT l = pred[] compare(i, n), direction=LT
}
one_step {
  s = (s32[], f32[150,140]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[150,140] get-tuple-element(s), index=1
  width = s32[] constant(1)
  j = s32[] add(i, width)
  STEP
  ROOT t = (s32[], f32[150,140]) tuple(j, x_new)
}
ENTRY main {
  x = f32[150,140] parameter(0)
  z = s32[] constant(0)
  s = (s32[], f32[150,140]) tuple(z, x)
  l = (s32[], f32[150,140]) while(s), condition=more, body=one_step
  ROOT r = f32[150,140] get-tuple-element(l), index=1
}
"""


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_a_loop_over_time_exchanges_two_arrays(count: int) -> None:
    module = parse(TIME.replace("COUNT", str(count)).replace("STEP", step("f32", (150, 140), 1)))
    x = np.random.default_rng(2).integers(-9, 9, (150, 140)).astype(np.float32)
    before = x.copy()
    result = hloom.compile(module)(x)
    agreement.same(result, Evaluator().run(module.entry, [x]))
    agreement.same(x, before)
