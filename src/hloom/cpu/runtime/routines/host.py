"""Calls of Python functions from native code; `hloom.cpu.runtime.host` is the Python side.

An exception stays set in the thread's state until the caller of the program raises it.
"""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I32, I64, PTR, VOID, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.memory import store_element
from hloom.codegen.llvm.routines import External, State, routine
from hloom.codegen.llvm.structured import LocalVariable, is_null
from hloom.cpu.runtime.routines.fiber import fiber_host
from hloom.cpu.runtime.structs import CONTEXT

FUNCTIONS: Final = State("host_functions", host=PTR, wait=PTR)
ensure_gil: Final = External("PyGILState_Ensure", I32)
release_gil: Final = External("PyGILState_Release", VOID, I32)
save_thread: Final = External("PyEval_SaveThread", PTR)
restore_thread: Final = External("PyEval_RestoreThread", VOID, PTR)
integer: Final = External("PyLong_FromLongLong", PTR, I64)
call_object: Final = External("PyObject_Vectorcall", PTR, PTR, PTR, I64, PTR)
drop_object: Final = External("Py_DecRef", VOID, PTR)


@routine(exported=True, host=PTR, wait=PTR)
def hloom_set_host(f: Function, host: Value, wait: Value) -> None:
    """Emit a routine that stores two Python functions, which native code calls with two integers each.

    ``host`` evaluates an instruction that has no native code (a host call), ``wait`` waits for the
    participants of a collective.
    """
    functions = FUNCTIONS(f)
    functions["host"], functions["wait"] = host, wait


@routine(I32, function=PTR, a=I64, b=I64)
def call_python(f: Function, function: Value, a: Value, b: Value) -> Value:
    """Emit a routine that calls a Python function with two integers.

    It returns 1 if the function raised an exception, else 0.
    """
    arguments = f.allocate(PTR, 2)
    failed = LocalVariable(f, I32, 1)
    state = ensure_gil(f)
    first, second = integer(f, a), integer(f, b)
    with f.when(~(is_null(first) | is_null(second))):
        store_element(arguments, 0, first)
        store_element(arguments, 1, second)
        result = call_object(f, function, arguments, 2, 0)
        drop_object(f, first)
        drop_object(f, second)
        with f.when(~is_null(result)):
            drop_object(f, result)
            failed.set(0)
    release_gil(f, state)
    return failed.get()


@routine(I32, exported=True, context=CONTEXT, number=I64, addresses=PTR)
def hloom_host(f: Function, context: Fields, number: Value, addresses: Value) -> Value:
    """Emit a routine that has Python evaluate an instruction (a host call).

    It returns 1 if Python raised an exception, else 0. ``number`` is the index of the host call in the
    program, ``addresses`` a table of the addresses of operands and results.
    """
    function = LocalVariable(f, PTR, FUNCTIONS(f)["host"])
    with f.when(~is_null(context.pointer)):
        host, fiber = context["host"], context["fiber"]
        with f.when(~(is_null(host) | is_null(fiber))):
            f.return_value(fiber_host(f, fiber, number, addresses))
        function.set(is_null(host).select(function.get(), host))
    return call_python(f, function.get(), number, addresses.cast("ptrtoint", I64))


@routine(I32, number=I64, generation=I64)
def await_host(f: Function, number: Value, generation: Value) -> Value:
    """Emit a routine in which Python waits for the other participants of a collective.

    It returns 1 if Python raised an exception, else 0. ``number`` is the index of the collective in the table
    of operations for which native code calls Python. ``generation`` is how often the participants have met so
    far; a negative one says what else to wait for, as in `Participant.wait`.
    """
    return call_python(f, FUNCTIONS(f)["wait"], number, generation)
