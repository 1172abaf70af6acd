"""The native program: one function that runs the whole entry computation.

``hloom_run(arguments, results, temp, context)`` takes an array of pointers to the leaves of the arguments,
one to the leaves of the results, the arena, and a context (thread pool, device). It returns 0, or nonzero if
it ended early and the results are undefined. Kernels are internal functions that it calls with pointers;
loops, branches and scalars are code of its own. Kernels of the same structure are emitted once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import field, replace
from typing import Final, NamedTuple

import numpy as np

from hloom.analysis.instructions import operation_of
from hloom.analysis.structure import Key
from hloom.analysis.subviews import part_of, starts_of
from hloom.analysis.trip_count import TripCount
from hloom.buffers.assignment import Assignment, assign
from hloom.buffers.buffers import Buffer, BufferCopy, ShapeIndex, leaf_bytes, leaves
from hloom.buffers.copies import ArrayCopy, array_copies
from hloom.buffers.reuse import may_take
from hloom.buffers.rotations import Join
from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm import (
    ALWAYS_INLINE,
    I8,
    I32,
    I64,
    PTR,
    Function,
    Module,
    Structure,
    Value,
    print_module,
)
from hloom.codegen.llvm.attributes import SIMPLIFIED
from hloom.codegen.llvm.memory import copy_bytes
from hloom.codegen.llvm.memory_instructions import StackMemory
from hloom.codegen.loops import LoopKernel, copy_kernel, root_values, work_of
from hloom.codegen.target import Target, host
from hloom.codegen.types import storage_bytes
from hloom.cpu.jit.llvm import STRAIGHT
from hloom.cpu.kernels.movement.transposition import emit_elements_kernel
from hloom.cpu.packed_arguments import PackedArgument, PackedArguments
from hloom.cpu.runtime.interruption import LONG_LOOP, PollEmitter
from hloom.cpu.runtime.timers import Timer
from hloom.ir.affine import linearize
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.control_flow import Conditional, Fusion, While
from hloom.operations.structure import Constant
from hloom.phases import advance, phase
from hloom.plan.kernel import SCALAR_RESULTS, KernelKind, KernelPlan, plan_program
from hloom.plan.registry import Kernels
from hloom.records import dataclass

ENTRY: Final = "hloom_run"
MOST_ADDRESSES: Final = 512
"""Addresses that are kept from the beginning of a program to its end."""
INLINED_WORK: Final = 1 << 12
"""Kernels in loops that do less work become code of the entry, where LLVM sees them together."""
INLINED_SIZE: Final = 256
"""Instructions of a kernel that is still short enough for that."""

LONGEST_BLOCK: Final = 512
"""Instructions from which a block of the entry function ends."""

SHARED_WORK: Final = 1 << 17
SHARED_BYTES: Final = 1 << 18
"""Kernels of less work that move fewer bytes run in one thread: sharing would cost more than it gains."""

HOST: Final = "host"
"""Key of the operations that Python evaluates; see `hloom.cpu.runtime.host`."""
KERNELS: Final[Kernels[ProgramEmitter, Target]] = Kernels("cpu")
"""The kernels of the CPU that are not plain loops over elements, by the opcode of the hero."""


class KernelCall(NamedTuple):
    """A call in a program's entry function: of a kernel, or of Python (the host).

    Attributes:
        function: the name of the called function.
        instruction: the name of the HLO instruction that the call computes, at least in part.
        kernel: the kernel; None for a call of Python.
    """

    function: str
    instruction: str
    kernel: LoopKernel | None = None


@dataclass(frozen=True, slots=True)
class NativeProgram:
    """A program as LLVM IR, with the facts that its callers need.

    Attributes:
        module: the LLVM module, with functions and constants.
        temp_bytes: the size of the arena, the memory of all temporaries.
        argument_bytes, result_bytes: the sizes of the leaves (the arrays in nested tuples), in order.
        calls: the calls of kernels and of Python, in the order of the code.
        work: a rough number of elementary operations; loops of unknown trip count are counted once.
        is_bounded: whether the trip counts of all loops are known.
        host_calls: the instructions that Python evaluates; a call of Python passes the index of one.
        timed: the names of the instructions that a timed program measures.
        reuses: pairs (result leaf, argument leaf): the result may take the donated argument's memory.
        copies: the copies of large arrays that could not share memory, with the reason for each.
        packed: the arguments that the program can also read from copies in the order of its kernels.
    """

    module: Module
    temp_bytes: int
    argument_bytes: tuple[int, ...]
    result_bytes: tuple[int, ...]
    calls: tuple[KernelCall, ...]
    work: int
    is_bounded: bool
    host_calls: tuple[HloInstruction, ...] = ()
    timed: tuple[str, ...] = ()
    reuses: tuple[tuple[int, int], ...] = ()
    copies: tuple[ArrayCopy, ...] = ()
    packed: tuple[PackedArgument, ...] = ()

    @property
    def text(self) -> str:
        return print_module(self.module)


@dataclass(slots=True)
class KernelSequence:
    """The kernels emitted for a kernel plan, in order, for reuse by later instructions with an equal plan.

    Attributes:
        kernels: the kernels emitted for the first instruction with such a plan.
        position: how many of these kernels the emitter of the current instruction has already asked for.
    """

    kernels: list[LoopKernel] = field(default_factory=list[LoopKernel])
    position: int = 0


def assign_program(module: HloModule, plans: Mapping[HloInstruction, KernelPlan]) -> Assignment:
    """Assign a buffer to each value of a module, given the kernel plans of its instructions."""
    return assign(
        module.entry,
        lambda i: plans[i].in_place,
        HloComputation.execution_order,
        lambda i: plans[i].workspace,
        lambda i: plans[i].kind is KernelKind.SCALAR,
    )


def reuses_of(module: HloModule, assignment: Assignment) -> tuple[tuple[int, int], ...]:
    """Return pairs (result leaf, argument leaf) of indices: the result may use a donated argument's array."""
    parameters = [(p, index) for p, i in enumerate(module.entry.parameters) for index, _ in leaves(i.shape)]
    results = [index for index, _ in leaves(module.entry.root.shape)]
    pairs = [
        (
            results.index(tuple(output)),
            parameters.index((alias.parameter_number, tuple(alias.parameter_index))),
        )
        for output, alias in module.config.aliases.items()
    ]
    return tuple(sorted(pair for pair in pairs if may_take(assignment, *pair)))


