"""Sharding propagation: infer the tilings of all values from the annotations of some.

Shardings propagate along the factors of operations, forward and backward, to a fixed point: first through
elementwise operations, which never need resharding, then through all operations. All arrays of a value class
(`flow.py`) have one tiling.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from hloom.ir.instruction import HloInstruction
from hloom.ir.sharding_rule import Factor
from hloom.operations.structure import Parameter
from hloom.records import dataclass
from hloom.sharding.planning.decisions import PropagationStep, PropagationTrace
from hloom.sharding.planning.flow import Flow, Leaf
from hloom.sharding.tiling.coordinates import Coordinate, are_independent
from hloom.sharding.tiling.tiling import Tiling

_MOST_PASSES: Final = 16

_ArrayDimension: TypeAlias = "tuple[Leaf, tuple[int, ...], int]"
"""The value class of an array, its dimensions, and the number of one dimension."""
_FactorDimensions: TypeAlias = "tuple[int, list[_ArrayDimension]]"
"""The size of a factor, and the array dimensions that it indexes."""


@dataclass(frozen=True, slots=True)
class Statement:
    """An annotated tiling.

    Attributes:
        leaf: the annotated array.
        tiling: the tiling.
        open: the dimensions that propagation may shard further.
    """

    leaf: Leaf
    tiling: Tiling
    open: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Border:
    """The border of a manual region: a call that converts global arrays to tiles, or tiles to global arrays.

    Attributes:
        enters: arrays enter the region; otherwise they leave it.
        manual: the tiling of each array outside of the region, restricted to the manual axes.
        coordinates: the device coordinate along each manual axis; no array inside is sharded over these axes.
    """

    enters: bool
    manual: tuple[Tiling, ...]
    coordinates: tuple[Coordinate, ...]


class Propagation:
    """The propagated tilings of a program.

    Attributes:
        flow: the value classes.
        tilings: the tiling of each value class that is annotated or sharded.
        factors: the factors of each instruction.
        trace: the propagation steps.
    """

    def __init__(
        self,
        flow: Flow,
        annotated: Iterable[Statement],
        borders: Mapping[HloInstruction, Border],
        devices: int,
    ) -> None:
        """Propagate tilings.

        Args:
            flow: the value classes.
            annotated: the annotated tilings, final except in open dimensions; the first one of a class
                counts.
            borders: the borders of manual regions, by call; an array that enters a region without annotation
                gets the tiling along the manual axes, and propagation may shard its other dimensions.
            devices: the number of devices.
        """
        self.flow = flow
        self._borders = borders
        self.devices = devices
        self.tilings: dict[Leaf, Tiling] = {}
        self.trace = PropagationTrace(flow)
        self._closed: dict[Leaf, Collection[int]] = {}
        for statement in annotated:
            i, index = statement.leaf
            leaf = flow.class_of(i, index)
            if leaf not in self.tilings:
                self.tilings[leaf], self.trace.annotated[leaf] = statement.tiling, i
                self._closed[leaf] = set(range(len(statement.tiling.tiles))) - statement.open
        entering = [(call, border) for call, border in borders.items() if border.enters]
        for call, border in entering:
            for i, tiling in zip(call.operands, border.manual, strict=True):
                if i.shape.is_array:
                    self.tilings.setdefault(flow.class_of(i), tiling)
                    self.trace.annotated.setdefault(flow.class_of(i), i)
        self.factors: dict[HloInstruction, list[Factor]] = {
            i: i.operation.sharding_rule(i, [o.shape for o in i.operands]) for i in flow.instructions
        }
        self._propagate()

    def tiling(self, i: HloInstruction, index: tuple[int, ...] = ()) -> Tiling | None:
        """Return the tiling of an array; None if it is neither annotated nor sharded."""
        return self.tilings.get(self.flow.class_of(i, index))

    def _propagate(self) -> None:
        every = [(i, factors) for i in self.flow.instructions if (factors := self._factor_dimensions(i))]
        for elementwise in (True, False):
            selected = [
                (i, factors)
                for i, factors in every
                if not elementwise or i.operation.elementwise or i.opcode == "copy"
            ]
            for _ in range(_MOST_PASSES):
                forward = [self._propagate_through(i, factors, elementwise) for i, factors in selected]
                backward = [
                    self._propagate_through(i, factors, elementwise) for i, factors in reversed(selected)
                ]
                if not any(forward) and not any(backward):
                    break

    def _factor_dimensions(self, i: HloInstruction) -> list[_FactorDimensions]:
        """Return the array dimensions that each factor of an instruction indexes, results first."""
        if i in self._borders:
            return self._border_dimensions(i, self._borders[i])
        if isinstance(i.operation, Parameter) or not all(o.shape.is_array for o in i.operands):
            return []
        results = [
            (self.flow.class_of(i, index), leaf.dimensions)
            for index, leaf in i.shape.leaves()
            if leaf.is_array
        ]
        operands = [(self.flow.class_of(o), o.shape.dimensions) for o in i.operands]
        factors: list[_FactorDimensions] = []
        for factor in self.factors[i]:
            d = factor.result
            indexed = [] if d is None else [(*result, d) for result in results if d < len(result[1])]
            indexed += [(*operands[number], d) for number, d in factor.operands.items()]
            factors.append((factor.size, indexed))
        return factors

    def _border_dimensions(self, i: HloInstruction, border: Border) -> list[_FactorDimensions]:
        """Return a factor for each dimension of the arrays that enter or leave a manual region.

        Dimensions that manual axes shard have none, as their size differs between both sides.
        """
        factors: list[_FactorDimensions] = []
        for operand, (index, result), manual in zip(i.operands, i.shape.leaves(), border.manual, strict=True):
            if not result.is_array:
                continue
            for d, size in enumerate(result.dimensions):
                if not manual.is_sharded(d):
                    outer = (self.flow.class_of(operand), operand.shape.dimensions, d)
                    factors.append((size, [(self.flow.class_of(i, index), result.dimensions, d), outer]))
        return factors

    def _crosses(self, i: HloInstruction, tiling: Tiling) -> bool:
        """Return true if a tiling may propagate through an instruction.

        At the border of a manual region it must not use the region's manual axes.
        """
        border = self._borders.get(i)
        return border is None or are_independent([*border.coordinates, tiling.coordinates[0]])

    def _propagate_through(
        self, i: HloInstruction, factors: Sequence[_FactorDimensions], elementwise: bool
    ) -> bool:
        """Propagate along the factors of an instruction; return true if any array changed."""
        changed = False
        for size, indexed in factors:
            source = self._first_sharded(indexed)
            if source is None:
                continue
            tiling = self.tilings[source[0]].select([source[1]])
            if size % tiling.tiles[0] == 0 and self._crosses(i, tiling):
                for leaf, dimensions, d in indexed:
                    if self._shard(leaf, dimensions, d, tiling):
                        self.trace.last[leaf, d] = PropagationStep(i, *source, elementwise)
                        changed = True
        return changed

    def _first_sharded(self, indexed: Sequence[_ArrayDimension]) -> tuple[Leaf, int] | None:
        """Return the first array dimension that is sharded, as value class and dimension number, or None."""
        for leaf, _, d in indexed:
            tiling = self.tilings.get(leaf)
            if tiling is not None and d < len(tiling.tiles) and tiling.is_sharded(d):
                return leaf, d
        return None

    def _shard(self, leaf: Leaf, dimensions: tuple[int, ...], d: int, tiling: Tiling) -> bool:
        """Shard an open, replicated dimension of a value class if each tile stays on equally many devices.

        Returns true if it did. ``dimensions`` are the global dimensions of the arrays, ``tiling`` is of rank
        1.
        """
        if d in self._closed.get(leaf, ()) or dimensions[d] % tiling.tiles[0]:
            return False
        current = self.tilings.get(leaf) or Tiling.replicated(len(dimensions), self.devices)
        if current.is_sharded(d):
            return False
        sharded = current.replaced(d, tiling)
        if not sharded.is_even:
            return False
        self.tilings[leaf] = sharded
        return True
