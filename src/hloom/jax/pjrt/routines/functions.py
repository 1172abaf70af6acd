"""Functions of PJRT's table: a struct of arguments in, an error or null out."""

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
"""Structs that fields of a name point to."""


def function(name: str) -> Callable[[Callable[[Function, Fields], Operand | None]], Routine]:
    """Declare the emitter of a PJRT function; it returns an error, or None for success."""

    def declared(emit: Callable[[Function, Fields], Operand | None]) -> Routine:
        def body(f: Function, args: Fields) -> Operand:
            error = emit(f, args)
            return null(f) if error is None else error

        return Routine(body, PTR, {"args": abi.arguments(name)}, name=f"PJRT_{name}", exported=True)

    return declared


def pointee(fields: Fields, name: str) -> Fields:
    """Return the struct that a field points to."""
    return Fields(_POINTEES[name], fields[name])


@routine(PTR, exported=True, args=PTR)
def pjrt_nothing(f: Function, args: Value) -> Value:
    """Do nothing, successfully: the deleter of what the plug-in keeps."""
    return null(f)
