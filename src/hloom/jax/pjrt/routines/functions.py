"""Declaration of PJRT functions, which take a struct of arguments and return an error or null."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hloom.codegen.llvm import PTR, Function, Operand, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.routines import Routine, routine
from hloom.codegen.llvm.structured import null
from hloom.codegen.structs import Struct
from hloom.jax.pjrt import abi
from hloom.jax.pjrt.structs import (
    BUFFER,
    CLIENT,
    DESCRIPTION,
    DEVICE,
    ERROR,
    EVENT,
    EXECUTABLE,
    LAYOUT,
    MEMORY,
    STORAGE,
    TOPOLOGY,
)

_POINTEES: Final[dict[str, Struct]] = {
    "buffer": BUFFER,
    "client": CLIENT,
    "device": DEVICE,
    "device_description": DESCRIPTION,
    "error": ERROR,
    "event": EVENT,
    "executable": EXECUTABLE,
    "layout": LAYOUT,
    "memory": MEMORY,
    "options": abi.arguments("ExecuteOptions"),
    "storage": STORAGE,
    "topology": TOPOLOGY,
}
"""The struct that a pointer field points to, by the field's name."""


def function(name: str) -> Callable[[Callable[[Function, Fields], Operand | None]], Routine]:
    """Return a decorator for an emitter of LLVM IR: it makes the native function ``PJRT_{name}`` from it.

    The emitter gets the LLVM function and the argument struct. It returns the PJRT error that the native
    function returns, or None for null, which means success.
    """

    def declared(emit: Callable[[Function, Fields], Operand | None]) -> Routine:
        def body(f: Function, args: Fields) -> Operand:
            error = emit(f, args)
            return null(f) if error is None else error

        return Routine(body, PTR, {"args": abi.arguments(name)}, name=f"PJRT_{name}", exported=True)

    return declared


def pointee(fields: Fields, name: str) -> Fields:
    """Emit a load of the pointer field ``name``; return the struct that it points to."""
    return Fields(_POINTEES[name], fields[name])


@routine(PTR, exported=True, args=PTR)
def pjrt_nothing(f: Function, args: Value) -> Value:
    """Emit a native function that does nothing and returns null.

    Callers of PJRT get it as the deleter of memory that the plug-in owns.
    """
    return null(f)
