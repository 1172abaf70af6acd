"""What passes ask of single instructions."""

from __future__ import annotations

from typing import Any, Final

from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Array
from hloom.shape.literal import Literal

_SPREADING: Final = frozenset(("broadcast", "reshape", "transpose", "copy"))


_TRANSFERS: Final = frozenset(("send", "send-done", "recv", "recv-done", "infeed", "outfeed"))


def communicates(i: HloInstruction) -> bool:
    """Whether an instruction, or what it calls, talks to other devices or to the host."""
    if hasattr(i.operation, "begin") or i.opcode in _TRANSFERS or i.opcode.startswith("async-"):
        return True
    return any(communicates(inner) for c in i.called_computations for inner in c.instructions)


def attributes(i: HloInstruction) -> Any:
    """The operation of an instruction, for its attributes, which depend on the opcode."""
    return i.operation


def splat(i: HloInstruction) -> Array | None:
    """The value of every element, as an array of rank 0: of a constant number, however it is spread."""
    while i.opcode in _SPREADING:
        i = i.operands[0]
    if i.opcode != "constant" or not i.shape.is_array or i.shape.element_count != 1:
        return None
    literal: Literal = attributes(i).literal
    return None if literal.is_elided or literal.shape.is_dynamic else literal.array.reshape(())


def direction_of(i: HloInstruction) -> str:
    """Return the direction of a compare: EQ, NE, LT …"""
    direction: str = attributes(i).direction
    return direction
