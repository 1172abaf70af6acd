"""What XLA's parser asks of operands and attributes beside their spelling, operation by operation.

Shapes are not checked when text is read: programs whose shapes contradict each other can be read, printed and
looked at, and the verifier refuses them. These checks are about numbers of operands and of attribute values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hloom.ir.instruction import HloInstruction
from hloom.shape.element_type import PRED, S32


def problem(instruction: HloInstruction) -> str:
    """What is wrong with an instruction that was just read; empty if nothing is."""
    check = _CHECKS.get(instruction.opcode)
    return check(instruction) if check is not None else ""


def _broadcast(instruction: HloInstruction) -> str:
    operation: Any = instruction.operation
    if operation.dimensions or not instruction.operands[0].shape.rank:
        return ""
    return "broadcast needs its dimensions, unless the operand is a scalar"


def _tuple(instruction: HloInstruction) -> str:
    stated, given = len(instruction.shape.tuple_shapes), len(instruction.operands)
    return "" if stated == given else f"the shape has {stated} elements, there are {given} operands"


def _even(instruction: HloInstruction) -> str:
    count = len(instruction.operands)
    return f"arrays and initial values are paired; there are {count} operands" if count % 2 else ""


def _odd(instruction: HloInstruction) -> str:
    count = len(instruction.operands)
    return "" if count % 2 else f"operands, indices, updates: an odd number of operands, not {count}"


def _indexed(before: int) -> Callable[[HloInstruction], str]:
    """One index operand for each dimension, or a single one of rank 1, after ``before`` other operands."""

    def check(instruction: HloInstruction) -> str:
        operands = instruction.operands
        rank = operands[0].shape.rank if operands else 0
        packed = len(operands) == before + 1 and operands[before].shape.rank == 1
        if packed or len(operands) == before + rank:
            return ""
        return f"{rank} dimensions need {rank} start indices; there are {len(operands)} operands"

    return check


def _one_dimension(instruction: HloInstruction) -> str:
    operation: Any = instruction.operation
    count = len(operation.dimensions)
    return "" if count == 1 else f"{instruction.opcode} has one dimension, not {count}"


def _conditional(instruction: HloInstruction) -> str:
    index = instruction.operands[0].shape
    branches, given = len(instruction.called_computations), len(instruction.operands) - 1
    if not index.is_scalar or index.element_type not in (PRED, S32):
        return f"the first operand of a conditional is pred[] or s32[], not {index}"
    if branches != given:
        return f"{branches} branches need as many operands, there are {given}"
    return "a pred[] chooses between two branches" if index.element_type is PRED and branches != 2 else ""


def _parameter(instruction: HloInstruction) -> str:
    operation: Any = instruction.operation
    flags, leaves = len(operation.parameter_replication), sum(1 for _ in instruction.shape.leaves())
    return f"parameter_replication has {flags} flags for {leaves} arrays" if flags not in (0, leaves) else ""


_CHECKS: Final[dict[str, Callable[[HloInstruction], str]]] = {
    "broadcast": _broadcast,
    "concatenate": _one_dimension,
    "conditional": _conditional,
    "dynamic-slice": _indexed(1),
    "dynamic-update-slice": _indexed(2),
    "parameter": _parameter,
    "reduce": _even,
    "reduce-window": _even,
    "scatter": _odd,
    "sort": _one_dimension,
    "tuple": _tuple,
}
