"""Loops: carried values, trip counts, and elements that are removed."""

from __future__ import annotations

import pytest

from hloom.analysis.trip_count import TripCount, trip_count
from hloom.ir.module import HloModule
from hloom.passes.loops.while_loop_components import WhileLoopComponents
from hloom.passes.loops.while_loop_invariant_code_motion import WhileLoopInvariantCodeMotion
from hloom.passes.loops.while_loop_simplifier import WhileLoopSimplifier
from hloom.passes.loops.while_loop_trip_count_annotator import WhileLoopTripCountAnnotator
from hloom.passes.loops.while_loops import loop_of
from hloom.passes.simplify.algebraic_simplifier import AlgebraicSimplifier
from hloom.passes.simplify.constant_folding import ConstantFolding
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.passes.simplify.integer_range_simplifier import IntegerRangeSimplifier
from tests.evaluation import parse
from tests.pass_checks import after, opcodes
from tests.reducers import ADD

STATE = "(s32[], f32[4], f32[4])"


def loop(
    step: str, *, begin: int = 0, test: str = "LT", end: int = 5, by: int = 1, state: str = STATE
) -> str:
    """Return a loop with a counter; ``step`` computes ``x1`` and ``y1`` from ``x`` and ``y``."""
    return f"""HloModule loop
body {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4] get-tuple-element(p), index=1
  y = f32[4] get-tuple-element(p), index=2
  one = s32[] constant({by})
  i1 = s32[] add(i, one)
  {step}
  ROOT t = {state} tuple(i1, x1, y1)
}}
condition {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({end})
  ROOT c = pred[] compare(i, n), direction={test}
}}
ENTRY entry {{
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  zero = s32[] constant({begin})
  init = {state} tuple(zero, x, y)
  w = {state} while(init), condition=condition, body=body
  RESULT
}}
"""


RESULTS = {
    "x": "ROOT r = f32[4] get-tuple-element(w), index=1",
    "i": "ROOT r = s32[] get-tuple-element(w), index=0",
    "all": "ROOT r = (s32[], f32[4], f32[4]) opt-barrier(w)",
}


def the_loop(module):
    (found,) = [i for i in module.entry.instructions if i.opcode == "while"]
    return found


def test_what_nobody_needs_is_not_carried() -> None:
    text = loop("x1 = f32[4] add(x, x)\n y1 = f32[4] multiply(y, x)").replace("RESULT", RESULTS["x"])
    module = after(text, WhileLoopSimplifier(), DeadCodeElimination())
    assert str(the_loop(module).shape) == "(s32[], f32[4]{0})"
    assert opcodes(module)["multiply"] == 0


def test_what_needs_something_keeps_it() -> None:
    text = loop("x1 = f32[4] add(x, y)\n y1 = f32[4] negate(y)").replace("RESULT", RESULTS["x"])
    assert the_loop(after(text, WhileLoopSimplifier())).shape.tuple_shapes.__len__() == 3


def test_a_state_that_is_used_as_a_whole_is_taken_apart() -> None:
    text = loop("x1 = f32[4] add(x, x)\n y1 = f32[4] copy(y)").replace("RESULT", RESULTS["all"])
    module = after(text, AlgebraicSimplifier(), WhileLoopSimplifier(), DeadCodeElimination())
    counter, _, invariant = module.entry.root.operands[0].operands
    assert counter.opcode == "constant"
    assert invariant.opcode == "parameter"


def test_constants_go_into_the_loop() -> None:
    text = loop("x1 = f32[4] add(x, y)\n y1 = f32[4] copy(y)").replace("RESULT", RESULTS["x"])
    text = text.replace(
        "y = f32[4] parameter(1)", "c = f32[] constant(2)\n  y = f32[4] broadcast(c), dimensions={}"
    )
    module = after(text, AlgebraicSimplifier(), WhileLoopSimplifier(), DeadCodeElimination())
    assert str(the_loop(module).shape) == "(s32[], f32[4]{0})"


