"""compare, select and clamp."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np
import pytest

from tests import agreement
from tests.arrays import c64, f32, s8, s32, u32
from tests.evaluation import evaluate, parse
from tests.one_operation import apply, array, every, numbers, program, refusal, same

DIRECTIONS = {name.upper(): getattr(operator, name) for name in ("eq", "ne", "ge", "gt", "le", "lt")}


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", ["f32", "bf16", "f8e4m3fn", "f64"])
def test_comparisons_of_floats(direction: str, kind: str) -> None:
    values = [0.0, -0.0, 1.0, -1.0, np.nan, 2.0]
    pairs = list(itertools.product(values, repeat=2))
    lhs, rhs = (array(kind, [p[i] for p in pairs]) for i in (0, 1))
    wanted = [DIRECTIONS[direction](a, b) for a, b in pairs]
    assert apply("compare", lhs, rhs, attributes=f"direction={direction}").tolist() == wanted


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("kind", ["s4", "u4", "s8", "u64", "s64", "pred"])
def test_comparisons_of_integers(direction: str, kind: str) -> None:
    values = [False, True] if kind == "pred" else [0, 1, 7] + ([-8, -1] if kind[0] == "s" else [15])
    pairs = list(itertools.product(values, repeat=2))
    lhs, rhs = (array(kind, [p[i] for p in pairs]) for i in (0, 1))
    wanted = [DIRECTIONS[direction](a, b) for a, b in pairs]
    assert apply("compare", lhs, rhs, attributes=f"direction={direction}").tolist() == wanted


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "f16", "f8e5m2"])
def test_the_total_order(kind: str) -> None:
    ordered = array(
        kind, [np.copysign(np.nan, -1), -np.inf, -1, -0.0, 0.0, 1, np.inf, np.copysign(np.nan, 1)]
    )
    lhs, rhs = np.repeat(ordered, 8), np.tile(ordered, 8)
    for direction, relation in DIRECTIONS.items():
        result = apply("compare", lhs, rhs, attributes=f"direction={direction}, type=TOTALORDER")
        wanted = [relation(i, j) for i, j in itertools.product(range(8), repeat=2)]
        assert result.tolist() == wanted, direction


def test_the_total_order_of_all_halves_is_that_of_their_patterns() -> None:
    values = every("f16")
    patterns = values.view(np.int16).astype(np.int64)
    key = np.where(patterns < 0, -(patterns & 0x7FFF) - 1, patterns)
    other = np.random.default_rng(0).permutation(len(values))
    result = apply("compare", values, values[other], attributes="direction=LT, type=TOTALORDER")
    agreement.equal(result, key < key[other])


def test_complex_numbers_are_equal_or_not() -> None:
    lhs, rhs = c64([1 + 1j, 1, np.nan]), c64([1 + 1j, 1j, np.nan])
    assert apply("compare", lhs, rhs, attributes="direction=EQ").tolist() == [True, False, False]
    assert apply("compare", lhs, rhs, attributes="direction=NE").tolist() == [False, True, True]
    error = refusal("compare", "c64[2]", "c64[2]", attributes="direction=LT")
    assert error.rule == "compare.complex-order"


@pytest.mark.parametrize(
    ("kind", "type_"), [("f32", "SIGNED"), ("s32", "UNSIGNED"), ("u8", "FLOAT"), ("pred", "SIGNED")]
)
def test_the_type_fits_the_element_type(kind: str, type_: str) -> None:
    error = refusal("compare", f"{kind}[2]", f"{kind}[2]", attributes=f"direction=EQ, type={type_}")
    assert error.rule == "compare.type"


def test_direction_is_required_and_known() -> None:
    assert refusal("compare", "f32[2]", "f32[2]").rule == "text.attribute-missing"
    assert refusal("compare", "f32[2]", "f32[2]", attributes="direction=lt").rule == "text.syntax"


@pytest.mark.parametrize(
    ("kind", "type_", "printed"),
    [
        ("f32", "", ""),
        ("f32", "FLOAT", ""),
        ("f32", "TOTALORDER", ", type=TOTALORDER"),
        ("s32", "SIGNED", ""),
        ("s32", "TOTALORDER", ", type=TOTALORDER"),
        ("u32", "UNSIGNED", ""),
        ("pred", "UNSIGNED", ""),
        ("c64", "FLOAT", ""),
    ],
)
def test_only_an_unusual_type_is_printed(kind: str, type_: str, printed: str) -> None:
    attributes = "direction=EQ" + (f", type={type_}" if type_ else "")
    module = parse(program("compare", f"{kind}[2]", f"{kind}[2]", attributes=attributes))
    text = module.to_text(xla_version="0.10")
    assert f"direction=EQ{printed}\n" in text


class TestSelect:
    def test_elements(self) -> None:
        result = apply("select", np.array([True, False]), f32([1, 2]), f32([3, 4]))
        assert result.tolist() == [1, 4]

    def test_a_scalar_decides_for_all(self) -> None:
        for pred, wanted in [(True, [1, 2]), (False, [3, 4])]:
            assert apply("select", np.array(pred), s8([1, 2]), s8([3, 4])).tolist() == wanted

    @pytest.mark.parametrize("kind", ["pred", "s4", "u2", "bf16", "f8e4m3fnuz", "c128"])
    def test_any_element_type(self, kind: str) -> None:
        on_true, on_false = array(kind, [1, 0]), array(kind, [0, 1])
        result = apply("select", np.array([True, True]), on_true, on_false)
        assert result.dtype == on_true.dtype
        assert result.tobytes() == on_true.tobytes()

    def test_bits_are_passed_on(self) -> None:
        payload = u32([0x7FC12345, 0xFFC00001]).view(np.float32)
        result = apply("select", np.array([True, True]), payload, payload)
        assert result.view(np.uint32).tolist() == [0x7FC12345, 0xFFC00001]

    def test_refused(self) -> None:
        assert refusal("select", "s32[2]", "f32[2]", "f32[2]").rule == "select.pred-type"
        assert refusal("select", "pred[3]", "f32[2]", "f32[2]").rule == "select.same-dimensions"
        assert refusal("select", "pred[2]", "f32[]", "f32[]").rule == "select.same-dimensions"
        assert refusal("select", "pred[2]", "s32[2]", "s16[2]").rule == "select.same-element-type"
        assert refusal("select", "pred[]", "(f32[2])", "(f32[2])").rule == "select.operand-arrays"

    def test_dynamic_cases(self) -> None:
        text = program("select", "pred[]", "f32[<=3]", "f32[3]")
        assert parse(text).entry.root.shape.to_string(layout=False) == "f32[<=3]"


class TestClamp:
    def test_between_arrays_and_scalars(self) -> None:
        operand = f32([-1, 0.5, 2])
        assert apply("clamp", np.float32(0), operand, np.float32(1)).tolist() == [0, 0.5, 1]
        low, high = f32([0, 1, 0]), f32([1, 1, 3])
        assert apply("clamp", low, operand, high).tolist() == [0, 1, 2]
        assert apply("clamp", low, operand, np.float32(1)).tolist() == [0, 1, 1]

    def test_the_upper_bound_has_the_last_word(self) -> None:
        assert apply("clamp", np.int32(5), s32([0, 7]), np.int32(3)).tolist() == [3, 3]

    def test_nan_stays(self) -> None:
        same(apply("clamp", np.float32(0), f32([np.nan]), np.float32(1)), [np.nan])
        same(apply("clamp", np.float32(np.nan), f32([0.5]), np.float32(1)), [np.nan])

    @pytest.mark.parametrize("kind", ["s4", "u4", "u64", "bf16", "f8e5m2", "pred"])
    def test_every_kind(self, kind: str) -> None:
        low, operand, high = array(kind, 0), array(kind, [0, 1]), array(kind, 1)
        result = apply("clamp", low, operand, high)
        assert numbers(result).tolist() == [0, 1]

    def test_refused(self) -> None:
        assert refusal("clamp", "f32[1]", "f32[2]", "f32[1]").rule == "clamp.same-dimensions"
        assert refusal("clamp", "f32[2]", "f32[]", "f32[2]").rule == "clamp.same-dimensions"
        assert refusal("clamp", "s32[]", "f32[2]", "f32[]").rule == "clamp.same-element-type"
        assert refusal("clamp", "token[]", "f32[2]", "f32[]").rule == "clamp.operand-arrays"


def test_a_scalar_computation_is_mapped_over_arrays() -> None:
    text = """
HloModule m
f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  less = pred[] compare(a, b), direction=LT
  small = f32[] select(less, a, b)
  ROOT r = f32[] clamp(a, small, b)
}
ENTRY e {
  x = f32[3] parameter(0)
  y = f32[3] parameter(1)
  ROOT m = f32[3] map(x, y), dimensions={0}, to_apply=f
}"""
    result: Any = evaluate(text, f32([1, 5, 3]), f32([2, 4, 3]))
    assert result.tolist() == [1, 4, 3]
