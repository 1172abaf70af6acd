"""Evaluation of programs with subnormal numbers flushed to zero, as on XLA:CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from hloom.error_bounds.bounded import parts_of
from hloom.error_bounds.floating import wide
from hloom.evaluate.evaluator import Evaluator
from hloom.fuzzing.generators.draw import Array
from hloom.ir.instruction import HloInstruction
from hloom.ir.traits import Family
from hloom.operations.comparison import Select
from hloom.shape.element_type import ElementType

_MOVING: Final = frozenset((Family.MOVEMENT, Family.STRUCTURE, Family.CONTROL))
"""Families of operations that move elements without computing."""


def flushed(array: Array) -> Array:
    """Return an array with subnormal numbers replaced by zeros of the same sign."""
    kind = ElementType.from_dtype(array.dtype)
    if kind.is_complex:
        result = array.copy()
        result.real, result.imag = flushed(array.real), flushed(array.imag)
        return result
    if not kind.is_floating:
        return array
    with np.errstate(all="ignore"):
        value = wide(array)
        small = (value != 0) & (np.abs(value) < smallest_normal(array))
        return np.where(small, np.copysign(0.0, value), value).astype(array.dtype)


def smallest_normal(array: Array) -> float:
    """Return the smallest normal number of the type in which XLA:CPU computes: f32 for narrower floats."""
    kind = ElementType.from_dtype(array.dtype).component
    return float(np.finfo(np.float64 if kind.bits == 64 else np.float32).tiny)


class FlushingEvaluator(Evaluator):
    """An evaluator that flushes subnormal operands and results of every operation that computes."""

    def evaluation(self, instruction: HloInstruction) -> Callable[..., Any]:
        """Return the function that evaluates an instruction on flushed operands."""
        evaluate = super().evaluation(instruction)
        operation = instruction.operation
        if operation.family in _MOVING or isinstance(operation, Select):
            return evaluate

        def evaluate_flushed(run: Any, *operands: Any) -> Any:
            return _flushed(evaluate(run, *map(_flushed, operands)))

        return evaluate_flushed


def _flushed(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_flushed, parts_of(value)))
    return flushed(np.asarray(value)) if hasattr(value, "dtype") else value
