"""Error bounds of programs whose operations a compiler may fuse and reorder: one more rounding each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

import numpy as np

from hloom.debug.error_analysis import ErrorAnalysis
from hloom.error_bounds.bounded import Bounded, Tree, bounded, plain
from hloom.error_bounds.floating import ulp, wide
from hloom.ir.instruction import HloInstruction
from hloom.ir.traits import Roundoff

FUNCTION_ULPS: Final = 16.0
"""The accuracy of XLA:CPU's elementary functions, in units in the last place."""


class RoundingAnalysis(ErrorAnalysis):
    """An error analysis with one more unit in the last place per operation, and 16 per function.

    Partial sums are rounded to the type of the result.
    """

    rounds_partial_sums = True

    def step(self, instruction: HloInstruction, operands: Sequence[Tree]) -> Tree:
        """Return the result of an instruction with the larger error bound."""
        result = super().step(instruction, operands)
        is_function = instruction.operation.transcendental
        is_rounded = is_function or instruction.operation.roundoff is Roundoff.ONCE
        if not is_rounded or not isinstance(result, Bounded):
            return result
        value = np.asarray(result.value)
        if value.dtype.kind in "biu":
            return result
        units = FUNCTION_ULPS if is_function and value.dtype.itemsize >= 4 else 1.0
        if value.dtype.kind == "c":  # both parts, in ulp of the magnitude
            units *= 2
        with np.errstate(all="ignore"):
            sizes = np.abs(wide(value))
            values = [wide(plain(o)) for o in operands]
            finite = [np.isfinite(v) if v.shape == sizes.shape else np.isfinite(v).all() for v in values]
            overflows = reduce(np.logical_and, finite, np.isinf(sizes))
            return bounded(
                result.value, np.where(overflows, np.inf, result.spread + units * ulp(sizes, value.dtype))
            )
