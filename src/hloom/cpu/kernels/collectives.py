"""Collectives of several devices in native code.

Each participant, a device of the replica group, publishes the addresses of its arrays, waits until all
participants have done so, computes its result from their arrays, and continues when no other one reads its
own arrays any more. They meet through participant records, structures in memory that the run's context lists.
Collectives that need the host (see `hloom.cpu.runtime.rendezvous`) have no participant record, and are
evaluated there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

from hloom.analysis.instructions import operation_of
from hloom.buffers.buffers import leaf_bytes, leaves
from hloom.codegen.accumulators import flatten, spread, unflatten
from hloom.codegen.combining import as_type
from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm import I8, I32, I64, PTR, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.memory import copy_bytes, fill_bytes
from hloom.codegen.loops import LoopKernel, vector_lanes, vector_loop
from hloom.codegen.types import Element
from hloom.cpu.program import KERNELS, KernelCall, ProgramEmitter
from hloom.cpu.runtime.context import NATIVE_COLLECTIVES
from hloom.cpu.runtime.device_structs import PARTICIPANT, RENDEZVOUS
from hloom.cpu.runtime.exchange_plan import reduces_in_parts, rows_of
from hloom.cpu.runtime.host import emit_host_call
from hloom.cpu.runtime.structs import CONTEXT
from hloom.ir.affine import Index, Variable
from hloom.ir.instruction import HloInstruction
from hloom.operations.collectives import AllGather, ReduceScatter
from hloom.operations.exchanges import AllToAll
from hloom.operations.rooted_collectives import CollectiveBroadcast, has_first_root
from hloom.plan.kernel import KernelPlan
from hloom.shape.shape import Shape

# -- ids


@KERNELS.register("replica-id", "partition-id")
def emit_id(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit the store of the device's replica or partition id, taken from the context that the caller passes.

    The context is a struct; the id is 0 if the pointer to it is null.
    """
    i = plan.instruction
    f = program.function
    field = "replica" if i.opcode == "replica-id" else "partition"
    target = program.pointer(i)
    f.store(f.constant(I32, 0), target)
    with f.when(program.context.compare("ne", 0)):
        f.store(Fields(CONTEXT, program.context)[field].cast("trunc", I32), target)


# -- rendezvous


