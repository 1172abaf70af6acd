"""Destruction of executables by any thread, without waiting for the interpreter.

A thread of JAX may drop the last reference while the interpreter ends. The interpreter ends threads that wait
for it, and the C++ code around them then ends the process by ``std::terminate``. So executables are listed
here, and Python frees them in the main thread.

Python is not traced there: in a pending call, CPython 3.11 enters no function that a debugger or coverage
traces while another call is pending, but tries for ever.
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
"""The first of the list of destroyed executables, and the function of Python that frees them."""
Py_AddPendingCall: Final = External("Py_AddPendingCall", I32, PTR, PTR)
PyThreadState_Get: Final = External("PyThreadState_Get", PTR)
PyThreadState_EnterTracing: Final = External("PyThreadState_EnterTracing", VOID, PTR)
PyThreadState_LeaveTracing: Final = External("PyThreadState_LeaveTracing", VOID, PTR)


@routine(exported=True, callee=PTR)
def pjrt_set_sweeper(f: Function, callee: Value) -> None:
    """Set the function that the main thread calls soon after an executable was destroyed; null: none."""
    with locked(f, SWEEPER(f).nested("lock")):
        SWEEPER(f)["function"] = callee


@routine(PTR, exported=True)
def pjrt_take_destroyed(f: Function) -> Value:
    """Return the list of destroyed executables, which is empty afterwards."""
    return SWEEPER(f).atomic("destroyed").exchange(0, "acquire")


@routine(I32, callee=PTR)
def sweep_untraced(f: Function, callee: Value) -> Value:
    """Call the function of Python in the main thread, which holds the interpreter's lock."""
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
