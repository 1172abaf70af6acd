"""Report of the array copies in a program, each with its reason.

A copy is needed where two values are live at once: an array that is read after an update of it, or a loop's
old state that is read after the new one is written.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from hloom.analysis.updates import updated_operands
from hloom.buffers.assignment import Assignment
from hloom.buffers.buffers import SMALL, Buffer, BufferCopy, ShapeIndex
from hloom.ir.instruction import HloInstruction
from hloom.operations.control_flow import While
from hloom.records import dataclass


@dataclass(frozen=True, slots=True)
class ArrayCopy:
    """A copy of an array of more than 256 bytes.

    Attributes:
        instruction: the name of the instruction that requires the copy.
        text: the copied array, and the time.
        size: the size in bytes.
        reason: the reason why source and target cannot share memory.
    """

    instruction: str
    text: str
    size: int
    reason: str

    def __str__(self) -> str:
        return f"copies {self.text}, {self.size} B: {self.reason}"


def array_copies(assignment: Assignment) -> list[ArrayCopy]:
    """Return the copies at loops, at branches and before updates, in execution order."""
    reasons = _Reasons(assignment)
    entries: list[tuple[int, ArrayCopy]] = []
    for i, position in assignment.positions.items():
        for copy in _before_updates(assignment, reasons, i, 2 * position):
            entries.append((position, copy))
        for copy in _selected(assignment.entering.get(i, ())):
            text = f"the initial value of element {_written(copy.index)}"
            entries.append(
                (position, ArrayCopy(i.name, text, copy.source.size, reasons.of(copy, 2 * position)))
            )
    for (i, number), copies in assignment.returning.items():
        time = assignment.join_times[i, number]
        where = "at the end of each iteration" if isinstance(i.operation, While) else f"in branch {number}"
        for copy in _selected(copies):
            text = f"element {_written(copy.index)} {where}" if copy.index else f"the result {where}"
            entries.append((time // 2, ArrayCopy(i.name, text, copy.source.size, reasons.of(copy, time))))
    return [copy for _, copy in sorted(entries, key=lambda entry: entry[0])]


def _written(index: ShapeIndex) -> str:
    return ".".join(map(str, index))


def _selected(copies: Sequence[BufferCopy]) -> Iterator[BufferCopy]:
    """Yield the copies between distinct buffers of more than `SMALL` bytes."""
    for copy in copies:
        if copy.source.size > SMALL and copy.source.find() is not copy.target.find():
            yield copy


def _before_updates(
    assignment: Assignment, reasons: _Reasons, i: HloInstruction, time: int
) -> Iterator[ArrayCopy]:
    """Yield the copies of operands that an update cannot overwrite."""
    for number, operand in updated_operands(i):
        index = (number,) if i.shape.is_tuple else ()
        source, target = assignment.buffer(operand), assignment.buffer(i, index)
        if source is not target and source.size > SMALL:
            copy = BufferCopy(assignment.values[operand][()], assignment.values[i][index])
            yield ArrayCopy(i.name, f"%{operand.name}", source.size, reasons.of(copy, time))


class _Reasons:
    """Finds the reason of a copy: the instruction that reads the old value of the buffer later."""

    def __init__(self, assignment: Assignment) -> None:
        self.assignment = assignment
        self.names = {position: i for i, position in assignment.positions.items()}
        self.joins = {time // 2: join for join, time in assignment.join_times.items()}
        self.members: dict[Buffer, list[Buffer]] = {}
        for buffer in assignment.reads:
            self.members.setdefault(buffer.find(), []).append(buffer)

    def of(self, copy: BufferCopy, time: int) -> str:
        """Return the reason why a copy's source and target do not share memory at a time."""
        source = copy.source.memory
        if source.kind == "argument":
            return f"the caller keeps argument {source.number}"
        if source.kind == "constant":
            return "it is a constant"
        later = self._next_read(source, time + 1)
        if later is not None and source.is_live(time + 1):
            return f"its value is needed {self._at(later)}"
        overlap = _first_overlap(source, copy.target.find())
        later = None if overlap is None else self._next_read(copy.target.find(), overlap)
        if later is not None:
            return f"when the new value is written, the old one is still needed {self._at(later)}"
        return "it is computed in other memory"

    def _next_read(self, buffer: Buffer, time: int) -> int | None:
        """Return the time of the first read of a buffer at or after a time; None if there is none."""
        times: list[int] = []
        for member in self.members.get(buffer, ()):
            reads = sorted(self.assignment.reads[member])
            times += reads[bisect_left(reads, time) :][:1]
        return min(times, default=None)

    def _at(self, time: int) -> str:
        i = self.names.get(time // 2)
        if i is not None:
            return f"by %{i.name}"
        join = self.joins.get(time // 2)
        if join is None:
            return "later"
        instruction, number = join
        if isinstance(instruction.operation, While):
            return f"in the next iteration of %{instruction.name}"
        return f"as a result of branch {number} of %{instruction.name}"


def _first_overlap(a: Buffer, b: Buffer) -> int | None:
    """Return the first time at which both buffers are live; None if there is none."""
    return min(
        (
            max(first, begin)
            for first, last in a.spans
            for begin, end in b.spans
            if first <= end and begin <= last
        ),
        default=None,
    )
