"""The partitioner: rewrites a program on global arrays into the program that each device runs on tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.collectives import AllReduce
from hloom.operations.control_flow import Conditional, While
from hloom.operations.custom_call import TO_GLOBAL, TO_LOCAL, CustomCall, is_identity
from hloom.operations.structure import GetTupleElement, OptimizationBarrier, Parameter, Tuple
from hloom.passes.collectives.all_reduce_combiner import AllReduceCombiner
from hloom.passes.expand.rotation_calls import RotationCalls
from hloom.passes.simplify.dead_code import DeadCodeElimination
from hloom.passes.writing import Writer
from hloom.records import dataclass
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.custom_calls import CALL_PARTITIONERS, TILEWISE, with_local_operands
from hloom.sharding.partitioning.manual_regions import (
    TO_FULL,
    TO_SHARD,
    enter_region,
    enter_region_of_all_devices,
    leave_region,
    leave_region_of_all_devices,
)
from hloom.sharding.partitioning.one_device import device_of
from hloom.sharding.partitioning.operations import (
    partition_custom_call,
    partition_device_call,
    partition_operation,
)
from hloom.sharding.partitioning.resharding import resharded
from hloom.sharding.partitioning.scattered_sums import scatter_sums
from hloom.sharding.partitioning.state import PartitionState, Region, undecided
from hloom.sharding.planning.assignment import extended
from hloom.sharding.planning.decisions import Cause, Decision, Decisions, Purpose
from hloom.sharding.reading.annotations import Tilings, for_each_leaf, leaves_of
from hloom.sharding.reading.preparation import forward_tuple_elements, is_annotated, prepared
from hloom.sharding.tiling.tiling import Tiling


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A partitioned program.

    Attributes:
        module: the program that each device runs on its tiles.
        parameters, results: the tilings of the leaves of the entry's parameters, in order, and of its result.
        causes: for each collective that the partitioner emitted, why it is needed.
        decisions: for each instruction, how its value is sharded and why.
        global_shapes: the global shape of the value of each instruction.
    """

    module: HloModule
    parameters: tuple[Tiling, ...]
    results: tuple[Tiling, ...]
    causes: Mapping[HloInstruction, Cause]
    decisions: Mapping[HloInstruction, Decisions]
    global_shapes: Mapping[HloInstruction, Shape]


def partitioned_program(module: HloModule, devices: int, *, even_results: bool = False) -> Partitioned:
    """Return the program that each of ``devices`` devices runs on its tiles, ready to be compiled.

    Parameters have their annotated tilings, the result has its annotated tiling or else the one in which it
    is computed. Operations that cannot be sharded run on full arrays. Raises HloError for unsupported
    annotations.

    Args:
        module: a program on global arrays, which is not changed.
        devices: the number of devices.
        even_results: True to replicate results that their tiles do not divide evenly.
    """
    copy = prepared(module)
    state = PartitionState(copy, devices)
    results = _partition_entry(state, even_results)
    scatter_sums(state)
    for computation in copy.computations:
        forward_tuple_elements(computation)
    RotationCalls().run(copy)
    DeadCodeElimination().run(copy)
    _combine_all_reduces(state)
    config = copy.config
    config.entry_layout = None
    config.aliases, config.buffer_donors = {}, []
    config.num_partitions, config.replica_count = devices, 1
    return Partitioned(
        copy,
        tuple(leaf for p in copy.entry.parameters for leaf in leaves_of(state.values[p].tilings)),
        tuple(leaves_of(results)),
        state.collectives.causes,
        {i: value.decisions for i, value in state.values.items()},
        {i: value.shape for i, value in state.values.items()},
    )


def _combine_all_reduces(state: PartitionState) -> None:
    """Merge all-reduces that can run as one; the reason recorded for the first one goes to the merged one."""
    module, causes = state.module, state.collectives.causes
    of_operand = {i.operands[0]: causes[i] for i in module.instructions() if i in causes and i.operands}
    AllReduceCombiner().run(module)
    for i in module.instructions():
        if isinstance(i.operation, AllReduce) and i not in causes and i.operands[0] in of_operand:
            causes[i] = of_operand[i.operands[0]]


