"""Products with constant sparse matrices, as sums over the nonzero elements.

If the nonzero elements lie on few diagonals, as in finite differences and in resizing by simple ratios, the
product is a sum of slices of x, each times the elements of a diagonal. When resizing by 3 : 2, even and odd
columns have different diagonals: each such phase is computed as a sum of its own, and the results are
interleaved. Otherwise the elements of x are gathered. Gathered rows are contiguous if the contracted
dimension is major; x is transposed where it is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array
from hloom.ir.window import PaddingDimension, SliceDimension
from hloom.operations.arithmetic import Add, Multiply
from hloom.operations.gather_scatter import Gather
from hloom.operations.movement import Concatenate, Pad, Slice, Transpose
from hloom.operations.structure import Constant, OptimizationBarrier
from hloom.passes.simplify.constant_folding import only_number
from hloom.passes.writing import Inserter
from hloom.shape.literal import Literal
from hloom.shape.shape import Shape

_MOST_DIAGONALS: Final = 16
"""Maximum number of diagonals, which are the terms of one fused loop."""
_MOST_ADDED: Final = 6
"""Maximum number of gathered terms that are added by separate operations, which fuse; a reduce adds more."""
_WIDE: Final = 8
"""Minimum number of contiguous elements for a loop over vectors."""


def sparse_product(w: Inserter, x: HloInstruction, axis: int, matrix: Array) -> HloInstruction:
    """Write the product of ``x`` and a matrix, with its columns in place of dimension ``axis``.

    Each sum begins with 0, as those of dots do, and adds its terms in the order of the matrix's rows.
    """
    phases = _phases(x.shape, axis, matrix)
    if phases:
        return _interleaved(w, [phase.sum(w, x, axis) for phase in phases], axis)
    sizes = x.shape.dimensions
    if math.prod(sizes[axis + 1 :]) >= _WIDE or math.prod(sizes[:axis]) < _WIDE:
        return _gathered(w, x, axis, matrix, most_added=_MOST_ADDED)
    order = (*range(axis, len(sizes)), *range(axis))
    sums = _gathered(w, _transposed(w, x, order), 0, matrix, most_added=0)
    return _transposed(w, sums, np.argsort(order).tolist())


def reads_vectors(x: Shape, axis: int, matrix: Array) -> bool:
    """Return whether the loops of `sparse_product` load vectors of x, not single elements."""
    return x.element_count >= _WIDE * x.dimensions[axis] or bool(_phases(x, axis, matrix))


def terms_of(matrix: Array) -> int:
    """Return the largest number of nonzero elements of a column."""
    return int(np.count_nonzero(matrix, axis=0).max())


def _transposed(w: Inserter, x: HloInstruction, order: Sequence[int]) -> HloInstruction:
    """Write a transposition that is stored in memory: a barrier keeps it from being fused into its users."""
    return w.op(OptimizationBarrier(), w.op(Transpose(dimensions=tuple(order)), x))


class _Phase:
    """Columns of a matrix whose nonzero elements lie on few diagonals.

    Attributes:
        columns: the columns.
        step: the slope of the diagonals, in rows for each column.
        diagonals: the row of each diagonal in column 0, negative if it enters the matrix in a later column.
    """

    def __init__(self, columns: Array, step: int) -> None:
        rows, numbers = np.nonzero(columns)
        self.columns, self.step = columns, step
        self.diagonals: list[int] = np.unique(rows - step * numbers).tolist()

    def sum(self, w: Inserter, x: HloInstruction, axis: int) -> HloInstruction:
        """Write the sum, over the diagonals, of slices of x times the elements of a diagonal."""
        sizes = list(x.shape.dimensions)
        sizes[axis] = self.columns.shape[1]
        total = w.full(0, Shape(x.shape.element_type, tuple(sizes)))
        for first in self.diagonals:
            total = w.op(Add(), total, self._product(w, x, axis, first))
        return total

    def _product(self, w: Inserter, x: HloInstruction, axis: int, first: int) -> HloInstruction:
        """Write the products with a diagonal, padded with 0 in the columns that it does not cross."""
        length, count = self.columns.shape
        begin = max(0, -(first // self.step))
        end = min(count, -(-(length - first) // self.step))
        start = first + begin * self.step
        limit = start + (end - begin - 1) * self.step + 1
        part = _sliced(w, x, axis, SliceDimension(start, limit, self.step))
        numbers = self.columns[np.arange(start, limit, self.step), np.arange(begin, end)]
        padding = [PaddingDimension(0, 0) for _ in x.shape.dimensions]
        padding[axis] = PaddingDimension(begin, count - end)
        product = w.op(Multiply(), part, _spread(w, numbers, part.shape, [axis]))
        return w.op(Pad(padding=tuple(padding)), product, w.scalar(0, x.shape.element_type))


def _phases(x: Shape, axis: int, matrix: Array) -> list[_Phase]:
    """Return the phases of a matrix with few diagonals; none if gathering rows is at least as fast."""
    rows, columns = matrix.shape
    count = columns // math.gcd(rows, columns)
    is_narrow = math.prod(x.dimensions[axis + 1 :]) < _WIDE
    if count > (_MOST_DIAGONALS if is_narrow else 1):
        return []
    phases = [_Phase(matrix[:, n::count], rows * count // columns) for n in range(count)]
    diagonals = sum(len(phase.diagonals) for phase in phases)
    return phases if diagonals <= min(_MOST_DIAGONALS, 2 * terms_of(matrix) * count) else []


def _sliced(w: Inserter, x: HloInstruction, axis: int, part: SliceDimension) -> HloInstruction:
    ranges = [SliceDimension(0, size) for size in x.shape.dimensions]
    ranges[axis] = part
    return w.op(Slice(slice=tuple(ranges)), x)


def _interleaved(w: Inserter, parts: Sequence[HloInstruction], axis: int) -> HloInstruction:
    """Write the interleaving of arrays along a dimension: element n of each, then element n + 1."""
    if len(parts) == 1:
        return parts[0]
    sizes = parts[0].shape.dimensions
    apart = [w.reshape(part, (*sizes[: axis + 1], 1, *sizes[axis + 1 :])) for part in parts]
    both = w.op(Concatenate(dimensions=(axis + 1,)), *apart)
    return w.reshape(both, (*sizes[:axis], sizes[axis] * len(parts), *sizes[axis + 1 :]))


def _gathered(w: Inserter, x: HloInstruction, axis: int, matrix: Array, *, most_added: int) -> HloInstruction:
    """Write the product as sums of gathered elements of x times the nonzero elements of a column.

    Columns with fewer nonzero elements than others are filled up with zeros. Up to ``most_added`` terms are
    added by separate operations.
    """
    terms, count = terms_of(matrix), matrix.shape[1]
    columns = range(count)
    rows = np.argsort(matrix == 0, axis=0, kind="stable")[:terms].astype(np.int32)
    if terms > most_added:
        products = _products(w, x, axis, rows, matrix[rows, columns])
        return w.sum(products, [axis])
    sizes = list(x.shape.dimensions)
    sizes[axis] = count
    total = w.full(0, Shape(x.shape.element_type, tuple(sizes)))
    for row in rows:
        total = w.op(Add(), total, _products(w, x, axis, row, matrix[row, columns]))
    return total


def _products(w: Inserter, x: HloInstruction, axis: int, rows: Array, numbers: Array) -> HloInstruction:
    """Write the products of constants and gathered rows of x; their dimensions replace ``axis``."""
    last = rows.ndim + axis
    sizes = x.shape.dimensions
    gather = Gather(
        offset_dims=(*range(axis), *range(last, last + x.shape.rank - axis - 1)),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        index_vector_dim=rows.ndim,
        slice_sizes=(*sizes[:axis], 1, *sizes[axis + 1 :]),
        indices_are_sorted=False,
    )
    part = w.op(gather, x, _constant(w, rows))
    return w.op(Multiply(), part, _spread(w, numbers, part.shape, range(axis, last)))


def _spread(w: Inserter, numbers: Array, shape: Shape, axes: Sequence[int]) -> HloInstruction:
    """Write a broadcast of constants, whose dimensions are ``axes`` of the shape."""
    one = only_number(numbers)
    if one is not None:
        return w.full(one, shape)
    return w.broadcast(_constant(w, numbers), shape.dimensions, axes)


def _constant(w: Inserter, numbers: Array) -> HloInstruction:
    literal = Literal(np.ascontiguousarray(numbers))
    return w.op(Constant(literal=literal), shape=literal.shape)
