"""Dots of loops over the rows of stacks, as one dot before or after the loop."""

from __future__ import annotations

import numpy as np
import pytest

from hloom.ir.module import HloModule
from hloom.passes.loops.while_loop_dot_code_motion import WhileLoopDotCodeMotion
from tests.pass_checks import after


def program(
    state: list[str],
    following: list[str],
    step: str,
    *,
    begin: int = 0,
    end: int = 7,
    by: int = 1,
    test: str = "LT",
) -> str:
    """Return a loop over arrays ``x0``, ``x1`` ..., the arguments; ``following`` names those of the step."""
    kinds = f"(s32[], {', '.join(state)})"
    elements = "\n".join(f"  x{n} = {k} get-tuple-element(s), index={n + 1}" for n, k in enumerate(state))
    arguments = "\n".join(f"  x{n} = {k} parameter({n})" for n, k in enumerate(state))
    names = ", ".join(f"x{n}" for n in range(len(state)))
    return f"""HloModule m
more {{
  s = {kinds} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({end})
  ROOT l = pred[] compare(i, n), direction={test}
}}
step {{
  s = {kinds} parameter(0)
  i = s32[] get-tuple-element(s), index=0
{elements}
  by = s32[] constant({by})
  j = s32[] add(i, by)
  zero = s32[] constant(0)
  last = s32[] constant({max(begin, end) - 1})
  back = s32[] subtract(last, i)
  {step}
  ROOT t = {kinds} tuple(j, {", ".join(following)})
}}
ENTRY main {{
{arguments}
  begin = s32[] constant({begin})
  s = {kinds} tuple(begin, {names})
  l = {kinds} while(s), condition=more, body=step
  {"".join(f"r{n} = {k} get-tuple-element(l), index={n + 1}{chr(10)}" for n, k in enumerate(state))}
  ROOT r = ({", ".join(state)}) tuple({", ".join(f"r{n}" for n in range(len(state)))})
}}
"""


def moved(text: str, least: int = 64, growth: float = 100.0) -> int:
    """Run the pass on small integers, whose sums are exact; return the number of dots left in the loop."""
    rng = np.random.default_rng(0)
    shapes = [p.shape.dimensions for p in HloModule.from_text(text).entry.parameters]
    arguments = [rng.integers(-2, 3, shape).astype(np.float32) for shape in shapes]
    module = after(text, WhileLoopDotCodeMotion(most_rows=least, growth=growth), arguments=arguments)
    (loop,) = [i for i in module.entry.instructions if i.opcode == "while"]
    return sum(i.opcode == "dot" for i in loop.called_computations[0].instructions)


ROW = """r = f32[1,3,4] dynamic-slice(x1, {at}, zero, zero), dynamic_slice_sizes={{1,3,4}}
  x = f32[3,4] reshape(r)"""
DOTS = [
    ("f32[4,5]", "y = f32[3,5] dot(x, x2), lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    ("f32[5,4]", "y = f32[3,5] dot(x, x2), lhs_contracting_dims={1}, rhs_contracting_dims={1}"),
    (
        "f32[5,4]",
        "v = f32[5,3] dot(x2, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
        "  y = f32[3,5] transpose(v), dimensions={1,0}",
    ),
]


@pytest.mark.parametrize("at", ["i", "back"])
@pytest.mark.parametrize(("matrix", "dot"), DOTS)
def test_dots_of_rows_that_are_read_are_hoisted(at: str, matrix: str, dot: str) -> None:
    step = f"{ROW.format(at=at)}\n  {dot}\n  k = f32[3,5] add(x0, y)"
    assert moved(program(["f32[3,5]", "f32[7,3,4]", matrix], ["k", "x1", "x2"], step)) == 0
    assert moved(program(["f32[3,5]", "f32[7,3,4]", matrix], ["k", "x1", "x2"], step), least=2) == 1
    assert moved(program(["f32[3,5]", "f32[7,3,4]", matrix], ["k", "x1", "x2"], step), growth=0.1) == 1


@pytest.mark.parametrize(
    ("begin", "end", "by", "test", "at", "count"),
    [
        (0, 7, 1, "LT", "i", 0),
        (1, 8, 1, "LT", "back", 0),
        (6, -1, -1, "GT", "i", 0),
        (1, 8, 1, "LT", "i", 1),  # the last row twice, as starts are clamped
        (0, 5, 1, "LT", "i", 1),  # two rows are never read
        (0, 14, 2, "LT", "i", 1),
        (0, 7, 1, "LT", "zero", 1),
    ],
)
def test_every_row_must_be_visited_once(
    begin: int, end: int, by: int, test: str, at: str, count: int
) -> None:
    step = f"{ROW.format(at=at)}\n  {DOTS[0][1]}\n  k = f32[3,5] add(x0, y)"
    state = ["f32[3,5]", "f32[7,3,4]", "f32[4,5]"]
    text = program(state, ["k", "x1", "x2"], step, begin=begin, end=end, by=by, test=test)
    assert moved(text) == count


def test_the_dot_of_a_single_iteration_stays() -> None:
    step = f"{ROW.format(at='i')}\n  {DOTS[0][1]}\n  k = f32[3,5] add(x0, y)"
    assert moved(program(["f32[3,5]", "f32[1,3,4]", "f32[4,5]"], ["k", "x1", "x2"], step, end=1)) == 1


WRITE = """c = f32[3,4] clamp(one, h, two)
  {dot}
  w = f32[1,3,5] reshape(y)
  z = f32[7,3,5] dynamic-update-slice(x1, w, {at}, zero, zero)"""
VALUE = """low = f32[] constant(-2)
  high = f32[] constant(2)
  one = f32[3,4] broadcast(low), dimensions={}
  two = f32[3,4] broadcast(high), dimensions={}
  g = f32[3,4] add(x0, x0)
  h = f32[3,4] add(g, one)
  """


@pytest.mark.parametrize("at", ["i", "back"])
@pytest.mark.parametrize(("matrix", "dot"), DOTS[:2])
def test_dots_that_are_only_written_are_sunk(at: str, matrix: str, dot: str) -> None:
    step = VALUE + WRITE.format(dot=dot.replace("dot(x,", "dot(c,"), at=at)
    state = ["f32[3,4]", "f32[7,3,5]", matrix]
    assert moved(program(state, ["c", "z", "x2"], step)) == 0
    assert moved(program(state, ["c", "z", "x2"], step), growth=0.1) == 1
    also_read = step + "\n  q = f32[3,4] slice(y), slice={[0:3], [0:4]}\n  e = f32[3,4] add(c, q)"
    assert moved(program(state, ["e", "z", "x2"], also_read.replace("h, two", "g, two"))) == 1


def test_a_dot_of_the_matrix_on_the_left_is_written_in_its_order() -> None:
    dot = "y = f32[5,3] dot(x2, c), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    step = VALUE + WRITE.format(dot=dot, at="i").replace("3,5]", "5,3]")
    assert moved(program(["f32[3,4]", "f32[7,5,3]", "f32[5,4]"], ["c", "z", "x2"], step)) == 0


