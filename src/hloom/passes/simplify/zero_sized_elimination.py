"""zero_sized_hlo: replace arrays without elements by constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from hloom.analysis.purity import is_pure
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.passes.fuel import consume
from hloom.passes.registry import register
from hloom.passes.simplify.constant_folding import replace_by_constant


@register
@dataclass(frozen=True, slots=True)
class ZeroSizedHloElimination:
    """``f(x)`` of no elements → ``constant({})``."""

    name: ClassVar[str] = "zero_sized_hlo"
    settles: ClassVar[bool] = True

    def run(self, module: HloModule) -> bool:
        """Replace every zero-sized result in every computation."""
        changed = False
        for computation in module.computations:
            for i in computation:
                if is_empty(i) and consume(f"%{i.name}"):
                    replace_by_constant(i, np.empty(i.shape.dimensions, i.shape.element_type.numpy_dtype))
                    changed = True
        return changed


def is_empty(i: HloInstruction) -> bool:
    """Return whether an instruction is pure and its result is a static array without elements."""
    if not is_pure(i) or not i.shape.is_array or 0 not in i.shape.dimensions:
        return False
    return i.shape.is_static and not i.control_predecessors and not i.control_successors
