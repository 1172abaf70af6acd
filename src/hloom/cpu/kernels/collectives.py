"""Operations of several devices in native code: whoever works together meets, and reads what the others have.

A device puts the addresses of its arrays at its seat, waits until all members of its group have done so,
computes its result from theirs, and goes on when nobody reads its arrays any more. What the host must see to
(`hloom.cpu.runtime.rendezvous` says which) is evaluated there: then there is no seat.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from hloom.buffers.buffers import leaf_bytes, leaves
from hloom.codegen.accumulators import flatten, spread, unflatten
from hloom.codegen.combining import as_type
from hloom.codegen.elements import Elements, View
from hloom.codegen.llvm_text import I1, I32, I64, PTR, Function, Value
from hloom.codegen.loops import LoopKernel, vector_lanes, vector_loop
from hloom.cpu.program import ProgramEmitter, emitter
from hloom.cpu.runtime.context import PARTITION_WORD, REPLICA_WORD, SEATS_WORD
from hloom.cpu.runtime.host import AWAIT_FUNCTION, emit_host_call
from hloom.ir.instruction import HloInstruction
from hloom.plan.index import Index, Variable
from hloom.shape.shape import Shape

SEAT_WORDS: Final = 4
"""Words of a seat before its places; see ``native_code/meeting.ll``."""
FIRST_SEAT: Final = 3 * 128
"""Bytes of a meeting before its seats."""
SHARED_BYTES: Final = 1 << 16
"""From so many bytes on every device reduces a part, and copies the parts of the others."""
MEETING: Final = frozenset((
    "all-gather", "all-reduce", "all-to-all", "collective-broadcast", "reduce-scatter",
))  # fmt: skip
"""What happens in native code."""


# -- ids


@emitter("replica-id", "partition-id")
def emit_id(program: ProgramEmitter, i: HloInstruction) -> None:
    """The context knows; without a context there is one device only."""
    f = program.function
    word = REPLICA_WORD if i.opcode == "replica-id" else PARTITION_WORD
    target = program.pointer(i)
    f.store(f.constant(I32, 0), target)
    with f.when(program.context.compare("ne", 0)):
        f.store(f.load(I64, f.offset(program.context, word, I64)).cast("trunc", I32), target)


# -- meeting


@emitter(*MEETING)
def emit_collective(program: ProgramEmitter, i: HloInstruction) -> None:
    """Meet natively where there is a seat, else let the host do it."""
    f = program.function
    number = len(program.host_calls)
    here, find, native, by_host, after = (f.label() for _ in range(5))
    f.branch(program.context.compare("ne", 0), here, by_host)
    f.start(here)
    table = f.load(PTR, f.offset(program.context, SEATS_WORD, PTR))
    f.branch(table.compare("ne", 0), find, by_host)
    f.start(find)
    seat = f.load(PTR, f.offset(table, number, PTR))
    f.branch(seat.compare("ne", 0), native, by_host)
    f.start(native)
    _Meeting(program, i, number, seat).run()
    f.jump(after)
    f.start(by_host)
    emit_host_call(program, i)
    f.jump(after)
    f.start(after)


class _Meeting:
    """The code of one collective at its seat."""

    def __init__(self, program: ProgramEmitter, i: HloInstruction, number: int, seat: Value) -> None:
        self.program, self.i, self.number, self.seat = program, i, number, seat
        self.results = [s for _, s in leaves(i.shape)]

    def run(self) -> None:
        """Sit down, meet, compute, and meet again before anybody changes what others may still read."""
        program, i, f = self.program, self.i, self.program.function
        places = [program.pointer(o) for o in i.operands]
        places += [program.pointer(i, index) for index, _ in leaves(i.shape)]
        for n, pointer in enumerate(places):
            f.store(pointer, f.offset(self.seat, SEAT_WORDS + n, PTR))
        self.meet(1)
        match i.opcode:
            case "all-reduce" if sum(map(leaf_bytes, self.results)) >= SHARED_BYTES:
                self.call(_reduced_parts)
                self.meet(2)
                self.call(_collected_parts)
            case "all-reduce":
                self.call(_reduced)
            case "reduce-scatter":
                self.call(_scattered)
            case "all-gather":
                self.call(_gathered)
            case "all-to-all":
                self.call(_exchanged if i.shape.is_array else _dealt)
            case _:
                self.call(_broadcast)
        self.meet(3)

    def meet(self, step: int) -> None:
        """Wait for all members, beginning (1), staying (2) or leaving (3); native code ends if that fails."""
        f = self.program.function
        f.module.declare(AWAIT_FUNCTION, I32, [I64, I64])
        status = f.call(
            I32, "hloom_meet", self.seat, f.constant(I64, self.number), Value(f, PTR, f"@{AWAIT_FUNCTION}"),
            f.constant(I32, step),
        )  # fmt: skip
        failed, after = f.label(), f.label()
        f.branch(status.compare("ne", 0), failed, after)
        f.start(failed)
        f.do("ret void")
        f.start(after)

    def call(self, emit: Callable[[_Table, HloInstruction], None]) -> None:
        """Call a function that reads the members' arrays."""
        work = sum(s.element_count for s in self.results)

        def kernel(name: str) -> LoopKernel:
            f = self.program.module.function(name, [PTR, I64, I64])
            emit(_Table(f, f.parameters[0], len(self.i.operands)), self.i)
            f.finish()
            return LoopKernel(name, 1, 1, work)

        shared = self.program.shared(kernel)
        self.program.calls.append((shared.name, self.i.name))
        self.program.work += work
        f = self.program.function
        f.call(None, shared.name, self.seat, f.constant(I64, 0), f.constant(I64, 1))


