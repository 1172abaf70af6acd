"""Scans of the cpu backend: elementwise steps in registers, all others as loops."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.passes.expand.scan_expander import is_elementwise
from tests.evaluation import parse
from tests.native_runs import agree, arguments
from tests.reducers import program, with_reducers


def step(kind: str, sizes: str) -> str:
    """Return (carry, x + 2 carry) of slices."""
    shape = f"{kind}[{sizes}]"
    return f"""f {{
  x = {shape} parameter(0)
  carry = {shape} parameter(1)
  scalar = {kind}[] constant({"(2, 0)" if kind == "c64" else 2})
  two = {shape} broadcast(scalar), dimensions={{}}
  doubled = {shape} multiply(carry, two)
  next = {shape} add(x, doubled)
  ROOT r = ({shape}, {shape}) tuple(carry, next)
}}
"""


def check(text: str, *, elementwise: bool) -> None:
    assert is_elementwise(parse(text).entry.root) is elementwise
    agree(text, *arguments(np.random.default_rng(0), text))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", ["s32", "s8", "f32", "f64", "bf16", "c64"])
def test_elementwise_steps(kind: str, reverse: bool) -> None:
    backwards = ", is_reverse=true" if reverse else ""
    for before, after in (("", ""), ("", "40"), ("3", ""), ("3", "5"), ("2,3", "17")):
        sizes = ",".join(s for s in (before, after) if s)
        whole = ",".join(s for s in (before, "7", after) if s)
        axis = len([s for s in before.split(",") if s])
        operation = f"scan(@), dimensions={{{axis}}}, num_carries=1{backwards}, to_apply=f"
        check(program(step(kind, sizes), operation, f"{kind}[{whole}]", f"{kind}[{sizes}]"), elementwise=True)


def test_results_that_are_not_carried() -> None:
    negate = "f {\n x = f32[] parameter(0)\n ROOT r = f32[] negate(x)\n}\n"
    check(program(negate, "scan(@), dimensions={0}, num_carries=0, to_apply=f", "f32[5]"), elementwise=True)


def test_without_inputs() -> None:
    count = """f {
      carry = s32[] parameter(0)
      one = s32[] constant(1)
      next = s32[] add(carry, one)
      ROOT r = (s32[], s32[]) tuple(carry, next)
    }
    """
    operation = "(s32[4], s32[]) scan(@), dimensions={0}, num_carries=1, to_apply=f"
    check(program(count, operation, "s32[]"), elementwise=True)


def test_no_steps() -> None:
    operation = "scan(@), dimensions={0}, num_carries=1, to_apply=f"
    check(program(step("f32", ""), operation, "f32[0]", "f32[]"), elementwise=True)


DOT = """f {
  x = f32[4,4] parameter(0)
  row = f32[3] parameter(1)
  state = f32[4] parameter(2)
  steps = s32[] parameter(3)
  product = f32[4] dot(x, state), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  next = f32[4] tanh(product)
  one = s32[] constant(1)
  count = s32[] add(steps, one)
  numbers = f32[3] convert(count)
  sum = f32[3] add(row, numbers)
  ROOT r = (f32[3], f32[4], f32[4], s32[]) tuple(sum, product, next, count)
}
""".replace(
    "numbers = f32[3] convert(count)",
    "number = f32[] convert(count)\n  numbers = f32[3] broadcast(number), dimensions={}",
)


@pytest.mark.parametrize("reverse", [False, True])
def test_other_steps_are_loops(reverse: bool) -> None:
    backwards = ", is_reverse=true" if reverse else ""
    operation = f"scan(@), dimensions={{0}}, num_carries=2{backwards}, to_apply=f"
    text = program(DOT, operation, "f32[6,4,4]", "f32[6,3]", "f32[4]", "s32[]")
    assert not is_elementwise(parse(text).entry.root)
    agree(text, *arguments(np.random.default_rng(0), text), rounded=True)


def test_slices_along_an_inner_axis() -> None:
    total = with_reducers("""
f {
  x = s32[3,2] parameter(0)
  carry = s32[] parameter(1)
  zero = s32[] constant(0)
  sum = s32[] reduce(x, zero), dimensions={0,1}, to_apply=add_s32
  next = s32[] add(sum, carry)
  sums = s32[3] broadcast(next), dimensions={}
  ROOT r = (s32[3], s32[]) tuple(sums, next)
}
""")
    operation = "scan(@), dimensions={1}, num_carries=1, to_apply=f"
    check(program(total, operation, "s32[3,5,2]", "s32[]"), elementwise=False)


def test_a_step_without_a_tuple() -> None:
    sort = "f {\n x = f32[4] parameter(0)\n ROOT r = f32[4] reverse(x), dimensions={0}\n}\n"
    check(program(sort, "scan(@), dimensions={0}, num_carries=0, to_apply=f", "f32[3,4]"), elementwise=False)
