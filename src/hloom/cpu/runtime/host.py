"""Host calls: operations of a native program that Python evaluates.

The host evaluates operations that communicate (collectives, infeed, send), that call Python functions (custom
calls), or that have no kernel. Native code calls ``hloom_host(context, number, pointers)`` with the number of
the call in its program and the addresses of the leaves of its operands and results; `Operation.evaluate` runs
on arrays that view this memory. The call goes through Python's C API (`routines/host.py`): on an exception,
also that of a signal handler, native code returns at once, and the caller of the program raises it.

Collectives run in native code where possible (`hloom.cpu.kernels.collectives`) and call Python only if other
participants are late.

Until a start operation completes, the first bytes of its result hold a placeholder id, which loops and
branches carry like any other value.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from hloom.analysis.in_flight import ends_a_start
from hloom.buffers.buffers import leaf_bytes, leaves
from hloom.codegen.llvm import I32, I64, PTR
from hloom.cpu.program import HOST, KERNELS, KernelCall, ProgramEmitter
from hloom.cpu.runtime.context import HOST_OPERATIONS
from hloom.cpu.runtime.placeholders import MOST_BYTES, Placeholders
from hloom.cpu.runtime.support import support
from hloom.evaluate.evaluator import Evaluator
from hloom.ir.device import DeviceContext, Passed, Pending, arrived
from hloom.ir.instruction import HloInstruction
from hloom.ir.value import Array, Value
from hloom.lifetime import keep_for_ever
from hloom.operations.ffi_services import answer
from hloom.operations.transfer import RecvDone
from hloom.passes.expand.dynamic_form import HOST_TARGET, actual, enclosed
from hloom.plan.kernel import KernelPlan
from hloom.shape.shape import Shape

if TYPE_CHECKING:
    from hloom.cpu.runtime.rendezvous import Participant

HOST_FUNCTION: Final = "hloom_host"
FAILED: Final = 1 << 32
"""Flag in the number of a call whose C function failed or returned a future; see ``routines/foreign.py``."""


# -- emitting


@KERNELS.register(HOST, *HOST_OPERATIONS)
def emit_host_call(program: ProgramEmitter, plan: KernelPlan) -> None:
    """Emit a call that has Python evaluate the plan's instruction; if the call fails, the program returns."""
    i = plan.instruction
    f = program.function
    number = len(program.host_calls)
    program.host_calls.append(i)
    program.calls.append(KernelCall(HOST_FUNCTION, i.name))
    places = [program.pointer(o, index) for o in i.operands for index, _ in leaves(o.shape)]
    places += [program.pointer(i, index) for index, _ in leaves(i.shape)]
    array = program.pointer_array(places) if places else f.constant(PTR, 0)
    status = f.call(I32, HOST_FUNCTION, program.context, f.constant(I64, number), array)
    f.return_if(status.compare("ne", 0), 1)


# -- running


class HostCalls:
    """Answers a program's host calls on one device: evaluates, in Python, instructions without native code.

    Attributes:
        evaluator: evaluates the instructions on NumPy arrays; keeps its random state between runs.
        placeholders: ids that stand for the pending results of asynchronous start operations.
        waited: for each host call, by its index, the nanoseconds that it has waited for other devices or for
            the host, summed over all runs.
    """

    def __init__(
        self,
        instructions: Sequence[HloInstruction],
        device: DeviceContext | None = None,
        participants: Mapping[int, Participant] | None = None,
    ) -> None:
        self.evaluator = Evaluator(device)
        self._calls = [_Call(i) for i in instructions]
        self.waited = [0] * len(self._calls)
        self._participants = participants or {}
        records = [self._participants.get(n) for n in range(len(self._calls))]
        addresses = [record.address if record is not None else None for record in records]
        self._table = (ctypes.c_void_p * len(addresses))(*addresses)
        self.placeholders = Placeholders()

    def run(self, native: Callable[[], object]) -> None:
        """Call ``native``, which runs the program, and answer its host calls (into Python) until it returns.

        Raises the exception of a host call that fails. In a program that runs without other devices, a call
        that waits for another device raises an error at once.
        """
        if self.evaluator.alone is not None:
            self.evaluator.alone.run(lambda _: self._run(native))
        else:
            self._run(native)

    def _run(self, native: Callable[[], object]) -> None:
        self.placeholders.clear()
        outer = _thread.calls
        _thread.calls = self
        try:
            native()
        finally:
            _thread.calls = outer

    def call(self, number: int, pointers: int) -> None:
        """Answer host call ``number``: evaluate its instruction on operands and results in native memory.

        ``pointers`` is the address of a table of the addresses of operands and results. If ``number`` has the
        flag bit `FAILED`, a custom call's C function has run already, and ``pointers`` is the address of two
        pointers that it returned, each perhaps null: an error, and a future. In that case the method waits
        for the future, and raises the error, if any.
        """
        if number & FAILED:
            error, future = (ctypes.c_uint64 * 2).from_address(pointers)
            instruction = self._calls[number ^ FAILED].instruction
            target = getattr(instruction.operation, "custom_call_target", "")
            failure = answer(target, error, future)
            if failure is not None:
                raise failure.at(instruction=instruction.name)
            return
        before = self.evaluator.device.waited
        with np.errstate(all="ignore"):
            self._calls[number].run(self, pointers)
        self.waited[number] += self.evaluator.device.waited - before

    @property
    def table(self) -> int:
        """The address of a table with a pointer for each host call; 0 if all pointers would be null.

        The pointer of a collective that runs in native code is that of its struct `PARTICIPANT`, the others
        are null.
        """
        return ctypes.addressof(self._table) if self._participants else 0

    def wait(self, number: int, generation: int) -> None:
        """Wait until the other participants of a collective have arrived; raise Stopped if they cannot.

        Args:
            number: the index of the collective among the program's host calls.
            generation: the number of meetings of the participants before this one arrived, or a negative
                code; see `Participant.wait`.
        """
        self._participants[number].wait(generation)


