"""The order in which a computation runs."""

from __future__ import annotations

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction


def schedule(computation: HloComputation) -> list[HloInstruction]:
    """Operands before users; the module's own order where it states one."""
    return computation.execution_order()
