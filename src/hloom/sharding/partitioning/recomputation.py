"""Recomputation: devices compute a tile in another tiling from its operands instead of receiving it.

A device with a full copy of ``x`` can compute any tile of ``-x``, and an all-gather of ``broadcast(x)`` sends
more than one of ``x``. Operations of constant cost per element are recomputed where that sends fewer bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hloom.analysis.purity import is_pure
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.ir.sharding_rule import Factor
from hloom.ir.traits import Family
from hloom.operations.gather_scatter import Scatter
from hloom.operations.structure import Iota
from hloom.records import dataclass
from hloom.shape.shape import Shape
from hloom.sharding.planning.assignment import is_divided, operand_tiling
from hloom.sharding.planning.decisions import ShardedFactor
from hloom.sharding.tiling.tiling import Tiling

DEEPEST: Final = 8
"""Maximum depth of recomputed operations."""
_FAMILIES: Final = (Family.ELEMENTWISE, Family.MOVEMENT)


@dataclass(frozen=True, slots=True)
class Origin:
    """The operation that computed an array; applied to resharded operands, it yields the array in any tiling.

    Attributes:
        operation: the operation, on global arrays.
        computations: the computations that it calls.
        operands: its operands in the partitioned program.
        factors: the factors of the operation: its indices, such as each dimension of an elementwise one.
        shapes, result: the global shapes of the operands and of the result.
    """

    operation: Operation
    computations: tuple[HloComputation, ...]
    operands: tuple[HloInstruction, ...]
    factors: Sequence[Factor]
    shapes: tuple[Shape, ...]
    result: Shape

    def sharded_factors(self, tiling: Tiling) -> list[ShardedFactor] | None:
        """Return the factors (indices of the operation) to shard so that the result gets the given tiling.

        Each comes with its tiling, of rank 1. Returns None if a halo exchange would be needed, or if the
        tiles in ``tiling`` are on unequal numbers of devices.
        """
        sharded: list[ShardedFactor] = []
        for d, tiles in enumerate(tiling.tiles):
            if tiles == 1:
                continue
            factor_tiling = tiling.select([d])
            factor = next((f for f in self.factors if f.result == d and f.kind == "plain"), None)
            if factor is None or not is_divided(factor, factor_tiling, self.shapes, self.result):
                return None
            sharded.append((factor, factor_tiling))
        return sharded if tiling.is_even else None

    def operand_tilings(self, sharded: Sequence[ShardedFactor], devices: int) -> list[Tiling]:
        """Return the tiling that each operand must have if the factors in ``sharded`` are sharded.

        Factors are indices of the operation, such as a batch dimension.
        """
        return [operand_tiling(sharded, number, shape, devices) for number, shape in enumerate(self.shapes)]


def is_cheap(i: HloInstruction) -> bool:
    """Return true if it is cheap to compute the array ``i`` again instead of resharding it.

    Its operation must be elementwise, data movement, iota or scatter, without side effects.
    """
    arrays = i.shape.is_array and all(operand.shape.is_array for operand in i.operands)
    ordered = i.control_predecessors or i.control_successors
    cheap = i.operation.family in _FAMILIES or isinstance(i.operation, (Iota, Scatter))
    return arrays and cheap and not ordered and is_pure(i)
