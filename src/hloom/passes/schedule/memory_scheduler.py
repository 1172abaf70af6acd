"""hlo-memory-scheduler: order instructions to reduce peak memory.

Three orders are tried for each computation: the plain post-order, in which updates in place follow other
readers of what they overwrite (an order that the others keep); a greedy one that runs instructions as soon
as they free more than they allocate; and a greedy one that always runs the instruction that leaves the least
memory live. The one with the lowest peak is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from heapq import heappop, heappush

from hloom.analysis.purity import communicates
from hloom.analysis.updates import Updates
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.ir.traits import Family
from hloom.operations.structure import GetTupleElement, Tuple
from hloom.passes.facts import UNORDERED
from hloom.passes.pipeline import Pass
from hloom.passes.schedule.update_order import After, update_order
from hloom.records import dataclass
from hloom.shape.shape import Shape


def _holds_operands(i: HloInstruction) -> bool:
    """Return whether the value consists of its operands' buffers: aliases, tuples and tuple elements."""
    return i.operation.aliases_operand or isinstance(i.operation, Tuple | GetTupleElement)


class HloMemoryScheduler(Pass, name="hlo-memory-scheduler", needs={UNORDERED}, breaks={UNORDERED}):
    """An unordered module → a scheduled one with low peak memory."""

    def run(self, module: HloModule) -> bool:
        """Order every computation, callees first."""
        peaks: dict[HloComputation, int] = {}
        updates = Updates(module)
        running = {module.entry}
        for i in module.instructions():
            if i.operation.calls_program:
                running.update(i.called_computations)
        for computation in module.post_order():
            if computation in running:
                order, peaks[computation] = memory_order(computation, peaks, updates)
            else:
                order = computation.post_order()
            computation.reorder(order)
            computation.is_scheduled = True
        module.config.is_scheduled = True
        return True


def memory_order(
    computation: HloComputation, peaks: dict[HloComputation, int], updates: Updates
) -> tuple[list[HloInstruction], int]:
    """Return the best of three orders of a computation, and its peak memory in bytes.

    Computations that communicate with other devices or the host keep their post-order: another order could
    deadlock devices that wait for each other.

    Args:
        computation: the computation to order.
        peaks: peak memory in bytes of the computations that its control flow calls.
        updates: the updates of the module; see `hloom.passes.schedule.update_order`.
    """
    plain, after = update_order(computation.post_order(), updates)
    liveness = _Liveness(plain, computation.root, peaks, after)
    orders = [plain]
    if len(plain) > 2 and not any(map(communicates, plain)):
        orders += [liveness.greedy(everything=False), liveness.greedy(everything=True)]
    return min(((order, liveness.peak(order)) for order in orders), key=lambda ordered: ordered[1])


@dataclass(slots=True, eq=False)
class _Value:
    """An array that an instruction allocates, with its readers, including readers through aliases.

    Parameters, constants and results have separate memory and count as 0 bytes.
    """

    size: int
    readers: set[HloInstruction] = field(default_factory=set[HloInstruction])


class _Liveness:
    """The values that the instructions of a computation allocate and read."""

    def __init__(
        self,
        order: Sequence[HloInstruction],
        root: HloInstruction,
        peaks: dict[HloComputation, int],
        after: After,
    ) -> None:
        self.predecessors = {i: {*i.operands, *i.control_predecessors, *after.get(i, ())} for i in order}
        self.followers = {i: dict.fromkeys((*i.users, *i.control_successors)) for i in order}
        for update, readers in after.items():
            for reader in readers:
                self.followers[reader][update] = None
        self.position = {i: n for n, i in enumerate(order)}
        self.made: dict[HloInstruction, tuple[_Value, ...]] = {}
        self.held: dict[HloInstruction, tuple[_Value, ...]] = {}
        self.reads: dict[HloInstruction, tuple[_Value, ...]] = {}
        self.inner: dict[HloInstruction, int] = {}
        for i in order:
            self._instruction(i, peaks)
        for value in self.held[root]:
            value.size = 0

    def _instruction(self, i: HloInstruction, peaks: dict[HloComputation, int]) -> None:
        if _holds_operands(i):
            self.held[i] = self._handed_on(i)
            return
        parts = i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)
        is_structure = i.operation.family is Family.STRUCTURE
        self.made[i] = self.held[i] = tuple(_Value(0 if is_structure else _bytes(s)) for s in parts)
        self.reads[i] = tuple(dict.fromkeys(v for o in i.operands for v in self.held[o] if v.size))
        for read in self.reads[i]:
            read.readers.add(i)
        if i.operation.calls_program:
            self.inner[i] = max((peaks.get(c, 0) for c in i.called_computations), default=0)

    def _handed_on(self, i: HloInstruction) -> tuple[_Value, ...]:
        """Return the arrays that an alias stands for.

        For a tuple element, only the selected array, if known.
        """
        if isinstance(i.operation, GetTupleElement):
            (operand,) = i.operands
            index = i.operation.index
            if isinstance(operand.operation, Tuple):
                return self.held[operand.operands[index]]
            if operand in self.made:
                return (self.made[operand][index],)
        return tuple(dict.fromkeys(v for o in i.operands for v in self.held[o]))

    def peak(self, order: Sequence[HloInstruction]) -> int:
        """Return the peak memory of an order in bytes."""
        live = most = 0
        unread: dict[_Value, int] = {}
        for i in order:
            if i not in self.made:
                continue
            live += sum(v.size for v in self.made[i])
            most = max(most, live + self.inner.get(i, 0))
            for read in self.reads[i]:
                unread[read] = unread.get(read, len(read.readers)) - 1
                if not unread[read]:
                    live -= read.size
            live -= sum(v.size for v in self.made[i] if not v.readers)
        return most

    def greedy(self, *, everything: bool) -> list[HloInstruction]:
        """Return a greedy order by memory growth, or by post-order among growing instructions."""
        missing = {i: len(before) for i, before in self.predecessors.items()}
        unread = {value: len(value.readers) for values in self.made.values() for value in values}
        heap: list[tuple[int, int, HloInstruction]] = []
        order: dict[HloInstruction, None] = {}

        def cost(i: HloInstruction) -> int:
            growth = self._growth(i, unread)
            return growth if everything else min(growth, 1)

        def offer(i: HloInstruction) -> None:
            heappush(heap, (cost(i), self.position[i], i))

        for i in self.position:
            if not missing[i]:
                offer(i)
        while heap:
            expected, _, i = heappop(heap)
            if i in order or expected != cost(i):
                continue
            order[i] = None
            for read in self.reads.get(i, ()):
                unread[read] -= 1
                if unread[read] == 1:
                    for reader in read.readers:
                        if not missing[reader] and reader not in order:
                            offer(reader)
            for follower in self.followers[i]:
                missing[follower] -= 1
                if not missing[follower]:
                    offer(follower)
        return list(order)

    def _growth(self, i: HloInstruction, left: dict[_Value, int]) -> int:
        """Return the bytes by which an instruction increases live memory.

        Aliases, which run first, the least.
        """
        if i not in self.made or i.operation.family is Family.STRUCTURE:
            return -(1 << 62)
        freed = sum(v.size for v in self.reads[i] if left[v] == 1)
        return sum(v.size for v in self.made[i] if v.readers) - freed


def _bytes(shape: Shape) -> int:
    if shape.is_tuple:
        return sum(map(_bytes, shape.tuple_shapes))
    return shape.element_count * shape.element_type.bytes if shape.is_array and not shape.is_unbounded else 0
