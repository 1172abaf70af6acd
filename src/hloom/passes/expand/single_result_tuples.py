"""single-result-tuples: rewrite reductions stated as a tuple of one array to return the array."""

from __future__ import annotations

from hloom.ir.instruction import HloInstruction
from hloom.operations.reduction import ReductionResult
from hloom.operations.structure import Tuple
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer


class SingleResultTuples(OpExpander, name="single-result-tuples", of=ReductionResult):
    """``(f32[4]) reduce(x, init)`` → ``tuple(f32[4] reduce(x, init))``; windows too. Bitwise."""

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        if not i.shape.is_tuple or len(i.shape.tuple_shapes) != 1:
            return None
        return w.op(Tuple(), w.copy(i, shape=i.shape.tuple_shapes[0]))
