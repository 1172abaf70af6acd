"""Partitioning of operations: each computes tiles by its cheapest assignment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from hloom.ir.instruction import HloInstruction
from hloom.ir.sharding_rule import Factor
from hloom.operations.control_flow import Call
from hloom.operations.custom_call import CustomCall
from hloom.passes.expand.call_inliner import inline
from hloom.passes.writing import Inserter, Writer
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.custom_calls import (
    CallPartitioner,
    ShardedShape,
    adopt,
    batch_factors,
    rule_of,
    with_local_operands,
)
from hloom.sharding.partitioning.extents import copied, masked, on_first_device
from hloom.sharding.partitioning.local_operations import LocalOperation, localized
from hloom.sharding.partitioning.one_device import device_of, run_on
from hloom.sharding.partitioning.resharding import bytes_to_reshard, origin_of, reshard_operands, resharded
from hloom.sharding.partitioning.state import PartitionState, Region, fixed_coordinates
from hloom.sharding.planning.assignment import (
    AssignmentProblem,
    accumulation_type,
    cheapest_assignment,
    from_dimensions,
    operand_tiling,
    result_tiling,
    scattered_result_dimension,
)
from hloom.sharding.planning.decisions import (
    Cause,
    Decision,
    Decisions,
    FactorAssignment,
    Purpose,
    ShardedFactor,
)
from hloom.sharding.planning.partial_sums import is_linear, stay_unreduced
from hloom.sharding.reading.annotations import Tilings, for_each_leaf, leaves_of
from hloom.sharding.tiling.coordinates import Coordinate
from hloom.sharding.tiling.tiling import Tiling


def partition_operation(state: PartitionState, i: HloInstruction, region: Region) -> None:
    """Rewrite an operation to compute a tile of its result from tiles of its operands.

    Chooses by cost which indices of the operation (factors, such as a batch dimension) to shard, reshards the
    operands, and combines partial results. ``region`` has the manual regions (bodies of ``shard_map``) around
    the instruction.
    """
    shapes = [state.values[o].shape for o in i.operands]
    required = state.required.get(i) if not region else None
    factors = state.propagation.factors[i]
    if isinstance(i.operation, CustomCall):
        factors = batch_factors(i, shapes) or factors
    unreduced = None
    if (
        isinstance(required, Tiling)
        and required.unreduced
        and _maps_partial_sums(state, i, required.unreduced)
    ):
        unreduced, required = required.unreduced, required.reduced()
        _push_partial_sums(state, i)
    decision = _decided(state, i, factors, shapes, region, required)
    assignment = decision.assignment
    assert assignment is not None
    decision.factors, decision.trace = factors, state.propagation.trace
    origin = origin_of(state, i, factors, shapes, region)
    tilings = [
        None if n in assignment.unmoved else _tilings_of(state, shape, assignment.sharded, n)
        for n, shape in enumerate(shapes)
    ]
    reshard_operands(state, i, tilings, Purpose("operand", decision))
    shape = i.shape
    result_tilings = for_each_leaf(shape, lambda leaf: result_tiling(assignment.sharded, leaf, state.devices))
    decisions = _by_leaf(decision, result_tilings)
    with state.collectives.because(Cause(Purpose("halo", decision))):
        local = _local_operation(state, i, shapes, assignment, result_tilings, region)
    state.values[local].decisions = decisions
    if origin is not None and unreduced is None:
        state.values[local].origin = origin
    users, is_root = list(local.users), local.is_root
    result = local
    if any(factor.result is None for factor, _ in assignment.sharded):
        with state.collectives.because(Cause(Purpose("reduction", decision))):
            result = _reduced(state, local, assignment.sharded, required)
        state.values[result].decisions = decisions
    if required is not None:
        result = resharded(state, result, required, Purpose("annotation", decision))
    if unreduced is not None:
        value = state.values[result]
        value.tilings = replace(value.tiling, unreduced=unreduced)
        value.copies = [result]
    if result is not local:
        _redirect(local, result, users, is_root)


def _tilings_of(
    state: PartitionState, shape: Shape, sharded: Sequence[ShardedFactor], number: int
) -> Tilings:
    """Return the tilings that the operand with index ``number`` must have, nested like its global ``shape``.

    ``sharded`` are the indices of the operation (factors) that are sharded, with their tilings.
    """
    return for_each_leaf(shape, lambda leaf: operand_tiling(sharded, number, leaf, state.devices))


def _redirect(
    old: HloInstruction, new: HloInstruction, users: Sequence[HloInstruction], is_root: bool
) -> None:
    """Replace ``old`` by ``new`` in the given users and, if ``is_root``, as the root of its computation."""
    computation = old.parent
    assert computation is not None
    for user in users:
        for number, operand in enumerate(user.operands):
            if operand is old:
                user.replace_operand(number, new)
    if is_root:
        computation.root = new


# -- partial sums


def _maps_partial_sums(state: PartitionState, i: HloInstruction, unreduced: Coordinate) -> bool:
    """Return true if an operation can run on partial sums of its operands, and then yields partial sums.

    ``unreduced`` tells which partial sum each device holds. Each operand must have partial sums in the same
    way or none at all, and the operation must be linear in those that have.
    """
    tilings = [state.values[o].tilings for o in i.operands]
    coordinates = [tiling.unreduced if isinstance(tiling, Tiling) else None for tiling in tilings]
    flags = [coordinate == unreduced for coordinate in coordinates]
    others_reduced = all(c is None for c, flag in zip(coordinates, flags, strict=True) if not flag)
    return any(flags) and others_reduced and is_linear(i, flags)


def _push_partial_sums(state: PartitionState, i: HloInstruction) -> None:
    """Replace each operand of ``i`` that has partial sums by a copy that is recorded as if it had none.

    Then no all-reduce precedes ``i``, which each device applies to its own partial sum.
    """
    for number, operand in enumerate(list(i.operands)):
        value = state.values[operand]
        if isinstance(value.tilings, Tiling) and value.tilings.unreduced is not None:
            partial = copied(operand)
            state.add(partial, value.shape, value.tilings.reduced(), value.region, value.decisions)
            i.replace_operand(number, partial)


# -- decisions


def _by_leaf(decision: Decision, tilings: Tilings) -> Decisions:
    """Copy the record of how a result is sharded for each leaf of the result, with the leaf's tiling.

    Returns the copies, nested like ``tilings``. For a single array, ``decision`` itself gets the tiling.
    """
    if isinstance(tilings, Tiling):
        decision.tiling = tilings
        return decision
    return tuple(_by_leaf(replace(decision), tiling) for tiling in tilings)


def _decided(
    state: PartitionState,
    i: HloInstruction,
    factors: Sequence[Factor],
    shapes: Sequence[Shape],
    region: Region,
    required: Tilings | None,
) -> Decision:
    """Choose the factors (indices) of an operation to shard such that a device sends the fewest bytes.

    Returns a record of the choice and its inputs; the tiling of the result is not set in it yet.

    Args:
        state: the program that is being partitioned.
        i: the instruction.
        factors: the factors of the operation.
        shapes: the global shapes of the operands.
        region: the manual regions around the instruction.
        required: the tilings that the result must have; None if it may have any.
    """
    index, result = next(i.shape.leaves(), ((), i.shape))
    leaves = leaves_of(required) if required is not None else []
    target = leaves[0] if leaves else state.propagation.tiling(i, index)
    operands = [state.values[o] for o in i.operands]
    tilings = tuple(
        o.tilings if isinstance(o.tilings, Tiling) and o.shape.is_array else None for o in operands
    )

    @cache
    def bytes_to_reshard_operand(number: int, tiling: Tiling) -> float:
        return bytes_to_reshard(state, i.operands[number], tiling)

    fixed = fixed_coordinates(region)
    problem = AssignmentProblem(
        i, factors, shapes, result, tilings, target, fixed, state.devices, bytes_to_reshard_operand
    )
    return Decision(
        i,
        i.shape,
        None,
        required is not None,
        tuple(o.decisions for o in operands),
        tilings,
        cheapest_assignment(problem),
        target,
    )


# -- the local operation


def _local_operation(
    state: PartitionState,
    i: HloInstruction,
    shapes: Sequence[Shape],
    assignment: FactorAssignment,
    tilings: Tilings,
    region: Region,
) -> HloInstruction:
    """Rewrite an instruction to compute tiles; return it or the instruction that replaces it.

    Args:
        state: the program that is being partitioned.
        i: the instruction, whose operands are resharded already.
        shapes: the global shapes of the operands.
        assignment: the factors (indices of the operation) that are sharded, with their tilings.
        tilings: the tilings of the result, nested like its shape.
        region: the manual regions around the instruction.
    """
    sharded, shape = assignment.sharded, i.shape
    for factor, tiling in sharded:
        if factor.result is None and factor.kind != "indexed" and factor.size % tiling.tiles[0]:
            _mask_padding(i, shapes, factor, tiling)
    first, result = tilings, shape
    while isinstance(first, tuple) and first:
        first, result = first[0], result.tuple_shapes[0]
    if not sharded or not isinstance(first, Tiling):
        state.rewrite(i, tilings, region)
        return i
    operand_tilings = [
        operand_tiling(sharded, number, operand_shape, state.devices) if operand_shape.is_array else None
        for number, operand_shape in enumerate(shapes)
    ]
    for number in assignment.unmoved:
        operand_tilings[number] = state.values[i.operands[number]].tiling
    fixed = fixed_coordinates(region)
    local = localized(
        LocalOperation(i, shapes, result, operand_tilings, first, sharded, state.collectives, fixed)
    )
    if local is i:
        state.rewrite(i, tilings, region)
        if isinstance(i.operation, CustomCall):
            i.operation = with_local_operands(i)
        return i
    Writer(i).replace(local)
    return state.add(local, shape, tilings, region)


def _mask_padding(i: HloInstruction, shapes: Sequence[Shape], factor: Factor, tiling: Tiling) -> None:
    """Replace the padding of operands along a reduced dimension, so that it does not change the result.

    The padding becomes the neutral element of a reduce operation's combiner, 0 for other operations.

    Args:
        i: the instruction, whose operands are tiles.
        shapes: the global shapes of the operands.
        factor: the reduced index of the operation; it states the reduced dimension of each operand.
        tiling: the tiling of these dimensions, of rank 1.
    """
    assert factor.combiner is not None
    for number, d in factor.operands.items():
        if factor.kind == "halo" and number == 0:
            continue
        kind = shapes[number].element_type
        identity = factor.combiner.neutral_element(kind) if i.opcode == "reduce" else 0
        fill = Inserter(i).scalar(identity if identity is not None else 0, kind)
        along = tiling.select([0 if e == d else None for e in range(shapes[number].rank)])
        extent = shapes[number].dimensions[d]
        i.replace_operand(number, masked(i.operands[number], d, along, extent, fill))


def _reduced(
    state: PartitionState, i: HloInstruction, sharded: Sequence[ShardedFactor], required: Tilings | None
) -> HloInstruction:
    """Emit the reduction of partial results over devices; return the instruction with the result.

    The reduction is a reduce-scatter if that yields the wanted tiling, else an all-reduce. No collective is
    emitted if the wanted tiling has partial sums, which the partial results already are.

    Args:
        state: the program that is being partitioned.
        i: the instruction that computes partial results.
        sharded: the sharded indices of the operation (factors); those that the result lacks are reduced over
            devices.
        required: the wanted tilings of the result; None to take those that propagation inferred.
    """
    combiner = next(factor.combiner for factor, _ in sharded if factor.combiner is not None)
    value = state.values[i]
    shape, tiling = value.shape, value.tiling
    initial = i.operands[1] if i.opcode == "reduce" else None
    inserter = Inserter(i)
    if initial is not None:
        identity = combiner.neutral_element(i.shape.element_type)
        assert identity is not None
        i.replace_operand(1, inserter.scalar(identity, i.shape.element_type))
    target = required if required is not None else state.propagation.tiling(i)
    wide = accumulation_type(i, shape)
    if wide is not None:
        i.shape = Shape(wide, i.shape.dimensions)
    total = i
    if isinstance(target, Tiling) and stay_unreduced(tiling, target, sharded):
        tiling = target
    elif (
        isinstance(target, Tiling)
        and (d := scattered_result_dimension(tiling, target, shape.dimensions, sharded)) is not None
    ):
        total = state.collectives.reduce_scatter(i, combiner, d, target.groups([d], value.fixed))
        tiling = target
    else:
        along = [n for n, (factor, _) in enumerate(sharded) if factor.result is None]
        groups = Tiling.product([factor_tiling for _, factor_tiling in sharded]).groups(along, value.fixed)
        total = state.collectives.all_reduce(i, combiner, groups)
    if initial is not None:
        addend = inserter.broadcast(initial, total.shape.dimensions)
        if tiling.unreduced is not None:
            addend = on_first_device(addend, tiling.unreduced)
        total = inserter.op(combiner, addend, total, shape=total.shape)
    total = inserter.convert(total, shape.element_type)
    if total is i:
        value.tilings = tiling
        return i
    return state.add(total, shape, tiling, value.region)


# -- calls


def partition_custom_call(
    state: PartitionState, i: HloInstruction, partitioner: CallPartitioner, region: Region
) -> None:
    """Replace a custom call by the program that ``partitioner`` returns for it, which each device runs.

    ``partitioner`` is the one registered for the call's target. Operands are resharded to the tilings that
    the program takes, and the program is inlined. ``region`` has the manual regions around the call.
    """
    rule = rule_of(i)
    shapes = [state.values[o].shape for o in i.operands]
    required = state.required.get(i)
    decision = _decided(state, i, [f.factor for f in rule], shapes, region, required)
    tiling_of = {id(factor): tiling for factor, tiling in decision.sharded}
    sharded = [(f, tiling_of[id(f.factor)]) for f in rule if id(f.factor) in tiling_of]
    operands: list[ShardedShape] = []
    for number, (operand, shape) in enumerate(zip(i.operands, shapes, strict=True)):
        dimensions = {f.factor.operands[number]: t for f, t in sharded if number in f.factor.operands}
        tiling = state.values[operand].tiling
        operands.append((shape, from_dimensions(shape, dimensions, state.devices) if rule else tiling))
    results: list[ShardedShape] = []
    for number, shape in enumerate(i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)):
        dimensions = {f.results[number]: t for f, t in sharded if number in f.results}
        tiling = from_dimensions(shape, dimensions, state.devices)
        results.append((shape, tiling if required is None else leaves_of(required)[number]))
    program = partitioner(i, operands, results)
    if program is None:
        Writer(i).replace(i.operands[0])
        return
    reshard_operands(state, i, program.operands, Purpose("operand", decision))
    adopt(state.module, program.module, state.collectives.channel)
    entry = program.module.entry
    call = Inserter(i).op(Call(), *i.operands, shape=entry.root.shape, computations=[entry])
    result = inline(call)
    if not i.shape.is_tuple:
        result = copied(result)
    tilings = tuple(program.results) if i.shape.is_tuple else program.results[0]
    Writer(i).replace(state.add(result, i.shape, tilings, region, _by_leaf(decision, tilings)))


def partition_device_call(state: PartitionState, i: HloInstruction) -> None:
    """Replace a custom call with maximal sharding by code that runs it on its device only.

    The code broadcasts the results to all devices. Operands are replicated first.
    """
    purpose = Purpose("device", Decision(i, i.shape, None))
    reshard_operands(state, i, [state.replicated(state.values[o].shape) for o in i.operands], purpose)
    device = device_of(i)
    assert device is not None
    with state.collectives.because(Cause(purpose)):
        result = run_on(i, device, state.devices, state.collectives)
    Writer(i).replace(state.add(result, i.shape, state.replicated(i.shape), ()))
