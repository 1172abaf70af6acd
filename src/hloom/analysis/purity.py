"""Purity, cost and side effects of instructions."""

from __future__ import annotations

from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.ir.traits import ElementCost, Family

_FUNCTIONS: Final = frozenset((Family.ELEMENTWISE, Family.MOVEMENT, Family.CONTRACTION, Family.COMBINATION))


def is_pure(i: HloInstruction) -> bool:
    """Return whether the value follows from the operands alone, on every device and in every iteration."""
    return i.operation.family in _FUNCTIONS and not has_side_effect(i)


def is_free(i: HloInstruction) -> bool:
    """Return whether recomputing an element costs (almost) nothing."""
    return i.operation.element_cost is ElementCost.FREE


def has_side_effect(instruction: HloInstruction) -> bool:
    """Return whether an instruction, or a computation it calls, has a side effect."""
    operation = instruction.operation
    if operation.side_effect or getattr(operation, "custom_call_has_side_effect", False):
        return True
    called = instruction.called_computations
    return bool(called) and any(has_side_effect(i) for c in called for i in c.instructions)


def communicates(i: HloInstruction) -> bool:
    """Return whether an instruction, or a computation it calls, communicates with devices or the host."""
    if i.operation.communicates:
        return True
    return any(communicates(inner) for c in i.called_computations for inner in c.instructions)
