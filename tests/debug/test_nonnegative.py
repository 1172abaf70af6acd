"""Random arguments without NaN that no real run has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom
from hloom import HloModule
from hloom.debug.inputs import random_arguments
from hloom.debug.nonnegative import nonnegative_leaves

ADAM = """HloModule adam

moment {
  v = f32[64] parameter(0)
  g = f32[64] parameter(1)
  c = f32[] constant(0.999)
  decay = f32[64] broadcast(c), dimensions={}
  d = f32[] constant(0.001)
  rate = f32[64] broadcast(d), dimensions={}
  kept = f32[64] multiply(decay, v)
  square = f32[64] multiply(g, g)
  scaled = f32[64] multiply(square, rate)
  ROOT sum = f32[64] add(kept, scaled)
}

ENTRY e {
  state = (f32[64], (s32[], f32[64])) parameter(0)
  gradient = f32[64] parameter(1)
  bias = f32[64] parameter(2)
  inner = (s32[], f32[64]) get-tuple-element(state), index=1
  v = f32[64] get-tuple-element(inner), index=1
  sum = f32[64] call(v, gradient), to_apply=moment
  corrected = f32[64] divide(sum, bias)
  ROOT root = f32[64] sqrt(corrected)
}
"""

LOOP = """HloModule loop

condition {
  t = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  n = s32[] constant(3)
  ROOT l = pred[] compare(i, n), direction=LT
}

body {
  t = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  v = f32[8] get-tuple-element(t), index=1
  e = f32[] constant(1e-5)
  epsilon = f32[8] broadcast(e), dimensions={}
  sum = f32[8] add(v, epsilon)
  r = f32[8] rsqrt(sum)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT root = (s32[], f32[8]) tuple(j, r)
}

ENTRY e {
  zero = s32[] constant(0)
  v = f32[8] parameter(0)
  t = (s32[], f32[8]) tuple(zero, v)
  ROOT w = (s32[], f32[8]) while(t), condition=condition, body=body
}
"""


def test_the_second_moment_of_an_optimizer_has_no_sign() -> None:
    module = HloModule.from_text(ADAM)
    assert nonnegative_leaves(module) == {(0, 1, 1)}
    drawn: list[Any] = random_arguments(module, 0)
    (first, (_, second)), gradient, _ = drawn
    assert (second >= 0).all()
    assert (first < 0).any()
    assert (gradient < 0).any()


def test_a_variance_that_a_loop_carries_has_no_sign() -> None:
    module = HloModule.from_text(LOOP)
    assert nonnegative_leaves(module) == {(0,)}
    assert hloom.compile(module).trace(*random_arguments(module, 0)).first_nan is None


@pytest.mark.parametrize(
    "body",
    [
        "ROOT r = f32[4] sqrt(x)",
        "d = f32[4] subtract(x, x)\n ROOT r = f32[4] log(d)",
        "m = f32[4] multiply(x, x)\n ROOT r = f32[4] rsqrt(m)",
        "s = f32[4] add(x, x)\n ROOT r = f32[4] exponential(s)",
    ],
)
def test_other_arguments_keep_their_signs(body: str) -> None:
    module = HloModule.from_text(f"HloModule m\nENTRY e {{\n x = f32[4] parameter(0)\n {body}\n}}\n")
    assert nonnegative_leaves(module) == set()
    (x,) = random_arguments(module, 0)
    assert np.any(np.asarray(x) < 0)
