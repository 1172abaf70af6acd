"""Counts of the elements that a kernel evaluates, and their work.

A kernel evaluates an instruction at every index at which its users read it. A value that is read at several
indices (by slices, pads, windows, gathers) is recomputed for each, with the values it depends on.
`Evaluations` follows these reads from results to operands, one instruction at a time, so that fusion can
decide whether to recompute or to store a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloom.ir.affine import Index, Indices, Variable
from hloom.ir.instruction import HloInstruction
from hloom.ir.traits import ElementCost
from hloom.operations.movement import Broadcast
from hloom.operations.reduction import Reduce
from hloom.operations.structure import Constant
from hloom.plan.accesses import Conditions, ElementReads

COSTS: Final = {
    ElementCost.FREE: 0,
    ElementCost.INDEXED: 4,
    ElementCost.CHEAP: 1,
    ElementCost.MODERATE: 4,
    ElementCost.TRANSCENDENTAL: 12,
    ElementCost.COMBINED: 1,
}
"""Work of one element in vector instructions, by class; for COMBINED, of one step of its loop."""
MOST_READS: Final = 1024
"""Maximum number of distinct reads of an instruction that are counted."""


def element_work(i: HloInstruction) -> int:
    """Return the work of computing one element of an instruction, in vector instructions."""
    return 0 if isinstance(i.operation, Constant) else COSTS[i.operation.element_cost]


def is_uniform(p: HloInstruction) -> bool:
    """Return whether all elements are one scalar: a loop has it in a register."""
    operation = p.operation
    array = p.operands[0] if isinstance(operation, Broadcast) else p
    return isinstance(operation, Broadcast | Constant) and not array.shape.rank


class Evaluations:
    """The elements of each instruction that a kernel reads for one element of the result.

    Request the results with `request`; then `evaluate` the members, users before their operands.
    """

    def __init__(self) -> None:
        self._rules = ElementReads()
        self._elements: dict[HloInstruction, dict[tuple[Indices, Conditions | None], None]] = {}

    def request(self, i: HloInstruction, indices: Indices, conditions: Conditions | None = None) -> None:
        """Read the element of an instruction at an index."""
        elements = self._elements.setdefault(i, {})
        if len(elements) <= MOST_READS:
            elements[indices, conditions] = None

    def requests(self, i: HloInstruction, indices: Indices) -> bool:
        """Return true if an element of an instruction has been requested at an index unconditionally."""
        return (indices, None) in self._elements.get(i, {})

    def reads_only(self, i: HloInstruction, indices: Indices) -> bool:
        """Return whether no element of an instruction but the one at an index is read."""
        return all(read == indices for read, _ in self._elements.get(i, ()))

    def count(self, i: HloInstruction) -> int:
        """Return the number of elements of an instruction that are read."""
        return len(self._elements.get(i, ()))

    def evaluate(self, i: HloInstruction) -> None:
        """Read the operand elements from which the requested elements of an instruction are computed."""
        for indices, conditions in self._elements.get(i, ()):
            for operand, source, inside in self._rules.of(i, indices, conditions):
                self.request(operand, source, inside)


def evaluated_elements(
    roots: Sequence[HloInstruction], members: Sequence[HloInstruction]
) -> dict[HloInstruction, int]:
    """Return the number of elements of each member that a kernel evaluates per step of its loops.

    A kernel with reductions makes a pass for each of them, and one for its other results.

    Args:
        roots: the results.
        members: the computed instructions, operands first.
    """
    reductions = [m for m in members if isinstance(m.operation, Reduce)]
    passes = [r.operands[: len(r.operands) // 2] for r in reductions]
    passes.append([r for r in dict.fromkeys(roots) if r not in reductions])
    counts = dict.fromkeys(members, 0)
    for results in passes:
        evaluations = Evaluations()
        index = tuple(Index.of(Variable(size)) for size in _largest(results))
        for result in results:
            # results of one element a row have the leading dimensions of those with all
            evaluations.request(result, index[: result.shape.rank])
        for member in reversed(members):
            if not isinstance(member.operation, Reduce):
                evaluations.evaluate(member)
                counts[member] += evaluations.count(member)
    return counts


def _largest(arrays: Sequence[HloInstruction]) -> tuple[int, ...]:
    shapes = [a.shape for a in arrays if a.shape.is_array]
    return max((s.dimensions for s in shapes), key=len, default=())


def recomputation(roots: Sequence[HloInstruction], members: Sequence[HloInstruction]) -> float:
    """Return the ratio of a kernel's work to the work of computing every element of its members once."""
    steps = max(i.shape.element_count for r in roots for i in (r, *r.operands) if i.shape.is_array)
    once = repeated = 0
    for member, count in evaluated_elements(roots, members).items():
        if member.shape.is_array:
            elements, work = member.shape.element_count, element_work(member)
            once += elements * work
            repeated += max(elements, count * min(steps, elements)) * work
    return repeated / once if once else 1.0