class _Table:
    """A meeting as a kernel sees it.

    Attributes:
        function: the kernel.
        position, count: this device's seat, and how many there are.
    """

    def __init__(self, f: Function, seat: Value, operands: int) -> None:
        self.function = f
        self._seat, self._operands = seat, operands
        self._meeting = f.load(PTR, seat)
        self.position = f.load(I64, f.offset(seat, 1, I64))
        self.count = f.load(I64, f.offset(seat, 2, I64))

    def operand(self, member: Value, number: int | Value) -> Value:
        """The address of an operand of a member."""
        return self._place(member, number)

    def result(self, number: int, member: Value | None = None) -> Value:
        """The address of a result, by default this device's own."""
        if member is not None:
            return self._place(member, self._operands + number)
        f = self.function
        return f.load(PTR, f.offset(self._seat, SEAT_WORDS + self._operands + number, PTR))

    def _place(self, member: Value, number: int | Value) -> Value:
        f = self.function
        seat = f.load(PTR, f.offset(f.offset(self._meeting, FIRST_SEAT), member, PTR))
        return f.load(PTR, f.offset(seat, number + SEAT_WORDS, PTR))

    def part(self, size: int, member: Value) -> tuple[Value, Value]:
        """(begin, end) of the part of so many elements that a member reduces."""
        f = self.function
        each = ((self.count + (size - 1)).unsigned_divide(self.count) + 63) & -64
        limit = f.constant(I64, size)
        begin, end = member * each, (member + 1) * each
        return tuple([f.intrinsic("smin", x, limit) for x in (begin, end)])  # type: ignore[return-value]

    def copy(self, target: Value, source: Value, size: Value) -> None:
        """Memcpy."""
        f = self.function
        f.call(None, "llvm.memcpy.p0.p0.i64", target, source, size, Value(f, I1, "false"))


def _operand_leaves(i: HloInstruction) -> list[tuple[int, Shape]]:
    return [(n, o.shape) for n, o in enumerate(i.operands) if leaf_bytes(o.shape)]


def _bytes(shape: Shape) -> int:
    return leaf_bytes(shape) // shape.element_count


# -- reductions


def _reduce(t: _Table, i: HloInstruction, number: int, target: Value, begin: Value, size: Value) -> None:
    """Reduce ``size`` elements from ``begin`` on of an operand of all members, in the members' order."""
    f, shape = t.function, i.operands[number].shape
    (to_apply,) = i.called_computations
    kind = shape.element_type
    inner = to_apply.root.shape.element_type
    lanes = vector_lanes([i.operands[number]], shape.element_count)
    e = Elements(f, lanes * 4 if lanes and shape.element_count >= lanes * 16 else lanes, {})
    lane = Variable(shape.element_count + 1, "x")

    def element(member: Value) -> Any:
        start = f.offset(t.operand(member, number), begin * _bytes(shape))
        view = View(start, kind, (shape.element_count + 1,))
        return spread(e, as_type(e.load(view, (Index.of(lane),)), kind, inner))

    def body() -> None:
        start = [element(f.constant(I64, 0))]
        with f.loop(1, t.count, 1, flatten(start)) as loop:
            (total,) = unflatten(loop.values, start)
            (made,) = e.apply(to_apply, [total, element(loop.index)])
            loop.next(*flatten([spread(e, made)]))
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


