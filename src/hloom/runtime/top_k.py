"""The custom call ``TopK``, to which XLA:CPU rewrites sorts whose first elements are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hloom.errors import EvaluationError
from hloom.ir.instruction import HloInstruction
from hloom.ir.value import Value
from hloom.operations.custom_call import KNOWN
from hloom.operations.sorting import leading_elements
from hloom.passes.expand.topk_custom_calls import is_descending


def _top_k(instruction: HloInstruction, operands: Sequence[Any]) -> Value:
    shape = instruction.shape
    if len(operands) != 1 or not shape.is_tuple or len(shape.tuple_shapes) != 2:
        message = f"TopK takes an array and gives (values, indices), not {shape}"
        raise EvaluationError(message, rule="custom-call.operands")
    values, indices = shape.tuple_shapes
    largest, places = leading_elements(operands[0], values.dimensions[-1], largest=is_descending(instruction))
    return largest, places.astype(indices.element_type.numpy_dtype)


KNOWN["TopK"] = _top_k
