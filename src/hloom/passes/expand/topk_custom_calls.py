"""topk-custom-calls: rewrite the TopK custom calls that XLA:CPU creates from truncated sorts."""

from __future__ import annotations

import numpy as np

from hloom.evaluate.evaluator import Evaluator
from hloom.ir.instruction import HloInstruction
from hloom.operations.custom_call import TARGETS, CustomCall
from hloom.operations.sorting import TopK
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer
from hloom.shape.element_type import S32
from hloom.shape.shape import Shape


class TopkCustomCalls(OpExpander, name="topk-custom-calls", of=CustomCall):
    """``custom-call(x), custom_call_target="TopK"`` → ``topk(x)``. Bitwise, but for the order of equals."""

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        if not is_top_k(i):
            return None
        k = i.shape.tuple_shapes[0].dimensions[-1]
        return w.op(TopK(k=k, largest=is_descending(i)), *i.operands)


def is_descending(instruction: HloInstruction) -> bool:
    """Return whether the comparator orders the largest elements first; true without a comparator."""
    if not instruction.called_computations:
        return True
    (comparator,) = instruction.called_computations
    kinds = [p.shape.element_type.numpy_dtype for p in comparator.parameters]
    values = [np.asarray(1 - number % 2).astype(kind) for number, kind in enumerate(kinds)]
    return bool(Evaluator().call(comparator, values))


def is_top_k(instruction: HloInstruction) -> bool:
    """Return whether an instruction calls XLA's TopK, and nothing is registered under this name."""
    operation, shape = instruction.operation, instruction.shape
    if not isinstance(operation, CustomCall) or operation.custom_call_target != "TopK":
        return False
    if "TopK" in TARGETS or len(instruction.operands) != 1 or len(shape.tuple_shapes) != 2:
        return False
    operand, (values, indices) = instruction.operands[0].shape, shape.tuple_shapes
    if not operand.is_array or not operand.is_static or not operand.rank or not values.rank:
        return False
    k = values.dimensions[-1]
    result = Shape(operand.element_type, (*operand.dimensions[:-1], k))
    fits = values.compatible(result) and indices.compatible(result.with_element_type(S32))
    return fits and k <= operand.dimensions[-1]
