"""Semantics of numbers that XLA's page leaves open: one test for each decision, named for its case.

The decisions are those of `docs/semantics.md`.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hloom
from hloom.shape.element_type import ElementType
from hloom.shape.float_format import float_format
from tests import agreement
from tests.arrays import c64, f32, s32, u8, u16, u32
from tests.evaluation import refused
from tests.reducers import ADD
from tests.semantics_runs import (
    INF,
    MIN,
    NAN,
    THIS,
    backend,
    binary,
    compiled,
    evaluate,
    shown,
    unary,
)

__all__ = ["backend"]

# -- policy


def test_subnormals_are_kept() -> None:
    tiny = f32(1e-45)
    assert binary("add", tiny, f32(0)) == binary("multiply", tiny, f32(1)) == tiny
    assert unary("convert", ml_dtypes.float8_e4m3fn(2**-9), "f32[]") == f32(2**-9)


def test_no_contraction_of_multiply_and_add() -> None:
    a, b = f32(1 + 2**-12), f32(1 + 2**-12)
    found = evaluate(
        "a = f32[] parameter(0)\nb = f32[] parameter(1)\nc = f32[] parameter(2)\n"
        "m = f32[] multiply(a, b)\nROOT r = f32[] add(m, c)",
        a, b, f32(-(a * b)),
    )  # fmt: skip
    assert found == 0


def test_no_elided_rounding() -> None:
    x = f32(1.001)
    found = evaluate("x = f32[] parameter(0)\nb = bf16[] convert(x)\nROOT r = f32[] convert(b)", x)
    assert found == f32(x.astype(ml_dtypes.bfloat16)) != x


def test_one_program_gives_the_same_bits_every_time() -> None:
    module = hloom.HloModule.from_text(
        f"HloModule m\n{ADD}"
        "ENTRY e { x = f32[9999] parameter(0)\n z = f32[] constant(0)\n"
        " ROOT r = f32[] reduce(x, z), dimensions={0}, to_apply=add }"
    )
    x = np.random.default_rng(0).normal(size=9999).astype(f32)
    executable = compiled(module)
    assert len({executable(x).tobytes() for _ in range(5)}) == 1


# -- integers


def test_integer_division_by_zero_is_all_ones() -> None:
    assert binary("divide", s32([5, -5, 0]), s32([0, 0, 0])).tolist() == [-1, -1, -1]
    assert binary("divide", u8([5, 0]), u8([0, 0])).tolist() == [255, 255]


def test_integer_remainder_by_zero_is_the_dividend() -> None:
    assert binary("remainder", s32([5, -5]), s32([0, 0])).tolist() == [5, -5]


def test_least_integer_divided_by_minus_one() -> None:
    assert (binary("divide", s32(MIN), s32(-1)), binary("remainder", s32(MIN), s32(-1))) == (MIN, 0)


def test_remainder_has_the_sign_of_the_dividend() -> None:
    assert binary("remainder", s32([7, -7, 7, -7]), s32([3, 3, -3, -3])).tolist() == [1, -1, 1, -1]
    assert binary("remainder", f32([5.5, -5.5]), f32([2, 2])).tolist() == [1.5, -1.5]


def test_shifts_by_the_width_and_more() -> None:
    counts = s32([31, 32, 100, -1])
    assert binary("shift-left", s32([1] * 4), counts).tolist() == [MIN, 0, 0, 0]
    assert binary("shift-right-logical", s32([-1] * 4), counts).tolist() == [1, 0, 0, 0]
    assert binary("shift-right-arithmetic", s32([-8] * 4), counts).tolist() == [-1] * 4
    assert binary("shift-right-arithmetic", s32([8] * 4), counts).tolist() == [0] * 4


def test_integer_power_with_a_negative_exponent() -> None:
    found = binary("power", s32([1, -1, -1, 2, -3, 0]), s32([-5, -4, -5, -1, -2, -1]))
    assert found.tolist() == [1, 1, -1, 0, 0, 0]


def test_integer_power_counts_every_bit_of_the_exponent() -> None:
    exponent = 1 << 20 | 3
    assert binary("power", u32(3), u32(exponent)) == pow(3, exponent, 1 << 32)
    assert binary("power", s32(-1), s32(exponent)) == -1


def test_arithmetic_of_predicates() -> None:
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])
    assert unary("not", x).tolist() == [True, True, False, False]
    for opcode in ("add", "maximum", "or"):
        assert binary(opcode, x, y).tolist() == [False, True, True, True]
    for opcode in ("multiply", "minimum", "and"):
        assert binary(opcode, x, y).tolist() == [False, False, False, True]


def test_negative_of_unsigned_and_absolute_of_least_wrap() -> None:
    assert unary("negate", u8([1, 0, 255])).tolist() == [255, 0, 1]
    assert unary("abs", s32(MIN)) == MIN


def test_leading_zeros_of_zero_are_the_width() -> None:
    assert unary("count-leading-zeros", u8([0, 1, 255])).tolist() == [8, 7, 0]
    assert unary("count-leading-zeros", np.int64(0)) == 64


# -- conversions


def test_float_to_signed() -> None:
    x = f32([1.9, -1.9, 3e9, -3e9, INF, -INF, NAN])
    most = np.iinfo(s32).max
    assert unary("convert", x, "s32[7]").tolist() == [1, -1, most, MIN, most, MIN, 0]


def test_float_to_unsigned() -> None:
    assert unary("convert", f32([1.9, -1.9, 300, -INF, INF, NAN]), "u8[6]").tolist() == [1, 0, 255, 0, 255, 0]


def test_integer_to_narrower_integer_wraps() -> None:
    assert unary("convert", s32([256, -1, 130]), "s8[3]").tolist() == [0, -1, -126]


def test_float_to_predicate() -> None:
    assert unary("convert", f32([NAN, -0.0, 0, 0.5]), "pred[4]").tolist() == [True, False, False, True]


def test_complex_to_real_and_back() -> None:
    assert unary("convert", np.complex64(3 + 4j), "f32[]") == 3
    assert unary("convert", f32(3), "c64[]") == 3 + 0j


def test_rounding_is_to_nearest_even_and_only_once() -> None:
    # Through f32 the f64 would become a tie and round to even, downwards.
    x = np.float64(1 + 2.0**-8 + 2.0**-40)
    assert unary("convert", x, "bf16[]") == ml_dtypes.bfloat16(1 + 2.0**-7)
    assert unary("convert", f32(1 + 2.0**-8), "bf16[]") == ml_dtypes.bfloat16(1)
    y = np.float64(1 + 2.0**-11 + 2.0**-40)
    assert unary("convert", y, "f16[]") == np.float16(1 + 2.0**-10)


def test_f8e4m3fn_at_its_end() -> None:
    found = unary("convert", f32([464, 465, 448, -464]), "f8e4m3fn[4]").astype(f32)
    assert shown(found) == shown([448.0, NAN, 448.0, -448.0])
    assert unary("convert", np.float16(2**-9), "f8e4m3fn[]").astype(f32) == 2**-9


def test_nan_keeps_its_sign_and_the_upper_bits_of_its_payload() -> None:
    nans = u32([0x7FC12345, 0xFFC12345, 0x7F812345]).view(f32)
    assert unary("convert", nans, "f64[3]").view(np.uint64).tolist() == [
        0x7FF82468A0000000, 0xFFF82468A0000000, 0x7FF82468A0000000,
    ]  # fmt: skip
    assert [hex(x) for x in unary("convert", nans, "f16[3]").view(np.uint16)] == [
        "0x7e09",
        "0xfe09",
        "0x7e09",
    ]
    assert [hex(x) for x in unary("convert", nans, "bf16[3]").view(np.uint16)] == [
        "0x7fc0",
        "0xffc0",
        "0x7fc0",
    ]
    assert [hex(x) for x in unary("convert", nans, "f8e5m2[3]").view(np.uint8)] == ["0x7e", "0xfe", "0x7e"]


def test_a_signalling_nan_of_f16_stays_where_it_is_only_moved() -> None:
    x = u16([0x7D01, 0x3C00]).view(np.float16)
    moved = unary("reverse", x, attributes=", dimensions={0}")
    assert moved.view(np.uint16).tolist() == [0x3C00, 0x7D01]
    text = (
        "x = f16[2] parameter(0)\np = pred[2] parameter(1)\ny = f16[2] parameter(2)\nROOT r = select(p, x, y)"
    )
    chosen = evaluate(text, x, np.array([True, True]), x[::-1]).view(np.uint16).tolist()
    assert chosen == [0x7F01 if THIS.backend == "cpu" else 0x7D01, 0x3C00]


@pytest.mark.parametrize(("kind", "most"), [("f4e2m1fn", 6), ("f6e2m3fn", 7.5), ("f6e3m2fn", 28)])
def test_types_without_infinities(kind: str, most: float) -> None:
    found = unary("convert", f32([INF, -INF, 1e9, -1e9]), f"{kind}[4]").astype(f32)
    assert found.tolist() == [most, -most, most, -most]
    assert unary("convert", f32([NAN]), f"{kind}[1]").astype(f32).tolist() == [0]


def test_reduce_precision() -> None:
    def reduced(x, exponent_bits: int, mantissa_bits: int) -> str:
        bits = f", exponent_bits={exponent_bits}, mantissa_bits={mantissa_bits}"
        return shown(unary("reduce-precision", f32(x), attributes=bits))

    assert reduced([1 + 2**-11, 1 + 3 * 2**-11], 5, 10) == shown([1.0, 1 + 2**-9])
    assert reduced([1e6, -1e6], 5, 10) == shown([INF, -INF])
    assert reduced([1e-6, -1e-6], 5, 10) == shown([0.0, -0.0])
    assert reduced([np.nan], 5, 10) == shown([NAN])
    assert reduced([np.nan], 5, 0) == shown([NAN])
    assert reduced([1.2345678], 11, 52) == shown([f32(1.2345678)])
    assert refused(
        "x = f32[] parameter(0)\nROOT r = f32[] reduce-precision(x), exponent_bits=0, mantissa_bits=1"
    ).rule.startswith("reduce-precision.")


def test_bitcast_convert_to_other_widths() -> None:
    assert unary("bitcast-convert", u32(0x04030201), "u8[4]").tolist() == [1, 2, 3, 4]
    assert unary("bitcast-convert", u8([[1, 2, 3, 4]]), "u32[1]").tolist() == [0x04030201]
    nibbles = unary("bitcast-convert", u8([0x21, 0x43]), "u4[2,2]").astype(np.uint8)
    assert nibbles.tolist() == [[1, 2], [3, 4]]


def test_iota_of_floats_is_the_converted_integers() -> None:
    found = evaluate("ROOT r = bf16[300] iota(), iota_dimension=0")
    assert (found == np.arange(300).astype(ml_dtypes.bfloat16)).all()


# -- NaN, zero, order


def test_nan_wins_maxima_and_minima() -> None:
    for opcode in ("maximum", "minimum"):
        assert shown(binary(opcode, f32([NAN, 1]), f32([1, NAN]))) == shown([NAN, NAN])
    zeros = f32([-0.0, 0.0]), f32([0.0, -0.0])
    assert shown(binary("maximum", *zeros)) == shown([0.0, 0.0])
    assert shown(binary("minimum", *zeros)) == shown([-0.0, -0.0])


def test_clamp_keeps_nan() -> None:
    text = (
        "a = f32[] constant({lo})\nx = f32[3] parameter(0)\nb = f32[] constant({hi})\n"
        "ROOT r = f32[3] clamp(a, x, b)"
    )
    assert shown(evaluate(text.format(lo=0, hi=1), f32([NAN, 5, -5]))) == shown([NAN, 1.0, 0.0])
    assert shown(evaluate(text.format(lo=3, hi=1), f32([0, 2, 5]))) == shown([1.0, 1.0, 1.0])


def test_total_order() -> None:
    ascending = f32([-NAN, -INF, -1, -0.0, 0.0, 1, INF, NAN])
    less = binary("compare", ascending[:-1], ascending[1:], ", direction=LT, type=TOTALORDER", "pred[7]")
    assert less.all()
    assert np.signbit(ascending[0])


@pytest.mark.parametrize("kind", ["f8e5m2", "f8e4m3", "f8e3m4", "bf16", "f32", "f64"])
def test_total_order_of_nan_is_that_of_the_payloads(kind: str) -> None:
    element_type = ElementType.parse(kind)
    infinity = np.array(np.inf, element_type.numpy_dtype).view(f"u{element_type.bytes}")
    quiet = infinity + infinity.dtype.type(1 << (float_format(element_type).mantissa_bits - 1))
    ascending = (quiet + np.arange(2).astype(quiet.dtype)).view(element_type.numpy_dtype)
    assert binary("compare", ascending[:1], ascending[1:], ", direction=LT, type=TOTALORDER", "pred[1]")
    negative = np.copysign(ascending, -1).astype(ascending.dtype) if kind in ("f32", "f64") else -ascending
    assert binary("compare", negative[:1], negative[1:], ", direction=GT, type=TOTALORDER", "pred[1]")
    text = (
        f"HloModule m\nless {{ a = {kind}[] parameter(0)\n b = {kind}[] parameter(1)\n"
        " ROOT r = pred[] compare(a, b), direction=LT, type=TOTALORDER }\n"
        f"ENTRY e {{ x = {kind}[4] parameter(0)\n"
        f" ROOT r = {kind}[4] sort(x), dimensions={{0}}, to_apply=less }}"
    )
    shuffled = np.concatenate([ascending[::-1], negative])
    found = evaluate(text, shuffled)
    wanted = np.concatenate([negative[::-1], ascending])
    assert found.tobytes() == wanted.tobytes()


def test_ordering_of_complex_numbers_is_refused() -> None:
    error = refused("x = c64[] parameter(0)\nROOT r = pred[] compare(x, x), direction=LT")
    assert error.rule.startswith("compare.")


def test_sign_of_nan_and_zero() -> None:
    assert shown(unary("sign", f32([NAN, -0.0, 0.0, -3]))) == shown([NAN, -0.0, 0.0, -1.0])
    z = unary("sign", np.complex64(complex(np.nan, 1)))
    assert np.isnan(z.real)
    assert np.isnan(z.imag)


def test_rounding_of_halves() -> None:
    x = f32([-2.5, 0.5, 2.5, -0.5, 0.49999997])
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
        f32([1, NAN, 7, NAN, 2]),
    )
    assert found[1] == 1


def test_top_k_counts_nan_as_largest_and_takes_the_lower_index_of_equals() -> None:
    values, indices = evaluate(
        "x = f32[5] parameter(0)\nROOT r = (f32[3], s32[3]) topk(x), k=3, largest=true",
        f32([1, 5, NAN, 5, 2]),
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
        s32([3, 1, 2, 1] * 16),
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
    assert shown(binary("atan2", f32([0.0, -0.0, 0.0]), f32([0.0, 0.0, -0.0]))) == shown(
        [0.0, -0.0, f32(np.pi)]
    )


def test_complex_power_of_infinite_and_real_numbers() -> None:
    bases = c64([1j, -1j, complex(NAN, 1)])
    for exponent in (complex(INF, INF), complex(-INF, INF), complex(NAN, INF)):
        found = binary("power", bases, np.full(3, exponent, np.complex64))
        assert np.isnan(found.real).all()
        assert np.isnan(found.imag).all()
    vanishing = binary("power", c64([2 + 1j]), c64([complex(-INF, INF)]))
    assert vanishing.tolist() == [0]
    real = binary("power", c64([2, 4, 0]), c64([3, 0.5, 2]))
    assert real.tolist() == [8, 2, 0]
    none = binary("power", c64([complex(INF, NAN), 1j]), c64([0, 0]))
    assert none.tolist() == [1, 1]


def test_complex_atan2_at_its_cut_and_its_poles() -> None:
    y = c64([0, 1 - 1j, -1 + 1j, 2 + 1j, -3.1415927 + 3.349206e-30j])
    x = c64([-2 - 3j, -2 - 2j, -3 - 3j, -2 + 4j, -4 - 1.7014117e38j])
    found = binary("atan2", y, x)
    assert (found.real == f32(np.pi)).all()
    near_cut = binary("atan2", c64([1e-30, -1e-30]), c64([-1 + 1j, -1 - 1j]))
    assert (np.abs(near_cut.real) == f32(np.pi)).all()
    poles = binary("atan2", c64([2 + 4j, -2 - 4j, 1j, -1j]), c64([-4 + 2j, -4 + 2j, 1, 1]))
    assert np.isnan(poles.real).all()
    assert poles.imag.tolist() == [-INF, INF, INF, -INF]


def test_logarithm_of_an_overflowed_exponential() -> None:
    assert evaluate("x = f32[] parameter(0)\ne = f32[] exponential(x)\nROOT r = f32[] log(e)", f32(89)) == INF


def test_differences_and_products_are_not_folded() -> None:
    x = f32([NAN, INF, 1])
    assert shown(binary("subtract", x, x)) == shown([NAN, NAN, 0.0])
    assert shown(binary("multiply", x, f32([0, 0, 0]))) == shown([NAN, NAN, 0.0])
