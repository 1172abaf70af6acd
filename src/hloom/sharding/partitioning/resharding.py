"""Resharding of values, from the cheapest existing copy or by recomputation from operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from hloom.ir.instruction import HloInstruction
from hloom.ir.sharding_rule import Factor
from hloom.operations.structure import GetTupleElement, Tuple
from hloom.passes.writing import Inserter
from hloom.shape.shape import Shape
from hloom.sharding.partitioning.local_operations import LocalOperation, localized
from hloom.sharding.partitioning.recomputation import DEEPEST, Origin, is_cheap
from hloom.sharding.partitioning.state import PartitionState, Region, local_shape
from hloom.sharding.planning import plans
from hloom.sharding.planning.decisions import Cause, Decisions, Purpose, ShardedFactor
from hloom.sharding.reading.annotations import Tilings
from hloom.sharding.tiling.tiling import Tiling


def resharded(state: PartitionState, i: HloInstruction, tilings: Tilings, purpose: Purpose) -> HloInstruction:
    """Return the value of ``i`` in the given tilings; ``i`` itself if it has them.

    ``tilings`` are nested like the shape. Emits collectives, or instructions that compute arrays again, where
    no copy in the tiling exists. ``purpose`` is recorded as the reason of the collectives.
    """
    value = state.values[i]
    if value.tilings == tilings:
        return i
    if isinstance(value.tilings, Tiling) and isinstance(tilings, Tiling):
        return _resharded_array(state, i, tilings, purpose) if value.shape.is_array else i
    inserter = Inserter(i)
    decisions = cast("tuple[Decisions, ...]", value.decisions)
    elements: list[HloInstruction] = []
    pairs = zip(cast("tuple[Tilings, ...]", value.tilings), cast("tuple[Tilings, ...]", tilings), strict=True)
    for number, (before, after) in enumerate(pairs):
        if isinstance(i.operation, Tuple):
            element = i.operands[number]
        else:
            shape = i.shape.tuple_shapes[number]
            element = inserter.op(GetTupleElement(index=number), i, shape=shape)
            state.add(element, value.shape.tuple_shapes[number], before, value.region, decisions[number])
        elements.append(resharded(state, element, after, purpose))
    shape = Shape.tuple_([element.shape for element in elements])
    result = inserter.op(Tuple(), *elements, shape=shape)
    return state.add(result, value.shape, tilings, value.region, decisions)


def reshard_operands(
    state: PartitionState, i: HloInstruction, tilings: Sequence[Tilings | None], purpose: Purpose
) -> None:
    """Replace the operands of an instruction by copies in the given tilings.

    Args:
        state: the program that is being partitioned.
        i: the instruction.
        tilings: the tilings for each operand; None keeps the operand.
        purpose: the reason, recorded for each collective with the index of the operand.
    """
    for number, (operand, required) in enumerate(zip(list(i.operands), tilings, strict=True)):
        if required is None:
            continue
        copy = resharded(state, operand, required, Purpose(purpose.kind, purpose.by, number))
        if copy is not operand:
            i.replace_operand(number, copy)


def _resharded_array(
    state: PartitionState, i: HloInstruction, tiling: Tiling, purpose: Purpose
) -> HloInstruction:
    """Return the array ``i`` in the given tiling: a copy that exists, or a new one.

    The new copy is resharded from a copy, or computed again from resharded operands, whichever sends fewer
    bytes per device. ``purpose`` is recorded as the reason of the collectives.
    """
    value = state.values[i]
    copies = value.copies
    for copy in copies:
        if state.values[copy].tiling == tiling:
            return copy
    nearest, sent = _cheapest_copy(state, i, tiling)
    source = state.values[nearest]
    result = _recomputed(state, copies, tiling, sent, purpose)
    if result is None:
        with state.collectives.because(Cause(purpose, value.decisions, source.tiling, tiling)):
            result = state.resharder.reshard(nearest, value.shape, source.tiling, tiling, value.fixed)
        if result is nearest:
            return nearest
    state.add(result, value.shape, tiling, value.region, value.decisions)
    copies.append(result)
    state.values[result].copies = copies
    return result


def _cheapest_copy(state: PartitionState, i: HloInstruction, tiling: Tiling) -> tuple[HloInstruction, float]:
    """Return the copy of array ``i`` cheapest to reshard to ``tiling``, and the bytes that a device sends.

    Copies of an array are the instructions that hold its tiles in different tilings.
    """
    value = state.values[i]
    width = value.shape.element_type.bits / 8
    sent = [
        plans.sent(value.shape.dimensions, state.values[copy].tiling, tiling, value.fixed)
        for copy in value.copies
    ]
    fewest = min(sent)
    return value.copies[sent.index(fewest)], fewest * width


# -- recomputation


def origin_of(
    state: PartitionState,
    i: HloInstruction,
    factors: Sequence[Factor],
    shapes: Sequence[Shape],
    region: Region,
) -> Origin | None:
    """Return the operation of ``i`` as an `Origin`, from which its value can be recomputed in any tiling.

    Returns None if the operation is not cheap, or has an operand that has partial sums, is no array, or is
    outside the manual region of ``i``.

    Args:
        state: the program that is being partitioned.
        i: the instruction.
        factors: the factors of the operation: its indices, with the dimensions that they index.
        shapes: the global shapes of the operands.
        region: the manual regions around the instruction.
    """
    operands = [state.values[o] for o in i.operands]
    reduced = all(isinstance(o.tilings, Tiling) and o.tilings.unreduced is None for o in operands)
    if not reduced or not is_cheap(i) or any(o.region != region for o in operands):
        return None
    called = tuple(i.called_computations)
    return Origin(i.operation, called, tuple(i.operands), factors, tuple(shapes), i.shape)


def bytes_to_reshard(state: PartitionState, i: HloInstruction, tiling: Tiling, depth: int = DEEPEST) -> float:
    """Return the bytes that a device sends to obtain array ``i`` in a tiling in the cheapest way.

    That is resharding ``i``, or recomputing it from resharded operands; ``depth`` is the maximum length of a
    chain of operations to recompute.
    """
    _, sent = _cheapest_copy(state, i, tiling)
    recomputation = _recomputation(state, state.values[i].copies, tiling, sent, depth)
    return sent if recomputation is None else recomputation[2]


def _recomputation(
    state: PartitionState, copies: Sequence[HloInstruction], tiling: Tiling, limit: float, depth: int
) -> tuple[Origin, list[ShardedFactor], float] | None:
    """Return how to recompute an array in a tiling, instead of resharding one of its copies.

    Returns (the operation that computed the array, its indices to shard with their tilings, the bytes that a
    device sends to reshard the operands). Returns None if these bytes would reach ``limit``, or if the array
    cannot be recomputed.

    Args:
        state: the program that is being partitioned.
        copies: the instructions that hold the array, in different tilings.
        tiling: the tiling of the recomputed array.
        limit: bytes sent per device, exclusive.
        depth: the maximum length of a chain of operations to recompute.
    """
    origin = next((o for copy in copies if (o := state.values[copy].origin) is not None), None)
    if origin is None or limit == 0 or depth == 0 or tiling.unreduced is not None:
        return None
    sharded = origin.sharded_factors(tiling)
    if sharded is None:
        return None
    sent = 0.0
    tilings = origin.operand_tilings(sharded, state.devices)
    for operand, operand_tiling in zip(origin.operands, tilings, strict=True):
        sent += bytes_to_reshard(state, operand, operand_tiling, depth - 1)
        if sent >= limit:
            return None
    return origin, sharded, sent


def _recomputed(
    state: PartitionState, copies: Sequence[HloInstruction], tiling: Tiling, limit: float, purpose: Purpose
) -> HloInstruction | None:
    """Emit the operations that recompute an array in a tiling; return the result.

    Returns None if the array cannot be recomputed, or if a device would send ``limit`` bytes or more to
    reshard the operands. ``copies`` are the instructions that hold the array, in different tilings;
    ``purpose`` is recorded as the reason of the collectives.
    """
    recomputation = _recomputation(state, copies, tiling, limit, DEEPEST)
    if recomputation is None:
        return None
    origin, sharded, _ = recomputation
    tilings = origin.operand_tilings(sharded, state.devices)
    pairs = zip(origin.operands, tilings, strict=True)
    operands = [resharded(state, operand, operand_tiling, purpose) for operand, operand_tiling in pairs]
    result = Inserter(copies[0]).op(
        origin.operation,
        *operands,
        shape=local_shape(origin.result, tiling),
        computations=origin.computations,
    )
    if not sharded:
        return result
    fixed = state.values[copies[0]].fixed
    return localized(
        LocalOperation(
            result, origin.shapes, origin.result, tilings, tiling, sharded, state.collectives, fixed
        )
    )