class _Thread(threading.local):
    """Thread-local data: ``calls`` answers host calls of the program that the thread runs; None if none."""

    def __init__(self) -> None:
        self.calls: HostCalls | None = None


_thread: Final = _Thread()


def _host(number: int, pointers: int) -> None:
    """Answer a host call of the program that this thread runs: native code calls this function.

    The arguments are those of `HostCalls.call`.
    """
    assert _thread.calls is not None
    _thread.calls.call(number, pointers)


def _await(number: int, generation: int) -> None:
    """Wait for the other participants of a collective: native code calls this function if they are late.

    The arguments are those of `HostCalls.wait`.
    """
    assert _thread.calls is not None
    _thread.calls.wait(number, generation)


def provide_functions() -> None:
    """Tell native code the Python functions to call: to evaluate instructions, and to wait for devices."""
    prototype = ctypes.PYFUNCTYPE(None, ctypes.py_object, ctypes.py_object)
    prototype(support().symbols["hloom_set_host"])(_host, _await)
    keep_for_ever((_host, _await))


class _Call:
    """An instruction that Python evaluates for native code, and the pending part of its operand or result.

    A value is pending between an asynchronous start operation and its done operation.
    """

    def __init__(self, instruction: HloInstruction) -> None:
        self.instruction = instruction
        self.count = sum(len(leaves(o.shape)) for o in instruction.operands) + len(leaves(instruction.shape))
        operation = instruction.operation
        ends = ends_a_start(instruction)
        self.awaited = operation.pending_index if ends else None
        self.begun = None if ends else operation.pending_index
        # A loop may pass the result of one recv to recv-done in every iteration; other results are used once.
        self.again = isinstance(operation, RecvDone)

    def run(self, calls: HostCalls, pointers: int) -> None:
        """Evaluate this instruction: read its operands from memory, and write its result to memory.

        ``pointers`` is the address of a table of the addresses of operands and results.
        """
        addresses = iter((ctypes.c_uint64 * max(1, self.count)).from_address(pointers)[: self.count])
        operands = [self._read(calls, o.shape, (), addresses) for o in self.instruction.operands]
        value = self.evaluated(calls.evaluator, operands)
        self._write(calls, self.instruction.shape, (), value, addresses)

    def evaluated(self, evaluator: Evaluator, operands: list[Passed]) -> Passed:
        """Return the value of this instruction for operand values.

        If it calls a computation with arrays of dynamic size, these are padded to their bounds in operands
        and result, and accompanied by their sizes.
        """
        i = self.instruction
        if getattr(i.operation, "custom_call_target", "") != HOST_TARGET:
            return evaluator.apply(i, operands)
        (body,) = i.called_computations
        operands_here = [actual(arrived(v), p.shape) for v, p in zip(operands, body.parameters, strict=True)]
        return enclosed(evaluator.call(body, operands_here), body.root.shape)

    def _read(
        self, calls: HostCalls, shape: Shape, index: tuple[int, ...], addresses: Iterator[int]
    ) -> Passed:
        if index == self.awaited:
            sizes = [(leaf_bytes(s), next(addresses)) for _, s in leaves(shape)]
            size, address = next(((n, a) for n, a in sizes if n), (0, 0))
            if size:
                return calls.placeholders.resolve(
                    ctypes.string_at(address, min(size, MOST_BYTES)), again=self.again
                )
            return Pending(lambda: _empty(shape))
        if shape.is_buffer:
            shape = shape.tuple_shapes[0]
        if shape.is_tuple:
            parts = enumerate(shape.tuple_shapes)
            return tuple([self._read(calls, s, (*index, n), addresses) for n, s in parts])
        address = next(addresses)
        return array_at(address, shape).copy() if shape.is_array else None

    def _write(
        self, calls: HostCalls, shape: Shape, index: tuple[int, ...], value: Passed, addresses: Iterator[int]
    ) -> None:
        if shape.is_buffer:
            shape = shape.tuple_shapes[0]
        if index == self.begun:
            self._write_id(calls, shape, value, addresses)
        elif shape.is_tuple:
            assert isinstance(value, tuple)
            for n, (part, element) in enumerate(zip(shape.tuple_shapes, value, strict=True)):
                self._write(calls, part, (*index, n), element, addresses)
        else:
            address = next(addresses)
            if shape.is_array:
                array_at(address, shape)[...] = value

    def _write_id(self, calls: HostCalls, shape: Shape, value: Passed, addresses: Iterator[int]) -> None:
        pending = value if isinstance(value, Pending) else Pending(lambda: value)
        sizes = [(leaf_bytes(s), next(addresses)) for _, s in leaves(shape)]
        size, address = next(((n, a) for n, a in sizes if n), (0, 0))
        if not size:
            pending.wait()  # no byte to store an id in
            return
        placeholder = calls.placeholders.issue(pending, size)
        ctypes.memmove(address, placeholder, len(placeholder))


def array_at(address: int, shape: Shape) -> Array:
    """Return a NumPy view of the memory at an address, as an array of the given shape."""
    dtype = shape.element_type.numpy_dtype
    if not shape.element_count:
        return np.empty(shape.dimensions, dtype)
    memory = (ctypes.c_uint8 * (shape.element_count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memoryview(memory), np.uint8).view(dtype).reshape(shape.dimensions)


def _empty(shape: Shape) -> Value:
    if shape.is_tuple:
        return tuple(map(_empty, shape.tuple_shapes))
    return np.empty(shape.dimensions, shape.element_type.numpy_dtype) if shape.is_array else None
