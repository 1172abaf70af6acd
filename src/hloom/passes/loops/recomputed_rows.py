"""Rows of stacks that one loop writes and another one reads, computed again in the other one.

The backward loop of a scan reads what the forward loop computed in the iteration of the same layer. A row is
computed again from rows of other stacks, and from elements that neither loop changes.
"""

from __future__ import annotations

from collections.abc import Collection

from hloom.analysis.loops import TupleLoop, element_number, picks
from hloom.analysis.stacks import Stacks
from hloom.analysis.trip_count import trip_count
from hloom.ir.instruction import HloInstruction
from hloom.operations.dynamic_slicing import DynamicSlice
from hloom.operations.movement import Broadcast
from hloom.operations.reshaping import Reshape
from hloom.operations.structure import Constant, GetTupleElement, Iota, Tuple
from hloom.passes.layout.product_views import is_view
from hloom.passes.writing import Writer


class RecomputedRows:
    """Replaces the rows of some values of a loop in another loop.

    Args:
        source: the loop that writes the stacks.
        target: the loop that reads them.
        members: instructions in the body of ``source`` that are computed again.

    Attributes:
        copies: of each instruction, by the index of the row.
    """

    def __init__(self, source: TupleLoop, target: TupleLoop, members: Collection[HloInstruction]) -> None:
        self.source, self.target, self.members = source, target, members
        self.copies: dict[tuple[HloInstruction, HloInstruction], HloInstruction] = {}
        self.replaced: list[tuple[HloInstruction, int, HloInstruction]] = []
        self.parts: dict[int, HloInstruction] = {}
        self.elements: dict[HloInstruction, int] = {}
        self.slices: list[HloInstruction] = []
        self.read()

    def read(self) -> None:
        """Find the stacks that both loops share, and the slices of those that hold members."""
        counts = trip_count(self.source), trip_count(self.target)
        if counts[0] is None or counts[1] is None:
            return
        stacks = Stacks(self.source, counts[0])
        written = {
            number: row
            for number in range(self.target.count)
            if (element := element_number(value_of(self.target.initial(number)), self.source.instruction))
            is not None
            and (row := stacks.part_written(element)) is not None
        }
        steps = {row.step for part, row in written.values() if self.holds_member(part)}
        for number, (part, row) in written.items():
            if steps == {row.step}:  # equal rows of the stacks are of the same iteration
                self.parts[number] = part
                for value in (part, *(part.operands if isinstance(part.operation, Reshape) else ())):
                    self.elements.setdefault(value, number)
        reads = Stacks(self.target, counts[1])
        for i in self.target.body.instructions:
            row = reads.part_read(i)
            part = None if row is None else self.parts.get(row.element)
            if part is not None and self.holds_member(part) and part.shape.dimensions == i.shape.dimensions:
                self.slices.append(i)

    def holds_member(self, part: HloInstruction) -> bool:
        """Return whether a row is a member, or a reshape of one."""
        return part in self.members or (
            isinstance(part.operation, Reshape) and part.operands[0] in self.members
        )

    def replace(self) -> bool:
        """Compute the slices again; return false, without changes, if one of them must be stored."""
        news: list[HloInstruction] = []
        for part in self.slices:
            number = element_of(part)
            new = self.copy(self.parts[number], part.operands[1], Writer(part))
            if new is None or not self.is_last_reader(number):
                return False
            news.append(new)
        for part, new in zip(self.slices, news, strict=True):
            uses = [(user, n) for user in part.users for n, o in enumerate(user.operands) if o is part]
            self.replaced += [(user, n, part) for user, n in uses]
            for user, n in uses:
                user.replace_operand(n, new)
        return len(news) > 0

    def is_last_reader(self, number: int) -> bool:
        """Return whether nothing else reads a stack."""
        stack = value_of(self.target.initial(number))
        element = element_number(stack, self.source.instruction)
        again = [] if element is None else picks(self.source.instruction, element)
        return {u for pick in again for u in pick.users} == {self.target.instruction.operands[0]}

    def undo(self) -> None:
        """Read the stacks again."""
        for user, n, part in self.replaced:
            user.replace_operand(n, part)

    def copy(self, i: HloInstruction, index: HloInstruction, w: Writer) -> HloInstruction | None:
        """Return the value of an instruction of the source in the target's iteration; None if unknown."""
        key = i, index
        if key not in self.copies:
            copy = self.stored(i, index, w) if i in self.elements and not self.holds_member(i) else None
            copy = copy or self.invariant(i, w) or self.computed(i, index, w)
            if copy is None:
                return None
            self.copies[key] = copy
        return self.copies[key]

    def stored(self, i: HloInstruction, index: HloInstruction, w: Writer) -> HloInstruction:
        """Return a row of a stack."""
        number = self.elements[i]
        sizes = self.parts[number].shape.dimensions
        zero = w.scalar(0, index.shape.element_type)
        starts = [index, *[zero] * (len(sizes) - 1)]
        part = w.op(DynamicSlice(dynamic_slice_sizes=sizes), self.element(number, w), *starts)
        return w.reshape(part, i.shape.dimensions)

    def invariant(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        """Return an element that both loops carry unchanged; None for other instructions."""
        number = element_number(i, self.source.state)
        if number is None or not self.source.is_invariant(number):
            return None
        initial = value_of(self.source.initial(number))
        same = (n for n in range(self.target.count) if value_of(self.target.initial(n)) is initial)
        found = next((n for n in same if self.target.is_invariant(n)), None)
        return None if found is None else self.element(found, w)

    def computed(self, i: HloInstruction, index: HloInstruction, w: Writer) -> HloInstruction | None:
        """Return a copy of a member, or of a view or constant; None for others."""
        is_free = is_view(i) or isinstance(i.operation, Constant | Iota | Broadcast)
        if i not in self.members and not is_free:
            return None
        operands = [self.copy(o, index, w) for o in i.operands]
        known = [o for o in operands if o is not None]
        return w.copy(i, known) if len(known) == len(operands) else None

    def element(self, number: int, w: Writer) -> HloInstruction:
        """Return an element of the target's state."""
        inside = picks(self.target.state, number)
        return inside[0] if inside else w.op(GetTupleElement(index=number), self.target.state)


def element_of(part: HloInstruction) -> int:
    """Return the number of the element of which an instruction is a slice."""
    pick = part.operands[0]
    assert isinstance(pick.operation, GetTupleElement)
    return pick.operation.index


def value_of(i: HloInstruction) -> HloInstruction:
    """Return the instruction that an element of a written tuple is."""
    while isinstance(i.operation, GetTupleElement) and isinstance(i.operands[0].operation, Tuple):
        i = i.operands[0].operands[i.operation.index]
    return i
