"""Fibers: devices of a gang on their own stacks; `gang` resumes them."""

from __future__ import annotations

from hloom.codegen.llvm import I32, I64, PTR, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.routines import routine
from hloom.cpu.runtime.device_structs import CALLS, DIFFERS, FIBER, GANG, LOOKS, WAITS


@routine(fiber=FIBER, state=I64)
def leave_fiber(f: Function, fiber: Fields, state: Value) -> None:
    """Set a fiber's state and switch to the thread's stack, until the thread resumes the fiber."""
    fiber["state"] = state
    gang = Fields(GANG, fiber["gang"])
    f.call_pointer(I32, gang["swapcontext"], fiber.address("machine"), gang.address("machine"))


@routine(fiber=FIBER, word=PTR, value=I32, call=I64)
def fiber_wait(f: Function, fiber: Fields, word: Value, value: Value, call: Value) -> None:
    """Suspend a fiber until the word differs from ``value``; ``call`` is the number of its collective."""
    fiber["word"], fiber["value"], fiber["call"] = word, value, call
    leave_fiber(f, fiber, WAITS)


@routine(fiber=FIBER, call=I64)
def fiber_differs(f: Function, fiber: Fields, call: Value) -> None:
    """End the run: the operands of collective ``call`` differ between devices."""
    fiber["call"] = call
    leave_fiber(f, fiber, DIFFERS)


@routine(I32, fiber=FIBER)
def fiber_look(f: Function, fiber: Fields) -> Value:
    """Poll for signals on the thread's stack; return nonzero if a signal handler raised an exception."""
    leave_fiber(f, fiber, LOOKS)
    return fiber["status"]


@routine(I32, fiber=FIBER, call=I64, addresses=PTR)
def fiber_host(f: Function, fiber: Fields, call: Value, addresses: Value) -> Value:
    """Run a host call on the thread's stack; return nonzero if it raised an exception."""
    fiber["call"], fiber["addresses"] = call, addresses
    leave_fiber(f, fiber, CALLS)
    return fiber["status"]
