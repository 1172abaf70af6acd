"""Loops that update arrays: values, and no copies of arrays where some order of the steps needs none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hloom
from hloom.buffers.copies import ArrayCopy
from hloom.cpu.native import NativeExecutable, compile_or_load
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.module import HloModule
from hloom.tools.reports.statistics import copies_text
from tests import agreement
from tests.arrays import f32
from tests.loop_bodies import random_loop


def copies_in_loops(program: NativeExecutable) -> list[ArrayCopy]:
    """Return the copies of arrays but those that the entry makes once."""
    once = {i.name for i in program.inspection.optimized.entry.instructions}
    copies = program.inspection.program.copies
    return [c for c in copies if c.instruction not in once or not c.text.startswith("the initial value")]


@pytest.mark.parametrize("seed", range(24))
def test_random_loops(seed: int) -> None:
    text, in_place = random_loop(seed)
    module = HloModule.from_text(text)
    program = compile_or_load(module)
    if in_place:
        assert not [copy for copy in copies_in_loops(program) if "zeros" not in copy.text]
    draw = np.random.default_rng(seed)
    shapes = [p.shape.dimensions for p in module.entry.parameters[1:]]
    arrays = [draw.choice(f32([-0.0, 0.0, 1.0, -2.0, 3.5]), shape) for shape in shapes]
    for trips in (0, 1, 4):
        arguments: list[Any] = [np.int32(trips), *arrays]
        wanted: Any = Evaluator().run(module.entry, arguments)
        for found, right in zip(program.caller.run(arguments), wanted, strict=True):
            agreement.same(found, right)


ACCUMULATION = """
HloModule gradients
body {
  s = (s32[], f32[4096], f32[4096]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = f32[4096] get-tuple-element(s), index=1
  x = f32[4096] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  u = f32[8] dynamic-slice(x, i), dynamic_slice_sizes={8}
  e = TYPE[] constant(NEUTRAL)
  all = f32[4096] broadcast(e), dimensions={}
  d = f32[4096] UPDATE
  b = f32[4096] OPERATION
  ROOT r = (s32[], f32[4096], f32[4096]) tuple(next, b, x)
}
more {
  s = (s32[], f32[4096], f32[4096]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(9)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[4096] parameter(0)
  zero = s32[] constant(0)
  none = f32[] constant(0)
  a = f32[4096] broadcast(none), dimensions={}
  s = (s32[], f32[4096], f32[4096]) tuple(zero, INITIAL, x)
  w = (s32[], f32[4096], f32[4096]) while(s), condition=more, body=body
  ROOT y = f32[4096] get-tuple-element(w), index=1
}
"""
SLICED = "dynamic-update-slice(all, u, i)"
SUMS = {
    "zeros": ("add(a, d)", "0", SLICED, "a"),
    "zeros first": ("add(d, a)", "0", SLICED, "a"),
    "two sums": ("add(b1, d)", "0", f"{SLICED}\n  b1 = f32[4096] add(a, d)", "a"),
    "padded": ("add(a, d)", "0", "pad(u, e), padding=16_4072", "a"),
    "negative zeros": ("add(a, d)", "-0", SLICED, "x"),
    "subtracted": ("subtract(a, d)", "0", SLICED, "x"),
    "ones": ("multiply(d, a)", "1", SLICED, "x"),
    "lowest": ("maximum(a, d)", "-inf", SLICED, "x"),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_with_a_slice_touch_only_the_slice(name: str) -> None:
    operation, neutral, update, initial = SUMS[name]
    text = ACCUMULATION.replace("OPERATION", operation).replace("NEUTRAL", neutral).replace("TYPE", "f32")
    module = HloModule.from_text(text.replace("UPDATE", update).replace("INITIAL", initial))
    program = compile_or_load(module)
    passes = [call for call in program.inspection.program.calls if call.kernel and call.kernel.work >= 4096]
    once = {i.name for i in program.inspection.optimized.entry.instructions}
    assert not [call for call in passes if call.instruction not in once]
    x = np.random.default_rng(0).choice(f32([-0.0, 0.0, 1.0, -2.5, np.inf]), 4096)
    agreement.same(program.caller.run([x])[0], Evaluator().run(module.entry, [x]))


def test_sums_with_zeros_that_may_meet_negative_zeros_pass_once_over_the_array() -> None:
    text = ACCUMULATION.replace("OPERATION", "add(a, d)").replace("NEUTRAL", "0").replace("TYPE", "f32")
    module = HloModule.from_text(text.replace("UPDATE", SLICED).replace("INITIAL", "x"))
    program = compile_or_load(module)
    (branch,) = [c for c in program.inspection.optimized.computations if c.name.startswith("everywhere")]
    passes = [
        call.instruction
        for call in program.inspection.program.calls
        if call.kernel and call.kernel.work >= 4096
    ]
    assert set(passes) <= {i.name for i in branch.instructions}
    x = np.random.default_rng(0).choice(f32([-0.0, 0.0, 1.0, -2.5]), 4096)
    agreement.same(program.caller.run([x])[0], Evaluator().run(module.entry, [x]))


KEPT = """
HloModule kept
body {
  s = (s32[], f32[4096], f32[4096]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = f32[4096] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[] convert(i)
  u = f32[1] reshape(x)
  b = f32[4096] dynamic-update-slice(a, u, i)
  v = f32[2] slice(b), slice={[0:2]}
  c = f32[4096] dynamic-update-slice(b, v, i)
  ROOT r = (s32[], f32[4096], f32[4096]) tuple(next, b, c)
}
more {
  s = (s32[], f32[4096], f32[4096]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(9)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[4096] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[4096], f32[4096]) tuple(zero, x, x)
  ROOT w = (s32[], f32[4096], f32[4096]) while(s), condition=more, body=body
}
"""


def test_a_copy_names_the_instruction_that_needs_the_value() -> None:
    module = HloModule.from_text(KEPT)
    (copy,) = [copy for copy in hloom.compile(module).copies if "caller" not in copy.reason]
    assert copy.size == 16384
    assert str(copy) == "copies %b_fusion, 16384 B: its value is needed in the next iteration of %w"
    assert f"{copy.instruction} {copy}\n" in copies_text(module)
    one = HloModule.from_text("HloModule m\nENTRY e { ROOT x = f32[] parameter(0) }")
    assert copies_text(one) == "no array is copied\n"


PREVIOUS = KEPT.replace("tuple(next, b, c)", "tuple(next, c, a)")


def test_a_previous_value_is_kept_by_the_same_updates_later() -> None:
    module = HloModule.from_text(PREVIOUS)
    program = compile_or_load(module)
    (copy,) = copies_in_loops(program)
    assert copy.text == "the result in branch 0"  # that of the first iteration
    x = np.random.default_rng(0).normal(size=4096).astype(np.float32)
    agreement.same(program.caller.run([x]), Evaluator().run(module.entry, [x]))
