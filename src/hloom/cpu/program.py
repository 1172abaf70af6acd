"""The native program: one function that runs the whole entry computation.

``hloom_run(arguments, results, temp, context)`` takes an array of pointers to the leaves of the arguments,
one to the leaves of the results, the arena, and a context (thread pool, device). It returns 0, or nonzero if
it ended early and the results are undefined. Kernels are internal functions that it calls with pointers;
loops, branches and scalars are code of its own. Kernels with the same text are emitted once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from hloom.analysis.scalar_computations import applies_expressions
from hloom.analysis.trip_count import TripCount
from hloom.buffers.assignment import Assignment, Copy, assign, is_alias
from hloom.buffers.buffers import Buffer, ShapeIndex, leaf_bytes, leaves
from hloom.buffers.schedule import schedule
from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm_text import I1, I8, I32, I64, PTR, Function, Module, Value
from hloom.codegen.loops import LoopKernel, root_values
from hloom.codegen.target import Target, host
from hloom.cpu.jit.llvm import INLINED, SIMPLIFIED
from hloom.cpu.kernels.movement.transposition import emit_elements_kernel
from hloom.cpu.kernels.reduction import reduction
from hloom.cpu.runtime.interruption import LONG_LOOP, PollEmitter, end_early_if
from hloom.cpu.runtime.profile import Timer
from hloom.ir.computation import HloComputation
from hloom.ir.instruction import HloInstruction
from hloom.ir.module import HloModule
from hloom.operations.structure import parameter_number
from hloom.plan.iteration import read_where_written

ENTRY: Final = "hloom_run"
SCALAR_WORK: Final = 8
"""Results of at most so many elements, all of rank 0, are code of the entry itself."""

INLINED_WORK: Final = 1 << 12
"""Kernels in loops that do less work become code of the entry, where LLVM sees them together."""
INLINED_TEXT: Final = 1 << 14
"""Characters of a kernel that is still short enough for that."""

SHARED_WORK: Final = 1 << 17
"""Kernels of less work run in one thread: sharing it would cost more than it gains."""

Emitter: TypeAlias = Callable[["ProgramEmitter", HloInstruction], None]
HOST: Final = "host"
"""In the place of an opcode: what Python evaluates; see `hloom.cpu.runtime.host`."""
EMITTERS: Final[dict[str, Emitter]] = {}
"""Operations whose kernels are not loops over elements: by opcode."""


WORKSPACES: Final[dict[str, Callable[[HloInstruction, Target], int]]] = {}
"""Bytes of scratch memory that the kernels of an instruction need on a target: by opcode."""


def scratch_bytes(instruction: HloInstruction, target: Target | None = None) -> int:
    """Bytes of scratch memory that an instruction needs while it runs, by default on this machine."""
    rule = WORKSPACES.get(emitter_key(instruction))
    return rule(instruction, target or host()) if rule is not None else 0


def emitter(*opcodes: str) -> Callable[[Emitter], Emitter]:
    """Register the emitter of some opcodes."""

    def register(function: Emitter) -> Emitter:
        for opcode in opcodes:
            EMITTERS[opcode] = function
        return function

    return register


@dataclass(frozen=True, slots=True)
class NativeProgram:
    """A program in LLVM's language, and what a caller must know of it.

    Attributes:
        module: the functions and constants.
        temp_bytes: size of the arena.
        argument_bytes, result_bytes: sizes of the leaves, in order.
        kernels: (function, instruction) names in the order of the calls.
        work: rough number of elementary operations; loops of unknown trip count are counted once.
        is_bounded: the trip counts of all loops are known.
        host_calls: the instructions that Python evaluates, by number; see `hloom.cpu.runtime.host`.
        timed: the instructions that a timed program measures.
    """

    module: Module
    temp_bytes: int
    argument_bytes: tuple[int, ...]
    result_bytes: tuple[int, ...]
    kernels: tuple[tuple[str, str], ...]
    work: int
    is_bounded: bool
    host_calls: tuple[HloInstruction, ...] = ()
    timed: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """LLVM IR."""
        return self.module.text()


def emit_program(
    module: HloModule,
    target: Target | None = None,
    *,
    timed: bool = False,
    interruptible: bool = True,
    on_kernel: Callable[[Module], None] | None = None,
) -> NativeProgram:
    """Emit the native program of an (optimized, flat) module, by default for this machine.

    A timed program adds up what each instruction takes; see `hloom.cpu.runtime.profile`. An interruptible one
    polls for signals and failures of other devices; see `hloom.cpu.runtime.interruption`. ``on_kernel`` is
    called with the module so far after every kernel.
    """
    return ProgramEmitter(module, target, timed=timed, interruptible=interruptible, on_kernel=on_kernel).run()


class ProgramEmitter:
    """Emits the entry function and collects the kernels."""

    def __init__(
        self,
        module: HloModule,
        target: Target | None = None,
        *,
        timed: bool = False,
        interruptible: bool = True,
        on_kernel: Callable[[Module], None] | None = None,
    ) -> None:
        self.hlo = module
        self._on_kernel = on_kernel
        self.module = Module(target=target)
        self.function = Function(self.module, ENTRY, [PTR, PTR, PTR, PTR], I32, internal=False)
        self.arguments, self.results, self.temp, self.context = self.function.parameters
        self.assignment: Assignment = assign(
            module.entry, in_place_operands, schedule, lambda i: scratch_bytes(i, target)
        )
        self._pointers: dict[Buffer, Value] = {}
        self._kernels: dict[str, LoopKernel] = {}
        self._inlined: dict[str, str] = {}
        self._loops = 0
        self.calls: list[tuple[str, str]] = []
        self.host_calls: list[HloInstruction] = []
        self.work = 0
        self.is_bounded = True
        self._polls = PollEmitter(self.function, self.context) if interruptible else None
        self._shared_pointers = 0
        self._timer = Timer(self.function, self.context) if timed else None

    def run(self) -> NativeProgram:
        """Emit everything."""
        for number, constant in enumerate(self.assignment.constants):
            if leaf_bytes(constant.shape):
                self.module.constant_bytes(f"constant{number}", constant_data(constant))
        self._prologue()
        self.computation(self.hlo.entry)
        self.copies(self.assignment.results)
        if self._shared_pointers:
            self.function.entry_lines.append(f"  %shared = alloca ptr, i64 {self._shared_pointers}, align 64")
        self.module.functions |= self._inlined
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
            tuple(self._timer.names) if self._timer is not None else (),
        )

    # -- memory

    def _prologue(self) -> None:
        """Load the pointers of arguments and results once, at the top, where every block can use them."""
        for values in self.assignment.values.values():
            for buffer in values.values():
                found = buffer.find()
                if found not in self._pointers:
                    self._pointers[found] = self._address(found)
        for buffer in self.assignment.workspaces.values():
            self._pointers[buffer.find()] = self._address(buffer.find())
        for copy in self.assignment.results:
            found = copy.target.find()
            if found not in self._pointers:
                self._pointers[found] = self._address(found)

    def _address(self, buffer: Buffer) -> Value:
        f = self.function
        if not buffer.size:
            return Value(f, PTR, "null")
        match buffer.kind:
            case "argument":
                return f.load(PTR, f.offset(self.arguments, buffer.number, PTR))
            case "result":
                return f.load(PTR, f.offset(self.results, buffer.number, PTR))
            case "constant":
                return Value(f, PTR, f"@constant{buffer.number}")
            case "stack":
                return f.allocate(I8, buffer.size)
            case _:
                return f.offset(self.temp, buffer.offset)

    def pointer(self, instruction: HloInstruction, index: ShapeIndex = ()) -> Value:
        """The address of a leaf."""
        return self._pointers[self.assignment.buffer(instruction, index)]

    def view(self, instruction: HloInstruction, index: ShapeIndex = ()) -> View:
        """A leaf as an array in memory."""
        shape = instruction.shape
        for number in index:
            shape = shape.tuple_shapes[number]
        return View(self.pointer(instruction, index), shape.element_type, shape.dimensions)

    def workspace(self, instruction: HloInstruction) -> Value:
        """The scratch memory of an instruction; see `WORKSPACES`."""
        buffer = self.assignment.workspaces.get(instruction)
        return Value(self.function, PTR, "null") if buffer is None else self._pointers[buffer.find()]

    def same_memory(self, a: HloInstruction, b: HloInstruction) -> bool:
        """Whether two arrays share their bytes."""
        return self.assignment.buffer(a) is self.assignment.buffer(b)

    def copy_bytes(self, source: Value, target: Value, size: int) -> None:
        """Memcpy."""
        f = self.function
        self.function.call(
            None, "llvm.memcpy.p0.p0.i64", target, source, f.constant(I64, size), Value(f, I1, "false")
        )

    def copies(self, copies: Sequence[Copy]) -> None:
        """Copies that happen at once: no source is overwritten before it was read.

        Buffers that are not needed at the same time may share bytes of the arena, and here both are.
        """
        pending: list[tuple[Buffer, Buffer]] = [
            (c.source.find(), c.target.find())
            for c in copies
            if c.source.find() is not c.target.find() and c.source.find().size
        ]
        while pending:
            ready = [
                (source, target)
                for source, target in pending
                if not any(other is not source and target.shares_bytes(other) for other, _ in pending)
            ]
            source, target = ready[0] if ready else pending[0]
            if ready and not target.shares_bytes(source):
                self.copy_bytes(self._pointers[source], self._pointers[target], source.size)
                pending.remove((source, target))
                continue
            aside = Buffer(source.size, "stack")
            self._pointers[aside] = self.function.allocate(I8, source.size)
            self.copy_bytes(self._pointers[source], self._pointers[aside], source.size)
            pending = [(aside if s is source else s, t) for s, t in pending]

    # -- instructions

    def computation(self, computation: HloComputation) -> None:
        """Emit a computation in the order of its schedule."""
        for instruction in schedule(computation):
            self.instruction(instruction)

    def instruction(self, i: HloInstruction) -> None:
        """Emit one instruction."""
        opcode = i.opcode
        if is_alias(i) or opcode in (
            "parameter",
            "constant",
            "tuple",
            "get-tuple-element",
            "after-all",
        ):
            return
        if opcode == "while":
            self.loop(i)
        elif opcode == "conditional":
            self.branches(i)
        elif opcode == "call":
            self.computation(i.called_computations[0])
        else:
            with self._timer.measure(i.name) if self._timer is not None else nullcontext():
                key = emitter_key(i) if applies_expressions(hero(i)) else HOST
                before = self.work
                EMITTERS.get(key, ProgramEmitter.kernel)(self, i)
                if self.work == before:
                    self.work += sum(s.element_count for o in (i, *i.operands) for _, s in leaves(o.shape))

    def loop(self, i: HloInstruction) -> None:
        """A native loop; its state lies in the buffers of the while's result."""
        f = self.function
        body, condition = i.called_computations
        self.copies(self.assignment.entering[i])
        head, inside, after = f.label(), f.label(), f.label()
        f.attributes = SIMPLIFIED
        f.jump(head)
        f.start(head)
        self._loops += 1
        work_before, self.work = self.work, 0
        self.computation(condition)
        going = f.load(I8, self.pointer(condition.root)).compare("ne", 0)
        f.branch(going, inside, after)
        f.start(inside)
        self.computation(body)
        self.copies(self.assignment.returning[i, 0])
        self._loops -= 1
        count = i.annotation(TripCount)
        total = self.work * (count.turns if count is not None else 1)
        if self._polls is not None and (count is None or total > LONG_LOOP):
            self._polls.at_back_edge(self.work)
        self.is_bounded &= count is not None
        self.work = work_before + total
        f.jump(head)
        f.start(after)

    def branches(self, i: HloInstruction) -> None:
        """A native switch; an index out of range takes the last branch."""
        f = self.function
        chooser = i.operands[0]
        count = len(i.called_computations)
        labels, after = [f.label() for _ in range(count)], f.label()
        if chooser.shape.element_type.name == "pred":
            yes = f.load(I8, self.pointer(chooser)).compare("ne", 0)
            f.branch(yes, labels[0], labels[1])
        else:
            index = f.load(I32, self.pointer(chooser))
            cases = " ".join(f"i32 {n}, label %{label}" for n, label in enumerate(labels[:-1]))
            f.do(f"switch {index}, label %{labels[-1]} [ {cases} ]")
        for number, (label, computation) in enumerate(zip(labels, i.called_computations, strict=True)):
            f.start(label)
            self.computation(computation)
            self.copies(self.assignment.returning[i, number])
            f.jump(after)
        f.start(after)

    def kernel(self, i: HloInstruction) -> None:
        """A kernel over elements: a fusion, or a single operation."""
        inputs, roots, members = kernel_parts(i)
        targets = [self.view(i, index) for index, _ in leaves(i.shape)]
        if all(t.count == 0 for t in targets):
            return
        sources = self.input_pointers(i)
        root = members[-1]
        if root.opcode == "reduce" and reduction.is_row_reduction(root):
            kernel = self.shared(
                lambda name: reduction.emit_row_reduction(self.module, name, inputs, root, members)
            )
        elif all(t.dimensions == () for t in targets) and len(targets) <= SCALAR_WORK:
            self.scalar(inputs, roots, sources, targets)
            return
        else:
            kernel = self.shared(lambda name: emit_elements_kernel(self.module, name, inputs, roots, members))
        self.call(i, kernel, [*sources, *(t.pointer for t in targets)])

    def input_pointers(self, i: HloInstruction) -> list[Value]:
        """The addresses of a kernel's inputs, in the order of `kernel_parts`."""
        operands = i.operands if i.opcode == "fusion" else dict.fromkeys(i.operands)
        return [self.pointer(o) for o in operands if o.shape.is_array]

    def leaf_size(self, i: HloInstruction, index: ShapeIndex = ()) -> int:
        """Bytes of a leaf."""
        return self.assignment.values[i][index].size

    def scalar(
        self, inputs: Sequence[HloInstruction], roots: Sequence[HloInstruction], sources: Sequence[Value],
        targets: Sequence[View],
    ) -> None:  # fmt: skip
        """Scalars are computed where they stand."""
        views = {
            i: View(p, i.shape.element_type, i.shape.dimensions) for i, p in zip(inputs, sources, strict=True)
        }
        elements = Elements(self.function, 0, views)
        made = root_values(elements, roots, ())
        for target, value in zip(targets, made, strict=True):
            elements.store(target, (), value)

    def shared(self, emit: Callable[[str], LoopKernel]) -> LoopKernel:
        """Emit a kernel, unless one with the same text is there already; their ranges may differ."""
        name = f"kernel{len(self._kernels)}"
        kernel = emit(name)
        text = self.module.functions.pop(name)
        key = re.sub(rf"@{name}\b", "@kernel", text)
        known = self._kernels.get(key)
        if known is not None:
            return replace(kernel, name=known.name)
        self._kernels[key] = kernel
        if self._loops and kernel.work <= INLINED_WORK and len(text) <= INLINED_TEXT:
            self._inlined[name] = text.replace(" #0 {", f" {INLINED} #0 {{", 1)
            return kernel
        self.module.functions[name] = text
        if self._on_kernel is not None:
            self._on_kernel(self.module)
        return kernel

    def call(self, i: HloInstruction, kernel: LoopKernel, pointers: Sequence[Value]) -> None:
        """Run a kernel over its whole range, on several threads if that pays."""
        self.calls.append((kernel.name, i.name))
        self.work += kernel.work
        if not kernel.trips:
            return
        f = self.function
        if kernel.work >= SHARED_WORK and kernel.trips > kernel.grain:
            self.share(kernel, pointers)
        else:
            f.call(None, kernel.name, *pointers, f.constant(I64, 0), f.constant(I64, kernel.trips))
        if self._polls is not None:
            self._polls.after_kernel(kernel.work)

    def packed(self, pointers: Sequence[Value]) -> Value:
        """An array of pointers, for the next call only."""
        f = self.function
        place = Value(f, PTR, "%shared")
        self._shared_pointers = max(self._shared_pointers, len(pointers))
        for number, pointer in enumerate(pointers):
            f.store(pointer, f.offset(place, number, PTR))
        return place

    def share(self, kernel: LoopKernel, pointers: Sequence[Value]) -> None:
        """Let the threads of the pool share a kernel's range; see ``native_code/pool.ll``."""
        task = f"{kernel.name}_task"
        if task not in self.module.functions:
            wrapper = self.module.function(task, [PTR, I64, I64])
            packed, begin, end = wrapper.parameters
            given = [wrapper.load(PTR, wrapper.offset(packed, n, PTR)) for n in range(len(pointers))]
            wrapper.call(None, kernel.name, *given, begin, end)
            wrapper.finish()
        f = self.function
        packed = self.packed(pointers)
        trips, grain = f.constant(I64, kernel.trips), f.constant(I64, kernel.grain)
        function = Value(f, PTR, f"@{task}")
        end_early_if(f, f.call(I32, "hloom_parallel", self.context, function, packed, trips, grain))


