"""Calls of C functions that users registered as targets of custom calls."""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I8, I32, I64, PTR, VOID, Function, Value
from hloom.codegen.llvm.atomics import Atomic
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.memory import copy_bytes
from hloom.codegen.llvm.routines import routine
from hloom.codegen.llvm.structured import is_null
from hloom.codegen.structs import Array, Struct
from hloom.cpu.runtime.routines.host import hloom_host

_FAILED: Final = 1 << 32
"""Flag in the number of a call whose function failed or returned a future."""

_BUFFER: Final = Struct(
    "XLA_FFI_Buffer", size="i64", extension="ptr", type="i32", data="ptr", rank="i64", dimensions="ptr"
)
_BUFFERS: Final = Struct("XLA_FFI_Args", size="i64", extension="ptr", count="i64", types="ptr", buffers="ptr")
_FRAME: Final = Struct(
    "XLA_FFI_CallFrame",
    size="i64",
    extension="ptr",
    api="ptr",
    context="ptr",
    stage="i32",
    arguments=_BUFFERS,
    results=_BUFFERS,
    attributes=Array("i64", 6),
    future="ptr",
)
"""Structs of XLA's typed FFI; `hloom.operations.ffi` creates the templates of call frames."""


@routine(
    I32, exported=True, context=PTR, number=I64, arrays=PTR, cell=PTR, template=PTR, operands=I64, results=I64
)
def hloom_foreign(
    f: Function,
    context: Value,
    number: Value,
    arrays: Value,
    cell: Value,
    template: Value,
    operands: Value,
    results: Value,
) -> Value:
    """Emit a routine that calls a C function for a custom call; it returns 1 after an exception, else 0.

    Args:
        context: the context of the run.
        number: the index of the custom call among the program's host calls, by which Python evaluates it if
            there is no C function.
        arrays: a table of the addresses of the operands, then of the results.
        cell: the address of a word that holds the C function's address, or holds null if there is no
            function.
        template: for a handler of XLA's typed FFI: a call frame to copy and fill in; null for a function with
            two parameters, the address of its only result and a table of operand addresses.
        operands, results: how many operands and results there are.
    """
    function = Atomic(PTR, cell).load("acquire")
    with f.when(is_null(function)):
        f.return_value(hloom_host(f, context, number, arrays))
    with f.when(is_null(template)):
        f.call_pointer(VOID, function, f.load(PTR, f.offset(arrays, operands, PTR)), arrays)
        f.return_value(0)
    count = operands + results
    bytes = count * _BUFFER.size + _FRAME.size
    frame = Fields(_FRAME, f.allocate_bytes(bytes, align=16))
    addresses = f.allocate_bytes(count * PTR.size, align=16)
    copy_bytes(frame.pointer, template, bytes)
    frame.nested("arguments")["buffers"] = addresses
    frame.nested("results")["buffers"] = f.offset(addresses, operands, PTR)
    first = f.offset(frame.pointer, _FRAME.size)
    with f.loop(0, count) as loop:
        buffer = Fields(_BUFFER, f.offset(first, loop.index * _BUFFER.size, I8))
        buffer["data"] = f.load(PTR, f.offset(arrays, loop.index, PTR))
        f.store(buffer.pointer, f.offset(addresses, loop.index, PTR))
    error = f.call_pointer(PTR, function, frame.pointer)
    f.return_if(is_null(error) & is_null(frame["future"]), 0)
    answer = f.allocate(PTR, 2)
    f.store(error, answer)
    f.store(frame["future"], f.offset(answer, 1, PTR))
    return hloom_host(f, context, number | _FAILED, answer)
