"""Recomputation: tiles that devices compute from other tiles of the operands, instead of receiving them.

A device that has ``x`` whole computes any tile of ``-x``; to gather ``broadcast(x)`` sends more than to
gather ``x``. Operations that take a constant time for each element are recomputed where that sends fewer
bytes: memory and arithmetic are faster than links between devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hloom.analysis.purity import is_pure
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.ir.sharding_rule import Factor
from hloom.ir.traits import Family
from hloom.operations.gather_scatter import Scatter
from hloom.operations.structure import Iota
from hloom.shape.shape import Shape
from hloom.sharding.planning.assignment import is_complete, is_divided, operand_tiling
from hloom.sharding.planning.decisions import Cut
from hloom.sharding.tiling.tiling import Tiling

DEEPEST: Final = 8
"""The most operations that are recomputed one after the other."""
_FAMILIES: Final = (Family.ELEMENTWISE, Family.MOVEMENT)


@dataclass(frozen=True, slots=True)
class Origin:
    """The operation on whole arrays that a value is the result of.

    Attributes:
        operation: the operation.
        computations: those that it calls.
        operands: the values that it takes.
        factors: its factors.
        shapes: the shapes of the whole operands.
        result: the shape of the whole result.
    """

    operation: Operation
    computations: tuple[HloComputation, ...]
    operands: tuple[HloInstruction, ...]
    factors: Sequence[Factor]
    shapes: tuple[Shape, ...]
    result: Shape

    def cuts(self, want: Tiling) -> list[Cut] | None:
        """Return the cuts of factors that give tiles of the result; None if tiles need halos or sums."""
        found: list[Cut] = []
        for d, tiles in enumerate(want.tiles):
            if tiles == 1:
                continue
            cut = want.select([d])
            plain = [f for f in self.factors if f.result == d and f.kind == "plain"]
            if not plain or not is_divided(plain[0], cut, self.shapes, self.result):
                return None
            found.append((plain[0], cut))
        return found if is_complete([cut for _, cut in found]) or not found else None

    def needs(self, cuts: Sequence[Cut], devices: int) -> list[Tiling]:
        """Return the tiles of the operands that tiles of the result are computed from."""
        return [operand_tiling(cuts, number, shape, devices) for number, shape in enumerate(self.shapes)]


def is_cheap(i: HloInstruction) -> bool:
    """Return true if an operation makes an array of arrays in a constant time for each element."""
    arrays = i.shape.is_array and all(operand.shape.is_array for operand in i.operands)
    ordered = i.control_predecessors or i.control_successors
    cheap = i.operation.family in _FAMILIES or isinstance(i.operation, (Iota, Scatter))
    return arrays and cheap and not ordered and is_pure(i)