@dataclass(frozen=True, slots=True)
class _ArgumentSharding:
    """The sharding of the value bound to a parameter of a computation.

    Attributes:
        tilings: the tilings of the leaves, nested like the shape.
        region: the manual regions around the value, outermost first.
        decisions: how the value is sharded and why; None for an entry parameter without inferred tiling.
    """

    tilings: Tilings
    region: Region = ()
    decisions: Decisions | None = None


def _partition_entry(state: PartitionState, even_results: bool) -> Tilings:
    """Rewrite the entry computation to compute tiles; return the tilings of its result.

    ``even_results`` is True to replicate results that their tiles do not divide evenly.
    """
    entry = state.module.entry
    arguments = [_entry_argument(state, p, number) for number, p in enumerate(entry.parameters)]
    tilings = None if state.annotations.open_dimensions(entry.root) else state.required.get(entry.root)
    _partition_computation(state, entry, arguments)
    if tilings is None or even_results:
        value = state.values[entry.root]
        tilings = state.replicated_if_uneven(value.shape, tilings or value.tilings)
    entry.root = resharded(state, entry.root, tilings, Purpose("result"))
    return state.values[entry.root].tilings


def _entry_argument(state: PartitionState, p: HloInstruction, number: int) -> _ArgumentSharding:
    """Return the sharding of the entry parameter ``p``, whose number is ``number``.

    This is the annotated one, else the one that propagation inferred, if the module leaves the parameter's
    sharding open, else replication.
    """
    annotated = state.required.get(p)
    inferred = state.propagation.tiling(p)
    if annotated is None and inferred is not None and state.annotations.is_open(number, p.shape):
        decision = Decision(p, p.shape, inferred, trace=state.propagation.trace)
        return _ArgumentSharding(inferred, decisions=decision)
    return _ArgumentSharding(annotated or state.replicated(p.shape))


def _partition_computation(
    state: PartitionState, computation: HloComputation, arguments: Sequence[_ArgumentSharding]
) -> None:
    """Rewrite the instructions of a computation to compute tiles.

    ``arguments`` are the shardings of the values bound to its parameters, by parameter number.
    """
    for i in computation.post_order():
        if isinstance(i.operation, Parameter):
            argument = arguments[i.operation.parameter_number]
            annotated = is_annotated(i)
            state.rewrite(i, argument.tilings, argument.region, argument.decisions, annotated)
        else:
            _partition_instruction(state, i)


def _partition_instruction(state: PartitionState, i: HloInstruction) -> None:
    values = [state.values[o] for o in i.operands]
    region: Region = max((value.region for value in values), key=len, default=())
    match i.operation:
        case Tuple():
            decisions = tuple(value.decisions for value in values)
            state.rewrite(i, tuple(value.tilings for value in values), region, decisions)
        case GetTupleElement(index=index):
            tilings = cast("tuple[Tilings, ...]", values[0].tilings)
            decisions = cast("tuple[Decisions, ...]", values[0].decisions)
            state.rewrite(i, tilings[index], region, decisions[index])
        case OptimizationBarrier():
            state.rewrite(i, values[0].tilings, region, values[0].decisions)
        case While():
            _partition_while(state, i, region)
        case Conditional():
            _partition_conditional(state, i, region)
        case CustomCall():
            _partition_custom_call(state, i, i.operation.custom_call_target, region)
        case _:
            partition_operation(state, i, region)


_BORDERS = {
    TO_LOCAL: enter_region,
    TO_GLOBAL: leave_region,
    TO_SHARD: enter_region_of_all_devices,
    TO_FULL: leave_region_of_all_devices,
}


def _partition_custom_call(state: PartitionState, i: HloInstruction, target: str, region: Region) -> None:
    if target in _BORDERS:
        Writer(i).replace(_BORDERS[target](state, i, region))
    elif target in CALL_PARTITIONERS:
        partition_custom_call(state, i, CALL_PARTITIONERS[target], region)
    elif target in TILEWISE:
        state.rewrite(i, state.replicated(i.shape), region)
        i.operation = with_local_operands(i)
    elif target == "LayoutConstraint":
        _partition_layout_constraint(state, i, region)
    elif is_identity(i) and len(i.operands) == 1:
        _replace_constraint(state, i, region)
    elif not region and device_of(i) is not None:
        partition_device_call(state, i)
    else:
        partition_operation(state, i, region)


