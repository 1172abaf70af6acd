"""Lanes a few elements apart: slices with strides, reversals."""

from __future__ import annotations

import numpy as np
import pytest

from tests.native_runs import agree, draw


@pytest.mark.parametrize("kind", ["f32", "f64", "s8", "bf16", "pred", "c64"])
@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5])
def test_slices_and_reversals(kind: str, stride: int) -> None:
    for size in (7, 17, 64, 65, 300):
        kept = (size - 1) // stride + 1
        text = f"""
        x = {kind}[3,{size}] parameter(0)
        s = {kind}[3,{kept}] slice(x), slice={{[0:3], [0:{size}:{stride}]}}
        v = {kind}[3,{kept}] reverse(s), dimensions={{1}}
        z = {kind}[3,{size}] reverse(x), dimensions={{0,1}}
        ROOT r = tuple(s, v, z)"""
        agree(text, draw(np.random.default_rng(0), f"{kind}[3,{size}]"))
