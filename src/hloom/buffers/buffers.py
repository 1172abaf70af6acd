"""Buffers of values: arguments, results, constants, and one arena of temporaries.

Aliasing values share a buffer: tuple elements, reshapes, the carried state of a loop. Buffers with disjoint
live spans are merged where that saves a copy (a loop's new state into the old, a result into its final place,
an elementwise result over its operand); other temporaries are packed into the arena.

Time is counted in half steps: the operation at position p reads at 2p and writes at 2p + 1. An operand that
may be overwritten while it is read is live until 2p, any other until 2p + 1.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from typing import Final

from hloom.codegen.types import storage_bytes
from hloom.shape.shape import Shape

ALIGNMENT: Final = 64
SMALL: Final = 256
"""Maximum size in bytes of a value on the stack, where LLVM may promote it to registers."""
ShapeIndex = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Buffer:
    """A range of memory; a merged buffer refers to the buffer it was merged into.

    Attributes:
        size: size in bytes.
        kind: ``argument``, ``result``, ``constant``, ``temp`` (in the arena) or ``stack``.
        number: number of the argument leaf, result leaf or constant.
        offset: byte offset in the arena, for temporaries.
        spans: inclusive live spans in half steps, ascending.
    """

    size: int
    kind: str = "temp"
    number: int = 0
    offset: int = 0
    spans: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    merged: Buffer | None = None

    def find(self) -> Buffer:
        """Return the buffer that this one was merged into, transitively, or itself."""
        found = self
        while found.merged is not None:
            found = found.merged
        if found is not self:
            self.merged = found
        return found

    def hold(self, first: int, last: int) -> None:
        """Add the live span [first, last], in half steps."""
        if last >= first:
            insort(self.find().spans, (first, last))

    def shares_bytes(self, other: Buffer) -> bool:
        """Return whether two buffers overlap in memory."""
        if self is other or not self.kind == other.kind == "temp":
            return self is other
        return self.offset < other.offset + other.size and other.offset < self.offset + self.size

    def overlaps(self, other: Buffer) -> bool:
        """Return whether the live spans of two buffers intersect."""
        a, b = self.find().spans, other.find().spans
        i = j = 0
        while i < len(a) and j < len(b):
            if a[i][0] <= b[j][1] and b[j][0] <= a[i][1]:
                return True
            if a[i][1] < b[j][1]:
                i += 1
            else:
                j += 1
        return False


def merge(source: Buffer, target: Buffer) -> bool:
    """Merge ``source`` into ``target`` if sizes agree and live spans are disjoint; return whether it was."""
    a, b = source.find(), target.find()
    if a is b:
        return True
    if a.kind != "temp" or b.kind in ("argument", "constant") or a.size != b.size or a.overlaps(b):
        return False
    a.merged = b
    b.spans = sorted([*a.spans, *b.spans])
    return True


def leaf_bytes(shape: Shape) -> int:
    """Return the size of an array in memory in bytes; 0 for tokens."""
    return shape.element_count * storage_bytes(shape.element_type) if shape.is_array else 0


def leaves(shape: Shape) -> list[tuple[ShapeIndex, Shape]]:
    """Return the leaves of a shape with their indices, in order; a buffer counts as the array in it."""
    if shape.is_buffer:
        shape = shape.tuple_shapes[0]
    if not shape.is_tuple:
        return [((), shape)]
    return [((i, *index), leaf) for i, part in enumerate(shape.tuple_shapes) for index, leaf in leaves(part)]


def assign_offsets(buffers: list[Buffer]) -> int:
    """Assign arena offsets so that temporaries with intersecting live spans do not overlap.

    Place the largest buffers first, each into the lowest gap among the placed buffers that are live at the
    same time. Return the size of the arena in bytes.
    """
    placed: list[Buffer] = []
    total = 0
    for buffer in sorted(buffers, key=lambda b: (-b.size, b.spans)):
        conflicts = sorted((b for b in placed if b.overlaps(buffer)), key=lambda b: b.offset)
        offset = 0
        for other in conflicts:
            if offset + buffer.size <= other.offset:
                break
            offset = max(offset, (other.offset + other.size + ALIGNMENT - 1) & -ALIGNMENT)
        buffer.offset = offset
        placed.append(buffer)
        total = max(total, offset + buffer.size)
    return (total + ALIGNMENT - 1) & -ALIGNMENT
