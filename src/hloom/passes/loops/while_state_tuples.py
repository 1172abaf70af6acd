"""while-state-tuples: carry the state of every while loop as a tuple, the form that passes of loops read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.control_flow import While
from hloom.operations.structure import GetTupleElement, Tuple
from hloom.passes.facts import FLAT
from hloom.passes.fuel import consume
from hloom.passes.registry import register
from hloom.passes.writing import Writer
from hloom.shape.shape import Shape


@register
@dataclass(frozen=True, slots=True)
class WhileStateTuples:
    """``s32[] while(x)`` → element 0 of ``(s32[]) while(tuple(x))``. Bitwise.

    JAX writes a loop over one array without a tuple.
    """

    name: ClassVar[str] = "while-state-tuples"
    needs: ClassVar[frozenset[str]] = frozenset((FLAT,))

    def run(self, module: HloModule) -> bool:
        """Rewrite every loop over an array."""
        changed = False
        for i in [i for i in module.instructions() if isinstance(i.operation, While) and i.shape.is_array]:
            if consume(f"%{i.name}"):
                _carry_tuple(i)
                changed = True
        return changed


def _carry_tuple(instruction: HloInstruction) -> None:
    """Replace a loop over an array by one over a tuple of one."""
    state = Shape.tuple_([instruction.shape])
    body, condition = instruction.called_computations
    for computation in (body, condition):
        _take_tuple(computation, state)
    body.root = Writer(body.root).op(Tuple(), body.root, shape=state)
    w = Writer(instruction)
    initial = w.op(Tuple(), *instruction.operands, shape=state)
    name = w.module.unique_name(instruction.name)
    loop = w.computation.add(instruction.clone(name, operands=[initial], shape=state))
    instruction.hand_over_control_dependencies(loop)
    w.replace(w.op(GetTupleElement(index=0), loop))


def _take_tuple(computation: HloComputation, state: Shape) -> None:
    """Let a computation take a tuple of one in the place of an array."""
    (parameter,) = computation.parameters
    element = Writer(parameter).op(GetTupleElement(index=0), parameter, shape=parameter.shape)
    users = [u for u in parameter.users if u is not element]
    for user in users:
        for position, operand in enumerate(user.operands):
            if operand is parameter:
                user.replace_operand(position, element)
    if parameter.is_root:
        computation.root = element
    parameter.shape = state
