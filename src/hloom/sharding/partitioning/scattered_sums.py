"""Sums of which each device uses its own part only: reduce-scatters in the place of all-reduces.

When a sum is made, its later uses are not known. If it turns out that all of them are slices into the same
tiles, one along the axes that the devices sum over, half of the bytes are enough.
"""

from __future__ import annotations

from hloom.ir.instruction import HloInstruction
from hloom.operations.collectives import AllReduce
from hloom.operations.conversion import Convert
from hloom.passes.writing import Writer
from hloom.sharding.partitioning.communication import fixed
from hloom.sharding.partitioning.values import Values
from hloom.sharding.planning.assignment import scattered
from hloom.sharding.planning.decisions import Cause
from hloom.sharding.tiling.tiling import Tiling


def scatter_sums(values: Values) -> None:
    """Replace sums of which devices use a part by reduce-scatters."""
    for total, cause in list(values.resharder.causes.items()):
        if isinstance(total.operation, AllReduce) and cause.purpose.kind == "reduction":
            _scatter(values, total, cause)


def _scatter(values: Values, total: HloInstruction, cause: Cause) -> None:
    """Replace a sum if all its uses are slices of one tiling, which a reduce-scatter gives."""
    users = list(total.users)
    last = users[0] if len(users) == 1 and isinstance(users[0].operation, Convert) else total
    slices = list(last.users)
    wanted = {values.resharder.cuts.get(user) for user in slices}
    by = cause.purpose.by
    if last.is_root or total.is_root or len(wanted) != 1 or by is None or by.choice is None:
        return
    want, have = next(iter(wanted)), by.tiling
    if want is None or not isinstance(have, Tiling):
        return
    cuts = by.choice.cuts
    d = scattered(have, want, by.shape.dimensions, cuts)
    if d is None:
        return
    combiner = next(factor.combiner for factor, _ in cuts if factor.combiner is not None)
    groups = want.groups([d], fixed(values.regions[last]))
    with values.resharder.because(cause):
        part = values.resharder.reduce_scatter(total.operands[0], combiner, d, groups)
    part.metadata = total.metadata
    part = Writer(total).convert(part, last.shape.element_type)
    for each in slices:
        values.made(part, by.shape, want, values.regions[last], values.decided[last])
        Writer(each).replace(part)
