"""Loops over the lines of arrays along one axis, with neighboring lines in the lanes where possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from hloom.codegen.elements import Elements
from hloom.codegen.llvm import Value
from hloom.codegen.loops import loop_nest, outer_loops, vector_lanes
from hloom.ir.affine import Index, Indices, Variable
from hloom.ir.instruction import HloInstruction
from hloom.records import dataclass

MOST_LANES: Final = 128
"""Number of lines processed together: several registers, so that each step reads whole cache lines."""

SCANNED_STEPS_AHEAD: Final = 3
"""Steps between a prefetch and its use, of loops that read and write lines."""

Place: TypeAlias = Callable[[Index], Indices]
"""From the index along the axis to the index in the array."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of arrays along an axis.

    Attributes:
        sizes: the dimensions; the size of the axis is not used.
        axis: the axis.
        lanes: the number of neighboring lines that are processed together; 0 for one line at a time.
    """

    sizes: tuple[int, ...]
    axis: int
    lanes: int

    @staticmethod
    def of(sizes: Sequence[int], axis: int, instructions: Sequence[HloInstruction]) -> Lines:
        """Return lines with lanes along the minor dimension, or without lanes if that is the axis."""
        minor = max((d for d, size in enumerate(sizes) if size != 1 and d != axis), default=-1)
        lanes = 0
        if minor > axis:
            lanes = vector_lanes(instructions, sizes[minor])
            while 0 < lanes < MOST_LANES and lanes * 2 <= sizes[minor]:
                lanes *= 2
        return Lines(tuple(sizes), axis, lanes)

    @property
    def variables(self) -> list[Variable | None]:
        """A new loop variable for every dimension but the axis."""
        return [None if d == self.axis else Variable(size) for d, size in enumerate(self.sizes)]

    @property
    def count(self) -> int:
        return math.prod(size for d, size in enumerate(self.sizes) if d != self.axis)

    @property
    def trips(self) -> tuple[int, int]:
        """(end, grain) of the range of the outermost loop."""
        sizes = [size for d, size in enumerate(self.sizes) if d != self.axis and size != 1]
        return (sizes[0], self.lanes if len(sizes) == 1 and self.lanes else 1) if sizes else (1, 1)

    def walk(self, e: Elements, begin: Value, end: Value, body: Callable[[Place], None]) -> None:
        """Run ``body`` for every line, or every group of neighboring lines; the outermost loop is given.

        The last group may overlap the one before: ``body`` must not overwrite what it reads.
        """
        variables = self.variables
        loops = [v for v in variables if v is not None and v.extent != 1]

        def place(at: Index) -> Indices:
            return tuple(at if v is None else Index.of(v) for v in variables)

        if self.lanes:
            loop_nest(e, loops, lambda: body(place), begin, end, repeats=True)
            return
        with outer_loops(e.function, loops, begin, end), e.scope():
            body(place)
