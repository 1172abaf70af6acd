"""The state of a partitioning: tilings, copies, regions and decisions of rewritten instructions."""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.records import dataclass
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.collectives import CollectiveWriter
from hloom.sharding.partitioning.recomputation import Origin
from hloom.sharding.partitioning.resharding_steps import Resharder
from hloom.sharding.planning.decisions import Decision, Decisions
from hloom.sharding.reading.annotations import Annotations, Tilings, for_each_leaf, propagated, rank_of
from hloom.sharding.tiling.coordinates import Coordinate
from hloom.sharding.tiling.tiling import Tiling

Region: TypeAlias = "tuple[tuple[Coordinate, ...], ...]"
"""The manual regions around a value, outermost first: the device coordinates along the axes of each."""


def fixed_coordinates(region: Region) -> tuple[Coordinate, ...]:
    """Return, for each manual axis of the manual regions in ``region``, the index of each device along it.

    Manual regions are code on local shapes, as in ``shard_map``. In them the partitioner must not let devices
    with different indices exchange data.
    """
    return tuple(coordinate for coordinates in region for coordinate in coordinates)


@dataclass(slots=True)
class ShardedValue:
    """The sharding of the value of an instruction of the partitioned program, which computes tiles.

    Attributes:
        shape: the global shape.
        tilings: the tilings of the leaves, nested like the shape.
        region: the manual regions around the value, outermost first.
        decisions: how the value is sharded, and why.
        copies: the instructions that hold tiles of the same array, in any tiling; all copies of an array
            refer to the same list.
        origin: the operation from whose operands the array can be recomputed in any tiling; None if that is
            not cheap.
    """

    shape: Shape
    tilings: Tilings
    region: Region
    decisions: Decisions
    copies: list[HloInstruction] = field(default_factory=list[HloInstruction])
    origin: Origin | None = None

    @property
    def tiling(self) -> Tiling:
        """The tiling of the value, which must be an array or token."""
        assert isinstance(self.tilings, Tiling)
        return self.tilings

    @property
    def fixed(self) -> tuple[Coordinate, ...]:
        """Coordinates (one index per device): devices with different indices must not exchange this value."""
        return fixed_coordinates(self.region)


class PartitionState:
    """A program while it is rewritten to compute tiles, with the sharding of each rewritten value.

    Attributes:
        module: the program, rewritten in place.
        devices: the number of devices.
        annotations: the sharding annotations of the program.
        propagation: the tilings that propagation inferred.
        required: the tilings that instructions must have; an instruction without entry may have any.
        collectives: emits the collectives.
        resharder: emits the instructions that reshard arrays.
        values: the sharding of the value of each rewritten instruction.
    """

    def __init__(self, module: HloModule, devices: int) -> None:
        self.module = module
        self.devices = devices
        self.annotations = Annotations(module, devices)
        self.propagation, members = propagated(module, self.annotations)
        required = {i: self._required(i, i in members) for i in self.propagation.value_classes.instructions}
        self.required = {i: tilings for i, tilings in required.items() if tilings is not None}
        self.collectives = CollectiveWriter(module)
        self.resharder = Resharder(self.collectives)
        self.values: dict[HloInstruction, ShardedValue] = {}

    def add(
        self,
        i: HloInstruction,
        shape: Shape,
        tilings: Tilings,
        region: Region,
        decisions: Decisions | None = None,
        is_annotated: bool = False,
    ) -> HloInstruction:
        """Record the sharding of an instruction that computes tiles already; return the instruction.

        Args:
            i: the instruction.
            shape: the global shape of its value.
            tilings: the tilings of the leaves, nested like the shape.
            region: the manual regions around the value.
            decisions: how the value is sharded, and why; None to record the tilings without reasons.
            is_annotated: True if the program states the tilings.
        """
        decisions = decisions if decisions is not None else undecided(i, shape, tilings, is_annotated)
        self.values[i] = ShardedValue(shape, tilings, region, decisions, [i])
        return i

    def rewrite(
        self,
        i: HloInstruction,
        tilings: Tilings,
        region: Region,
        decisions: Decisions | None = None,
        is_annotated: bool = False,
    ) -> None:
        """Change the shape of an instruction from global to that of a tile, and record its sharding.

        ``tilings`` are those of the leaves of its value, nested like the shape; ``region`` has the manual
        regions around it. ``decisions`` state why it is sharded so; None to record the tilings without
        reasons. ``is_annotated`` is true if the program states the tilings.
        """
        shape = i.shape
        i.shape = local_shape(shape, tilings)
        i.sharding = None
        self.add(i, shape, tilings, region, decisions, is_annotated)

    def _required(self, i: HloInstruction, is_grouped: bool) -> Tilings | None:
        """Return the tilings that an instruction must have; None if it may have any.

        Arrays whose annotation leaves dimensions open, and members of sharding groups (``is_grouped``), must
        have their propagated tilings; other instructions their annotated ones.
        """
        tiling = self.propagation.tiling(i)
        if open_dimensions := self.annotations.open_dimensions(i):
            free = tiling is not None and tiling.is_replicated and len(open_dimensions) == len(tiling.tiles)
            return None if free else tiling
        return tiling if is_grouped and tiling is not None else self.annotations.tilings(i)

    def replicated(self, shape: Shape) -> Tilings:
        """Return replicated tilings for the leaves of a shape, nested like the shape."""
        return for_each_leaf(shape, lambda leaf: Tiling.replicated(rank_of(leaf), self.devices))

    def replicated_if_uneven(self, shape: Shape, tilings: Tilings) -> Tilings:
        """Return ``tilings``, with those that do not divide their arrays evenly replaced by replicated ones.

        ``shape`` is the global shape; ``tilings`` are nested like it.
        """
        if not isinstance(tilings, Tiling):
            pairs = zip(shape.tuple_shapes, tilings, strict=True)
            return tuple(self.replicated_if_uneven(part, tiling) for part, tiling in pairs)
        dimensions = shape.dimensions if shape.is_array else ()
        uneven = any(extent % tiles for extent, tiles in zip(dimensions, tilings.tiles, strict=False))
        return self.replicated(shape) if uneven else tilings


def local_shape(shape: Shape, tilings: Tilings) -> Shape:
    """Return the shape of what a device holds of a value: a tile or, for a tuple, a tuple of tiles.

    ``shape`` is the global shape; ``tilings`` are nested like it.
    """
    if not isinstance(tilings, Tiling):
        pairs = zip(shape.tuple_shapes, tilings, strict=True)
        return Shape.tuple_([local_shape(part, tiling) for part, tiling in pairs])
    if not shape.is_array or tilings.is_replicated:
        return shape
    return Shape(shape.element_type, tilings.local(shape.dimensions))


def undecided(i: HloInstruction, shape: Shape, tilings: Tilings, is_annotated: bool = False) -> Decisions:
    """Return records that state the tilings of a value without reasons for them, nested like the shape.

    Used for values whose sharding the partitioner did not choose by cost.
    """
    if isinstance(tilings, Tiling):
        return Decision(i, shape, tilings, is_annotated)
    pairs = zip(shape.tuple_shapes, tilings, strict=True)
    return tuple(undecided(i, part, tiling, is_annotated) for part, tiling in pairs)
