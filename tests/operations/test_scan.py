"""Scan."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from hloom import HloModule
from hloom.debug.error_analysis import ErrorAnalysis
from tests import oracle
from tests.arrays import f32
from tests.one_operation import same
from tests.reducers import apply, program, refusal

STEP = """f {
  x = f32[] parameter(0)
  carry = f32[] parameter(1)
  two = f32[] constant(2)
  doubled = f32[] multiply(carry, two)
  next = f32[] add(x, doubled)
  ROOT r = (f32[], f32[]) tuple(carry, next)
}
"""
ROWS = """f {
  x = f32[3] parameter(0)
  carry = f32[3] parameter(1)
  sum = f32[3] add(x, carry)
  ROOT r = (f32[3], f32[3]) tuple(sum, sum)
}
"""
SCAN = "scan(@), dimensions={0}, num_carries=1, to_apply=f"


def test_outputs_and_the_last_carry() -> None:
    outputs, carry = apply(STEP, SCAN, f32([1, 10, 100]), f32(3))
    assert outputs.tolist() == [3, 7, 24]
    assert carry == 148


def test_in_reverse_outputs_stand_where_their_slices_stood() -> None:
    outputs, carry = apply(STEP, SCAN + ", is_reverse=true", f32([1, 10, 100]), f32(3))
    assert outputs.tolist() == [222, 106, 3]
    assert carry == 445


@pytest.mark.parametrize("axis", [0, 1])
def test_a_cumulative_sum_of_slices(axis: int) -> None:
    values = np.arange(12, dtype=f32).reshape((4, 3) if axis == 0 else (3, 4))
    operation = f"scan(@), dimensions={{{axis}}}, num_carries=1, is_associative=true, to_apply=f"
    sums, last = apply(ROWS, operation, values, np.zeros(3, f32))
    same(sums, np.cumsum(values, axis=axis))
    same(last, values.sum(axis=axis))


def test_sums_of_an_associative_scan_in_any_order() -> None:
    """The bounds admit sums of blocks that are added afterwards; in order a scan has one result."""
    values = np.random.default_rng(0).normal(size=(64, 3)).astype(f32)
    operation = "scan(@), dimensions={0}, num_carries=1, is_associative=true, to_apply=f"
    arguments = [values, np.ones(3, f32)]

    def analysis(text: str) -> ErrorAnalysis:
        return ErrorAnalysis(HloModule.from_text(program(ROWS, text, "f32[64,3]", "f32[3]")))

    (sums, last), (bounds, bound) = cast("Any", analysis(operation).run(arguments))
    blocks = np.cumsum(values.reshape(8, 8, 3), axis=1)
    before = np.cumsum(blocks[:, -1], axis=0) - blocks[:, -1] + f32(1)
    others = (blocks + before[:, None]).reshape(64, 3)
    assert (others != sums).any()
    assert (np.abs(others - sums) <= bounds).all()
    assert (np.abs(others[-1] - last) <= bound).all()
    assert bounds.max() < 1e-3
    in_order = analysis(operation.replace("is_associative=true, ", "")).run(arguments)[1]
    assert not np.any(cast("Any", in_order)[0])


def test_without_carries() -> None:
    negate = "f {\n x = f32[] parameter(0)\n ROOT r = f32[] negate(x)\n}\n"
    result = apply(negate, "scan(@), dimensions={0}, num_carries=0, to_apply=f", f32([1, 2]))
    assert result.tolist() == [-1, -2]


def test_without_inputs_the_stated_shape_tells_the_steps() -> None:
    count = """f {
      carry = s32[] parameter(0)
      one = s32[] constant(1)
      next = s32[] add(carry, one)
      ROOT r = (s32[], s32[]) tuple(carry, next)
    }
    """
    operation = "(s32[4], s32[]) scan(@), dimensions={0}, num_carries=1, to_apply=f"
    outputs, carry = apply(count, operation, np.int32(5))
    assert (outputs.tolist(), carry) == ([5, 6, 7, 8], 9)


def test_no_steps() -> None:
    outputs, carry = apply(STEP, SCAN, np.zeros(0, f32), f32(3))
    assert (outputs.shape, carry) == ((0,), 3)


@pytest.mark.parametrize(
    ("operation", "shapes", "rule"),
    [
        (SCAN.replace("num_carries=1", "num_carries=3"), ["f32[4]", "f32[]"], "scan.carry-count"),
        (SCAN.replace("num_carries=1", "num_carries=-1"), ["f32[4]", "f32[]"], "scan.carry-count"),
        (SCAN, ["f32[]"], "scan.inputs"),
        (SCAN.replace("{0}", "{0,1}"), ["f32[4]", "f32[]"], "scan.one-dimension"),
        (SCAN.replace("{0}", "{1}"), ["f32[4]", "f32[]"], "scan.dimension-range"),
        (SCAN, ["f32[4]", "f32[5]", "f32[]"], "scan.length"),
        ("(f32[]) " + SCAN, ["f32[]"], "scan.length"),
        ("(f32[4], f32[]) " + SCAN, ["f32[]"], "scan.computation-parameters"),
        (SCAN, ["f32[4,2]", "f32[]"], "scan.computation-parameters"),
        (SCAN, ["f32[4]", "s32[]"], "scan.computation-parameters"),
        ("(f32[5], f32[]) " + SCAN, ["f32[4]", "f32[]"], "instruction.shape-matches"),
    ],
)
def test_scan_refuses(operation: str, shapes: list[str], rule: str) -> None:
    assert refusal(STEP, operation, *shapes).rule == rule


def test_scan_refuses_computations_that_lose_the_carries() -> None:
    lost = STEP.replace("(f32[], f32[]) tuple(carry, next)", "(f32[], pred[]) tuple(carry, less)").replace(
        "ROOT", "less = pred[] compare(x, carry), direction=LT\n  ROOT"
    )
    assert refusal(lost, SCAN, "f32[4]", "f32[]").rule == "scan.computation-carries"


def test_scan_refuses_outputs_that_cannot_be_stacked() -> None:
    rank_0 = ROWS.replace("tuple(sum, sum)", "tuple(one, sum)").replace("(f32[3], f32[3])", "(f32[], f32[3])")
    rank_0 = rank_0.replace("ROOT", "one = f32[] constant(1)\n  ROOT")
    operation = SCAN.replace("{0}", "{1}")
    assert refusal(rank_0, operation, "f32[3,4]", "f32[3]").rule == "scan.computation-outputs"


@pytest.mark.parametrize("direction", ["", ", is_reverse=true"])
def test_xla_agrees(direction: str) -> None:
    values = f32([1, 10, 100, 1000])
    wanted = oracle.run(program(STEP, SCAN + direction, "f32[4]", "f32[]"), values, f32(3))
    for got, other in zip(apply(STEP, SCAN + direction, values, f32(3)), wanted, strict=True):
        same(got, other)
