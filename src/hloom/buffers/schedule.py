"""Execution order of a computation."""

from __future__ import annotations

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction


def schedule(computation: HloComputation) -> list[HloInstruction]:
    """Return the module's schedule if it has one, else a topological order."""
    return computation.execution_order()
