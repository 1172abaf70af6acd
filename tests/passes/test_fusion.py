"""fusion: kernels are groups of operations, and no two of them need each other."""

from __future__ import annotations

import numpy as np

import hloom
from evaluation import parse
from hloom.passes.fusion import Fusion

SHARED_CONSTANT = """
HloModule shared_constant

ENTRY main {
  one = s32[] constant(1)
  spread = s32[] broadcast(one), dimensions={}
  two = s32[] add(spread, spread)
  a = s32[] abs(spread)
  b = u8[] convert(a)
  c = s32[] minimum(a, two)
  low = s32[] constant(-8)
  high = s32[] constant(8)
  d = s32[] clamp(low, c, high)
  ROOT r = (u8[], s32[], s32[]) tuple(b, c, d)
}
"""
SHARED_SOURCE = """
HloModule shared_source

ENTRY main {
  x = s32[3] parameter(0)
  p = s32[3] abs(x)
  backwards = s32[3] reverse(p), dimensions={0}
  squares = s32[3] multiply(backwards, backwards)
  a = s32[3] negate(backwards)
  b = u8[3] convert(a)
  c = s32[3] subtract(squares, a)
  limits = s32[3] constant({-8, -8, 0})
  d = s32[3] maximum(limits, c)
  ROOT r = (s32[3], s32[3], u8[3]) tuple(c, d, b)
}
"""


def test_what_two_kernels_copy_makes_neither_need_the_other() -> None:
    """Both have copies of an operation, and what it reads (a constant, absolute values) is made in one."""
    for text, arguments in ((SHARED_CONSTANT, []), (SHARED_SOURCE, [np.int32([1, -2, 3])])):
        module = parse(text)
        wanted = hloom.compile(module, backend="evaluator")(*arguments)
        assert Fusion().run(module)
        module.verify()
        found = hloom.compile(module, backend="evaluator")(*arguments)
        assert [f.tolist() for f in found] == [w.tolist() for w in wanted]