@pytest.mark.parametrize(
    ("begin", "test", "end", "by", "iterations"),
    [
        (0, "LT", 5, 1, 5), (0, "LT", 5, 2, 3), (0, "LE", 5, 1, 6), (5, "GT", 0, -1, 5), (5, "GE", 0, -2, 3),
        (0, "NE", 6, 2, 3), (0, "NE", 5, 2, None), (3, "EQ", 4, 1, 0), (7, "LT", 5, 1, 0), (0, "LT",
        5, -1, None),
        (2147483640, "LE", 2147483647, 1, None), (2147483640, "LT", 2147483647, 5, None),
    ],
)  # fmt: skip
def test_trip_counts(begin: int, test: str, end: int, by: int, iterations: int | None) -> None:
    text = loop("x1 = f32[4] copy(x)\n y1 = f32[4] copy(y)", begin=begin, test=test, end=end, by=by)
    module = parse(text.replace("RESULT", RESULTS["i"]))
    found = loop_of(the_loop(module))
    assert found is not None
    count = trip_count(found)
    assert (count.iterations if count else None) == iterations


def test_loops_of_zero_iterations_and_of_one_are_removed() -> None:
    step = "x1 = f32[4] add(x, y)\n y1 = f32[4] negate(y)"
    for end, adds in ((0, 0), (1, 1)):
        text = loop(step, end=end).replace("RESULT", RESULTS["all"])
        module = after(text, WhileLoopSimplifier(), AlgebraicSimplifier(), DeadCodeElimination())
        assert opcodes(module)["while"] == 0
        assert sum(i.opcode == "add" and i.shape.rank == 1 for i in module.instructions()) == adds


def test_two_equal_counters_are_one() -> None:
    state = "(s32[], f32[4], f32[4], s32[])"
    step = (
        "j = s32[] get-tuple-element(p), index=3\n j1 = s32[] add(j, one)\n f = f32[] convert(j)\n"
        " b = f32[4] broadcast(f), dimensions={}\n x1 = f32[4] add(x, b)\n y1 = f32[4] copy(y)"
    )
    text = loop(step, state=state).replace("RESULT", RESULTS["x"])
    text = text.replace("tuple(i1, x1, y1)", "tuple(i1, x1, y1, j1)").replace(
        "tuple(zero, x, y)", "tuple(zero, x, y, zero)"
    )
    module = after(text, WhileLoopSimplifier(), DeadCodeElimination())
    assert str(the_loop(module).shape) == "(s32[], f32[4]{0})"


def test_the_annotator_records_counter_and_trip_count() -> None:
    text = loop("x1 = f32[4] add(x, y)\n y1 = f32[4] negate(y)", begin=2, end=9, by=3)
    module = after(text.replace("RESULT", RESULTS["x"]), WhileLoopTripCountAnnotator())
    assert the_loop(module).annotation(TripCount) == TripCount(0, initial=2, step=3, iterations=3)
    assert module.entry.root.annotation(TripCount) is None
    assert the_loop(module).backend_config == ""


def test_an_annotation_is_neither_printed_nor_copied() -> None:
    text = loop("x1 = f32[4] add(x, y)\n y1 = f32[4] negate(y)", begin=2, end=9, by=3)
    module = after(text.replace("RESULT", RESULTS["x"]), WhileLoopTripCountAnnotator())
    assert the_loop(module).annotations
    assert not the_loop(module).clone().annotations
    assert not the_loop(module.clone()).annotations
    assert not the_loop(HloModule.from_text(module.to_text())).annotations


def test_the_newest_annotation_of_a_class_counts() -> None:
    text = loop("x1 = f32[4] add(x, y)\n y1 = f32[4] negate(y)", begin=2, end=9, by=3)
    found = the_loop(after(text.replace("RESULT", RESULTS["x"]), WhileLoopTripCountAnnotator()))
    found.annotate(TripCount(0, 0, 1, 7))
    assert found.annotations == (TripCount(0, 0, 1, 7),)


