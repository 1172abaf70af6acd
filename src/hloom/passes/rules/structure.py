"""Rules for tuples and get-tuple-elements."""

from __future__ import annotations

from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.operations.control_flow import While
from hloom.operations.structure import AfterAll, GetTupleElement, OptimizationBarrier, Parameter, Tuple
from hloom.passes.rewriting import RuleFamily

RULES: Final = RuleFamily("structure")


@RULES.rewrites(GetTupleElement, of=Tuple)
def element_of_tuple(i: HloInstruction, element: GetTupleElement, tuple_: Tuple) -> HloInstruction | None:
    """``get-tuple-element(tuple(x, y)), index=1`` → ``y``."""
    return i.operands[0].operands[element.index]


@RULES.rewrites(Tuple, of=GetTupleElement)
def tuple_of_elements(i: HloInstruction, tuple_: Tuple, first: GetTupleElement) -> HloInstruction | None:
    """``tuple(get-tuple-element(t), index=0; get-tuple-element(t), index=1)`` → ``t`` of two elements.

    Not around loops, whose states are kept as tuples of elements; see `hloom.passes.loops.while_loops`.
    """
    if i.is_root or any(isinstance(user.operation, While) for user in i.users):
        return None
    source: HloInstruction | None = None
    for position, operand in enumerate(i.operands):
        if operand.operation != GetTupleElement(index=position):
            return None
        if source is not None and operand.operands[0] is not source:
            return None
        source = operand.operands[0]
    if (
        source is None
        or isinstance(source.operation, (Parameter, While))
        or len(source.shape.tuple_shapes) != len(i.operands)
    ):
        return None
    return source


@RULES.rewrites(OptimizationBarrier)
def barrier_of_nothing(i: HloInstruction, opt_barrier: OptimizationBarrier) -> HloInstruction | None:
    """``opt-barrier(())`` → ``()``."""
    (x,) = i.operands
    return x if x.shape.is_tuple and not x.shape.tuple_shapes else None


@RULES.rewrites(AfterAll)
def after_one(i: HloInstruction, after_all: AfterAll) -> HloInstruction | None:
    """``after-all(token)`` → ``token``; also if one token is repeated."""
    tokens = set(i.operands)
    return i.operands[0] if len(tokens) == 1 and i.operands[0].shape.is_token else None
