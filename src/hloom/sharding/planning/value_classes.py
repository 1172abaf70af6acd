"""Value classes: arrays that tuples, loops, conditionals and sharding groups identify with each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.operations.control_flow import Conditional, While
from hloom.operations.structure import GetTupleElement, OptimizationBarrier, Tuple

Leaf: TypeAlias = "tuple[HloInstruction, tuple[int, ...]]"
"""An array: an instruction, and the shape index in its value, empty unless the value is a tuple."""


class ValueClasses:
    """The value classes of a program: sets of arrays that must have the same tiling.

    A class arises where tuples, get-tuple-elements, barriers, loops, conditionals or sharding groups pass on
    or merge arrays, such as the initial value, body parameter and result of a while loop.

    Attributes:
        instructions: the reachable instructions in post-order, bodies and branches before their callers.
    """

    def __init__(self, entry: HloComputation, groups: Sequence[Sequence[HloInstruction]] = ()) -> None:
        """Find the arrays that must share one tiling, in all computations reachable from ``entry``.

        ``groups`` has the member instructions of each sharding group; these must share one tiling, too.
        """
        self.instructions: list[HloInstruction] = list(_reachable(entry))
        self._parents: dict[Leaf, Leaf] = {}
        self._merged: set[Leaf] = set()
        for i in self.instructions:
            self._pass_on(i)
        for first, *others in groups:
            for other in others:
                self._merge(first, other)

    def class_of(self, i: HloInstruction, index: tuple[int, ...] = ()) -> Leaf:
        """Return one fixed array out of all that must share the tiling of the given array.

        The given array is the value of ``i`` or, if that is a tuple, its element at the shape index
        ``index``. The result, as (instruction, shape index), serves as key for the whole set.
        """
        leaf = (i, index)
        parents = self._parents
        while (parent := parents.get(leaf)) is not None:
            grandparent = parents.get(parent)
            if grandparent is not None:
                parents[leaf] = grandparent
            leaf = parent
        return leaf

    def is_merged(self, i: HloInstruction) -> bool:
        """Return true if some other array must have the same tiling as the array ``i``.

        An example is a parameter of a loop body, and the initial value of the loop.
        """
        return (i, ()) in self._parents or (i, ()) in self._merged

    def _pass_on(self, i: HloInstruction) -> None:
        match i.operation:
            case GetTupleElement(index=index):
                self._merge(i, i.operands[0], from_index=(index,))
            case Tuple():
                for number, operand in enumerate(i.operands):
                    self._merge(operand, i, from_index=(number,))
            case OptimizationBarrier():
                self._merge(i, i.operands[0])
            case While():
                body, condition = i.called_computations
                for other in (i.operands[0], condition.parameters[0], body.parameters[0], body.root):
                    self._merge(i, other)
            case Conditional():
                for branch, operand in zip(i.called_computations, i.operands[1:], strict=True):
                    self._merge(branch.parameters[0], operand)
                    self._merge(i, branch.root)
            case _:
                pass

    def _merge(self, a: HloInstruction, b: HloInstruction, from_index: tuple[int, ...] = ()) -> None:
        """Record that each array in ``a`` must have the same tiling as the corresponding array in ``b``.

        ``from_index`` is the shape index of the element of ``b`` that corresponds to ``a``; ``()`` if ``b``
        as a whole does.
        """
        for index, leaf in a.shape.leaves():
            if leaf.is_array:
                one, other = self.class_of(a, index), self.class_of(b, (*from_index, *index))
                if one != other:
                    self._parents[one] = other
                    self._merged.add(other)


def _reachable(computation: HloComputation) -> Iterator[HloInstruction]:
    for i in computation.post_order():
        if isinstance(i.operation, (While, Conditional)):
            for called in i.called_computations:
                yield from _reachable(called)
        yield i
