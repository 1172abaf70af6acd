"""tree-reduction-rewriter: split large reductions with few results into two stages.

Threads share the pieces of the first stage. The number of pieces does not depend on the number of threads, so
results are reproducible. With many kept columns, a piece has few enough rows to stay in cache while its
groups of columns are summed; with few columns, several rows are joined to fill vector registers.
"""

from __future__ import annotations

import math

from hloom.analysis.instructions import operation_of
from hloom.analysis.values import combiner
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.ir.traits import ElementCost, Family
from hloom.operations.contraction import Dot
from hloom.operations.convolution import Convolution
from hloom.operations.reduction import Reduce
from hloom.operations.reshaping import Reshape
from hloom.passes.fuel import consume
from hloom.passes.pipeline import Pass
from hloom.passes.writing import Writer
from hloom.plan.evaluations import COSTS, element_work
from hloom.shape.element_type import F32, F64, ElementType

MOST_VISITED = 64
"""Maximum number of producers that are visited to estimate the work of an element."""

COSTLY = COSTS[ElementCost.TRANSCENDENTAL]
"""Minimum work of a costly element, in vector instructions."""


class TreeReductionRewriter(Pass, name="tree-reduction-rewriter", of=Reduce):
    """``reduce(x)`` along the leading dimensions → ``reduce(reshape(reduce(reshape(x))))``.

    Attributes:
        least: minimum number of elements of the operand.
        least_costly: the same for an operand whose elements are costly to compute.
        pieces: minimum number of pieces; at most four times the minimum are used.
        rows: maximum number of rows in a piece with more than ``width`` columns.
        width: maximum number of columns, in elements, of joined rows.
    """

    least: int = 1 << 16
    least_costly: int = 1 << 14
    pieces: int = 8
    rows: int = 64
    width: int = 128

    def run(self, module: HloModule) -> bool:
        """Rewrite the reductions of every computation."""
        changed = False
        for computation in list(module.computations):
            for i in list(computation.instructions):
                if isinstance(i.operation, Reduce) and len(i.operands) == 2:
                    changed |= consume(f"%{i.name}") and self.split(i)
        return changed

    def split(self, i: HloInstruction) -> bool:
        """Rewrite one reduction; return whether it was rewritten."""
        x, initial = i.operands
        operation, kind = combiner(i), i.shape.element_type
        reduced = sorted(operation_of(i, Reduce).dimensions)
        if operation is None or not x.shape.is_static or reduced != list(range(len(reduced))):
            return False
        along, kept = x.shape.dimensions[: len(reduced)], x.shape.dimensions[len(reduced) :]
        rows, columns = math.prod(along), math.prod(kept)
        if not self.is_large(x) or (columns > self.width and rows < 2 * self.rows):
            return False
        in_order = is_in_order(x)
        if in_order:
            kept = (columns,)
        # for the indices of a value that is not in order a loop along joined dimensions would divide numbers
        if in_order or columns > 1 or self.divisor(along[0], 1) is None:
            along = (rows,)
        pieces = self.divisor(along[0], columns)
        neutral = neutral_value(operation, kind)
        if pieces is None or neutral is None or isinstance(x.operation, (Dot, Convolution)):
            return False
        joined = self.joined(rows // pieces, columns) if in_order else 1
        wide = (joined * columns,) if in_order else kept
        w = Writer(i)
        parts = w.reshape(x, (pieces, along[0] // pieces // joined, *along[1:], *wide))
        combine = w.combiner(operation, kind)
        reduce = Reduce(dimensions=tuple(range(1, 1 + len(along))))
        first = w.op(reduce, parts, w.scalar(neutral, kind), computations=[combine])
        reshaped = w.reshape(first, (pieces * joined, *kept) if columns > 1 else (pieces * joined,))
        second = w.op(Reduce(dimensions=(0,)), reshaped, initial, computations=[combine])
        w.replace(w.reshape(second, i.shape.dimensions))
        if columns > self.width:
            self.split(second)
        return True

    def is_large(self, x: HloInstruction) -> bool:
        """Return whether the elements of an operand are enough work for several threads."""
        count = x.shape.element_count
        return count >= self.least or (count >= self.least_costly and is_costly(x))

    def divisor(self, rows: int, columns: int) -> int | None:
        """Return the smallest allowed number of pieces that divides the rows; None if there is none."""
        least = self.pieces if columns <= self.width else max(self.pieces, rows // self.rows)
        return next((p for p in range(least, 4 * least + 1) if rows % p == 0 and rows > p), None)

    def joined(self, rows: int, columns: int) -> int:
        """Return the largest power of two of rows that fits ``width``; 1 for a single column."""
        if columns == 1:
            return 1
        count = 1
        while rows % 2 == 0 and count * columns * 2 <= self.width:
            rows, count = rows // 2, count * 2
        return count


def is_in_order(x: HloInstruction) -> bool:
    """Return whether elements depend only on elements at the same linear index."""
    waiting, seen = [x], {x}
    while waiting:
        i = waiting.pop()
        scalar = len(i.operands) == 1 and not i.operands[0].shape.rank
        if i.operation.family is Family.MOVEMENT and not i.operation.aliases_operand and not scalar:
            return False
        if i.operation.elementwise or isinstance(i.operation, Reshape):
            fresh = [o for o in i.operands if o not in seen]
            seen.update(fresh)
            waiting.extend(fresh)
    return True


def is_costly(x: HloInstruction) -> bool:
    """Return whether an element takes as much work as a transcendental function, with what it depends on."""
    waiting, seen, work = [x], {x}, 0
    while waiting and work < COSTLY and len(seen) < MOST_VISITED:
        i = waiting.pop()
        if i.operation.elementwise:
            work += element_work(i)
            operands = [o for o in i.operands if o not in seen]
            seen.update(operands)
            waiting.extend(operands)
    return work >= COSTLY


def neutral_value(operation: Operation, kind: ElementType) -> float | None:
    """Return the neutral element; None for types whose partial sums would be rounded additionally."""
    if kind.is_complex or (kind.is_floating and kind not in (F32, F64)):
        return None
    return operation.neutral_element(kind)
