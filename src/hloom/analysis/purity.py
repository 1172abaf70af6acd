"""Purity and cost of instructions."""

from __future__ import annotations

from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.ir.traits import ElementCost, Family

_FUNCTIONS: Final = frozenset((Family.ELEMENTWISE, Family.MOVEMENT, Family.CONTRACTION, Family.COMBINATION))


def is_pure(i: HloInstruction) -> bool:
    """Return whether the value follows from the operands alone, on every device and in every iteration."""
    return i.operation.family in _FUNCTIONS and not i.has_side_effect


def is_free(i: HloInstruction) -> bool:
    """Return whether recomputing an element costs (almost) nothing."""
    return i.operation.element_cost is ElementCost.FREE


def communicates(i: HloInstruction) -> bool:
    """Return whether an instruction, or a computation it calls, communicates with devices or the host."""
    return i.operation.communicates or any(c.operation.communicates for c in i.called_instructions())
