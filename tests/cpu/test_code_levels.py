"""Code that LLVM does not optimize computes the same bits as optimized code."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.codegen.target import OPTIMIZED, QUICK
from hloom.cpu.native import compile_or_load
from hloom.ir.module import HloModule
from tests import agreement
from tests.reducers import LESS, binary

SUM = binary("add", name="sum")
BODIES = {
    "fused functions": """
      e = f32[5,7] exponential(x)
      t = f32[5,7] tanh(e)
      ROOT r = f32[5,7] divide(t, x)""",
    "small floats": """
      b = bf16[5,7] convert(x)
      m = bf16[5,7] multiply(b, b)
      ROOT r = f8e4m3fn[5,7] convert(m)""",
    "sum": "z = f32[] constant(0)\n ROOT r = f32[5] reduce(x, z), dimensions={1}, to_apply=sum",
    "product": "ROOT r = f32[5,5] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "sorted": "ROOT r = f32[5,7] sort(x), dimensions={1}, to_apply=less",
    "shifted": "z = f32[] constant(2)\n ROOT r = f32[9,6] pad(x, z), padding=1_3x-1_0",
    "reshape by division under a bounds check": """
      s = f32[5,6] slice(x), slice={[0:5],[0:6]}
      c = f32[10,3] reshape(s)
      b = f32[10,3,16] broadcast(c), dimensions={0,1}
      z = f32[] constant(2)
      ROOT r = f32[11,3,16] pad(b, z), padding=1_0x0_0x0_0""",
    "random": """
      s = u64[2] constant({3, 4})
      g = (u64[2], u32[5,7]) rng-bit-generator(s), algorithm=rng_philox
      ROOT r = u32[5,7] get-tuple-element(g), index=1""",
}


@pytest.mark.parametrize("name", BODIES)
def test_both_levels_give_the_same_bits(name: str) -> None:
    body = BODIES[name]
    text = f"HloModule m\n{SUM}\n{LESS}\nENTRY e {{\n x = f32[5,7] parameter(0)\n{body}\n}}"
    x = np.random.default_rng(7).normal(size=(5, 7)).astype(np.float32)
    quick, optimized = (compile_or_load(HloModule.from_text(text), level=n) for n in (QUICK, OPTIMIZED))
    assert quick.key != optimized.key
    agreement.equal(quick.caller.run([x]), optimized.caller.run([x]))
