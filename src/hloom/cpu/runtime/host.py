"""Calls from native code into Python: for what only the host can do.

What talks to other devices or to the host (collectives, infeed, send), what is a Python function (custom
calls) and what no kernel computes is evaluated by its operation's own ``evaluate``, on arrays made of the
bytes that native code points to. Native code calls ``hloom_host(number, pointers)``: the number of the call
in its program, and the addresses of the leaves of its operands and results. Nonzero means that the call
failed; native code then returns at once, and `HostCalls.run`, which let it begin, raises the error.

Collectives meet in native code where they can (`hloom.cpu.kernels.collectives`); then native code calls
``hloom_await(number, generation)``, and only if the others are late.

A value that is still on its way (what a start operation gives) stands in its leaf's memory as a ticket, a
number in its first bytes, so that loops and branches may carry it around like any other.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from hloom.buffers.buffers import leaf_bytes, leaves
from hloom.codegen.llvm_text import I32, I64, PTR, Value
from hloom.cpu.jit.externals import PROVIDERS
from hloom.cpu.program import HOST, ProgramEmitter, emitter
from hloom.errors import EvaluationError
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.device import Device, Pending
from hloom.ir.instruction import HloInstruction
from hloom.ir.operation import Operation
from hloom.operations.custom_call import TARGETS, CustomCall
from hloom.operations.transfer import RecvDone
from hloom.passes.expand.dynamic_form import HOST_TARGET, actual, enclosed
from hloom.shape.layout import Layout
from hloom.shape.shape import Shape

if TYPE_CHECKING:
    from hloom.cpu.runtime.rendezvous import Seat

HOST_FUNCTION: Final = "hloom_host"
AWAIT_FUNCTION: Final = "hloom_await"
HOST_OPERATIONS: Final = (
    "all-gather", "all-gather-done", "all-gather-start", "all-reduce", "all-reduce-done", "all-reduce-start",
    "all-to-all", "async-done", "async-start", "bitcast", "collective-broadcast", "collective-permute",
    "collective-permute-done", "collective-permute-start", "custom-call", "get-dimension-size", "infeed",
    "map",
    "outfeed", "ragged-all-to-all", "recv", "recv-done", "reduce-scatter",
    "rng-get-and-update-state", "send", "send-done", "set-dimension-size",
)  # fmt: skip
"""What the host evaluates: what talks to it and to other devices, and what no pass could expand."""
Array = np.ndarray[Any, Any]


# -- emitting


@emitter(HOST, *HOST_OPERATIONS)
def emit_host_call(program: ProgramEmitter, i: HloInstruction) -> None:
    """Call the host for an instruction; native code ends if it fails."""
    f = program.function
    number = len(program.host_calls)
    program.host_calls.append(i)
    program.calls.append((HOST_FUNCTION, i.name))
    places = [program.pointer(o, index) for o in i.operands for index, _ in leaves(o.shape)]
    places += [program.pointer(i, index) for index, _ in leaves(i.shape)]
    array = program.packed(places) if places else Value(f, PTR, "null")
    status = f.call(I32, HOST_FUNCTION, f.constant(I64, number), array)
    failed, after = f.label(), f.label()
    f.branch(status.compare("ne", 0), failed, after)
    f.start(failed)
    f.do("ret void")
    f.start(after)


# -- running


def _ends(operation: Operation) -> bool:
    """Return whether an operation ends what another one has begun."""
    return bool(operation.begun_by) or isinstance(operation, RecvDone)


class HostCalls:
    """The host's side of one program on one device.

    Attributes:
        evaluator: computes the calls; its random state goes on from run to run.
    """

    def __init__(
        self,
        instructions: Sequence[HloInstruction],
        device: Device | None = None,
        seats: Mapping[int, Seat] | None = None,
    ) -> None:
        self.evaluator = Evaluator(device)
        self._calls = [_Call(i) for i in instructions]
        self._seats = seats or {}
        addresses = [self._seats[n].address if n in self._seats else None for n in range(len(self._calls))]
        self._table = (ctypes.c_void_p * len(addresses))(*addresses)
        self._tickets: dict[int, Pending] = {}
        self._error: BaseException | None = None

    def run(self, native: Callable[[], object]) -> None:
        """Let native code run in this thread; raises what one of its calls raised.

        Without a device of its own the program runs alone: waiting for others is then an error at once.
        """
        if self.evaluator.alone is not None:
            self.evaluator.alone.run(lambda _: self._run(native))
        else:
            self._run(native)

    def _run(self, native: Callable[[], object]) -> None:
        self._tickets.clear()
        self._error = None
        outer = getattr(_thread, "calls", None)
        _thread.calls = self
        try:
            native()
        finally:
            _thread.calls = outer
            error, self._error = self._error, None
        if error is not None:
            raise error

    def call(self, number: int, pointers: int) -> int:
        """Run a call; 1 if it failed."""
        try:
            with np.errstate(all="ignore"):
                self._calls[number].run(self, pointers)
        except BaseException as error:  # whatever it is, native code must not see it
            self._error = error
            return 1
        return 0

    @property
    def table(self) -> int:
        """The address of the seats, one for each call; 0 where there is no seat at all."""
        return ctypes.addressof(self._table) if self._seats else 0

    def wait(self, number: int, generation: int) -> int:
        """Wait for the others at the seat of a call; 1 if that failed."""
        try:
            self._seats[number].wait(generation)
        except BaseException as error:  # as in `call`
            self._error = error
            return 1
        return 0

    def ticket(self, pending: Pending, size: int) -> int:
        """A number of so many bytes for a value that is on its way."""
        limit = 1 << (8 * min(size, 7))
        number = len(self._tickets) + 1
        if number >= limit or number in self._tickets:
            number = next((n for n in range(1, min(limit, 1 << 20)) if n not in self._tickets), 0)
        if not number:
            raise EvaluationError(f"more than {limit - 1} operations are under way", rule="cpu.tickets")
        self._tickets[number] = pending
        return number

    def redeem(self, number: int) -> Pending:
        """The value behind a ticket, which may be asked for once more in the next round of a loop."""
        try:
            return self._tickets[number]
        except KeyError:
            raise EvaluationError("nothing is under way here", rule="cpu.tickets") from None


_thread = threading.local()


@ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p)
def _host(number: int, pointers: int) -> int:
    """What native code calls."""
    calls: HostCalls | None = getattr(_thread, "calls", None)
    return 1 if calls is None else calls.call(number, pointers)


@ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_int64)
def _await(number: int, generation: int) -> int:
    """What native code calls when it has waited in vain for a moment."""
    calls: HostCalls | None = getattr(_thread, "calls", None)
    return 1 if calls is None else calls.wait(number, generation)


PROVIDERS[HOST_FUNCTION] = lambda: ctypes.cast(_host, ctypes.c_void_p).value or 0
PROVIDERS[AWAIT_FUNCTION] = lambda: ctypes.cast(_await, ctypes.c_void_p).value or 0


class _Call:
    """One place in a program that calls the host."""

    def __init__(self, instruction: HloInstruction) -> None:
        self.instruction = instruction
        self.count = sum(len(leaves(o.shape)) for o in instruction.operands) + len(leaves(instruction.shape))
        operation = instruction.operation
        self.awaited = operation.pending_index if _ends(operation) else None
        self.begun = None if _ends(operation) else operation.pending_index
        self.target = direct_target(instruction)

    def run(self, calls: HostCalls, pointers: int) -> None:
        """Read the operands, evaluate, write the result."""
        if self.target:
            native = getattr(TARGETS.get(self.target), "native", None)
            if native is not None:
                place = ctypes.c_uint64.from_address(pointers + 8 * (self.count - 1)).value
                native(place, ctypes.cast(pointers, ctypes.POINTER(ctypes.c_void_p)))
                return
        addresses = iter((ctypes.c_uint64 * max(1, self.count)).from_address(pointers)[: self.count])
        operands = [self._read(calls, o.shape, (), addresses) for o in self.instruction.operands]
        value: Any = self.evaluated(calls.evaluator, operands)
        self._write(calls, self.instruction.shape, (), value, addresses)

    def evaluated(self, evaluator: Evaluator, operands: list[Any]) -> Any:
        """The value of the instruction; of one that stands for a dynamic one, in static form."""
        i = self.instruction
        if getattr(i.operation, "custom_call_target", "") != HOST_TARGET:
            return evaluator.apply(i, operands)
        (body,) = i.called_computations
        given = [actual(v, p.shape) for v, p in zip(operands, body.parameters, strict=True)]
        return enclosed(evaluator.call(body, given), body.root.shape)

    def _read(self, calls: HostCalls, shape: Shape, index: tuple[int, ...], addresses: Iterator[int]) -> Any:
        if index == self.awaited:
            sizes = [(leaf_bytes(s), next(addresses)) for _, s in leaves(shape)]
            size, address = next(((n, a) for n, a in sizes if n), (0, 0))
            if size:
                return calls.redeem(int.from_bytes(ctypes.string_at(address, min(size, 7)), "little"))
            empty: Any = _empty(shape)
            return Pending(lambda: empty)
        if shape.is_buffer:
            shape = shape.tuple_shapes[0]
        if shape.is_tuple:
            parts = enumerate(shape.tuple_shapes)
            return tuple([self._read(calls, s, (*index, n), addresses) for n, s in parts])
        address = next(addresses)
        return array_at(address, shape).copy() if shape.is_array else None

    def _write(
        self, calls: HostCalls, shape: Shape, index: tuple[int, ...], value: Any, addresses: Iterator[int]
    ) -> None:
        if shape.is_buffer:
            shape = shape.tuple_shapes[0]
        if index == self.begun:
            self._write_ticket(calls, shape, value, addresses)
        elif shape.is_tuple:
            for n, (part, element) in enumerate(zip(shape.tuple_shapes, value, strict=True)):
                self._write(calls, part, (*index, n), element, addresses)
        else:
            address = next(addresses)
            if shape.is_array:
                array_at(address, shape)[...] = value

    def _write_ticket(self, calls: HostCalls, shape: Shape, value: Any, addresses: Iterator[int]) -> None:
        pending: Any = value
        if not isinstance(value, Pending):
            pending = Pending(lambda: value)
        sizes = [(leaf_bytes(s), next(addresses)) for _, s in leaves(shape)]
        size, address = next(((n, a) for n, a in sizes if n), (0, 0))
        if not size:
            pending.wait()  # there is no byte to write a ticket to
            return
        ticket = calls.ticket(pending, size)
        ctypes.memmove(address, ticket.to_bytes(min(size, 7), "little"), min(size, 7))


def direct_target(instruction: HloInstruction) -> str:
    """The target of a custom call whose C function may work on native code's own memory; else nothing."""
    operation = instruction.operation
    if not isinstance(operation, CustomCall) or operation.api_version != "API_VERSION_ORIGINAL":
        return ""
    given = operation.operand_layout_constraints or [o.shape for o in instruction.operands]
    return operation.custom_call_target if all(map(_is_plain, (*given, instruction.shape))) else ""


def _is_plain(shape: Shape) -> bool:
    """Whether an array lies row by row, each element in bytes of its own."""
    if not shape.is_array or not shape.is_static or shape.element_type.bits < 8:
        return False
    return shape.layout is None or shape.layout == Layout.default(shape.rank)


def array_at(address: int, shape: Shape) -> Array:
    """The array that native code keeps at an address."""
    dtype = shape.element_type.numpy_dtype
    if not shape.element_count:
        return np.empty(shape.dimensions, dtype)
    memory: Any = (ctypes.c_uint8 * (shape.element_count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, np.uint8).view(dtype).reshape(shape.dimensions)


def _empty(shape: Shape) -> Any:
    if shape.is_tuple:
        return tuple(map(_empty, shape.tuple_shapes))
    return np.empty(shape.dimensions, shape.element_type.numpy_dtype) if shape.is_array else None
