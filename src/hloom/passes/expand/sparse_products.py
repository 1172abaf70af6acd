"""Products with sparse matrices, as sums of products with their elements that are not zero.

Where the elements lie along few diagonals, as those of differences and of images resized by simple ratios
do, a sum adds up slices times the elements of a diagonal. The results of a ratio of 3 to 2 lie along other
diagonals in even columns than in odd ones: each such phase is a sum of its own. Elsewhere sums gather rows,
which are long if the dimension is the first: others are transposed.
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
"""Maximum number of diagonals; a loop over the elements of more of them is long."""
_MOST_ADDED: Final = 6
"""Maximum number of terms that are added one by one, in loops with others; a reduction adds more."""
_WIDE: Final = 8
"""Minimum number of elements of rows that are worth a loop over vectors."""


def sparse_product(w: Inserter, x: HloInstruction, axis: int, matrix: Array) -> HloInstruction:
    """Add the product of ``x``, along a dimension, with the columns of a matrix, which take its place.

    Each sum begins with 0, as those of dots do, and has its terms in the order of the rows.
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
    """Return whether the sums for an array read neighboring elements together."""
    return x.element_count >= _WIDE * x.dimensions[axis] or bool(_phases(x, axis, matrix))


def terms_of(matrix: Array) -> int:
    """Return the largest number of elements of a column that are not zero."""
    return int(np.count_nonzero(matrix, axis=0).max())


def _transposed(w: Inserter, x: HloInstruction, order: Sequence[int]) -> HloInstruction:
    """Add an array with its dimensions in another order, in memory too: loops do not pass barriers."""
    return w.op(OptimizationBarrier(), w.op(Transpose(dimensions=tuple(order)), x))


class _Phase:
    """Columns of a matrix whose elements lie along diagonals.

    Attributes:
        columns: the columns.
        step: difference of the rows of a diagonal in neighboring columns.
        diagonals: the rows in which diagonals begin, in or above column 0.
    """

    def __init__(self, columns: Array, step: int) -> None:
        rows, numbers = np.nonzero(columns)
        self.columns, self.step = columns, step
        self.diagonals: list[int] = np.unique(rows - step * numbers).tolist()

    def sum(self, w: Inserter, x: HloInstruction, axis: int) -> HloInstruction:
        """Add the sum of slices times diagonals."""
        sizes = list(x.shape.dimensions)
        sizes[axis] = self.columns.shape[1]
        total = w.full(0, Shape(x.shape.element_type, tuple(sizes)))
        for first in self.diagonals:
            total = w.op(Add(), total, self._product(w, x, axis, first))
        return total

    def _product(self, w: Inserter, x: HloInstruction, axis: int, first: int) -> HloInstruction:
        """Add the products with a diagonal; they are 0 in columns that it does not meet."""
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
    """Return the phases of a matrix of few diagonals; none for others, or if it is as well to gather rows."""
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
    """Add the elements of arrays in turns along a dimension."""
    if len(parts) == 1:
        return parts[0]
    sizes = parts[0].shape.dimensions
    apart = [w.reshape(part, (*sizes[: axis + 1], 1, *sizes[axis + 1 :])) for part in parts]
    both = w.op(Concatenate(dimensions=(axis + 1,)), *apart)
    return w.reshape(both, (*sizes[:axis], sizes[axis] * len(parts), *sizes[axis + 1 :]))


def _gathered(w: Inserter, x: HloInstruction, axis: int, matrix: Array, *, most_added: int) -> HloInstruction:
    """Add the sums, over the terms of a column, of gathered elements times those of the column.

    Shorter columns have terms with zeros.
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
    """Add the products of numbers and elements of x in some rows; their dimensions replace that of x."""
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
    """Add an array of constant numbers along some dimensions."""
    one = only_number(numbers)
    if one is not None:
        return w.full(one, shape)
    return w.broadcast(_constant(w, numbers), shape.dimensions, axes)


def _constant(w: Inserter, numbers: Array) -> HloInstruction:
    literal = Literal(np.ascontiguousarray(numbers))
    return w.op(Constant(literal=literal), shape=literal.shape)