def kernel_parts(
    i: HloInstruction,
) -> tuple[list[HloInstruction], list[HloInstruction], list[HloInstruction]]:
    """(inputs, roots, members) of a kernel: of a fusion's computation, or of an operation by itself."""
    if i.opcode != "fusion":
        return [o for o in dict.fromkeys(i.operands) if o.shape.is_array], [i] * _width(i), [i]
    body = i.called_computations[0]
    members = [m for m in body.post_order() if m.opcode != "parameter"]
    roots = body.root.operands if body.root.opcode == "tuple" else [body.root] * _width(body.root)
    return [p for p in body.parameters if p.shape.is_array], list(roots), members


def _width(i: HloInstruction) -> int:
    return len(i.shape.tuple_shapes) if i.shape.is_tuple else 1


def hero(i: HloInstruction) -> HloInstruction:
    """The operation that decides how a kernel is made: a fusion's product or update, else its root."""
    if i.opcode != "fusion":
        return i
    body = i.called_computations[0]
    for member in body.instructions:
        if member.opcode in HEROES:
            return member
    return body.root


def emitter_key(i: HloInstruction) -> str:
    """Which emitter makes an instruction's kernel: the opcode of its hero, or ``row-fusion``."""
    if i.opcode == "fusion" and i.operation.kind == "kCustom":  # type: ignore[attr-defined]
        return "row-fusion"
    return hero(i).opcode


