"""stencil-windows: the same reductions, as combinations of shifted arrays."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.passes.expand.stencil_windows import StencilWindows
from tests.evaluation import parse
from tests.native_runs import agree, draw, special_values
from tests.pass_checks import after, opcodes


def program(shape: str, window: str, *, opcode: str = "maximum", initial: str = "-inf") -> str:
    kind = shape.partition("[")[0]
    return f"""HloModule m
combine {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(1)
  ROOT c = {kind}[] {opcode}(a, b)
}}
ENTRY main {{
  x = {shape} parameter(0)
  v = {kind}[] constant({initial})
  ROOT r = reduce-window(x, v), window={{{window}}}, to_apply=combine
}}"""


WINDOWS = {
    "pooling": ("f32[2,40,30,32]", "size=1x2x2x1 stride=1x2x2x1"),
    "overlapping": ("f32[2,40,30,32]", "size=1x3x3x1 stride=1x2x2x1 pad=0_0x0_1x1_0x0_0"),
    "along rows": ("f32[300,70]", "size=1x9 pad=0_0x4_4"),
    "dilated": ("f32[30,90]", "size=2x3 rhs_dilate=5x7 pad=1_4x3_9"),
    "strides of rows": ("f32[30,900]", "size=2x3 stride=3x7 pad=1_4x3_9"),
    "less than the base": ("f32[30,90]", "size=2x3 pad=-3_1x-7_-9"),
    "far outside": ("f32[30,90]", "size=3x3 pad=30_1x100_0"),
}


@pytest.mark.parametrize(("shape", "window"), WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize(
    ("opcode", "initial"), [("maximum", "-inf"), ("minimum", "inf"), ("maximum", "-3e38")]
)
def test_extremes_stay(shape: str, window: str, opcode: str, initial: str) -> None:
    """Only a reduction from the neutral element is written as a combination."""
    text = program(shape, window, opcode=opcode, initial=initial)
    rewritten = initial != "-3e38"
    assert opcodes(after(text, StencilWindows()))["reduce-window"] == (not rewritten)
    agree(
        text,
        special_values(np.random.default_rng(0), "f32", parse(text).entry.parameters[0].shape.dimensions),
    )


@pytest.mark.parametrize(("shape", "window"), WINDOWS.values(), ids=WINDOWS)
def test_sums_of_integers_stay(shape: str, window: str) -> None:
    text = program(shape.replace("f32", "s16"), window, opcode="add", initial="0")
    assert not opcodes(after(text, StencilWindows()))["reduce-window"]
    agree(text, draw(np.random.default_rng(1), shape.replace("f32", "s16")))


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "f16"])
def test_sums_are_rounded_once(kind: str) -> None:
    """Numbers of 16 bits are added in f32; sums of negative zeros from 0 are zero."""
    text = program(f"{kind}[40,90]", "size=3x3 pad=1_1x1_1", opcode="add", initial="0")
    agree(text, draw(np.random.default_rng(2), f"{kind}[40,90]"), rounded=True)
    zeros = np.zeros((40, 90), parse(text).entry.parameters[0].shape.element_type.numpy_dtype)
    assert not np.signbit(agree(text, -zeros).astype(np.float64)).any()


@pytest.mark.parametrize(
    ("shape", "window"),
    [
        ("f32[40,90]", "size=2x5"),
        ("f32[40,90]", "size=2x2 lhs_dilate=2x1"),
        ("f32[40,9]", "size=2x2"),
        ("f32[6,90]", "size=6x1 pad=5_0x0_0"),
        ("f32[40,90]", "size=1x1"),
    ],
)
def test_large_windows_short_rows_and_cumulative_windows_are_left(shape: str, window: str) -> None:
    assert not StencilWindows().run(parse(program(shape, window)))
