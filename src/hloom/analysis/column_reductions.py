"""Reductions of the dimension before a few columns, such as the sum of forces over all pairs of points."""

from __future__ import annotations

from typing import Final

from hloom.analysis.values import combiner
from hloom.ir.instruction import HloInstruction
from hloom.operations.reduction import Reduce

MOST_COLUMNS: Final = 8
"""Maximum number of columns, each of which has an accumulator; and of terms of a sum that is written out."""
SHORTEST: Final = 64
"""Minimum number of rows, over which lanes run."""


def is_column_reduction(i: HloInstruction) -> bool:
    """Return whether an instruction reduces ``[..., rows, columns]`` along rows, in any order of terms."""
    if not isinstance(i.operation, Reduce) or len(i.operands) != 2:
        return False
    *_, rows, columns = (0, 0, *i.operands[0].shape.dimensions)
    reduces_rows = i.operation.dimensions == (i.operands[0].shape.rank - 2,)
    if not reduces_rows or rows < SHORTEST or not 1 < columns <= MOST_COLUMNS:
        return False
    return _neutral(i) is not None


def is_small_reduction(i: HloInstruction) -> bool:
    """Return whether an instruction reduces a minor dimension of a few elements."""
    if not isinstance(i.operation, Reduce) or len(i.operands) != 2:
        return False
    *_, columns = (0, *i.operands[0].shape.dimensions)
    minor = i.operation.dimensions == (i.operands[0].shape.rank - 1,)
    return minor and 1 < columns <= MOST_COLUMNS and _neutral(i) is not None


def _neutral(i: HloInstruction) -> float | None:
    kind, operation = i.shape.element_type, combiner(i)
    is_alike = i.operands[0].shape.element_type is kind and not kind.is_complex
    return operation.neutral_element(kind) if operation is not None and is_alike else None