@KERNELS.register(*NATIVE_COLLECTIVES)
def emit_collective(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit a collective, twice: as native code and as a host call (into Python).

    At run time, the native code is taken if the context, a struct that the caller passes, has a participant
    record for the collective. In these records the devices of a group find the addresses of each other's
    arrays.
    """
    i = plan.instruction
    f = program.function
    operation = i.operation
    apart = isinstance(operation, CollectiveBroadcast) and not has_first_root(i)
    if apart or not all(o.shape.is_array for o in i.operands) or getattr(operation, "slice_sizes", ()):
        emit_host_call(program, plan)
        return
    number = len(program.host_calls)
    here, find, native, by_host, after = (f.new_block() for _ in range(5))
    f.branch(program.context.compare("ne", 0), here, by_host)
    f.start(here)
    table = Fields(CONTEXT, program.context)["participants"]
    f.branch(table.compare("ne", 0), find, by_host)
    f.start(find)
    participant = f.load(PTR, f.offset(table, number, PTR))
    f.branch(participant.compare("ne", 0), native, by_host)
    f.start(native)
    _CollectiveEmitter(program, i, number, participant).run()
    f.jump(after)
    f.start(by_host)
    emit_host_call(program, plan)
    f.jump(after)
    f.start(after)


class _CollectiveEmitter:
    """Emits the native code by which one device takes part in a collective.

    Args:
        program: the program to emit into.
        i: the collective.
        number: its index among the instructions that may call the host; participant records are stored by it.
        participant: the address of the device's participant record: the words in memory by which the other
            devices of the group find its arrays.
    """

    def __init__(self, program: ProgramEmitter, i: HloInstruction, number: int, participant: Value) -> None:
        self.program, self.i, self.number = program, i, number
        self.participant = Fields(PARTICIPANT, participant)
        self.results = [s for _, s in leaves(i.shape)]

    def run(self) -> None:
        """Emit the whole collective.

        The emitted code publishes the addresses of this device's arrays, waits for the other participants,
        computes this device's result from their arrays, and waits until no participant reads this device's
        arrays any more.
        """
        program, i = self.program, self.i
        places = [program.pointer(o) for o in i.operands]
        places += [program.pointer(i, index) for index, _ in leaves(i.shape)]
        for n, pointer in enumerate(places):
            self.participant.store("arrays", n, pointer)
        self.rendezvous(1)
        match i.opcode:
            case "all-reduce" if reduces_in_parts(i):
                self.call(_reduced_parts)
                self.rendezvous(2)
                self.call(_collected_parts)
            case "all-reduce":
                self.call(_reduced)
            case "reduce-scatter":
                self.call(_scattered)
            case "all-gather":
                self.call(_gathered)
            case "all-to-all":
                self.call(_exchanged if i.shape.is_array else _exchanged_tuple)
            case "collective-permute":
                self.call(_permuted)
            case _:
                self.call(_broadcast)
        self.rendezvous(3)

    def rendezvous(self, step: int) -> None:
        """Emit a wait for all participants.

        ``step`` is 1 before any array is read, 2 between two kernels, and 3 at the end. If the wait fails,
        the emitted code returns the status 1 from the program at once.
        """
        f, timer = self.program.function, self.program.timer
        number = f.constant(I64, self.number)
        with timer.waiting() if timer is not None else nullcontext():
            status = f.call(I32, "hloom_rendezvous", self.participant.pointer, number, f.constant(I32, step))
        f.return_if(status.compare("ne", 0), 1)

    def call(self, emit: Callable[[_ParticipantAccess, HloInstruction], None]) -> None:
        """Emit a kernel that reads the arrays of all participants, and its call.

        ``emit`` emits the body of the kernel.
        """
        work = sum(s.element_count for s in self.results)

        def kernel(name: str) -> LoopKernel:
            f = self.program.module.function(name, [PTR, I64, I64])
            emit(_ParticipantAccess(f, f.parameters[0], len(self.i.operands)), self.i)
            f.finish()
            return LoopKernel(name, 1, 1, work)

        shared = self.program.shared(kernel)
        self.program.calls.append(KernelCall(shared.name, self.i.name, shared))
        self.program.work += work
        f = self.program.function
        f.call(None, shared.name, self.participant.pointer, f.constant(I64, 0), f.constant(I64, 1))


class _ParticipantAccess:
    """Emits a collective kernel's accesses to the participant records of its device and of the others.

    A participant record has the addresses of a device's operands and results.

    Attributes:
        function: the kernel.
        position, count: this device's position in the replica group, and the number of devices in the group.
        source: the position of the device whose operands a collective-permute copies to this one; -1 if no
            device sends to this one.
    """

    def __init__(self, f: Function, participant: Value, operands: int) -> None:
        self.function = f
        self._participant, self._operands = Fields(PARTICIPANT, participant), operands
        self._rendezvous = Fields(RENDEZVOUS, self._participant["rendezvous"])
        self.position = self._participant["position"]
        self.count = self._participant["count"]
        self.source = self._participant["source"]

    def operand(self, participant: Value, number: int | Value) -> Value:
        """Emit the load of the address of operand ``number`` of the device at position ``participant``."""
        return self._array(participant, number)

    def result(self, number: int, participant: Value | None = None) -> Value:
        """Emit the load of the address of the array of index ``number`` in a device's result.

        ``participant`` is the position of the device in the group; None stands for the device that runs the
        code.
        """
        if participant is not None:
            return self._array(participant, self._operands + number)
        return self._participant.load("arrays", self._operands + number)

    def _array(self, participant: Value, number: int | Value) -> Value:
        return Fields(PARTICIPANT, self._rendezvous.load("participants", participant)).load("arrays", number)

    def part(self, size: int, participant: Value) -> tuple[Value, Value]:
        """Emit the bounds (begin, end) of the elements that the device at position ``participant`` reduces.

        Together the devices reduce ``size`` elements; their intervals begin at multiples of 64 or are empty.
        """
        f = self.function
        each = ((self.count + (size - 1)).unsigned_divide(self.count) + 63) & -64
        limit = f.constant(I64, size)
        begin, end = participant * each, (participant + 1) * each
        return f.intrinsic("smin", begin, limit), f.intrinsic("smin", end, limit)

    def copy(self, target: Value, source: Value, size: Value) -> None:
        """Emit a copy of ``size`` bytes from ``source`` to ``target``."""
        copy_bytes(target, source, size)


def _operand_leaves(i: HloInstruction) -> list[tuple[int, Shape]]:
    return [(n, o.shape) for n, o in enumerate(i.operands) if leaf_bytes(o.shape)]


def _bytes(shape: Shape) -> int:
    return leaf_bytes(shape) // shape.element_count


# -- reductions


def _reduce(
    t: _ParticipantAccess, i: HloInstruction, number: int, target: Value, begin: Value, size: Value
) -> None:
    """Emit the reduction, across all participants, of ``size`` elements of the operand of index ``number``.

    The elements begin at index ``begin``. The values of the participants are combined in the order of their
    positions in the group; the results are stored to ``target``.
    """
    f, shape = t.function, i.operands[number].shape
    (to_apply,) = i.called_computations
    kind = shape.element_type
    inner = to_apply.root.shape.element_type
    lanes = vector_lanes([i.operands[number]], shape.element_count)
    e = Elements(f, lanes * 4 if lanes and shape.element_count >= lanes * 16 else lanes, {})
    lane = Variable(shape.element_count + 1, "x")

    def element(participant: Value) -> Element:
        start = f.offset(t.operand(participant, number), begin * _bytes(shape))
        view = View(start, kind, (shape.element_count + 1,))
        return spread(e, as_type(e.load(view, (Index.of(lane),)), kind, inner))

    def body() -> None:
        start = [element(f.constant(I64, 0))]
        with f.loop(1, t.count, 1, flatten(start)) as loop:
            (total,) = unflatten(loop.values, start)
            (total_next,) = e.apply(to_apply, [total, element(loop.index)])
            loop.next(*flatten([spread(e, total_next)]))
        (total,) = unflatten(loop.values, start)
        e.store(
            View(target, kind, (shape.element_count + 1,)), (Index.of(lane),), as_type(total, inner, kind)
        )

    if e.lanes:
        vector_loop(e, lane, f.constant(I64, 0), size, body, exact=False)
        return
    with f.loop(0, size, 1) as loop, e.scope():
        lane.value = loop.index
        body()


def _reduced(t: _ParticipantAccess, i: HloInstruction) -> None:
    """Emit the body of a small all-reduce: every participant reduces all elements for itself."""
    f = t.function
    for n, shape in _operand_leaves(i):
        _reduce(t, i, n, t.result(n), f.constant(I64, 0), f.constant(I64, shape.element_count))


def _reduced_parts(t: _ParticipantAccess, i: HloInstruction) -> None:
    """Emit the first step of a large all-reduce: every participant reduces its share of each operand.

    The reduced elements are stored in its own result, from which the others copy them.
    """
    for n, shape in _operand_leaves(i):
        begin, end = t.part(shape.element_count, t.position)
        _reduce(t, i, n, t.function.offset(t.result(n), begin * _bytes(shape)), begin, end - begin)


def _collected_parts(t: _ParticipantAccess, i: HloInstruction) -> None:
    """Emit the second step of a large all-reduce: copy the elements that other participants have reduced."""
    f = t.function
    for n, shape in _operand_leaves(i):
        with f.loop(0, t.count) as loop, f.when(loop.index.compare("ne", t.position)):
            begin, end = t.part(shape.element_count, loop.index)
            source = f.offset(t.result(n, loop.index), begin * _bytes(shape))
            t.copy(f.offset(t.result(n), begin * _bytes(shape)), source, (end - begin) * _bytes(shape))


def _scattered(t: _ParticipantAccess, i: HloInstruction) -> None:
    """Emit the body of a reduce-scatter: reduce this participant's part of the scatter dimension."""
    (d,) = operation_of(i, ReduceScatter).scatter_dimensions
    f = t.function
    results = i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)
    for n, _ in _operand_leaves(i):
        outer, row = rows_of(results[n], d)
        with f.loop(0, outer) as loop:
            begin = (loop.index * t.count + t.position) * row
            target = f.offset(t.result(n), loop.index * (row * _bytes(results[n])))
            _reduce(t, i, n, target, begin, f.constant(I64, row))


