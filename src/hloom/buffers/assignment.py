"""Buffer assignment: a walk over the program in execution order that assigns a buffer to every value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Final, TypeAlias

from hloom.analysis.subviews import Subview, part_of
from hloom.analysis.updates import Leaf, is_alias, is_handed_on, origin, updated_operands
from hloom.buffers.arena import assign_offsets
from hloom.buffers.buffers import ALIGNMENT, SMALL, Buffer, BufferCopy, ShapeIndex, leaf_bytes, leaves, merge
from hloom.buffers.live_spans import Branches, BranchSpan, live_spans
from hloom.buffers.parallel_copies import Pair, in_order
from hloom.buffers.rotations import Join, Rotation, RotationGroup, groups, rotate
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.operations.control_flow import Call, Conditional, While
from hloom.operations.dynamic_slicing import DynamicSlice
from hloom.operations.structure import Constant, GetTupleElement, Parameter, Tuple, parameter_number
from hloom.records import dataclass
from hloom.shape.shape import Shape

Values: TypeAlias = dict[ShapeIndex, Buffer]
Order: TypeAlias = Callable[[HloComputation], list[HloInstruction]]
InPlace: TypeAlias = Callable[[HloInstruction], Iterable[int]]
"""Returns the numbers of the operands that an instruction may overwrite with its only result."""
Read: TypeAlias = tuple[int, Buffer | None]
"""The time of a read, and the result that may overwrite the read buffer."""

STACK: Final = 1 << 14
"""Maximum size in bytes of all values on the stack."""


@dataclass(slots=True)
class Assignment:
    """The buffers of a program.

    Attributes:
        values: the buffers of every instruction's leaves.
        entering: copies before a loop starts.
        returning: copies at the end of a loop's body or a branch, by instruction and number of the branch.
        results: copies into the result buffers at the end of the program.
        join_times: the times at which the copies of ``returning`` are made.
        rotations: exchanges of addresses in the place of copies, by instruction and number of the branch.
        rotating: the buffers whose addresses are exchanged, by group.
        reads: the times at which the value of each buffer is read.
        workspaces: scratch buffers of instructions that need one.
        subviews: the subviews from an instruction on, with the slice or update that tells their place.
        constants: the constants in memory, by number.
        positions: the positions of the instructions in the order of execution; live spans refer to them.
        arguments: the buffers of the arguments' leaves, by number.
        argument_reads: when an argument is read; ``over`` may be written to its memory by the reader.
        room: the offset behind the temporaries, where parallel copies save large values.
        temp_bytes: size of the arena in bytes, with that room.
    """

    values: dict[HloInstruction, Values] = field(default_factory=dict[HloInstruction, Values])
    entering: dict[HloInstruction, list[BufferCopy]] = field(
        default_factory=dict[HloInstruction, list[BufferCopy]]
    )
    returning: dict[tuple[HloInstruction, int], list[BufferCopy]] = field(
        default_factory=dict[tuple[HloInstruction, int], list[BufferCopy]]
    )
    results: list[BufferCopy] = field(default_factory=list[BufferCopy])
    join_times: dict[Join, int] = field(default_factory=dict[Join, int])
    rotations: dict[Join, Rotation] = field(default_factory=dict[Join, Rotation])
    rotating: list[RotationGroup] = field(default_factory=list[RotationGroup])
    workspaces: dict[HloInstruction, Buffer] = field(default_factory=dict[HloInstruction, Buffer])
    subviews: dict[HloInstruction, list[tuple[Buffer, HloInstruction]]] = field(
        default_factory=dict[HloInstruction, "list[tuple[Buffer, HloInstruction]]"]
    )
    constants: list[HloInstruction] = field(default_factory=list[HloInstruction])
    positions: dict[HloInstruction, int] = field(default_factory=dict[HloInstruction, int])
    arguments: list[Buffer] = field(default_factory=list[Buffer])
    reads: dict[Buffer, list[int]] = field(default_factory=dict[Buffer, "list[int]"])
    argument_reads: dict[Buffer, list[Read]] = field(default_factory=dict[Buffer, "list[Read]"])
    room: int = 0
    temp_bytes: int = 0

    def sequence(self, copies: Sequence[BufferCopy]) -> list[Pair]:
        """Return a sequence of copies that is equivalent to the given parallel copies."""
        return in_order([(c.source.find(), c.target.find()) for c in copies], self.room)

    def buffer(self, instruction: HloInstruction, index: ShapeIndex = ()) -> Buffer:
        """Return the buffer of a leaf of an instruction."""
        return self.values[instruction][index].find()


def assign(
    entry: HloComputation,
    in_place: InPlace,
    order: Order,
    workspace: Callable[[HloInstruction], int],
    reads_first: Callable[[HloInstruction], bool] = lambda _: False,
) -> Assignment:
    """Assign buffers to a program; every called computation must have one caller.

    Args:
        entry: the entry computation.
        in_place: the operands that a result may overwrite.
        order: the execution order of a computation.
        workspace: the bytes of scratch memory of an instruction.
        reads_first: whether an instruction reads all operands before it writes its only result.
    """
    walk = _Walk(in_place, order, workspace, reads_first)
    arguments: list[Values] = []
    number = 0
    for parameter in entry.parameters:
        values: Values = {}
        for index, shape in leaves(parameter.shape):
            values[index] = walk.new(leaf_bytes(shape), "argument", number)
            number += 1
        arguments.append(values)
    walk.assignment.arguments = [buffer for values in arguments for buffer in values.values()]
    root = walk.computation(entry, arguments)
    walk.position += 1
    results: list[BufferCopy] = []
    for number, (index, buffer) in enumerate(root.items()):
        walk.read([buffer], 2 * walk.position)
        results.append(BufferCopy(buffer, Buffer(buffer.size, "result", number), index))
    assignment = walk.assignment
    assignment.results = results
    walk.settle()
    return assignment


class _Walk:
    """Assigns buffers to leaves, and records when they are written and read."""

    def __init__(
        self,
        in_place: InPlace,
        order: Order,
        workspace: Callable[[HloInstruction], int],
        reads_first: Callable[[HloInstruction], bool],
    ) -> None:
        self.assignment = Assignment()
        self.in_place = in_place
        self.order = order
        self.workspace = workspace
        self.reads_first = reads_first
        self.position = 0
        self.buffers: list[Buffer] = []
        self.births: dict[Buffer, list[int]] = {}
        self.overwrites: list[tuple[Buffer, Buffer, int]] = []
        self.updates: list[tuple[Buffer, Buffer, int]] = []
        """The overwrites by updates of a part of an array; without them the array is copied first."""
        self.computed_in_place: dict[Leaf, HloInstruction] = {}
        """The updates whose places in the updated arrays values are written to."""
        self.has_loops = False
        self.conditionals: list[Branches] = []
        self.enclosing = self.conditionals
        """The conditionals of the innermost branch so far."""

    def new(self, size: int, kind: str = "temp", number: int = 0) -> Buffer:
        """Return a new buffer."""
        buffer = Buffer(size, kind, number)
        self.buffers.append(buffer)
        return buffer

    def born(self, buffer: Buffer, time: int) -> None:
        """Record that a buffer gets a new value at a time, in half steps of the execution order."""
        self.births.setdefault(buffer, []).append(time)

    def subview(self, base: Buffer, place: HloInstruction, i: HloInstruction) -> Buffer:
        """Return the buffer of an instruction's result that is a part of another buffer."""
        size = leaf_bytes(part_of(place))
        buffer = Buffer(size, "subview", base=base)
        self.assignment.subviews.setdefault(i, []).append((buffer, place))
        return buffer

    def read(self, values: Iterable[Buffer], time: int, over: Buffer | None = None) -> None:
        """Record that buffers are read at a time, by an operation that may overwrite them with ``over``."""
        for buffer in values:
            while buffer.base is not None:
                buffer, over = buffer.base, None
            self.assignment.reads.setdefault(buffer, []).append(time)
            if buffer.kind == "argument":
                read = (time, None) if over is None else (time & -2, over)
                self.assignment.argument_reads.setdefault(buffer, []).append(read)

    def computation(self, computation: HloComputation, arguments: Sequence[Values]) -> Values:
        """Walk a computation; return the buffers of its root.

        ``arguments`` are the buffers of the parameters' leaves.
        """
        values = self.assignment.values
        order = self.order(computation)
        self.computed_in_place |= {origin(i.operands[1]): i for i in order if _is_in_place(i)}
        for instruction in order:
            self.position += 1
            self.assignment.positions[instruction] = self.position
            if isinstance(instruction.operation, Parameter):
                number = parameter_number(instruction)
                values[instruction] = dict(arguments[number])
            else:
                values[instruction] = self.instruction(instruction)
        return values[computation.root]

    def instruction(self, i: HloInstruction) -> Values:
        """Assign and return the buffers of an instruction's leaves."""
        values = self.assignment.values
        operands = [values[o] for o in i.operands]
        match i.operation:
            case Constant():
                self.assignment.constants.append(i)
                return {(): self.new(leaf_bytes(i.shape), "constant", len(self.assignment.constants) - 1)}
            case Tuple():
                return {(n, *index): b for n, o in enumerate(operands) for index, b in o.items()}
            case GetTupleElement(index=number):
                return {index: operands[0][number, *index] for index, _ in leaves(i.shape)}
            case While():
                return self.loop(i, operands[0])
            case Conditional():
                return self.branches(i, operands)
            case Call():
                return self.computation(i.called_computations[0], operands)
            case DynamicSlice() if i.annotation(Subview) is not None:
                return {(): self.subview(operands[0][()], i, i)}
            case _ if is_alias(i) or _is_in_place(i):
                return operands[0]
            case _:
                return self.plain(i, operands)

    def plain(self, i: HloInstruction, operands: Sequence[Values]) -> Values:
        """Assign new buffers to an operation's results and its workspace."""
        reading, writing = 2 * self.position, 2 * self.position + 1
        buffers = {index: self.result(i, index, shape) for index, shape in leaves(i.shape)}
        scratch = self.workspace(i)
        if scratch:
            self.assignment.workspaces[i] = buffer = self.new(scratch)
            self.born(buffer, reading)
            self.read([buffer], writing)
        overwritten = frozenset(self.in_place(i)) if len(buffers) == 1 else frozenset[int]()
        at_once = len(buffers) == 1 and self.reads_first(i)
        for number, operand in enumerate(operands):
            free = number in overwritten
            over = next(iter(buffers.values())) if free or at_once else None
            self.read(operand.values(), reading if free else writing, over)
            if free:
                reuses = self.updates if updated_operands(i) else self.overwrites
                reuses += [(t, source, reading) for t in buffers.values() for source in operand.values()]
        return buffers

    def result(self, i: HloInstruction, index: ShapeIndex, shape: Shape) -> Buffer:
        """Return the buffer of a result: a new one, or a subview of the array that an update writes it to."""
        update = self.computed_in_place.get((i, index))
        if update is not None:
            array, array_index = origin(update.operands[0])
            return self.subview(self.assignment.values[array][array_index], update, i)
        buffer = self.new(leaf_bytes(shape))
        self.born(buffer, 2 * self.position + 1)
        return buffer

    def loop(self, i: HloInstruction, initial: Values) -> Values:
        """Assign buffers to the state of a loop, shared by condition, body and the loop's result.

        Loop-invariant elements keep the buffers of their initial values.
        """
        self.has_loops = True
        self.read(initial.values(), 2 * self.position)
        body, condition = i.called_computations
        state: Values = {}
        for index, buffer in initial.items():
            if is_handed_on(body, index):
                state[index] = buffer
                continue
            state[index] = self.new(buffer.size)
            self.born(state[index], 2 * self.position + 1)
        tested = self.computation(condition, [state])
        self.position += 1
        self.read([*tested.values(), *state.values()], 2 * self.position)
        final = self.computation(body, [state])
        self.position += 1
        self.assignment.join_times[i, 0] = 2 * self.position
        for index, buffer in final.items():
            self.read([buffer], 2 * self.position)
            if buffer is state[index]:
                self.read([buffer], 2 * self.position + 1)
            else:
                self.born(state[index], 2 * self.position + 1)
        moved = [k for k in state if state[k] is not initial[k]]
        self.assignment.entering[i] = [BufferCopy(initial[k], state[k], k) for k in moved]
        self.assignment.returning[i, 0] = [
            BufferCopy(final[k], state[k], k) for k in state if final[k] is not state[k]
        ]
        self.position += 1
        return state

    def branches(self, i: HloInstruction, operands: Sequence[Values]) -> Values:
        """Assign buffers to the result of a conditional; every branch ends with copies into them.

        A leaf that all branches return in one buffer keeps it.
        """
        self.read(operands[0].values(), 2 * self.position)
        self.read((b for values in operands[1:] for b in values.values()), 2 * self.position)
        conditional = Branches(2 * self.position)
        self.enclosing.append(conditional)
        outside, finals, ends = self.enclosing, list[Values](), list[int]()
        for number, computation in enumerate(i.called_computations):
            self.position += 1
            branch = BranchSpan(2 * self.position)
            conditional.branches.append(branch)
            self.enclosing = branch.conditionals
            self.read(operands[number + 1].values(), 2 * self.position)
            final = self.computation(computation, [operands[number + 1]])
            self.position += 1
            self.read(final.values(), 2 * self.position)
            self.assignment.join_times[i, number] = 2 * self.position
            finals.append(final)
            ends.append(2 * self.position + 1)
            branch.last = ends[-1]
        self.enclosing = outside
        result = {index: self.result_of_branches(index, shape, finals) for index, shape in leaves(i.shape)}
        for number, final in enumerate(finals):
            moved = [k for k in result if final[k] is not result[k]]
            for index in moved:
                self.born(result[index], ends[number])
            self.assignment.returning[i, number] = [BufferCopy(final[k], result[k], k) for k in moved]
        self.position += 1
        # the result is live from the end of every branch until here; branches exclude each other, so the
        # write of another branch does not extend the span
        self.read(result.values(), 2 * self.position)
        return result

    def result_of_branches(self, index: ShapeIndex, shape: Shape, finals: Sequence[Values]) -> Buffer:
        """Return a new buffer for a leaf of a conditional, or the one buffer that all branches return."""
        first = finals[0][index]
        if all(final[index] is first for final in finals):
            return first
        return self.new(leaf_bytes(shape))

    def settle(self) -> None:
        """Compute live spans, merge buffers to avoid copies, and lay out the arena."""
        joins = self.assignment
        for buffer in self.buffers:
            births = sorted(self.births.get(buffer, [0]))
            reads = sorted(joins.reads.get(buffer, []))
            for first, last in live_spans(births, reads, self.conditionals):
                buffer.hold(first, last)
        _overwrite(self.updates)
        for copy in (c for copies in (*joins.entering.values(), *joins.returning.values()) for c in copies):
            merge(copy.source, copy.target)
        _overwrite(self.overwrites)
        joins.rotations = rotate(joins.returning, joins.join_times)
        joins.rotating = groups(joins.rotations)
        for copy in joins.results:
            if not self.stays_on_stack(copy.source):
                merge(copy.source, copy.target)
        self.lay_out()

    def lay_out(self) -> None:
        """Place temporaries on the stack and in the arena."""
        joins = self.assignment
        temporaries = {b.find(): None for b in self.buffers if b.find().kind == "temp" and b.find().size}
        left = STACK
        for buffer in temporaries:
            if self.stays_on_stack(buffer) and buffer.size <= left:
                buffer.kind = "stack"
                left -= -(-buffer.size // ALIGNMENT) * ALIGNMENT
        arena = [b for b in temporaries if b.kind == "temp" and not b.rotates]
        joins.room = assign_offsets([*arena, *(group.memory for group in joins.rotating)])
        for group in joins.rotating:
            group.lay_out()
        parallel = (*joins.returning.values(), *joins.entering.values(), joins.results)
        targets = [target for copies in parallel for _, target in joins.sequence(copies)]
        ends = [target.offset + target.size for target in targets if target.kind == "temp"]
        joins.temp_bytes = -(-max([joins.room, *ends]) // ALIGNMENT) * ALIGNMENT

    def stays_on_stack(self, buffer: Buffer) -> bool:
        """Return true if a temporary is placed on the stack, while there is room."""
        return self.has_loops and buffer.find().kind == "temp" and buffer.size <= SMALL


def _is_in_place(i: HloInstruction) -> bool:
    """Return whether an instruction is an update that is stored directly into the array that it updates."""
    return i.annotation(Subview) is not None and not isinstance(i.operation, DynamicSlice)


def _overwrite(pairs: Iterable[tuple[Buffer, Buffer, int]]) -> None:
    """Merge results with operands that they may overwrite, for (result, operand, time of reading)."""
    for target, source, reading in pairs:
        if not merge(target, source) and not merge(source, target):
            # not merged: the operand stays live until the operation ends
            source.hold(reading, reading + 1)
