"""Destruction of executables by any thread, without waiting for the GIL.

A thread of JAX may drop the last reference while the interpreter finalizes. CPython then unwinds threads that
wait for the GIL, which makes the C++ code around them call ``std::terminate``. Therefore destroyed
executables are put into a list, and Python frees them in the main thread, by a pending call.

Tracing is off during the pending call: CPython 3.11 loops forever when a debugger or coverage traces a
function called there while another pending call waits.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I32, PTR, VOID, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.routines import External, State, routine
from hloom.codegen.llvm.structured import is_null, is_zero, null, repeat
from hloom.jax.pjrt.routines.c_library import locked
from hloom.jax.pjrt.routines.functions import function, pointee
from hloom.jax.pjrt.structs import MUTEX

SWEEPER: Final = State("sweeper", destroyed=PTR, function=PTR, lock=MUTEX)
"""The linked list of destroyed executables, and the Python function that frees them."""
Py_AddPendingCall: Final = External("Py_AddPendingCall", I32, PTR, PTR)
PyThreadState_Get: Final = External("PyThreadState_Get", PTR)
PyThreadState_EnterTracing: Final = External("PyThreadState_EnterTracing", VOID, PTR)
PyThreadState_LeaveTracing: Final = External("PyThreadState_LeaveTracing", VOID, PTR)


@routine(exported=True, callee=PTR)
def pjrt_set_sweeper(f: Function, callee: Value) -> None:
    """Emit a native function that sets which function frees the executables that callers of PJRT destroyed.

    ``callee`` is the address of a Python callback, which the main thread calls; null to free none.
    """
    with locked(f, SWEEPER(f).nested("lock")):
        SWEEPER(f)["function"] = callee


@routine(PTR, exported=True)
def pjrt_take_destroyed(f: Function) -> Value:
    """Emit a native function that empties the linked list of destroyed executables and returns its head.

    It returns null if the list was empty.
    """
    return SWEEPER(f).atomic("destroyed").exchange(0, "acquire")


@routine(I32, callee=PTR)
def sweep_untraced(f: Function, callee: Value) -> Value:
    """Emit a native function that calls the Python callback ``callee``, and returns what that returns.

    Debuggers and coverage do not trace the call. CPython runs the function as a pending call in the main
    thread, which holds the GIL.
    """
    thread = PyThreadState_Get(f)
    PyThreadState_EnterTracing(f, thread)
    status = f.call_pointer(I32, callee, null(f))
    PyThreadState_LeaveTracing(f, thread)
    return status


@function("LoadedExecutable_Destroy")
def destroy(f: Function, args: Fields) -> None:
    executable = pointee(args, "executable")
    f.return_if(~is_zero(executable.atomic("destroyed").exchange(1, "monotonic")), 0)
    destroyed = SWEEPER(f).atomic("destroyed")
    with repeat(f) as loop:
        first = destroyed.load("monotonic")
        executable["next"] = first
        loop.leave_if(destroyed.compare_exchange(first, executable.pointer, "release"))
    with locked(f, SWEEPER(f).nested("lock")):
        callee = SWEEPER(f)["function"]
        with f.when(~is_null(callee)):
            # If too many calls are pending, a later one or the next compilation frees this executable too.
            Py_AddPendingCall(f, sweep_untraced.address(f), callee)
