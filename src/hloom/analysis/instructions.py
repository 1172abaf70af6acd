"""What passes ask of single instructions."""

from __future__ import annotations

from typing import Any

from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array
from hloom.shape.literal import Literal


def attributes(i: HloInstruction) -> Any:
    """The operation of an instruction, for its attributes, which depend on the opcode."""
    return i.operation


def splat(i: HloInstruction) -> Array | None:
    """The value of every element, as an array of rank 0: of a constant number, however it is spread."""
    while i.operation.scalar_identity and i.shape.is_array and _keeps_type(i):
        i = i.operands[0]
    if i.opcode != "constant" or not i.shape.is_array or i.shape.element_count != 1:
        return None
    literal: Literal = attributes(i).literal
    return None if literal.is_elided or literal.shape.is_dynamic else literal.array.reshape(())


def _keeps_type(i: HloInstruction) -> bool:
    return i.shape.element_type is i.operands[0].shape.element_type


def direction_of(i: HloInstruction) -> str:
    """Return the direction of a compare: EQ, NE, LT …"""
    direction: str = attributes(i).direction
    return direction
