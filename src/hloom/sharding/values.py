"""Values of a program that is being partitioned: their tiles, and their forms in other tilings."""

from __future__ import annotations

from typing import cast

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.movement import Broadcast
from hloom.operations.structure import GetTupleElement, Tuple
from hloom.passes.writing import Writer
from hloom.shape.shape import Shape
from hloom.sharding import plans
from hloom.sharding.annotations import Tilings, for_each_leaf, rank_of
from hloom.sharding.decisions import Cause, Decided, Decision, Purpose
from hloom.sharding.resharding import Region, Resharder, fixed
from hloom.sharding.tiling import Tiling


class Values:
    """The values of rewritten instructions.

    Attributes:
        devices: the number of devices.
        resharder: writes collectives and slices.
        tilings: how the value of each rewritten instruction is cut.
        whole: the shapes of the whole values.
        regions: the manual regions that the values belong to.
        decided: how the value of each rewritten instruction came to be cut.
        forms: the instructions that hold the same array in several tilings, for each of them.
    """

    def __init__(self, module: HloModule, devices: int) -> None:
        self.devices = devices
        self.resharder = Resharder(module)
        self.tilings: dict[HloInstruction, Tilings] = {}
        self.whole: dict[HloInstruction, Shape] = {}
        self.regions: dict[HloInstruction, Region] = {}
        self.decided: dict[HloInstruction, Decided] = {}
        self.forms: dict[HloInstruction, list[HloInstruction]] = {}

    def keep(
        self,
        i: HloInstruction,
        tilings: Tilings,
        region: Region,
        decided: Decided | None = None,
        is_stated: bool = False,
    ) -> None:
        """Record how the value of an instruction is cut, and give it the shape of a tile."""
        i.shape = local_shape(self.whole[i], tilings)
        i.sharding = None
        self.made(i, self.whole[i], tilings, region, decided, is_stated)

    def made(
        self,
        i: HloInstruction,
        whole: Shape,
        tilings: Tilings,
        region: Region,
        decided: Decided | None = None,
        is_stated: bool = False,
    ) -> HloInstruction:
        """Record a new instruction; without a decision one that only states the tiling."""
        self.whole[i], self.tilings[i], self.regions[i] = whole, tilings, region
        self.decided[i] = decided if decided is not None else plain(i, whole, tilings, is_stated)
        return i

    def uncut(self, shape: Shape) -> Tilings:
        """Return the tilings of a value that every device has whole."""
        return for_each_leaf(shape, lambda leaf: Tiling.replicated(rank_of(leaf), self.devices))

    def even(self, shape: Shape, tilings: Tilings) -> Tilings:
        """Return tilings, but whole arrays in the place of tiles that do not divide them evenly."""
        if not isinstance(tilings, Tiling):
            pairs = zip(shape.tuple_shapes, tilings, strict=True)
            return tuple(self.even(part, tiling) for part, tiling in pairs)
        dimensions = shape.dimensions if shape.is_array else ()
        uneven = any(extent % tiles for extent, tiles in zip(dimensions, tilings.tiles, strict=False))
        return self.uncut(shape) if uneven else tilings

    def fitted(self, value: HloInstruction, wanted: Tilings, purpose: Purpose) -> HloInstruction:
        """Return a value in other tilings."""
        have = self.tilings[value]
        if have == wanted:
            return value
        whole, region = self.whole[value], self.regions[value]
        writer = Writer(value)
        if isinstance(have, Tiling) and isinstance(wanted, Tiling):
            return self._form(value, wanted, purpose) if whole.is_array else value
        decided = cast("tuple[Decided, ...]", self.decided[value])
        parts: list[HloInstruction] = []
        pairs = zip(cast("tuple[Tilings, ...]", have), cast("tuple[Tilings, ...]", wanted), strict=True)
        for number, (old, new) in enumerate(pairs):
            if isinstance(value.operation, Tuple):
                part = value.operands[number]
            else:
                shape = value.shape.tuple_shapes[number]
                part = writer.op(GetTupleElement(index=number), value, shape=shape)
                self.made(part, whole.tuple_shapes[number], old, region, decided[number])
            parts.append(self.fitted(part, new, purpose))
        made = writer.op(Tuple(), *parts, shape=Shape.tuple_([part.shape for part in parts]))
        return self.made(made, whole, wanted, region, decided)

    def _form(self, value: HloInstruction, wanted: Tiling, purpose: Purpose) -> HloInstruction:
        """Return an array in another tiling, made from the nearest of those in which it is there already."""
        whole, region = self.whole[value], self.regions[value]
        forms = self.forms.setdefault(value, [value])
        made = next((form for form in forms if self.tilings[form] == wanted), None)
        if made is not None:
            return made
        if wanted.summands is None and self._is_filled(value):
            made = Writer(value).broadcast(value.operands[0], wanted.local(whole.dimensions))
        else:
            tilings = [cast("Tiling", self.tilings[form]) for form in forms]
            sent = [plans.sent(whole.dimensions, have, wanted, fixed(region)) for have in tilings]
            nearest = sent.index(min(sent))
            source = forms[nearest]
            cause = Cause(purpose, self.decided[value], tilings[nearest], wanted)
            with self.resharder.because(cause):
                made = self.resharder.reshard(source, whole, tilings[nearest], wanted, region)
            if made is source:
                return source
        forms.append(made)
        self.forms[made] = forms
        return self.made(made, whole, wanted, region, self.decided[value])

    def _is_filled(self, value: HloInstruction) -> bool:
        """Return true if all elements are one scalar, which every device has."""
        if not isinstance(value.operation, Broadcast) or value.operands[0].shape.rank:
            return False
        scalar, own = self.tilings[value.operands[0]], self.tilings[value]
        if isinstance(own, Tiling) and own.summands is not None:
            return False
        return isinstance(scalar, Tiling) and scalar.is_replicated


def local_shape(shape: Shape, tilings: Tilings) -> Shape:
    """Return the shape of a tile, or of the tuple of tiles."""
    if not isinstance(tilings, Tiling):
        pairs = zip(shape.tuple_shapes, tilings, strict=True)
        return Shape.tuple_([local_shape(part, tiling) for part, tiling in pairs])
    if not shape.is_array or tilings.is_replicated:
        return shape
    return Shape(shape.element_type, tilings.local(shape.dimensions))


def plain(i: HloInstruction, whole: Shape, tilings: Tilings, is_stated: bool) -> Decided:
    """Return the decision about a value whose tiling is given."""
    if isinstance(tilings, Tiling):
        return Decision(i, whole, tilings, is_stated)
    pairs = zip(whole.tuple_shapes, tilings, strict=True)
    return tuple(plain(i, shape, part, is_stated) for shape, part in pairs)