SUM = "d = f32[4,5] dot(x, x2), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n"
NEXT = "n = f32[3,5] negate(x2)\n"
ADDED = {
    "b = f32[4,5] add(x0, d)": 0,
    "b = f32[4,5] add(d, x0)": 0,
    "e = f32[4,5] dot(x, n), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n"
    "  f = f32[4,5] add(d, e)\n  b = f32[4,5] add(x0, f)": 0,
    "b = f32[4,5] subtract(x0, d)": 1,
    "c = f32[4,5] add(x0, x0)\n  b = f32[4,5] add(c, d)": 1,
    "c = f32[4,5] negate(d)\n  e = f32[4,5] add(x0, c)\n  b = f32[4,5] add(e, d)": 1,
    "e = f32[4,4] dot(x0, d), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n"
    "  b = f32[4,5] dot(e, d), lhs_contracting_dims={1}, rhs_contracting_dims={0}": 3,
}


@pytest.mark.parametrize("at", ["i", "back"])
@pytest.mark.parametrize("added", ADDED)
def test_sums_of_dots_are_sunk_if_nothing_else_is_added(at: str, added: str) -> None:
    step = f"{ROW.format(at=at)}\n  {SUM}  {NEXT}  {added}"
    state = ["f32[4,5]", "f32[7,3,4]", "f32[3,5]"]
    assert moved(program(state, ["b", "x1", "n"], step)) == ADDED[added]


@pytest.mark.parametrize(
    ("begin", "end", "by", "test", "count"),
    [(0, 7, 1, "LT", 0), (3, 9, 1, "LT", 0), (5, -2, -1, "GT", 0), (0, 9, 2, "LT", 1)],
)
def test_a_sum_of_dots_of_values_of_the_loop_stacks_both(
    begin: int, end: int, by: int, test: str, count: int
) -> None:
    step = f"x = f32[3,4] negate(x1)\n  {SUM}  {NEXT}  b = f32[4,5] add(x0, d)"
    text = program(
        ["f32[4,5]", "f32[3,4]", "f32[3,5]"],
        ["b", "x", "n"],
        step,
        begin=begin,
        end=end,
        by=by,
        test=test,
    )
    assert moved(text) == count


def test_batches_of_dots_are_summed() -> None:
    dimensions = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_contracting_dims={2}"
    step = f"""x = f32[2,3,4] negate(x1)
  d = f32[2,4,5] dot(x, x2), {dimensions}
  n = f32[2,5,3] negate(x2)
  b = f32[2,4,5] add(x0, d)"""
    assert moved(program(["f32[2,4,5]", "f32[2,3,4]", "f32[2,5,3]"], ["b", "x", "n"], step)) == 0


def test_a_sum_that_an_iteration_reads_stays() -> None:
    step = f"""{ROW.format(at="i")}
  {SUM}  b = f32[4,5] add(x0, d)
  q = f32[3,5] slice(x0), slice={{[0:3], [0:5]}}
  low = f32[] constant(-2)
  high = f32[] constant(2)
  n = f32[3,5] clamp(low, q, high)"""
    assert moved(program(["f32[4,5]", "f32[7,3,4]", "f32[3,5]"], ["b", "x1", "n"], step)) == 1
