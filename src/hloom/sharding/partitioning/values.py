"""Values of a program that is being partitioned: their tiles, and their forms in other tilings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.sharding_rule import Factor
from hloom.operations.structure import GetTupleElement, Tuple
from hloom.passes.writing import Writer
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.communication import Region, fixed
from hloom.sharding.partitioning.local_operations import Place, localized
from hloom.sharding.partitioning.recomputation import DEEPEST, Origin, is_cheap
from hloom.sharding.partitioning.resharding import Resharder
from hloom.sharding.planning import plans
from hloom.sharding.planning.decisions import Cause, Decided, Decision, Purpose
from hloom.sharding.reading.annotations import Tilings, for_each_leaf, rank_of
from hloom.sharding.tiling.tiling import Tiling


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
        origins: the operations of values that may be recomputed in other tilings.
    """

    def __init__(self, module: HloModule, devices: int) -> None:
        self.devices = devices
        self.resharder = Resharder(module)
        self.tilings: dict[HloInstruction, Tilings] = {}
        self.whole: dict[HloInstruction, Shape] = {}
        self.regions: dict[HloInstruction, Region] = {}
        self.decided: dict[HloInstruction, Decided] = {}
        self.forms: dict[HloInstruction, list[HloInstruction]] = {}
        self.origins: dict[HloInstruction, Origin] = {}

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
        tilings = [cast("Tiling", self.tilings[form]) for form in forms]
        sent = [plans.sent(whole.dimensions, have, wanted, fixed(region)) for have in tilings]
        nearest = sent.index(min(sent))
        source = forms[nearest]
        recomputed = self._recomputed(forms, wanted, sent[nearest] * whole.element_type.bits / 8, purpose)
        if recomputed is not None:
            made = recomputed
        else:
            cause = Cause(purpose, self.decided[value], tilings[nearest], wanted)
            with self.resharder.because(cause):
                made = self.resharder.reshard(source, whole, tilings[nearest], wanted, region)
            if made is source:
                return source
        forms.append(made)
        self.forms[made] = forms
        return self.made(made, whole, wanted, region, self.decided[value])

    # -- recomputation

    def origin(
        self, i: HloInstruction, factors: Sequence[Factor], shapes: Sequence[Shape], region: Region
    ) -> Origin | None:
        """Return what is needed to compute a value in other tilings; None if that is not cheap."""
        tiled = all(isinstance(t := self.tilings[o], Tiling) and t.summands is None for o in i.operands)
        if not tiled or not is_cheap(i) or any(self.regions[o] != region for o in i.operands):
            return None
        called, taken = tuple(i.called_computations), tuple(i.operands)
        return Origin(i.operation, called, taken, factors, tuple(shapes), self.whole[i])

    def bytes_to_fit(self, value: HloInstruction, wanted: Tiling, depth: int = DEEPEST) -> float:
        """Return the bytes that a device sends to have an array in another tiling."""
        whole = self.whole[value]
        region = fixed(self.regions[value])
        forms = self.forms.get(value, [value])
        tilings = [cast("Tiling", self.tilings[form]) for form in forms]
        sent = min(plans.sent(whole.dimensions, have, wanted, region) for have in tilings)
        amount = sent * whole.element_type.bits / 8
        found = self._recomputation(forms, wanted, amount, depth)
        return amount if found is None else found[1]

    def _recomputation(
        self, forms: Sequence[HloInstruction], wanted: Tiling, limit: float, depth: int
    ) -> tuple[Origin, float] | None:
        """Return how to compute an array in a tiling, with the bytes sent: fewer than the limit."""
        origin = next((found for form in forms if (found := self.origins.get(form)) is not None), None)
        if origin is None or limit == 0 or depth == 0 or wanted.summands is not None:
            return None
        cuts = origin.cuts(wanted)
        if cuts is None:
            return None
        amount = 0.0
        for operand, tiling in zip(origin.operands, origin.needs(cuts, self.devices), strict=True):
            amount += self.bytes_to_fit(operand, tiling, depth - 1)
            if amount >= limit:
                return None
        return origin, amount

    def _recomputed(
        self, forms: Sequence[HloInstruction], wanted: Tiling, limit: float, purpose: Purpose
    ) -> HloInstruction | None:
        """Return an array computed in a tiling; None if that sends no fewer bytes than a limit."""
        found = self._recomputation(forms, wanted, limit, DEEPEST)
        cuts = found[0].cuts(wanted) if found is not None else None
        if found is None or cuts is None:
            return None
        origin, _ = found
        needs = origin.needs(cuts, self.devices)
        operands = [self.fitted(o, tiling, purpose) for o, tiling in zip(origin.operands, needs, strict=True)]
        shape = local_shape(origin.result, wanted)
        writer = Writer(forms[0])
        made = writer.op(origin.operation, *operands, shape=shape, computations=origin.computations)
        if not cuts:
            return made
        place = Place(
            made, origin.shapes, origin.result, needs, wanted, cuts, self.resharder, self.regions[forms[0]]
        )
        return localized(place)


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


def redirect(
    old: HloInstruction, new: HloInstruction, users: Sequence[HloInstruction], is_root: bool
) -> None:
    """Let users of a value take another one; so does the computation if the value was its root."""
    computation = old.parent
    assert computation is not None
    for user in users:
        for number, operand in enumerate(user.operands):
            if operand is old:
                user.replace_operand(number, new)
    if is_root:
        computation.root = new
