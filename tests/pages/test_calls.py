"""The page "Operation semantics" on calls, branches, loops, Map, tuples, barriers and random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.arrays import f32, s32
from tests.builder.building import ADD, built, ops, scalar
from tests.pages.both import each_value, rule_of, shape_of, value

DOUBLE = scalar(lambda x: x * 2, "f32")
NEGATE = scalar(lambda x: -x, "f32")


# -- Call


def test_call_with_any_number_of_arguments() -> None:
    nothing = built(lambda b: ops.Constant(b, f32(7)))
    assert value(lambda x: x + ops.Call(x.builder, nothing), f32(1)) == 8
    assert value(lambda x, y: ops.Call(ADD, x, y), f32(1), f32(2)) == 3
    pair = built(lambda x, t: ops.Tuple([t[0] + x, t[1]]), "f32[2]", "(f32[2], s32[])")
    first, second = value(lambda x, n: ops.Call(pair, x, ops.Tuple([x, n])), f32([1, 2]), s32(5))
    assert (first.tolist(), second.tolist()) == ([2, 4], 5)


def test_arguments_match_the_parameters() -> None:
    assert rule_of(lambda x: ops.Call(ADD, x), "f32[]").startswith("call.")
    assert rule_of(lambda x: ops.Call(DOUBLE, x), "s32[]").startswith("call.")
    assert rule_of(lambda x: ops.Call(DOUBLE, x), "f32[1]").startswith("call.")


# -- Conditional


def test_only_one_branch_is_run() -> None:
    endless = built(
        lambda x: ops.While(built(lambda s: s >= s, "f32[]"), DOUBLE, x), "f32[]"
    )  # never ends for a number
    for branch, wanted in ((True, 6), (False, -3)):
        found = value(lambda p, x: ops.Conditional(p, x, DOUBLE, x, NEGATE), np.bool_(branch), f32(3))
        assert found == wanted
    assert value(lambda p, x: ops.Conditional(p, x, DOUBLE, x, endless), np.bool_(True), f32(3)) == 6
    assert value(lambda i, x: ops.Conditional(i, [endless, NEGATE], [x, x]), s32(1), f32(3)) == -3


@pytest.mark.parametrize("index", [-5, -1, 0, 1, 2, 3, 100])
def test_an_index_out_of_range_takes_the_last_branch(index: int) -> None:
    triple = scalar(lambda x: x * 3, "f32")
    found = value(
        lambda i, x, y, z: ops.Conditional(i, [DOUBLE, NEGATE, triple], [x, y, z]),
        s32(index),
        f32(1),
        f32(10),
        f32(100),
    )
    assert found == {0: 2, 1: -10}.get(index, 300)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda p, x: ops.Conditional(p, x, DOUBLE, x, NEGATE), ("s32[2]", "f32[]")),
        (lambda p, x: ops.Conditional(p, x, DOUBLE, x, NEGATE), ("f32[]", "f32[]")),
        (lambda p, x: ops.Conditional(p, x, ADD, x, NEGATE), ("pred[]", "f32[]")),
        (lambda p, x: ops.Conditional(p, x, DOUBLE, x, NEGATE), ("pred[]", "f32[2]")),
        (lambda p, x: ops.Conditional(p, x, DOUBLE, x, scalar(lambda x: x > 0, "f32")), ("pred[]", "f32[]")),
        (lambda i, x: ops.Conditional(i, [DOUBLE, NEGATE], [x]), ("s32[]", "f32[]")),
        (lambda i, x: ops.Conditional(i, [], []), ("s32[]", "f32[]")),
    ],
)
def test_types_of_branches(function: Any, shapes: Any) -> None:
    assert rule_of(function, *shapes).startswith("conditional.")


# -- While


def test_while_gives_the_last_state() -> None:
    below = built(lambda s: s[0] < 10, "(s32[], f32[3])")
    body = built(lambda s: ops.Tuple([s[0] + 1, s[1] * 2]), "(s32[], f32[3])")
    for start, times in ((0, 10), (7, 3), (10, 0), (50, 0)):
        count, vector = value(
            lambda n, v: ops.While(below, body, ops.Tuple([n, v])), s32(start), f32([1, 2, 3])
        )
        assert (count, vector.tolist()) == (max(start, 10), [2.0**times * k for k in (1, 2, 3)])
    assert value(lambda x: ops.While(scalar(lambda x: x < 100, "f32"), DOUBLE, x), f32(3)) == 192


def test_the_state_keeps_its_type() -> None:
    wider = built(lambda x: ops.Broadcast(x, [1]), "f32[]")
    truth = scalar(lambda x: x < 3, "f32")
    assert rule_of(lambda x: ops.While(truth, wider, x), "f32[]").startswith("while.")
    assert rule_of(lambda x: ops.While(DOUBLE, DOUBLE, x), "f32[]").startswith("while.")
    assert rule_of(lambda x: ops.While(truth, DOUBLE, x), "s32[]").startswith("while.")
    assert rule_of(lambda x: ops.While(truth, ADD, x), "f32[]").startswith("while.")


# -- Map


def test_map_applies_any_computation_at_every_index() -> None:
    halving = scalar(
        lambda x: ops.While(scalar(lambda x: x > 1, "f32"), scalar(lambda x: x / 2, "f32"), x), "f32"
    )
    x = f32([[1, 2, 3], [10, 100, 0.5]])
    assert value(lambda x: ops.Map(x, halving), x).tolist() == [[1, 1, 0.75], [0.625, 0.78125, 0.5]]
    assert shape_of(lambda x: ops.Map(x, scalar(lambda x: x > 0, "f32"), [0, 1]), "f32[2,3]") == "pred[2,3]"


def test_map_with_a_static_operand() -> None:
    scaled = scalar(lambda a, b, par1: a + b * ops.ConvertElementType(par1, "f32"), "f32", "f32", "s32")
    a, b = np.random.default_rng(0).integers(0, 9, (2, 3, 4)).astype(f32)
    assert (value(lambda a, b, p: ops.Map(a, b, scaled, p), a, b, s32(3)) == a + 3 * b).all()


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x, y: ops.Map([x, y], ADD), ("f32[2]", "f32[3]")),
        (lambda x: ops.Map(x, ADD), ("f32[2]",)),
        (lambda x: ops.Map(x, DOUBLE, [1]), ("f32[2]",)),
        (lambda x: ops.Map(x, DOUBLE, [0]), ("f32[2,2]",)),
        (lambda x: ops.Map(x, DOUBLE), ("s32[2]",)),
    ],
)
def test_rules_of_map(function: Any, shapes: Any) -> None:
    assert rule_of(function, *shapes).startswith("map.")


# -- tuples, barriers


def test_tuples_hold_values_of_any_shape() -> None:
    v, s = np.arange(10, dtype=f32), s32(5)
    nested = value(lambda v, s: ops.Tuple([v, ops.Tuple([s, v]), ops.EmptyTuple(v.builder)]), v, s)
    assert (nested[0].tolist(), nested[1][0].tolist(), nested[2]) == (v.tolist(), 5, ())
    assert value(lambda v, s: ops.GetTupleElement(ops.Tuple(v, s), 1), v, s) == 5
    assert rule_of(lambda v: ops.GetTupleElement(ops.Tuple([v]), 1), "f32[2]").startswith(
        "get-tuple-element."
    )
    assert rule_of(lambda v: ops.GetTupleElement(v, 0), "f32[2]").startswith("get-tuple-element.")


def test_a_barrier_passes_its_operand_on() -> None:
    x, n = f32([1, 2]), s32(3)
    first, second = value(lambda x, n: ops.OptimizationBarrier(ops.Tuple([x * 2, n])), x, n)
    assert (first.tolist(), second.tolist()) == ([2, 4], 3)


# -- random numbers


def test_uniform_numbers_lie_in_the_interval() -> None:
    for low, high, kind in ((-2, 3, "f32"), (0, 1, "f64"), (-5, 5, "s32"), (0, 200, "u32")):
        for found in each_value(
            lambda b, a=low, c=high, k=kind: ops.RngUniform(
                ops.Constant(b, a, k), ops.Constant(b, c, k), f"{k}[4000]"
            )
        ):
            assert found.shape == (4000,)
            assert ((found >= low) & (found < high)).all()
            deviation = (high - low) / np.sqrt(12 * 4000)
            assert abs(found.mean(dtype=np.float64) - (low + high - (kind[0] != "f")) / 2) < 6 * deviation


def test_normal_numbers_have_mean_and_deviation() -> None:
    for found in each_value(
        lambda b: ops.RngNormal(ops.Constant(b, f32(3)), ops.Constant(b, f32(2)), "f32[4000]")
    ):
        assert abs(found.mean() - 3) < 6 * 2 / np.sqrt(4000)
        assert abs(found.std() - 2) < 6 * 2 / np.sqrt(2 * 4000)


def test_parameters_of_distributions_are_scalars_of_the_type() -> None:
    assert rule_of(lambda x: ops.RngUniform(x, x, "f32[4]"), "f32[2]").startswith("rng.")
    assert rule_of(lambda x: ops.RngUniform(x, x, "s32[4]"), "f32[]").startswith("rng.")
    assert rule_of(lambda x: ops.RngNormal(x, x, "s32[4]"), "s32[]").startswith("rng.")


@pytest.mark.parametrize(
    ("algorithm", "state"),
    [("rng_three_fry", [1, 2]), ("rng_philox", [1, 2, 3]), ("rng_philox", [1, 2]), ("rng_default", [1, 2])],
)
@pytest.mark.parametrize("shape", ["u32[5,3]", "u64[7]", "u8[9]", "u16[0]"])
def test_random_bits_are_a_function_of_the_state(algorithm: str, state: list[int], shape: str) -> None:
    seed = np.array(state, np.uint64)
    new, bits = value(lambda s: ops.RngBitGenerator(algorithm, s, shape), seed)
    again, same = value(lambda s: ops.RngBitGenerator(algorithm, s, shape), seed)
    assert new.shape == seed.shape
    assert (new == again).all()
    assert (bits == same).all()
    if bits.size > 4:
        assert (new != seed).any()
        _, others = value(lambda s: ops.RngBitGenerator(algorithm, s, shape), new)
        assert (others != bits).any()
