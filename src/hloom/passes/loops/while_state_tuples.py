"""while-state-tuples: carry the state of every while loop as a tuple, the form that passes of loops read."""

from __future__ import annotations

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.operations.control_flow import While
from hloom.operations.structure import GetTupleElement, Tuple
from hloom.passes.facts import FLAT
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer
from hloom.shape.shape import Shape


class WhileStateTuples(OpExpander, name="while-state-tuples", of=While, needs={FLAT}):
    """``s32[] while(x)`` → element 0 of ``(s32[]) while(tuple(x))``. Bitwise.

    JAX writes a loop over one array without a tuple.
    """

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        if not i.shape.is_array:
            return None
        state = Shape.tuple_([i.shape])
        body, condition = i.called_computations
        for computation in (body, condition):
            _take_tuple(computation, state)
        body.root = Writer(body.root).op(Tuple(), body.root, shape=state)
        initial = w.op(Tuple(), *i.operands, shape=state)
        loop = w.copy(i, [initial], state)
        i.hand_over_control_dependencies(loop)
        return w.op(GetTupleElement(index=0), loop)


def _take_tuple(computation: HloComputation, state: Shape) -> None:
    """Replace the parameter of a computation, an array, by a tuple of one."""
    (parameter,) = computation.parameters
    element = Writer(parameter).op(GetTupleElement(index=0), parameter, shape=parameter.shape)
    parameter.replace_all_uses_with(element)
    parameter.shape = state
