"""zero_sized_hlo: replace arrays without elements by constants."""

from __future__ import annotations

import numpy as np

from hloom.analysis.purity import is_pure
from hloom.ir.instruction import HloInstruction
from hloom.passes.op_expander import OpExpander
from hloom.passes.simplify.constant_folding import constant_like
from hloom.passes.writing import Writer


class ZeroSizedHloElimination(OpExpander, name="zero_sized_hlo", settles=True):
    """``f(x)`` of no elements → ``constant({})``."""

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        if not is_pure(i) or not i.shape.is_array or 0 not in i.shape.dimensions:
            return None
        if not i.shape.is_static or i.has_control_dependencies:
            return None
        return constant_like(i, np.empty(i.shape.dimensions, i.shape.element_type.numpy_dtype))
