"""The bugs: what is planted, by what it must be found, and instructions that show it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from hloom.codegen.types import Element
from hloom.ir.instruction import HloInstruction
from hloom.passes.expand import call_inliner
from hloom.passes.loops import while_loop_simplifier
from hloom.passes.simplify import conditional_simplifier, constant_folding
from tests.planted_bugs.planting import Plant, function, lowering, rule
from tests.reducers import binary


@dataclass(frozen=True)
class Bug:
    """A planted bug.

    Attributes:
        plant: plants it.
        found_by: the pass that must be named, or the operation of wrong native code.
        rewrite: a part of the name of the rewrite that must be named; empty if the pass does not count any.
        lines: instructions from %x and %w, of type f32[8,16], to %y of the same type.
        computations: what they call.
        native: whether native code is wrong, and no pass.
    """

    plant: Plant
    found_by: str
    rewrite: str
    lines: str
    computations: str = ""
    native: bool = False


def _folded(right: Any) -> Any:
    """Fold constants to values that are 0.5 too large."""

    def fold(i: HloInstruction, evaluator: Any) -> bool:
        class Wrong:
            def apply(self, instruction: Any, operands: Any) -> Any:
                value = evaluator.apply(instruction, operands)
                return np.asarray(value + np.float32(0.5)) if value.dtype == np.float32 else value

        return right(i, Wrong())

    return fold


def _one_late(right: Any) -> Any:
    """State the number of iterations as one more than it is."""

    def know_the_end(loop: Any, count: Any) -> bool:
        return right(loop, dataclasses.replace(count, iterations=count.iterations + 1))

    return know_the_end


def _not_run(right: Any) -> Any:
    """Replace a loop of one iteration by its initial state."""
    return lambda loop, count: right(loop, dataclasses.replace(count, iterations=0))


def _swapped(right: Any) -> Any:
    """Inline calls with exchanged arguments."""

    def inline(call: HloInstruction) -> HloInstruction:
        if len(call.operands) == 2 and call.operands[0].shape == call.operands[1].shape:
            call.operands.reverse()
        return right(call)

    return inline


def _other_branch(right: Any) -> Any:
    """Take the other branch of two."""

    def known_branch(i: HloInstruction) -> int | None:
        taken = right(i)
        return 1 - taken if taken is not None and len(i.called_computations) == 2 else taken

    return known_branch


def _operands_swapped(right: Any) -> Any:
    def lower(c: Any, a: Element, b: Element) -> Element:
        return right(c, b, a)

    return lower


CALLEE = """sub {
  a = f32[8,16] parameter(0)
  b = f32[8,16] parameter(1)
  ROOT r = f32[8,16] subtract(a, b)
}
"""
BRANCHES = """plus {
  a = f32[8,16] parameter(0)
  ROOT r = f32[8,16] negate(a)
}
minus {
  b = f32[8,16] parameter(0)
  ROOT r = f32[8,16] cosine(b)
}
"""
LOOP = """body {
  s = (s32[], f32[8,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  v = f32[8,16] get-tuple-element(s), index=1
  u = f32[8,16] cosine(v)
  ROOT n = (s32[], f32[8,16]) tuple(next, u)
}
condition {
  t = (s32[], f32[8,16]) parameter(0)
  j = s32[] get-tuple-element(t), index=0
  three = s32[] constant(3)
  ROOT l = pred[] compare(j, three), direction=LT
}
"""
LOOPS = (
    LOOP.replace(
        "cosine(v)", "reverse(v), dimensions={1}\n  w = f32[8,16] reverse(u), dimensions={0,1}"
    ).replace("tuple(next, u)", "tuple(next, w)")
    + """outer {
  s = (s32[], f32[8,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  zero = s32[] constant(0)
  v = f32[8,16] get-tuple-element(s), index=1
  u = f32[8,16] sine(v)
  t = (s32[], f32[8,16]) tuple(zero, u)
  w = (s32[], f32[8,16]) while(t), condition=condition, body=body
  x = f32[8,16] get-tuple-element(w), index=1
  ROOT n = (s32[], f32[8,16]) tuple(next, x)
}
"""
)
ARCTANGENTS = (
    LOOP.replace("(s32[], f32[8,16])", "(s32[], f32[8,16], f32[8,16])")
    .replace(
        "u = f32[8,16] cosine(v)", "w = f32[8,16] get-tuple-element(s), index=2\n  u = f32[8,16] atan2(v, w)"
    )
    .replace("tuple(next, u)", "tuple(next, u, w)")
)
SUM = binary("add", name="sum")


BUGS: dict[str, Bug] = {
    "transpose twice": Bug(
        rule("transpose_twice"), "algsimp", "transpose_twice",
        "t = f32[16,8] transpose(x), dimensions={1,0}\n y = f32[8,16] transpose(t), dimensions={1,0}",
    ),
    "reshape twice": Bug(
        rule("reshape_twice"), "algsimp", "reshape_twice",
        "t = f32[4,32] reshape(x)\n u = f32[2,64] reshape(t)\n v = f32[2,64] sine(u)\n"
        " y = f32[8,16] reshape(v)",
    ),
    "slice of concatenate": Bug(
        rule("slice_of_concatenate", lambda right: lambda i, *o: right(i, *o) and i.operands[0].operands[0]),
        "algsimp", "slice_of_concatenate",
        "t = f32[16,16] concatenate(x, w), dimensions={0}\n y = f32[8,16] slice(t), slice={[8:16], [0:16]}",
    ),
    "reverse twice": Bug(
        rule("reverse_twice"), "algsimp", "reverse_twice",
        "t = f32[8,16] reverse(x), dimensions={0}\n y = f32[8,16] reverse(t), dimensions={0,1}",
    ),
    "pad twice": Bug(
        rule("pad_twice"), "algsimp", "pad_twice",
        "n = f32[] constant(0)\n t = f32[10,16] pad(x, n), padding=1_1x0_0\n"
        " u = f32[12,16] pad(t, n), padding=1_1x0_0\n y = f32[8,16] slice(u), slice={[2:10], [0:16]}",
    ),
    "add negated": Bug(
        rule("add_negated"), "algsimp", "add_negated",
        "t = f32[8,16] negate(w)\n y = f32[8,16] add(x, t)",
    ),
    "divide by power of two": Bug(
        rule("divide_by_power_of_two"), "algsimp", "divide_by_power_of_two",
        "n = f32[] constant(4)\n t = f32[8,16] broadcast(n), dimensions={}\n y = f32[8,16] divide(x, t)",
    ),
    "convert twice": Bug(
        rule("convert_twice"), "algsimp", "convert_twice",
        "t = f64[8,16] convert(x)\n y = f32[8,16] convert(t)",
    ),
    "power as products": Bug(
        rule("power_as_products"), "algsimp", "power_as_products",
        "n = f32[] constant(3)\n t = f32[8,16] broadcast(n), dimensions={}\n y = f32[8,16] power(x, t)",
    ),
    "select decided": Bug(
        rule("select_decided", lambda right: lambda i, *o: right(i, *o) and i.operands[2]),
        "algsimp", "select_decided",
        "n = pred[] constant(true)\n t = pred[8,16] broadcast(n), dimensions={}\n"
        " y = f32[8,16] select(t, x, w)",
    ),
    "reduce of transpose": Bug(
        rule("reduce_of_transpose"), "algsimp", "reduce_of_transpose",
        "t = f32[16,8] transpose(x), dimensions={1,0}\n n = f32[] constant(0)\n"
        " u = f32[8] reduce(t, n), dimensions={0}, to_apply=sum\n y = f32[8,16] broadcast(u), dimensions={0}",
        SUM,
    ),
    "slice of reverse": Bug(
        rule("slice_of_reverse"), "algsimp", "slice_of_reverse",
        "t = f32[8,16] reverse(x), dimensions={1}\n u = f32[8,4] slice(t), slice={[0:8], [0:4]}\n"
        " n = f32[] constant(0)\n y = f32[8,16] pad(u, n), padding=0_0x6_6",
    ),
    "both negated": Bug(
        rule("both_negated"), "algsimp", "both_negated",
        "t = f32[8,16] negate(x)\n u = f32[8,16] negate(w)\n y = f32[8,16] multiply(t, u)",
    ),
    "dot of transpose": Bug(
        rule("dot_of_transpose"), "dot_decomposer", "dot_of_transpose",
        "t = f32[16,8] transpose(x), dimensions={1,0}\n"
        " u = f32[8,8] dot(t, w), lhs_contracting_dims={0}, rhs_contracting_dims={1}\n"
        " y = f32[8,16] dot(u, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "constant folding": Bug(
        function(constant_folding, "fold", _folded), "constant_folding", "%",
        "a = f32[4] constant({1, 2, 3, 4})\n b = f32[4] constant({5, 6, 7, 8})\n"
        " c = f32[4] multiply(a, b)\n d = f32[16] concatenate(c, c, c, c),"
        " dimensions={0}\n e = f32[8,16] broadcast(d), dimensions={1}\n y = f32[8,16] add(x, e)",
    ),
    "end of a loop": Bug(
        function(while_loop_simplifier, "know_the_end", _one_late), "simplify-while-loops", "%",
        "n = s32[] constant(0)\n t = (s32[], f32[8,16]) tuple(n, x)\n"
        " u = (s32[], f32[8,16]) while(t), condition=condition, body=body\n"
        " c = s32[] get-tuple-element(u), index=0\n d = f32[] convert(c)\n"
        " e = f32[8,16] broadcast(d), dimensions={}\n f = f32[8,16] get-tuple-element(u), index=1\n"
        " y = f32[8,16] multiply(e, f)",
        LOOP,
    ),
    "loop of one iteration": Bug(
        function(while_loop_simplifier, "unroll", _not_run), "simplify-while-loops", "%",
        "n = s32[] constant(2)\n t = (s32[], f32[8,16]) tuple(n, x)\n"
        " u = (s32[], f32[8,16]) while(t), condition=condition, body=body\n"
        " y = f32[8,16] get-tuple-element(u), index=1",
        LOOP,
    ),
    "reverse in nested loops": Bug(
        rule("reverse_twice"), "algsimp", "reverse_twice",
        "n = s32[] constant(0)\n t = (s32[], f32[8,16]) tuple(n, x)\n"
        " u = (s32[], f32[8,16]) while(t), condition=condition, body=outer\n"
        " y = f32[8,16] get-tuple-element(u), index=1",
        LOOPS,
    ),
    "native code in a loop": Bug(
        lowering("atan2", _operands_swapped), "atan2", "",
        "n = s32[] constant(0)\n t = (s32[], f32[8,16], f32[8,16]) tuple(n, x, w)\n"
        " u = (s32[], f32[8,16], f32[8,16]) while(t), condition=condition, body=body\n"
        " y = f32[8,16] get-tuple-element(u), index=1",
        ARCTANGENTS, native=True,
    ),
    "known branch": Bug(
        function(conditional_simplifier, "known_branch", _other_branch), "simplify-conditional", "%",
        "n = pred[] constant(true)\n y = f32[8,16] conditional(n, x, x), true_computation=plus,"
        " false_computation=minus",
        BRANCHES,
    ),
    "inlined arguments": Bug(
        function(call_inliner, "inline", _swapped), "call-inliner", "%",
        "y = f32[8,16] call(x, w), to_apply=sub", CALLEE,
    ),
    "native maximum": Bug(
        lowering("maximum", lambda right: lambda c, a, b: a), "maximum", "",
        "y = f32[8,16] maximum(x, w)", native=True,
    ),
    "native atan2": Bug(
        lowering("atan2", _operands_swapped), "atan2", "", "y = f32[8,16] atan2(x, w)", native=True,
    ),
    "native clamp": Bug(
        lowering("clamp", lambda right: lambda c, least, x, most: x), "clamp", "",
        "n = f32[] constant(-0.125)\n m = f32[] constant(0.125)\n y = f32[8,16] clamp(n, x, m)", native=True,
    ),
}  # fmt: skip
