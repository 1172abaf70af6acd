"""The calls ``Qr``, ``Eigh`` and ``ProductOfElementaryHouseholderReflectors`` of XlaBuilder's library."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hloom
from tests import agreement
from tests.arrays import c64, f32
from tests.library_calls.runs import run

PYTHAGOREAN = np.array([[3, 11], [4, 2]])
"""Its first column has the length 5."""


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_qr(dtype: Any) -> None:
    kind = f"f{8 * np.dtype(dtype).itemsize}"
    found, tau = run(f"({kind}[2,2], {kind}[2])", "Qr", [PYTHAGOREAN.astype(dtype)])
    # The reflector (1, 4 / (3 + 5)) sends (3, 4) to (-5, 0).
    agreement.near(found, np.array([[-5, -8.2], [0.5, -7.6]]), 8)
    agreement.near(tau, np.array([1.6, 0]), 1)


def test_qr_of_a_stack_of_complex_matrices() -> None:
    stack = (PYTHAGOREAN * np.array([1, 1j]).reshape(2, 1, 1)).astype(np.complex64)
    found, _ = run("(c64[2,2,2], c64[2,2])", "Qr", [stack])
    agreement.near(np.abs(found[:, 0]), np.array([[5, 8.2], [5, 8.2]]), 8)


def test_reflectors() -> None:
    a, tau = f32([[-5, 7], [0.5, 7], [0, 7]]), f32([1.6])
    found = run("f32[3,2]", "ProductOfElementaryHouseholderReflectors", [a, tau])
    agreement.within(found, f32([[-0.6, -0.8], [-0.8, 0.6], [0, 0]]), 4 * 2.0**-24)


def test_narrow_floats_are_factorized_in_f32() -> None:
    a = PYTHAGOREAN.astype(ml_dtypes.bfloat16)
    found, tau = run("(bf16[2,2], bf16[2])", "Qr", [a], backends=["cpu"])
    agreement.near(found, np.array([[-5, -8.2], [0.5, -7.6]]), 1)
    agreement.near(tau, np.array([1.6, 0]), 1)


@pytest.mark.parametrize(("lower", "other"), [(1, (0, 1)), (0, (1, 0))])
def test_eigh_reads_one_triangle(lower: int, other: tuple[int, int]) -> None:
    a = f32([[2, 1], [1, 2]])
    a[other] = 99
    vectors, values = run("(f32[2,2], f32[2])", "Eigh", [a], f'"{lower},1,100,0.0001"')
    agreement.near(values, np.array([1, 3]), 8)
    agreement.near(np.abs(vectors), np.full((2, 2), np.sqrt(0.5)), 8)


def test_eigenvalues_of_hermitian_matrices_are_real() -> None:
    a = c64([[2, -1j], [1j, 2]])
    _, values = run("(c64[2,2], f32[2])", "Eigh", [a], '"1,1,100,0.0001"')
    agreement.near(values, np.array([1, 3]), 8)


def test_eigh_of_a_stack_with_a_workspace() -> None:
    stack = f32([[[2, 1], [1, 2]], [[4, 0], [0, 3]]])
    shape = "(f32[2,2,2], f32[2,2], f32[8])"
    _, values, _ = run(shape, "Eigh", [stack], '"1,1,100,0.0001"')
    agreement.near(values, np.array([[1, 3], [3, 4]]), 8)


def test_other_configurations_of_eigh_are_not_emulated() -> None:
    with pytest.raises(hloom.HloError, match="lower,sort,max_iter,tol"):
        run("(f32[2,2], f32[2])", "Eigh", [np.eye(2, dtype=np.float32)], '"lower"')
