"""tree-reduction-rewriter: large reductions to few values in two steps, the first of them in pieces.

Threads can share the pieces, and they are the same whatever the number of threads, so that results are too.
Where many columns are kept, a piece has so few rows that a cache holds it while one group of columns after
the other is added up; where few are, several rows side by side make rows that fill vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from hloom.analysis.instructions import operation_of
from hloom.analysis.values import combiner
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.operation import Operation
from hloom.ir.traits import Family
from hloom.operations.contraction import Dot
from hloom.operations.convolution import Convolution
from hloom.operations.movement import Reshape
from hloom.operations.reduction import Reduce
from hloom.passes.registry import register
from hloom.passes.writing import Writer
from hloom.shape.element_type import F32, F64, ElementType


@register
@dataclass(frozen=True, slots=True)
class TreeReductionRewriter:
    """``reduce(x)`` along the leading dimensions → ``reduce(reshape(reduce(reshape(x))))``.

    Attributes:
        least: smaller arrays stay as they are.
        pieces: at least so many pieces, and at most four times as many as it takes.
        rows: of a piece with many columns, at most.
        width: columns beside each other up to which rows are joined.
    """

    least: int = 1 << 16
    pieces: int = 8
    rows: int = 64
    width: int = 128
    name: ClassVar[str] = "tree-reduction-rewriter"

    def run(self, module: HloModule) -> bool:
        """Rewrite the reductions of every computation."""
        changed = False
        for computation in list(module.computations):
            for i in list(computation.instructions):
                if isinstance(i.operation, Reduce) and len(i.operands) == 2:
                    changed |= self.split(i)
        return changed

    def split(self, i: HloInstruction) -> bool:
        """Rewrite one reduction; returns whether it was worth it."""
        x, initial = i.operands
        operation, kind = combiner(i), i.shape.element_type
        rank = x.shape.rank
        reduced = sorted(operation_of(i, Reduce).dimensions)
        if operation is None or not x.shape.is_static or reduced != list(range(len(reduced))):
            return False
        rows = math.prod(x.shape.dimensions[: len(reduced)])
        columns = math.prod(x.shape.dimensions[len(reduced) : rank])
        if x.shape.element_count < self.least or (columns > self.width and rows < 2 * self.rows):
            return False
        pieces = self.divisor(rows, columns)
        neutral = neutral_value(operation, kind)
        if pieces is None or neutral is None or isinstance(x.operation, (Dot, Convolution)):
            return False
        joined = self.joined(rows // pieces, columns) if is_in_order(x) else 1
        w = Writer(i)
        parts = w.reshape(x, (pieces, rows // pieces // joined, joined * columns))
        combine = w.combiner(operation, kind)
        first = w.op(Reduce(dimensions=(1,)), parts, w.scalar(neutral, kind), computations=[combine])
        left = w.reshape(first, (pieces * joined, columns) if columns > 1 else (pieces * joined,))
        second = w.op(Reduce(dimensions=(0,)), left, initial, computations=[combine])
        w.replace(w.reshape(second, i.shape.dimensions))
        if columns > self.width:
            self.split(second)
        return True

    def divisor(self, rows: int, columns: int) -> int | None:
        """The number of pieces: as few as may be, so that each is long; None if rows cannot be divided."""
        least = self.pieces if columns <= self.width else max(self.pieces, rows // self.rows)
        return next((p for p in range(least, 4 * least + 1) if rows % p == 0 and rows > p), None)

    def joined(self, rows: int, columns: int) -> int:
        """How many rows of so many columns make one; 1 where columns are all there is, or enough of them."""
        if columns == 1:
            return 1
        count = 1
        while rows % 2 == 0 and count * columns * 2 <= self.width:
            rows, count = rows // 2, count * 2
        return count


def is_in_order(x: HloInstruction) -> bool:
    """Whether each element is made of those at the same place in memory, so that rows may be joined."""
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


def neutral_value(operation: Operation, kind: ElementType) -> float | None:
    """What an operation leaves numbers as they are with; None where sums in pieces would be rounded twice."""
    if kind.is_complex or (kind.is_floating and kind not in (F32, F64)):
        return None
    return operation.neutral_element(kind)