def test_what_every_turn_computes_alike_is_computed_before() -> None:
    text = loop("e = f32[4] exponential(y)\n b = f32[2,4] broadcast(e), dimensions={1}\n"
                " z = f32[] constant(0)\n s = f32[4] reduce(b, z), dimensions={0}, to_apply=add\n"
                " x1 = f32[4] add(x, s)\n y1 = f32[4] copy(y)")  # fmt: skip
    text = text.replace("body {", f"{ADD}body {{")
    module = after(
        text.replace("RESULT",
        RESULTS["x"]), AlgebraicSimplifier(), WhileLoopInvariantCodeMotion(), DeadCodeElimination(),
        WhileLoopSimplifier(), DeadCodeElimination(),
    )  # fmt: skip
    inside = {i.opcode for i in the_loop(module).called_computations[0].instructions}
    assert "exponential" not in inside
    assert {"exponential", "while"} <= {i.opcode for i in module.entry.instructions}


def test_work_that_would_need_much_memory_stays_inside() -> None:
    text = loop("b = f32[4,4096] broadcast(y), dimensions={0}\n e = f32[4,4096] exponential(b)\n"
                " s = f32[4,1] slice(e), slice={[0:4], [7:8]}\n q = f32[4] reshape(s)\n"
                " x1 = f32[4] add(x, q)\n y1 = f32[4] copy(y)")  # fmt: skip
    module = after(text.replace("RESULT", RESULTS["x"]), WhileLoopInvariantCodeMotion(small=0))
    assert all(i.shape.rank < 2 for i in module.entry.instructions if i.shape.is_array)


def test_counters_are_known_to_lie_in_range() -> None:
    text = loop("zero = s32[] constant(0)\n n = s32[] constant(4)\n c = pred[] compare(i, zero), "
        "direction=LT\n"
                " a = s32[] add(i, n)\n s = s32[] select(c, a, i)\n v = f32[1] dynamic-slice(y, s), "
                "dynamic_slice_sizes={1}\n"
                " b = f32[] reshape(v)\n w = f32[4] broadcast(b), dimensions={}\n x1 = f32[4] add(x, "
                "w)\n y1 = f32[4] copy(y)",
                end=4)  # fmt: skip
    module = after(
        text.replace("RESULT", RESULTS["x"]),
        IntegerRangeSimplifier(),
        AlgebraicSimplifier(),
        DeadCodeElimination(),
    )
    body = the_loop(module).called_computations[0]
    assert not {"compare", "select"} & {i.opcode for i in body.instructions}


def test_what_has_side_effects_stays() -> None:
    step = (
        "k = token[] after-all()\n o = token[] outfeed(x, k), outfeed_shape=f32[4]\n"
        " x1 = f32[4] add(x, x)\n y1 = f32[4] negate(y)"
    )
    module = parse(loop(step).replace("RESULT", RESULTS["i"]))
    WhileLoopSimplifier().run(module)
    DeadCodeElimination().run(module)
    module.verify()
    assert opcodes(module)["outfeed"] == 1
    assert str(the_loop(module).shape) == "(s32[], f32[4]{0})"


def test_folding_reaches_into_loops() -> None:
    step = (
        "two = f32[] constant(2)\n four = f32[] add(two, two)\n b = f32[4] broadcast(four), "
        "dimensions={}\n"
        " x1 = f32[4] add(x, b)\n y1 = f32[4] negate(y)"
    )
    module = after(loop(step).replace("RESULT", RESULTS["x"]), ConstantFolding(), DeadCodeElimination())
    body = the_loop(module).called_computations[0]
    assert sum(i.opcode == "add" for i in body.instructions) == 2


@pytest.mark.parametrize(
    ("count", "final", "in_body", "in_condition"),
    [
        (TripCount(0, initial=2, step=3, iterations=3), 11, (2, 8), (2, 11)),
        (TripCount(0, initial=9, step=-2, iterations=4), 1, (3, 9), (1, 9)),
        (TripCount(0, initial=5, step=1, iterations=0), 5, (5, 5), (5, 5)),
    ],
)
def test_the_numbers_that_a_counter_takes(
    count: TripCount, final: int, in_body: tuple[int, int], in_condition: tuple[int, int]
) -> None:
    assert (count.final, count.in_body, count.in_condition) == (final, in_body, in_condition)


