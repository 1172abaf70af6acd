"""shuffle_expander: rotations as concatenations of two slices."""

from __future__ import annotations

from hloom.analysis.instructions import operation_of
from hloom.ir.instruction import HloInstruction
from hloom.operations.shuffle import Shuffle
from hloom.passes.expand.rotation_calls import rotate_left
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer


class ShuffleExpander(OpExpander, name="shuffle_expander", of=Shuffle):
    """``shuffle(x)`` → ``concatenate(slice(x), slice(x))`` for each dimension. Bitwise."""

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        (x,) = i.operands
        shuffle = operation_of(i, Shuffle)
        for d, shift in zip(shuffle.dimensions, shuffle.shifts, strict=True):
            extent = x.shape.dimensions[d]
            if extent and shift % extent:
                x = rotate_left(w, x, d, shift % extent)
        return x
