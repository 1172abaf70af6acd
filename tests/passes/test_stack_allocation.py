"""Stacks that a loop fills are not filled before it."""

from __future__ import annotations

import numpy as np
import pytest

import hloom
from hloom.passes.loops.stack_allocation import StackAllocation
from tests import agreement
from tests.evaluation import parse
from tests.pass_checks import after, opcodes

STEP = "w = f32[7,4] dynamic-update-slice(ys, r, i, zero)"


def program(step: str = STEP, *, begin: int = 0, fill: str = "broadcast(one), dimensions={}") -> str:
    """Return a loop that writes the rows of ``ys``, and doubles ``x``."""
    return f"""HloModule m
more {{
  s = (s32[], f32[4], f32[7,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(7)
  ROOT l = pred[] compare(i, n), direction=LT
}}
step {{
  s = (s32[], f32[4], f32[7,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  ys = f32[7,4] get-tuple-element(s), index=2
  by = s32[] constant(1)
  j = s32[] add(i, by)
  zero = s32[] constant(0)
  r = f32[1,4] reshape(x)
  {step}
  y = f32[4] add(x, x)
  ROOT t = (s32[], f32[4], f32[7,4]) tuple(j, y, w)
}}
ENTRY main {{
  x = f32[4] parameter(0)
  z = f32[7,4] parameter(1)
  begin = s32[] constant({begin})
  one = f32[] constant(1)
  ys = f32[7,4] {fill}
  s = (s32[], f32[4], f32[7,4]) tuple(begin, x, ys)
  l = (s32[], f32[4], f32[7,4]) while(s), condition=more, body=step
  a = f32[7,4] get-tuple-element(l), index=2
  ROOT r = f32[7,4] add(a, z)
}}
"""


def test_a_stack_of_which_every_row_is_written_is_not_filled() -> None:
    assert opcodes(after(program(), StackAllocation(least=0)))["custom-call"] == 1
    assert opcodes(after(program(), StackAllocation(least=4096)))["custom-call"] == 0


@pytest.mark.parametrize(
    "text",
    [
        program(begin=1),
        program(fill="multiply(z, z)"),
        program("v = f32[7,4] dynamic-update-slice(ys, r, i, zero)\n  w = f32[7,4] add(v, ys)"),
        program(
            "v = f32[1,4] slice(ys), slice={[6:7], [0:4]}\n"
            "  w = f32[7,4] dynamic-update-slice(ys, v, i, zero)"
        ),
    ],
    ids=["rows left", "no fill", "read whole", "read in part"],
)
def test_other_arrays_stay_filled(text: str) -> None:
    assert opcodes(after(text, StackAllocation(least=0)))["custom-call"] == 0


def test_compiled_stacks_have_the_values_of_the_loop() -> None:
    text = program().replace("f32[4]", "f32[600]").replace("[7,4]", "[7,600]").replace("[1,4]", "[1,600]")
    exe = hloom.compile(parse(text))
    x, z = np.arange(600, dtype=np.float32), np.ones((7, 600), np.float32)
    assert "AllocateBuffer" in exe.to_hlo()
    assert [copy.text for copy in exe.copies] == ["the initial value of element 1"]  # x, an argument
    for _ in range(2):
        agreement.same(exe(x, z), np.stack([x * 2**n for n in range(7)]) + z)


def test_an_allocation_of_a_program_has_its_shape() -> None:
    text = 'HloModule m\nENTRY e { ROOT a = f32[3,5] custom-call(), custom_call_target="AllocateBuffer" }'
    assert hloom.compile(parse(text))().shape == (3, 5)
    assert hloom.compile(parse(text), backend="evaluator")().tolist() == [[0] * 5] * 3
