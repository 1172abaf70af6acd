"""Products that convert a factor of a narrower type in registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hloom.cpu.jit.compilation import optimize
from hloom.cpu.jit.llvm import generate_module
from hloom.cpu.native import compile_or_load
from hloom.cpu.program import emit_program
from hloom.debug import random_arguments
from hloom.ir.module import HloModule
from tests import agreement
from tests.processors import PROCESSORS

PROGRAM = """
HloModule quantized
ENTRY main {
  x = WIDE[M,K] parameter(0)
  weights = NARROW[3,WEIGHTS] parameter(1)
  i = s32[] parameter(2)
  zero = s32[] constant(0)
  scale = f32[N] parameter(3)
  layer = NARROW[1,WEIGHTS] dynamic-slice(weights, i, zero, zero), dynamic_slice_sizes={1,WEIGHTS}
  weight = NARROW[WEIGHTS] reshape(layer)
  w = WIDE[WEIGHTS] convert(weight)
  y = WIDE[M,N] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={CONTRACTED}
  s = f32[M,N] broadcast(scale), dimensions={1}
  z = f32[M,N] convert(y)
  ROOT r = f32[M,N] multiply(z, s)
}
"""
TYPES = [("s8", "f32"), ("u8", "f32"), ("s16", "f32"), ("bf16", "f32"), ("f16", "f32"), ("s8", "bf16"),
         ("s32", "f64"), ("f32", "f64"), ("s8", "s32"), ("u8", "s32"),
         ("s4", "f32"), ("u4", "f32"), ("s2", "f32"), ("f8e4m3fn", "f32"), ("f4e2m1fn", "f32"),
         ("s4", "bf16"), ("s4", "s32"), ("u4", "s32")]  # fmt: skip
SIZES = [(1, 300, 77), (3, 37, 290), (17, 65, 40), (40, 50, 129)]


@pytest.mark.parametrize("columns_first", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize(("narrow", "wide"), TYPES)
def test_a_factor_is_converted_in_the_product(
    narrow: str, wide: str, m: int, n: int, k: int, columns_first: bool
) -> None:
    weights, contracted = (f"{n},{k}", "1") if columns_first else (f"{k},{n}", "0")
    text = PROGRAM.replace("WEIGHTS", weights).replace("CONTRACTED", contracted)
    text = text.replace("NARROW", narrow).replace("WIDE", wide)
    for name, size in (("M", m), ("N", n), ("K", k)):
        text = text.replace(f"[{name},", f"[{size},").replace(f",{name}]", f",{size}]")
    module = HloModule.from_text(text.replace("[N]", f"[{n}]"))
    program = compile_or_load(module)
    arguments: list[Any] = random_arguments(module, seed=k)
    for at in (-1, 1, 9):
        arguments[2] = np.int32(at)
        agreement.computed(program.caller.run(arguments)[0], module, arguments)
    arrays = [i.shape for i in program.inspection.optimized.entry.instructions if i.shape.is_array]
    copied = [s for s in arrays if s.element_count == n * k and s.element_type.name == wide]
    assert bool(copied) == (wide == "bf16" and m > 3)  # bf16 has multiplications of its own


@pytest.mark.parametrize(("narrow", "n"), [("s8", 1536), ("bf16", 768)])
def test_a_row_keeps_all_sums_in_registers(narrow: str, n: int) -> None:
    """A converted vector lives until its product only: 24 sums leave few registers."""
    target = PROCESSORS["x86-64-v4"]
    module = HloModule.from_text(f"""
HloModule row
ENTRY main {{
  x = f32[1,576] parameter(0)
  weights = {narrow}[576,{n}] parameter(1)
  w = f32[576,{n}] convert(weights)
  ROOT y = f32[1,{n}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}""")
    program = emit_program(optimize(module), target)
    assembly = generate_module(program.module, assembly=True).decode()
    assert assembly.count("vfmadd") == 24
    assert "(%rsp), %zmm" not in assembly
