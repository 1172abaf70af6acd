"""Classes of arrays that are one value: through tuples, loops and conditionals, and in sharding groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.operations.control_flow import Conditional, While
from hloom.operations.structure import GetTupleElement, OptimizationBarrier, Tuple

Leaf: TypeAlias = "tuple[HloInstruction, tuple[int, ...]]"
"""An instruction, and the index of an array in its value; the empty index if the value is an array."""


class Flow:
    """The arrays of a program, in classes of one value each.

    Attributes:
        instructions: those of the entry, and before a loop or a conditional those of its computations.
    """

    def __init__(self, entry: HloComputation, groups: Sequence[Sequence[HloInstruction]] = ()) -> None:
        """Join what tuples, loops and conditionals pass on, and the arrays of each group."""
        self.instructions: list[HloInstruction] = list(_reached(entry))
        self._parents: dict[Leaf, Leaf] = {}
        self._above: set[Leaf] = set()
        for i in self.instructions:
            self._pass_on(i)
        for first, *others in groups:
            for other in others:
                self._join(first, other)

    def class_of(self, i: HloInstruction, index: tuple[int, ...] = ()) -> Leaf:
        """Return the leaf that stands for the class of an array."""
        leaf = (i, index)
        parents = self._parents
        while (parent := parents.get(leaf)) is not None:
            above = parents.get(parent)
            if above is not None:
                parents[leaf] = above
            leaf = parent
        return leaf

    def is_passed_on(self, i: HloInstruction) -> bool:
        """Return true if an array is one value with others."""
        return (i, ()) in self._parents or (i, ()) in self._above

    def _pass_on(self, i: HloInstruction) -> None:
        match i.operation:
            case GetTupleElement(index=index):
                self._join(i, i.operands[0], from_index=(index,))
            case Tuple():
                for number, operand in enumerate(i.operands):
                    self._join(operand, i, from_index=(number,))
            case OptimizationBarrier():
                self._join(i, i.operands[0])
            case While():
                body, condition = i.called_computations
                for other in (i.operands[0], condition.parameters[0], body.parameters[0], body.root):
                    self._join(i, other)
            case Conditional():
                for branch, operand in zip(i.called_computations, i.operands[1:], strict=True):
                    self._join(branch.parameters[0], operand)
                    self._join(i, branch.root)
            case _:
                pass

    def _join(self, a: HloInstruction, b: HloInstruction, from_index: tuple[int, ...] = ()) -> None:
        """Make the arrays of ``a`` one with those of ``b``, or with those of one element of ``b``."""
        for index, leaf in a.shape.leaves():
            if leaf.is_array:
                one, other = self.class_of(a, index), self.class_of(b, (*from_index, *index))
                if one != other:
                    self._parents[one] = other
                    self._above.add(other)


def _reached(computation: HloComputation) -> Iterator[HloInstruction]:
    for i in computation.post_order():
        if isinstance(i.operation, (While, Conditional)):
            for called in i.called_computations:
                yield from _reached(called)
        yield i
