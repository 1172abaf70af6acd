"""Tridiagonal systems in native code: many in lanes, which agree with LAPACK's calls for one system each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hloom.codegen.llvm import print_module
from tests import agreement
from tests.cpu.test_library_calls import KINDS, Array, call, filled, run
from tests.native_runs import compiled


def systems(kind: str, batch: int, n: int, columns: int) -> list[Array]:
    """Return lower, main and upper diagonals and right-hand sides of random systems."""
    rng = np.random.default_rng(batch + n + columns)

    def draw(*sizes: int) -> Array:
        imaginary = 1j * rng.standard_normal(sizes) if kind[0] == "c" else 0.0
        return np.asarray((rng.standard_normal(sizes) + imaginary).astype(KINDS[kind]))

    return [draw(batch, n), draw(batch, n), draw(batch, n), draw(batch, n, columns)]


def text(batch: int, n: int, columns: int) -> tuple[str, str]:
    """Return the instructions of a call of gtsv, and the names of its results."""
    diagonal, sides = f"<T>[{batch},{n}]", f"<T>[{batch},{n},{columns}]"
    results = f"{diagonal}, {diagonal}, {diagonal}, {sides}, s32[{batch}]"
    lines = [f"  a{k} = {diagonal} parameter({k})" for k in range(3)]
    lines += [f"  b = {sides} parameter(3)", f"  c = {call('a0, a1, a2, b', results, 'gtsv')}"]
    shapes = [diagonal, diagonal, diagonal, sides, f"s32[{batch}]"]
    lines += [f"  r{k} = {shape} get-tuple-element(c), index={k}" for k, shape in enumerate(shapes)]
    return "\n".join(lines), ", ".join(f"r{k}" for k in range(5))


def solve(kind: str, arguments: list[Array]) -> Any:
    return run(kind, *text(*arguments[3].shape), *arguments)


def solve_one_by_one(kind: str, arguments: list[Array]) -> list[Array]:
    """Return what LAPACK's calls for one system each give."""
    each = [solve(kind, [a[n : n + 1] for a in arguments]) for n in range(len(arguments[0]))]
    return [np.concatenate(parts) for parts in zip(*each, strict=True)]


def dense(lower: Array, diagonal: Array, upper: Array) -> Array:
    n = diagonal.shape[1]
    matrices = np.zeros((len(diagonal), n, n), np.complex128)
    rows = np.arange(n)
    matrices[:, rows, rows] = diagonal
    matrices[:, rows[1:], rows[:-1]] = lower[:, 1:]
    matrices[:, rows[:-1], rows[1:]] = upper[:, :-1]
    return matrices


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("batch", "columns"), [(4, 1), (4, 3), (5, 1), (17, 3), (40, 1), (1, 4), (1, 33), (3, 9), (2, 16)]
)
@pytest.mark.parametrize("n", [1, 2, 3, 8, 21, 100])
def test_solutions(kind: str, n: int, batch: int, columns: int) -> None:
    """Half of the rows of random systems are exchanged.

    A row of |L| |U| is at most 2 times 3 times 2 times the largest element of the matrix: pivots are the
    larger of two, rows of U have three elements, and these grow at most twofold. The residual has 6 roundings
    of it (Higham, Accuracy and Stability of Numerical Algorithms, theorem 9.12). Complex numbers, whose parts
    are compared in sum, take 4 times as much.
    """
    arguments = systems(kind, batch, n, columns)
    *_, x, info = solve(kind, arguments)
    assert not info.any()
    largest = np.abs(dense(*arguments[:3])).max((1, 2)) * np.abs(x).max((1, 2))
    bound = (288 if kind[0] == "c" else 72) * np.finfo(x.dtype).eps * largest[:, None, None]
    b = arguments[3].astype(np.complex128)
    agreement.within(dense(*arguments[:3]) @ x.astype(np.complex128), b, bound * np.ones(b.shape))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("exchanges", [False, True])
def test_factors_are_those_of_the_library(kind: str, exchanges: bool) -> None:
    """One diagonal dominates, so that errors of factors do not grow: factors are at most 1/4."""
    arguments = [np.clip(a.real, -1, 1).astype(KINDS[kind]) for a in systems(kind, 9, 30, 2)]
    arguments[0 if exchanges else 1] += 8
    results, expected = solve(kind, arguments), solve_one_by_one(kind, arguments)
    for result, wanted in zip(results[:3], expected[:3], strict=True):
        agreement.within(result, wanted, 64 * np.finfo(result.dtype).eps * np.ones(result.shape))
    agreement.same(results[4], expected[4])


@pytest.mark.parametrize("kind", KINDS)
def test_a_pivot_of_zero_ends_its_system_only(kind: str) -> None:
    n = 6
    arguments = [np.clip(a.real, -1, 1).astype(KINDS[kind]) for a in systems(kind, n + 1, n, 1)]
    lower, diagonal, *_ = arguments
    diagonal += 4
    for k in range(n):
        diagonal[k, k] = 0
        lower[k, k : k + 2] = 0
    results, wanted = solve(kind, arguments), solve_one_by_one(kind, arguments)
    agreement.same(results[4], np.array([1, 2, 3, 4, 5, 6, 0], np.int32))
    agreement.same(wanted[4], results[4])
    for result, expected in zip(results[:4], wanted[:4], strict=True):
        agreement.within(result, expected, 64 * np.finfo(result.dtype).eps * np.ones(result.shape) * 4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("pivot", [None, 0, 3, 5])
def test_columns_of_few_systems_are_those_of_the_library(kind: str, batch: int, pivot: int | None) -> None:
    arguments = [np.clip(a.real, -1, 1).astype(KINDS[kind]) for a in systems(kind, batch, 6, 5)]
    lower, diagonal, upper, b = arguments
    diagonal += 4
    if pivot is not None:
        diagonal[0, pivot] = 0
        lower[0, pivot : pivot + 2] = 0
    results = solve(kind, arguments)
    for column in range(5):
        one = solve_one_by_one(kind, [lower, diagonal, upper, b[:, :, column : column + 1]])
        agreement.same(results[4], one[4])
        for result, expected in zip([*results[:3], results[3][:, :, column, None]], one[:4], strict=True):
            agreement.within(result, expected, 64 * np.finfo(result.dtype).eps * np.ones(result.shape) * 4)


def test_nan_stays_in_its_system() -> None:
    arguments = systems("f32", 16, 12, 1)
    clean = solve("f32", arguments)
    arguments[1][5, 3] = np.nan
    results = solve("f32", arguments)
    assert np.isnan(results[3][5]).all()
    for result, expected in zip(results[:4], clean[:4], strict=True):
        agreement.same(np.delete(result, 5, 0), np.delete(expected, 5, 0))


@pytest.mark.parametrize(
    ("batch", "n", "columns", "own"),
    [
        *[(3, 10, 1, False), (4, 10, 1, True), (4, 4000, 1, True), (4, 5000, 1, False)],
        *[(1, 10, 3, False), (1, 10, 4, True), (1, 4000, 9, True), (1, 5000, 9, False)],
    ],
)
def test_few_or_large_systems_are_those_of_the_library(batch: int, n: int, columns: int, own: bool) -> None:
    module = compiled(filled("f32", *text(batch, n, columns))).program.module
    assert ("lapack.sgtsv" in print_module(module)) != own