def emit_program(
    module: HloModule,
    target: Target | None = None,
    *,
    timer: type[Timer] | None = None,
    interruptible: bool = True,
    on_kernel: Callable[[Module], None] | None = None,
    keeps_packed: bool = False,
) -> NativeProgram:
    """Emit LLVM IR for an optimized module, each computation of which has one caller.

    The default target is this machine. A ``timer`` emits code that measures each instruction. An
    interruptible program polls for signals and for failures of other devices, and then ends early.
    ``on_kernel`` is called with the LLVM module after every new kernel. ``keeps_packed``: the program can
    read arguments from packed copies, in the order of its kernels, that its caller keeps from run to run.
    """
    with phase("emission", "kernels and calls"):
        emitter = ProgramEmitter(
            module, target, timer=timer, interruptible=interruptible, on_kernel=on_kernel
        )
        emitter.packed_arguments = PackedArguments(emitter) if keeps_packed else None
        return emitter.run()


class ProgramEmitter:
    """Emits the entry function of a program, and the kernels that it calls, into an LLVM module."""

    def __init__(
        self,
        module: HloModule,
        target: Target | None = None,
        *,
        timer: type[Timer] | None = None,
        interruptible: bool = True,
        on_kernel: Callable[[Module], None] | None = None,
    ) -> None:
        self.hlo = module
        self._on_kernel = on_kernel
        self.module = Module(target or host())
        self.function = Function(self.module, ENTRY, [PTR, PTR, PTR, PTR], I32, internal=False)
        self.arguments, self.results, self.temp, self.context = self.function.parameters
        with phase("planning", "kernels"):
            self.plans = plan_program(module, KERNELS, self.module.target)
        with phase("planning", "buffers"):
            self.assignment: Assignment = assign_program(module, self.plans)
        self._pointers: dict[Buffer, Value] = {}
        self._addresses: dict[Buffer, Value] = {}
        """The variables that hold the addresses of rotating buffers."""
        self._kernels: dict[Structure, LoopKernel] = {}
        self._inlined: dict[str, Function] = {}
        self._sequences: dict[tuple[Key, bool], KernelSequence] = {}
        self._sequence: KernelSequence | None = None
        self._loops = 0
        self._emitted = 0
        self.calls: list[KernelCall] = []
        self.host_calls: list[HloInstruction] = []
        self.work = 0
        self.is_bounded = True
        self._polls = PollEmitter(self.function, self.context) if interruptible else None
        self._pointer_array = StackMemory(self.function, PTR, PTR, 0, self.module.alignment)
        self.timer = timer(self.function, self.context) if timer is not None else None
        self.packed_arguments: PackedArguments | None = None

    def run(self) -> NativeProgram:
        """Emit the program's constants, entry function and kernels; return the program."""
        for number, constant in enumerate(self.assignment.constants):
            if leaf_bytes(constant.shape):
                self.module.constant_bytes(f"constant{number}", constant_data(constant))
        self._prologue()
        if self.packed_arguments is not None:
            self.packed_arguments.begin()
        if self.timer is not None:
            self.timer.begin()
        self.computation(self.hlo.entry)
        self.copies(self.assignment.results)
        if self.timer is not None:
            self.timer.finish()
        if self.packed_arguments is not None:
            self._sequence = None
            self.packed_arguments.finish()
        if self._pointer_array.count:
            self.function.stack.append(self._pointer_array)
        self.module.functions |= self._inlined
        if SIMPLIFIED not in self.function.attributes:
            self.function.attributes = (STRAIGHT,)
        self.function.finish(self.function.constant(I32, 0))
        argument_leaves = [s for p in self.hlo.entry.parameters for _, s in leaves(p.shape)]
        return NativeProgram(
            self.module,
            self.assignment.temp_bytes,
            tuple(leaf_bytes(s) for s in argument_leaves),
            tuple(leaf_bytes(s) for _, s in leaves(self.hlo.entry.root.shape)),
            tuple(self.calls),
            self.work,
            self.is_bounded,
            tuple(self.host_calls),
            tuple(self.timer.names) if self.timer is not None else (),
            reuses_of(self.hlo, self.assignment),
            tuple(array_copies(self.assignment)),
            () if self.packed_arguments is None else self.packed_arguments.arguments,
        )

    # -- memory

    def _prologue(self) -> None:
        """Emit the computation of buffer addresses at the entry function's top, for use in all its blocks.

        Too many would take LLVM long to spill: above `MOST_ADDRESSES` they are computed at each use instead.
        """
        buffers: dict[Buffer, None] = {}
        for values in self.assignment.values.values():
            buffers.update(dict.fromkeys(buffer.find() for buffer in values.values()))
        buffers.update(dict.fromkeys(buffer.find() for buffer in self.assignment.workspaces.values()))
        if len(buffers) > MOST_ADDRESSES:
            buffers = {buffer: None for buffer in buffers if buffer.kind == "stack"}
        buffers = {buffer: None for buffer in buffers if not buffer.rotates and buffer.base is None}
        for buffer in buffers:
            self._pointers[buffer] = self._address(buffer)
        for buffer in (member for group in self.assignment.rotating for member in group.members):
            self._addresses[buffer] = variable = self.function.allocate(PTR, align=8)
            self.function.store(self._address(buffer), variable)

    def _pointer(self, buffer: Buffer) -> Value:
        if buffer.rotates:
            return self.function.load(PTR, self._addresses[buffer])
        pointer = self._pointers.get(buffer)
        return self._address(buffer) if pointer is None else pointer

    def _place_subview(self, buffer: Buffer, place: HloInstruction) -> None:
        """Emit the address of a part of a buffer, at the start indices of the slice or update ``place``."""
        assert buffer.base is not None
        array, part, starts = place.operands[0].shape, part_of(place).dimensions, starts_of(place)
        e = Elements(self.function, 0, {start: self.view(start) for start in starts})
        indices = [
            e.position(e.element(start, ()), start.shape.element_type, extent - size + 1)
            for start, extent, size in zip(starts, array.dimensions, part, strict=True)
        ]
        elements = e.index_value(linearize(indices, array.dimensions))
        offset = elements * storage_bytes(array.element_type)
        self._pointers[buffer] = self.function.offset(self._pointer(buffer.base.find()), offset)

    def _address(self, buffer: Buffer) -> Value:
        f = self.function
        if not buffer.size:
            return f.constant(PTR, 0)
        match buffer.kind:
            case "argument":
                return self.argument(buffer.number)
            case "result":
                return f.load(PTR, f.offset(self.results, buffer.number, PTR))
            case "constant":
                return f.address(f"constant{buffer.number}")
            case "stack":
                return f.allocate(I8, buffer.size)
            case _:
                return f.offset(self.temp, buffer.offset)

    def argument(self, number: int) -> Value:
        """Emit a load of the address of an argument's array: leaf ``number`` of all arguments' leaves."""
        return self.function.load(PTR, self.function.offset(self.arguments, number, PTR))

    def pointer(self, instruction: HloInstruction, index: ShapeIndex = ()) -> Value:
        """Return an emitted value: the address of an instruction's array, or of its leaf at ``index``."""
        return self._pointer(self.assignment.buffer(instruction, index))

    def view(self, instruction: HloInstruction, index: ShapeIndex = ()) -> View:
        """Return an instruction's array, or its leaf at shape index ``index``: an address with a shape."""
        shape = instruction.shape
        for number in index:
            shape = shape.tuple_shapes[number]
        return View.of(self.pointer(instruction, index), shape)

    def workspace(self, instruction: HloInstruction) -> Value:
        """Return the address of an instruction's scratch memory as an emitted value; null if it has none."""
        buffer = self.assignment.workspaces.get(instruction)
        return self.function.constant(PTR, 0) if buffer is None else self._pointer(buffer.find())

    def same_memory(self, a: HloInstruction, b: HloInstruction) -> bool:
        """Return whether the arrays of two instructions are assigned to the same buffer."""
        return self.assignment.buffer(a) is self.assignment.buffer(b)

    def copy_bytes(self, source: Value, target: Value, size: int) -> None:
        """Emit a copy of ``size`` bytes, skipped if the addresses are equal, as for donated arguments."""
        with self.function.when(source.compare("ne", target)) if self.hlo.config.aliases else nullcontext():
            if 2 * size < SHARED_BYTES:
                copy_bytes(target, source, size)
            else:
                kernel = self._merged(lambda name: copy_kernel(self.module, name, size))
                self.call_parallel(kernel, [source, target])

    def join(self, join: Join) -> None:
        """Emit the move of a loop body's results to the loop's state, or of a branch's to the conditional."""
        rotation = self.assignment.rotations.get(join, [])
        addresses = [self._pointer(source) for source, _ in rotation]
        for address, (_, target) in zip(addresses, rotation, strict=True):
            self.function.store(address, self._addresses[target])
        self.copies(self.assignment.returning[join])

    def copies(self, copies: Sequence[BufferCopy]) -> None:
        """Emit copies between buffers as if all ran at once: none overwrites what a later one must read."""
        for source, target in self.assignment.sequence(copies):
            if target.kind == "stack" and target not in self._pointers:
                self._pointers[target] = self.function.allocate(I8, source.size)
            self.copy_bytes(self._pointer(source), self._pointer(target), source.size)
            self._bound_block()

    # -- instructions

    def computation(self, computation: HloComputation) -> None:
        """Emit the instructions of a computation in the order of its schedule."""
        for instruction in computation.execution_order():
            self._emitted += 1
            advance(self._emitted, len(self.plans))
            self.instruction(instruction)
            self._bound_block()

    def _bound_block(self) -> None:
        """Begin a new basic block if the current one is long, as LLVM's time is superlinear in its length."""
        if len(self.function.block.instructions) >= LONGEST_BLOCK:
            self.function.split_block()

    def instruction(self, i: HloInstruction) -> None:
        """Emit the code of an HLO instruction, and add the number of its operations to `work`."""
        plan = self.plans[i]
        for buffer, place in self.assignment.subviews.get(i, ()):
            self._place_subview(buffer, place)
        match plan.kind:
            case KernelKind.NONE:
                pass
            case KernelKind.CONTROL:
                self.control(i)
            case _:
                with self.timer.measure(i.name) if self.timer is not None else nullcontext():
                    before = self.work
                    self.emit(plan)
                    if plan.kind is KernelKind.SCALAR:  # reads single elements of its operands
                        self.work = before + work_of(plan.parts.members, 1)
                    elif self.work == before:
                        self.work += sum(
                            s.element_count for o in (i, *i.operands) for _, s in leaves(o.shape)
                        )

    def emit(self, plan: KernelPlan) -> None:
        """Emit the code of a kernel plan: a call of Python, a kernel and its call, or scalar code."""
        self._sequence = None
        if plan.kind in (KernelKind.KERNEL, KernelKind.LOOP):
            key = plan.key, self._loops > 0
            self._sequence = self._sequences.setdefault(key, KernelSequence())
            self._sequence.position = 0
        match plan.kind:
            case KernelKind.HOST:
                KERNELS[HOST].emit(self, plan)
            case KernelKind.KERNEL:
                KERNELS[KERNELS.key(plan.instruction)].emit(self, plan)
            case KernelKind.SCALAR:
                self.scalar(plan)
            case _:
                self.elements(plan)

    def control(self, i: HloInstruction) -> None:
        """Emit the code of an instruction with called computations: a loop, branches, or inlined code."""
        match i.operation:
            case While():
                self.loop(i)
            case Conditional():
                self.branches(i)
            case _:
                self.computation(i.called_computations[0])

    def loop(self, i: HloInstruction) -> None:
        """Emit a while instruction as a loop of LLVM IR; the buffers of its result hold the loop's state."""
        f = self.function
        body, condition = i.called_computations
        self.copies(self.assignment.entering[i])
        head, inside, after = f.new_block(), f.new_block(), f.new_block()
        f.attributes = (SIMPLIFIED,)
        f.jump(head)
        f.start(head)
        self._loops += 1
        work_before, self.work = self.work, 0
        self.computation(condition)
        going = f.load(I8, self.pointer(condition.root)).compare("ne", 0)
        f.branch(going, inside, after)
        f.start(inside)
        self.computation(body)
        self.join((i, 0))
        self._loops -= 1
        count = i.annotation(TripCount)
        total = self.work * (count.iterations if count is not None else 1)
        if self._polls is not None and (count is None or total > LONG_LOOP):
            self._polls.at_back_edge(self.work)
        self.is_bounded &= count is not None
        self.work = work_before + total
        f.jump(head)
        f.start(after)

    def branches(self, i: HloInstruction) -> None:
        """Emit a conditional as a branch or switch of LLVM; an index out of range takes the last branch."""
        f = self.function
        chooser = i.operands[0]
        count = len(i.called_computations)
        labels, after = [f.new_block() for _ in range(count)], f.new_block()
        if chooser.shape.element_type.name == "pred":
            yes = f.load(I8, self.pointer(chooser)).compare("ne", 0)
            f.branch(yes, labels[0], labels[1])
        else:
            index = f.load(I32, self.pointer(chooser))
            f.switch(index, list(enumerate(labels[:-1])), labels[-1])
        for number, (label, computation) in enumerate(zip(labels, i.called_computations, strict=True)):
            f.start(label)
            self.computation(computation)
            self.join((i, number))
            f.jump(after)
        f.start(after)

    def targets(self, i: HloInstruction) -> list[View]:
        """Return the arrays (address and shape) into which an instruction's result goes, one per leaf."""
        return [self.view(i, index) for index, _ in leaves(i.shape)]

    def elements(self, plan: KernelPlan) -> None:
        """Emit a kernel that loops over the result elements of a fusion or operation, and a call of it."""
        targets = self.targets(plan.instruction)
        if all(t.count == 0 for t in targets):
            return
        if len(targets) <= SCALAR_RESULTS and all(t.dimensions == () for t in targets):
            self.scalar(plan)
            return
        kernel = self.shared(lambda name: emit_elements_kernel(self.module, name, plan))
        pointers = [*self.input_pointers(plan.instruction), *(t.pointer for t in targets)]
        self.call(plan.instruction, kernel, pointers)

    def input_pointers(self, i: HloInstruction) -> list[Value]:
        """Return the addresses of array operands: of each operand of a fusion, else of the distinct ones."""
        operands = i.operands if isinstance(i.operation, Fusion) else dict.fromkeys(i.operands)
        return [self.pointer(o) for o in operands if o.shape.is_array]

    def leaf_size(self, i: HloInstruction, index: ShapeIndex = ()) -> int:
        """Return the size in bytes of an instruction's array, or of its leaf at shape index ``index``."""
        return self.assignment.values[i][index].size

    def scalar(self, plan: KernelPlan) -> None:
        """Emit the computation of an instruction's scalar results in the entry function, without a kernel."""
        inputs, sources = plan.parts.inputs, self.input_pointers(plan.instruction)
        views = {i: View.of(p, i.shape) for i, p in zip(inputs, sources, strict=True)}
        elements = Elements(self.function, 0, views)
        values = root_values(elements, plan.parts.roots, ())
        for target, value in zip(self.targets(plan.instruction), values, strict=True):
            elements.store(target, (), value)

    def shared(self, emit: Callable[[str], LoopKernel]) -> LoopKernel:
        """Return the current plan's next kernel: that of an earlier, equal plan, or else ``emit(name)``."""
        sequence = self._sequence
        if sequence is None:
            return self._merged(emit)
        if sequence.position == len(sequence.kernels):
            sequence.kernels.append(self._merged(emit))
        sequence.position += 1
        return sequence.kernels[sequence.position - 1]

    def _merged(self, emit: Callable[[str], LoopKernel]) -> LoopKernel:
        """Emit a kernel by ``emit(name)``; return it, or an earlier kernel with the same LLVM IR instead."""
        name = f"kernel{len(self._kernels)}"
        kernel = emit(name)
        function = self.module.functions.pop(name)
        if is_parallel(kernel):
            function.pack_parameters(len(function.parameters) - 2)
        is_inlined = self._loops and kernel.work <= INLINED_WORK and function.size <= INLINED_SIZE
        if is_inlined:
            function.attributes = (*function.attributes, ALWAYS_INLINE)
        key = Structure(function)
        existing = self._kernels.get(key)
        if existing is not None:
            function.discard()
            return replace(kernel, name=existing.name)
        self._kernels[key] = kernel
        if is_inlined:
            self._inlined[name] = function
            return kernel
        self.module.functions[name] = function
        if self._on_kernel is not None:
            self._on_kernel(self.module)
        return kernel

    def call(self, i: HloInstruction, kernel: LoopKernel, pointers: Sequence[Value]) -> None:
        """Emit a call of ``kernel``, which computes ``i``, for all iterations, in threads if it is long."""
        self.calls.append(KernelCall(kernel.name, i.name, kernel))
        self.work += kernel.work
        if not kernel.trips:
            return
        f = self.function
        if is_parallel(kernel):
            self.call_parallel(kernel, pointers)
        else:
            f.call(None, kernel.name, *pointers, f.constant(I64, 0), f.constant(I64, kernel.trips))
        if self._polls is not None:
            self._polls.after_kernel(kernel.work)

    @contextmanager
    def uncounted(self) -> Generator[None]:
        """Do not count the work of kernels emitted in a ``with`` block, which run in place of others."""
        work = self.work
        yield
        self.work = work

    def pointer_array(self, pointers: Sequence[Value]) -> Value:
        """Emit stores of ``pointers`` to a stack array that later calls reuse; return the array's address."""
        f = self.function
        array = self._pointer_array
        array.count = max(array.count, len(pointers))
        for number, pointer in enumerate(pointers):
            f.store(pointer, f.offset(array, number, PTR))
        return array

    def call_parallel(self, kernel: LoopKernel, pointers: Sequence[Value]) -> None:
        """Emit a call of ``hloom_parallel``, which divides a kernel's iterations among the pool's threads."""
        f, array = self.function, self.pointer_array(pointers)
        trips, grain = f.constant(I64, kernel.trips), f.constant(I64, kernel.grain)
        status = f.call(I32, "hloom_parallel", self.context, f.address(kernel.name), array, trips, grain)
        f.return_if(status.compare("ne", 0), 1)


def is_parallel(kernel: LoopKernel) -> bool:
    """Return whether a kernel has enough work and iterations to be divided among several threads."""
    is_long = kernel.work >= SHARED_WORK or kernel.moved_bytes >= SHARED_BYTES
    return is_long and kernel.trips > kernel.grain


def constant_data(constant: HloInstruction) -> bytes:
    """Return the bytes of a constant's array as kernels read them: row-major, at least a byte per element."""
    return np.ascontiguousarray(operation_of(constant, Constant).literal.array).tobytes()
