"""Differences that few arguments show: the search draws these."""

from __future__ import annotations

import numpy as np
import pytest

from hloom import HloModule
from hloom.debug.inputs import Distribution, constants_of, drawn_arguments
from hloom.proofs import Relation, prove
from hloom.proofs.refutation import STEP, work_of
from hloom.proofs.sums import PRODUCT_GAIN

PAIRS = {
    "a comparison that differs for one number": (
        "constants",
        "x = f32[4] parameter(0)\n ROOT r = pred[4] compare(x, c), direction=LT",
        "x = f32[4] parameter(0)\n ROOT r = pred[4] compare(x, c), direction=LE",
    ),
    "a limit that only large numbers reach": (
        "whole range",
        "x = f64[4] parameter(0)\n ROOT r = f64[4] negate(x)",
        """x = f64[4] parameter(0)
        m = f64[4] constant({1e30, 1e30, 1e30, 1e30})
        y = f64[4] minimum(x, m)
        ROOT r = f64[4] negate(y)""",
    ),
    "a test of the sign of an index": (
        "random signed",
        """x = f32[16] parameter(0)
        i = s32[1] parameter(1)
        n = s32[1] constant({16})
        z = s32[1] constant({0})
        l = pred[1] compare(i, z), direction=LT
        j = s32[1] add(i, n)
        k = s32[1] select(l, j, i)
        ROOT g = f32[1] gather(x, k), offset_dims={0}, collapsed_slice_dims={},
        start_index_map={0}, index_vector_dim=0, slice_sizes={1}""",
        """x = f32[16] parameter(0)
        i = s32[1] parameter(1)
        ROOT g = f32[1] gather(x, i), offset_dims={0}, collapsed_slice_dims={},
        start_index_map={0}, index_vector_dim=0, slice_sizes={1}""",
    ),
}
LOOP = """HloModule m
body {{
  s = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  m = s32[] {step}(n, one)
  y = f32[4] tanh(x)
  ROOT t = (s32[], f32[4]) tuple(m, y)
}}
condition {{
  s = (s32[], f32[4]) parameter(0)
  n = s32[] get-tuple-element(s), index=0
  k = s32[] constant(3)
  ROOT c = pred[] compare(n, k), direction=LT
}}
ENTRY e {{
  x = f32[4] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[4]) tuple(z, x)
  w = (s32[], f32[4]) while(t), condition=condition, body=body
  ROOT r = f32[4] get-tuple-element(w), index=1
}}
"""


def program(body: str) -> HloModule:
    return HloModule.from_text(
        f"HloModule m\nENTRY e {{\n c = f32[4] constant({{12.25, 13, 14, 7}})\n {body}\n}}"
    )


@pytest.mark.parametrize("name", PAIRS)
def test_pair(name: str) -> None:
    inputs, before, after = PAIRS[name]
    verdict = prove(program(before), program(after))
    assert verdict.relation is Relation.REFUTED
    assert verdict.inputs.startswith(inputs)


def test_a_loop_that_does_not_end_is_open() -> None:
    verdict = prove(*(HloModule.from_text(LOOP.format(step=step)) for step in ("add", "subtract")), samples=1)
    assert verdict.relation is Relation.OPEN
    assert "16 times longer" in verdict.reason


def test_constants_are_drawn() -> None:
    module = program("ROOT x = f32[64] parameter(0)")
    module.entry.add(program("ROOT r = f32[4] add(c, c)").entry.root.operands[0].clone())
    assert constants_of(module) == [7, 12.25, 13, 14]
    (drawn,) = drawn_arguments(module, 0, Distribution.CONSTANTS, [1234.5])
    assert 16 < np.count_nonzero(np.asarray(drawn) == 1234.5) < 48


@pytest.mark.parametrize(
    ("product", "terms"),
    [
        ("f32[8,8] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}", 8 * 8 * 6400),
        (
            "f32[8,8] convolution(a, b), window={}, dim_labels=bf_io->bf",
            8 * 8 * 6400,
        ),
    ],
)
def test_multiplications_are_work(product: str, terms: int) -> None:
    """A product of few elements with many terms is not computed as often as a sum of few elements."""
    body = f"a = f32[8,6400] parameter(0) b = f32[6400,8] parameter(1) ROOT r = {product}"
    module = HloModule.from_text(f"HloModule m\nENTRY e {{ {body} }}")
    assert work_of(module.entry.root) == STEP + 64 + terms // PRODUCT_GAIN
