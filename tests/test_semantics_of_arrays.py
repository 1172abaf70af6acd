"""Semantics that XLA's page leaves open: indices, windows, random numbers, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import hloom
from hloom.shape.element_type import ElementType
from tests import agreement
from tests.arrays import f32, s32, u32, u64
from tests.evaluation import parse, refused
from tests.interruption import SOON, interrupted
from tests.reducers import ADD, with_reducers
from tests.semantics_runs import (
    MIN,
    NAN,
    backend,
    compiled,
    evaluate,
)

__all__ = ["backend"]

# -- indexing and windows


def test_starts_of_slices_are_clamped_each_for_itself() -> None:
    found = evaluate(
        "x = f32[10] parameter(0)\na = s32[] constant(9)\nb = s32[] constant(0)\n"
        "s = f32[4] dynamic-slice(x, a), dynamic_slice_sizes={4}\n"
        "ROOT r = f32[1] dynamic-slice(s, b), dynamic_slice_sizes={1}",
        f32(np.arange(10)),
    )
    assert found.tolist() == [6]
    negative = "x = f32[4] parameter(0)\ni = s32[] constant(-7)\nu = f32[2] constant({8, 9})\n"
    updated = evaluate(negative + "ROOT r = f32[4] dynamic-update-slice(x, u, i)", f32([0, 1, 2, 3]))
    assert updated.tolist() == [8, 9, 2, 3]


def test_narrow_unsigned_starts_do_not_wrap() -> None:
    found = evaluate(
        "x = s32[300] parameter(0)\ni = u8[] constant(200)\n"
        "ROOT r = s32[1] dynamic-slice(x, i), dynamic_slice_sizes={1}",
        s32(np.arange(300)),
    )
    assert found.tolist() == [200]


def test_gather_clamps_the_start_and_then_adds_the_offset() -> None:
    found = evaluate(
        "x = s32[5] parameter(0)\ni = s32[3,1] constant({{-9},{1},{99}})\n"
        "ROOT r = s32[3,2] gather(x, i), offset_dims={1}, "
        "collapsed_slice_dims={}, start_index_map={0}, index_vector_dim=1, slice_sizes={2}",
        s32(np.arange(5)),
    )
    assert found.tolist() == [[0, 1], [1, 2], [3, 4]]


def test_reductions_that_are_not_plain_go_in_row_major_order() -> None:
    """| | |0 - x0| - x1| ... of two dimensions, and of windows whose last element is the largest."""
    distance = """HloModule m
    f { a = s32[] parameter(0)
        b = s32[] parameter(1)
        d = s32[] subtract(a, b)
        ROOT r = s32[] abs(d) }
    ENTRY e { x = s32[2,20] parameter(0)
        z = s32[] constant(0)
        ROOT r = """
    x = np.arange(40, dtype=s32).reshape(2, 20) ** 2
    wanted = 0
    for element in x.ravel():
        wanted = abs(wanted - element)
    assert evaluate(distance + "s32[] reduce(x, z), dimensions={1,0}, to_apply=f }", x) == wanted
    windows = "s32[1,1] reduce-window(x, z), window={size=2x20}, to_apply=f }"
    assert evaluate(distance + windows, x).tolist() == [[wanted]]


SCATTER = """HloModule m
f {{ old = s32[] parameter(0)
    new = s32[] parameter(1)
    ROOT r = s32[] {combine} }}
ENTRY e {{ x = s32[{n}] parameter(0)
    i = s32[{indices}] parameter(1)
    u = s32[{updates}] parameter(2)
    ROOT r = s32[{n}] scatter(x, i, u), update_window_dims={{{window}}}, inserted_window_dims={{{inserted}}},
        scatter_dims_to_operand_dims={{{dims}}}, index_vector_dim={vector}, to_apply=f }}"""


def test_scatter_drops_a_window_partly_out_of_bounds_in_whole() -> None:
    text = SCATTER.format(
        combine="add(old, new)", n=5, indices="3,1", updates="3,3", window=1, inserted="", dims=0, vector=1
    )
    found = evaluate(text, s32([0] * 5), s32([[3], [-1], [2]]), s32([[1, 2, 3], [10, 20, 30], [4, 5, 6]]))
    assert found.tolist() == [0, 0, 4, 5, 6]


SUM_OF_DOTS = """HloModule m
    more { s = (s32[], f32[1,1], f32[4,1,1]) parameter(0)
        i = s32[] get-tuple-element(s), index=0
        n = s32[] constant(4)
        ROOT l = pred[] compare(i, n), direction=LT }
    step { s = (s32[], f32[1,1], f32[4,1,1]) parameter(0)
        i = s32[] get-tuple-element(s), index=0
        a = f32[1,1] get-tuple-element(s), index=1
        xs = f32[4,1,1] get-tuple-element(s), index=2
        zero = s32[] constant(0)
        one = s32[] constant(1)
        j = s32[] add(i, one)
        row = f32[1,1,1] dynamic-slice(xs, i, zero, zero), dynamic_slice_sizes={1,1,1}
        x = f32[1,1] reshape(row)
        unit = f32[] constant(1)
        y = f32[1,1] broadcast(unit), dimensions={}
        z = f32[1,1] multiply(x, x)
        d = f32[1,1] dot(x, z), lhs_contracting_dims={1}, rhs_contracting_dims={0}
        NEXT
        ROOT t = (s32[], f32[1,1], f32[4,1,1]) tuple(j, b, xs) }
    ENTRY e { xs = f32[4,1,1] parameter(0)
        zero = s32[] constant(0)
        none = f32[1,1] constant({{0}})
        s = (s32[], f32[1,1], f32[4,1,1]) tuple(zero, none, xs)
        l = (s32[], f32[1,1], f32[4,1,1]) while(s), condition=more, body=step
        ROOT r = f32[1,1] get-tuple-element(l), index=1 }"""


def test_a_loop_sums_dots_in_any_order() -> None:
    """2^30 + 1 - 2^30 + 1 is 0, 1 or 2 by its order; with 1 after each term it is 3, else more."""
    x = f32([1024, 1, -1024, 1]).reshape(4, 1, 1)
    assert evaluate(SUM_OF_DOTS.replace("NEXT", "b = f32[1,1] add(a, d)"), x).tolist() in (
        [[0]],
        [[1]],
        [[2]],
    )
    step = "c = f32[1,1] add(a, d)\n b = f32[1,1] add(c, y)"
    assert evaluate(SUM_OF_DOTS.replace("NEXT", step), x).tolist() == [[3]]


def test_scatter_combines_the_current_value_with_each_update_in_order() -> None:
    text = SCATTER.format(
        combine="subtract(new, old)", n=2, indices="3,1", updates="3", window="", inserted=0, dims=0, vector=1
    )
    found = evaluate(text, s32([0, 100]), s32([[1], [1], [1]]), s32([1, 2, 3]))
    assert found.tolist() == [0, 3 - (2 - (1 - 100))]


def test_scatter_with_an_empty_index_vector_lands_on_one_window() -> None:
    text = SCATTER.format(
        combine="add(old, new)", n=2, indices="3,0", updates="3,2", window=1, inserted="", dims="", vector=1
    )
    found = evaluate(text, s32([0, 0]), np.zeros((3, 0), s32), s32([[1, 2], [10, 20], [100, 200]]))
    assert found.tolist() == [111, 222]


def test_an_update_with_a_shifted_part_of_itself_reads_the_old_values() -> None:
    found = evaluate(
        "x = s32[5] parameter(0)\none = s32[] constant(1)\ns = s32[4] slice(x), slice={[0:4]}\n"
        "ROOT r = s32[5] dynamic-update-slice(x, s, one)",
        s32([1, 2, 3, 4, 5]),
    )
    assert found.tolist() == [1, 1, 2, 3, 4]


def test_a_branch_out_of_range_is_the_last() -> None:
    text = """HloModule m
    a { x = s32[] parameter(0)
        ROOT r = s32[] negate(x) }
    b { y = s32[] parameter(0)
        ROOT s = s32[] add(y, y) }
    ENTRY e { i = s32[] parameter(0)
        v = s32[] constant(7)
        ROOT r = s32[] conditional(i, v, v), branch_computations={a, b} }"""
    assert [int(evaluate(text, s32(i))) for i in (0, 1, 2, -1, MIN)] == [-7, 14, 14, 14, 14]


ALWAYS, CARRIED = "ROOT t = pred[] constant(true)", "ROOT t = pred[] get-tuple-element(s), index=0"
IDENTITY = "ROOT t = (pred[], s32[]) tuple(p, n)"
DOUBLES = "m = s32[] add(n, n)\nROOT t = (pred[], s32[]) tuple(p, m)"
LOOP = """HloModule m
    more {{ s = (pred[], s32[]) parameter(0)
            {condition} }}
    step {{ s = (pred[], s32[]) parameter(0)
            p = pred[] get-tuple-element(s), index=0
            n = s32[] get-tuple-element(s), index=1
            {body} }}
    ENTRY e {{ p = pred[] parameter(0)
               n = s32[] constant(1)
               s = (pred[], s32[]) tuple(p, n)
               w = (pred[], s32[]) while(s), condition=more, body=step
               {result} }}"""


@pytest.mark.parametrize("condition", [ALWAYS, CARRIED], ids=["true", "carried"])
@pytest.mark.parametrize("body", [DOUBLES, IDENTITY], ids=["doubles", "identity"])
@pytest.mark.parametrize("result", ["pred[] get-tuple-element(w), index=0", "(pred[], s32[]) copy(w)"])
def test_a_loop_without_end_does_not_return(condition: str, body: str, result: str) -> None:
    exe = compiled(parse(LOOP.format(condition=condition, body=body, result=f"ROOT r = {result}")))
    assert interrupted(exe, np.True_) < SOON
    if condition is CARRIED:
        assert np.all(exe(np.False_)[0] == np.False_) if "copy" in result else exe(np.False_) == np.False_


@pytest.mark.parametrize("condition", [ALWAYS, CARRIED], ids=["true", "carried"])
def test_a_loop_without_end_that_no_result_needs_does_not_run(condition: str) -> None:
    text = LOOP.format(condition=condition, body=DOUBLES, result="ROOT r = s32[] constant(7)")
    assert evaluate(text, np.True_) == 7


def test_select_and_scatter_with_ge_keeps_the_first_of_equals() -> None:
    found = evaluate(
        with_reducers("""HloModule m
        ge { a = f32[] parameter(0)
             b = f32[] parameter(1)
             ROOT r = pred[] compare(a, b), direction=GE }
        ENTRY e { x = f32[4] parameter(0)
             s = f32[2] parameter(1)
             z = f32[] constant(0)
             ROOT r = f32[4] select-and-scatter(x, s, z), window={size=2 stride=2},
                 select=ge, scatter=add }"""),
        f32([5, 5, 5, 5]),
        f32([1, 2]),
    )
    assert found.tolist() == [1, 0, 2, 0]


DYNAMIC = (
    "x = f32[5] parameter(0)\nn = s32[] parameter(1)\nd = f32[<=5] set-dimension-size(x, n), dimensions={0}\n"
)


@pytest.mark.parametrize("size", [0, 1, 3, 4])
def test_operands_of_static_size_count_up_to_the_actual_size(size: int) -> None:
    x, y = s32([1, 2, 3, 4]), s32(np.arange(8)).reshape(4, 2)
    count, total, chosen, clamped = evaluate(
        """n = s32[] parameter(0)
        x = s32[4] parameter(1)
        y = s32[4,2] parameter(2)
        d = s32[<=4] set-dimension-size(x, n), dimensions={0}
        square = s32[<=4] multiply(x, d)
        sum = s32[<=4] add(square, x)
        rows = s32[<=4,2] set-dimension-size(y, n), dimensions={0}
        odd = pred[4,2] constant({{1,0},{0,1},{1,0},{0,1}})
        chosen = s32[<=4,2] select(odd, rows, y)
        least = s32[] constant(2)
        clamped = s32[<=4,2] clamp(least, y, rows)
        count = s32[] get-dimension-size(sum), dimensions={0}
        ROOT r = (s32[], s32[<=4], s32[<=4,2], s32[<=4,2]) tuple(count, sum, chosen, clamped)""",
        np.int32(size), x, y,
    )  # fmt: skip
    agreement.same(count, np.int32(size))
    agreement.same(total, (x * x + x)[:size])
    agreement.same(chosen, y[:size])
    agreement.same(clamped, y[:size])


@pytest.mark.parametrize(
    "line",
    [
        "f32[5] add(d, d)", "f32[5] negate(d)", "f32[2,5] broadcast(d), dimensions={1}", "(f32[5]) tuple(d)",
        "f32[5] reverse(d), dimensions={0}", "s32[5] convert(d)", "u32[5] bitcast-convert(d)",
        "f32[10] concatenate(d, d), dimensions={0}", "f32[7] pad(d, e), padding=1_1", "f32[5] opt-barrier(d)",
        "f32[5,5] dot(d, d), lhs_contracting_dims={}, rhs_contracting_dims={}",
    ],
)  # fmt: skip
def test_dynamic_sizes_are_not_stated_as_static(line: str) -> None:
    error = refused(f"{DYNAMIC}e = f32[] constant(0)\nROOT r = {line}")
    assert error.rule == "instruction.dynamic-dimensions"
    assert error.instruction == "r"


def test_computations_take_dynamic_arguments_only_where_they_say_so() -> None:
    text = (
        "HloModule m\nf { y = f32[5] parameter(0)\n ROOT r = f32[5] negate(y) }\n"
        f"ENTRY e {{ {DYNAMIC} ROOT r = f32[5] call(d), to_apply=f }}"
    )
    assert refused(text).rule == "call.arguments"


@pytest.mark.parametrize(
    "line",
    [
        "f32[5] set-dimension-size(x, n), dimensions={0}",
        "f32[5] slice(d), slice={[0:5]}",
        "f32[5] dynamic-slice(d, n), dynamic_slice_sizes={5}",
    ],
)
def test_static_sizes_are_filled_with_zeros(line: str) -> None:
    found = evaluate(f"{DYNAMIC}ROOT r = {line}", f32([1, 2, 3, 4, 5]), s32(3))
    assert found.tolist() == [1, 2, 3, 0, 0]


def test_other_dimensions_of_static_size_are_filled_with_zeros() -> None:
    """The second size is set, and the result states that the first one is static."""
    found = evaluate(
        """x = f32[3,3] parameter(0)
        n = s32[] parameter(1)
        rows = f32[<=3,3] set-dimension-size(x, n), dimensions={0}
        ROOT r = f32[3,<=3] set-dimension-size(rows, n), dimensions={1}""",
        f32([[1, 2, 3], [4, 5, 6], [7, 8, 9]]), s32(2),
    )  # fmt: skip
    assert found.tolist() == [[1, 2], [4, 5], [0, 0]]


@pytest.mark.parametrize(("kind", "large"), [("bf16", 256), ("f16", 2048)])
def test_scatters_round_every_combination(kind: str, large: int) -> None:
    """The larger number and two ones, which one addition at a time does not change."""
    dtype = ElementType.parse(kind).numpy_dtype
    source = np.array([large, 1, 1]).astype(dtype)
    scalars = f"a = {kind}[] parameter(0)\n b = {kind}[] parameter(1)\n"
    add = f"add {{ {scalars} ROOT r = {kind}[] add(a, b) }}\n"
    select = f"ge {{ {scalars} ROOT r = pred[] compare(a, b), direction=GE }}\n"
    chosen = evaluate(
        f"HloModule m\n{add}{select}ENTRY e {{ x = {kind}[5] parameter(0)\n s = {kind}[3] parameter(1)\n"
        f" z = {kind}[] constant(0)\n ROOT r = {kind}[5] select-and-scatter(x, s, z), window={{size=3}},"
        " select=ge, scatter=add }",
        np.array([0, 1, 9, 1, 0]).astype(dtype),
        source,
    )
    assert chosen.astype(int).tolist() == [0, 0, large, 0, 0]
    scattered = evaluate(
        f"HloModule m\n{add}ENTRY e {{ x = {kind}[1] parameter(0)\n i = s32[3,1] parameter(1)\n"
        f" u = {kind}[3] parameter(2)\n ROOT r = {kind}[1] scatter(x, i, u), update_window_dims={{}},"
        " inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add }",
        np.zeros(1, dtype), np.zeros((3, 1), np.int32), source,
    )  # fmt: skip
    assert scattered.astype(int).tolist() == [large]
    summed = evaluate(
        f"HloModule m\n{add}ENTRY e {{ x = {kind}[3] parameter(0)\n z = {kind}[] constant(0)\n"
        f" ROOT r = {kind}[] reduce(x, z), dimensions={{0}}, to_apply=add }}",
        source,
    )
    assert int(summed) == large + 2


def test_pad_spreads_first_and_crops_then() -> None:
    text = "x = s32[3] parameter(0)\nz = s32[] constant(0)\nROOT r = s32[{n}] pad(x, z), padding={p}"
    assert evaluate(text.format(n=4, p="-1_0_1"), s32([1, 2, 3])).tolist() == [0, 2, 0, 3]
    assert evaluate(text.format(n=6, p="2_-1_1"), s32([1, 2, 3])).tolist() == [0, 0, 1, 0, 2, 0]
    empty = "x = s32[0] parameter(0)\nz = s32[] constant(9)\nROOT r = s32[2] pad(x, z), padding=1_1_3"
    assert evaluate(empty, np.zeros(0, s32)).tolist() == [9, 9]


def windowed(n: int, result: int, window: str, x):
    return evaluate(
        "HloModule m\n" + ADD + f"ENTRY e {{ x = f32[{n}] parameter(0)\n z = f32[] constant(0)\n"
        f" ROOT r = f32[{result}] reduce-window(x, z), window={{{window}}}, to_apply=add }}",
        f32(x),
    )


def test_padding_of_windows_counts_as_the_initial_value() -> None:
    found = evaluate(
        f"HloModule m\n{ADD}"
        "ENTRY e { x = f32[2] parameter(0)\n z = f32[] constant(10)\n"
        " ROOT r = f32[4] reduce-window(x, z), window={size=2 pad=1_1 lhs_dilate=2}, to_apply=add }",
        f32([1, 2]),
    )
    assert found.tolist() == [21, 21, 22, 22]


def test_products_of_convolutions_with_padding_and_holes_are_left_out() -> None:
    found = evaluate(
        "x = f32[1,1,2] parameter(0)\nk = f32[1,1,2] parameter(1)\n"
        "ROOT r = f32[1,1,4] convolution(x, k), window={size=2 pad=1_1 lhs_dilate=2}, "
        "dim_labels=bf0_oi0->bf0",
        f32([[[1, 2]]]), f32([[[np.inf, 3]]]),
    )  # fmt: skip
    assert found.tolist() == [[[3, np.inf, 6, np.inf]]]
    zeros = evaluate(
        "x = f32[1,1,1] parameter(0)\nk = f32[1,1,2] parameter(1)\nz = f32[] constant(0)\n"
        "p = f32[1,1,3] pad(x, z), padding=0_0x0_0x1_1\n"
        "ROOT r = f32[1,1,2] convolution(p, k), window={size=2}, dim_labels=bf0_oi0->bf0",
        f32([[[1]]]), f32([[[np.inf, 3]]]),
    )  # fmt: skip
    agreement.same(zeros, f32([[[np.nan, np.inf]]]))


def test_windows_of_dilated_nothing_and_of_too_little() -> None:
    assert windowed(0, 0, "size=1 lhs_dilate=3", []).tolist() == []
    assert windowed(0, 2, "size=1 lhs_dilate=3 pad=1_1", []).tolist() == [0, 0]
    assert windowed(2, 0, "size=3", [1, 2]).tolist() == []


def test_negative_padding_of_convolutions_crops() -> None:
    text = (
        "x = f32[1,1,5] parameter(0)\nk = f32[1,1,2] parameter(1)\n"
        "ROOT r = f32[1,1,2] convolution(x, k), window={size=2 pad=-1_-1}, dim_labels=bf0_oi0->bf0"
    )
    assert evaluate(text, f32([[[1, 2, 3, 4, 5]]]), f32([[[1, 10]]])).tolist() == [[[32, 43]]]


def test_a_device_that_nobody_sends_to_gets_zeros() -> None:
    module = hloom.HloModule.from_text(
        "HloModule m\nENTRY e { x = s32[] parameter(0)\n"
        " ROOT r = s32[] collective-permute(x), source_target_pairs={{0,1}} }"
    )
    assert [int(r) for r in compiled(module, num_replicas=3).run([[s32(5)], [s32(6)], [s32(7)]])] == [0, 5, 0]


def test_reductions_ignore_what_lies_beyond_a_dynamic_size() -> None:
    found = evaluate(
        "HloModule m\n"
        + ADD
        + "ENTRY e { x = f32[4] parameter(0)\n n = s32[] constant(2)\n z = f32[] constant(0)\n"
        " d = f32[<=4] set-dimension-size(x, n), dimensions={0}\n"
        " ROOT r = f32[] reduce(d, z), dimensions={0}, to_apply=add }",
        f32([1, 2, 4, 8]),
    )
    assert found == 3


def test_the_other_triangle_is_never_read() -> None:
    a = f32([[4, NAN], [2, 5]])
    lower = evaluate("a = f32[2,2] parameter(0)\nROOT r = f32[2,2] cholesky(a), lower=true", a)
    assert (lower[0, 0], lower[1, 0], lower[1, 1]) == (2, 1, 2)
    solved = evaluate(
        "a = f32[2,2] parameter(0)\nb = f32[2,1] parameter(1)\nROOT r = f32[2,1] triangular-solve(a, b), "
        "left_side=true, lower=true, transpose_a=NO_TRANSPOSE",
        a,
        f32([[4], [7]]),
    )
    assert solved.tolist() == [[1], [1]]


@pytest.mark.parametrize("shape", ["0", "2,0", "", "1,1"])
def test_arrays_of_size_zero_rank_zero_and_size_one(shape: str) -> None:
    dimensions = tuple(map(int, filter(None, shape.split(","))))
    x = np.zeros(dimensions, f32)
    every = ",".join(map(str, range(len(dimensions))))
    found = evaluate(
        "HloModule m\n" + ADD + f"ENTRY e {{ x = f32[{shape}] parameter(0)\n z = f32[] constant(1)\n"
        f" n = f32[{shape}] negate(x)\n r = f32[{shape}] reverse(n), dimensions={{{every}}}\n"
        f" t = f32[{shape}] transpose(r), dimensions={{{every}}}\n"
        f" ROOT s = f32[] reduce(t, z), dimensions={{{every}}}, to_apply=add }}",
        x,
    )
    assert found == 1


# -- random numbers


def test_threefry_gives_the_numbers_of_the_specification() -> None:
    state, bits = evaluate(
        "s = u64[2] parameter(0)\nROOT r = (u64[2], u64[2,2]) rng-bit-generator(s), algorithm=rng_three_fry",
        u64([1, 2]),
    )
    assert state.tolist() == [1, 6]
    assert bits.flat[0] == 9236835810183407956


@pytest.mark.parametrize("words", [2, 3])
def test_philox_is_a_function_of_its_state(words: int) -> None:
    text = (
        f"s = u64[{words}] parameter(0)\n"
        f"ROOT r = (u64[{words}], u32[8]) rng-bit-generator(s), algorithm=rng_philox"
    )
    first, again = (evaluate(text, u64(range(words))) for _ in range(2))
    assert [a.tolist() for a in first] == [a.tolist() for a in again]
    other = evaluate(text, u64(range(1, words + 1)))
    assert other[1].tolist() != first[1].tolist()


def test_jax_random_numbers_come_out_to_the_last_bit() -> None:
    jax = pytest.importorskip("jax")
    key = u32([0, 42])

    def draw(key):
        return jax.random.normal(jax.random.wrap_key_data(key), (3, 5), "float32")

    text = jax.jit(draw).lower(key).compiler_ir("hlo").as_hlo_text(True)
    module = hloom.HloModule.from_text(text)
    agreement.computed(compiled(module)(key), module, [key])
    agreement.computed(np.asarray(draw(key)), module, [key])
    bits = jax.jit(lambda k: jax.random.bits(jax.random.wrap_key_data(k), (100,)))
    found = compiled(hloom.HloModule.from_text(bits.lower(key).compiler_ir("hlo").as_hlo_text(True)))(key)
    assert (found == np.asarray(bits(key))).all()


# -- errors


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("f32[] reduce(x, z), dimensions={0}, to_apply=nope", "text.computation"),
        ("f32[2] conditional(x, x, x), true_computation=a, false_computation=b", "text.computation"),
        ("f32[3] add(x, x)", "instruction.shape-matches"),
        ("f32[0] pad(x, z), padding=-2_-1", "pad.result-size"),
    ],
)
def test_errors_name_rule_instruction_and_place(text: str, rule: str) -> None:
    error = refused(f"x = f32[2] parameter(0)\nz = f32[] constant(0)\nROOT r = {text}")
    assert error.rule == rule
    assert error.instruction == "r"
    assert error.line == 5
    assert error.column is not None


def test_branches_of_mismatched_types_are_refused() -> None:
    error = refused(
        """HloModule m
        a { x = f32[2] parameter(0)
            ROOT r = f32[2] negate(x) }
        b { y = s32[2] parameter(0)
            ROOT s = f32[2] convert(y) }
        ENTRY e { p = pred[] parameter(0)
            v = f32[2] parameter(1)
            ROOT c = f32[2] conditional(p, v, v), true_computation=a, false_computation=b }"""
    )
    assert (error.rule, error.instruction, error.line) == ("conditional.arguments", "c", 8)


def test_branches_with_different_dynamic_sizes_are_refused() -> None:
    text = (
        "HloModule m\na { x = f32[<=4,4] parameter(0)\n ROOT r = f32[<=4,4] negate(x) }\n"
        "b { y = f32[4,<=4] parameter(0)\n ROOT s = f32[4,<=4] negate(y) }\n"
        "ENTRY e { p = pred[] parameter(0)\n x = f32[<=4,4] parameter(1)\n y = f32[4,<=4] parameter(2)\n"
        " ROOT r = f32[<=4,<=4] conditional(p, x, y), true_computation=a, false_computation=b }"
    )
    assert refused(text).rule == "conditional.dynamic-results"
