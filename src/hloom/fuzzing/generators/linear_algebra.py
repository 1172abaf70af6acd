"""Generators of Cholesky, triangular solve, Fourier transforms, normalization, random bits."""

from __future__ import annotations

import numpy as np

from hloom.fuzzing.generators.case import Case, CaseBody, family
from hloom.fuzzing.generators.conversion import shape_of
from hloom.fuzzing.generators.draw import Array, Draw
from hloom.fuzzing.generators.movement import braces
from hloom.shape.element_type import ElementType

MATRIX_TYPES = ("f32", "f64", "c64", "c128")


@family("cholesky")
def cholesky(draw: Draw, body: CaseBody) -> Case:
    """Draw a Cholesky decomposition of well-conditioned matrices; the unread triangle has any content."""
    element_type = draw.one(MATRIX_TYPES)
    n = draw.integer(0, 5)
    batch = draw.sizes(high=2, largest=3)
    lower = draw.chance(0.5)
    # of few bits: sums of products are exact, whatever BLAS adds them up
    half = np.round(64 * draw.ordinary_values(element_type, (*batch, n, n)).astype(np.complex128)) / 64
    matrix = half @ half.conj().swapaxes(-1, -2) + (n + 1) * np.eye(n)
    matrix = matrix.real if element_type[0] == "f" else matrix
    other = np.triu(np.ones((n, n), bool), 1) if lower else np.tril(np.ones((n, n), bool), -1)
    matrix = np.where(other, 7, matrix).astype(ElementType.parse(element_type).numpy_dtype)
    operand = body.parameter(matrix)
    root = body.let(f"cholesky({operand}), lower={str(lower).lower()}")
    # The content of the other triangle, which XLA leaves, is not compared.
    mask = body.parameter(np.broadcast_to(~other, matrix.shape))
    zero = body.parameter(np.zeros((), matrix.dtype))
    zeros = body.let(f"{shape_of(element_type, matrix.shape)} broadcast({zero}), dimensions={{}}")
    triangle = body.let(f"select({mask}, {root}, {zeros})")
    return body.case(f"cholesky {element_type}", triangle)


@family("triangular-solve")
def triangular_solve(draw: Draw, body: CaseBody) -> Case:
    """Draw a triangular solve of any side, triangle and transposition.

    The unread triangle has any content.
    """
    element_type = draw.one(MATRIX_TYPES)
    n, columns = draw.integer(0, 5), draw.integer(0, 4)
    batch = draw.sizes(high=2, largest=3)
    on_left, lower, unit = (draw.chance(0.5) for _ in range(3))
    transpose = draw.one(["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
    a = draw.ordinary_values(element_type, (*batch, n, n))
    a = (a / a.dtype.type(4) + (2 * np.eye(n)).astype(a.dtype)).astype(a.dtype)
    b = draw.ordinary_values(element_type, (*batch, n, columns) if on_left else (*batch, columns, n))
    operands = f"{body.parameter(a)}, {body.parameter(b)}"
    flags = {"left_side": on_left, "lower": lower, "unit_diagonal": unit}
    attributes = ", ".join(f"{name}={str(flag).lower()}" for name, flag in flags.items())
    root = body.let(f"triangular-solve({operands}), {attributes}, transpose_a={transpose}")
    return body.case(f"triangular-solve {element_type}", root)


@family("fft")
def fft(draw: Draw, body: CaseBody) -> Case:
    """Draw a Fourier transform of any kind, in one to three dimensions."""
    kind, double = draw.one(["FFT", "IFFT", "RFFT", "IRFFT"]), draw.chance(0.4)
    lengths = [draw.integer(1, 8) for _ in range(draw.integer(1, 3))]
    if draw.chance(0.15):
        lengths = [draw.one([16, 17, 27, 60, 64, 101])]
    batch = draw.sizes(high=1, largest=3)
    last = lengths[-1] // 2 + 1 if kind == "IRFFT" else lengths[-1]
    sizes = (*batch, *lengths[:-1], last)
    complex_, real = ("c128", "f64") if double else ("c64", "f32")
    operand = body.parameter(draw.ordinary_values(real if kind == "RFFT" else complex_, sizes))
    root = body.let(f"fft({operand}), fft_type={kind}, fft_length={braces(lengths)}")
    return body.case(f"fft {kind} {complex_}", root)


@family("batch-norm")
def batch_norm(draw: Draw, body: CaseBody) -> Case:
    """Draw a batch normalization: training, inference or gradient."""
    element_type = draw.one(["f32", "f32", "f64", "f16", "bf16"])
    sizes = tuple(max(1, size) for size in draw.sizes(low=1, largest=5))
    feature = draw.integer(0, len(sizes) - 1)
    count = (sizes[feature],)
    dtype = ElementType.parse(element_type).numpy_dtype
    operand = body.parameter(draw.ordinary_values(element_type, sizes))
    scale = body.parameter(draw.ordinary_values(element_type, count))
    attributes = f"epsilon={draw.one(['0.5', '0.25', '1'])}, feature_index={feature}"

    def ordinary() -> str:
        return body.parameter(draw.ordinary_values(element_type, count))

    def positive() -> str:
        return body.parameter(
            (np.abs(draw.ordinary_values(element_type, count)) + dtype.type(1)).astype(dtype)
        )

    kind = draw.one(["training", "inference", "grad"])
    if kind == "training":
        root = body.let(f"batch-norm-training({operand}, {scale}, {ordinary()}), {attributes}")
        roots = body.elements(root, 3)
    elif kind == "inference":
        operands = [operand, scale, ordinary(), ordinary(), positive()]
        roots = [body.let(f"batch-norm-inference({', '.join(operands)}), {attributes}")]
    else:
        gradient = draw.ordinary_values(element_type, sizes)
        operands = [operand, scale, ordinary(), positive(), body.parameter(gradient)]
        root = body.let(f"batch-norm-grad({', '.join(operands)}), {attributes}")
        roots = body.elements(root, 3)
    return body.case(f"batch-norm-{kind} {element_type}", *roots)


@family("rng-bit-generator", corners=True)
def rng_bit_generator(draw: Draw, body: CaseBody) -> Case:
    """Draw random bits by either generator, in any shape. XLA's client makes signed bits unsigned."""
    algorithm = draw.one(["rng_three_fry", "rng_philox", "rng_default"])
    words = 2 if algorithm == "rng_three_fry" else draw.one([2, 3])
    signed = () if draw.restricted else ("s8", "s16", "s32", "s64")
    element_type = draw.one(["u8", "u16", "u32", "u64", *signed])
    state: Array = draw.any_values("u64", (words,))
    sizes = draw.sizes()
    operand = body.parameter(state)
    shape = f"(u64[{words}], {shape_of(element_type, sizes)})"
    root = body.let(f"{shape} rng-bit-generator({operand}), algorithm={algorithm}")
    return body.case(f"rng-bit-generator {algorithm}[{words}] {element_type}", *body.elements(root, 2))
