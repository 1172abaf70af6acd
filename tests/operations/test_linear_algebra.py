"""Cholesky, triangular-solve and fft."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tests import agreement, oracle
from tests.arrays import f32
from tests.evaluation import parse
from tests.one_operation import apply, array, program, refusal, same


def matrices(*sizes: int, dtype: Any = np.float64, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=sizes)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.normal(size=sizes)
    return values.astype(dtype)


def positive(*sizes: int, dtype: Any = np.float64) -> np.ndarray[Any, Any]:
    root = matrices(*sizes, dtype=dtype)
    return root @ root.conj().swapaxes(-1, -2) + 3 * np.eye(sizes[-1], dtype=dtype)


# Cholesky.


def test_a_factor_by_hand() -> None:
    a = f32([[4, 2], [2, 10]])
    assert apply("cholesky", a, attributes="lower=true").tolist() == [[2, 0], [1, 3]]
    assert apply("cholesky", a).tolist() == [[2, 1], [0, 3]]


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_the_factor_gives_the_matrix_back(dtype: Any, lower: bool) -> None:
    a = positive(2, 3, 5, 5, dtype=dtype)
    factor = apply("cholesky", a, attributes=f"lower={str(lower).lower()}")
    adjoint = factor.conj().swapaxes(-1, -2)
    product = factor @ adjoint if lower else adjoint @ factor
    assert factor.dtype == dtype
    size = np.abs(factor) @ np.abs(adjoint) if lower else np.abs(adjoint) @ np.abs(factor)
    agreement.within(product, a, 6 * np.finfo(dtype).eps * size)
    same(factor, np.tril(factor) if lower else np.triu(factor))


@pytest.mark.parametrize("lower", [True, False])
def test_the_other_triangle_is_never_read(lower: bool) -> None:
    a = positive(4, 4)
    hidden = np.where(
        np.triu(np.ones((4, 4)), 1) > 0 if lower else np.tril(np.ones((4, 4)), -1) > 0, np.nan, a
    )
    attributes = f"lower={str(lower).lower()}"
    same(apply("cholesky", hidden, attributes=attributes), apply("cholesky", a, attributes=attributes))


def test_a_matrix_that_is_not_positive_definite_spoils_only_itself() -> None:
    a = np.stack([np.eye(2), -np.eye(2), [[np.nan, 0], [0, 1]], 4 * np.eye(2)])
    factors = apply("cholesky", a, attributes="lower=true")
    same(factors, [np.eye(2), np.full((2, 2), np.nan), np.full((2, 2), np.nan), 2 * np.eye(2)])


@pytest.mark.parametrize("sizes", [(0, 0), (0, 3, 3), (1, 1)])
def test_small_matrices(sizes: tuple[int, ...]) -> None:
    same(apply("cholesky", np.ones(sizes, f32)), np.ones(sizes))


@pytest.mark.parametrize("element_type", ["bf16", "f16", "f8e4m3fn"])
def test_narrow_types_are_rounded_once(element_type: str) -> None:
    a = array(element_type, [[4, 0], [0, 2]])
    same(apply("cholesky", a), array(element_type, [[2, 0], [0, np.sqrt(2)]]))


@pytest.mark.parametrize(
    ("shape", "rule"),
    [("f32[3]", "rank"), ("f32[3,4]", "square"), ("s32[3,3]", "element-type"), ("pred[1,1]", "element-type")],
)
def test_cholesky_refuses(shape: str, rule: str) -> None:
    assert refusal("cholesky", shape).rule == f"cholesky.{rule}"


# Triangular solve.

CASES = list(
    itertools.product([True, False], [True, False], [True, False], ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
)


def solve(a: Any, b: Any, left: bool, lower: bool, unit: bool, transpose: str) -> Any:
    flags = {"left_side": left, "lower": lower, "unit_diagonal": unit}
    attributes = ", ".join(f"{name}={str(value).lower()}" for name, value in flags.items())
    return apply("triangular-solve", a, b, attributes=f"{attributes}, transpose_a={transpose}")


@pytest.mark.parametrize(("left", "lower", "unit", "transpose"), CASES)
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_all_cases(dtype: Any, left: bool, lower: bool, unit: bool, transpose: str) -> None:
    a = matrices(2, 4, 4, dtype=dtype) / 4 + 2 * np.eye(4)
    b = matrices(*((2, 4, 3) if left else (2, 3, 4)), dtype=dtype, seed=1)
    read = np.tril(a) if lower else np.triu(a)
    if unit:
        read = read * (1 - np.eye(4)) + np.eye(4)
    unread = np.where(read == 0, np.nan, a)
    if unit:
        unread = np.where(np.eye(4) > 0, np.nan, unread)
    op = read if transpose == "NO_TRANSPOSE" else read.swapaxes(-1, -2)
    op = op.conj() if transpose == "ADJOINT" else op
    x = solve(unread, b, left, lower, unit, transpose)
    size = np.abs(op) @ np.abs(x) if left else np.abs(x) @ np.abs(op)
    agreement.within(op @ x if left else x @ op, b, 2 * 4 * np.finfo(np.float64).eps * size)


def test_a_zero_on_the_diagonal_gives_infinities() -> None:
    a, b = f32([[0, 0], [1, 1]]), f32([[1], [2]])
    same(solve(a, b, True, True, False, "NO_TRANSPOSE"), [[np.inf], [-np.inf]])


@pytest.mark.parametrize(("m", "n"), [(0, 3), (3, 0), (1, 1)])
def test_small_systems(m: int, n: int) -> None:
    b = np.ones((m, n), f32)
    same(solve(np.eye(m, dtype=f32), b, True, True, False, "NO_TRANSPOSE"), b)


@pytest.mark.parametrize(
    ("a", "b", "attributes", "rule"),
    [
        ("s32[3,3]", "s32[3,3]", "left_side=true, transpose_a=NO_TRANSPOSE", "element-type"),
        ("f32[3,3]", "f64[3,3]", "left_side=true, transpose_a=NO_TRANSPOSE", "element-type"),
        ("f32[3]", "f32[3]", "left_side=true, transpose_a=NO_TRANSPOSE", "rank"),
        ("f32[3,3]", "f32[2,3,3]", "left_side=true, transpose_a=NO_TRANSPOSE", "rank"),
        ("f32[3,4]", "f32[3,5]", "left_side=true, transpose_a=NO_TRANSPOSE", "square"),
        ("f32[3,3]", "f32[5,3]", "left_side=true, transpose_a=NO_TRANSPOSE", "shared-dimension"),
        ("f32[3,3]", "f32[3,5]", "transpose_a=NO_TRANSPOSE", "shared-dimension"),
        ("f32[2,3,3]", "f32[4,3,3]", "left_side=true, transpose_a=NO_TRANSPOSE", "batch-dimensions"),
        ("f32[3,3]", "f32[3,3]", "left_side=true", "transpose-a"),
    ],
)
def test_triangular_solve_refuses(a: str, b: str, attributes: str, rule: str) -> None:
    assert refusal("triangular-solve", a, b, attributes=attributes).rule == f"triangular-solve.{rule}"


# Fourier transforms.


def transform(kind: str, lengths: str, operand: Any) -> Any:
    return apply("fft", operand, attributes=f"fft_type={kind}, fft_length={{{lengths}}}")


def by_definition(x: Any, sign: int, axes: int) -> Any:
    """X[k] = sum over n of x[n] exp(sign 2 pi i k n / N), along the last axes."""
    for axis in range(-axes, 0):
        n = np.arange(x.shape[axis])
        factors = np.exp(sign * 2j * np.pi * np.outer(n, n) / max(1, len(n)))
        x = np.moveaxis(np.tensordot(np.moveaxis(x, axis, -1), factors, 1), -1, axis)
    return x


def magnitude(x: Any, axes: int) -> Any:
    """The rounding error of a sum of all numbers along the last axes, by definition and by the transform."""
    where = tuple(range(-axes, 0))
    count = np.prod(x.shape[-axes:])
    return 2 * count * np.finfo(np.float64).eps * np.abs(x).sum(axis=where, keepdims=True)


@pytest.mark.parametrize(("axes", "lengths"), [(1, "5"), (2, "4,5"), (3, "3,4,5")])
def test_complex_transforms(axes: int, lengths: str) -> None:
    x = matrices(2, 3, 4, 5, dtype=np.complex128)
    forward = transform("FFT", lengths, x)
    wanted, size = by_definition(x, -1, axes), magnitude(x, axes)
    agreement.within(forward, wanted, size)
    agreement.within(transform("IFFT", lengths, forward), x, 2 * size / np.prod(x.shape[-axes:]))


@pytest.mark.parametrize(("axes", "lengths"), [(1, "6"), (2, "4,6"), (3, "3,4,6"), (1, "5"), (2, "4,5")])
def test_real_transforms(axes: int, lengths: str) -> None:
    last = int(lengths[-1])
    x = matrices(2, 3, 4, last)
    spectrum = transform("RFFT", lengths, x)
    assert spectrum.shape == (2, 3, 4, last // 2 + 1)
    size = magnitude(x, axes)
    agreement.within(spectrum, by_definition(x, -1, axes)[..., : last // 2 + 1], size)
    agreement.within(transform("IRFFT", lengths, spectrum), x, 2 * size / np.prod(x.shape[-axes:]))


def test_single_precision_stays_single() -> None:
    assert transform("FFT", "4", np.ones(4, np.complex64)).dtype == np.complex64
    assert transform("RFFT", "4", np.ones(4, f32)).dtype == np.complex64
    assert transform("IRFFT", "4", np.ones(3, np.complex64)).dtype == np.float32


def test_a_constant_has_one_frequency() -> None:
    assert transform("RFFT", "4", f32([1, 1, 1, 1])).tolist() == [4, 0, 0]


def test_empty_transforms() -> None:
    assert transform("FFT", "5", np.ones((0, 5), np.complex64)).shape == (0, 5)
    assert transform("FFT", "0", np.ones((2, 0), np.complex64)).shape == (2, 0)
    assert transform("RFFT", "0", np.ones((2, 0), f32)).shape == (2, 0)
    assert transform("IRFFT", "0", np.ones((2, 1), np.complex64)).shape == (2, 0)


@pytest.mark.parametrize(
    ("kind", "lengths", "shape", "rule"),
    [
        ("FFT", "", "c64[8]", "length-count"),
        ("FFT", "2,2,2,2", "c64[2,2,2,2]", "length-count"),
        ("FFT", "8", "c64[]", "rank"),
        ("FFT", "8", "f32[8]", "element-type"),
        ("RFFT", "8", "c64[8]", "element-type"),
        ("RFFT", "8", "f16[8]", "element-type"),
        ("IRFFT", "8", "f32[5]", "element-type"),
        ("FFT", "8", "c64[5]", "length"),
        ("RFFT", "3,4", "f32[2,4]", "length"),
        ("IRFFT", "8", "c64[8]", "length"),
        ("IRFFT", "-1", "c64[0]", "length"),
    ],
)
def test_fft_refuses(kind: str, lengths: str, shape: str, rule: str) -> None:
    error = refusal("fft", shape, attributes=f"fft_type={kind}, fft_length={{{lengths}}}")
    assert error.rule == f"fft.{rule}"


# A second opinion.


def opinion(opcode: str, attributes: str, *operands: Any) -> Any:
    return oracle.run(text_of(opcode, attributes, *operands), *operands)[0]


def text_of(opcode: str, attributes: str, *operands: Any) -> str:
    names = {"float32": "f32", "complex64": "c64", "float64": "f64"}
    shapes = [f"{names[o.dtype.name]}[{','.join(map(str, o.shape))}]" for o in operands]
    return f"HloModule m\nENTRY e {{\n{program(opcode, *shapes, attributes=attributes)}\n}}"


@pytest.mark.parametrize(
    ("opcode", "attributes", "operands"),
    [
        ("cholesky", "lower=true", [positive(3, 6, 6)]),
        ("triangular-solve", "lower=true, left_side=true, transpose_a=TRANSPOSE",
         [np.tril(positive(6, 6)), matrices(6, 2)]),
        ("fft", "fft_type=RFFT, fft_length={5,6}", [matrices(2, 5, 6)]),
        ("fft", "fft_type=IFFT, fft_length={6}", [matrices(2, 6, dtype=np.complex64)]),
    ],
)  # fmt: skip
def test_xla_agrees(opcode: str, attributes: str, operands: list[Any]) -> None:
    wanted = opinion(opcode, attributes, *operands)
    if opcode == "cholesky":
        wanted = np.tril(wanted)
    agreement.computed(wanted, parse(text_of(opcode, attributes, *operands)), operands)
