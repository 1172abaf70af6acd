"""Replacement of all-reduces by reduce-scatters, which send half the bytes, if devices use slices only.

This is a pass because the users of an all-reduce are not known yet when it is written.
"""

from __future__ import annotations

from hloom.ir.instruction import HloInstruction
from hloom.operations.collectives import AllReduce
from hloom.operations.conversion import Convert
from hloom.passes.writing import Inserter, Writer
from hloom.sharding.partitioning.state import PartitionState
from hloom.sharding.planning.assignment import scattered_result_dimension
from hloom.sharding.planning.decisions import Cause
from hloom.sharding.tiling.tiling import Tiling


def scatter_sums(state: PartitionState) -> None:
    """Replace all-reduces by reduce-scatters where all users slice the sum to the tiles that these yield.

    Only all-reduces that the partitioner emitted to combine partial results are replaced.
    """
    for all_reduce, cause in list(state.collectives.causes.items()):
        if isinstance(all_reduce.operation, AllReduce) and cause.purpose.kind == "reduction":
            _scatter(state, all_reduce, cause)


def _scatter(state: PartitionState, all_reduce: HloInstruction, cause: Cause) -> None:
    """Replace an all-reduce by a reduce-scatter if all users slice the sum to the tiles that this yields.

    ``cause`` tells why the all-reduce is needed; it is recorded for the reduce-scatter.
    """
    users = list(all_reduce.users)
    total = users[0] if len(users) == 1 and isinstance(users[0].operation, Convert) else all_reduce
    slices = list(total.users)
    tilings = {state.resharder.slices.get(user) for user in slices}
    by = cause.purpose.by
    if total.is_root or all_reduce.is_root or len(tilings) != 1 or by is None or by.assignment is None:
        return
    (target,) = tilings
    if target is None or not isinstance(by.tiling, Tiling):
        return
    d = scattered_result_dimension(by.tiling, target, by.shape.dimensions, by.sharded)
    if d is None:
        return
    combiner = next(factor.combiner for factor, _ in by.sharded if factor.combiner is not None)
    value = state.values[total]
    with state.collectives.because(cause):
        groups = target.groups([d], value.fixed)
        part = state.collectives.reduce_scatter(all_reduce.operands[0], combiner, d, groups)
    part.metadata = all_reduce.metadata
    part = Inserter(all_reduce).convert(part, total.shape.element_type)
    state.add(part, by.shape, target, value.region, value.decisions)
    for each in slices:
        Writer(each).replace(part)