def _reduced(t: _Table, i: HloInstruction) -> None:
    """All-reduce: every member reduces everything."""
    f = t.function
    for n, shape in _operand_leaves(i):
        _reduce(t, i, n, t.result(n), f.constant(I64, 0), f.constant(I64, shape.element_count))


def _reduced_parts(t: _Table, i: HloInstruction) -> None:
    """All-reduce, first step: every member reduces its part."""
    for n, shape in _operand_leaves(i):
        begin, end = t.part(shape.element_count, t.position)
        _reduce(t, i, n, t.function.offset(t.result(n), begin * _bytes(shape)), begin, end - begin)


def _collected_parts(t: _Table, i: HloInstruction) -> None:
    """All-reduce, second step: the parts of the others."""
    f = t.function
    for n, shape in _operand_leaves(i):
        with f.loop(0, t.count) as loop, f.when(loop.index.compare("ne", t.position)):
            begin, end = t.part(shape.element_count, loop.index)
            source = f.offset(t.result(n, loop.index), begin * _bytes(shape))
            t.copy(f.offset(t.result(n), begin * _bytes(shape)), source, (end - begin) * _bytes(shape))


def _scattered(t: _Table, i: HloInstruction) -> None:
    """Reduce-scatter: every member reduces its part of the dimension."""
    operation: Any = i.operation
    (d,) = operation.scatter_dimensions
    f = t.function
    results = i.shape.tuple_shapes if i.shape.is_tuple else (i.shape,)
    for n, _ in _operand_leaves(i):
        outer, row = _rows(results[n], d)
        with f.loop(0, outer) as loop:
            begin = (loop.index * t.count + t.position) * row
            target = f.offset(t.result(n), loop.index * (row * _bytes(results[n])))
            _reduce(t, i, n, target, begin, f.constant(I64, row))


def _rows(shape: Shape, dimension: int) -> tuple[int, int]:
    """Elements before a dimension, and from it on."""
    sizes = shape.dimensions
    return math.prod(sizes[:dimension]), math.prod(sizes[dimension:])


# -- copies


def _gathered(t: _Table, i: HloInstruction) -> None:
    """All-gather: row by row of all members."""
    operation: Any = i.operation
    f = t.function
    for n, shape in _operand_leaves(i):
        outer, row = _rows(shape, operation.dimension)
        size = f.constant(I64, row * _bytes(shape))
        with f.loop(0, t.count) as member:
            source, target = t.operand(member.index, n), t.result(n)
            with f.loop(0, outer) as loop:
                place = (loop.index * t.count + member.index) * size
                t.copy(f.offset(target, place), f.offset(source, loop.index * size), size)


def _exchanged(t: _Table, i: HloInstruction) -> None:
    """All-to-all of one array: of every member the part that is for this device."""
    operation: Any = i.operation
    f, shape = t.function, i.shape
    if not leaf_bytes(shape):
        return
    outer, row = _rows(shape, operation.split_dimension[0])
    size = f.constant(I64, row * _bytes(shape)).unsigned_divide(t.count)
    with f.loop(0, t.count) as member:
        source, target = t.operand(member.index, 0), t.result(0)
        with f.loop(0, outer) as loop:
            line = loop.index * (row * _bytes(shape))
            taken, given = line + t.position * size, line + member.index * size
            t.copy(f.offset(target, given), f.offset(source, taken), size)


def _dealt(t: _Table, i: HloInstruction) -> None:
    """All-to-all of a tuple: of member number n the operand for this device is element n."""
    f = t.function
    for n, shape in enumerate(i.shape.tuple_shapes):
        source = t.operand(f.constant(I64, n), t.position)
        t.copy(t.result(n), source, f.constant(I64, leaf_bytes(shape)))


def _broadcast(t: _Table, i: HloInstruction) -> None:
    """Collective-broadcast: what the first member has."""
    f = t.function
    t.copy(t.result(0), t.operand(f.constant(I64, 0), 0), f.constant(I64, leaf_bytes(i.shape)))
