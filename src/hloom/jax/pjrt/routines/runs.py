"""Calls of compiled programs, and their errors."""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I32, PTR, VOID, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.routines import External, State, routine
from hloom.codegen.llvm.structured import LocalVariable, is_null, is_zero
from hloom.cpu.runtime.device_structs import ENDED
from hloom.jax.pjrt.errors import CANCELLED
from hloom.jax.pjrt.routines.buffers import pjrt_give, pjrt_take
from hloom.jax.pjrt.routines.errors import refusal
from hloom.jax.pjrt.routines.packed_forms import find_packed_forms, keep_packed_forms
from hloom.jax.pjrt.routines.run_time import run_gang
from hloom.jax.pjrt.structs import EXECUTABLE, NO_ARENA

PYTHON: Final = State("python_execution", execute=PTR, run_error=PTR, callback_error=PTR)
"""The functions of `pjrt_set_execute`."""
PyGILState_Ensure: Final = External("PyGILState_Ensure", I32)
PyGILState_Release: Final = External("PyGILState_Release", VOID, I32)
PyErr_Occurred: Final = External("PyErr_Occurred", PTR)
PyErr_Clear: Final = External("PyErr_Clear", VOID)
PyErr_SetInterrupt: Final = External("PyErr_SetInterrupt", VOID)


@routine(exported=True, execute=PTR, run_error=PTR, callback_error=PTR)
def pjrt_set_execute(f: Function, execute: Value, run_error: Value, callback_error: Value) -> None:
    """Emit a native function that sets the addresses of three Python callbacks.

    ``execute`` implements ``PJRT_LoadedExecutable_Execute`` for programs that native code cannot execute.
    ``run_error`` returns the PJRT error for an executable and the nonzero status of its run.
    ``callback_error`` returns the PJRT error of the user's callback that failed in this thread, or null.
    """
    python = PYTHON(f)
    python["execute"], python["run_error"], python["callback_error"] = execute, run_error, callback_error


@routine(PTR, executable=EXECUTABLE, status=I32)
def error_of_run(f: Function, executable: Fields, status: Value) -> Value:
    """Emit a native function that returns the PJRT error for the nonzero status of an execution.

    The status is `NO_ARENA` or `NO_RESULTS` if memory for temporaries or results was short; otherwise it is
    what a gang returned, which runs the code of all devices in one thread.
    """
    return f.call_pointer(PTR, PYTHON(f)["run_error"], executable.pointer, status)


@routine(PTR, executable=EXECUTABLE)
def error_of_interruption(f: Function, executable: Fields) -> Value:
    """Emit a native function that returns the PJRT error of a program that ended early.

    There are three reasons: a user's callback raised an exception; a signal handler raised an exception in
    this thread, which the function replaces by an interrupt of the Python code that runs next; or the process
    is ending, and has stopped the program. The error is that of the callback, else CANCELLED.
    """
    gil = PyGILState_Ensure(f)
    with f.when(~is_null(PyErr_Occurred(f))):
        PyErr_Clear(f)
        error = f.call_pointer(PTR, PYTHON(f)["callback_error"], executable.pointer)
        with f.when(~is_null(error)):
            PyGILState_Release(f, gil)
            f.return_value(error)
        PyErr_SetInterrupt(f)
    PyGILState_Release(f, gil)
    return refusal(f, CANCELLED, "the program was ended by a signal")


@routine(PTR, executable=EXECUTABLE, sources=PTR, targets=PTR, storages=PTR)
def run(f: Function, executable: Fields, sources: Value, targets: Value, storages: Value) -> Value:
    """Emit a native function that runs a program on its devices; it returns an error, null on success.

    ``sources`` and ``targets`` are tables of the addresses of inputs and outputs, device after device. On one
    device, ``storages`` is the table of the inputs' storages (memory blocks), and ``sources`` has room after
    the inputs for a word (`packed_form_word`) for each argument that may have a packed copy. If the program
    has a gang (one thread runs all devices), the calling thread must have locked it.
    """
    with f.when(~is_null(executable["gang"])):
        status = _run_together(f, executable, sources, targets)
        f.return_if(is_zero(status), 0)
        with f.when(status.compare("ne", ENDED)):
            f.return_value(error_of_run(f, executable, status))
        f.return_value(error_of_interruption(f, executable))
    find_packed_forms(f, executable, sources, storages)
    status = _run_alone(f, executable, sources, targets)
    keep_packed_forms(f, executable, sources, storages, status)
    f.return_if(is_zero(status), 0)
    return error_of_interruption(f, executable)


def _run_together(f: Function, executable: Fields, sources: Value, targets: Value) -> Value:
    inputs, outputs = executable["num_inputs"], executable["num_outputs"]
    return run_gang(f, executable["gang"], sources, inputs, targets, outputs)


def _run_alone(f: Function, executable: Fields, sources: Value, targets: Value) -> Value:
    """Emit a call of the code of a program for one device; return its status, 0 on success.

    The emitted code also allocates and frees memory for the program's temporaries. If there is not enough, it
    returns an error from the native function.
    """
    bytes, arena = executable["arena_bytes"], LocalVariable(f, PTR, 0)
    with f.when(~is_zero(bytes)):
        arena.set(pjrt_take(f, bytes))
        with f.when(is_null(arena.get())):
            f.return_value(error_of_run(f, executable, NO_ARENA))
    program, context = executable["program"], executable["context"]
    status = f.call_pointer(I32, program, sources, targets, arena.get(), context)
    with f.when(~is_null(arena.get())):
        pjrt_give(f, arena.get())
    return status
