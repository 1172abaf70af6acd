"""PJRT errors."""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import I32, I64, PTR, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.memory import copy_bytes
from hloom.codegen.llvm.routines import State, routine, text
from hloom.codegen.llvm.structured import is_null
from hloom.jax.pjrt.errors import FAILED_PRECONDITION
from hloom.jax.pjrt.routines.c_library import allocate, free
from hloom.jax.pjrt.routines.functions import function
from hloom.jax.pjrt.structs import ERROR

_FUNCTIONS: Final = State(
    "error_functions",
    size=I64,
    error_size=I64,
    extension=PTR,
    destroy=PTR,
    message=PTR,
    code=PTR,
    payloads=PTR,
)
"""The table of functions through which callers of PJRT 0.105 and later use an error."""
_FUNCTIONS_BYTES: Final = 56
_ERROR_BYTES: Final = 8
"""Sizes of the table, and of the part of an error that callers know."""


@routine(PTR, exported=True, code=I32, message=PTR, size=I64)
def pjrt_error(f: Function, code: Value, message: Value, size: Value) -> Fields:
    """Emit a native function that returns a new PJRT error with a copy of ``message`` (``size`` bytes)."""
    error = allocate(f, ERROR, size + 1, functions=_FUNCTIONS(f), code=code, message_size=size)
    copy_bytes(error.address("message"), message, size)
    error.store("message", size, 0)
    return error


def refusal(f: Function, code: int, message: str) -> Value:
    """Emit the creation of a PJRT error with a status code and a constant message; return its address."""
    name = f"message.{len(f.module.globals)}"
    return pjrt_error(f, code, text(f, name, message), len(message.encode()))


@routine(PTR, error=ERROR)
def copy_of_error(f: Function, error: Fields) -> Value:
    """Emit a native function that returns a copy of a PJRT error, or null for null."""
    f.return_if(is_null(error.pointer), 0)
    return pjrt_error(f, error["code"], error.address("message"), error["message_size"])


@function("Error_Destroy")
def destroy(f: Function, args: Fields) -> None:
    free(f, args["error"])


@routine(PTR, exported=True, args=PTR)
def pjrt_gone(f: Function, args: Value) -> Value:
    """Emit a native function that returns a new FAILED_PRECONDITION error.

    When the Python interpreter ends, it takes the place of the PJRT functions that are written in Python.
    """
    return refusal(f, FAILED_PRECONDITION, "the Python interpreter is ending")


# -- the table of functions


@routine(error=ERROR, message=PTR, size=PTR)
def error_message(f: Function, error: Fields, message: Value, size: Value) -> None:
    """Emit a native function that stores the address and the size of an error's message.

    ``message`` and ``size`` are the addresses to store them at.
    """
    f.store(error.address("message"), message)
    f.store(error["message_size"], size)


@routine(I32, error=ERROR)
def error_code(f: Function, error: Fields) -> Value:
    return error["code"]


@routine(error=ERROR, visitor=PTR, argument=PTR)
def error_payloads(f: Function, error: Fields, visitor: Value, argument: Value) -> None:
    """Emit the native function of PJRT's error table that calls ``visitor`` for each payload of an error.

    It does nothing, because hloom's errors have no payloads.
    """


@routine(exported=True)
def pjrt_begin_errors(f: Function) -> None:
    """Emit a native function that fills the static table of functions by which callers of PJRT use errors.

    Python calls it once, before there are errors.
    """
    functions = _FUNCTIONS(f)
    functions["size"], functions["error_size"] = _FUNCTIONS_BYTES, _ERROR_BYTES
    functions["destroy"], functions["message"] = free.address(f), error_message.address(f)
    functions["code"], functions["payloads"] = error_code.address(f), error_payloads.address(f)
