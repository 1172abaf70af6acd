"""Rules for tuples and for what picks from them."""

from __future__ import annotations

from typing import Final

from hloom.analysis.instructions import attributes
from hloom.ir.instruction import HloInstruction
from hloom.passes.rewriting import Family

RULES: Final = Family("structure")


@RULES.rewrites("get-tuple-element")
def element_of_tuple(i: HloInstruction) -> HloInstruction | None:
    """``get-tuple-element(tuple(x, y)), index=1`` → ``y``."""
    (whole,) = i.operands
    index: int = attributes(i).index
    return whole.operands[index] if whole.opcode == "tuple" else None


@RULES.rewrites("tuple")
def tuple_of_elements(i: HloInstruction) -> HloInstruction | None:
    """``tuple(get-tuple-element(t), index=0; get-tuple-element(t), index=1)`` → ``t`` of two elements.

    Not around loops: they are taken apart, see `hloom.passes.loops.while_loops`.
    """
    if i.is_root or any(user.opcode == "while" for user in i.users):
        return None
    whole: HloInstruction | None = None
    for place, operand in enumerate(i.operands):
        if operand.opcode != "get-tuple-element" or attributes(operand).index != place:
            return None
        if whole is not None and operand.operands[0] is not whole:
            return None
        whole = operand.operands[0]
    if (
        whole is None
        or whole.opcode in ("parameter", "while")
        or len(whole.shape.tuple_shapes) != len(i.operands)
    ):
        return None
    return whole


@RULES.rewrites("opt-barrier")
def barrier_of_nothing(i: HloInstruction) -> HloInstruction | None:
    """``opt-barrier(())`` → ``()``."""
    (x,) = i.operands
    return x if x.shape.is_tuple and not x.shape.tuple_shapes else None


@RULES.rewrites("after-all")
def after_one(i: HloInstruction) -> HloInstruction | None:
    """``after-all(token)`` → ``token``; of one token several times too."""
    tokens = set(i.operands)
    return i.operands[0] if len(tokens) == 1 else None
