"""Matrix products described by sizes and strides.

C[m, n] = sum over k of A[m, k] * B[k, n], for any strides of A and B, in batches. Three ways of computing it
have kernels of their own: tiles of C in registers (`gemm_tiles`), rows of A times columns of B with lanes
along k (`inner_product`), and one element at a time (`contraction`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from hloom.analysis.instructions import operation_of
from hloom.codegen.elements import UNKNOWN_EXTENT, Elements, View
from hloom.codegen.llvm import I64, Function, Value
from hloom.codegen.rules.contraction import accumulator_type
from hloom.codegen.types import Element, register_type, round_to, storage_bytes, wrap
from hloom.cpu.kernels.dot.strided import Strided, read_through
from hloom.ir.affine import Index, row_major_strides
from hloom.ir.instruction import HloInstruction
from hloom.operations.contraction import Dot
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType

Epilogue: TypeAlias = Callable[[Elements, Index, Index, Index, Element], None]
"""Store the result from (elements, batch, row, column, sum), with the epilogue of the fusion applied.

Lanes run along the columns, or along the rows or batches.
"""
FEWEST_RESULTS = 16
SHORT = 256
"""Sizes up to which a product is computed inline, without a kernel."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """Describe a matrix in an array: element strides of (batch, row, column), and its offset."""

    batch: tuple[int, ...]
    row: int
    column: int
    offset: int = 0

    @property
    def transposed(self) -> Matrix:
        """Return the matrix with rows and columns exchanged."""
        return Matrix(self.batch, self.column, self.row, self.offset)


@dataclass(frozen=True, slots=True)
class Gemm:
    """Describe a batched matrix product.

    Attributes:
        batch: batch sizes.
        m, n, k: sizes.
        a, b: the matrices A[m, k] and B[k, n].
        kind: the type in which products are summed.
        a_type, b_type: types of the operands.
    """

    batch: tuple[int, ...]
    m: int
    n: int
    k: int
    a: Matrix
    b: Matrix
    kind: ElementType
    a_type: ElementType
    b_type: ElementType

    @property
    def batches(self) -> int:
        return math.prod(self.batch)

    @property
    def work(self) -> int:
        """Return the number of multiplications."""
        return self.batches * self.m * self.n * self.k

    @property
    def transposed(self) -> Gemm:
        """Return the product of the transposes of B and A: the transpose of C."""
        a, b = self.b.transposed, self.a.transposed
        return replace(self, m=self.n, n=self.m, a=a, b=b, a_type=self.b_type, b_type=self.a_type)


def gemm_of(dot: HloInstruction, *, inside: bool = False) -> Gemm | None:
    """Return a dot as a product of strided matrices; None if its dimensions do not merge into that form.

    ``inside``: the dot is in a fusion, so that operands may be slices, reshapes, transposes and converts.
    """
    operation = operation_of(dot, Dot)
    lhs, rhs = (o.shape for o in dot.operands)
    if not (dot.shape.is_static and lhs.is_static and rhs.is_static):
        return None
    if 0 in (*lhs.dimensions, *rhs.dimensions):
        return None
    lhs_contracting = operation.lhs_contracting_dims
    rhs_contracting = operation.rhs_contracting_dims
    lhs_batch = operation.lhs_batch_dims
    rhs_batch = operation.rhs_batch_dims
    lhs_kept = _others(lhs.rank, lhs_batch, lhs_contracting)
    rhs_kept = _others(rhs.rank, rhs_batch, rhs_contracting)

    def view(operand: HloInstruction) -> Strided | None:
        if inside:
            return read_through(operand)
        return Strided(operand, 0, row_major_strides(operand.shape.dimensions))

    lhs_view, right = map(view, dot.operands)
    if lhs_view is None or right is None:
        return None
    m = _merged(lhs.dimensions, lhs_view.strides, lhs_kept)
    n = _merged(rhs.dimensions, right.strides, rhs_kept)
    contracting = sorted(zip(lhs_contracting, rhs_contracting, strict=True))
    a_k = _merged(lhs.dimensions, lhs_view.strides, [a for a, _ in contracting])
    b_k = _merged(rhs.dimensions, right.strides, [b for _, b in contracting])
    if m is None or n is None or a_k is None or b_k is None:
        return None
    a = Matrix(tuple(lhs_view.strides[d] for d in lhs_batch), m[1], a_k[1], lhs_view.offset)
    b = Matrix(tuple(right.strides[d] for d in rhs_batch), b_k[1], n[1], right.offset)
    batch = tuple(lhs.dimensions[d] for d in lhs_batch)
    kind = sum_type(dot.shape.element_type)
    a_type, b_type = (side.source.shape.element_type for side in (lhs_view, right))
    return Gemm(batch, m[0], n[0], a_k[0], a, b, kind, a_type, b_type)


def product_of(dot: HloInstruction, *, inside: bool = False) -> Gemm | None:
    """Return a dot as a matrix product if a kernel of its own pays; see `gemm_of`."""
    gemm = gemm_of(dot, inside=inside)
    if gemm is None or (gemm.batches * gemm.m * gemm.n < FEWEST_RESULTS and gemm.k < SHORT):
        return None
    scattered = gemm.a.column != 1 or gemm.b.row != 1
    return None if gemm.m == gemm.n == 1 and gemm.batches > 1 and scattered else gemm


def _others(rank: int, *taken: Sequence[int]) -> list[int]:
    return [d for d in range(rank) if not any(d in some for some in taken)]


def _merged(
    dimensions: Sequence[int], strides: Sequence[int], chosen: Sequence[int]
) -> tuple[int, int] | None:
    """Return several dimensions as one (size, stride); None if they are not contiguous with each other."""
    size, stride = 1, 1
    for d in reversed(chosen):
        if dimensions[d] == 1:
            continue
        if size == 1:
            size, stride = dimensions[d], strides[d]
        elif strides[d] == stride * size:
            size *= dimensions[d]
        else:
            return None
    return size, stride


def batch_base(
    f: Function, gemm: Gemm, matrix: Matrix, batch: Value, base: Value, kind: ElementType
) -> Value:
    """Return the address of a matrix of the batch."""
    if matrix.offset:
        base = f.offset(base, matrix.offset * storage_bytes(kind))
    if gemm.batches == 1:
        return base
    offset = f.constant(I64, 0)
    remainder = batch
    for size, stride in zip(reversed(gemm.batch), reversed(matrix.batch), strict=True):
        quotient = remainder.unsigned_divide(size)
        offset = offset + (remainder - quotient * size) * stride
        remainder = quotient
    return f.offset(base, offset * storage_bytes(kind))


def load_at(elements: Elements, base: Value, index: Index, kind: ElementType) -> Element:
    """Load the element at a linear index from an address."""
    return elements.load(View(base, kind, (UNKNOWN_EXTENT,)), (index,))


def sum_type(result: ElementType) -> ElementType:
    """Return the accumulator type: at least 32 bits; low bits of integer sums are independent of it."""
    if result.is_integer and result.bits < 32:
        return et.S32 if result.is_signed else et.U32
    return accumulator_type(result)


def rounded(value: Element, gemm: Gemm, result: ElementType) -> Element:
    """Convert a sum to the result's type."""
    if result.is_integer and gemm.kind is not result:
        assert isinstance(value, Value)
        return wrap(value.cast("trunc", register_type(result)), result)
    return value if isinstance(value, tuple) or gemm.kind is result else round_to(value, result)
