"""A group of instructions that fusion turns into one kernel."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Final

from hloom.analysis.column_reductions import is_column_reduction
from hloom.ir.affine import Index, Indices, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.movement import Concatenate
from hloom.plan.evaluations import Evaluations, element_work
from hloom.records import dataclass

NARROW: Final = 4
"""Longest minor dimension of a transpose that needs no tiles."""


@dataclass(slots=True, eq=False)
class Group:
    """Instructions that become one kernel.

    Attributes:
        dimensions: the iteration space: the dimensions of the results, or of the operand of a reduction.
        accepts: whether producers may join.
        reduces: whether the root is a reduction.
        hero: the dot or convolution whose elements the other members consume; None if there is none.
        rows: whether the group combines reductions of the minor dimension with loops over the same rows.
        members: the instructions, consumers first.
        outputs: the members with users outside the group, in reverse execution order.
        read: the arrays that members read and that cannot join, except as the hero.
        tiles: whether a member is a tiled transpose, so that the kernel runs in square tiles.
        index: the index of the results in the iteration space.
        evaluations: the elements of members, and of the values that they read, that each result needs.
        evaluated: the number of elements of members that each result needs.
        waiting: the values that members read and that may still join.
        full: whether only free producers may join.
        narrowest: the smallest number of waiting values while the group was half to three quarters full.
        continuation: the group that computes values for which this group had no room; None if none does.
        absorbed_by: the group that has taken the members of this one; None for a group in use.
        work: the work of the kernel, in vector instructions of one element.
        separate: the work of one loop for each member, in the same unit.
    """

    dimensions: tuple[int, ...]
    accepts: bool
    reduces: bool
    hero: HloInstruction | None = None
    rows: bool = False
    members: dict[HloInstruction, None] = field(default_factory=dict[HloInstruction, None])
    outputs: list[HloInstruction] = field(default_factory=list[HloInstruction])
    read: set[HloInstruction] = field(default_factory=set[HloInstruction])
    tiles: bool = False
    index: Indices = ()
    evaluations: Evaluations = field(default_factory=Evaluations)
    evaluated: int = 0
    waiting: set[HloInstruction] = field(default_factory=set[HloInstruction])
    full: bool = False
    narrowest: int = 1 << 30
    continuation: Group | None = None
    absorbed_by: Group | None = None
    work: int = 0
    separate: int = 0

    def __post_init__(self) -> None:
        self.index = tuple(Index.of(Variable(size)) for size in self.dimensions)

    @property
    def trips(self) -> int:
        """Number of elements of the iteration space."""
        return math.prod(self.dimensions)

    @property
    def has_columns(self) -> bool:
        """Return whether the root reduces rows of a few columns, which share what is the same in a row."""
        return is_column_reduction(self.outputs[0])

    @property
    def is_plain(self) -> bool:
        """Return whether the kernel is a loop over results alone: no reduction, product, tile or update."""
        updates = self.outputs[0].operation.updates_operand
        return self.accepts and self.is_loop and not (self.tiles or updates)

    @property
    def is_loop(self) -> bool:
        """Return whether the kernel has no reduction or product."""
        return not self.reduces and not self.rows and self.hero is None

    def interleaves(self, p: HloInstruction) -> bool:
        """Return whether a loop moves the minor dimension of a few elements: its lanes are rows then."""
        sizes = [s.dimensions[-1] for s in (p.shape, p.operands[0].shape)]
        return self.is_loop and min(sizes) <= NARROW

    def reads(self, p: HloInstruction) -> int:
        """Return the number of elements of a value that are read for each result."""
        return self.evaluations.count(p)

    def joins(self, p: HloInstruction) -> bool:
        """Return whether a value has the elements of an operand of a concatenation, the only result.

        The kernel has a loop of its own for each operand, or a column of each row.
        """
        root, *others = self.outputs
        is_join = isinstance(root.operation, Concatenate) and not others and self.is_loop
        return is_join and any(p.shape.element_count == o.shape.element_count for o in root.operands)

    def repeated_work(self, p: HloInstruction, reads: int) -> int:
        """Return the work of computing a value in this loop for a number of reads."""
        count = p.shape.element_count if self.joins(p) else self.trips if p.shape.rank else 1
        return reads * count * element_work(p)

    def separate_work(self, p: HloInstruction) -> int:
        """Return the work of computing a value in a loop of its own."""
        return (self.trips if p is self.outputs[0] else p.shape.element_count) * element_work(p)

    def absorb(self, other: Group) -> None:
        """Add the members of another group with the same loop; the other group is out of use then."""
        other.absorbed_by = self
        for output in other.outputs:
            self.evaluations.request(output, self.index)
        for member in other.members:
            self.evaluations.evaluate(member)
        self.members.update(other.members)
        self.outputs += other.outputs
        self.read |= other.read
        self.waiting |= other.waiting
        self.evaluated = sum(max(self.reads(member), 1) for member in self.members)
        self.work += other.work
        self.separate += other.separate