# -- control flow


def _partition_while(state: PartitionState, i: HloInstruction, region: Region) -> None:
    """Rewrite a while loop to compute tiles.

    Arrays in the loop state have their propagated tilings, or else those of the initial value; the initial
    value and the result of the body are resharded to these. The result of the condition is replicated.
    """
    initial = i.operands[0]
    purpose = Purpose("loop", Decision(i, i.shape, None))
    tilings = _propagated(state, i, state.values[initial].tilings, region)
    copy = resharded(state, initial, tilings, purpose)
    if copy is not initial:
        i.replace_operand(0, copy)
    decisions = state.values[copy].decisions
    body, condition = i.called_computations
    for computation in (body, condition):
        _partition_computation(state, computation, [_ArgumentSharding(tilings, region, decisions)])
    body.root = resharded(state, body.root, tilings, purpose)
    replicated = state.replicated(state.values[condition.root].shape)
    condition.root = resharded(state, condition.root, replicated, purpose)
    state.rewrite(i, tilings, region, decisions)


def _partition_conditional(state: PartitionState, i: HloInstruction, region: Region) -> None:
    """Rewrite a conditional to compute tiles.

    The operands of branches keep their tilings, the results of branches are resharded to the propagated
    tilings. The selector is replicated.
    """
    selector, *arguments = i.operands
    purpose = Purpose("branches", Decision(i, i.shape, None))
    replicated = resharded(state, selector, state.replicated(state.values[selector].shape), purpose)
    if replicated is not selector:
        i.replace_operand(0, replicated)
    tilings = _propagated(state, i, state.replicated(i.shape), region)
    for computation, argument in zip(i.called_computations, arguments, strict=True):
        value = state.values[argument]
        sharding = _ArgumentSharding(value.tilings, region, value.decisions)
        _partition_computation(state, computation, [sharding])
        computation.root = resharded(state, computation.root, tilings, purpose)
    state.rewrite(i, tilings, region)


def _propagated(state: PartitionState, i: HloInstruction, default: Tilings, region: Region) -> Tilings:
    """Return the tilings that propagation inferred for the value of a loop or conditional.

    They are nested like its shape. Leaves without a propagated tiling, or with partial sums, get theirs from
    ``default``; inside a manual region (``region`` is not empty) all leaves do.
    """
    if region:
        return default
    inferred = [state.propagation.tiling(i, index) for index, _ in i.shape.leaves()]
    leaves = iter(
        [
            tiling if tiling is not None and tiling.unreduced is None else default_tiling
            for tiling, default_tiling in zip(inferred, leaves_of(default), strict=True)
        ]
    )
    return for_each_leaf(i.shape, lambda _: next(leaves))


# -- constraints


def _replace_constraint(state: PartitionState, i: HloInstruction, region: Region) -> None:
    """Replace a sharding constraint by its operand, resharded to the annotated tiling.

    In a manual region (code on local shapes, as in ``shard_map``; ``region`` is not empty) the operand is not
    resharded.
    """
    (operand,) = i.operands
    value = state.values[operand]
    tilings = state.required.get(i) if not region else None
    if isinstance(tilings, Tiling) and isinstance(value.tilings, Tiling):
        tilings = extended(tilings, value.tilings, state.annotations.open_dimensions(i))
    decisions = undecided(i, i.shape, tilings or value.tilings, is_annotated=True)
    purpose = Purpose("annotation", decisions if isinstance(decisions, Decision) else None)
    copy = resharded(state, operand, value.tilings if tilings is None else tilings, purpose)
    if copy is not operand:
        state.values[copy].decisions = decisions
    Writer(i).replace(copy)


def _partition_layout_constraint(state: PartitionState, i: HloInstruction, region: Region) -> None:
    """Rewrite a custom call that constrains the layout of a global array to constrain that of each tile."""
    value, layout = state.values[i.operands[0]], i.shape.layout
    state.rewrite(i, value.tilings, region, value.decisions)
    i.shape = i.shape.with_layout(layout)
    i.operation = with_local_operands(i)
