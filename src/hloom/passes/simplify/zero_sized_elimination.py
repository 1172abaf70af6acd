"""zero_sized_hlo: replace arrays without elements by constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hloom.analysis.purity import is_pure
from hloom.ir.instruction import HloInstruction
from hloom.passes.op_expander import OpExpander
from hloom.passes.registry import register
from hloom.passes.simplify.constant_folding import replace_by_constant


@register
@dataclass(frozen=True, slots=True)
class ZeroSizedHloElimination(OpExpander):
    """``f(x)`` of no elements → ``constant({})``."""

    name: ClassVar[str] = "zero_sized_hlo"
    settles: ClassVar[bool] = True

    def matches(self, i: HloInstruction) -> bool:
        """Return whether a result is a static array without elements."""
        return is_empty(i)

    def expand(self, i: HloInstruction) -> None:
        """Replace by an empty constant."""
        empty = np.empty(i.shape.dimensions, i.shape.element_type.numpy_dtype)
        replace_by_constant(i, empty)


def is_empty(i: HloInstruction) -> bool:
    """Return whether an instruction is pure and its result is a static array without elements."""
    if not is_pure(i) or not i.shape.is_array or 0 not in i.shape.dimensions:
        return False
    return i.shape.is_static and not i.control_predecessors and not i.control_successors
