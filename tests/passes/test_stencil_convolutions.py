"""stencil-convolutions: the same sums, as shifted arrays times elements of the kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hloom.evaluate.evaluator import Evaluator
from hloom.ir.cloning import clone_module
from hloom.passes.expand.stencil_convolutions import StencilConvolutions
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import agree, draw
from tests.pass_checks import opcodes

IMAGE = "bf01_oi01->bf01"
CASES = {
    "an image": ("s32[1,1,40,50]", "s32[1,1,3,3]", f"window={{size=3x3 pad=1_1x1_1}}, dim_labels={IMAGE}"),
    "many images": ("s32[9,1,20,17]", "s32[1,1,3,2]", f"window={{size=3x2}}, dim_labels={IMAGE}"),
    "a line": ("s32[3,1,400]", "s32[1,1,9]", "window={size=9 pad=4_7}, dim_labels=bf0_oi0->bf0"),
    "a volume": (
        "s32[1,1,12,9,20]",
        "s32[1,1,3,2,3]",
        "window={size=3x2x3 pad=1_1x1_0x1_1}, dim_labels=bf012_oi012->bf012",
    ),
    "strides": (
        "s32[2,1,90,91]",
        "s32[1,1,3,5]",
        f"window={{size=3x5 stride=2x3 pad=1_1x4_9}}, dim_labels={IMAGE}",
    ),
    "dilated windows": (
        "s32[1,1,60,50]",
        "s32[1,1,3,3]",
        f"window={{size=3x3 pad=2_2x3_1 rhs_dilate=2x3}}, dim_labels={IMAGE}",
    ),
    "reversed windows": (
        "s32[1,1,40,50]",
        "s32[1,1,3,4]",
        f"window={{size=3x4 pad=2_2x3_3 rhs_reversal=1x1}}, dim_labels={IMAGE}",
    ),
    "less than the base": (
        "s32[1,1,60,50]",
        "s32[1,1,3,3]",
        f"window={{size=3x3 pad=-2_-1x-3_0}}, dim_labels={IMAGE}",
    ),
    "windows in the padding": (
        "s32[1,1,4,70]",
        "s32[1,1,9,3]",
        f"window={{size=9x3 pad=20_9x1_70}}, dim_labels={IMAGE}",
    ),
    "features last": (
        "s32[2,30,40,1]",
        "s32[3,3,1,1]",
        "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
    ),
    "features elsewhere": (
        "s32[30,1,2,40]",
        "s32[3,1,3,1]",
        "window={size=3x3 pad=1_1x1_1}, dim_labels=0fb1_0i1o->f0b1",
    ),
    "two results": ("s32[2,1,40,50]", "s32[2,1,3,3]", f"window={{size=3x3 pad=1_1x1_1}}, dim_labels={IMAGE}"),
    "three colours": (
        "s32[2,3,40,70]",
        "s32[3,3,2,2]",
        f"window={{size=2x2 pad=1_0x1_0}}, dim_labels={IMAGE}",
    ),
    "s8": ("s8[1,1,40,50]", "s8[1,1,3,3]", f"window={{size=3x3 pad=1_1x1_1}}, dim_labels={IMAGE}"),
}


def program(lhs: str, rhs: str, attributes: str) -> str:
    return f"x = {lhs} parameter(0)\n k = {rhs} parameter(1)\n ROOT r = convolution(x, k), {attributes}"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_values_stay(case: tuple[str, str, str]) -> None:
    text = program(*case)
    values = [draw(np.random.default_rng(0), shape) for shape in case[:2]]
    module = parse(text)
    changed = clone_module(module)
    assert StencilConvolutions().run(changed)
    changed.verify()
    assert not opcodes(changed)["convolution"]
    pair: Any = [Evaluator().run(m.entry, values) for m in (module, changed)]
    agreement.same(pair[1], pair[0])
    agree(text, *values)


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "f16"])
def test_floats_are_within_the_rounding_errors_of_sums(kind: str) -> None:
    case = f"{kind}[2,1,90,70]", f"{kind}[1,1,5,5]", f"window={{size=5x5 pad=2_2x2_2}}, dim_labels={IMAGE}"
    agree(program(*case), *(draw(np.random.default_rng(1), shape) for shape in case[:2]), rounded=True)


def test_padding_is_not_multiplied_and_sums_of_negative_zeros_are_zero() -> None:
    """An infinite corner of the kernel meets padding along two sides: no NaN is there."""
    case = CASES["an image"]
    text = program(*case).replace("s32", "f32")
    x, k = np.ones((1, 1, 40, 50), np.float32), np.ones((1, 1, 3, 3), np.float32)
    k[..., 0, 0] = np.inf
    assert np.isinf(agree(text, x, k)[..., 1:, 1:]).all()
    assert np.isfinite(agree(text, x, k)[..., 0, :]).all()
    assert not np.signbit(agree(text, x * 0, -k.clip(0, 1))).any()


@pytest.mark.parametrize(
    "lhs, rhs, attributes",
    [
        ("f32[1,1,40,50]", "f32[1,1,9,9]", f"window={{size=9x9}}, dim_labels={IMAGE}"),
        ("f32[1,1,40,50]", "f32[1,1,6,6]", f"window={{size=6x6}}, dim_labels={IMAGE}"),
        ("f32[1,4,40,90]", "f32[4,4,2,2]", f"window={{size=2x2}}, dim_labels={IMAGE}"),
        ("f32[9,1,40,9]", "f32[1,1,3,3]", f"window={{size=3x3}}, dim_labels={IMAGE}"),
        ("f32[1,1,20,20]", "f32[1,1,3,3]", f"window={{size=3x3}}, dim_labels={IMAGE}"),
        ("f32[1,1,40,90]", "f32[1,1,3,3]", f"window={{size=3x3 lhs_dilate=2x1}}, dim_labels={IMAGE}"),
        ("f32[1,2,40,90]", "f32[2,1,3,3]", f"window={{size=3x3}}, dim_labels={IMAGE}, feature_group_count=2"),
        ("f32[1,40,90,2]", "f32[3,3,2,1]", "window={size=3x3}, dim_labels=b01f_01io->b01f"),
        ("f32[1,40,90,1]", "f32[3,3,1,2]", "window={size=3x3}, dim_labels=b01f_01io->b01f"),
        ("f32[1,1,40,90]", "f32[1,1,3,3]", "window={size=3x3}, dim_labels=bf01_oi01->bf10"),
        ("c64[1,1,40,90]", "c64[1,1,3,3]", f"window={{size=3x3}}, dim_labels={IMAGE}"),
        ("pred[1,1,40,90]", "pred[1,1,3,3]", f"window={{size=3x3}}, dim_labels={IMAGE}"),
    ],
)
def test_others_stay_convolutions(lhs: str, rhs: str, attributes: str) -> None:
    assert not StencilConvolutions().run(parse(program(lhs, rhs, attributes)))
