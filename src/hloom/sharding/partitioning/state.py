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
    """Return the coordinates in which the devices of a group must agree: those of all manual regions."""
    return tuple(coordinate for coordinates in region for coordinate in coordinates)


@dataclass(slots=True)
class ShardedValue:
    """The value of an instruction of the partitioned program.

    Attributes:
        shape: the global shape.
        tilings: the tilings of the leaves.
        region: the manual regions around the value.
        decisions: the decisions about the value.
        copies: the instructions that hold this array in any tiling; the copies share the list.
        origin: the operation that recomputes the array in other tilings; None if that is not cheap.
    """

    shape: Shape
    tilings: Tilings
    region: Region
    decisions: Decisions
    copies: list[HloInstruction] = field(default_factory=list[HloInstruction])
    origin: Origin | None = None

    @property
    def tiling(self) -> Tiling:
        """The tiling of an array or token."""
        assert isinstance(self.tilings, Tiling)
        return self.tilings

    @property
    def fixed(self) -> tuple[Coordinate, ...]:
        """The coordinates in which the devices of a group must agree."""
        return fixed_coordinates(self.region)


class PartitionState:
    """A program during its partitioning.

    Attributes:
        module: the program, rewritten in place.
        devices: the number of devices.
        annotations: the sharding annotations.
        propagation: the propagated tilings.
        required: the tilings that instructions must have; an instruction without entry may have any.
        collectives: the writer of collectives.
        resharder: the writer of resharding plans.
        values: the values of the rewritten instructions.
    """

    def __init__(self, module: HloModule, devices: int) -> None:
        self.module = module
        self.devices = devices
        self.annotations = Annotations(module, devices)
        self.propagation, members = propagated(module, self.annotations)
        required = {i: self._required(i, i in members) for i in self.propagation.flow.instructions}
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
        """Record the value of an instruction that computes tiles; return the instruction.

        Args:
            i: the instruction.
            shape: the global shape.
            tilings: the tilings of the leaves.
            region: the manual regions around the value.
            decisions: the decisions about the value; by default they only state the tilings.
            is_annotated: the program states the tilings.
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
        """Give an instruction of global shape the shape of a tile, and record its value; see `add`."""
        shape = i.shape
        i.shape = local_shape(shape, tilings)
        i.sharding = None
        self.add(i, shape, tilings, region, decisions, is_annotated)

    def _required(self, i: HloInstruction, is_grouped: bool) -> Tilings | None:
        """Return the tilings that an instruction must have; None if it may have any.

        Arrays with open dimensions and members of sharding groups must have their propagated tilings.
        """
        tiling = self.propagation.tiling(i)
        if open_dimensions := self.annotations.open_dimensions(i):
            free = tiling is not None and tiling.is_replicated and len(open_dimensions) == len(tiling.tiles)
            return None if free else tiling
        return tiling if is_grouped and tiling is not None else self.annotations.tilings(i)

    def replicated(self, shape: Shape) -> Tilings:
        """Return replicated tilings for the leaves of a shape."""
        return for_each_leaf(shape, lambda leaf: Tiling.replicated(rank_of(leaf), self.devices))

    def replicated_if_uneven(self, shape: Shape, tilings: Tilings) -> Tilings:
        """Replace the tilings of arrays that their tiles do not divide evenly by replicated ones."""
        if not isinstance(tilings, Tiling):
            pairs = zip(shape.tuple_shapes, tilings, strict=True)
            return tuple(self.replicated_if_uneven(part, tiling) for part, tiling in pairs)
        dimensions = shape.dimensions if shape.is_array else ()
        uneven = any(extent % tiles for extent, tiles in zip(dimensions, tilings.tiles, strict=False))
        return self.replicated(shape) if uneven else tilings


def local_shape(shape: Shape, tilings: Tilings) -> Shape:
    """Return the shape of a device's tile of a global shape, or of its tuple of tiles."""
    if not isinstance(tilings, Tiling):
        pairs = zip(shape.tuple_shapes, tilings, strict=True)
        return Shape.tuple_([local_shape(part, tiling) for part, tiling in pairs])
    if not shape.is_array or tilings.is_replicated:
        return shape
    return Shape(shape.element_type, tilings.local(shape.dimensions))


def undecided(i: HloInstruction, shape: Shape, tilings: Tilings, is_annotated: bool = False) -> Decisions:
    """Return decisions about the leaves of an instruction that only state the tilings."""
    if isinstance(tilings, Tiling):
        return Decision(i, shape, tilings, is_annotated)
    pairs = zip(shape.tuple_shapes, tilings, strict=True)
    return tuple(undecided(i, part, tiling, is_annotated) for part, tiling in pairs)
