"""The partitioner: rewrite a program on whole arrays into the one that each device runs on its tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from hloom.errors import HloError
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.sharding_rule import Factor
from hloom.operations.control_flow import Call, Conditional, While
from hloom.operations.custom_call import CustomCall, is_identity
from hloom.operations.movement import Broadcast
from hloom.operations.structure import GetTupleElement, OptimizationBarrier, Parameter, Tuple
from hloom.passes.expand.call_inliner import inline
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.passes.writing import Writer
from hloom.shape.shape import Shape
from hloom.sharding import plans
from hloom.sharding.annotations import (
    TO_GLOBAL,
    TO_LOCAL,
    Annotations,
    Tilings,
    for_each_leaf,
    leaves_of,
    rank_of,
)
from hloom.sharding.assignment import (
    Question,
    cheapest,
    joined,
    operand_tiling,
    product,
    result_tiling,
    scattered,
    summed_in,
)
from hloom.sharding.columns import Column
from hloom.sharding.custom_calls import (
    CALL_PARTITIONERS,
    TILEWISE,
    CallPartitioner,
    Cut,
    adopt,
    batch_factors,
    rule_of,
    with_local_operands,
)
from hloom.sharding.halos import masked
from hloom.sharding.local_operations import Place, localized
from hloom.sharding.one_device import device_of, run_on
from hloom.sharding.preparation import prepared, sharding_groups
from hloom.sharding.propagation import Propagation
from hloom.sharding.resharding import Region, Resharder, fixed
from hloom.sharding.tiling import Tiling

_TO_SHARD: Final = "SPMDFullToShardShape"
_TO_FULL: Final = "SPMDShardToFullShape"
"""Calls that enter and leave a region of tiles along all axes, as XLA writes it without Shardy."""


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A partitioned program.

    Attributes:
        module: the program of one device.
        parameters, results: the tilings of the leaves of the entry's parameters and of its result.
    """

    module: HloModule
    parameters: tuple[Tiling, ...]
    results: tuple[Tiling, ...]


def partition(module: HloModule, devices: int) -> Partitioned:
    """Return the program that each of some devices runs.

    Parameters are cut as their shardings say; the result as its sharding says, or else as it comes out.
    Operations are computed on tiles where the operands' tiles allow it, and on whole arrays elsewhere.
    Shardings that do not divide an array evenly are ignored. Raises HloError for what is not implemented.
    """
    copy = prepared(module)
    partitioner = _Partitioner(copy, devices)
    results = partitioner.entry()
    DeadCodeElimination().run(copy)
    config = copy.config
    config.entry_layout = None
    config.aliases, config.buffer_donors = {}, []
    config.num_partitions, config.replica_count = devices, 1
    parameters = [leaf for p in copy.entry.parameters for leaf in leaves_of(partitioner.tilings[p])]
    return Partitioned(copy, tuple(parameters), tuple(leaves_of(results)))


