"""The partitioner: rewrite a program on whole arrays into the one that each device runs on its tiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from hloom.errors import HloError
from hloom.ir.cloning import clone_module
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.sharding import Sharding
from hloom.operations.control_flow import Call, Conditional, While
from hloom.operations.custom_call import CustomCall, is_identity
from hloom.operations.structure import GetTupleElement, OptimizationBarrier, Parameter, Tuple
from hloom.passes.expand.call_inliner import CallInliner, inline
from hloom.passes.expand.flatten_call_graph import FlattenCallGraph
from hloom.passes.writing import Writer
from hloom.shape.shape import Shape
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
from hloom.sharding.factors import Factor, factors_of, with_local_shape
from hloom.sharding.one_device import device_of, run_on
from hloom.sharding.resharding import Region, Resharder, fixed
from hloom.sharding.shardy import Mesh, MeshSharding, parse_axes, parse_meshes, parse_shardings
from hloom.sharding.tiling import Tiling

Tilings: TypeAlias = "Tiling | tuple[Tilings, ...]"
"""The tiling of an array or a token, or those of the elements of a tuple."""

_TO_LOCAL: Final = "xla.sdy.GlobalToLocalShape"
_TO_GLOBAL: Final = "xla.sdy.LocalToGlobalShape"
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
    copy = clone_module(module)
    CallInliner().run(copy)
    FlattenCallGraph().run(copy)
    partitioner = _Partitioner(copy, devices)
    results = partitioner.entry()
    config = copy.config
    config.entry_layout = None
    config.aliases, config.buffer_donors = {}, []
    config.num_partitions, config.replica_count = devices, 1
    parameters = [leaf for p in copy.entry.parameters for leaf in _leaves(partitioner.tilings[p])]
    return Partitioned(copy, tuple(parameters), tuple(_leaves(results)))


def _leaves(tilings: Tilings) -> list[Tiling]:
    if isinstance(tilings, Tiling):
        return [tilings]
    return [leaf for part in tilings for leaf in _leaves(part)]


class _Partitioner:
    """The state of a partitioning.

    Attributes:
        tilings: how the value of each rewritten instruction is cut.
        whole: the shapes of the whole values.
        regions: the manual regions that the values belong to.
        annotated: the tilings that the operands of `_TO_SHARD` state.
    """

    def __init__(self, module: HloModule, devices: int) -> None:
        self.module = module
        self.devices = devices
        meshes = module.config.frontend_attributes.get("xla.sdy.meshes", "")
        self.meshes: Mapping[str, Mesh] = parse_meshes(meshes)
        self.resharder = Resharder(module)
        self.tilings: dict[HloInstruction, Tilings] = {}
        self.whole: dict[HloInstruction, Shape] = {}
        self.regions: dict[HloInstruction, Region] = {}
        self.annotated: dict[HloInstruction, Tilings] = {}

    def entry(self) -> Tilings:
        """Partition the entry computation; return the tilings of its result."""
        entry = self.module.entry
        parameters = [self._stated(p) or self._uncut(p.shape) for p in entry.parameters]
        wanted = self._stated(entry.root)
        self._computation(entry, parameters, [()] * len(parameters))
        if wanted is not None:
            entry.root = self._fitted(entry.root, wanted)
        return self.tilings[entry.root]

    def _computation(
        self, computation: HloComputation, parameters: Sequence[Tilings], regions: Sequence[Region]
    ) -> None:
        """Rewrite a computation whose parameters are cut in a given way."""
        for i in computation.post_order():
            self.whole[i] = i.shape
            if any(_enters_shard(user) for user in i.users) and (stated := self._stated(i)) is not None:
                self.annotated[i] = stated
            if isinstance(i.operation, Parameter):
                number = i.operation.parameter_number
                self._keep(i, parameters[number], regions[number])
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
            case CustomCall(custom_call_target=target) if target == _TO_LOCAL:
                self._to_local(i, region)
            case CustomCall(custom_call_target=target) if target == _TO_GLOBAL:
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

    def _each(self, shape: Shape, function: Callable[[Shape], Tiling]) -> Tilings:
        """Apply a function to every leaf of a shape."""
        if shape.is_tuple:
            return tuple(self._each(part, function) for part in shape.tuple_shapes)
        return function(shape)

    def _uncut(self, shape: Shape) -> Tilings:
        return self._each(shape, lambda s: Tiling.replicated(s.rank if s.is_array else 0, self.devices))

    def _stated(self, i: HloInstruction) -> Tilings | None:
        """Return the tilings that the annotations of an instruction state; None if there are none."""
        shape = self.whole.get(i, i.shape)
        text = (i.frontend_attributes or {}).get("xla.sdy.sharding")
        if text and not shape.is_tuple:
            found = parse_shardings(text, self.meshes)
            if found:
                return self._even(found[0].tiling(_rank(shape), self.devices), shape)
        if i.sharding is None:
            return None
        elements = iter(i.sharding.elements) if i.sharding.kind == "tuple" else None

        def tiling(leaf: Shape) -> Tiling:
            sharding: Sharding | None = i.sharding if elements is None else next(elements, None)
            return self._even(Tiling.of(sharding, _rank(leaf), self.devices), leaf)

        return self._each(shape, tiling)

    def _even(self, tiling: Tiling, shape: Shape) -> Tiling:
        """Return the tiling without the dimensions that it does not cut evenly."""
        extents = shape.dimensions if shape.is_array else ()
        uneven = [d for d, n in enumerate(extents) if n % tiling.tiles[d]]
        return tiling.without(uneven) if uneven else tiling

    # -- resharding

    def _fitted(self, value: HloInstruction, wanted: Tilings) -> HloInstruction:
        """Return a value in other tilings."""
        have = self.tilings[value]
        if have == wanted:
            return value
        whole, region = self.whole[value], self.regions[value]
        writer = Writer(value)
        if isinstance(have, Tiling) and isinstance(wanted, Tiling):
            if not whole.is_array:
                return value
            found = self.resharder.reshard(value, whole, have, wanted, region)
            return self._made(found, whole, wanted, region) if found is not value else value
        parts: list[HloInstruction] = []
        pairs = zip(cast("tuple[Tilings, ...]", have), cast("tuple[Tilings, ...]", wanted), strict=True)
        for number, (old, new) in enumerate(pairs):
            part = writer.op(GetTupleElement(index=number), value, shape=value.shape.tuple_shapes[number])
            self._made(part, whole.tuple_shapes[number], old, region)
            parts.append(self._fitted(part, new))
        made = writer.op(Tuple(), *parts, shape=Shape.tuple_([part.shape for part in parts]))
        return self._made(made, whole, wanted, region)

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
        """Compute tiles of the result from tiles of the operands, as far as the factors allow it."""
        shapes = [self.whole[o] for o in i.operands]
        is_call = isinstance(i.operation, CustomCall)
        accepted = self._accepted(i, batch_factors(i, shapes) if is_call else factors_of(i, shapes))
        for number, operand in enumerate(list(i.operands)):
            columns = {f.operands[number]: cut for f, cut in accepted if number in f.operands}
            wanted = self._each(self.whole[operand], lambda leaf, c=columns: self._joined(leaf, c))
            fitted = self._fitted(operand, wanted)
            if fitted is not operand:
                i.replace_operand(number, fitted)
        results = {f.result: cut for f, cut in accepted if f.result is not None}
        tilings = self._each(i.shape, lambda leaf: self._joined(leaf, results))
        self._keep(i, tilings, region)
        if is_call and accepted:
            i.operation = with_local_operands(i)
        elif i.shape.is_array:
            i.operation = with_local_shape(i.operation, i.shape)
        if any(f.result is None for f, _ in accepted):
            self._reduced(i, accepted, region)

    def _custom_call(self, i: HloInstruction, partitioner: CallPartitioner, region: Region) -> None:
        """Replace a call by what its target's partitioner lets each device compute, in the cuts it wants."""
        rule = rule_of(i)
        accepted = self._accepted(i, [f.factor for f in rule])
        cut = {id(factor): tiling for factor, tiling in accepted}
        kept = [(f, cut[id(f.factor)]) for f in rule if id(f.factor) in cut]
        operands: list[Cut] = []
        for number, operand in enumerate(i.operands):
            columns = {f.factor.operands[number]: t for f, t in kept if number in f.factor.operands}
            shape, tiling = self.whole[operand], self.tilings[operand]
            assert isinstance(tiling, Tiling)
            operands.append((shape, self._joined(shape, columns) if rule else tiling))
        whole = self.whole[i]
        stated = self._stated(i)
        results: list[Cut] = []
        for number, shape in enumerate(whole.tuple_shapes if whole.is_tuple else (whole,)):
            columns = {f.results[number]: t for f, t in kept if number in f.results}
            tiling = self._joined(shape, columns) if stated is None else _leaves(stated)[number]
            results.append((shape, tiling))
        piece = partitioner(i, operands, results)
        if piece is None:
            Writer(i).replace(i.operands[0])
            return
        fitted = [self._fitted(o, t) for o, t in zip(i.operands, piece.operands, strict=True)]
        adopt(self.module, piece.module, self.resharder.channel)
        tilings = tuple(piece.results) if whole.is_tuple else piece.results[0]
        entry = piece.module.entry
        found = inline(Writer(i).op(Call(), *fitted, shape=entry.root.shape, computations=[entry]))
        found = found if whole.is_tuple else self.resharder.renamed(found)
        Writer(i).replace(self._made(found, whole, tilings, region))

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

    def _reduced(self, i: HloInstruction, accepted: Sequence[tuple[Factor, Tiling]], region: Region) -> None:
        """Combine what the devices have reduced, each from its tiles."""
        users, computation = list(i.users), i.parent
        assert computation is not None
        is_root = i.is_root
        combiner = next(f.combiner for f, _ in accepted if f.combiner is not None)
        dimensions = [n for n, (f, _) in enumerate(accepted) if f.result is None]
        tiling = _product([cut for _, cut in accepted])
        groups = tiling.groups(dimensions, fixed(region, self.devices))
        initial = i.operands[1] if i.opcode == "reduce" else None
        writer = Writer(i)
        if initial is not None:
            neutral = combiner.neutral_element(i.shape.element_type)
            assert neutral is not None
            i.replace_operand(1, writer.scalar(neutral, i.shape.element_type))
        total = self.resharder.all_reduce(i, combiner, groups)
        if initial is not None:
            spread = writer.broadcast(initial, i.shape.dimensions)
            total = writer.op(combiner, spread, total, shape=i.shape)
        self._made(total, self.whole[i], self.tilings[i], region)
        for user in users:
            for number, operand in enumerate(user.operands):
                if operand is i:
                    user.replace_operand(number, total)
        if is_root:
            computation.root = total

    def _accepted(self, i: HloInstruction, factors: Sequence[Factor]) -> list[tuple[Factor, Tiling]]:
        """Return the factors to cut, each with a tiling of rank 1; those of large operands come first."""
        candidates: list[tuple[int, int, Factor, Tiling]] = []
        for order, factor in enumerate(factors):
            for number, d in factor.operands.items():
                tiling = self.tilings[i.operands[number]]
                if isinstance(tiling, Tiling) and tiling.cuts(d) and factor.size % tiling.tiles[d] == 0:
                    size = self.whole[i.operands[number]].element_count
                    candidates.append((-size, order, factor, tiling.select([d])))
        accepted: list[tuple[Factor, Tiling]] = []
        for _, _, factor, cut in sorted(candidates, key=lambda c: c[:2]):
            combiners = {type(f.combiner) for f, _ in [*accepted, (factor, cut)] if f.combiner is not None}
            known = any(factor is other for other, _ in accepted)
            if not known and len(combiners) <= 1 and _is_complete([*(c for _, c in accepted), cut]):
                accepted.append((factor, cut))
        return accepted

    def _joined(self, shape: Shape, columns: Mapping[int, Tiling]) -> Tiling:
        """Return the tiling of an array some of whose dimensions are cut by tilings of rank 1."""
        whole = Tiling.replicated(1, self.devices)
        cuts = [columns.get(d, whole) for d in range(_rank(shape))]
        return _product(cuts) if cuts else Tiling.replicated(0, self.devices)

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

    def _to_local(self, i: HloInstruction, region: Region) -> None:
        """Enter a manual region: its values are the tiles along the manual axes."""
        axes, shardings = self._manual(i, "xla.sdy.in_shardings")
        inner = (*region, self._layer(shardings, axes))
        parts: list[HloInstruction] = []
        for operand, sharding in zip(i.operands, shardings, strict=True):
            shape = self.whole[operand]
            tiling = sharding.tiling(_rank(shape), self.devices, axes)
            tile = self.resharder.renamed(self._fitted(operand, tiling))
            parts.append(self._made(tile, tile.shape, self._uncut(tile.shape), inner))
        self._hand_over(i, parts, inner)

    def _to_global(self, i: HloInstruction, region: Region) -> None:
        """Leave a manual region: its values become the tiles of whole arrays."""
        axes, shardings = self._manual(i, "xla.sdy.out_shardings")
        shapes = i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)
        parts: list[HloInstruction] = []
        for operand, sharding, shape in zip(i.operands, shardings, shapes, strict=True):
            tiling = sharding.tiling(_rank(shape), self.devices, axes)
            tile = self.resharder.renamed(self._fitted(operand, self._uncut(self.whole[operand])))
            parts.append(self._made(tile, shape, tiling, region[:-1]))
        self._hand_over(i, parts, region[:-1])

    def _to_shard(self, i: HloInstruction, region: Region) -> None:
        """Enter a region of tiles: cut the operand as its own annotation says."""
        (operand,) = i.operands
        tiling = self.annotated.get(operand, self.tilings[operand])
        tile = self.resharder.renamed(self._fitted(operand, tiling))
        if not tile.shape.compatible(i.shape):
            message = (
                f"%{i.name} gives {i.shape}, but a tile of its operand is {tile.shape}; regions with axes "
                f"that are not manual are not implemented"
            )
            raise HloError(message, rule="sharding.manual-axes", instruction=i.name)
        inner = (*region, tuple((device,) for device in range(self.devices)))
        self._made(tile, tile.shape, self._uncut(tile.shape), inner)
        Writer(i).replace(tile)

    def _to_full(self, i: HloInstruction, region: Region) -> None:
        """Leave a region of tiles: they become those of the whole array as the call's annotation says."""
        (operand,) = i.operands
        tiling = self._stated(i) or self._uncut(i.shape)
        tile = self.resharder.renamed(self._fitted(operand, self._uncut(self.whole[operand])))
        self._made(tile, i.shape, tiling, region[:-1])
        Writer(i).replace(tile)

    def _manual(self, i: HloInstruction, key: str) -> tuple[frozenset[str], list[MeshSharding]]:
        attributes = i.frontend_attributes or {}
        axes = parse_axes(attributes.get("xla.sdy.manual_axes", ""))
        return axes, parse_shardings(attributes.get(key, ""), self.meshes)

    def _layer(self, shardings: Sequence[MeshSharding], axes: frozenset[str]) -> tuple[tuple[int, ...], ...]:
        """Return the places of the devices along the axes of a manual region."""
        if not shardings:
            return ((),) * self.devices
        return tuple(shardings[0].mesh.along(device, axes) for device in range(self.devices))


def _enters_shard(i: HloInstruction) -> bool:
    return isinstance(i.operation, CustomCall) and i.operation.custom_call_target == _TO_SHARD


def _rank(shape: Shape) -> int:
    return shape.rank if shape.is_array else 0


def _product(cuts: Sequence[Tiling]) -> Tiling:
    """Return the tiling whose dimensions are cut by tilings of rank 1."""
    tiles = tuple(cut.tiles[0] for cut in cuts)
    return Tiling(tiles, tuple(zip(*(cut.column(0) for cut in cuts), strict=True)))


def _is_complete(cuts: Sequence[Tiling]) -> bool:
    """Return true if every combination of tiles is on some device: the cuts are along independent axes."""
    tiling = _product(cuts)
    count = 1
    for tiles in tiling.tiles:
        count *= tiles
    return len(set(tiling.places)) == count