HEROES: Final = frozenset(("dot", "convolution", "scatter", "sort"))
"""Operations around which elementwise ones may be fused."""


def in_place_operands(i: HloInstruction) -> Sequence[int]:
    """Operands that a kernel reads only at the index it writes, or never after it has written there."""
    if not i.shape.is_array or not i.shape.rank:
        return ()
    if i.operation.elementwise:
        return range(len(i.operands))
    key = hero(i)
    if key.opcode in UPDATES:
        return _updated(i, key)
    if i.opcode == "fusion" and emitter_key(i) not in EMITTERS and key.opcode != "reduce":
        inputs, roots, _ = kernel_parts(i)
        read = read_where_written(inputs, roots[0])
        return [number for number, p in enumerate(inputs) if p in read]
    return ()


UPDATES: Final = frozenset(("dynamic-update-slice", "scatter"))
"""Operations that change some elements of their first operand."""


def _updated(i: HloInstruction, update: HloInstruction) -> Sequence[int]:
    """The operand that an update may change where it lies: one that nothing else in the kernel reads."""
    changed = update.operands[0]
    if i is update:
        return (0,) if i.operands.count(changed) == 1 else ()
    if changed.opcode != "parameter" or len(changed.users) != 1 or update.operands.count(changed) != 1:
        return ()
    return (parameter_number(changed),)


def constant_data(constant: HloInstruction) -> bytes:
    """The bytes of a constant as kernels read them: row-major, a byte or more per element."""
    array: np.ndarray[Any, Any] = np.asarray(constant.operation.literal.numpy())  # type: ignore[attr-defined]
    return np.ascontiguousarray(array).tobytes()
