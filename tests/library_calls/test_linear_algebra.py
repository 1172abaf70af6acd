"""Triangular solves, Cholesky factors and radix sorts of GPUs."""

from __future__ import annotations

import json

import numpy as np
import pytest

import hloom
from tests import agreement
from tests.library_calls.runs import run

LOWER = np.array([[2, 0, 0], [1, 4, 0], [-2, 3, 1]], np.float32)


@pytest.mark.parametrize("transposed", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
def test_triangular_solve(transposed: str) -> None:
    x = np.array([[1, 2], [-3, 4], [5, 0.5]], np.float32)
    a = LOWER if transposed == "NO_TRANSPOSE" else LOWER.T
    config = json.dumps({"left_side": True, "lower": True, "unit_diagonal": False, "transpose_a": transposed})
    found = run("(f32[3,2], s8[8])", "__cublas$triangularSolve", [LOWER, a @ x], config)
    agreement.equal(found[0], x)


def test_a_solve_without_a_transposition_is_not_emulated() -> None:
    with pytest.raises(hloom.HloError, match="transpose_a is ''"):
        run("(f32[3,3], s8[8])", "__cublas$triangularSolve", [LOWER, LOWER], "{}")


def test_cholesky() -> None:
    shape, config = "(f32[3,3], f32[16], s32[])", '{"lower":true}'
    found = run(shape, "__cusolver$cholesky", [LOWER @ LOWER.T], config)
    agreement.equal(np.tril(found[0]), LOWER)
    assert found[2] == 0
    failed = run(shape, "__cusolver$cholesky", [-np.eye(3, dtype=np.float32)], config, backends=["evaluator"])
    assert np.isnan(failed[0][0, 0])


KEYS = np.array([[3, -0.0, np.nan, 0.0, -np.inf, -2], [1, 1, 0, 1, 2, 0]], np.float32)


@pytest.mark.parametrize("descending", [False, True])
def test_radix_sort(descending: bool) -> None:
    places = np.tile(np.arange(6, dtype=np.int32), (2, 1))
    config = json.dumps({"descending": descending})
    found = run("(f32[2,6], s32[2,6], u8[1])", "__cub$DeviceRadixSort", [KEYS, places], config)
    order = np.argsort(-KEYS if descending else KEYS, axis=1, kind="stable")
    if descending:  # numpy has NaN last
        order[0] = [2, *[n for n in order[0] if n != 2]]
    agreement.same(found[1], order.astype(np.int32))
    agreement.same(found[0], np.take_along_axis(KEYS, order, 1))
    alone = run("(f32[2,6], u8[1])", "__cub$DeviceRadixSort", [KEYS], config)
    agreement.same(alone[0], found[0])


def test_a_sort_of_three_arrays_is_not_emulated() -> None:
    with pytest.raises(hloom.HloError, match="3 operands"):
        run("(f32[2,6], u8[1])", "__cub$DeviceRadixSort", [KEYS] * 3, "{}")
