"""separable-windows: the same reductions, along one dimension after another."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.ir.module import HloModule
from hloom.passes.expand.separable_windows import SeparableWindows
from tests.evaluation import parse
from tests.native_runs import agree, draw, special_values
from tests.pass_checks import after, opcodes
from tests.passes.test_stencil_windows import program

WINDOWS = {
    "rows and columns": ("f32[40,90]", "size=11x13 pad=5_5x6_6", 2),
    "colors": ("f32[20,31,3]", "size=5x5x1 pad=2_2x2_2x0_0", 2),
    "few colors of a small window": ("f32[20,31,3]", "size=3x3x1 pad=1_1x1_1x0_0", 1),
    "a long row": ("f32[3,500]", "size=1x100 pad=0_0x50_49", 3),
    "a long row that is cropped": ("f32[3,500]", "size=1x100 pad=0_0x-7_-9", 3),
    "a prime number": ("f32[500]", "size=31", 0),
    "points over time": ("f32[500,2]", "size=50x1 pad=49_0x0_0", 3),
    "apart": ("f32[200,3]", "size=20x1 rhs_dilate=3x1 pad=9_9x0_0", 2),
    "volumes": ("f32[12,13,14,2]", "size=5x4x3x1 pad=2_2x0_3x1_1x0_0", 3),
    "strides": ("f32[2,40,40,3]", "size=1x9x9x1 stride=1x2x2x1 pad=0_0x4_4x4_4x0_0", 2),
    "a dilated base": ("f32[30,33]", "size=5x6 lhs_dilate=2x3 pad=4_4x5_5", 2),
    "reversed": ("f32[30,33]", "size=5x6 rhs_reversal=1x0 pad=4_4x5_5", 2),
    "short rows of single elements": ("f32[40,90,1,1]", "size=2x2x1x1", 1),
    "windows along colors": ("f32[40,30,3]", "size=5x5x3 pad=2_2x2_2x1_1", 3),
}


@pytest.mark.parametrize(("shape", "window", "steps"), WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize("opcode", ["maximum", "minimum"])
def test_extremes_stay(shape: str, window: str, steps: int, opcode: str) -> None:
    text = program(shape, window, opcode=opcode, initial="-inf" if opcode == "maximum" else "inf")
    module = parse(text)
    assert SeparableWindows().run(module) == (steps > 0)
    assert opcodes(module)["reduce-window"] == max(steps, 1)
    agree(text, special_values(np.random.default_rng(0), "f32", module.entry.parameters[0].shape.dimensions))


@pytest.mark.parametrize(("shape", "window", "steps"), WINDOWS.values(), ids=WINDOWS)
@pytest.mark.parametrize(("kind", "opcode", "initial"), [("s16", "add", "0"), ("u32", "multiply", "1")])
def test_integers_stay(shape: str, window: str, steps: int, kind: str, opcode: str, initial: str) -> None:
    shape = shape.replace("f32", kind)
    text = program(shape, window, opcode=opcode, initial=initial)
    assert opcodes(after(text, SeparableWindows()))["reduce-window"] == max(steps, 1)
    agree(text, draw(np.random.default_rng(1), shape))


def separated(text: str) -> HloModule:
    """Return a program after the pass, whose sums are rounded in another order."""
    module = parse(text)
    SeparableWindows().run(module)
    module.verify()
    return module


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize(("shape", "window", "steps"), WINDOWS.values(), ids=WINDOWS)
def test_sums_are_within_rounding_errors(shape: str, window: str, steps: int, kind: str) -> None:
    shape = shape.replace("f32", kind)
    text = program(shape, window, opcode="add", initial="0")
    assert opcodes(separated(text))["reduce-window"] == max(steps, 1)
    agree(text, draw(np.random.default_rng(2), shape), rounded=True)
    dimensions = parse(text).entry.parameters[0].shape.dimensions
    assert not np.signbit(agree(text, -np.zeros(dimensions, kind.replace("f", "float")))).any()


@pytest.mark.parametrize(("kind", "opcode", "initial"), [("bf16", "add", "0"), ("f32", "multiply", "1")])
def test_sums_of_narrow_floats_and_products_take_one_step(kind: str, opcode: str, initial: str) -> None:
    text = program(f"{kind}[20,31,3]", "size=5x5x1", opcode=opcode, initial=initial)
    module = separated(text)
    assert opcodes(module)["reduce-window"] == 1
    assert "size=5x5 rhs_dilate=1x3" in module.to_text()
    agree(text, draw(np.random.default_rng(3), f"{kind}[20,31,3]"), rounded=True)


def test_only_from_the_neutral_element() -> None:
    assert not SeparableWindows().run(parse(program("f32[40,90]", "size=11x11", initial="-3e38")))


@pytest.mark.parametrize(
    ("shape", "window"),
    [
        ("f32[40,90]", "size=3x3"),
        ("f32[64,72]", "size=8x8 stride=8x8"),
        ("f32[500]", "size=500 pad=499_0"),
        ("f32[500,3]", "size=500x1 pad=499_0x0_0"),
        ("f32[7,7]", "size=7x7"),
        ("f32[40,30,3]", "size=1x2x1 stride=1x2x1"),
        ("f32[40,90]{0,1}", "size=11x11"),
        ("f32[0,90]", "size=11x11 pad=20_0x0_0"),
    ],
)
def test_small_disjoint_and_cumulative_windows_and_transposed_arrays_are_left(
    shape: str, window: str
) -> None:
    assert not SeparableWindows().run(parse(program(shape, window)))
