"""Fibers: devices of a gang on their own stacks; `gang` resumes them."""

from __future__ import annotations

from hloom.codegen.llvm import I32, I64, PTR, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.routines import routine
from hloom.cpu.runtime.device_structs import CALLS, DIFFERS, FIBER, GANG, LOOKS, WAITS


@routine(fiber=FIBER, state=I64)
def leave_fiber(f: Function, fiber: Fields, state: Value) -> None:
    """Emit a routine that suspends the current fiber: it sets its state and switches to the thread's stack.

    The thread runs the fibers of all devices in turns; the routine returns when it resumes this fiber.
    """
    fiber["state"] = state
    gang = Fields(GANG, fiber["gang"])
    f.call_pointer(I32, gang["swapcontext"], fiber.address("machine"), gang.address("machine"))


@routine(fiber=FIBER, word=PTR, value=I32, call=I64)
def fiber_wait(f: Function, fiber: Fields, word: Value, value: Value, call: Value) -> None:
    """Emit a routine that suspends a device's fiber until ``word``, an address, no longer holds ``value``.

    ``call`` is the index, among the host calls of the device's program, of the collective in which it waits.
    """
    fiber["word"], fiber["value"], fiber["call"] = word, value, call
    leave_fiber(f, fiber, WAITS)


@routine(fiber=FIBER, call=I64)
def fiber_differs(f: Function, fiber: Fields, call: Value) -> None:
    """Emit a routine by which a fiber ends the run of all fibers, which are the devices of a program.

    It reports that operands of a collective differ in type or size between devices. ``call`` is the index of
    the collective among the host calls of the fiber's program.
    """
    fiber["call"] = call
    leave_fiber(f, fiber, DIFFERS)


@routine(I32, fiber=FIBER)
def fiber_look(f: Function, fiber: Fields) -> Value:
    """Emit a routine that polls for signals; it returns nonzero if a signal handler raised an exception.

    The fiber is suspended meanwhile, as handlers run on the stack of the thread.
    """
    leave_fiber(f, fiber, LOOKS)
    return fiber["status"]


@routine(I32, fiber=FIBER, call=I64, addresses=PTR)
def fiber_host(f: Function, fiber: Fields, call: Value, addresses: Value) -> Value:
    """Emit a routine that suspends a fiber while its thread has Python answer a host call.

    ``call`` is the index of the host call, ``addresses`` a table of the addresses of operands and results.
    The routine returns nonzero if Python raised an exception.
    """
    fiber["call"], fiber["addresses"] = call, addresses
    leave_fiber(f, fiber, CALLS)
    return fiber["status"]
