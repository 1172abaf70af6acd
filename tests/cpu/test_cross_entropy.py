"""Gradients of cross entropies: labels out of bounds, and logits that are not finite, in f32 and bf16."""

from __future__ import annotations

import numpy as np
import pytest

import hloom
from hloom.shape.shape import Shape
from tests.agreement import computed
from tests.reducers import with_reducers

PROGRAM = """
HloModule gradient
ENTRY main {
  given = T[9,70] parameter(0)
  labels = s32[9,1] parameter(1)
  weights = f32[9] parameter(2)
  logits = f32[9,70] convert(given)
  lowest = f32[] constant(-inf)
  zero = f32[] constant(0)
  top = f32[9] reduce(logits, lowest), dimensions={1}, to_apply=maximum
  shift = f32[9,70] broadcast(top), dimensions={0}
  centred = f32[9,70] subtract(logits, shift)
  e = f32[9,70] exponential(centred)
  total = f32[9] reduce(e, zero), dimensions={1}, to_apply=add
  zeros = f32[9,70] broadcast(zero), dimensions={}
  chosen = f32[9,70] scatter(zeros, labels, weights), update_window_dims={}, inserted_window_dims={1},
    scatter_dims_to_operand_dims={1}, input_batching_dims={0}, scatter_indices_batching_dims={0},
    index_vector_dim=1, to_apply=add
  opposite = f32[9,70] negate(chosen)
  weight = f32[9] reduce(opposite, zero), dimensions={1}, to_apply=add
  share = f32[9] divide(weight, total)
  shares = f32[9,70] broadcast(share), dimensions={0}
  softmax = f32[9,70] multiply(e, shares)
  gradient = f32[9,70] add(chosen, softmax)
  ROOT r = (f32[9,70], f32[9]) tuple(gradient, weight)
}
"""


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_rows_with_special_logits_and_labels(kind: str):
    random = np.random.default_rng(0)
    logits = random.normal(size=(9, 70)).astype(np.float32)
    logits[1, 3], logits[2, 4], logits[3, 5], logits[4] = np.nan, np.inf, -np.inf, -np.inf
    labels = np.array([[0], [3], [4], [5], [6], [-1], [70], [69], [-(2**31)]], np.int32)
    weights = random.normal(size=9).astype(np.float32)
    weights[0], weights[7] = -0.0, np.inf
    module = hloom.HloModule.from_text(with_reducers(PROGRAM.replace("T[", f"{kind}[")))
    arguments = (logits.astype(Shape.parse(f"{kind}[]").element_type.dtype), labels, weights)
    executable = hloom.compile(module)
    assert "scatter" not in executable.to_hlo()
    computed(executable(*arguments), module, arguments)
