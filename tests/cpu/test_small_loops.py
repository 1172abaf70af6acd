"""Small loops: elementwise loops inside kernels, state in registers, matrices transposed before the loop."""

from __future__ import annotations

import re

import numpy as np
import pytest

import hloom
from hloom.buffers.assignment import STACK
from hloom.cpu.pipeline import CPU_PIPELINE
from hloom.cpu.program import emit_program
from hloom.passes.loops.elementwise_loop_fusion import ElementwiseLoopFusion
from hloom.passes.loops.while_loop_dot_layout import WhileLoopDotLayout
from hloom.passes.loops.while_loop_invariant_code_motion import WhileLoopInvariantCodeMotion
from hloom.passes.loops.while_loop_trip_count_annotator import WhileLoopTripCountAnnotator
from hloom.shape.element_type import ElementType
from tests import agreement
from tests.evaluation import parse
from tests.native_runs import agree, arguments, compiled
from tests.pass_checks import after, opcodes


def counting(
    step: str, elements: str, inputs: str, results: str = "ROOT r = TYPE tuple(RESULTS)", iterations: int = 7
) -> str:
    """Return a loop over a counter and ``elements`` (name: type); ``step`` computes ``name1`` from ``name``.

    An element without a step is unchanged.
    """
    named = dict(part.split(":") for part in elements.split())
    state = f"(s32[], {', '.join(named.values())})"
    picks = "\n".join(
        f"  {name} = {kind} get-tuple-element(p), index={n + 1}"
        for n, (name, kind) in enumerate(named.items())
    )
    following = ", ".join(f"{name}1" if f"{name}1 =" in step else name for name in named)
    ends = "\n".join(
        f"  {name}_end = {kind} get-tuple-element(w), index={n + 1}"
        for n, (name, kind) in enumerate(named.items())
    )
    whole = f"({', '.join(named.values())})"
    results = results.replace("TYPE", whole).replace("RESULTS", ", ".join(f"{name}_end" for name in named))
    return f"""HloModule counting
body {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
{picks}
  one = s32[] constant(1)
  i1 = s32[] add(i, one)
  {step}
  ROOT t = {state} tuple(i1, {following})
}}
condition {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({iterations})
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY entry {{
  {inputs}
  zero = s32[] constant(0)
  init = {state} tuple(zero, {", ".join(named)})
  w = {state} while(init), condition=condition, body=body
{ends}
  {results}
}}
"""


def parameters(elements: str) -> str:
    """Return a parameter for every element."""
    parts = [part.split(":") for part in elements.split()]
    return "\n  ".join(f"{name} = {kind} parameter({n})" for n, (name, kind) in enumerate(parts))


