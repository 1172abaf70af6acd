"""Linear algebra and Fourier transforms: cholesky, triangular-solve, fft.

Matrices are factored and solved in f64 or c128 and rounded once to the result's type; transforms are
computed in the operand's own precision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from typing import ClassVar, cast

import numpy as np

from hloom.error_bounds.approximate import rounded, roundoff_unit
from hloom.error_bounds.bounded import finite
from hloom.error_bounds.floating import wide
from hloom.error_bounds.sums import growth
from hloom.errors import ShapeError, plural
from hloom.ir.codec import dims, enum, flag
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array, ErrorRun, Operation, Run, operation
from hloom.ir.sharding_rule import Factor, parallel
from hloom.ir.traits import ElementCost, Family, LayoutSource, Roundoff, shape_elements
from hloom.operations.contraction import same_size
from hloom.operations.rounding import convert
from hloom.shape.element_type import C64, C128, F32, F64, ElementType
from hloom.shape.shape import Shape

TRANSPOSES = {"TRANSPOSE_INVALID": 0, "NO_TRANSPOSE": 1, "TRANSPOSE": 2, "ADJOINT": 3}
FFT_TYPES = ("FFT", "IFFT", "RFFT", "IRFFT")


def _wide(element_type: ElementType) -> np.dtype:
    return np.dtype(np.complex128 if element_type.is_complex else np.float64)


class _LinearAlgebra(Operation):
    """Common to operations on batches of matrices or lines."""

    __slots__ = ()
    family: ClassVar[Family] = Family.LINEAR_ALGEBRA
    element_cost: ClassVar[ElementCost] = ElementCost.COMBINED
    roundoff: ClassVar[Roundoff] = Roundoff.ACCUMULATED

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        """Return the batch dimensions."""
        rank = call.shape.rank
        return parallel(call.shape, operands, {rank - 2, rank - 1})


@operation("cholesky", "a")
class Cholesky(_LinearAlgebra):
    """The Cholesky factor of Hermitian positive definite matrices in the two last dimensions of ``a``.

    With ``lower=true`` a lower triangular l with ``a = l @ l^H``, else an upper triangular u with
    ``a = u^H @ u``. Only that triangle of ``a`` is read; the other triangle of the result is zero. The
    factor of a matrix that is not positive definite is filled with NaN; the other matrices of the batch
    are not affected.

    Arguments:
        a: floating or complex array of rank 2 or more.
        lower: which triangle is read and written.
    """

    layout_source: ClassVar[LayoutSource] = LayoutSource.OPERANDS
    lower: bool = flag(proto="cholesky_options.lower")

    def flops(self, shape: Shape, *operands: Shape, applied: float = 0.0) -> float:
        """Count n³ / 3 for each matrix."""
        return shape_elements(shape) * shape.dimensions[-1] / 3

    def infer(self, a: Shape) -> Shape:
        """Return the shape of ``a``."""
        if not a.is_array or not (a.element_type.is_floating or a.element_type.is_complex):
            raise ShapeError(f"a must be floating or complex, got {a}", rule="cholesky.element-type")
        if a.rank < 2:
            raise ShapeError(f"a must have rank 2 or more, got {a}", rule="cholesky.rank")
        if not same_size(a, a.rank - 2, a, a.rank - 1):
            raise ShapeError(
                f"the two last dimensions must have equal sizes, got {a}", rule="cholesky.square"
            )
        return a

    def errors(self, run: ErrorRun) -> Array:
        """Bound the factor of A + E to first order, |E| <= growth(n + 1) eps |L| |L|* (Higham, ch. 10)."""
        (a,), value = run.operands, run.value
        n = value.shape[-1]
        lower = wide(value) if self.lower else np.conj(np.swapaxes(wide(value), -1, -2))
        spread = a.spread if self.lower else np.swapaxes(a.spread, -1, -2)
        errors = np.zeros(value.shape)
        triangle = np.tril(np.ones((n, n)))
        for index in np.ndindex(*value.shape[:-2]):
            factor = lower[index]
            if not np.isfinite(factor).all():
                continue
            backward = 2 * growth(n + 1.0) * roundoff_unit(value.dtype) * (np.abs(factor) @ np.abs(factor).T)
            operand = np.tril(spread[index])
            disturbance = backward + operand + np.tril(operand, -1).T
            inverse = np.abs(np.linalg.inv(factor))
            first_order = np.abs(factor) @ ((inverse @ disturbance @ inverse.T) * triangle)
            errors[index] = 2 * first_order * triangle
        return rounded(errors if self.lower else np.swapaxes(errors, -1, -2), value)

    def evaluate(self, run: Run, a: Array) -> Array:
        """Factor matrix by matrix with LAPACK, which reads one triangle only."""
        matrices = a.astype(_wide(run.shape.element_type)).reshape(math.prod(a.shape[:-2]), *a.shape[-2:])
        factors = np.zeros_like(matrices)
        for matrix, factor in zip(matrices, factors):
            factor[...] = _factor(matrix) if self.lower else _factor(matrix.conj().T).conj().T
        return convert(factors.reshape(a.shape), run.dtype)


def _factor(matrix: Array) -> Array:
    """Return the lower factor of the lower triangle; NaN everywhere if not positive definite."""
    try:
        factor = cast(Array, np.linalg.cholesky(matrix))
    except np.linalg.LinAlgError:
        return np.full_like(matrix, np.nan)
    return np.full_like(matrix, np.nan) if np.isnan(factor).any() else factor


@operation("triangular-solve", "a b")
class TriangularSolve(_LinearAlgebra):
    """Solves ``op(a) @ x = b`` (left_side) or ``x @ op(a) = b`` for x, with triangular matrices ``a``.

    The matrices lie in the last two dimensions. Only the triangle named by ``lower`` is read (and its
    diagonal, unless ``unit_diagonal``); a zero on the diagonal gives infinities and NaNs, not an error.

    Arguments:
        a: triangular matrices, ``[..., m, m]``.
        b: right hand sides, ``[..., m, n]`` if left_side, else ``[..., n, m]``.
        left_side: op(a) stands to the left of x.
        lower: which triangle of ``a`` is read.
        unit_diagonal: the diagonal is taken to be 1.
        transpose_a: op(a) is a (NO_TRANSPOSE), its transpose, or its adjoint.
    """

    layout_source: ClassVar[LayoutSource] = LayoutSource.SECOND_OPERAND
    left_side: bool = flag(proto="triangular_solve_options.left_side")
    lower: bool = flag(proto="triangular_solve_options.lower")
    unit_diagonal: bool = flag(proto="triangular_solve_options.unit_diagonal")
    transpose_a: str = enum(
        TRANSPOSES, default="TRANSPOSE_INVALID", proto="triangular_solve_options.transpose_a"
    )

    def flops(self, shape: Shape, *operands: Shape, applied: float = 0.0) -> float:
        """Count n² for each right-hand side."""
        return float(shape_elements(operands[1]) * operands[0].dimensions[-1])

    def infer(self, a: Shape, b: Shape) -> Shape:
        """Return the shape of ``b``."""
        kind = a.element_type
        if not (a.is_array and (kind.is_floating or kind.is_complex)) or b.element_type is not kind:
            message = f"a and b must be of one floating or complex type, got {a} and {b}"
            raise ShapeError(message, rule="triangular-solve.element-type")
        if a.rank < 2 or b.rank != a.rank:
            message = f"a and b must have the same rank of 2 or more, got {a} and {b}"
            raise ShapeError(message, rule="triangular-solve.rank")
        if not same_size(a, a.rank - 2, a, a.rank - 1):
            raise ShapeError(f"the matrices of a must be square, got {a}", rule="triangular-solve.square")
        shared = b.rank - 2 if self.left_side else b.rank - 1
        if not same_size(a, a.rank - 1, b, shared):
            message = f"dimension {shared} of b must have the size of a's matrices, got {a} and {b}"
            raise ShapeError(message, rule="triangular-solve.shared-dimension")
        if not all(same_size(a, i, b, i) for i in range(a.rank - 2)):
            message = f"the leading dimensions of a and b must be equal, got {a} and {b}"
            raise ShapeError(message, rule="triangular-solve.batch-dimensions")
        if self.transpose_a == "TRANSPOSE_INVALID":
            message = "transpose_a must be NO_TRANSPOSE, TRANSPOSE or ADJOINT"
            raise ShapeError(message, rule="triangular-solve.transpose-a")
        return b

    def errors(self, run: ErrorRun) -> Array:
        """Bound the solution of (T + E) x = b with |E| <= growth(m) eps |T|, by 2 |T^-1| (|E| |x| + |e|).

        E and e include the errors of T and b (Higham, ch. 8).
        """
        (a, b), value = run.operands, run.value
        m = a.value.shape[-1]
        mask = np.tril(np.ones((m, m), bool)) if self.lower else np.triu(np.ones((m, m), bool))
        t, spread = np.where(mask, wide(a.value), 0), np.where(mask, a.spread, 0)
        if self.unit_diagonal:
            t[..., range(m), range(m)], spread[..., range(m), range(m)] = 1, 0
        if self.transpose_a != "NO_TRANSPOSE":
            t, spread = np.swapaxes(t, -1, -2), np.swapaxes(spread, -1, -2)
        x, e = finite(value), b.spread
        if not self.left_side:
            t, spread, x, e = (np.swapaxes(array, -1, -2) for array in (t, spread, x, e))
        errors = np.zeros(x.shape)
        for index in np.ndindex(*x.shape[:-2]):
            if not np.isfinite(t[index]).all() or (np.diagonal(t[index]) == 0).any():
                continue  # infinities and NaN, which must match for any bound
            inverse = np.abs(np.linalg.inv(t[index]))
            matrix = 2 * growth(float(m)) * roundoff_unit(value.dtype) * np.abs(t[index]) + spread[index]
            errors[index] = 2 * inverse @ (matrix @ x[index] + e[index])
        return rounded(errors if self.left_side else np.swapaxes(errors, -1, -2), value)

    def evaluate(self, run: Run, a: Array, b: Array) -> Array:
        """Substitute forward or backward for all matrices of the batch at once."""
        dtype = _wide(run.shape.element_type)
        matrix, x = a.astype(dtype), b.astype(dtype)
        lower = self.lower
        if self.transpose_a != "NO_TRANSPOSE":
            matrix, lower = matrix.swapaxes(-1, -2), not lower
        if self.transpose_a == "ADJOINT":
            matrix = matrix.conj()
        if not self.left_side:
            # x @ op(a) = b is op(a)^T @ x^T = b^T.
            matrix, lower, x = matrix.swapaxes(-1, -2), not lower, x.swapaxes(-1, -2).copy()
        m = matrix.shape[-1]
        with np.errstate(all="ignore"):
            for k in range(m) if lower else range(m - 1, -1, -1):
                solved = slice(0, k) if lower else slice(k + 1, m)
                row = x[..., k, :] - (matrix[..., k, None, solved] @ x[..., solved, :])[..., 0, :]
                x[..., k, :] = row if self.unit_diagonal else row / matrix[..., k, k, None]
        return convert(x if self.left_side else x.swapaxes(-1, -2), run.dtype)


@operation("fft", "operand")
class Fft(_LinearAlgebra):
    """Discrete Fourier transforms over the last one, two or three dimensions.

    FFT is the forward transform, IFFT its inverse (divided by the number of elements). RFFT transforms
    real input and keeps the n // 2 + 1 first elements of the last dimension, the others being their
    conjugates; IRFFT is its inverse and ignores the imaginary parts that no real signal has.

    Arguments:
        operand: complex array; real for RFFT.
        fft_type: FFT, IFFT, RFFT or IRFFT.
        fft_length: sizes of the transformed dimensions of the signal.
    """

    layout_source: ClassVar[LayoutSource] = LayoutSource.OPERANDS
    fft_type: str = enum(FFT_TYPES)
    fft_length: tuple[int, ...] = dims()

    def sharding_rule(self, call: HloInstruction, operands: Sequence[Shape]) -> list[Factor]:
        """Return the batch dimensions."""
        rank = call.shape.rank
        return parallel(call.shape, operands, range(rank - len(self.fft_length), rank))

    def flops(self, shape: Shape, *operands: Shape, applied: float = 0.0) -> float:
        """Count 5 n log2(n) for each transform."""
        return 5.0 * shape_elements(shape) * max(1.0, math.log2(max(2, math.prod(self.fft_length))))

    def infer(self, operand: Shape) -> Shape:
        """Return the operand's shape; RFFT gives complex and IRFFT real elements."""
        lengths, rank = self.fft_length, len(self.fft_length)
        if not 1 <= rank <= 3:
            raise ShapeError(f"one to three dimensions are transformed, got {rank}", rule="fft.length-count")
        if not operand.is_array or operand.rank < rank:
            message = f"fft transforms {plural(rank, 'dimension')}, the operand is {operand}"
            raise ShapeError(message, rule="fft.rank")
        element_types = (F32, F64) if self.fft_type == "RFFT" else (C64, C128)
        if operand.element_type not in element_types:
            message = f"{self.fft_type} takes {element_types[0]} or {element_types[1]}, got {operand}"
            raise ShapeError(message, rule="fft.element-type")
        half = lengths[-1] // 2 + 1 if lengths[-1] else 0
        spectrum = (*lengths[:-1], half)
        sizes = operand.dimensions[-rank:]
        allowed = spectrum if self.fft_type == "IRFFT" else lengths
        # An empty real signal may come from one coefficient: n // 2 + 1 is 1 for n = 0.
        empty = self.fft_type == "IRFFT" and lengths[-1] == 0 and sizes[-1] == 1
        last_ok = empty or sizes[-1] in (allowed[-1], Shape.UNBOUNDED)
        # XLA compares lengths with dimensions only where one of them is real.
        nothing = self.fft_type in ("FFT", "IFFT") and 0 in operand.dimensions
        mismatch = not last_ok or any(f not in (n, Shape.UNBOUNDED) for f, n in zip(sizes[:-1], allowed[:-1]))
        if any(n < 0 for n in lengths) or (mismatch and not nothing):
            message = (
                f"{self.fft_type} of lengths {lengths} takes the last dimensions {allowed}, got {operand}"
            )
            raise ShapeError(message, rule="fft.length")
        if self.fft_type in ("FFT", "IFFT"):
            return operand
        last = half if self.fft_type == "RFFT" else lengths[-1]
        dimensions = (*operand.dimensions[:-1], last)
        result = {F32: C64, F64: C128, C64: F32, C128: F64}[operand.element_type]
        return Shape(result, dimensions, operand.dynamic_dimensions)

    def errors(self, run: ErrorRun) -> Array:
        """Bound by 8 log2 N eps of the operand's norm, for independent roundings (Higham, ch. 24)."""
        (x,), value = run.operands, run.value
        axes = tuple(range(-len(self.fft_length), 0))
        count = float(math.prod(self.fft_length))
        sizes = finite(x.value)
        if self.fft_type == "IRFFT":
            sizes = sizes * np.sqrt(2.0)  # every element but the first represents two
        norm = np.sqrt((sizes * sizes).sum(axis=axes, keepdims=True))
        rounding = 8 * (1 + np.log2(max(count, 1.0))) * roundoff_unit(value.dtype) * norm
        errors = rounding + x.spread.sum(axis=axes, keepdims=True)
        errors = errors / (count or 1.0) if self.fft_type.startswith("I") else errors
        return np.broadcast_to(errors, value.shape)

    def evaluate(self, run: Run, operand: Array) -> Array:
        """Transform with scipy in the operand's precision."""
        if not operand.size or 0 in self.fft_length:
            shape = (*operand.shape[:-1], run.shape.dimensions[-1])
            return np.zeros(shape, run.dtype)
        axes = tuple(range(-len(self.fft_length), 0))
        transform = getattr(import_module("scipy.fft"), self.fft_type.lower() + "n")
        with np.errstate(all="ignore"):
            if self.fft_type == "IRFFT":
                return convert(transform(operand, self.fft_length, axes=axes), run.dtype)
            return convert(transform(operand, axes=axes), run.dtype)
