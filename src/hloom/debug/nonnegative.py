"""Detection of arguments that must not be negative: second moments of optimizers, variances, counts.

A negative ``v`` in ``sqrt(0.9 · v + 0.1 · g · g)`` would give NaN, which no real run of the program has, so
such arguments are drawn nonnegative.
"""

from __future__ import annotations

from typing import Final

from hloom.analysis.instructions import splat
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.arithmetic import Add, Divide, Multiply
from hloom.operations.control_flow import Call, Fusion, While
from hloom.operations.conversion import Convert, Copy
from hloom.operations.movement import Broadcast, Slice, Transpose
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import GetTupleElement, OptimizationBarrier, Parameter, Tuple
from hloom.operations.transcendental import Logarithm, ReciprocalSquareRoot, SquareRoot

_FORWARDING: Final = (Broadcast, Reshape, Slice, Transpose, Convert, Copy, OptimizationBarrier)

Leaf = tuple[int, ...]
"""The number of a parameter, then the indices of nested tuples."""
_Demand = tuple[HloInstruction, Leaf, bool]
"""A value that should not be negative, the path of a leaf in it, and whether the leaf is a term of a sum."""


def nonnegative_leaves(module: HloModule) -> set[Leaf]:
    """Return the arrays among the entry's parameters that are terms of sums under a square root or logarithm.

    Each is given by the number of its parameter, then the indices in nested tuples. Terms are traced through
    sums, products with constants, quotients, data movement, calls and loops. A parameter that is itself the
    operand of a square root or logarithm does not count: ``sqrt(x)`` does not imply that x is meant to be
    nonnegative.
    """
    entry, leaves = module.entry, set[Leaf]()
    callers = _callers(module)
    pending: list[_Demand] = [
        (i.operands[0], (), False)
        for i in module.instructions()
        if isinstance(i.operation, SquareRoot | ReciprocalSquareRoot | Logarithm)
    ]
    visited = set(pending)
    while pending:
        i, path, is_term = pending.pop()
        if isinstance(i.operation, Parameter) and i.parent is entry:
            if is_term:
                leaves.add((i.operation.parameter_number, *path))
            continue
        for demand in _sources(i, path, is_term, callers):
            if demand not in visited:
                visited.add(demand)
                pending.append(demand)
    return leaves


def _sources(
    i: HloInstruction, path: Leaf, is_term: bool, callers: dict[HloComputation | None, list[HloInstruction]]
) -> list[_Demand]:
    """Return the values that determine whether the array at ``path`` in the value of ``i`` is nonnegative.

    They are operands of ``i``, the root of the computation that it calls, or, if ``i`` is a parameter, the
    operands of its callers. Each is a triple (instruction, path of an array in its value, whether this array
    is a term of a sum).

    Args:
        i: the instruction.
        path: the indices in nested tuples that lead to the array.
        is_term: whether that array is a term of a sum.
        callers: the instructions that call each computation.
    """
    match i.operation:
        case Add():
            return [(operand, path, True) for operand in i.operands]
        case Multiply():
            one, other = i.operands
            constants = [splat(operand) is not None for operand in (one, other)]
            return [(one if constants[1] else other, path, is_term)] if any(constants) else []
        case GetTupleElement(index=index):
            return [(i.operands[0], (index, *path), is_term)]
        case Tuple():
            return [(i.operands[path[0]], path[1:], is_term)]
        case Call() | Fusion():
            return [(i.called_computations[0].root, path, is_term)]
        case Parameter(parameter_number=number):
            calls = callers.get(i.parent, [])
            numbers = [0 if isinstance(call.operation, While) else number for call in calls]
            return [(call.operands[n], path, is_term) for call, n in zip(calls, numbers, strict=True)]
        case While() | Divide():
            return [(i.operands[0], path, is_term)]
        case operation if isinstance(operation, _FORWARDING):
            return [(i.operands[0], path, is_term)]
        case _:
            return []


def _callers(module: HloModule) -> dict[HloComputation | None, list[HloInstruction]]:
    """Return, for each called computation, the list of the calls, fusions and while loops that run it."""
    callers: dict[HloComputation | None, list[HloInstruction]] = {}
    for i in module.instructions():
        if isinstance(i.operation, Call | Fusion | While):
            for computation in i.called_computations:
                callers.setdefault(computation, []).append(i)
    return callers
