"""Sharding propagation: infer the tilings of all values from the annotations of some.

Shardings propagate along the factors of operations, forward and backward, to a fixed point: first through
elementwise operations, which never need resharding, then through all operations. All arrays of a value class
(`value_classes.py`) have one tiling.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from hloom.ir.instruction import HloInstruction
from hloom.ir.sharding_rule import Factor
from hloom.operations.structure import Parameter
from hloom.records import dataclass
from hloom.sharding.planning.decisions import PropagationStep, PropagationTrace
from hloom.sharding.planning.value_classes import Leaf, ValueClasses
from hloom.sharding.tiling.coordinates import Coordinate, are_independent
from hloom.sharding.tiling.tiling import Tiling

_MOST_PASSES: Final = 16

_ArrayDimension: TypeAlias = "tuple[Leaf, tuple[int, ...], int]"
"""The value class of an array, its dimensions, and the number of one dimension."""
_FactorDimensions: TypeAlias = "tuple[int, list[_ArrayDimension]]"
"""The size of a factor, and the array dimensions that it indexes."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A tiling that an annotation of the program states.

    Attributes:
        leaf: the annotated array: an instruction, and the shape index in its value.
        tiling: the annotated tiling.
        open: the dimensions that propagation may shard further.
    """

    leaf: Leaf
    tiling: Tiling
    open: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Border:
    """The border of a manual region: a call that converts global arrays to tiles, or tiles to global arrays.

    A manual region is code on local shapes, as in ``shard_map``.

    Attributes:
        enters: True if arrays enter the region (global to tiles), False if they leave it.
        manual: for each operand of the call, its tiling outside the region, restricted to the manual axes.
        coordinates: for each manual axis, the index of each device along it; no array inside the region is
            sharded over these axes.
    """

    enters: bool
    manual: tuple[Tiling, ...]
    coordinates: tuple[Coordinate, ...]


class Propagation:
    """The result of sharding propagation: tilings inferred from annotations.

    Attributes:
        value_classes: the program's value classes, sets of arrays that must share one tiling.
        devices: the number of devices.
        tilings: the tiling of each value class that is annotated or sharded, by its representative.
        factors: the factors of each instruction: indices, such as a contracting dimension, with the
            dimensions of operands and results that they index.
        trace: the propagation steps that led to the tilings.
    """

    def __init__(
        self,
        value_classes: ValueClasses,
        annotated: Iterable[Statement],
        borders: Mapping[HloInstruction, Border],
        devices: int,
    ) -> None:
        """Propagate annotated tilings through the program to a fixed point.

        Args:
            value_classes: the sets of arrays that must share one tiling.
            annotated: the annotated tilings; only their open dimensions may be sharded further. If several
                are about arrays that must share one tiling, the first counts.
            borders: the calls that enter or leave manual regions (bodies of ``shard_map``). An array that
                enters one without annotation gets the tiling along the manual axes, and propagation may shard
                its other dimensions.
            devices: the number of devices.
        """
        self.value_classes = value_classes
        self._borders = borders
        self.devices = devices
        self.tilings: dict[Leaf, Tiling] = {}
        self.trace = PropagationTrace(value_classes)
        self._closed: dict[Leaf, Collection[int]] = {}
        for statement in annotated:
            i, index = statement.leaf
            leaf = value_classes.class_of(i, index)
            if leaf not in self.tilings:
                self.tilings[leaf], self.trace.annotated[leaf] = statement.tiling, i
                self._closed[leaf] = set(range(len(statement.tiling.tiles))) - statement.open
        entering = [(call, border) for call, border in borders.items() if border.enters]
        for call, border in entering:
            for i, tiling in zip(call.operands, border.manual, strict=True):
                if i.shape.is_array:
                    self.tilings.setdefault(value_classes.class_of(i), tiling)
                    self.trace.annotated.setdefault(value_classes.class_of(i), i)
        self.factors: dict[HloInstruction, list[Factor]] = {
            i: i.operation.sharding_rule(i, [o.shape for o in i.operands]) for i in value_classes.instructions
        }
        self._propagate()

    def tiling(self, i: HloInstruction, index: tuple[int, ...] = ()) -> Tiling | None:
        """Return the tiling of an array after propagation; None if it is neither annotated nor sharded.

        The array is the value of ``i`` or, if that is a tuple, its element at the shape index ``index``.
        """
        return self.tilings.get(self.value_classes.class_of(i, index))

    def _propagate(self) -> None:
        every = [
            (i, factors) for i in self.value_classes.instructions if (factors := self._factor_dimensions(i))
        ]
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
        """Return, for each factor of an instruction, its size and the array dimensions that it indexes.

        A factor is an index of the operation, such as a batch or contracting dimension. Dimensions of results
        precede those of operands. Returns an empty list for a parameter, or if an operand is not an array.
        """
        if i in self._borders:
            return self._border_dimensions(i, self._borders[i])
        if isinstance(i.operation, Parameter) or not all(o.shape.is_array for o in i.operands):
            return []
        results = [
            (self.value_classes.class_of(i, index), leaf.dimensions)
            for index, leaf in i.shape.leaves()
            if leaf.is_array
        ]
        operands = [(self.value_classes.class_of(o), o.shape.dimensions) for o in i.operands]
        factors: list[_FactorDimensions] = []
        for factor in self.factors[i]:
            d = factor.result
            indexed = [] if d is None else [(*result, d) for result in results if d < len(result[1])]
            indexed += [(*operands[number], d) for number, d in factor.operands.items()]
            factors.append((factor.size, indexed))
        return factors

    def _border_dimensions(self, i: HloInstruction, border: Border) -> list[_FactorDimensions]:
        """Return which dimensions of results and operands of ``i`` correspond.

        ``i`` enters or leaves a manual region (the body of ``shard_map``). Returns (extent, [dimension of the
        result, dimension of the operand]) for each dimension of each array that enters or leaves. Dimensions
        that manual axes shard are left out, as the two extents differ.
        """
        factors: list[_FactorDimensions] = []
        for operand, (index, result), manual in zip(i.operands, i.shape.leaves(), border.manual, strict=True):
            if not result.is_array:
                continue
            for d, size in enumerate(result.dimensions):
                if not manual.is_sharded(d):
                    outer = (self.value_classes.class_of(operand), operand.shape.dimensions, d)
                    inner = (self.value_classes.class_of(i, index), result.dimensions, d)
                    factors.append((size, [inner, outer]))
        return factors

    def _crosses(self, i: HloInstruction, tiling: Tiling) -> bool:
        """Return true if propagation may carry ``tiling``, of one dimension, through ``i``.

        False only if ``i`` enters or leaves a manual region, and the tiling is over the region's manual axes.
        """
        border = self._borders.get(i)
        return border is None or are_independent([*border.coordinates, tiling.coordinates[0]])

    def _propagate_through(
        self, i: HloInstruction, factors: Sequence[_FactorDimensions], elementwise: bool
    ) -> bool:
        """For each index (factor) of ``i``, shard all dimensions that it indexes like the first sharded one.

        Returns true if the tiling of any array changed. ``factors`` has the dimensions that each factor
        indexes. ``elementwise`` is True in the first pass, over elementwise operations only; it is recorded.
        """
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
        """Return the first of the given array dimensions that is sharded, as (array, dimension number).

        The array stands for all arrays that must share its tiling. Returns None if no dimension is sharded.
        """
        for leaf, _, d in indexed:
            tiling = self.tilings.get(leaf)
            if tiling is not None and d < len(tiling.tiles) and tiling.is_sharded(d):
                return leaf, d
        return None

    def _shard(self, leaf: Leaf, dimensions: tuple[int, ...], d: int, tiling: Tiling) -> bool:
        """Shard dimension ``d`` of ``leaf``, and of all arrays that must share its tiling, by ``tiling``.

        ``tiling`` is of rank 1. Does nothing unless the dimension is replicated and no annotation fixes it,
        ``tiling`` divides it evenly, and each tile is on equally many devices afterwards. Returns true if it
        sharded the dimension. ``dimensions`` are the global dimensions of the array.
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
