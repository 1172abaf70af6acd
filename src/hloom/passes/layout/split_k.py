"""split-k: divide products of long columns into products of parts, whose results are added.

A product of two matrices with many rows and few columns each, such as a covariance or the gradient of
weights, has too few results for all threads, and its operands leave the caches between tiles of results.
Parts of the rows are batches: threads share them, and each stays in the caches until its products are summed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from hloom.analysis.instructions import operation_of
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.window import SliceDimension
from hloom.operations.arithmetic import Add
from hloom.operations.contraction import Dot
from hloom.operations.movement import Slice
from hloom.passes.fuel import consume
from hloom.passes.pipeline import Pass
from hloom.passes.writing import Writer
from hloom.shape import element_type as et

PART: Final = 128
"""Minimum number of rows of a part."""
FEWEST_PARTS: Final = 4
MOST_PARTS: Final = 128
FEW: Final = 16
WIDE: Final = 256
"""Columns of one operand from which a product with few of the other reads it once, in the order of memory."""


class SplitK(Pass, name="split-k", of=Dot):
    """``dot(x, y)`` over many rows of few columns → ``sum(dot(x, y))`` of parts, in f32 and f64."""

    def run(self, module: HloModule) -> bool:
        """Divide the products of every computation."""
        changed = False
        for computation in module.post_order():
            for i in [i for i in computation if isinstance(i.operation, Dot)]:
                if _is_of_rows(i) and consume(f"%{i.name}"):
                    changed |= _divide(i)
        return changed


def _is_of_rows(i: HloInstruction) -> bool:
    """Return whether a dot sums over the major dimensions of both operands, in its own type."""
    dot, kind = operation_of(i, Dot), i.shape.element_type
    rows = tuple(range(len(dot.lhs_contracting_dims)))
    is_plain = kind in (et.F32, et.F64) and all(o.shape.element_type is kind for o in i.operands)
    is_of_rows = dot.lhs_contracting_dims == dot.rhs_contracting_dims == rows != ()
    return is_plain and is_of_rows and not dot.lhs_batch_dims


def _divide(i: HloInstruction) -> bool:
    """Divide a dot into parts of its rows; return False if that does not pay.

    Rows that are left over have a product of their own.
    """
    dot = operation_of(i, Dot)
    rank = len(dot.lhs_contracting_dims)
    free = [o.shape.dimensions[rank:] for o in i.operands]
    rows = math.prod(i.operands[0].shape.dimensions[:rank])
    count = _parts(rows, *map(math.prod, free))
    if not count:
        return False
    w, size = Writer(i), rows // count
    matrices = [w.reshape(o, (rows, *f)) for o, f in zip(i.operands, free, strict=True)]

    def product(first: int, leading: Sequence[int]) -> HloInstruction:
        """Return the product of rows from ``first`` on; ``leading``: sizes of batches, and rows of each."""
        parts = [
            w.reshape(_rows(w, x, first, math.prod(leading)), (*leading, *x.shape.dimensions[1:]))
            for x in matrices
        ]
        *batches, summed = range(len(leading))
        batch, inner = tuple(batches), (summed,)
        of_parts = replace(
            dot,
            lhs_batch_dims=batch,
            rhs_batch_dims=batch,
            lhs_contracting_dims=inner,
            rhs_contracting_dims=inner,
        )
        return w.like(of_parts, *parts)

    total, rest = w.sum(product(0, (count, size)), (0,)), rows - count * size
    w.replace(w.op(Add(), total, product(rows - rest, (rest,))) if rest else total)
    return True


def _rows(w: Writer, x: HloInstruction, first: int, count: int) -> HloInstruction:
    """Return some rows of a matrix."""
    rows, *columns = x.shape.dimensions
    if count == rows:
        return x
    ranges = (SliceDimension(first, first + count), *(SliceDimension(0, size) for size in columns))
    return w.op(Slice(slice=ranges), x)


def _parts(rows: int, m: int, n: int) -> int:
    """Return into how many parts a product of ``rows`` x m by ``rows`` x n matrices is divided; 0 for none.

    The results of the parts must not be more than half of the operands. The number is even, as threads share
    parts; a divisor of the rows is preferred.
    """
    if min(m, n) < 2 or (min(m, n) <= FEW and max(m, n) > WIDE):
        return 0
    most = min(MOST_PARTS, rows // PART, rows * (m + n) // (2 * m * n)) // 2 * 2
    if most < FEWEST_PARTS:
        return 0
    return next((c for c in range(most, most // 2, -2) if rows % c == 0), most)
