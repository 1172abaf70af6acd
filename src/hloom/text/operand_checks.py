"""Checks of XLA's parser on operands and attributes besides their syntax, operation by operation.

Shapes are not checked when text is parsed: programs with contradictory shapes can be parsed, printed and
inspected, and the verifier refuses them. These checks cover numbers of operands and of attribute values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from hloom.errors import plural
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.operations.control_flow import Conditional
from hloom.operations.dynamic_slicing import DynamicSlice, DynamicUpdateSlice
from hloom.operations.gather_scatter import Scatter
from hloom.operations.movement import Broadcast, Concatenate
from hloom.operations.reduction import Reduce
from hloom.operations.sorting import Sort
from hloom.operations.structure import Parameter, Tuple
from hloom.operations.window_reduction import ReduceWindow
from hloom.shape.element_type import PRED, S32

Problem: TypeAlias = tuple[str, str] | None
"""The name of a violated rule without the opcode, and the message; None if no rule is violated."""


def problem(instruction: HloInstruction) -> Problem:
    """Return the full rule name and the message of the rule that a parsed instruction violates, or None."""
    check = _CHECKS.get(type(instruction.operation))
    violation = check(instruction) if check is not None else None
    if violation is None:
        return None
    rule, message = violation
    return (rule if "." in rule else f"{instruction.opcode}.{rule}"), message


def _broadcast(instruction: HloInstruction) -> Problem:
    operation: Any = instruction.operation
    if operation.dimensions or not instruction.operands[0].shape.rank:
        return None
    return "dimensions-rank", "broadcast needs its dimensions, unless the operand is a scalar"


def _tuple(instruction: HloInstruction) -> Problem:
    element_count, operand_count = len(instruction.shape.tuple_shapes), len(instruction.operands)
    if element_count == operand_count:
        return None
    return (
        "instruction.shape-matches",
        f"the shape has {plural(element_count, 'element')}, got {plural(operand_count, 'operand')}",
    )


def _pairs(instruction: HloInstruction) -> Problem:
    count = len(instruction.operands)
    if count % 2 == 0:
        return None
    return "operand-count", f"each array needs an initial value, but there are {plural(count, 'operand')}"


def _scatter(instruction: HloInstruction) -> Problem:
    count = len(instruction.operands)
    if count % 2:
        return None
    return (
        "argument-count",
        f"scatter takes n operands, indices and n updates, got {plural(count, 'argument')}",
    )


def _indexed(before: int) -> Callable[[HloInstruction], Problem]:
    """Return the check of index operands after ``before`` others: one per dimension, or one of rank 1."""

    def check(instruction: HloInstruction) -> Problem:
        operands = instruction.operands
        if not operands[0].shape.is_array:
            return None
        rank = operands[0].shape.rank
        packed = len(operands) == before + 1 and operands[before].shape.rank == 1
        if packed or len(operands) == before + rank:
            return None
        count = len(operands) - before
        return (
            "start-indices-count",
            f"{plural(rank, 'dimension')}, but {plural(count, 'start index', 'start indices')}",
        )

    return check


def _one_dimension(instruction: HloInstruction) -> Problem:
    operation: Any = instruction.operation
    count = len(operation.dimensions)
    return None if count == 1 else ("one-dimension", f"{instruction.opcode} has one dimension, not {count}")


def _conditional(instruction: HloInstruction) -> Problem:
    index = instruction.operands[0].shape
    branches, argument_count = len(instruction.called_computations), len(instruction.operands) - 1
    if not index.is_scalar or index.element_type not in (PRED, S32):
        return "branch-index", f"the first operand of a conditional must be pred[] or s32[], got {index}"
    if not branches or (index.element_type is PRED and branches != 2):
        return "branch-count", f"{index} does not select one of {plural(branches, 'branch', 'branches')}"
    if branches != argument_count:
        return (
            "operand-count",
            f"{plural(branches, 'branch', 'branches')}, but {plural(argument_count, 'operand')}",
        )
    return None


def _parameter(instruction: HloInstruction) -> Problem:
    operation: Any = instruction.operation
    flags, leaves = len(operation.parameter_replication), sum(1 for _ in instruction.shape.leaves())
    if flags in (0, leaves):
        return None
    return (
        "replication-leaves",
        f"parameter_replication has {plural(flags, 'flag')} for {plural(leaves, 'array')}",
    )


_CHECKS: Final[dict[type[Operation], Callable[[HloInstruction], Problem]]] = {
    Broadcast: _broadcast,
    Concatenate: _one_dimension,
    Conditional: _conditional,
    DynamicSlice: _indexed(1),
    DynamicUpdateSlice: _indexed(2),
    Parameter: _parameter,
    Reduce: _pairs,
    ReduceWindow: _pairs,
    Scatter: _scatter,
    Sort: _one_dimension,
    Tuple: _tuple,
}
