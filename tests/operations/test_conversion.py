"""convert, the bitcasts, reduce-precision, stochastic-convert and copy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hloom.errors import EvaluationError
from hloom.operations.rounding import narrow, round_to_odd
from hloom.shape.element_type import ElementType
from tests.arrays import c64, c128, f32, f64, s32, u8, u16, u32, u64
from tests.evaluation import evaluate, parse
from tests.one_operation import apply, array, every, nearest, numbers, program, refusal, same

NARROW = (
    "f8e5m2",
    "f8e4m3fn",
    "f8e4m3",
    "f8e3m4",
    "f8e4m3b11fnuz",
    "f8e5m2fnuz",
    "f8e4m3fnuz",
    "bf16",
    "f16",
)


def convert(values: Any, kind: str) -> Any:
    return apply("convert", values, result=f"{kind}{list(np.shape(values))}".replace(" ", ""))


class TestConvertToNarrowFloats:
    """Every conversion rounds once, from the type it starts with."""

    @pytest.mark.parametrize("source", ["f32", "f64"])
    @pytest.mark.parametrize("kind", NARROW)
    def test_next_to_every_tie(self, kind: str, source: str) -> None:
        known = numbers(every(kind))
        ladder = np.unique(known[np.isfinite(known)])
        ties = ((ladder[1:] + ladder[:-1]) / 2).astype(ElementType.parse(source).numpy_dtype)
        infinity = ties.dtype.type(np.inf)
        values = np.concatenate([ties, np.nextafter(ties, infinity), np.nextafter(ties, -infinity)])
        wanted = nearest(values, kind)
        result = convert(values, kind)
        if "fnuz" in kind:
            wanted = wanted + 0.0  # there is one zero only
        same(result, wanted)

    def test_a_double_is_not_rounded_twice(self) -> None:
        just_above_a_tie = f64([1 + 2.0**-8 + 2.0**-40, -1 - 2.0**-8 - 2.0**-40])
        same(convert(just_above_a_tie, "bf16"), [1 + 2.0**-7, -1 - 2.0**-7])

    def test_an_integer_is_not_rounded_twice(self) -> None:
        just_above_a_tie = [2**62 + 2**54 + 1, 2**30 + 2**22 + 1]
        for kind in ("s64", "u64"):
            same(convert(array(kind, just_above_a_tie), "bf16"), [2.0**62 + 2.0**55, 2.0**30 + 2.0**23])
        same(convert(array("s64", [-(2**62) - 2**54 - 1]), "bf16"), [-(2.0**62) - 2.0**55])

    @given(st.integers(-(2**63), 2**63 - 1))
    def test_integers(self, value: int) -> None:
        for kind, source in [("bf16", "s64"), ("f16", "s64"), ("f8e5m2", "s64")]:
            low, high = (float(np.nextafter(float(value), end)) for end in (-np.inf, np.inf))
            nearby = [v for v in (low, float(value), high) if int(v) == value] or [low, high]
            candidates = {float(v) for v in nearest(nearby, kind)}
            assert float(convert(array(source, [value]), kind)[0]) in candidates

    def test_ends_of_the_range(self) -> None:
        same(
            convert(f32([448, 464, 465, np.inf, np.nan]), "f8e4m3fn"),
            [448, 448, np.nan, np.nan, np.nan],
        )
        same(convert(f32([57344, 61439, 61440, np.inf]), "f8e5m2"), [57344, 57344, np.inf, np.inf])
        same(convert(f64([65519.99, 65520, 1e300]), "f16"), [65504, np.inf, np.inf])
        same(convert(f64([1e300, -1e300]), "bf16"), [np.inf, -np.inf])

    def test_subnormals_are_kept(self) -> None:
        same(convert(array("f16", [2.0**-9, 2.0**-10]), "f8e4m3fn"), [2.0**-9, 0])
        same(convert(f32([1e-40]), "bf16"), nearest([np.float32(1e-40)], "bf16"))

    @pytest.mark.parametrize("kind", ["f4e2m1fn", "f8e8m0fnu"])
    def test_the_smallest_types_round_as_ml_dtypes_does(self, kind: str) -> None:
        values = f32([0.3, 0.75, 1.0, 1.25, 2.5, 5.0, 6.9, 0.01, 3.0])
        assert convert(values, kind).tobytes() == values.astype(ElementType.parse(kind).numpy_dtype).tobytes()


@pytest.mark.parametrize("name", ["f4e2m1fn", "f6e2m3fn", "f6e3m2fn"])
def test_a_result_that_is_nan_is_the_same_zero_on_every_processor(name: str) -> None:
    """Of 0 / 0 and others, x86-64 makes a NaN with a sign, aarch64 one without."""
    rounded = narrow(f32([np.nan, -np.nan, 1.0, -0.0]), ElementType.parse(name).numpy_dtype)
    assert numbers(rounded).tolist() == [0.0, 0.0, 1.0, 0.0]
    assert np.signbit(numbers(rounded)).tolist() == [False, False, False, True]


@given(st.floats(2.0**-126, 2.0**127) | st.floats(-(2.0**127), -(2.0**-126)), st.integers(1, 22))
def test_rounding_to_odd_first_changes_no_rounding_to_fewer_bits(value: float, bits: int) -> None:
    def rounded(number: float) -> float:
        fraction, exponent = np.frexp(number)
        return float(np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits))

    odd = round_to_odd(f64([value]))[0]
    assert rounded(float(odd)) == rounded(value)
    assert float(odd) == value or odd.view(np.uint32) % 2 == 1


class TestConvertToIntegers:
    @pytest.mark.parametrize(
        "kind", ["s1", "s2", "s4", "s8", "s16", "s32", "s64", "u1", "u2", "u4", "u8", "u32", "u64"]
    )
    @pytest.mark.parametrize("source", ["f64", "f32", "bf16", "f16", "f8e4m3fn"])
    def test_floats_are_truncated_and_saturate(self, kind: str, source: str) -> None:
        bits = int(kind[1:])
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if kind[0] == "s" else (0, 2**bits - 1)
        values = array(
            source, [0.9, -0.9, 1.5, -1.5, 100.7, -100.7, 3e9, -3e9, 1e30, np.inf, -np.inf, np.nan, 2.0**63]
        )
        wanted = []
        for value in numbers(values).tolist():
            whole = 0 if value != value else high if value > high else low if value < low else int(value)
            wanted.append(whole)
        assert [int(r) for r in convert(values, kind)] == wanted

    def test_integers_wrap(self) -> None:
        assert convert(s32([300, -1, 256]), "u8").tolist() == [44, 255, 0]
        assert convert(s32([9, -9, 7]), "s4").astype(int).tolist() == [-7, 7, 7]
        assert convert(u64([2**64 - 1]), "s32").tolist() == [-1]
        assert convert(array("s4", [-1]), "u32").tolist() == [2**32 - 1]
        assert convert(array("u4", [15]), "s4").astype(int).tolist() == [-1]


def test_predicates() -> None:
    same(convert(f32([0, -0.0, np.nan, 1e-45, 2]), "pred"), [0, 0, 1, 1, 1])
    same(convert(s32([0, 256]), "pred"), [0, 1])
    same(convert(c64([0, 1j]), "pred"), [0, 1])
    for kind in ("s8", "u4", "f32", "bf16", "f64"):
        same(convert(np.array([True, False]), kind), [1, 0])
    assert convert(np.array([True, False]), "c64").tolist() == [1, 0]


def test_complex_numbers() -> None:
    value = c128([1.5 - 2j, complex(np.nan, 1)])
    same(convert(value, "f32"), [1.5, np.nan])
    assert convert(value, "s32").tolist() == [1, 0]
    real = convert(f64([2.5]), "c64")
    assert real.dtype == np.complex64 and real.tolist() == [2.5 + 0j]
    assert convert(value, "c64").dtype == np.complex64


def test_what_convert_refuses() -> None:
    assert refusal("convert", "f32[2]", result="s32[3]").rule == "convert.same-dimensions"
    assert refusal("convert", "f32[2]", result="token[]").rule == "convert.operand-arrays"
    assert refusal("convert", "f32[2]").rule == "text.shape-stated"


class TestBitcastConvert:
    def test_equal_widths(self) -> None:
        bits = f32([1.0, -0.0, np.inf])
        result = apply("bitcast-convert", bits, result="u32[3]")
        assert result.tolist() == [0x3F800000, 0x80000000, 0x7F800000]
        assert apply("bitcast-convert", result, result="f32[3]").tobytes() == bits.tobytes()

    def test_a_wide_element_becomes_a_minor_dimension_low_bits_first(self) -> None:
        result = apply("bitcast-convert", u32([0x04030201]), result="u8[1,4]")
        assert result.tolist() == [[1, 2, 3, 4]]
        assert apply("bitcast-convert", result, result="u32[1]").tolist() == [0x04030201]

    def test_elements_of_less_than_a_byte(self) -> None:
        result = apply("bitcast-convert", u8([0x21, 0xF3]), result="s4[2,2]")
        assert result.astype(int).tolist() == [[1, 2], [3, -1]]
        assert apply("bitcast-convert", result, result="u8[2]").tolist() == [0x21, 0xF3]
        twos = apply("bitcast-convert", result, result="u2[2,2,2]")
        assert twos.astype(int).tolist() == [[[1, 0], [2, 0]], [[3, 0], [3, 3]]]
        assert apply("bitcast-convert", array("s4", [-1]), result="u4[1]").astype(int).tolist() == [15]

    def test_floats_keep_their_bits(self) -> None:
        patterns = np.arange(65536).astype(np.uint16)
        halves = apply("bitcast-convert", patterns, result="f16[65536]")
        assert apply("bitcast-convert", halves, result="u16[65536]").tolist() == patterns.tolist()
        pairs = apply("bitcast-convert", f64([1.0]), result="bf16[1,4]")
        assert pairs.dtype == ml_dtypes.bfloat16 and numbers(pairs).tolist() == [[0, 0, 0, 1.875]]

    def test_complex_numbers(self) -> None:
        result = apply("bitcast-convert", c128([1.0 + 2j]), result="c64[1,2]")
        assert apply("bitcast-convert", result, result="c128[1]").tolist() == [1 + 2j]

    def test_predicates_have_eight_bits(self) -> None:
        assert apply("bitcast-convert", np.array([True, False]), result="u8[2]").tolist() == [1, 0]
        assert apply("bitcast-convert", u16([1]), result="pred[1,2]").tolist() == [[True, False]]

    def test_empty_arrays_and_scalars(self) -> None:
        assert apply("bitcast-convert", np.zeros((0, 4), np.uint8), result="u32[0]").shape == (0,)
        assert apply("bitcast-convert", np.zeros((0,), np.uint32), result="u8[0,4]").shape == (0, 4)
        assert apply("bitcast-convert", np.float32(1), result="s32[]").shape == ()
        assert apply("bitcast-convert", u8([1, 0, 0, 0]), result="u32[]").tolist() == 1

    def test_refused(self) -> None:
        assert refusal("bitcast-convert", "f32[2]", result="u32[3]").rule == "bitcast-convert.dimensions"
        assert refusal("bitcast-convert", "f32[2]", result="u16[2]").rule == "bitcast-convert.dimensions"
        assert refusal("bitcast-convert", "u16[3]", result="u32[]").rule == "bitcast-convert.dimensions"
        assert refusal("bitcast-convert", "f6e3m2fn[4]", result="u8[4]").rule == "bitcast-convert.widths"
        assert refusal("bitcast-convert", "c64[2]", result="f32[2,2]").rule == "bitcast-convert.complex"
        assert refusal("bitcast-convert", "token[]", result="f32[]").rule == "bitcast-convert.operand-arrays"


class TestBitcast:
    def run(self, before: str, after: str, value: Any) -> Any:
        return evaluate(program("bitcast", before, result=after), value)

    def test_another_shape(self) -> None:
        value = np.arange(6, dtype=np.float32)
        assert self.run("f32[6]{0}", "f32[2,3]{1,0}", value).tolist() == value.reshape(2, 3).tolist()

    def test_another_layout_is_a_transpose(self) -> None:
        value = np.arange(6, dtype=np.float32).reshape(2, 3)
        assert self.run("f32[2,3]{1,0}", "f32[3,2]{0,1}", value).tolist() == value.T.tolist()

    def test_another_element_type(self) -> None:
        assert self.run("f32[1]{0}", "u8[4]{0}", f32([1.0])).tolist() == [0, 0, 0x80, 0x3F]

    def test_tiles(self) -> None:
        value = np.arange(8, dtype=np.int32).reshape(2, 4)
        result = self.run("s32[2,4]{1,0:T(2,2)}", "s32[8]{0}", value)
        assert result.tolist() == [0, 1, 4, 5, 2, 3, 6, 7]

    def test_dynamic_arrays(self) -> None:
        value = f32([1, 2])
        assert self.run("f32[<=4]{0}", "f32[<=4]{0}", value).tolist() == [1, 2]
        with pytest.raises(EvaluationError) as caught:
            self.run("f32[<=4]{0}", "f32[2,2]{1,0}", value)
        assert caught.value.rule == "bitcast.dynamic"

    def test_refused(self) -> None:
        assert refusal("bitcast", "f32[4]", result="f32[5]").rule == "bitcast.byte-size"
        assert refusal("bitcast", "f32[4]", result="(f32[4])").rule == "bitcast.operand-arrays"
        assert refusal("bitcast", "f32[4]").rule == "text.shape-stated"


class TestReducePrecision:
    def reduce(self, values: Any, exponent_bits: int, mantissa_bits: int) -> Any:
        attributes = f"exponent_bits={exponent_bits}, mantissa_bits={mantissa_bits}"
        return apply("reduce-precision", values, attributes=attributes)

    @pytest.mark.parametrize(
        ("kind", "exponent_bits", "mantissa_bits"), [("f8e5m2", 5, 2), ("f8e4m3", 4, 3), ("f8e3m4", 3, 4)]
    )
    @pytest.mark.parametrize("source", ["f32", "f64", "f16", "bf16"])
    def test_gives_what_a_narrow_type_holds_but_no_subnormals(
        self, source: str, kind: str, exponent_bits: int, mantissa_bits: int
    ) -> None:
        generator = np.random.default_rng(4)
        values = array(source, generator.normal(size=3000) * 2.0 ** generator.integers(-10, 10, 3000))
        wanted = nearest(numbers(values), kind)
        smallest = float(ml_dtypes.finfo(ElementType.parse(kind).numpy_dtype).smallest_normal)
        if (source, kind) == ("f16", "f8e5m2"):
            smallest = 0  # with all its exponent bits left, f16 keeps its subnormals
        # a number that rounds up to the smallest normal one is normal
        wide = self.reduce(values, 8 if source != "f16" else 5, mantissa_bits)
        wanted = np.where(np.abs(numbers(wide)) < smallest, np.copysign(0, wanted), wanted)
        same(self.reduce(values, exponent_bits, mantissa_bits), wanted)

    @pytest.mark.parametrize("kind", ["f8e5m2", "f8e4m3fn", "f8e3m4", "f8e4m3fnuz", "bf16", "f16"])
    def test_surplus_bits_change_nothing(self, kind: str) -> None:
        values = every(kind)
        same(self.reduce(values, 11, 52), numbers(values))

    def test_ties_go_to_even_and_overflow_to_infinity(self) -> None:
        values = f32([1 + 1 / 8, 1 + 3 / 8, -1 - 1 / 8, 65535, -70000, np.nan, 1e-10, -1e-10, np.inf])
        wanted = [1, 1.5, -1, np.inf, -np.inf, np.nan, 0, -0.0, np.inf]
        same(self.reduce(values, 5, 2), wanted)

    def test_nan_stays_without_mantissa_bits(self) -> None:
        same(self.reduce(f32([np.nan, 1.4, 1.6, -7, np.inf]), 8, 0), [np.nan, 1, 2, -8, np.inf])

    def test_without_mantissa_bits_ties_go_to_the_even_exponent(self) -> None:
        # 1.5, 3 and 6 lie between powers of two with the biased exponents 127, 128, 129 and 130
        same(self.reduce(f32([1.5, 3, 6]), 8, 0), [2, 2, 8])

    def test_one_exponent_bit_leaves_zeros_and_infinities(self) -> None:
        same(self.reduce(f32([0.5, 1, 1.5, 2, -4]), 1, 4), [0, 0, 0, np.inf, -np.inf])

    def test_doubles_at_the_end_of_their_range(self) -> None:
        largest = np.finfo(np.float64).max
        same(self.reduce(f64([largest, -largest, 5e-324]), 11, 10), [np.inf, -np.inf, 0])
        same(self.reduce(f64([largest]), 5, 10), [np.inf])

    def test_refused(self) -> None:
        def rule(attributes: str, kind: str = "f32") -> str:
            return refusal("reduce-precision", f"{kind}[2]", attributes=attributes).rule

        assert rule("exponent_bits=0, mantissa_bits=3") == "reduce-precision.exponent-bits"
        assert rule("exponent_bits=3, mantissa_bits=-1") == "reduce-precision.mantissa-bits"
        assert rule("exponent_bits=3, mantissa_bits=3", "s32") == "reduce-precision.element-type"
        assert rule("exponent_bits=3") == "text.attribute-missing"


class TestStochasticConvert:
    def convert(self, operand: Any, random: Any, kind: str) -> Any:
        return apply("stochastic-convert", operand, random, result=f"{kind}[{len(operand)}]")

    def test_the_fraction_is_compared_with_the_random_number(self) -> None:
        quarter = 2**30
        operand = f32([1.25, 1.25, -1.25, -1.25, 2.0])
        random = u32([quarter - 1, quarter, quarter - 1, quarter, 0])
        assert self.convert(operand, random, "s32").tolist() == [2, 1, -2, -1, 2]

    def test_it_is_right_on_average(self) -> None:
        generator = np.random.default_rng(5)
        random = generator.integers(0, 2**32, 20000, np.uint32)
        for kind, value in [("s8", 3.3), ("bf16", 1.001), ("f8e5m2", -2.2), ("f8e4m3fn", 0.0011)]:
            result = numbers(self.convert(np.full(20000, value, np.float32), random, kind))
            neighbours = np.unique(result)
            assert len(neighbours) == 2
            assert neighbours[0] < value < neighbours[1]
            assert abs(result.mean() - value) < 0.02 * (neighbours[1] - neighbours[0])

    def test_ends_of_the_range(self) -> None:
        operand = f32([np.nan, np.inf, -np.inf, 127.9, 1e10])
        assert self.convert(operand, np.zeros(5, np.uint32), "s8").tolist() == [0, 127, -128, 127, 127]
        result = self.convert(operand, np.zeros(5, np.uint32), "f8e5m2")
        same(result, [np.nan, np.inf, -np.inf, 128, 57344])

    def test_doubles_use_all_64_bits(self) -> None:
        operand = f64([0.5, 0.5])
        assert self.convert(operand, u64([2**63 - 1, 2**63]), "s32").tolist() == [1, 0]

    def test_refused(self) -> None:
        def rule(operand: str, random: str, result: str) -> str:
            return refusal("stochastic-convert", operand, random, result=result).rule

        assert rule("f32[2]", "u16[2]", "s8[2]") == "stochastic-convert.random-type"
        assert rule("f32[2]", "s32[2]", "s8[2]") == "stochastic-convert.random-type"
        assert rule("s32[2]", "u32[2]", "s8[2]") == "stochastic-convert.element-type"
        assert rule("f32[2]", "u32[3]", "s8[2]") == "stochastic-convert.same-dimensions"


def test_a_copy_has_the_value_and_perhaps_another_layout() -> None:
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    result = evaluate("x = f32[2,3]{1,0} parameter(0)\nROOT y = f32[2,3]{0,1} copy(x)", value)
    assert result.tolist() == value.tolist()
    assert parse(program("copy", "(f32[2], s32[])")).entry.root.shape.is_tuple
    error = refusal("copy", "f32[2]", result="f32[3]")
    assert error.rule == "instruction.shape-matches"
