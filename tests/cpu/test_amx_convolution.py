"""Convolutions in AMX tiles: windows at borders, strides, dilations, reversal, layouts of the kernel."""

from __future__ import annotations

import numpy as np
import pytest

from hloom import HloModule
from hloom.codegen.target import reproducible_target
from hloom.cpu.kernels.convolution.amx_windows import amx_convolution
from hloom.ir.instruction import HloInstruction
from tests import agreement
from tests.cpu.test_amx import SAPPHIRE_RAPIDS, needs_amx
from tests.evaluation import parse
from tests.native_runs import agree

TYPES = ("s8,s8,s32", "u8,s8,s32", "bf16,bf16,f32", "bf16,bf16,bf16")
KERNELS = ("01io", "01oi", "o01i")
CASES = (
    ((2, 9, 8, 64, 48), "size=3x3 pad=1_1x1_1", (9, 8)),
    ((1, 14, 14, 40, 33), "size=3x3 pad=1_1x0_1 stride=2x2", (7, 7)),
    ((3, 8, 7, 32, 64), "size=1x1", (8, 7)),
    ((1, 12, 11, 100, 17), "size=5x3 pad=2_2x1_1 rhs_dilate=1x2", (12, 9)),
    ((2, 7, 9, 32, 64), "size=3x2 pad=1_0x0_0 rhs_reversal=1x1", (6, 8)),
)
"""(batch, height, width, input features, output features), window, and sizes of the result."""


def text(case: int, types: str = TYPES[2], kernel: str = KERNELS[0], rest: str = "") -> str:
    """Return a program with one convolution, ``c``; ``rest`` are later instructions, else it is the root."""
    (batch, height, width, features, outputs), window, (rows, columns) = CASES[case]
    sizes = dict(zip("01", window.split()[0].removeprefix("size=").split("x"), strict=True))
    sizes |= {"i": str(features), "o": str(outputs)}
    x, w, result = types.split(",")
    root, labels = "" if rest else "ROOT ", f"dim_labels=b01f_{kernel}->b01f"
    return f"""
HloModule convolution

ENTRY main {{
  x = {x}[{batch},{height},{width},{features}] parameter(0)
  w = {w}[{",".join(sizes[d] for d in kernel)}] parameter(1)
  {root}c = {result}[{batch},{rows},{columns},{outputs}] convolution(x, w), window={{{window}}}, {labels}
  {rest}
}}"""


def factors(program: str) -> list[np.ndarray]:
    """Return operands of small integers, whose products and sums are exact in every type of sums."""
    rng = np.random.default_rng(1)
    arrays: list[np.ndarray] = []
    for parameter in HloModule.from_text(program).entry.parameters:
        kind = parameter.shape.element_type
        low, high = (-3, 4) if kind.is_floating else (0, 256) if not kind.is_signed else (-128, 128)
        numbers = rng.integers(low, high, parameter.shape.dimensions)
        arrays.append(numbers.astype(kind.numpy_dtype))
    return arrays


def convolution_in(program: str) -> HloInstruction:
    """Return the convolution of a program."""
    return next(i for i in parse(program).entry.instructions if i.opcode == "convolution")


@needs_amx
@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("types", TYPES)
def test_windows(types: str, kernel: str, case: int) -> None:
    program = text(case, types, kernel)
    assert amx_convolution(convolution_in(program), SAPPHIRE_RAPIDS) is not None
    agree(program, *factors(program), signs=False)


@needs_amx
def test_the_operations_after_a_convolution_are_computed_tile_by_tile() -> None:
    shape = "f32[1,7,7,33]"
    program = text(1, rest=f"t = {shape} add(c, c)\n  ROOT r = ({shape}, {shape}) tuple(t, c)")
    agree(program, *factors(program), signs=False)


@needs_amx
@pytest.mark.parametrize("number", [np.inf, np.nan, 2.0**-133])
@pytest.mark.parametrize("operand", [0, 1])
def test_elements_outside_the_base_have_no_products(operand: int, number: float) -> None:
    """Zeros stand for them in tiles: a product with an infinite element would be NaN."""
    program = text(0)
    arrays = factors(program)
    arrays[operand].flat[5] = number
    agree(program, *arrays, rounded=np.isfinite(number), signs=False)


@needs_amx
def test_small_numbers_are_kept() -> None:
    program = text(2)
    x, w = (np.full(array.shape, 2.0**-64, array.dtype) for array in factors(program))
    got = agree(program, x, w)
    agreement.same(got, np.full(got.shape, 32 * 2.0**-128, np.float32))


def test_few_features_and_other_layouts_have_other_kernels() -> None:
    program = text(0)
    assert amx_convolution(convolution_in(program), SAPPHIRE_RAPIDS) is not None
    assert amx_convolution(convolution_in(program), reproducible_target(SAPPHIRE_RAPIDS)) is None
    few = program.replace(",64]", ",8]").replace("3,3,64,", "3,3,8,")
    assert amx_convolution(convolution_in(few), SAPPHIRE_RAPIDS) is None
    first = program.replace("b01f_", "bf01_").replace("[2,9,8,64]", "[2,64,9,8]")
    assert amx_convolution(convolution_in(first), SAPPHIRE_RAPIDS) is None
