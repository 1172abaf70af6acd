"""call-inliner: programs whose copies would be too many are refused before any is made."""

from __future__ import annotations

import numpy as np
import pytest

import hloom
from hloom.analysis.origin import op_name, source_line
from hloom.errors import HloError
from hloom.ir.module import HloModule
from hloom.passes.expand.call_inliner import CallInliner
from tests.evaluation import parse


def doubled(depth: int) -> str:
    """Computations that call the one before twice."""
    lines = ["q0 { x = f32[] parameter(0)\n ROOT r = f32[] negate(x) }"]
    for n in range(1, depth + 1):
        lines.append(
            f"q{n} {{ x = f32[] parameter(0)\n y = f32[] call(x), to_apply=q{n - 1}\n"
            f" ROOT r = f32[] call(y), to_apply=q{n - 1} }}"
        )
    entry = f"ENTRY e {{ x = f32[] parameter(0)\n ROOT r = f32[] call(x), to_apply=q{depth} }}"
    return "HloModule m\n" + "\n".join(lines) + "\n" + entry


def looped(depth: int) -> str:
    """The same with loops, which get a copy of their body each."""
    lines = [
        "cond { p = s32[] parameter(0)\n c = s32[] constant(3)\n"
        " ROOT l = pred[] compare(p, c), direction=LT }",
        "q0 { p = s32[] parameter(0)\n one = s32[] constant(1)\n ROOT r = s32[] add(p, one) }",
    ]
    for n in range(1, depth + 1):
        lines.append(
            f"q{n} {{ p = s32[] parameter(0)\n y = s32[] while(p), condition=cond, body=q{n - 1}\n"
            f" ROOT r = s32[] while(y), condition=cond, body=q{n - 1} }}"
        )
    entry = f"ENTRY e {{ p = s32[] parameter(0)\n ROOT r = s32[] while(p), condition=cond, body=q{depth} }}"
    return "HloModule m\n" + "\n".join(lines) + "\n" + entry


@pytest.mark.parametrize("text", [doubled(30), doubled(400), looped(40)], ids=["30", "400", "loops"])
def test_copies_without_end_are_refused(text: str) -> None:
    with pytest.raises(HloError) as caught:
        hloom.compile(parse(text))
    assert caught.value.rule == "call-inliner.program-size"


def test_a_program_that_is_large_by_itself_is_not() -> None:
    """Nothing is copied more than a few times: the limit is for copies."""
    steps = "\n".join(f"x{n} = f32[] negate(x{n - 1})" for n in range(1, 40))
    module = parse(f"HloModule m\nENTRY e {{ x0 = f32[] parameter(0)\n{steps}\nROOT r = f32[] negate(x39) }}")
    CallInliner(most_instructions=10).run(module)
    with pytest.raises(HloError, match="at most 10 "):
        CallInliner(most_instructions=10).run(parse(doubled(6)))


def test_a_thousand_copies_are_made() -> None:
    assert hloom.compile(parse(doubled(8)))(np.float32(3)) == 3


def test_inlined_instructions_come_from_the_operation_of_the_call() -> None:
    """JAX names what an inner jit computes within it only; the call has the path to it and the line."""
    module = HloModule.from_text("""HloModule m
      inner { x = f32[2] parameter(0)
        a = f32[2] negate(x), metadata={op_name="neg"}
        b = f32[2] exponential(a), metadata={op_name="jit(f)/jit(g)/exp" source_file="g.py" source_line=3}
        ROOT c = f32[2] cosine(b) }
      ENTRY e { x = f32[2] parameter(0)
        ROOT r = f32[2] call(x), to_apply=inner,
          metadata={op_name="jit(f)/jit(g)" source_file="f.py" source_line=7} }""")
    CallInliner().run(module)
    c = module.entry.root
    (b,) = c.operands
    (a,) = b.operands
    assert c.metadata is None
    assert (op_name(b), source_line(b)) == ("jit(f)/jit(g)/exp", "g.py:3")
    assert (op_name(a), source_line(a)) == ("jit(f)/jit(g)/neg", "f.py:7")