class _Partitioner:
    """The state of a partitioning.

    Attributes:
        tilings: how the value of each rewritten instruction is cut.
        whole: the shapes of the whole values.
        regions: the manual regions that the values belong to.
        forms: the instructions that hold the same array in several tilings, for each of them.
        hints: how arrays should be cut, by what the program states elsewhere.
        agreed: the tilings of the members of sharding groups.
        factors: the factors of operations, before operands are rewritten.
    """

    def __init__(self, module: HloModule, devices: int) -> None:
        self.module = module
        self.devices = devices
        self.annotations = Annotations(module, devices)
        self.resharder = Resharder(module)
        self.tilings: dict[HloInstruction, Tilings] = {}
        self.whole: dict[HloInstruction, Shape] = {}
        self.regions: dict[HloInstruction, Region] = {}
        self.forms: dict[HloInstruction, list[HloInstruction]] = {}
        self.hints: dict[HloInstruction, Tiling] = {}
        self.agreed: dict[HloInstruction, Tiling] = {}
        self.factors: dict[HloInstruction, list[Factor]] = {}

    def entry(self) -> Tilings:
        """Partition the entry computation; return the tilings of its result."""
        entry = self.module.entry
        parameters = [
            self._stated(p) or (None if self.annotations.is_open(number, p.shape) else self._uncut(p.shape))
            for number, p in enumerate(entry.parameters)
        ]
        wanted = self._stated(entry.root)
        self._computation(entry, parameters, [()] * len(parameters))
        if wanted is not None:
            entry.root = self._fitted(entry.root, wanted)
        return self.tilings[entry.root]

    def _computation(
        self, computation: HloComputation, parameters: Sequence[Tilings | None], regions: Sequence[Region]
    ) -> None:
        """Rewrite a computation whose parameters are cut in a given way; None leaves it to propagation."""
        groups = sharding_groups(computation)
        stated: dict[HloInstruction, Tiling] = {}
        for i in computation.post_order():
            if isinstance(i.operation, Parameter):
                tilings = parameters[i.operation.parameter_number]
            else:
                tilings = self._stated(i)
            if isinstance(tilings, Tiling) and i.shape.is_array:
                stated[i] = tilings
        wanted = self.annotations.wanted(computation)
        propagation = Propagation(computation, stated, self.devices, wanted, groups)
        self.hints.update(propagation.found)
        self.factors.update(propagation.factors)
        members = {i for group in groups for i in group}
        self.agreed.update((i, tiling) for i, tiling in propagation.found.items() if i in members)
        for i in computation.post_order():
            self.whole[i] = i.shape
            if isinstance(i.operation, Parameter):
                number = i.operation.parameter_number
                own = parameters[number]
                found = propagation.found.get(i, self._uncut(i.shape)) if own is None else own
                self._keep(i, found, regions[number])
            else:
                self._instruction(i)

    def _instruction(self, i: HloInstruction) -> None:
        operation = i.operation
        region: Region = max((self.regions[o] for o in i.operands), key=len, default=())
        match operation:
            case Tuple():
                self._keep(i, tuple(self.tilings[o] for o in i.operands), region)
            case GetTupleElement():
                of = cast("tuple[Tilings, ...]", self.tilings[i.operands[0]])
                self._keep(i, of[operation.index], region)
            case OptimizationBarrier():
                self._keep(i, self.tilings[i.operands[0]], region)
            case While():
                self._while(i, region)
            case Conditional():
                self._conditional(i, region)
            case CustomCall(custom_call_target=target) if target == TO_LOCAL:
                self._to_local(i, region)
            case CustomCall(custom_call_target=target) if target == TO_GLOBAL:
                self._to_global(i, region)
            case CustomCall(custom_call_target=target) if target in CALL_PARTITIONERS:
                self._custom_call(i, CALL_PARTITIONERS[target], region)
            case CustomCall(custom_call_target=target) if target in TILEWISE:
                self._keep(i, self._uncut(i.shape), region)
                i.operation = with_local_operands(i)
            case CustomCall(custom_call_target=target) if target == _TO_SHARD:
                self._to_shard(i, region)
            case CustomCall(custom_call_target=target) if target == _TO_FULL:
                self._to_full(i, region)
            case CustomCall() if is_identity(i) and len(i.operands) == 1:
                self._constraint(i, region)
            case CustomCall() if not region and device_of(i) is not None:
                self._on_one_device(i)
            case _:
                self._computed(i, region)

    # -- records

    def _keep(self, i: HloInstruction, tilings: Tilings, region: Region) -> None:
        """Record how the value of an instruction is cut, and give it the shape of a tile."""
        i.shape = self._local(self.whole[i], tilings)
        i.sharding = None
        self.tilings[i], self.regions[i] = tilings, region

    def _made(self, i: HloInstruction, whole: Shape, tilings: Tilings, region: Region) -> HloInstruction:
        """Record a new instruction."""
        self.whole[i], self.tilings[i], self.regions[i] = whole, tilings, region
        return i

    def _local(self, shape: Shape, tilings: Tilings) -> Shape:
        """Return the shape of a tile, or of the tuple of tiles."""
        if not isinstance(tilings, Tiling):
            pairs = zip(shape.tuple_shapes, tilings, strict=True)
            return Shape.tuple_([self._local(part, tiling) for part, tiling in pairs])
        if not shape.is_array or tilings.is_replicated:
            return shape
        return Shape(shape.element_type, tilings.local(shape.dimensions))

    def _uncut(self, shape: Shape) -> Tilings:
        return for_each_leaf(shape, lambda s: Tiling.replicated(s.rank if s.is_array else 0, self.devices))

    def _stated(self, i: HloInstruction) -> Tilings | None:
        """Return the tilings that an instruction must have; None if any will do."""
        return self.agreed.get(i) or self.annotations.stated(i, self.whole.get(i, i.shape))

    # -- resharding

    def _fitted(self, value: HloInstruction, wanted: Tilings) -> HloInstruction:
        """Return a value in other tilings."""
        have = self.tilings[value]
        if have == wanted:
            return value
        whole, region = self.whole[value], self.regions[value]
        writer = Writer(value)
        if isinstance(have, Tiling) and isinstance(wanted, Tiling):
            return self._form(value, wanted) if whole.is_array else value
        parts: list[HloInstruction] = []
        pairs = zip(cast("tuple[Tilings, ...]", have), cast("tuple[Tilings, ...]", wanted), strict=True)
        for number, (old, new) in enumerate(pairs):
            part = writer.op(GetTupleElement(index=number), value, shape=value.shape.tuple_shapes[number])
            self._made(part, whole.tuple_shapes[number], old, region)
            parts.append(self._fitted(part, new))
        made = writer.op(Tuple(), *parts, shape=Shape.tuple_([part.shape for part in parts]))
        return self._made(made, whole, wanted, region)

    def _form(self, value: HloInstruction, wanted: Tiling) -> HloInstruction:
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
            made = self.resharder.reshard(source, whole, tilings[nearest], wanted, region)
            if made is source:
                return source
        forms.append(made)
        self.forms[made] = forms
        return self._made(made, whole, wanted, region)

    def _is_filled(self, value: HloInstruction) -> bool:
        """Return true if all elements are one scalar, which every device has."""
        if not isinstance(value.operation, Broadcast) or value.operands[0].shape.rank:
            return False
        scalar = self.tilings[value.operands[0]]
        return isinstance(scalar, Tiling) and scalar.is_replicated

    def _hand_over(self, i: HloInstruction, parts: Sequence[HloInstruction], region: Region) -> None:
        """Replace an instruction by a value, or by the tuple of values if it is a tuple."""
        if self.whole[i].is_tuple:
            made = Writer(i).op(Tuple(), *parts, shape=Shape.tuple_([part.shape for part in parts]))
            tilings = tuple(self.tilings[part] for part in parts)
            self._made(made, Shape.tuple_([self.whole[part] for part in parts]), tilings, region)
        else:
            (made,) = parts
        Writer(i).replace(made)

    # -- operations

    def _computed(self, i: HloInstruction, region: Region) -> None:
        """Compute tiles of the result from tiles of the operands, by the cheapest assignment of factors."""
        shapes = [self.whole[o] for o in i.operands]
        stated = self._stated(i) if not region else None
        factors = self.factors[i]
        if isinstance(i.operation, CustomCall):
            factors = batch_factors(i, shapes) or factors
        accepted = self._chosen(i, factors, shapes, region, stated)
        for number, operand in enumerate(list(i.operands)):
            columns = {f.operands[number]: cut for f, cut in accepted if number in f.operands}
            wanted = for_each_leaf(shapes[number], lambda leaf, c=columns: joined(leaf, c, self.devices))
            fitted = self._fitted(operand, wanted)
            if fitted is not operand:
                i.replace_operand(number, fitted)
        whole = self.whole[i]
        tilings = for_each_leaf(whole, lambda leaf: result_tiling(accepted, leaf, self.devices))
        made = self._local_operation(i, shapes, accepted, tilings, region)
        users, is_root = list(made.users), made.is_root
        result = made
        if any(f.result is None for f, _ in accepted):
            result = self._reduced(made, accepted, region, stated)
        if stated is not None:
            result = self._fitted(result, stated)
        if result is not made:
            self._redirect(made, result, users, is_root)

    def _chosen(
        self,
        i: HloInstruction,
        factors: Sequence[Factor],
        shapes: Sequence[Shape],
        region: Region,
        stated: Tilings | None,
    ) -> list[tuple[Factor, Tiling]]:
        """Return the factors to cut."""
        target = stated if stated is not None else self.hints.get(i)
        while isinstance(target, tuple) and target:
            target = target[0]
        result = i.shape
        while result.is_tuple and result.tuple_shapes:
            result = result.tuple_shapes[0]
        have = [self.tilings[o] if s.is_array else None for o, s in zip(i.operands, shapes, strict=True)]
        question = Question(
            i,
            factors,
            shapes,
            result,
            [tiling if isinstance(tiling, Tiling) else None for tiling in have],
            target if isinstance(target, Tiling) else None,
            fixed(region),
            self.devices,
        )
        return cheapest(question)

    def _local_operation(
        self,
        i: HloInstruction,
        shapes: Sequence[Shape],
        accepted: Sequence[tuple[Factor, Tiling]],
        tilings: Tilings,
        region: Region,
    ) -> HloInstruction:
        """Make an instruction compute tiles; return it or the one that replaces it."""
        whole = self.whole[i]
        for factor, cut in accepted:
            if factor.result is None and factor.kind != "indexed" and factor.size % cut.tiles[0]:
                self._mask(i, shapes, factor, cut)
        first = tilings
        result = whole
        while isinstance(first, tuple) and first:
            first, result = first[0], result.tuple_shapes[0]
        if not accepted or not isinstance(first, Tiling):
            self._keep(i, tilings, region)
            return i
        cuts = [
            operand_tiling(accepted, number, shape, self.devices) if shape.is_array else None
            for number, shape in enumerate(shapes)
        ]
        place = Place(i, shapes, result, cuts, first, accepted, self.resharder, region)
        made = localized(place)
        if made is i:
            self._keep(i, tilings, region)
            if isinstance(i.operation, CustomCall):
                i.operation = with_local_operands(i)
            return i
        Writer(i).replace(made)
        return self._made(made, whole, tilings, region)

    def _mask(self, i: HloInstruction, shapes: Sequence[Shape], factor: Factor, cut: Tiling) -> None:
        """Replace what lies beyond the end of a reduced dimension by what does not change the result."""
        assert factor.combiner is not None
        for number, d in factor.operands.items():
            if factor.kind == "halo" and number == 0:
                continue
            kind = shapes[number].element_type
            neutral = factor.combiner.neutral_element(kind) if i.opcode == "reduce" else 0
            operand = i.operands[number]
            fill = Writer(i).scalar(neutral if neutral is not None else 0, kind)
            spread = cut.select([0 if e == d else None for e in range(shapes[number].rank)])
            extent = shapes[number].dimensions[d]
            i.replace_operand(number, masked(operand, d, spread, extent, fill, self.resharder))

    def _redirect(
        self, old: HloInstruction, new: HloInstruction, users: Sequence[HloInstruction], is_root: bool
    ) -> None:
        """Let the users of a value take another one."""
        computation = old.parent
        assert computation is not None
        for user in users:
            for number, operand in enumerate(user.operands):
                if operand is old:
                    user.replace_operand(number, new)
        if is_root:
            computation.root = new

    def _custom_call(self, i: HloInstruction, partitioner: CallPartitioner, region: Region) -> None:
        """Replace a call by what its target's partitioner lets each device compute, in the cuts it wants."""
        rule = rule_of(i)
        shapes = [self.whole[o] for o in i.operands]
        stated = self._stated(i)
        accepted = self._chosen(i, [f.factor for f in rule], shapes, region, stated)
        cut = {id(factor): tiling for factor, tiling in accepted}
        kept = [(f, cut[id(f.factor)]) for f in rule if id(f.factor) in cut]
        operands: list[Cut] = []
        for number, (operand, shape) in enumerate(zip(i.operands, shapes, strict=True)):
            columns = {f.factor.operands[number]: t for f, t in kept if number in f.factor.operands}
            tiling = self.tilings[operand]
            assert isinstance(tiling, Tiling)
            operands.append((shape, joined(shape, columns, self.devices) if rule else tiling))
        whole = self.whole[i]
        results: list[Cut] = []
        for number, shape in enumerate(whole.tuple_shapes if whole.is_tuple else (whole,)):
            columns = {f.results[number]: t for f, t in kept if number in f.results}
            found = joined(shape, columns, self.devices)
            results.append((shape, found if stated is None else leaves_of(stated)[number]))
        piece = partitioner(i, operands, results)
        if piece is None:
            Writer(i).replace(i.operands[0])
            return
        fitted = [self._fitted(o, t) for o, t in zip(i.operands, piece.operands, strict=True)]
        adopt(self.module, piece.module, self.resharder.channel)
        tilings = tuple(piece.results) if whole.is_tuple else piece.results[0]
        entry = piece.module.entry
        made = inline(Writer(i).op(Call(), *fitted, shape=entry.root.shape, computations=[entry]))
        made = made if whole.is_tuple else self.resharder.renamed(made)
        Writer(i).replace(self._made(made, whole, tilings, region))

    def _on_one_device(self, i: HloInstruction) -> None:
        """Let one device make a call, and send its results to the others."""
        for number, operand in enumerate(list(i.operands)):
            fitted = self._fitted(operand, self._uncut(self.whole[operand]))
            if fitted is not operand:
                i.replace_operand(number, fitted)
        device = device_of(i)
        assert device is not None
        sent = run_on(i, device, self.devices, self.resharder)
        self._made(sent, self.whole[i], self._uncut(self.whole[i]), ())
        Writer(i).replace(sent)

    def _reduced(
        self,
        i: HloInstruction,
        accepted: Sequence[tuple[Factor, Tiling]],
        region: Region,
        stated: Tilings | None,
    ) -> HloInstruction:
        """Combine what the devices have reduced, each from its tiles."""
        combiner = next(f.combiner for f, _ in accepted if f.combiner is not None)
        whole, tiling = self.whole[i], self.tilings[i]
        assert isinstance(tiling, Tiling)
        initial = i.operands[1] if i.opcode == "reduce" else None
        writer = Writer(i)
        if initial is not None:
            neutral = combiner.neutral_element(i.shape.element_type)
            assert neutral is not None
            i.replace_operand(1, writer.scalar(neutral, i.shape.element_type))
        target = stated if stated is not None else self.hints.get(i)
        wide = summed_in(i, whole)
        if wide is not None:
            i.shape = Shape(wide, i.shape.dimensions)
        found = None
        if isinstance(target, Tiling):
            found = scattered(tiling, target, whole.dimensions, accepted)
        if found is not None and isinstance(target, Tiling):
            d, _ = found
            groups = target.groups([d], fixed(region))
            total = self.resharder.reduce_scatter(i, combiner, d, groups)
            tiling = target
        else:
            dimensions = [n for n, (f, _) in enumerate(accepted) if f.result is None]
            groups = product([cut for _, cut in accepted]).groups(dimensions, fixed(region))
            total = self.resharder.all_reduce(i, combiner, groups)
        if initial is not None:
            spread = writer.broadcast(initial, total.shape.dimensions)
            total = writer.op(combiner, spread, total, shape=total.shape)
        total = writer.convert(total, whole.element_type)
        return self._made(total, whole, tiling, region)

    # -- control flow

    def _while(self, i: HloInstruction, region: Region) -> None:
        """Cut what a loop carries as its initial value is cut."""
        (init,) = i.operands
        tilings = self.tilings[init]
        for computation in i.called_computations:
            self._computation(computation, [tilings], [region])
            root = computation.root
            is_condition = not self.whole[root].is_tuple and self.whole[root] != self.whole[init]
            wanted = self._uncut(self.whole[root]) if is_condition else tilings
            computation.root = self._fitted(root, wanted)
        self._keep(i, tilings, region)

    def _conditional(self, i: HloInstruction, region: Region) -> None:
        """Pass arguments as they are cut; the result is whole on every device."""
        selector, *arguments = i.operands
        fitted = self._fitted(selector, self._uncut(self.whole[selector]))
        if fitted is not selector:
            i.replace_operand(0, fitted)
        result = self._uncut(i.shape)
        for computation, argument in zip(i.called_computations, arguments, strict=True):
            self._computation(computation, [self.tilings[argument]], [region])
            computation.root = self._fitted(computation.root, result)
        self._keep(i, result, region)

    # -- shardings in the program

    def _constraint(self, i: HloInstruction, region: Region) -> None:
        """Replace a constraint by its operand, resharded; within manual regions it is only advice."""
        (operand,) = i.operands
        stated = self._stated(i) if not region else None
        Writer(i).replace(self._fitted(operand, self.tilings[operand] if stated is None else stated))

    def _to_shard(self, i: HloInstruction, region: Region) -> None:
        """Enter a region of tiles: the operand is cut as its own annotation says."""
        (operand,) = i.operands
        tile = self.resharder.renamed(operand)
        if not tile.shape.compatible(i.shape):
            message = (
                f"%{i.name} gives {i.shape}, but a tile of its operand is {tile.shape}; regions with axes "
                f"that are not manual are not implemented"
            )
            raise HloError(message, rule="sharding.manual-axes", instruction=i.name)
        inner = (*region, (Column.along([(1, self.devices)], self.devices),))
        self._made(tile, tile.shape, self._uncut(tile.shape), inner)
        Writer(i).replace(tile)

    def _to_full(self, i: HloInstruction, region: Region) -> None:
        """Leave a region of tiles: they become those of the whole array as the call's annotation says."""
        (operand,) = i.operands
        tiling = self._stated(i) or self._uncut(i.shape)
        tile = self.resharder.renamed(self._fitted(operand, self._uncut(self.whole[operand])))
        self._made(tile, i.shape, tiling, region[:-1])
        Writer(i).replace(tile)

    def _to_local(self, i: HloInstruction, region: Region) -> None:
        """Enter a manual region: its values are the tiles along the manual axes."""
        axes, shardings = self.annotations.manual(i, "xla.sdy.in_shardings")
        inner = (*region, self.annotations.places(shardings, axes))
        parts: list[HloInstruction] = []
        for operand, sharding in zip(i.operands, shardings, strict=True):
            shape = self.whole[operand]
            tiling = sharding.tiling(rank_of(shape), self.devices, axes)
            tile = self.resharder.renamed(self._fitted(operand, tiling))
            parts.append(self._made(tile, tile.shape, self._uncut(tile.shape), inner))
        self._hand_over(i, parts, inner)

    def _to_global(self, i: HloInstruction, region: Region) -> None:
        """Leave a manual region: its values become the tiles of whole arrays."""
        axes, shardings = self.annotations.manual(i, "xla.sdy.out_shardings")
        shapes = i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)
        parts: list[HloInstruction] = []
        for operand, sharding, shape in zip(i.operands, shardings, shapes, strict=True):
            tiling = sharding.tiling(rank_of(shape), self.devices, axes)
            tile = self.resharder.renamed(self._fitted(operand, self._uncut(self.whole[operand])))
            parts.append(self._made(tile, shape, tiling, region[:-1]))
        self._hand_over(i, parts, region[:-1])