# -- copies


def _gathered(t: _ParticipantAccess, i: HloInstruction) -> None:
    """Emit the body of an all-gather: copy every participant's operands to their places in the results."""
    f, dimension = t.function, operation_of(i, AllGather).dimension
    for n, shape in _operand_leaves(i):
        outer, row = rows_of(shape, dimension)
        size = f.constant(I64, row * _bytes(shape))
        with f.loop(0, t.count) as participant:
            source, target = t.operand(participant.index, n), t.result(n)
            with f.loop(0, outer) as loop:
                offset = (loop.index * t.count + participant.index) * size
                t.copy(f.offset(target, offset), f.offset(source, loop.index * size), size)


def _exchanged(t: _ParticipantAccess, i: HloInstruction) -> None:
    """Emit the body of an all-to-all of one array.

    It copies from every participant's operand the slice, along the split dimension, that is for this device.
    """
    f, shape = t.function, i.shape
    if not leaf_bytes(shape):
        return
    (dimension,) = operation_of(i, AllToAll).split_dimension
    outer, row = rows_of(shape, dimension)
    size = f.constant(I64, row * _bytes(shape)).unsigned_divide(t.count)
    with f.loop(0, t.count) as participant:
        source, target = t.operand(participant.index, 0), t.result(0)
        with f.loop(0, outer) as loop:
            line = loop.index * (row * _bytes(shape))
            source_offset, target_offset = line + t.position * size, line + participant.index * size
            t.copy(f.offset(target, target_offset), f.offset(source, source_offset), size)


