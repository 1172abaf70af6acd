"""The page "Operation semantics" on elementwise operations, Clamp and Select."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from hloom import ops
from tests import agreement
from tests.arrays import f32, s32, u8
from tests.builder.building import built
from tests.pages.both import dtype, each_value, rule_of, shape_of, value

NAN = np.uint32(0x7FC00000).view(f32)
SPECIAL = f32([-NAN, -np.inf, -3.5, -1, -1e-45, -0.0, 0.0, 1e-45, 1, 2.5, np.inf, NAN])


# -- binary arithmetic


ARITHMETIC = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum,
}  # fmt: skip


@pytest.mark.parametrize("name", ARITHMETIC)
@pytest.mark.parametrize("kind", ["s8", "u8", "s32", "u64", "f32", "f64"])
def test_arithmetic(name: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 256, 50).astype(dtype(kind)) for _ in range(2))
    with np.errstate(over="ignore"):
        assert (value(getattr(ops, name), x, y) == ARITHMETIC[name](x, y)).all()


@pytest.mark.parametrize("kind", ["s8", "s32", "s64", "u8", "u32"])
def test_division_truncates_and_remainders_have_the_sign_of_the_dividend(kind: str) -> None:
    numbers = [-7, -6, -1, 0, 1, 5, 7] if kind[0] == "s" else [0, 1, 5, 7, 250]
    pairs = [(a, b) for a, b in itertools.product(numbers, numbers) if b]
    x, y = (np.array(column, dtype(kind)) for column in zip(*pairs, strict=True))
    quotients, remainders = value(ops.Div, x, y), value(ops.Rem, x, y)
    for (a, b), q, r in zip(pairs, quotients.tolist(), remainders.tolist(), strict=True):
        assert q == abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        assert r == a - b * q
        assert abs(r) < abs(b)
        assert r == 0 or (r < 0) == (a < 0)


def test_float_remainders() -> None:
    x, y = (a.ravel() for a in np.meshgrid(f32([-7.5, -1, 0, 2.25, 9]), f32([-2, -0.75, 1.5, 4])))
    found = value(ops.Rem, x, y)
    assert (found == np.fmod(x, y)).all()
    assert (np.abs(found) < np.abs(y)).all()
    assert (np.signbit(found) == np.signbit(x)).all()


def test_integer_division_by_zero_and_overflow_ends() -> None:
    least = np.iinfo(s32).min
    for function in (ops.Div, ops.Rem):
        value(function, s32([5, -5, 0, least]), s32([0, 0, 0, -1]))  # some value, the same on both backends
        value(function, u8([5, 0]), u8([0, 0]))


def test_logical_functions() -> None:
    p, q = np.array([0, 0, 1, 1], bool), np.array([0, 1, 0, 1], bool)
    assert (value(ops.LogicalAnd, p, q) == (p & q)).all()
    assert (value(ops.LogicalOr, p, q) == (p | q)).all()
    assert (value(ops.LogicalNot, p) == ~p).all()


# -- broadcasting of two operands


def test_a_scalar_meets_any_array_and_sizes_of_one_are_repeated() -> None:
    x = np.arange(6, dtype=f32).reshape(2, 3)
    assert (value(lambda x: ops.Add(x, 1), x) == x + 1).all()
    assert (value(ops.Add, x, f32(2)) == x + 2).all()
    assert (value(ops.Add, f32(2), x) == x + 2).all()
    assert (value(ops.Mul, x, f32([[1], [2]])) == x * f32([[1], [2]])).all()
    assert (value(ops.Lt, f32([[1, 2, 3]]), f32([[1], [2]])) == (f32([[1, 2, 3]]) < f32([[1], [2]]))).all()


@pytest.mark.parametrize("function", [ops.Add, ops.Gt, ops.EqTotalOrder, ops.Pow])
def test_arrays_of_other_ranks_need_broadcast_dimensions(function: Any) -> None:
    assert rule_of(function, "f32[2,3]", "f32[3]") == "broadcasting.ranks"
    assert rule_of(function, "f32[2,3]", "f32[2,2]") == "broadcasting.sizes"
    assert shape_of(lambda x, y: function(x, y, [1]), "f32[2,3]", "f32[3]").endswith("[2,3]")
    assert shape_of(lambda x, y: function(x, y, [0]), "f32[2]", "f32[2,3]").endswith("[2,3]")
    assert rule_of(lambda x, y: function(x, y, [0]), "f32[2,3]", "f32[3]") == "broadcasting.sizes"


def test_unmapped_dimensions_are_filled_with_one_and_repeated() -> None:
    x = np.arange(24, dtype=f32).reshape(2, 3, 4)
    y = f32([[10, 20, 30, 40], [50, 60, 70, 80]])
    assert (value(lambda x, y: ops.Add(x, y, [0, 2]), x, y) == x + y[:, None, :]).all()
    narrow = y[:, :1]
    assert (value(lambda x, y: ops.Add(y, x, [0, 2]), x, narrow) == x + narrow[:, None, :]).all()


# -- comparisons


COMPARISONS = {
    "Eq": np.equal, "Ne": np.not_equal, "Ge": np.greater_equal, "Gt": np.greater, "Le": np.less_equal,
    "Lt": np.less,
}  # fmt: skip


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_of_floats_are_those_of_ieee(name: str) -> None:
    x, y = (a.ravel() for a in np.meshgrid(SPECIAL, SPECIAL))
    found = value(getattr(ops, name), x, y)
    assert found.dtype == bool
    assert (found == COMPARISONS[name](x, y)).all()


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("kind", ["f32", "bf16", "f64", "f16"])
def test_the_total_order(name: str, kind: str) -> None:
    ascending = SPECIAL.astype(dtype(kind))
    if kind in ("f16", "bf16"):
        ascending = np.delete(ascending, [4, 7])  # 1e-45 is 0 there
    place = np.arange(len(ascending))
    (i, j) = (a.ravel() for a in np.meshgrid(place, place))
    found = value(getattr(ops, f"{name}TotalOrder"), ascending[i], ascending[j])
    assert (found == COMPARISONS[name](i, j)).all()


@pytest.mark.parametrize("kind", ["s8", "u8", "s64", "u64", "pred"])
def test_comparisons_of_integers(kind: str) -> None:
    numbers = np.array([0, 1, 127, 128, 255]).astype(dtype(kind))
    x, y = (a.ravel() for a in np.meshgrid(numbers, numbers))
    for name, wanted in COMPARISONS.items():
        assert (value(getattr(ops, name), x, y) == wanted(x, y)).all()
        assert (value(getattr(ops, f"{name}TotalOrder"), x, y) == wanted(x, y)).all()


# -- functions of one operand


FUNCTIONS = {
    "Abs": np.abs, "Ceil": np.ceil, "Cos": np.cos, "Exp": np.exp, "Floor": np.floor, "Log": np.log,
    "Logistic": lambda x: 1 / (1 + np.exp(-x)), "Neg": np.negative, "Rsqrt": lambda x: 1 / np.sqrt(x),
    "Sqrt": np.sqrt, "Cbrt": np.cbrt, "Tanh": np.tanh, "RoundNearestEven": np.rint,
    "Round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x), "Sin": np.sin,
}  # fmt: skip
EXACT = ("Abs", "Ceil", "Floor", "Neg", "Sqrt", "RoundNearestEven", "Round")


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_functions(name: str, kind: str) -> None:
    x = np.array([0.0, 0.5, 1, 1.5, 2.5, 2.75, 100.25, 1e-3, 30], dtype(kind))
    if name not in ("Log", "Rsqrt", "Sqrt"):
        x = np.concatenate([-x, x])
    with np.errstate(all="ignore"):
        wanted = FUNCTIONS[name](x.astype(np.longdouble)).astype(dtype(kind))
    for found in each_value(getattr(ops, name), x):
        assert found.shape == x.shape
        if name in EXACT:
            agreement.equal(found, wanted)
        else:
            eps = float(np.finfo(dtype(kind)).eps)
            agreement.within(found, wanted, 8 * eps * np.maximum(np.abs(wanted), 1e-3))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_take_scalars_and_arrays_without_elements(name: str) -> None:
    assert shape_of(getattr(ops, name), "f32[]") == "f32[]"
    assert value(getattr(ops, name), np.zeros((0, 2), f32)).shape == (0, 2)


def test_is_finite() -> None:
    assert (value(ops.IsFinite, SPECIAL) == np.isfinite(SPECIAL)).all()
    assert shape_of(ops.IsFinite, "f32[2,3]") == "pred[2,3]"


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "f16", "s32", "s8"])
def test_sign(kind: str) -> None:
    if kind[0] == "s":
        assert value(ops.Sign, np.array([-5, 0, 7], dtype(kind))).tolist() == [-1, 0, 1]
        return
    found = value(ops.Sign, np.array([-2, -0.0, np.nan, 0.0, 3, np.inf], dtype(kind))).astype(f32)
    assert str(found.tolist()) == "[-1.0, -0.0, nan, 0.0, 1.0, 1.0]"


@pytest.mark.parametrize("kind", ["u8", "s8", "u16", "s32", "u64", "s64"])
def test_population_count(kind: str) -> None:
    x = np.array([0, 1, -1, 127, 0x55], np.int64).astype(dtype(kind))
    bits = np.unpackbits(x.view(np.uint8).reshape(len(x), -1), axis=1).sum(1)
    assert value(ops.PopulationCount, x).tolist() == bits.tolist()


def test_real_and_imaginary_parts() -> None:
    z = np.array([1 + 2j, -3.5j, 4], np.complex64)
    assert (value(ops.Real, z) == z.real).all()
    assert (value(ops.Imag, z) == z.imag).all()
    for x in (f32([1.5, -2]), np.array([1.5, -2], ml_dtypes.bfloat16)):
        assert (value(ops.Real, x) == x).all()
        assert (value(ops.Imag, x) == 0).all()


def test_logical_not_inverts() -> None:
    assert value(ops.LogicalNot, np.array([True, False])).tolist() == [False, True]


# -- Clamp, Select


def test_clamp_is_the_minimum_of_max_and_the_maximum() -> None:
    grid = np.meshgrid(SPECIAL[1:-1], SPECIAL, SPECIAL[1:-1])
    low, x, high = (a.ravel() for a in grid)
    found = value(ops.Clamp, low, x, high)
    agreement.equal(found, np.minimum(np.maximum(low, x), high))


def test_clamp_with_scalar_bounds() -> None:
    x = s32([-1, 5, 9])
    assert value(ops.Clamp, s32(0), x, s32(6)).tolist() == [0, 5, 6]
    assert value(ops.Clamp, s32([0, 6, 0]), x, s32(6)).tolist() == [0, 6, 6]
    assert value(ops.Clamp, s32(0), x, s32([3, 4, 5])).tolist() == [0, 4, 5]
    assert rule_of(ops.Clamp, "s32[3]", "s32[2]", "s32[3]").startswith("clamp.")
    assert rule_of(ops.Clamp, "s32[]", "f32[2]", "s32[]") == "clamp.same-element-type"


def test_select_chooses_element_by_element() -> None:
    rng = np.random.default_rng(0)
    pred, x, y = rng.random((4, 5)) < 0.5, *rng.random((2, 4, 5), f32)
    assert (value(ops.Select, pred, x, y) == np.where(pred, x, y)).all()
    for scalar in (True, False):
        assert (value(ops.Select, np.bool_(scalar), x, y) == (x if scalar else y)).all()


def test_select_wants_one_shape_and_a_predicate() -> None:
    assert rule_of(ops.Select, "pred[3]", "f32[2]", "f32[2]").startswith(("select.", "broadcasting."))
    assert rule_of(ops.Select, "pred[2]", "f32[2]", "f32[3]").startswith(("select.", "broadcasting."))
    assert rule_of(ops.Select, "f32[2]", "f32[2]", "f32[2]").startswith("select.")
    assert rule_of(ops.Select, "pred[2]", "f32[2]", "s32[2]").startswith("select.")


def test_select_of_tuples_has_a_scalar_predicate() -> None:
    def choose(p: Any, x: Any, n: Any) -> Any:
        nested = ops.Tuple([x, ops.Tuple([n, x])]), ops.Tuple([x + 1, ops.Tuple([n + 1, x * 2])])
        return ops.Select(p, *nested)

    x, n = f32([1, 2]), s32(5)
    first, (second, third) = value(choose, np.bool_(False), x, n)
    assert (first.tolist(), second.tolist(), third.tolist()) == ([2, 3], 6, [2, 4])
    different = rule_of(lambda p, x: ops.Select(p, ops.Tuple([x]), ops.Tuple([x, x])), "pred[]", "f32[]")
    assert different == "select.tuples"
    assert built(choose, "pred[]", "f32[2]", "s32[]").entry.root.shape.is_tuple
