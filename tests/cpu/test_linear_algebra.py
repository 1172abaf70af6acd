"""cholesky and triangular-solve of the cpu backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hloom.shape.element_type import ElementType
from tests.native_runs import agree, compiled

MATRICES = (
    (1, 1), (3, 3), (2, 5, 5), (21, 3, 3), (0, 3, 3), (2, 0, 0), (33, 33), (64, 64), (2, 71, 71), (5, 20, 20)
)  # fmt: skip


def random(rng: np.random.Generator, kind: str, sizes: tuple[int, ...]) -> np.ndarray[Any, Any]:
    values = rng.normal(size=sizes)
    return values + 1j * rng.normal(size=sizes) if kind[0] == "c" else values


def positive(kind: str, sizes: tuple[int, ...]) -> Any:
    """Hermitian positive definite matrices with NaN in nothing."""
    x = random(np.random.default_rng(sizes[-1]), kind, sizes)
    made = x @ np.conj(np.swapaxes(x, -1, -2)) / max(sizes[-1], 1) + 2 * np.eye(sizes[-1])
    return made.astype(ElementType.parse(kind).numpy_dtype)


def cholesky(kind: str, sizes: tuple[int, ...], lower: bool) -> str:
    dims = ",".join(map(str, sizes))
    flag = "true" if lower else "false"
    return f"a = {kind}[{dims}] parameter(0)\nROOT r = {kind}[{dims}] cholesky(a), lower={flag}"


@pytest.mark.parametrize("kind", ["f32", "f64", "c64", "c128", "bf16"])
@pytest.mark.parametrize("sizes", MATRICES)
@pytest.mark.parametrize("lower", [True, False])
def test_factors(kind: str, sizes: tuple[int, ...], lower: bool) -> None:
    agree(cholesky(kind, sizes, lower), positive(kind, sizes), rounded=True)


@pytest.mark.parametrize("n", [3, 40])
@pytest.mark.parametrize("lower", [True, False])
def test_the_other_triangle_is_not_read(n: int, lower: bool) -> None:
    a = positive("f64", (n, n))
    a[np.triu_indices(n, 1) if lower else np.tril_indices(n, -1)] = np.nan
    agree(cholesky("f64", (n, n), lower), a, rounded=True)


@pytest.mark.parametrize("n", [2, 20, 50])
@pytest.mark.parametrize("kind", ["f32", "c64"])
def test_not_positive_definite(n: int, kind: str) -> None:
    a = positive(kind, (9, n, n))
    a[4] -= 100 * np.eye(n).astype(a.dtype)
    a[7, n - 1, n - 1] = np.nan
    found = compiled(cholesky(kind, (9, n, n), True))(a)
    assert np.isnan(found[[4, 7]]).all()
    assert np.isfinite(found[[0, 1, 2, 3, 5, 6, 8]]).all()


def solve(
    kind: str, a: tuple[int, ...], b: tuple[int, ...], left: bool, lower: bool, unit: bool, op: str
) -> str:
    flags = [f"{name}={'true' if value else 'false'}" for name, value in
             (("left_side", left), ("lower", lower), ("unit_diagonal", unit))]  # fmt: skip
    first, second = (f"{kind}[{','.join(map(str, s))}]" for s in (a, b))
    return (
        f"a = {first} parameter(0)\nb = {second} parameter(1)\n"
        f"ROOT r = {second} triangular-solve(a, b), {', '.join(flags)}, transpose_a={op}"
    )


def check(
    kind: str, batch: tuple[int, ...], m: int, n: int, left: bool, lower: bool, unit: bool, op: str
) -> None:
    rng = np.random.default_rng(m + n)
    a = random(rng, kind, (*batch, m, m)) / max(m, 1) + 2 * np.eye(m)
    a[..., *(np.triu_indices(m, 1) if lower else np.tril_indices(m, -1))] = np.nan
    if unit:
        a[..., range(m), range(m)] = np.nan
    b = random(rng, kind, (*batch, m, n) if left else (*batch, n, m))
    text = solve(kind, a.shape, b.shape, left, lower, unit, op)
    dtype = ElementType.parse(kind).numpy_dtype
    agree(text, a.astype(dtype), b.astype(dtype), rounded=True)


@pytest.mark.parametrize("kind", ["f32", "f64", "c64"])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("op", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
def test_solves(kind: str, left: bool, lower: bool, op: str) -> None:
    """The other types share the code of f32 but for their arithmetic: every second size of each form."""
    sizes: list[tuple[tuple[int, ...], int, int]] = [((), 6, 5), ((19,), 3, 2), ((), 33, 20), ((2,), 9, 40)]
    first, step = (0, 1) if kind == "f32" else (int(left ^ lower ^ (kind == "f64")), 2)
    for batch, m, n in sizes[first::step]:
        check(kind, batch, m, n, left, lower, m == 33, op)


@pytest.mark.parametrize(
    ("batch", "m", "n"), [((), 0, 3), ((), 3, 0), ((0,), 3, 2), ((), 1, 1), ((2, 3), 70, 1), ((), 5, 100)]
)
def test_odd_sizes(batch: tuple[int, ...], m: int, n: int) -> None:
    check("f32", batch, m, n, True, True, False, "NO_TRANSPOSE")
    check("f64", batch, m, n, False, False, False, "TRANSPOSE")


def test_many_unknowns_from_the_right() -> None:
    check("f32", (), 3000, 5, False, True, True, "NO_TRANSPOSE")


def test_narrow_floats() -> None:
    check("bf16", (), 5, 4, True, True, False, "NO_TRANSPOSE")
    check("f16", (3,), 5, 4, False, True, False, "TRANSPOSE")


def test_zero_on_the_diagonal() -> None:
    a = np.array([[0, 0], [1, 1]], np.float32)
    found = compiled(solve("f32", (2, 2), (2, 2), True, True, False, "NO_TRANSPOSE"))(
        a, np.eye(2, dtype=np.float32)
    )
    assert np.isinf(found[0, 0]) and np.isnan(found[0, 1])