def _exchanged_tuple(t: _ParticipantAccess, i: HloInstruction) -> None:
    """Emit the body of an all-to-all of a tuple.

    At position p in the group, element n of the result is operand p of the participant at position n.
    """
    f = t.function
    for n, shape in enumerate(i.shape.tuple_shapes):
        source = t.operand(f.constant(I64, n), t.position)
        t.copy(t.result(n), source, f.constant(I64, leaf_bytes(shape)))


def _permuted(t: _ParticipantAccess, i: HloInstruction) -> None:
    """Emit the body of a collective-permute: copy the operands of this device's source.

    If no device is its source, zeros are stored.
    """
    f = t.function
    for n, shape in _operand_leaves(i):
        size = f.constant(I64, leaf_bytes(shape))
        with f.when(t.source.compare("sge", 0)):
            t.copy(t.result(n), t.operand(t.source, n), size)
        with f.when(t.source.compare("slt", 0)):
            fill_bytes(t.result(n), f.constant(I8, 0), size)


def _broadcast(t: _ParticipantAccess, i: HloInstruction) -> None:
    """Emit the body of a collective-broadcast: copy the operand of the group's first participant."""
    f = t.function
    t.copy(t.result(0), t.operand(f.constant(I64, 0), 0), f.constant(I64, leaf_bytes(i.shape)))
