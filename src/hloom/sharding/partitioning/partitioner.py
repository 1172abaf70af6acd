"""The partitioner: rewrite a program on whole arrays into the one that each device runs on its tiles."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import cast

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.sharding_rule import Factor
from hloom.operations.collectives import AllReduce
from hloom.operations.control_flow import Call, Conditional, While
from hloom.operations.custom_call import TO_GLOBAL, TO_LOCAL, CustomCall, is_identity
from hloom.operations.structure import GetTupleElement, OptimizationBarrier, Parameter, Tuple
from hloom.passes.collectives.all_reduce_combiner import AllReduceCombiner
from hloom.passes.expand.call_inliner import inline
from hloom.passes.expand.rotation_calls import RotationCalls
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.passes.writing import Writer
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.communication import Region, fixed
from hloom.sharding.partitioning.custom_calls import (
    CALL_PARTITIONERS,
    TILEWISE,
    CallPartitioner,
    Cut,
    adopt,
    batch_factors,
    rule_of,
    with_local_operands,
)
from hloom.sharding.partitioning.halos import masked
from hloom.sharding.partitioning.local_operations import Place, localized
from hloom.sharding.partitioning.manual_regions import TO_FULL, TO_SHARD, Regions
from hloom.sharding.partitioning.one_device import device_of, run_on
from hloom.sharding.partitioning.scattered_sums import scatter_sums
from hloom.sharding.partitioning.values import plain, redirect
from hloom.sharding.planning.assignment import (
    Question,
    cheapest,
    extended,
    joined,
    operand_tiling,
    product,
    result_tiling,
    scattered,
    summed_in,
)
from hloom.sharding.planning.decisions import Cause, Choice, Decided, Decision, Purpose
from hloom.sharding.planning.partial_sums import are_left, is_linear
from hloom.sharding.reading.annotations import (
    Tilings,
    for_each_leaf,
    leaves_of,
    propagated,
)
from hloom.sharding.reading.preparation import prepared, states_sharding, take_elements
from hloom.sharding.tiling.coordinates import Column
from hloom.sharding.tiling.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A partitioned program.

    Attributes:
        module: the program of one device.
        parameters, results: the tilings of the leaves of the entry's parameters and of its result.
        causes: why collectives were written, where that is known.
        decisions: how the value of each instruction was cut.
        whole: the shapes of the whole values.
    """

    module: HloModule
    parameters: tuple[Tiling, ...]
    results: tuple[Tiling, ...]
    causes: Mapping[HloInstruction, Cause]
    decisions: Mapping[HloInstruction, Decided]
    whole: Mapping[HloInstruction, Shape]


def partitioned_program(module: HloModule, devices: int, *, even_results: bool = False) -> Partitioned:
    """Return the program that each of some devices runs, ready to be compiled.

    Parameters are cut as their shardings say; the result as its sharding says, or else as it comes out.
    Operations are computed on tiles where the operands' tiles allow it, and on whole arrays elsewhere.
    Shardings that do not divide an array evenly are ignored. Raises HloError for what is not implemented.

    Args:
        module: a program on whole arrays.
        devices: the number of devices.
        even_results: results are whole if the tiles that the program states do not divide them evenly.
    """
    copy = prepared(module)
    partitioner = _Partitioner(copy, devices)
    results = partitioner.entry(even_results)
    scatter_sums(partitioner)
    take_elements(copy)
    RotationCalls().run(copy)
    DeadCodeElimination().run(copy)
    _combine_collectives(copy, partitioner.resharder.causes)
    config = copy.config
    config.entry_layout = None
    config.aliases, config.buffer_donors = {}, []
    config.num_partitions, config.replica_count = devices, 1
    parameters = [leaf for p in copy.entry.parameters for leaf in leaves_of(partitioner.tilings[p])]
    return Partitioned(
        copy,
        tuple(parameters),
        tuple(leaves_of(results)),
        partitioner.resharder.causes,
        partitioner.decided,
        partitioner.whole,
    )


def _combine_collectives(module: HloModule, causes: MutableMapping[HloInstruction, Cause]) -> None:
    """Combine all-reduces; the cause of a combined one is that of the first of its operands."""
    of_operand = {i.operands[0]: causes[i] for i in module.instructions() if i in causes and i.operands}
    AllReduceCombiner().run(module)
    for i in module.instructions():
        if isinstance(i.operation, AllReduce) and i not in causes and i.operands[0] in of_operand:
            causes[i] = of_operand[i.operands[0]]


