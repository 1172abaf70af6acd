"""Bounds of programs whose operations a compiler may fuse and reorder: each may round once more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hloom.debug.error_analysis import ErrorAnalysis
from hloom.error_bounds.bounded import Bounded, Tree, bounded, plain
from hloom.error_bounds.floating import ulp, wide
from hloom.ir.instruction import HloInstruction

ROUNDS: tuple[str, ...] = ("add", "subtract", "multiply", "divide", "sqrt", "rsqrt", "convert", "remainder")


class RoundingAnalysis(ErrorAnalysis):
    """The error analysis with one more unit in the last place for each arithmetic operation."""

    def step(self, instruction: HloInstruction, operands: Sequence[Tree]) -> Tree:
        """Evaluate one instruction; its error grows by a unit in the last place."""
        result = super().step(instruction, operands)
        if instruction.opcode not in ROUNDS or not isinstance(result, Bounded):
            return result
        value = np.asarray(result.value)
        if value.dtype.kind in "biu":
            return result
        with np.errstate(all="ignore"):
            sizes = np.abs(wide(value))
            finite = [np.isfinite(wide(plain(o))).all() for o in operands]
            overflows = np.isinf(sizes) & all(finite)
            return bounded(result.value, np.where(overflows, np.inf, result.spread + ulp(sizes, value.dtype)))
