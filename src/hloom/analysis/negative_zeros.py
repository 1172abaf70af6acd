"""Absence of -0 in arrays that loops carry and branches return."""

from __future__ import annotations

from hloom.analysis.updates import Leaf, origin
from hloom.analysis.values import has_no_negative_zero
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.control_flow import Conditional, While
from hloom.operations.structure import Parameter, parameter_number

_DEPTH = 8
"""Maximum number of operations, loops and branches between a value and those whose zeros are known."""
_ROUNDS = 16
"""Maximum number of times that all carried arrays are checked."""


class NegativeZeros:
    """Tells which arrays never hold -0, by induction over the iterations of loops.

    All carried arrays are assumed to have none. Those for which the initial or the next value may have one
    are removed, until the assumption follows from itself.
    """

    def __init__(self, module: HloModule) -> None:
        self.callers: dict[HloComputation, tuple[HloInstruction, int]] = {
            computation: (i, number)
            for i in module.instructions()
            if isinstance(i.operation, Conditional | While)
            for number, computation in enumerate(i.called_computations)
        }
        loops = [i for i in module.instructions() if isinstance(i.operation, While)]
        self.carried: set[Leaf] = {
            (loop, index)
            for loop in loops
            for index, shape in loop.shape.leaves()
            if shape.is_array and shape.element_type.is_floating
        }
        for _ in range(_ROUNDS):
            wrong = {leaf for leaf in self.carried if not self._follows(leaf)}
            self.carried -= wrong
            if not wrong:
                return
        self.carried.clear()

    def has_none(self, x: HloInstruction) -> bool:
        """Return whether no element of an array is -0, as far as that is known."""
        return has_no_negative_zero(x, _DEPTH, self._leaf)

    def _follows(self, leaf: Leaf) -> bool:
        loop, index = leaf
        body = loop.called_computations[0]
        return self._known(loop.operands[0], index, _DEPTH) and self._known(body.root, index, _DEPTH)

    def _known(self, i: HloInstruction, index: tuple[int, ...], depth: int) -> bool:
        source, inner = origin(i, index)
        if not inner and not isinstance(source.operation, Parameter | Conditional):
            return has_no_negative_zero(source, depth, self._leaf)
        return depth > 0 and self._control(source, inner, depth)

    def _leaf(self, i: HloInstruction, depth: int) -> bool:
        """Return whether an instruction is a leaf of control flow without -0."""
        source, index = origin(i)
        return self._control(source, index, depth)

    def _control(self, i: HloInstruction, index: tuple[int, ...], depth: int) -> bool:
        if isinstance(i.operation, While):
            return (i, index) in self.carried
        if isinstance(i.operation, Conditional):
            return all(self._known(branch.root, index, depth - 1) for branch in i.called_computations)
        if not isinstance(i.operation, Parameter) or i.parent not in self.callers:
            return False
        caller, number = self.callers[i.parent]
        if isinstance(caller.operation, While):
            return (caller, index) in self.carried
        return not parameter_number(i) and self._known(caller.operands[number + 1], index, depth - 1)
