"""Matrix products described by sizes and strides.

C[m, n] = sum over k of A[m, k] * B[k, n], for any strides of A and B, in batches. Three ways of computing it
have kernels of their own: tiles of C in registers (`gemm_tiles`), rows of A times columns of B with lanes
along k (`inner_product`), and one element at a time (`contraction`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from hloom.analysis.instructions import operation_of
from hloom.codegen.elements import UNKNOWN_EXTENT, Elements, View
from hloom.codegen.llvm import I64, Function, Value
from hloom.codegen.rules.contraction import accumulator_type
from hloom.codegen.types import Element, register_type, round_to, storage_bytes, wrap
from hloom.cpu.kernels.dot.strided import Strided, read_through
from hloom.ir.affine import Index, row_major_strides
from hloom.ir.instruction import HloInstruction
from hloom.operations.contraction import Dot
from hloom.records import dataclass
from hloom.shape import element_type as et
from hloom.shape.element_type import ElementType

Epilogue: TypeAlias = Callable[[Elements, Index, Index, Index, Element], None]
"""Store the result from (elements, batch, row, column, sum), with the epilogue of the fusion applied.

Lanes run along the columns, or along the rows or batches.
"""
FEWEST_RESULTS: Final = 16
"""Number of results below which a short product is computed inline, without a kernel."""
FEWEST_ROWS: Final = 16
"""Minimum rows, or columns, of a factor of which other free dimensions are batches."""
SHORT: Final = 16
"""Length of sums below which few results are computed inline: fewer products than the lanes of a vector."""
SHORT_OF_LANES: Final = 64
"""The same for one row of results, which are the lanes of inline code."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """The strides and offset of a matrix, or of one matrix for each batch, in an array; in elements.

    Attributes:
        batch: the stride along each batch dimension of the product.
        row, column: the distance from one row to the next, and from one column to the next.
        offset: the number of elements in the array before the matrix's first one.
        per_byte: the number of elements packed into one byte: 2 for 4-bit types, 1 for all others.
        group: the number of consecutive elements along k that share a scale, if the matrix is quantized;
            0 if there are no scales.
    """

    batch: tuple[int, ...]
    row: int
    column: int
    offset: int = 0
    per_byte: int = 1
    group: int = 0

    @property
    def transposed(self) -> Matrix:
        """Return the place of the transposed matrix: the strides of rows and columns are exchanged."""
        return replace(self, row=self.column, column=self.row)


@dataclass(frozen=True, slots=True)
class Gemm:
    """A batched matrix product C[m, n] = sum over k of A[m, k] * B[k, n], with the strides of A and B.

    Attributes:
        batch: the sizes of the batch dimensions.
        m, n, k: the rows of C, the columns of C, and the length of the sums.
        a, b: the strides of A and B.
        kind: the accumulator type.
        a_type, b_type: the element types of A and B in memory.
        dimensions: the dimensions of the dot's result that are the batches, rows and columns of C, without
            those of size 1.
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
    dimensions: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]

    @property
    def batches(self) -> int:
        return math.prod(self.batch)

    @property
    def work(self) -> int:
        """Return the number of scalar multiplications of the product: batches * m * n * k."""
        return self.batches * self.m * self.n * self.k

    @property
    def transposed(self) -> Gemm:
        """Return the product Bᵀ Aᵀ, whose result is the transpose of C."""
        a, b = self.b.transposed, self.a.transposed
        dimensions = self.dimensions[0], self.dimensions[2], self.dimensions[1]
        types = {"a_type": self.b_type, "b_type": self.a_type}
        return replace(self, m=self.n, n=self.m, a=a, b=b, dimensions=dimensions, **types)

    @property
    def is_packed(self) -> bool:
        """Return whether A or B has several elements in one byte, such as 4-bit integers."""
        return self.a.per_byte * self.b.per_byte > 1

    @property
    def is_scaled(self) -> bool:
        """Return whether A or B is quantized, so that the kernel multiplies its elements by scales."""
        return self.a.group + self.b.group > 0

    @property
    def in_order(self) -> bool:
        """Return whether the dot's result has dimensions in the order batches, rows of C, columns of C."""
        flat = [d for group in self.dimensions for d in group]
        return flat == sorted(flat)


