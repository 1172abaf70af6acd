"""shuffle_expander: rotations as concatenations of two slices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hloom.analysis.instructions import operation_of
from hloom.ir.instruction import HloInstruction
from hloom.ir.window import SliceDimension
from hloom.operations.movement import Concatenate, Slice
from hloom.operations.shuffle import Shuffle
from hloom.passes.op_expander import OpExpander
from hloom.passes.registry import register
from hloom.passes.writing import Writer


@register
@dataclass(frozen=True, slots=True)
class ShuffleExpander(OpExpander):
    """``shuffle(x)`` → ``concatenate(slice(x), slice(x))`` for each dimension. Bitwise."""

    name: ClassVar[str] = "shuffle_expander"

    def matches(self, i: HloInstruction) -> bool:
        """Return whether an instruction is a shuffle."""
        return isinstance(i.operation, Shuffle)

    def expand(self, i: HloInstruction) -> None:
        """Concatenate two slices for each dimension."""
        writer = Writer(i)
        writer.replace(_rotated(writer, i, operation_of(i, Shuffle)))


def _rotated(writer: Writer, i: HloInstruction, shuffle: Shuffle) -> HloInstruction:
    (x,) = i.operands
    extents = x.shape.dimensions
    for d, shift in zip(shuffle.dimensions, shuffle.shifts, strict=True):
        start = shift % extents[d] if extents[d] else 0
        if not start:
            continue
        parts: list[HloInstruction] = []
        for bounds in ((start, extents[d]), (0, start)):
            ranges = [SliceDimension(0, extent) for extent in extents]
            ranges[d] = SliceDimension(*bounds)
            parts.append(writer.op(Slice(slice=tuple(ranges)), x))
        x = writer.op(Concatenate(dimensions=(d,)), *parts)
    return x
