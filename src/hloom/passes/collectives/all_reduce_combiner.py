"""all-reduce-combiner: reduce several arrays in one all-reduce."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import cast

from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.traits import shape_bytes
from hloom.operations.collectives import AllReduce
from hloom.operations.combiners import commutative_combiner
from hloom.operations.structure import GetTupleElement
from hloom.passes.fuel import consume
from hloom.passes.pipeline import Pass
from hloom.passes.writing import Writer
from hloom.shape.shape import Shape


class AllReduceCombiner(Pass, name="all-reduce-combiner"):
    """``all-reduce(a), all-reduce(b)`` → ``all-reduce(a, b)``, if neither depends on the other. Bitwise.

    Devices synchronize once. Combined all-reduces have the same groups, commutative reduction and element
    type.

    Attributes:
        most_bytes: maximum size of the operands of a combined all-reduce, which are all live at once.
    """

    most_bytes: int = 30 << 20

    def run(self, module: HloModule) -> bool:
        """Combine the all-reduces of each computation."""
        changed = False
        for computation in module.computations:
            for group in self._groups(computation):
                if len(group) > 1 and consume(f"%{group[0].name}"):
                    _combine(group)
                    changed = True
        return changed

    def _groups(self, computation: HloComputation) -> Iterator[list[HloInstruction]]:
        """Yield groups of all-reduces that can be combined: of one kind, and independent of each other.

        All-reduces with equally many others on the longest path to them do not depend on each other.
        """
        groups: dict[Hashable, list[HloInstruction]] = defaultdict(list)
        depths: dict[HloInstruction, int] = {}
        for i in computation.post_order():
            needed = (*i.operands, *i.control_predecessors)
            kind = _kind(i)
            depth = max((depths[o] for o in needed), default=0)
            depths[i] = depth + (kind is not None)
            if kind is not None:
                groups[depth, kind].append(i)
        for group in groups.values():
            yield from self._divided(group)

    def _divided(self, group: Sequence[HloInstruction]) -> Iterator[list[HloInstruction]]:
        part: list[HloInstruction] = []
        size = 0
        for i in group:
            bytes_ = shape_bytes(i.shape)
            if part and size + bytes_ > self.most_bytes:
                yield part
                part, size = [], 0
            part.append(i)
            size += bytes_
        yield part


def _kind(i: HloInstruction) -> Hashable | None:
    """Return the key that combined all-reduces share; None for other instructions."""
    operation = i.operation
    if not isinstance(operation, AllReduce) or len(i.operands) != 1 or not i.shape.is_array:
        return None
    if i.has_control_dependencies or operation.constrain_layout:
        return None
    scalar = commutative_combiner(i)
    if scalar is None:
        return None
    groups = (operation.replica_groups, operation.channel_id is None, operation.use_global_device_ids)
    return (scalar.opcode, i.shape.element_type, *groups)


def _combine(group: Sequence[HloInstruction]) -> None:
    """Replace a group of all-reduces by the elements of one all-reduce of all their operands."""
    last = group[-1]
    operation = cast("AllReduce", last.operation)
    shape = Shape.tuple_([i.shape for i in group])
    combined = Writer(last).op(
        operation, *(i.operands[0] for i in group), shape=shape, computations=last.called_computations
    )
    for number, i in enumerate(group):
        writer = Writer(i)
        writer.replace(writer.op(GetTupleElement(index=number), combined, shape=i.shape))
