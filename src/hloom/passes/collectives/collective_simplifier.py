"""collective-simplifier: remove collectives of devices that are alone in their groups."""

from __future__ import annotations

from typing import Final

from hloom.ir.instruction import HloInstruction
from hloom.operations.collectives import AllGather, AllReduce, Collective, ReduceScatter
from hloom.operations.exchanges import AllToAll
from hloom.operations.structure import Tuple
from hloom.passes.op_expander import OpExpander
from hloom.passes.writing import Writer

_IDENTITIES: Final = (AllGather, AllReduce, AllToAll, ReduceScatter)
"""Collectives that give back the operands of a device that is alone in its group."""


class CollectiveSimplifier(OpExpander, name="collective-simplifier", of=_IDENTITIES):
    """``all-reduce(x), replica_groups={{0},{1}}`` → ``x``, and other collectives likewise. Bitwise."""

    def expand(self, i: HloInstruction, w: Writer) -> HloInstruction | None:
        if not is_alone(i):
            return None
        return w.op(Tuple(), *i.operands) if i.shape.is_tuple else i.operands[0]


def is_alone(i: HloInstruction) -> bool:
    """Return whether each device is alone in its group of a collective, for any number of devices."""
    operation = i.operation
    if not isinstance(operation, Collective) or operation.group_mode == "cross_replica_and_partition":
        return False
    groups = operation.replica_groups.groups
    return bool(groups) and all(len(group) == 1 for group in groups)