@dataclass(frozen=True, slots=True)
class _Argument:
    """A value that a computation takes.

    Attributes:
        tilings: how it is cut.
        region: its manual regions.
        decided: why it is cut so.
    """

    tilings: Tilings
    region: Region = ()
    decided: Decided | None = None


class _Partitioner(Regions):
    """The state of a partitioning.

    Attributes:
        propagation: how arrays should be cut, by what the program states elsewhere.
        agreed: the tilings of the members of sharding groups.
    """

    def __init__(self, module: HloModule, devices: int) -> None:
        super().__init__(module, devices)
        self.module = module
        self.propagation, members = propagated(module, self.annotations)
        self.agreed = {i: tiling for i in members if (tiling := self.propagation.tiling(i)) is not None}

    def entry(self, even_results: bool) -> Tilings:
        """Partition the entry computation; return the tilings of its result."""
        entry = self.module.entry
        arguments = [self._argument(p, number) for number, p in enumerate(entry.parameters)]
        tilings = None if self.annotations.open_dimensions(entry.root) else self.stated(entry.root)
        self._computation(entry, arguments)
        if tilings is None or even_results:
            tilings = self.even(self.whole[entry.root], tilings or self.tilings[entry.root])
        entry.root = self.fitted(entry.root, tilings, Purpose("result"))
        return self.tilings[entry.root]

    def _argument(self, p: HloInstruction, number: int) -> _Argument:
        """Return how a parameter of the entry is cut: as stated, or as propagation found if it may choose."""
        stated = self.stated(p)
        found = self.propagation.tiling(p)
        if stated is None and found is not None and self.annotations.is_open(number, p.shape):
            return _Argument(found, decided=Decision(p, p.shape, found, steps=self.propagation.steps))
        return _Argument(stated or self.uncut(p.shape))

    def _computation(self, computation: HloComputation, arguments: Sequence[_Argument]) -> None:
        """Rewrite a computation whose parameters are cut in a given way."""
        for i in computation.post_order():
            self.whole[i] = i.shape
            if isinstance(i.operation, Parameter):
                given = arguments[i.operation.parameter_number]
                self.keep(i, given.tilings, given.region, given.decided, is_stated=states_sharding(i))
            else:
                self._instruction(i)

    def _instruction(self, i: HloInstruction) -> None:
        operation = i.operation
        region: Region = max((self.regions[o] for o in i.operands), key=len, default=())
        match operation:
            case Tuple():
                decided = tuple(self.decided[o] for o in i.operands)
                self.keep(i, tuple(self.tilings[o] for o in i.operands), region, decided)
            case GetTupleElement():
                of = cast("tuple[Tilings, ...]", self.tilings[i.operands[0]])
                decided = cast("tuple[Decided, ...]", self.decided[i.operands[0]])
                self.keep(i, of[operation.index], region, decided[operation.index])
            case OptimizationBarrier():
                self.keep(i, self.tilings[i.operands[0]], region, self.decided[i.operands[0]])
            case While():
                self._while(i, region)
            case Conditional():
                self._conditional(i, region)
            case CustomCall(custom_call_target=target) if target == TO_LOCAL:
                self.to_local(i, region)
            case CustomCall(custom_call_target=target) if target == TO_GLOBAL:
                self.to_global(i, region)
            case CustomCall(custom_call_target=target) if target in CALL_PARTITIONERS:
                self._custom_call(i, CALL_PARTITIONERS[target], region)
            case CustomCall(custom_call_target=target) if target in TILEWISE:
                self.keep(i, self.uncut(i.shape), region)
                i.operation = with_local_operands(i)
            case CustomCall(custom_call_target=target) if target == TO_SHARD:
                self.to_shard(i, region)
            case CustomCall(custom_call_target=target) if target == TO_FULL:
                self.to_full(i, region)
            case CustomCall(custom_call_target="LayoutConstraint"):
                self._layout_constraint(i, region)
            case CustomCall() if is_identity(i) and len(i.operands) == 1:
                self._constraint(i, region)
            case CustomCall() if not region and device_of(i) is not None:
                self._on_one_device(i)
            case _:
                self._computed(i, region)

    def stated(self, i: HloInstruction) -> Tilings | None:
        """Return the tilings that an instruction must have; None if any will do."""
        if open_dimensions := self.annotations.open_dimensions(i):
            tiling = self.propagation.tiling(i)
            free = tiling is not None and tiling.is_replicated and len(open_dimensions) == len(tiling.tiles)
            return None if free else tiling
        return self.agreed.get(i) or self.annotations.stated(i, self.whole.get(i, i.shape))

    # -- operations

    def _computed(self, i: HloInstruction, region: Region) -> None:
        """Compute tiles of the result from tiles of the operands, by the cheapest assignment of factors."""
        shapes = [self.whole[o] for o in i.operands]
        stated = self.stated(i) if not region else None
        factors = self.propagation.factors[i]
        if isinstance(i.operation, CustomCall):
            factors = batch_factors(i, shapes) or factors
        summands = None
        if isinstance(stated, Tiling) and stated.summands is not None and self._is_linear(i, stated.summands):
            summands, stated = stated.summands, stated.summed()
            self._take_summands(i)
        decision = self._chosen(i, factors, shapes, region, stated)
        decision.factors, decision.steps = factors, self.propagation.steps
        assert decision.choice is not None
        accepted = decision.choice.cuts
        origin = self.origin(i, factors, shapes, region)
        staying = decision.choice.staying
        for number, operand in enumerate(list(i.operands)):
            if number in staying:
                continue
            columns = {f.operands[number]: cut for f, cut in accepted if number in f.operands}
            wanted = for_each_leaf(shapes[number], lambda leaf, c=columns: joined(leaf, c, self.devices))
            fitted = self.fitted(operand, wanted, Purpose("operand", decision, number))
            if fitted is not operand:
                i.replace_operand(number, fitted)
        whole = self.whole[i]
        tilings = for_each_leaf(whole, lambda leaf: result_tiling(accepted, leaf, self.devices))
        decided = self._decided_parts(decision, tilings)
        with self.resharder.because(Cause(Purpose("halo", decision))):
            made = self._local_operation(i, shapes, decision.choice, tilings, region)
        self.decided[made] = decided
        if origin is not None and summands is None:
            self.origins[made] = origin
        users, is_root = list(made.users), made.is_root
        result = made
        if any(f.result is None for f, _ in accepted):
            with self.resharder.because(Cause(Purpose("reduction", decision))):
                result = self._reduced(made, accepted, region, stated)
            self.decided[result] = decided
        if stated is not None:
            result = self.fitted(result, stated, Purpose("annotation", decision))
        if summands is not None:
            self.tilings[result] = replace(cast("Tiling", self.tilings[result]), summands=summands)
            self.forms[result] = [result]
        if result is not made:
            redirect(made, result, users, is_root)

    def _is_linear(self, i: HloInstruction, summands: Column) -> bool:
        """Return true if an operation makes summands of its result from those of its operands."""
        columns = [t.summands if isinstance(t := self.tilings[o], Tiling) else None for o in i.operands]
        held = [column == summands for column in columns]
        others = all(column is None for column, is_held in zip(columns, held, strict=True) if not is_held)
        return any(held) and others and is_linear(i, held)

    def _take_summands(self, i: HloInstruction) -> None:
        """Let an operation take the summands that its operands are the sums of."""
        for number, operand in enumerate(list(i.operands)):
            tiling = self.tilings[operand]
            if isinstance(tiling, Tiling) and tiling.summands is not None:
                whole, region, decided = self.whole[operand], self.regions[operand], self.decided[operand]
                summand = self.resharder.renamed(operand)
                i.replace_operand(number, self.made(summand, whole, tiling.summed(), region, decided))

    def _decided_parts(self, decision: Decision, tilings: Tilings) -> Decided:
        """Return a decision for each leaf of a result; they differ in the tiling only."""
        if isinstance(tilings, Tiling):
            decision.tiling = tilings
            return decision
        return tuple(self._decided_parts(replace(decision), part) for part in tilings)

    def _chosen(
        self,
        i: HloInstruction,
        factors: Sequence[Factor],
        shapes: Sequence[Shape],
        region: Region,
        stated: Tilings | None,
    ) -> Decision:
        """Return the factors to cut, as a decision."""
        index, result = next(i.shape.leaves(), ((), i.shape))
        leaves = leaves_of(stated) if stated is not None else []
        wanted = leaves[0] if leaves else self.propagation.tiling(i, index)
        held = [self.tilings[o] if s.is_array else None for o, s in zip(i.operands, shapes, strict=True)]
        have = tuple(tiling if isinstance(tiling, Tiling) else None for tiling in held)

        @cache
        def fit(number: int, want: Tiling) -> float:
            return self.bytes_to_fit(i.operands[number], want)

        question = Question(i, factors, shapes, result, have, wanted, fixed(region), self.devices, fit)
        return Decision(
            i,
            self.whole[i],
            None,
            stated is not None,
            tuple(self.decided[o] for o in i.operands),
            have,
            cheapest(question),
            wanted,
        )

    def _local_operation(
        self,
        i: HloInstruction,
        shapes: Sequence[Shape],
        choice: Choice,
        tilings: Tilings,
        region: Region,
    ) -> HloInstruction:
        """Make an instruction compute tiles; return it or the one that replaces it."""
        accepted, whole = choice.cuts, self.whole[i]
        for factor, cut in accepted:
            if factor.result is None and factor.kind != "indexed" and factor.size % cut.tiles[0]:
                self._mask(i, shapes, factor, cut)
        first = tilings
        result = whole
        while isinstance(first, tuple) and first:
            first, result = first[0], result.tuple_shapes[0]
        if not accepted or not isinstance(first, Tiling):
            self.keep(i, tilings, region)
            return i
        cuts = [
            operand_tiling(accepted, number, shape, self.devices) if shape.is_array else None
            for number, shape in enumerate(shapes)
        ]
        for number in choice.staying:
            cuts[number] = cast("Tiling", self.tilings[i.operands[number]])
        place = Place(i, shapes, result, cuts, first, accepted, self.resharder, region)
        made = localized(place)
        if made is i:
            self.keep(i, tilings, region)
            if isinstance(i.operation, CustomCall):
                i.operation = with_local_operands(i)
            return i
        Writer(i).replace(made)
        return self.made(made, whole, tilings, region)

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

    def _custom_call(self, i: HloInstruction, partitioner: CallPartitioner, region: Region) -> None:
        """Replace a call by what its target's partitioner lets each device compute, in the cuts it wants."""
        rule = rule_of(i)
        shapes = [self.whole[o] for o in i.operands]
        stated = self.stated(i)
        decision = self._chosen(i, [f.factor for f in rule], shapes, region, stated)
        assert decision.choice is not None
        accepted = decision.choice.cuts
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
        fitted = [
            self.fitted(operand, tiling, Purpose("operand", decision, number))
            for number, (operand, tiling) in enumerate(zip(i.operands, piece.operands, strict=True))
        ]
        adopt(self.module, piece.module, self.resharder.channel)
        tilings = tuple(piece.results) if whole.is_tuple else piece.results[0]
        entry = piece.module.entry
        made = inline(Writer(i).op(Call(), *fitted, shape=entry.root.shape, computations=[entry]))
        made = made if whole.is_tuple else self.resharder.renamed(made)
        decided = self._decided_parts(decision, tilings)
        Writer(i).replace(self.made(made, whole, tilings, region, decided))

    def _on_one_device(self, i: HloInstruction) -> None:
        """Let one device make a call, and send its results to the others."""
        purpose = Purpose("device", Decision(i, self.whole[i], None))
        for number, operand in enumerate(list(i.operands)):
            fitted = self.fitted(operand, self.uncut(self.whole[operand]), purpose)
            if fitted is not operand:
                i.replace_operand(number, fitted)
        device = device_of(i)
        assert device is not None
        with self.resharder.because(Cause(purpose)):
            sent = run_on(i, device, self.devices, self.resharder)
        self.made(sent, self.whole[i], self.uncut(self.whole[i]), ())
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
        target = stated if stated is not None else self.propagation.tiling(i)
        wide = summed_in(i, whole)
        if wide is not None:
            i.shape = Shape(wide, i.shape.dimensions)
        d = None
        if isinstance(target, Tiling):
            d = scattered(tiling, target, whole.dimensions, accepted)
        if isinstance(target, Tiling) and are_left(tiling, target, accepted):
            total, tiling = i, target
        elif d is not None and isinstance(target, Tiling):
            groups = target.groups([d], fixed(region))
            total = self.resharder.reduce_scatter(i, combiner, d, groups)
            tiling = target
        else:
            dimensions = [n for n, (f, _) in enumerate(accepted) if f.result is None]
            groups = product([cut for _, cut in accepted]).groups(dimensions, fixed(region))
            total = self.resharder.all_reduce(i, combiner, groups)
        if initial is not None:
            spread = writer.broadcast(initial, total.shape.dimensions)
            if tiling.summands is not None:
                spread = self.resharder.first_summand(spread, tiling)
            total = writer.op(combiner, spread, total, shape=total.shape)
        total = writer.convert(total, whole.element_type)
        return self.made(total, whole, tiling, region)

    # -- control flow

    def _while(self, i: HloInstruction, region: Region) -> None:
        """Cut what a loop carries as propagation found, or else as its initial value is cut."""
        init = i.operands[0]
        purpose = Purpose("loop", Decision(i, self.whole[i], None))
        tilings = self._passed_on(i, self.tilings[init], region)
        fitted = self.fitted(init, tilings, purpose)
        if fitted is not init:
            i.replace_operand(0, fitted)
        decided = self.decided[fitted]
        body, condition = i.called_computations
        for computation in (body, condition):
            self._computation(computation, [_Argument(tilings, region, decided)])
        body.root = self.fitted(body.root, tilings, purpose)
        condition.root = self.fitted(condition.root, self.uncut(self.whole[condition.root]), purpose)
        self.keep(i, tilings, region, decided)

    def _conditional(self, i: HloInstruction, region: Region) -> None:
        """Pass arguments as they are cut; cut the result as propagation found."""
        selector, *arguments = i.operands
        purpose = Purpose("branches", Decision(i, self.whole[i], None))
        fitted = self.fitted(selector, self.uncut(self.whole[selector]), purpose)
        if fitted is not selector:
            i.replace_operand(0, fitted)
        result = self._passed_on(i, self.uncut(i.shape), region)
        for computation, argument in zip(i.called_computations, arguments, strict=True):
            given = _Argument(self.tilings[argument], region, self.decided[argument])
            self._computation(computation, [given])
            computation.root = self.fitted(computation.root, result, purpose)
        self.keep(i, result, region)

    def _passed_on(self, i: HloInstruction, otherwise: Tilings, region: Region) -> Tilings:
        """Return the tilings that propagation found for a value; those given for leaves without one."""
        if region:
            return otherwise
        given = leaves_of(otherwise)
        found = [self.propagation.tiling(i, index) for index, _ in i.shape.leaves()]
        chosen = iter(
            [f if f is not None and f.summands is None else g for f, g in zip(found, given, strict=True)]
        )
        return for_each_leaf(i.shape, lambda _: next(chosen))

    # -- shardings in the program

    def _constraint(self, i: HloInstruction, region: Region) -> None:
        """Replace a constraint by its operand, resharded; within manual regions it is only advice."""
        (operand,) = i.operands
        constraint = self.stated(i) if not region else None
        current = self.tilings[operand]
        if isinstance(constraint, Tiling) and isinstance(current, Tiling):
            constraint = extended(constraint, current, self.annotations.open_dimensions(i))
        decided = plain(i, self.whole[i], constraint or current, is_stated=True)
        purpose = Purpose("annotation", decided if isinstance(decided, Decision) else None)
        fitted = self.fitted(operand, current if constraint is None else constraint, purpose)
        if fitted is not operand:
            self.decided[fitted] = decided
        Writer(i).replace(fitted)

    def _layout_constraint(self, i: HloInstruction, region: Region) -> None:
        """Keep a call that states the layout of its operand, for tiles."""
        (operand,) = i.operands
        layout, tilings = i.shape.layout, self.tilings[operand]
        self.keep(i, tilings, region, self.decided[operand])
        i.shape = i.shape.with_layout(layout)
        i.operation = with_local_operands(i)
