"""while-loop-dot-layout: transpose loop-invariant matrices into the layout that their dots read.

Lanes run along the columns of the right operand or, if that is a vector, along the rows of the left one. A
loop-invariant matrix in the opposite layout is transposed; loop-invariant code motion then hoists the
transpose.
"""

from __future__ import annotations

from hloom.analysis.instructions import operation_of
from hloom.analysis.trip_count import trip_count
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.contraction import Dot
from hloom.operations.control_flow import While
from hloom.operations.movement import Transpose
from hloom.passes.facts import FLAT
from hloom.passes.fuel import consume
from hloom.passes.loops.while_loop_invariant_code_motion import invariants
from hloom.passes.loops.while_loops import loops_of
from hloom.passes.pipeline import Pass
from hloom.passes.rules.contraction import batch_of, inner_of, renumbered
from hloom.passes.writing import Writer


class WhileLoopDotLayout(Pass, name="while-loop-dot-layout", of=While, needs={FLAT}, settles=True):
    """``while (...) { x = dot(a, x) }`` → ``while (...) { x = dot(transpose(a), x) }`` where it reads better.

    Attributes:
        least: minimum number of columns; narrower matrices are read quickly in either layout.
        iterations: minimum trip count of a loop that repays a transpose.
        most: maximum number of elements that are transposed for a loop of unknown trip count.
    """

    least: int = 4
    iterations: int = 4
    most: int = 1 << 14

    def run(self, module: HloModule) -> bool:
        """Transpose the matrices of every loop."""
        changed = False
        for loop in loops_of(module):
            steady, count = invariants(loop), trip_count(loop)
            if count is not None and count.iterations < self.iterations:
                continue
            for dot in loop.body.post_order():
                if isinstance(dot.operation, Dot) and (number := _wide_operand(dot)) is not None:
                    operand = dot.operands[number]
                    repaid = count is not None or operand.shape.element_count <= self.most
                    if operand in steady and repaid and consume(f"%{dot.name}"):
                        changed |= self.transpose_operand(dot, number)
        return changed

    def transpose_operand(self, dot: HloInstruction, number: int) -> bool:
        """Transpose an operand so that its free dimensions are minor; return whether it changed."""
        operation = operation_of(dot, Dot)
        batch, contracting = batch_of(operation, number), inner_of(operation, number)
        sizes = dot.operands[number].shape.dimensions
        free = [d for d in range(len(sizes)) if d not in (*batch, *contracting)]
        columns = 1
        for d in free:
            columns *= sizes[d]
        minor = [d for d, size in enumerate(sizes) if size != 1][-1:]
        if not minor or minor[0] in free or columns < self.least:
            return False
        order = [*batch, *contracting, *free]
        w = Writer(dot)
        operands = list(dot.operands)
        operands[number] = w.op(Transpose(dimensions=tuple(order)), operands[number])
        new = [order.index(d) for d in batch], [order.index(d) for d in contracting]
        dot.operation = renumbered(operation, number, *new)
        dot.replace_operand(number, operands[number])
        return True


def _wide_operand(dot: HloInstruction) -> int | None:
    """Return the operand along which lanes run: 1, or 0 if that is a vector; None if neither."""
    operation = operation_of(dot, Dot)
    rhs, lhs = dot.operands[1].shape, dot.operands[0].shape
    if not (lhs.is_static and rhs.is_static) or dot.operands[0] is dot.operands[1]:
        return None
    used = (*operation.rhs_batch_dims, *operation.rhs_contracting_dims)
    columns = [size for d, size in enumerate(rhs.dimensions) if d not in used and size != 1]
    return 1 if columns else 0
