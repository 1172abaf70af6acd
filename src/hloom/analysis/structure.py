"""Keys of computations that are equal if their structure is, whatever their instructions are called."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeAlias

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction

Key: TypeAlias = tuple[Hashable, ...]


def structural_key(computation: HloComputation) -> Key:
    """Return a key of a computation and those that it calls: operations, shapes, operands, annotations."""
    number: dict[HloInstruction, int] = {}
    steps: list[Key] = [(computation.execution_thread,)]
    for i in computation.post_order():
        number[i] = len(number)
        operands = tuple([number[o] for o in i.operands])
        control = tuple([number[p] for p in i.control_predecessors])
        steps.append((*operation_key(i), operands, control))
    return (*steps, number[computation.root])


def operation_key(i: HloInstruction) -> Key:
    """Return the part of a key that describes an instruction without its operands."""
    called = tuple([structural_key(c) for c in i.called_computations])
    return i.function_key, i.shape, i.annotations, called
