"""XLA's page "Operation semantics", example by example, with its names and numbers.

Products, reductions, order, elementwise functions.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from hloom import XlaOp, ops
from tests import agreement
from tests.arrays import f32, s32
from tests.builder.building import ADD, GE, LT, MAX, MIN, built, scalar
from tests.pages.both import each_value, rule_of, value

# -- batch normalization, in the page's formulas


def test_batch_norm_training_and_inference() -> None:
    x = np.random.default_rng(0).normal(size=(3, 2, 2, 5)).astype(f32)
    gamma, beta, epsilon = f32(np.arange(1, 6)), f32(np.arange(5)), 0.001
    wide = x.astype(np.float64)
    mu, variance = wide.mean((0, 1, 2)), wide.var((0, 1, 2))
    y = gamma * (wide - mu) / np.sqrt(variance + epsilon) + beta
    size = gamma * (np.abs(wide) + np.abs(mu)) / np.sqrt(variance + epsilon) + beta
    for output, batch_mean, batch_var in each_value(
        lambda x, g, b: ops.BatchNormTraining(x, g, b, epsilon, 3), x, gamma, beta
    ):
        eps, count = np.finfo(f32).eps, 12
        agreement.within(batch_mean, mu, count * eps * np.abs(wide).mean((0, 1, 2)))
        agreement.within(
            batch_var, variance, 2 * count * eps * ((np.abs(wide) + np.abs(mu)) ** 2).mean((0, 1, 2))
        )
        agreement.within(output, y, 2 * count * eps * size)
    for same in each_value(
        lambda *a: ops.BatchNormInference(*a, epsilon=epsilon, feature_index=3),
        x, gamma, beta, f32(mu), f32(variance),
    ):  # fmt: skip
        agreement.within(same, y, 2 * np.finfo(f32).eps * size)


def test_batch_norm_grad() -> None:
    rng = np.random.default_rng(1)
    x, grad_y = rng.normal(size=(2, 3, 2, 4)), rng.normal(size=(2, 3, 2, 4))
    gamma, epsilon, axes = np.arange(1.0, 5), float(f32(0.01)), (0, 1, 2)
    mu, variance = x.mean(axes), x.var(axes)
    c = (grad_y * (x - mu) / (variance + epsilon)).mean(axes)
    d = grad_y.mean(axes)
    wanted = (
        gamma / np.sqrt(variance + epsilon) * (grad_y - d - c * (x - mu)),
        (grad_y * (x - mu) / np.sqrt(variance + epsilon)).sum(axes),
        grad_y.sum(axes),
    )
    for found in each_value(
        lambda *a: ops.BatchNormGrad(*a, epsilon=epsilon, feature_index=3), x, gamma, mu, variance, grad_y
    ):
        for ours, theirs in zip(found, wanted, strict=True):
            agreement.within(ours, theirs, 32 * np.finfo(np.float64).eps * np.abs(theirs).max())


# -- products


def test_convolution_is_the_pages_loop_nest() -> None:
    rng = np.random.default_rng(0)
    input_, kernel = rng.integers(-3, 4, (2, 3, 5, 6)), rng.integers(-3, 4, (4, 3, 2, 3))
    (stride_y, stride_x), (low_y, high_y), (low_x, high_x) = (2, 1), (1, 2), (2, -1)
    ny, nx = (5 + low_y + high_y - 2) // stride_y + 1, (6 + low_x + high_x - 3) // stride_x + 1
    output = np.zeros((2, 4, ny, nx), s32)
    for b, oz, oy, ox in np.ndindex(*output.shape):
        for iz, ky, kx in np.ndindex(3, 2, 3):
            iy, ix = oy * stride_y + ky - low_y, ox * stride_x + kx - low_x
            if 0 <= iy < 5 and 0 <= ix < 6 + min(high_x, 0):  # negative padding cuts columns off
                output[b, oz, oy, ox] += input_[b, iz, iy, ix] * kernel[oz, iz, ky, kx]
    found = value(
        lambda x, k: ops.ConvWithGeneralPadding(x, k, [2, 1], [(low_y, high_y), (low_x, high_x)]),
        f32(input_),
        f32(kernel),
    )
    assert (found == output).all()


def test_dot() -> None:
    v, m, n = f32([1, 2, 3]), f32([[1, 2, 3], [4, 5, 6]]), f32([[1, 0], [0, 1], [2, 2]])
    assert value(ops.Dot, v, v) == 14
    assert value(ops.Dot, m, v).tolist() == [14, 32]
    assert (value(ops.Dot, m, n) == m @ n).all()


def test_dot_general_with_contracting_dimensions() -> None:
    lhs, rhs = f32([[1, 2, 3], [4, 5, 6]]), f32([[1, 1, 1], [2, 2, 2]])
    numbers = {"lhs_contracting_dimensions": [1], "rhs_contracting_dimensions": [1]}
    assert value(lambda x, y: ops.DotGeneral(x, y, numbers), lhs, rhs).tolist() == [[6, 12], [15, 30]]


def test_dot_general_with_batch_dimensions() -> None:
    lhs, rhs = f32([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]), f32([[[1, 0], [0, 1]]] * 2)
    numbers = {
        "lhs_contracting_dimensions": [2], "rhs_contracting_dimensions": [1],
        "lhs_batch_dimensions": [0], "rhs_batch_dimensions": [0],
    }  # fmt: skip
    assert value(lambda x, y: ops.DotGeneral(x, y, numbers), lhs, rhs).tolist() == lhs.tolist()


@pytest.mark.parametrize("left_side", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("unit_diagonal", [True, False])
@pytest.mark.parametrize("transpose_a", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
def test_triangular_solve(left_side: bool, lower: bool, unit_diagonal: bool, transpose_a: str) -> None:
    rng = np.random.default_rng(0)
    a = (rng.normal(size=(2, 3, 3)) + 1j * rng.normal(size=(2, 3, 3))).astype(np.complex128)
    b = rng.normal(size=(2, 3, 4) if left_side else (2, 4, 3)).astype(np.complex128)
    triangle = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        triangle = triangle - triangle * np.eye(3) + np.eye(3)
    op = {"NO_TRANSPOSE": triangle, "TRANSPOSE": triangle.swapaxes(1, 2)}
    op_a = op.get(transpose_a, triangle.swapaxes(1, 2).conj())
    other = ~np.tri(3, dtype=bool) if lower else np.tri(3, k=-1, dtype=bool)
    poisoned = np.where(other | (np.eye(3, dtype=bool) & unit_diagonal), np.nan, a)  # never read
    for x in each_value(
        lambda a, b: ops.TriangularSolve(a, b, left_side, lower, unit_diagonal, transpose_a), poisoned, b
    ):
        size = np.abs(op_a) @ np.abs(x) if left_side else np.abs(x) @ np.abs(op_a)
        agreement.within(op_a @ x if left_side else x @ op_a, b, 2 * 3 * np.finfo(np.float64).eps * size)


@pytest.mark.parametrize("lower", [True, False])
def test_cholesky(lower: bool) -> None:
    rng = np.random.default_rng(0)
    m = rng.normal(size=(2, 3, 3)) + 1j * rng.normal(size=(2, 3, 3))
    a = m @ m.swapaxes(1, 2).conj() + np.eye(3)
    poisoned = np.where(np.tri(3, dtype=bool) == lower, a, np.nan) if lower else np.where(
        np.tri(3, k=-1, dtype=bool), np.nan, a
    )  # fmt: skip
    for whole in each_value(lambda a: ops.Cholesky(a, lower), poisoned):
        factor = np.tril(whole) if lower else np.triu(whole)
        product = factor @ factor.swapaxes(1, 2).conj() if lower else factor.swapaxes(1, 2).conj() @ factor
        magnitude = np.abs(factor.swapaxes(1, 2))
        size = np.abs(factor) @ magnitude if lower else magnitude @ np.abs(factor)
        agreement.within(product, a, 4 * np.finfo(np.float64).eps * size)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_fft(axes: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 4, 6))
    where, lengths = tuple(range(4 - axes, 4)), list(x.shape[4 - axes :])
    z = x + 1j * rng.normal(size=x.shape)
    for kind, operand, wanted in (
        ("FFT", z, np.fft.fftn(z, axes=where)),
        ("IFFT", z, np.fft.ifftn(z, axes=where)),
        ("RFFT", x, np.fft.rfftn(x, axes=where)),
        ("IRFFT", np.fft.rfftn(x, axes=where), x),
    ):
        for found in each_value(lambda o, kind=kind: ops.Fft(o, kind, lengths), operand):
            assert found.shape == wanted.shape
            size = np.abs(operand).sum(axis=where, keepdims=True) / (
                np.prod(lengths) if kind[0] == "I" else 1
            )
            agreement.within(found, wanted, 16 * np.finfo(np.float64).eps * size)
    assert (
        built(lambda x: ops.Fft(x, "RFFT", [16]), "f32[16]").entry.root.shape.dimensions
        == built(lambda x: ops.Fft(x, "RFFT", [17]), "f32[17]").entry.root.shape.dimensions
        == (9,)
    )


# -- reductions and windows

MATRIX_3D = f32(np.tile([[1, 2, 3], [4, 5, 6]], (4, 1, 1)))


def test_reduce_one_dimension_of_a_vector() -> None:
    assert value(lambda x: ops.Reduce(x, 0, ADD, [0]), f32([10, 11, 12, 13])) == 46


def test_reduce_a_matrix() -> None:
    matrix = f32([[1, 2, 3], [4, 5, 6]])
    assert value(lambda x: ops.Reduce(x, 0, ADD, [0]), matrix).tolist() == [5, 7, 9]
    assert value(lambda x: ops.Reduce(x, 0, ADD, [1]), matrix).tolist() == [6, 15]


@pytest.mark.parametrize(
    ("dimensions", "wanted"),
    [
        ([0], [[4, 8, 12], [16, 20, 24]]),
        ([2], [[6, 15]] * 4),
        ([0, 1], [20, 28, 36]),
        ([1, 0], [20, 28, 36]),
        ([0, 1, 2], 84),
    ],
)
def test_reduce_a_cuboid(dimensions: list[int], wanted: Any) -> None:
    assert value(lambda x: ops.Reduce(x, 0, ADD, dimensions), MATRIX_3D).tolist() == wanted


def test_reduce_to_the_maximum_and_its_place() -> None:
    def f(max_: XlaOp, argmax: XlaOp, value: XlaOp, index: XlaOp) -> XlaOp:
        larger = value >= max_
        return ops.Tuple([ops.Select(larger, value, max_), ops.Select(larger, index, argmax)])

    computation = scalar(f, "f32", "s32", "f32", "s32")
    values, index = f32([3, 9, 2, 9, 1]), s32(range(5))
    first, second = f32(-np.inf), s32(-1)  # I_V, I_K
    for v, k in zip(values, index, strict=True):  # f_0 to f_(N-1)
        first, second = (v, k) if v >= first else (first, second)
    found = value(lambda v, k: ops.Reduce([v, k], [f32(-np.inf), s32(-1)], computation, [0]), values, index)
    assert [e.tolist() for e in found] == [first, second] == [9, 3]


def test_reduce_precision() -> None:
    x = f32([1.0, 1.0009765625 + 2.0**-24, 70000, 1e-8, -0.0, np.nan])
    found = value(lambda x: ops.ReducePrecision(x, exponent_bits=5, mantissa_bits=10), x)
    assert str(found.tolist()) == str([1.0, 1.0009765625, np.inf, 0.0, -0.0, np.nan])
    assert rule_of(lambda x: ops.ReducePrecision(x, exponent_bits=0, mantissa_bits=1), "f32[]").startswith(
        "reduce-precision."
    )


def test_reduce_window_2x3() -> None:
    x = np.arange(24, dtype=f32).reshape(4, 6)
    lowest = np.finfo(f32).min
    found = value(lambda x: ops.ReduceWindow(x, lowest, MAX, [2, 3], [2, 3], "VALID"), x)
    assert found.tolist() == [[8, 11], [20, 23]]
    strided = value(lambda x: ops.ReduceWindow(x, lowest, MAX, [2, 3], [1, 3], "kValid"), x)
    assert strided.tolist() == [[8, 11], [14, 17], [20, 23]]


@pytest.mark.parametrize(("padding", "wanted"), [("VALID", [100, 1]), ("SAME", [1000, 10, 1])])
def test_reduce_window_minima(padding: str, wanted: list[int]) -> None:
    x = f32([10000, 1000, 100, 10, 1])
    most = np.finfo(f32).max
    assert value(lambda x: ops.ReduceWindow(x, most, MIN, [3], [2], padding), x).tolist() == wanted


def test_select_and_scatter_where_windows_overlap() -> None:
    # The page's figure: the 9 is the largest of both upper windows, and gets 2 + 6.
    operand = f32([[7, 2, 5, 3, 8], [3, 8, 9, 3, 4], [1, 5, 7, 5, 6], [0, 6, 2, 10, 2]])
    source = f32([[2, 6], [3, 1]])
    found = value(
        lambda o, s: ops.SelectAndScatter(o, GE, [2, 3], [2, 2], "VALID", s, 0, ADD), operand, source
    )
    assert found.tolist() == [[0, 0, 0, 0, 0], [0, 0, 8, 0, 0], [0, 0, 3, 0, 0], [0, 0, 0, 1, 0]]


# -- choices and order


def test_select() -> None:
    v1, v2 = s32([1, 2, 3, 4]), s32([100, 200, 300, 400])
    pred = np.array([True, False, False, True])
    assert value(ops.Select, pred, v1, v2).tolist() == [1, 200, 300, 4]
    assert value(ops.Select, np.bool_(True), v1, v2).tolist() == [1, 2, 3, 4]
    chosen = value(lambda p, x, y: ops.Select(p, ops.Tuple([x, y]), ops.Tuple([y, x])), np.bool_(0), v1, v2)
    assert [e.tolist() for e in chosen] == [v2.tolist(), v1.tolist()]
    assert (
        rule_of(lambda p, x: ops.Select(p, ops.Tuple([x]), ops.Tuple([x])), "pred[4]", "f32[4]")
        == "select.tuple-predicate"
    )


def test_sort_of_three_operands() -> None:
    by_first = scalar(lambda a, b, *others: a < b, "s32", "s32", "s32", "s32", "f32", "f32")
    operands = (s32([3, 1]), s32([42, 50]), f32([-3.0, 1.1]))
    found = value(lambda *o: ops.Sort(o, by_first), *operands)
    assert [e.tolist() for e in found] == [[1, 3], [50, 42], f32([1.1, -3.0]).tolist()]


def test_sort_of_a_matrix() -> None:
    x = f32([[3, 1, 2], [0, 9, 1]])
    assert value(lambda x: ops.Sort([x], LT, 0), x).tolist() == [[0, 1, 1], [3, 9, 2]]
    assert value(lambda x: ops.Sort([x], LT, 1), x).tolist() == [[1, 2, 3], [0, 1, 9]]
    assert (value(lambda x: ops.Sort([x], LT), x) == np.sort(x, -1)).all()


def test_a_stable_sort_keeps_the_order_of_equals() -> None:
    by_first = scalar(lambda a, b, c, d: a < b, "f32", "f32", "s32", "s32")
    keys = f32(np.tile([2, 1, 0], 20))
    _, order = value(lambda k, i: ops.Sort([k, i], by_first, 0, is_stable=True), keys, s32(range(60)))
    assert order.tolist() == sorted(range(60), key=lambda i: keys[i])


def test_top_k() -> None:
    x = f32([[1, 5, 3, 5], [2, 2, 0, 2]])
    values, indices = value(lambda x: ops.TopK(x, 2, True), x)
    assert (values.tolist(), indices.tolist()) == ([[5, 5], [2, 2]], [[1, 3], [0, 1]])
    values, indices = value(lambda x: ops.TopK(x, 2, False), x)
    assert (values.tolist(), indices.tolist()) == ([[1, 3], [0, 2]], [[0, 2], [2, 0]])


# -- elementwise


def test_remainders_have_the_sign_of_the_dividend() -> None:
    for lhs, rhs in itertools.product((-7, 7), (-3, 3)):
        assert value(ops.Rem, s32(lhs), s32(rhs)) == value(ops.Rem, f32(lhs), f32(rhs)) == np.sign(lhs)


def test_total_order() -> None:
    nan = np.uint32(0x7FC00000).view(f32)
    ascending = f32([-nan, -np.inf, -1, -0.0, 0.0, 1, np.inf, nan])
    less = value(
        lambda x, y: ops.LtTotalOrder(x, y), np.tile(ascending[:, None], 8), np.tile(ascending, (8, 1))
    )
    assert (less == np.triu(np.ones((8, 8), bool), 1)).all()


def test_signs() -> None:
    found = value(ops.Sign, f32([-3, -0.0, np.nan, 0.0, 2, -np.inf]))
    assert str(found.tolist()) == "[-1.0, -0.0, nan, 0.0, 1.0, -1.0]"


def test_real_and_imaginary_part_of_real_numbers() -> None:
    assert value(ops.Real, f32([2, -1])).tolist() == [2, -1]
    assert value(ops.Imag, f32([2, -1])).tolist() == [0, 0]