def gemm_of(dot: HloInstruction, *, inside: bool = False) -> Gemm | None:
    """Return the batched matrix product that a dot computes; None if its operands are not strided matrices.

    Free dimensions of the dot that cannot be merged into rows or columns become batches. Return None also if
    a shape is dynamic or empty. ``inside``: the dot is in a fusion; A and B are then strided matrices in the
    fusion's inputs, found through slices, reshapes, transposes and converts before the dot.
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
            return read_through(operand, computed=True)
        return Strided(operand, 0, row_major_strides(operand.shape.dimensions))

    lhs_view, rhs_view = map(view, dot.operands)
    if lhs_view is None or rhs_view is None:
        return None
    contracting = sorted(zip(lhs_contracting, rhs_contracting, strict=True))
    a_k = merged(lhs.dimensions, lhs_view.strides, [a for a, _ in contracting])
    b_k = merged(rhs.dimensions, rhs_view.strides, [b for _, b in contracting])
    if a_k is None or b_k is None:
        return None
    rows = _lines(lhs.dimensions, lhs_view.strides, lhs_kept, a_k[1])
    columns = _lines(rhs.dimensions, rhs_view.strides, rhs_kept, b_k[1])
    if rows is None or columns is None:
        return None
    batch = [
        (number, lhs_view.strides[d], rhs_view.strides[e])
        for number, (d, e) in enumerate(zip(lhs_batch, rhs_batch, strict=True))
        if lhs.dimensions[d] != 1
    ]
    batch += [(len(lhs_batch) + lhs_kept.index(d), lhs_view.strides[d], 0) for d in rows.others]
    first_column = dot.shape.rank - len(rhs_kept)
    batch += [(first_column + rhs_kept.index(d), 0, rhs_view.strides[d]) for d in columns.others]
    a_steps, b_steps = (tuple(steps[side] for steps in batch) for side in (1, 2))
    a = Matrix(a_steps, rows.stride, a_k[1], lhs_view.offset, per_byte(lhs_view), lhs_view.group)
    b = Matrix(b_steps, b_k[1], columns.stride, rhs_view.offset, per_byte(rhs_view), rhs_view.group)
    dimensions = (
        tuple(d for d, _, _ in batch),
        tuple(len(lhs_batch) + lhs_kept.index(d) for d in rows.dimensions),
        tuple(first_column + rhs_kept.index(d) for d in columns.dimensions),
    )
    kind = sum_type(dot.shape.element_type)
    a_type, b_type = (side.element_type for side in (lhs_view, rhs_view))
    sizes = tuple(dot.shape.dimensions[d] for d in dimensions[0])
    return Gemm(sizes, rows.size, columns.size, a_k[0], a, b, kind, a_type, b_type, dimensions)


def per_byte(view: Strided) -> int:
    """Return how many elements of ``view`` share a byte: 2 for 4-bit types, 1 for all others."""
    return 8 // view.packed.bits if view.packed is not None else 1


def product_of(dot: HloInstruction, *, inside: bool = False) -> Gemm | None:
    """Return the matrix product (see `gemm_of`) of a dot; None if no matrix product kernel should compute it.

    It is None if the product is too small, if the minor dimension of the dot's result is not among the
    columns, or if each of several batches is one inner product (m = n = 1) of operands that are not
    contiguous along k.
    """
    gemm = gemm_of(dot, inside=inside)
    if gemm is None or _is_tiny(gemm):
        return None
    if gemm.n > 1 and max(d for group in gemm.dimensions for d in group) not in gemm.dimensions[2]:
        return None  # columns are not contiguous in the result
    scattered = gemm.a.column != 1 or gemm.b.row != 1
    return None if gemm.m == gemm.n == 1 and gemm.batches > 1 and scattered else gemm


def _is_tiny(gemm: Gemm) -> bool:
    """Return whether a product has so few and short sums that code inline takes less time than a kernel."""
    has_lanes = gemm.m == 1 < gemm.n and gemm.b.column == 1
    short = SHORT_OF_LANES if has_lanes else SHORT
    return gemm.batches * gemm.m * gemm.n < FEWEST_RESULTS and gemm.k < short


def _others(rank: int, *taken: Sequence[int]) -> list[int]:
    return [d for d in range(rank) if not any(d in some for some in taken)]


def merged(
    dimensions: Sequence[int], strides: Sequence[int], chosen: Sequence[int]
) -> tuple[int, int] | None:
    """Merge the dimensions ``chosen`` of a strided array into one; return its (size, stride).

    Return None if the elements along these dimensions, in row-major order, do not lie at a constant stride.
    """
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


@dataclass(frozen=True, slots=True)
class _Lines:
    """The free dimensions of a dot's operand: one merged dimension of rows (or columns), and batches.

    Attributes:
        dimensions: the dimensions that are merged; together they have a constant stride.
        size, stride: the size and the stride of the merged dimension.
        others: the remaining free dimensions, which become batch dimensions.
    """

    dimensions: tuple[int, ...]
    size: int
    stride: int
    others: tuple[int, ...]


def _lines(
    dimensions: Sequence[int], strides: Sequence[int], free: Sequence[int], step: int
) -> _Lines | None:
    """Choose the dimensions of a dot's operand that become its rows (or columns); the others become batches.

    ``dimensions`` and ``strides`` are those of the operand, and ``step`` is its stride along k. All ``free``
    dimensions are chosen if they can be merged, else the largest run of them that can. If ``step`` is not 1,
    a run with stride 1 is preferred, so that vectors can be loaded. Return None if some free dimensions
    become batches and the rows (or columns) are fewer than `FEWEST_ROWS`.
    """
    runs: list[list[int]] = []
    for d in free:
        if dimensions[d] == 1:
            continue
        last = runs[-1][-1] if runs else None
        if last is not None and strides[last] == strides[d] * dimensions[d]:
            runs[-1].append(d)
        else:
            runs.append([d])
    if not runs:
        return _Lines((), 1, 1, ())

    def size(run: Sequence[int]) -> int:
        return math.prod(dimensions[d] for d in run)

    run = max(runs, key=lambda run: (step != 1 and strides[run[-1]] == 1, size(run)))
    if len(runs) > 1 and size(run) < FEWEST_ROWS:
        return None
    others = tuple(d for d in free if d not in run and dimensions[d] != 1)
    return _Lines(tuple(run), size(run), strides[run[-1]], others)


def batch_base(
    f: Function, gemm: Gemm, matrix: Matrix, batch: Value, base: Value, kind: ElementType
) -> Value:
    """Emit the address of ``matrix`` in batch ``batch``, a linear index over all batch dimensions.

    ``base`` is the address of the array that contains the matrix, and ``kind`` its element type.
    """
    if matrix.offset:
        base = f.offset(base, matrix.offset * storage_bytes(kind))
    if gemm.batches == 1:
        return base
    offset = f.constant(I64, 0)
    for number, stride in zip(batch_indices(gemm, batch), matrix.batch, strict=True):
        offset = offset + number * stride
    return f.offset(base, offset * storage_bytes(kind))


def batch_indices(gemm: Gemm, batch: Value) -> list[Value]:
    """Emit the division of the linear batch index ``batch`` into an index along each batch dimension."""
    numbers: list[Value] = []
    remainder = batch
    for size in reversed(gemm.batch):
        quotient = remainder.unsigned_divide(size)
        numbers.append(remainder - quotient * size)
        remainder = quotient
    return numbers[::-1]


def load_at(elements: Elements, base: Value, index: Index, kind: ElementType) -> Element:
    """Emit the load of the element (or vector) at the linear index ``index`` from the address ``base``."""
    return elements.load(View(base, kind, (UNKNOWN_EXTENT,)), (index,))


def sum_type(result: ElementType) -> ElementType:
    """Return the accumulator type of a dot with result type ``result``: at least 32 bits wide.

    An integer sum is truncated to the result's type; a wider accumulator does not change its low bits.
    """
    if result.is_integer and result.bits < 32:
        return et.S32 if result.is_signed else et.U32
    return accumulator_type(result)


def rounded(value: Element, gemm: Gemm, result: ElementType) -> Element:
    """Emit the conversion of a sum from the accumulator type ``gemm.kind`` to the type ``result``.

    Floats are rounded, integers are truncated, and complex numbers already have the type ``result``.
    """
    if result.is_integer and gemm.kind is not result:
        assert isinstance(value, Value)
        return wrap(value.cast("trunc", register_type(result)), result)
    return value if isinstance(value, tuple) or gemm.kind is result else round_to(value, result)