def test_counters_follow_from_the_one_that_the_condition_tests() -> None:
    module = after(
        """HloModule counters
body {
  p = (s32[], s32[], s32[], s32[4]) parameter(0)
  j = s32[] get-tuple-element(p), index=0
  k = s32[] get-tuple-element(p), index=1
  i = s32[] get-tuple-element(p), index=2
  x = s32[4] get-tuple-element(p), index=3
  one = s32[] constant(1)
  next_j = s32[] add(j, one)
  next_k = s32[] subtract(k, one)
  next_i = s32[] add(i, one)
  jk = s32[] multiply(next_j, k)
  spread = s32[4] broadcast(jk), dimensions={}
  next_x = s32[4] add(x, spread)
  ROOT t = (s32[], s32[], s32[], s32[4]) tuple(next_j, next_k, next_i, next_x)
}
condition {
  p = (s32[], s32[], s32[], s32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=2
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY entry {
  x = s32[4] parameter(0)
  zero = s32[] constant(0)
  three = s32[] constant(3)
  nine = s32[] constant(9)
  init = (s32[], s32[], s32[], s32[4]) tuple(three, nine, zero, x)
  w = (s32[], s32[], s32[], s32[4]) while(init), condition=condition, body=body
  y = s32[4] get-tuple-element(w), index=3
  j = s32[] get-tuple-element(w), index=0
  k = s32[] get-tuple-element(w), index=1
  ROOT t = (s32[4], s32[], s32[]) tuple(y, j, k)
}
""",
        WhileLoopSimplifier(),
    )
    (instruction,) = [i for i in module.entry if i.opcode == "while"]
    assert str(instruction.shape.without_layout()) == "(s32[], s32[4])"
    (loop,) = [loop_of(instruction)]
    assert loop is not None and trip_count(loop) == TripCount(0, 0, 1, 5)


def test_the_range_of_a_number_holds_in_loops_that_do_not_change_it() -> None:
    module = after(
        """HloModule ranges
inner {
  p = (s32[], s32[], s32[4]) parameter(0)
  j = s32[] get-tuple-element(p), index=0
  i = s32[] get-tuple-element(p), index=1
  x = s32[4] get-tuple-element(p), index=2
  one = s32[] constant(1)
  next = s32[] add(j, one)
  zero = s32[] constant(0)
  bound = s32[] maximum(i, zero)
  spread = s32[4] broadcast(bound), dimensions={}
  y = s32[4] add(x, spread)
  ROOT t = (s32[], s32[], s32[4]) tuple(next, i, y)
}
more {
  p = (s32[], s32[], s32[4]) parameter(0)
  j = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(j, n), direction=LT
}
outer {
  p = (s32[], s32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = s32[4] get-tuple-element(p), index=1
  zero = s32[] constant(0)
  init = (s32[], s32[], s32[4]) tuple(zero, i, x)
  w = (s32[], s32[], s32[4]) while(init), condition=more, body=inner
  y = s32[4] get-tuple-element(w), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT t = (s32[], s32[4]) tuple(next, y)
}
more_rows {
  p = (s32[], s32[4]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY entry {
  x = s32[4] parameter(0)
  zero = s32[] constant(0)
  init = (s32[], s32[4]) tuple(zero, x)
  w = (s32[], s32[4]) while(init), condition=more_rows, body=outer
  ROOT y = s32[4] get-tuple-element(w), index=1
}
""",
        IntegerRangeSimplifier(),
    )
    assert not opcodes(module)["maximum"]


def test_the_components_of_a_state_of_a_thousand_arrays_are_sought_without_recursion() -> None:
    n = 1000
    state = f"(s32[], {', '.join(['f32[4]'] * n)})"
    picks = "\n".join(f"  x{k} = f32[4] get-tuple-element(p), index={k + 1}" for k in range(n))
    sums = "\n".join(f"  y{k} = f32[4] add(x{k}, x{(k + 1) % n})" for k in range(n))
    module = parse(f"""HloModule ring
body {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
{picks}
  one = s32[] constant(1)
  j = s32[] add(i, one)
{sums}
  ROOT t = {state} tuple(j, {", ".join(f"y{k}" for k in range(n))})
}}
condition {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY entry {{
  p = {state} parameter(0)
  ROOT w = {state} while(p), condition=condition, body=body
}}
""")
    assert not WhileLoopComponents().run(module)
