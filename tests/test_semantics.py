"""What operations do in the corners: one test for every decision, named for its case.

The decisions are those of `docs/semantics.md`; where XLA's page leaves a value open, hloom has one.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import agreement
import hloom
from evaluation import evaluate, refused

F, I, U8, U32 = np.float32, np.int32, np.uint8, np.uint32  # noqa: E741
MIN = np.iinfo(np.int32).min
INF, NAN = np.float32(np.inf), np.float32(np.nan)


def binary(opcode: str, x, y, attributes: str = "", result: str = ""):
    """One operation on two arrays of one shape."""
    shape = hloom.Shape.of(np.asarray(x)).to_string(layout=False)
    return evaluate(
        f"x = {shape} parameter(0)\ny = {shape} parameter(1)\n"
        f"ROOT r = {result or shape} {opcode}(x, y){attributes}",
        x,
        y,
    )


def unary(opcode: str, x, result: str = "", attributes: str = ""):
    """One operation on one array."""
    shape = hloom.Shape.of(np.asarray(x)).to_string(layout=False)
    return evaluate(f"x = {shape} parameter(0)\nROOT r = {result or shape} {opcode}(x){attributes}", x)


def shown(value) -> str:
    """The elements as text, in which -0.0 is not 0.0 and NaN is equal to itself."""
    return str(np.asarray(value).tolist())


# -- policy


def test_subnormals_are_kept() -> None:
    tiny = F(1e-45)
    assert binary("add", tiny, F(0)) == binary("multiply", tiny, F(1)) == tiny
    assert unary("convert", ml_dtypes.float8_e4m3fn(2**-9), "f32[]") == F(2**-9)


def test_no_contraction_of_multiply_and_add() -> None:
    a, b = F(1 + 2**-12), F(1 + 2**-12)
    found = evaluate(
        "a = f32[] parameter(0)\nb = f32[] parameter(1)\nc = f32[] parameter(2)\n"
        "m = f32[] multiply(a, b)\nROOT r = f32[] add(m, c)",
        a, b, F(-(a * b)),
    )  # fmt: skip
    assert found == 0


def test_no_elided_rounding() -> None:
    x = F(1.001)
    found = evaluate("x = f32[] parameter(0)\nb = bf16[] convert(x)\nROOT r = f32[] convert(b)", x)
    assert found == F(x.astype(ml_dtypes.bfloat16)) != x


def test_one_program_gives_the_same_bits_every_time() -> None:
    module = hloom.HloModule.from_text(
        "HloModule m\nadd { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n"
        "ENTRY e { x = f32[9999] parameter(0)\n z = f32[] constant(0)\n"
        " ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add }"
    )
    x = np.random.default_rng(0).normal(size=9999).astype(F)
    executable = hloom.compile(module)
    assert len({executable(x).tobytes() for _ in range(5)}) == 1


# -- integers


def test_integer_division_by_zero_is_all_ones() -> None:
    assert binary("divide", I([5, -5, 0]), I([0, 0, 0])).tolist() == [-1, -1, -1]
    assert binary("divide", U8([5, 0]), U8([0, 0])).tolist() == [255, 255]


def test_integer_remainder_by_zero_is_the_dividend() -> None:
    assert binary("remainder", I([5, -5]), I([0, 0])).tolist() == [5, -5]


def test_least_integer_divided_by_minus_one() -> None:
    assert (binary("divide", I(MIN), I(-1)), binary("remainder", I(MIN), I(-1))) == (MIN, 0)


def test_remainder_has_the_sign_of_the_dividend() -> None:
    assert binary("remainder", I([7, -7, 7, -7]), I([3, 3, -3, -3])).tolist() == [1, -1, 1, -1]
    assert binary("remainder", F([5.5, -5.5]), F([2, 2])).tolist() == [1.5, -1.5]


def test_shifts_by_the_width_and_more() -> None:
    counts = I([31, 32, 100, -1])
    assert binary("shift-left", I([1] * 4), counts).tolist() == [MIN, 0, 0, 0]
    assert binary("shift-right-logical", I([-1] * 4), counts).tolist() == [1, 0, 0, 0]
    assert binary("shift-right-arithmetic", I([-8] * 4), counts).tolist() == [-1] * 4
    assert binary("shift-right-arithmetic", I([8] * 4), counts).tolist() == [0] * 4


def test_integer_power_with_a_negative_exponent() -> None:
    found = binary("power", I([1, -1, -1, 2, -3, 0]), I([-5, -4, -5, -1, -2, -1]))
    assert found.tolist() == [1, 1, -1, 0, 0, 0]


def test_integer_power_counts_every_bit_of_the_exponent() -> None:
    exponent = 1 << 20 | 3
    assert binary("power", U32(3), U32(exponent)) == pow(3, exponent, 1 << 32)
    assert binary("power", I(-1), I(exponent)) == -1


def test_arithmetic_of_predicates() -> None:
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])
    assert unary("not", x).tolist() == [True, True, False, False]
    for opcode in ("add", "maximum", "or"):
        assert binary(opcode, x, y).tolist() == [False, True, True, True]
    for opcode in ("multiply", "minimum", "and"):
        assert binary(opcode, x, y).tolist() == [False, False, False, True]


def test_negative_of_unsigned_and_absolute_of_least_wrap() -> None:
    assert unary("negate", U8([1, 0, 255])).tolist() == [255, 0, 1]
    assert unary("abs", I(MIN)) == MIN


def test_leading_zeros_of_zero_are_the_width() -> None:
    assert unary("count-leading-zeros", U8([0, 1, 255])).tolist() == [8, 7, 0]
    assert unary("count-leading-zeros", np.int64(0)) == 64


# -- conversions


def test_float_to_signed() -> None:
    x = F([1.9, -1.9, 3e9, -3e9, INF, -INF, NAN])
    most = np.iinfo(I).max
    assert unary("convert", x, "s32[7]").tolist() == [1, -1, most, MIN, most, MIN, 0]


def test_float_to_unsigned() -> None:
    assert unary("convert", F([1.9, -1.9, 300, -INF, INF, NAN]), "u8[6]").tolist() == [1, 0, 255, 0, 255, 0]


def test_integer_to_narrower_integer_wraps() -> None:
    assert unary("convert", I([256, -1, 130]), "s8[3]").tolist() == [0, -1, -126]


def test_float_to_predicate() -> None:
    assert unary("convert", F([NAN, -0.0, 0, 0.5]), "pred[4]").tolist() == [True, False, False, True]


def test_complex_to_real_and_back() -> None:
    assert unary("convert", np.complex64(3 + 4j), "f32[]") == 3
    assert unary("convert", F(3), "c64[]") == 3 + 0j


def test_rounding_is_to_nearest_even_and_only_once() -> None:
    # Through f32 the f64 would become a tie and round to even, downwards.
    x = np.float64(1 + 2.0**-8 + 2.0**-40)
    assert unary("convert", x, "bf16[]") == ml_dtypes.bfloat16(1 + 2.0**-7)
    assert unary("convert", F(1 + 2.0**-8), "bf16[]") == ml_dtypes.bfloat16(1)
    y = np.float64(1 + 2.0**-11 + 2.0**-40)
    assert unary("convert", y, "f16[]") == np.float16(1 + 2.0**-10)


def test_f8e4m3fn_at_its_end() -> None:
    found = unary("convert", F([464, 465, 448, -464]), "f8e4m3fn[4]").astype(F)
    assert shown(found) == shown([448.0, NAN, 448.0, -448.0])
    assert unary("convert", np.float16(2**-9), "f8e4m3fn[]").astype(F) == 2**-9


def test_reduce_precision() -> None:
    def reduced(x, exponent_bits: int, mantissa_bits: int) -> str:
        bits = f", exponent_bits={exponent_bits}, mantissa_bits={mantissa_bits}"
        return shown(unary("reduce-precision", F(x), attributes=bits))

    assert reduced([1 + 2**-11, 1 + 3 * 2**-11], 5, 10) == shown([1.0, 1 + 2**-9])
    assert reduced([1e6, -1e6], 5, 10) == shown([INF, -INF])
    assert reduced([1e-6, -1e-6], 5, 10) == shown([0.0, -0.0])
    assert reduced([np.nan], 5, 10) == shown([NAN])
    assert reduced([np.nan], 5, 0) == shown([INF])
    assert reduced([1.2345678], 11, 52) == shown([F(1.2345678)])
    assert refused(
        "x = f32[] parameter(0)\nROOT r = f32[] reduce-precision(x), exponent_bits=0, mantissa_bits=1"
    ).rule.startswith("reduce-precision.")


def test_bitcast_convert_to_other_widths() -> None:
    assert unary("bitcast-convert", U32(0x04030201), "u8[4]").tolist() == [1, 2, 3, 4]
    assert unary("bitcast-convert", U8([[1, 2, 3, 4]]), "u32[1]").tolist() == [0x04030201]
    nibbles = unary("bitcast-convert", U8([0x21, 0x43]), "u4[2,2]").astype(np.uint8)
    assert nibbles.tolist() == [[1, 2], [3, 4]]


def test_iota_of_floats_is_the_converted_integers() -> None:
    found = evaluate("ROOT r = bf16[300] iota(), iota_dimension=0")
    assert (found == np.arange(300).astype(ml_dtypes.bfloat16)).all()


# -- NaN, zero, order


def test_nan_wins_maxima_and_minima() -> None:
    for opcode in ("maximum", "minimum"):
        assert shown(binary(opcode, F([NAN, 1]), F([1, NAN]))) == shown([NAN, NAN])
    zeros = F([-0.0, 0.0]), F([0.0, -0.0])
    assert shown(binary("maximum", *zeros)) == shown([0.0, 0.0])
    assert shown(binary("minimum", *zeros)) == shown([-0.0, -0.0])


def test_clamp_keeps_nan() -> None:
    text = (
        "a = f32[] constant({lo})\nx = f32[3] parameter(0)\nb = f32[] constant({hi})\n"
        "ROOT r = f32[3] clamp(a, x, b)"
    )
    assert shown(evaluate(text.format(lo=0, hi=1), F([NAN, 5, -5]))) == shown([NAN, 1.0, 0.0])
    assert shown(evaluate(text.format(lo=3, hi=1), F([0, 2, 5]))) == shown([1.0, 1.0, 1.0])


def test_total_order() -> None:
    ascending = F([-NAN, -INF, -1, -0.0, 0.0, 1, INF, NAN])
    less = binary("compare", ascending[:-1], ascending[1:], ", direction=LT, type=TOTALORDER", "pred[7]")
    assert less.all()
    assert np.signbit(ascending[0])


def test_ordering_of_complex_numbers_is_refused() -> None:
    error = refused("x = c64[] parameter(0)\nROOT r = pred[] compare(x, x), direction=LT")
    assert error.rule.startswith("compare.")


def test_sign_of_nan_and_zero() -> None:
    assert shown(unary("sign", F([NAN, -0.0, 0.0, -3]))) == shown([NAN, -0.0, 0.0, -1.0])
    z = unary("sign", np.complex64(complex(np.nan, 1)))
    assert np.isnan(z.real)
    assert np.isnan(z.imag)


def test_rounding_of_halves() -> None:
    x = F([-2.5, 0.5, 2.5, -0.5, 0.49999997])
    assert shown(unary("round-nearest-afz", x)) == shown([-3.0, 1.0, 3.0, -1.0, 0.0])
    assert shown(unary("round-nearest-even", x)) == shown([-2.0, 0.0, 2.0, -0.0, 0.0])


def test_argmax_as_jax_writes_it_finds_the_first_nan() -> None:
    found = evaluate(
        """HloModule m
        f { a = f32[] parameter(0)
            i = s32[] parameter(1)
            b = f32[] parameter(2)
            j = s32[] parameter(3)
            larger = pred[] compare(a, b), direction=GT
            is_nan = pred[] compare(a, a), direction=NE
            left = pred[] or(larger, is_nan)
            equal = pred[] compare(a, b), direction=EQ
            first = pred[] compare(i, j), direction=LT
            tie = pred[] and(equal, first)
            index_left = pred[] or(left, tie)
            v = f32[] select(left, a, b)
            k = s32[] select(index_left, i, j)
            ROOT t = (f32[], s32[]) tuple(v, k) }
        ENTRY e { x = f32[5] parameter(0)
            i = s32[5] iota(), iota_dimension=0
            lowest = f32[] constant(-inf)
            zero = s32[] constant(0)
            ROOT r = (f32[], s32[]) reduce(x, i, lowest, zero), dimensions={0}, to_apply=f }""",
        F([1, NAN, 7, NAN, 2]),
    )
    assert found[1] == 1


def test_top_k_counts_nan_as_largest_and_takes_the_lower_index_of_equals() -> None:
    values, indices = evaluate(
        "x = f32[5] parameter(0)\nROOT r = (f32[3], s32[3]) topk(x), k=3, largest=true", F([1, 5, NAN, 5, 2])
    )
    assert shown(values) == shown([NAN, 5.0, 5.0])
    assert indices.tolist() == [2, 1, 3]


def test_sort_is_stable_without_asking() -> None:
    found = evaluate(
        """HloModule m
        less { a = s32[] parameter(0)
               b = s32[] parameter(1)
               c = s32[] parameter(2)
               d = s32[] parameter(3)
               ROOT r = pred[] compare(a, b), direction=LT }
        ENTRY e { k = s32[64] parameter(0)
               i = s32[64] iota(), iota_dimension=0
               ROOT r = (s32[64], s32[64]) sort(k, i), dimensions={0}, to_apply=less }""",
        I([3, 1, 2, 1] * 16),
    )
    assert found[1].tolist() == sorted(range(64), key=([3, 1, 2, 1] * 16).__getitem__)


def test_absolute_value_of_infinity_and_nan() -> None:
    z = np.complex64(complex(np.inf, np.nan))
    assert unary("abs", z, "f32[]") == INF
    assert unary("abs", np.complex64(complex(np.nan, -np.inf)), "f32[]") == INF


def test_complex_functions_at_the_edges() -> None:
    one, inf = np.complex64(1), np.complex64(complex(np.inf, 0))
    assert binary("power", inf, one) == inf
    power = binary("power", one, inf)
    assert np.isfinite(power) or power == 1
    large = np.complex64(complex(1e30, 1e30))
    found = unary("log-plus-one", large)
    agreement.near(found, np.log(np.complex128(large)))


def test_atan2_of_zeros() -> None:
    assert shown(binary("atan2", F([0.0, -0.0, 0.0]), F([0.0, 0.0, -0.0]))) == shown([0.0, -0.0, F(np.pi)])


def test_logarithm_of_an_overflowed_exponential() -> None:
    assert evaluate("x = f32[] parameter(0)\ne = f32[] exponential(x)\nROOT r = f32[] log(e)", F(89)) == INF


def test_differences_and_products_are_not_folded() -> None:
    x = F([NAN, INF, 1])
    assert shown(binary("subtract", x, x)) == shown([NAN, NAN, 0.0])
    assert shown(binary("multiply", x, F([0, 0, 0]))) == shown([NAN, NAN, 0.0])


# -- indexing and windows


def test_starts_of_slices_are_clamped_each_for_itself() -> None:
    found = evaluate(
        "x = f32[10] parameter(0)\na = s32[] constant(9)\nb = s32[] constant(0)\n"
        "s = f32[4] dynamic-slice(x, a), dynamic_slice_sizes={4}\n"
        "ROOT r = f32[1] dynamic-slice(s, b), dynamic_slice_sizes={1}",
        F(np.arange(10)),
    )
    assert found.tolist() == [6]
    negative = "x = f32[4] parameter(0)\ni = s32[] constant(-7)\nu = f32[2] constant({8, 9})\n"
    updated = evaluate(negative + "ROOT r = f32[4] dynamic-update-slice(x, u, i)", F([0, 1, 2, 3]))
    assert updated.tolist() == [8, 9, 2, 3]


def test_narrow_unsigned_starts_do_not_wrap() -> None:
    found = evaluate(
        "x = s32[300] parameter(0)\ni = u8[] constant(200)\n"
        "ROOT r = s32[1] dynamic-slice(x, i), dynamic_slice_sizes={1}",
        I(np.arange(300)),
    )
    assert found.tolist() == [200]


def test_gather_clamps_the_start_and_then_adds_the_offset() -> None:
    found = evaluate(
        "x = s32[5] parameter(0)\ni = s32[3,1] constant({{-9},{1},{99}})\n"
        "ROOT r = s32[3,2] gather(x, i), offset_dims={1}, "
        "collapsed_slice_dims={}, start_index_map={0}, index_vector_dim=1, slice_sizes={2}",
        I(np.arange(5)),
    )
    assert found.tolist() == [[0, 1], [1, 2], [3, 4]]


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
    found = evaluate(text, I([0] * 5), I([[3], [-1], [2]]), I([[1, 2, 3], [10, 20, 30], [4, 5, 6]]))
    assert found.tolist() == [0, 0, 4, 5, 6]


def test_scatter_combines_the_current_value_with_each_update_in_order() -> None:
    text = SCATTER.format(
        combine="subtract(new, old)", n=2, indices="3,1", updates="3", window="", inserted=0, dims=0, vector=1
    )
    found = evaluate(text, I([0, 100]), I([[1], [1], [1]]), I([1, 2, 3]))
    assert found.tolist() == [0, 3 - (2 - (1 - 100))]


def test_scatter_with_an_empty_index_vector_lands_on_one_window() -> None:
    text = SCATTER.format(
        combine="add(old, new)", n=2, indices="3,0", updates="3,2", window=1, inserted="", dims="", vector=1
    )
    found = evaluate(text, I([0, 0]), np.zeros((3, 0), I), I([[1, 2], [10, 20], [100, 200]]))
    assert found.tolist() == [111, 222]


def test_an_update_with_a_shifted_part_of_itself_reads_the_old_values() -> None:
    found = evaluate(
        "x = s32[5] parameter(0)\none = s32[] constant(1)\ns = s32[4] slice(x), slice={[0:4]}\n"
        "ROOT r = s32[5] dynamic-update-slice(x, s, one)",
        I([1, 2, 3, 4, 5]),
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
    assert [int(evaluate(text, I(i))) for i in (0, 1, 2, -1, MIN)] == [-7, 14, 14, 14, 14]


def test_select_and_scatter_with_ge_keeps_the_first_of_equals() -> None:
    found = evaluate(
        """HloModule m
        ge { a = f32[] parameter(0)
             b = f32[] parameter(1)
             ROOT r = pred[] compare(a, b), direction=GE }
        add { c = f32[] parameter(0)
             d = f32[] parameter(1)
             ROOT s = f32[] add(c, d) }
        ENTRY e { x = f32[4] parameter(0)
             s = f32[2] parameter(1)
             z = f32[] constant(0)
             ROOT r = f32[4] select-and-scatter(x, s, z), window={size=2 stride=2},
                 select=ge, scatter=add }""",
        F([5, 5, 5, 5]),
        F([1, 2]),
    )
    assert found.tolist() == [1, 0, 2, 0]


def test_pad_spreads_first_and_crops_then() -> None:
    text = "x = s32[3] parameter(0)\nz = s32[] constant(0)\nROOT r = s32[{n}] pad(x, z), padding={p}"
    assert evaluate(text.format(n=4, p="-1_0_1"), I([1, 2, 3])).tolist() == [0, 2, 0, 3]
    assert evaluate(text.format(n=6, p="2_-1_1"), I([1, 2, 3])).tolist() == [0, 0, 1, 0, 2, 0]
    empty = "x = s32[0] parameter(0)\nz = s32[] constant(9)\nROOT r = s32[2] pad(x, z), padding=1_1_3"
    assert evaluate(empty, np.zeros(0, I)).tolist() == [9, 9]


ADD = "add { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\n"


def windowed(n: int, result: int, window: str, x):
    return evaluate(
        "HloModule m\n" + ADD + f"ENTRY e {{ x = f32[{n}] parameter(0)\n z = f32[] constant(0)\n"
        f" ROOT r = f32[{result}] reduce-window(x, z), window={{{window}}}, to_apply=add }}",
        F(x),
    )


def test_windows_of_dilated_nothing_and_of_too_little() -> None:
    assert windowed(0, 0, "size=1 lhs_dilate=3", []).tolist() == []
    assert windowed(0, 2, "size=1 lhs_dilate=3 pad=1_1", []).tolist() == [0, 0]
    assert windowed(2, 0, "size=3", [1, 2]).tolist() == []


def test_negative_padding_of_convolutions_crops() -> None:
    text = (
        "x = f32[1,1,5] parameter(0)\nk = f32[1,1,2] parameter(1)\n"
        "ROOT r = f32[1,1,2] convolution(x, k), window={size=2 pad=-1_-1}, dim_labels=bf0_oi0->bf0"
    )
    assert evaluate(text, F([[[1, 2, 3, 4, 5]]]), F([[[1, 10]]])).tolist() == [[[32, 43]]]


def test_a_device_that_nobody_sends_to_gets_zeros() -> None:
    module = hloom.HloModule.from_text(
        "HloModule m\nENTRY e { x = s32[] parameter(0)\n"
        " ROOT r = s32[] collective-permute(x), source_target_pairs={{0,1}} }"
    )
    assert [int(r) for r in hloom.compile(module, num_replicas=3).run([[I(5)], [I(6)], [I(7)]])] == [0, 5, 0]


def test_reductions_ignore_what_lies_beyond_a_dynamic_size() -> None:
    found = evaluate(
        "HloModule m\n"
        + ADD
        + "ENTRY e { x = f32[4] parameter(0)\n n = s32[] constant(2)\n z = f32[] constant(0)\n"
        " d = f32[<=4] set-dimension-size(x, n), dimensions={0}\n"
        " ROOT r = f32[] reduce(d, z), dimensions={0}, to_apply=add }",
        F([1, 2, 4, 8]),
    )
    assert found == 3


def test_the_other_triangle_is_never_read() -> None:
    a = F([[4, NAN], [2, 5]])
    lower = evaluate("a = f32[2,2] parameter(0)\nROOT r = f32[2,2] cholesky(a), lower=true", a)
    assert (lower[0, 0], lower[1, 0], lower[1, 1]) == (2, 1, 2)
    solved = evaluate(
        "a = f32[2,2] parameter(0)\nb = f32[2,1] parameter(1)\nROOT r = f32[2,1] triangular-solve(a, b), "
        "left_side=true, lower=true, transpose_a=NO_TRANSPOSE",
        a,
        F([[4], [7]]),
    )
    assert solved.tolist() == [[1], [1]]


@pytest.mark.parametrize("shape", ["0", "2,0", "", "1,1"])
def test_arrays_of_size_zero_rank_zero_and_size_one(shape: str) -> None:
    dimensions = tuple(map(int, filter(None, shape.split(","))))
    x = np.zeros(dimensions, F)
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
        np.uint64([1, 2]),
    )
    assert state.tolist() == [1, 6]
    assert bits.flat[0] == 9236835810183407956


@pytest.mark.parametrize("words", [2, 3])
def test_philox_is_a_function_of_its_state(words: int) -> None:
    text = (
        f"s = u64[{words}] parameter(0)\n"
        f"ROOT r = (u64[{words}], u32[8]) rng-bit-generator(s), algorithm=rng_philox"
    )
    first, again = (evaluate(text, np.uint64(range(words))) for _ in range(2))
    assert [a.tolist() for a in first] == [a.tolist() for a in again]
    other = evaluate(text, np.uint64(range(1, words + 1)))
    assert other[1].tolist() != first[1].tolist()


def test_jax_random_numbers_come_out_to_the_last_bit() -> None:
    jax = pytest.importorskip("jax")
    key = np.uint32([0, 42])

    def draw(key):
        return jax.random.normal(jax.random.wrap_key_data(key), (3, 5))

    text = jax.jit(draw).lower(key).compiler_ir("hlo").as_hlo_text(True)
    module = hloom.HloModule.from_text(text)
    agreement.computed(hloom.compile(module)(key), module, [key])
    agreement.computed(np.asarray(draw(key)), module, [key])
    bits = jax.jit(lambda k: jax.random.bits(jax.random.wrap_key_data(k), (100,)))
    found = hloom.compile(hloom.HloModule.from_text(bits.lower(key).compiler_ir("hlo").as_hlo_text(True)))(
        key
    )
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
