"""Buffers of values: arguments, results, constants, and one arena of temporaries.

Aliases share a buffer: tuple elements, reshapes, the carried state of a loop. Buffers with disjoint live
spans are merged where that saves a copy (a loop's new state and the old, a value and the program's result, an
elementwise result and its operand); other temporaries are packed into the arena.

Time is counted in half steps: the operation at position p reads at 2p and writes at 2p + 1. An operand that
may be overwritten while it is read is live until 2p, any other operand until 2p + 1.

A subview is a part of another buffer, at an address known at run time. It lives in the spans of that buffer.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import field
from typing import Final

from hloom.codegen.types import storage_bytes
from hloom.records import dataclass
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
        kind: ``argument``, ``result``, ``constant``, ``temp`` (in the arena), ``stack`` or ``subview``.
        number: number of the argument leaf, result leaf or constant.
        offset: byte offset in the arena, for temporaries.
        spans: inclusive live spans in half steps, ascending; spans that overlap or touch are joined.
        rotates: whether the address is a variable of the program; see `hloom.buffers.rotations`.
        base: the buffer that a subview is a part of.
    """

    size: int
    kind: str = "temp"
    number: int = 0
    offset: int = 0
    spans: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    merged: Buffer | None = None
    rotates: bool = False
    base: Buffer | None = None

    def find(self) -> Buffer:
        """Return the buffer that this one was merged into, transitively, or itself."""
        buffer = self
        while buffer.merged is not None:
            buffer = buffer.merged
        if buffer is not self:
            self.merged = buffer
        return buffer

    @property
    def memory(self) -> Buffer:
        """Return the buffer that has the memory of this one: itself, or the buffer that a subview is in."""
        buffer = self.find()
        while buffer.base is not None:
            buffer = buffer.base.find()
        return buffer

    def hold(self, first: int, last: int) -> None:
        """Add the live span [first, last], in half steps."""
        if last >= first:
            _add_span(self.memory.spans, first, last)

    def is_live(self, time: int) -> bool:
        """Return true if a time lies in a live span."""
        return any(first <= time <= last for first, last in self.find().spans)

    def shares_bytes(self, other: Buffer) -> bool:
        """Return true if two buffers overlap in memory."""
        a, b = self.memory, other.memory
        if a is b or not a.kind == b.kind == "temp":
            return a is b
        return a.offset < b.offset + b.size and b.offset < a.offset + a.size

    def overlaps(self, other: Buffer) -> bool:
        """Return true if live spans of two buffers intersect."""
        few, many = sorted((self.find().spans, other.find().spans), key=len)
        for first, last in few:
            behind = bisect_right(many, last, key=_first)
            if behind and many[behind - 1][1] >= first:
                return True
        return False


@dataclass(frozen=True, slots=True)
class BufferCopy:
    """A copy of one leaf at a control-flow join.

    Attributes:
        source, target: the buffers.
        index: the shape index of the leaf, in a loop's state or in the result of a conditional or program.
    """

    source: Buffer
    target: Buffer
    index: ShapeIndex = ()


def merge(source: Buffer, target: Buffer) -> bool:
    """Merge ``source`` into ``target`` if sizes agree and live spans are disjoint; return true if merged."""
    a, b = source.find(), target.find()
    if a is b:
        return True
    fixed = a.kind != "temp" or b.kind in ("argument", "constant", "subview") or a.rotates or b.rotates
    if fixed or a.size != b.size or a.overlaps(b):
        return False
    a.merged = b
    if len(a.spans) > len(b.spans):
        a.spans, b.spans = b.spans, a.spans
    for span in a.spans:
        _add_span(b.spans, *span)
    return True


def _add_span(spans: list[tuple[int, int]], first: int, last: int) -> None:
    """Insert a span into ascending disjoint spans; join it with those that it overlaps or touches."""
    low = bisect_left(spans, first - 1, key=_last)
    high = bisect_right(spans, last + 1, key=_first)
    if low < high:
        first, last = min(first, spans[low][0]), max(last, spans[high - 1][1])
    spans[low:high] = [(first, last)]


def _first(span: tuple[int, int]) -> int:
    return span[0]


def _last(span: tuple[int, int]) -> int:
    return span[1]


def leaf_bytes(shape: Shape) -> int:
    """Return the size of an array in memory in bytes; 0 for tokens."""
    return shape.element_count * storage_bytes(shape.element_type) if shape.is_array else 0


def leaves(shape: Shape) -> list[tuple[ShapeIndex, Shape]]:
    """Return (shape index, leaf) for all leaves of a shape; a buffer type counts as its array."""
    if shape.is_buffer:
        shape = shape.tuple_shapes[0]
    if not shape.is_tuple:
        return [((), shape)]
    return [((i, *index), leaf) for i, part in enumerate(shape.tuple_shapes) for index, leaf in leaves(part)]
