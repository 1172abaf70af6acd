"""convolution-layout: the same values, with features last."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hloom.evaluate.evaluator import Evaluator
from hloom.ir.cloning import clone_module
from hloom.operations.convolution import Convolution
from hloom.passes.layout.convolution_layout import ConvolutionLayout
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import agree, draw

FORWARD = ("s32[2,4,6,7]", "s32[16,4,3,3]", "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01")
KERNEL_GRADIENT = (
    "s32[3,4,6,7]",
    "s32[3,9,6,7]",
    "window={size=6x7 pad=1_1x1_1}, dim_labels=fb01_io01->bf01",
)
GROUPS = ("s32[2,8,30]", "s32[8,1,5]", "window={size=5}, dim_labels=bf0_oi0->bf0, feature_group_count=8")
SINGLE = ("s32[2,1,40]", "s32[8,1,33]", "window={size=33}, dim_labels=bf0_oi0->bf0")


FEW = ("s32[2,20,6,7]", "s32[3,20,3,3]", "window={size=3x3 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01")
FEW_OF_MINOR_BATCHES = ("s32[20,6,7,2]", "s32[1,20,3,3]", "window={size=3x3}, dim_labels=f01b_oi01->bf01")


@pytest.mark.parametrize("case", [FORWARD, KERNEL_GRADIENT, GROUPS, SINGLE, FEW, FEW_OF_MINOR_BATCHES])
def test_values_stay(case: tuple[str, str, str]) -> None:
    lhs, rhs, attributes = case
    module = parse(
        f"x = {lhs} parameter(0)\n k = {rhs} parameter(1)\n ROOT r = convolution(x, k), {attributes}"
    )
    rng = np.random.default_rng(0)
    values = [draw(rng, lhs), draw(rng, rhs)]
    changed = clone_module(module)
    assert ConvolutionLayout().run(changed)
    changed.verify()
    (convolution,) = [i for i in changed.entry.instructions if i.opcode == "convolution"]
    assert isinstance(convolution.operation, Convolution)
    labels, rank = convolution.operation.dim_labels, convolution.shape.rank
    assert labels.output_feature_dimension == labels.kernel_output_feature_dimension == rank - 1
    assert rank - 1 in (labels.input_feature_dimension, labels.input_batch_dimension)
    pair: Any = [Evaluator().run(m.entry, values) for m in (module, changed)]
    for wanted, got in zip(*pair):
        agreement.equal(got, wanted)
    assert not ConvolutionLayout().run(changed)


@pytest.mark.parametrize(
    ("outputs", "depth", "padded"),
    [(1, 9, 16), (1, 20, 24), (1, 33, 48), (1, 700, 704), (3, 50, 64), (1, 16, 16), (3, 20, 20), (1, 8, 8)],
)
def test_sums_of_features_fill_vectors(outputs: int, depth: int, padded: int) -> None:
    """Zeros are added behind the features; products of infinities stay as they are."""
    text = (
        f"x = f32[2,9,{depth}] parameter(0)\n k = f32[5,{depth},{outputs}] parameter(1)\n"
        " ROOT r = convolution(x, k), window={size=5 pad=2_2}, dim_labels=b0f_0io->b0f"
    )
    module = parse(text)
    assert ConvolutionLayout().run(module) == (padded != depth)
    module.verify()
    (convolution,) = [i for i in module.entry.instructions if i.opcode == "convolution"]
    assert convolution.operands[0].shape.dimensions == (2, 9, padded)
    rng = np.random.default_rng(1)
    values = [draw(rng, f"f32[2,9,{depth}]"), draw(rng, f"f32[5,{depth},{outputs}]")]
    values[0][0, 4, 0] = np.inf
    agree(f"HloModule m\nENTRY e {{\n {text}\n}}", *values, rounded=True)


@pytest.mark.parametrize(
    "lhs, rhs, labels",
    [("f32[2,6,4]", "f32[3,4,3]", "b0f_0io->b0f"), ("f32[2,4,6]", "f32[3,4,3]", "bf0_oi0->bf0")],
)
def test_few_features_are_left(lhs: str, rhs: str, labels: str) -> None:
    attributes = f"window={{size=3}}, dim_labels={labels}"
    text = f"x = {lhs} parameter(0)\n k = {rhs} parameter(1)\n ROOT r = convolution(x, k), {attributes}"
    assert not ConvolutionLayout().run(parse(text))