ELEMENTWISE = {
    "one array": ("x:f32[1000]", "x1 = f32[1000] sine(x)"),
    "odd sizes": ("x:f32[7,5,3] y:f32[7,5,3]", "x1 = f32[7,5,3] multiply(x, y)\n  y1 = f32[7,5,3] tanh(x)"),
    "swapped": ("x:f64[33] y:f64[33]", "x1 = f64[33] copy(y)\n  y1 = f64[33] negate(x)"),
    "integers": (
        "x:s8[129] y:u64[129]",
        "x1 = s8[129] add(x, x)\n  c = u64[129] convert(x)\n  y1 = u64[129] xor(y, c)",
    ),
    "booleans": ("x:pred[70] y:pred[70]", "x1 = pred[70] xor(x, y)\n  y1 = pred[70] not(x)"),
    "half precision": ("x:bf16[70]", "x1 = bf16[70] add(x, x)"),
    "complex": ("z:c64[40] c:c64[40]", "s = c64[40] multiply(z, z)\n  z1 = c64[40] add(s, c)"),
    "an invariant": ("x:f32[64] c:f32[64]", "x1 = f32[64] add(x, c)"),
    "a row for every turn": (
        "x:f32[37] rows:f32[7,37]",
        "z = s32[] constant(0)\n  cut = f32[1,37] dynamic-slice(rows, i, z), dynamic_slice_sizes={1,37}\n"
        "  row = f32[37] reshape(cut)\n  x1 = f32[37] add(x, row)",
    ),
    "a rotated row for every turn": (
        "x:s32[37] rows:s32[7,37]",
        "z = s32[] constant(0)\n  cut = s32[1,37] dynamic-slice(rows, i, z), dynamic_slice_sizes={1,37}\n"
        "  row = s32[37] reshape(cut)\n  last = s32[1] slice(row), slice={[36:37]}\n"
        "  rest = s32[36] slice(row), slice={[0:36]}\n"
        "  turned = s32[37] concatenate(last, rest), dimensions={0}\n  x1 = s32[37] add(x, turned)",
    ),
    "a vector for all rows": (
        "x:f32[9,37] v:f32[37]",
        "b = f32[9,37] broadcast(v), dimensions={1}\n  x1 = f32[9,37] multiply(x, b)",
    ),
    "the counter": (
        "x:f32[50]",
        "f = f32[] convert(i)\n  b = f32[50] broadcast(f), dimensions={}\n  x1 = f32[50] add(x, b)",
    ),
    "its place": ("x:s32[50]", "n = s32[50] iota(), iota_dimension=0\n  x1 = s32[50] add(x, n)"),
    "no dependence": ("x:f32[50]", "f = f32[] convert(i)\n  x1 = f32[50] broadcast(f), dimensions={}"),
    "a constant array": ("x:f32[3]", "c = f32[3] constant({1, 0.5, -2})\n  x1 = f32[3] add(x, c)"),
    "a carried scalar": (
        "x:f32[50] h:f32[]",
        "two = f32[] constant(2)\n  h1 = f32[] multiply(h, two)\n  b = f32[50] broadcast(h), dimensions={}\n"
        "  x1 = f32[50] add(x, b)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("elements, step", ELEMENTWISE.values(), ids=ELEMENTWISE)
def test_an_elementwise_loop_runs_in_a_kernel(elements: str, step: str) -> None:
    first = elements.split(":")[0]
    results = f"ROOT r = {elements.split()[0].split(':')[1]} copy({first}_end)"
    text = counting(step, elements, parameters(elements), results)
    fused = after(text, WhileLoopTripCountAnnotator(), ElementwiseLoopFusion())
    assert "while" not in {i.opcode for i in fused.entry.instructions}
    agree(text, *arguments(np.random.default_rng(0), text), rounded=True)


@pytest.mark.parametrize("rows", [1, 3, 16, 37])
@pytest.mark.parametrize("columns", [2, 3, 5, 9, 13])
@pytest.mark.parametrize("kind", ["f32", "u8", "f64"])
def test_loops_over_narrow_rows_run_for_several_rows_at_a_time(rows: int, columns: int, kind: str) -> None:
    elements = f"x:{kind}[{rows},{columns}] v:{kind}[{rows}] y:{kind}[{rows},{columns + 1}]"
    step = f"""
  of_rows = {kind}[{rows},{columns}] broadcast(v), dimensions={{0}}
  cut = {kind}[{rows},{columns}] slice(y), slice={{[0:{rows}],[1:{columns + 1}]}}
  product = {kind}[{rows},{columns}] multiply(x, of_rows)
  x1 = {kind}[{rows},{columns}] add(product, cut)"""
    result = f"ROOT r = {kind}[{rows},{columns}] copy(x_end)"
    text = counting(step, elements, parameters(elements), result, iterations=3)
    fused = after(text, WhileLoopTripCountAnnotator(), ElementwiseLoopFusion())
    assert "while" not in {i.opcode for i in fused.entry.instructions}
    agree(text, *arguments(np.random.default_rng(0), text), rounded=True)


NOT_ELEMENTWISE = {
    "a sum": ("x:f32[8]", "z = f32[] constant(0)\n  s = f32[] dot(x, x), lhs_contracting_dims={0}, "
              "rhs_contracting_dims={0}\n  x1 = f32[8] broadcast(s), dimensions={}"),
    "backwards": ("x:f32[8]", "x1 = f32[8] reverse(x), dimensions={0}"),
    "across": ("x:f32[4,4]", "x1 = f32[4,4] transpose(x), dimensions={1,0}"),
    "two sizes": ("x:f32[8] y:f32[4]", "x1 = f32[8] negate(x)\n  y1 = f32[4] negate(y)"),
}  # fmt: skip


@pytest.mark.parametrize("elements, step", NOT_ELEMENTWISE.values(), ids=NOT_ELEMENTWISE)
def test_other_loops_stay(elements: str, step: str) -> None:
    text = counting(step, elements, parameters(elements))
    module = after(text, WhileLoopTripCountAnnotator(), ElementwiseLoopFusion())
    assert any(i.opcode == "while" for i in module.entry.instructions)
    agree(text, *arguments(np.random.default_rng(0), text), rounded=True)


def test_the_counter_after_the_loop_is_known() -> None:
    text = counting("x1 = f32[8] negate(x)", "x:f32[8]", "x = f32[8] parameter(0)", """
  i_end = s32[] get-tuple-element(w), index=0
  ROOT r = (f32[8], s32[]) tuple(x_end, i_end)""")  # fmt: skip
    module = after(text, WhileLoopTripCountAnnotator(), ElementwiseLoopFusion())
    assert "while" not in {i.opcode for i in module.entry.instructions}
    agree(text, np.arange(8, dtype=np.float32))


@pytest.mark.parametrize("iterations", [1, 2, 50])
def test_initial_values_that_cost_nothing_are_made_in_the_kernel(iterations: int) -> None:
    inputs = """nought = f32[] constant(0)
  x = f32[4000] broadcast(nought), dimensions={}
  c = f32[4000] parameter(0)"""
    text = counting(
        "x1 = f32[4000] add(x, c)",
        "x:f32[4000] c:f32[4000]",
        inputs,
        "ROOT r = f32[4000] copy(x_end)",
        iterations,
    )
    module = after(text, WhileLoopTripCountAnnotator(), ElementwiseLoopFusion())
    assert opcodes(module)["parameter"] == 4  # of the entry, the fusion, the body, the condition
    agree(text, *arguments(np.random.default_rng(0), text))


MATRICES = {
    "times a vector": (
        "x:f32[24] a:f32[24,24]",
        "x1 = f32[24] dot(a, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "transposed on the right": (
        "x:f32[3,24] a:f32[24,24]",
        "x1 = f32[3,24] dot(x, a), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    ),
    "in batches": (
        "x:f32[2,24] a:f32[2,24,24]",
        "x1 = f32[2,24] dot(a, x), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, "
        "rhs_contracting_dims={1}",
    ),
}


@pytest.mark.parametrize("elements, step", MATRICES.values(), ids=MATRICES)
def test_matrices_are_turned_before_the_loop(elements: str, step: str) -> None:
    text = counting(step, elements, parameters(elements))
    module = after(text, WhileLoopDotLayout(), WhileLoopInvariantCodeMotion())
    assert [i.opcode for i in module.entry.instructions].count("transpose") == 1
    assert opcodes(module)["transpose"] == 1
    agree(text, *(0.2 * x for x in arguments(np.random.default_rng(0), text)), rounded=True)


def test_few_iterations_do_not_repay_a_transpose() -> None:
    elements, step = MATRICES["times a vector"]
    text = counting(step, elements, parameters(elements), iterations=3)
    assert opcodes(after(text, WhileLoopDotLayout()))["transpose"] == 0


@pytest.mark.parametrize("size, transposes", [(24, 1), (240, 0)])
def test_large_matrices_stay_in_loops_of_unknown_trip_count(size: int, transposes: int) -> None:
    elements, step = (part.replace("24", str(size)) for part in MATRICES["times a vector"])
    text = counting(step, f"{elements} n:s32[]", parameters(f"{elements} n:s32[]"))
    bound = "get-tuple-element(p), index=3\n  ROOT"
    text = re.sub(r"constant\(7\)\s+ROOT", bound, text)
    assert bound in text
    assert opcodes(after(text, WhileLoopDotLayout()))["transpose"] == transposes


def test_what_a_loop_hands_on_is_not_copied() -> None:
    elements = "x:f32[64] table:f32[1000,64]"
    step = """n = s32[] constant(999)
  k = s32[] and(i, n)
  z = s32[] constant(0)
  cut = f32[1,64] dynamic-slice(table, k, z), dynamic_slice_sizes={1,64}
  row = f32[64] reshape(cut)
  turned = f32[64] reverse(x), dimensions={0}
  x1 = f32[64] add(turned, row)"""
    text = counting(step, elements, parameters(elements), "ROOT r = f32[64] copy(x_end)")
    module = parse(text)
    CPU_PIPELINE.run(module)
    assert emit_program(module).temp_bytes < 1000 * 64 * 4
    agree(text, *arguments(np.random.default_rng(0), text))


def test_an_array_that_a_body_changes_after_handing_it_on_is_not_the_argument() -> None:
    elements = "x:f32[64] y:f32[64]"
    step = """z = s32[] constant(3)
  v = f32[1] constant({7})
  x1 = f32[64] dynamic-update-slice(y, v, z)"""
    text = counting(step, elements, parameters(elements))
    given = arguments(np.random.default_rng(0), text)
    before = [np.array(g) for g in given]
    agree(text, *given)
    for got, kept in zip(given, before, strict=True):
        agreement.equal(got, kept)


def test_state_beyond_the_stack_lies_in_the_arena() -> None:
    count = STACK // 64 + 40
    elements = " ".join(f"x{n}_:f32[2,8]" for n in range(count))
    step = "\n  ".join(f"x{n}_1 = f32[2,8] reverse(x{n}_), dimensions={{0,1}}" for n in range(count))
    text = counting(step, elements, parameters(elements))
    assert compiled(text).program.temp_bytes > 0
    agree(text, *arguments(np.random.default_rng(0), text))


def test_a_kernel_that_runs_before_a_loop_too_is_code_of_the_loop() -> None:
    reverse = "f32[2,8] reverse({}), dimensions={{0,1}}"
    inputs = f"a = f32[2,8] parameter(0)\n  x = {reverse.format('a')}"
    text = counting(f"x1 = {reverse.format('x')}", "x:f32[2,8]", inputs)
    functions = hloom.compile(parse(text)).to_llvm().split("define internal")[1:]
    assert ["alwaysinline" in function for function in functions] == [False, True]
    agree(text, *arguments(np.random.default_rng(0), text))


@pytest.mark.parametrize("sizes", [(5, 5), (9, 5), (2, 17), (3, 33)])
@pytest.mark.parametrize("kind", ["bf16", "f16", "s16", "s8"])
def test_a_lane_left_over_on_the_stack_does_not_touch_its_neighbours(
    kind: str, sizes: tuple[int, int]
) -> None:
    """A loop on a small array updates it in place, in memory that LLVM knows not to be null."""
    array = f"{kind}[{sizes[0]},{sizes[1]}]"
    text = f"""HloModule sums
step {{
  s = (s32[], {array}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = {array} get-tuple-element(s), index=1
  rows = {array} iota(), iota_dimension=0
  y = {array} add(x, rows)
  ROOT t = (s32[], {array}) tuple(j, y)
}}
again {{
  s = (s32[], {array}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(2)
  ROOT p = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  i = s32[] parameter(0)
  x = {array} parameter(1)
  s = (s32[], {array}) tuple(i, x)
  w = (s32[], {array}) while(s), condition=again, body=step
  ROOT r = {array} get-tuple-element(w), index=1
}}"""
    numbers = (np.arange(sizes[0] * sizes[1]) % 50 + 50).reshape(sizes)
    agree(text, np.int32(1), numbers.astype(ElementType.parse(kind).numpy_dtype))


@pytest.mark.parametrize("length", [100, 100_000])
def test_a_step_that_reads_one_element_is_little_work(length: int) -> None:
    # work decides whether a thread of its own runs a program, and whether a loop asks for interruptions
    step = """d = s32[1] dynamic-slice(x, i), dynamic_slice_sizes={1}
  e = s32[] reshape(d)
  total1 = s32[] add(total, e)"""
    elements = f"x:s32[{length}] total:s32[]"
    text = counting(step, elements, parameters(elements), "ROOT r = s32[] copy(total_end)", iterations=50)
    assert 50 < compiled(text).program.work < 50 * 20
