"""Functions of PJRT's table: a struct of arguments in, an error or null out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hloom.codegen.llvm import PTR, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.routines import Routine
from hloom.codegen.llvm.structured import null
from hloom.codegen.structs import Struct
from hloom.jax.pjrt import abi
from hloom.jax.pjrt.structs import BUFFER, LAYOUT, MEMORY

_POINTEES: Final[dict[str, Struct]] = {"buffer": BUFFER, "memory": MEMORY, "layout": LAYOUT}
"""Structs that fields of a name point to."""

_GETTERS: Final = """
Buffer_ElementType type=buffer.type
Buffer_Dimensions dims=&buffer.dimensions num_dims=buffer.rank
Buffer_UnpaddedDimensions unpadded_dims=&buffer.dimensions num_dims=buffer.rank
Buffer_DynamicDimensionIndices dynamic_dim_indices=0 num_dynamic_dims=0
Buffer_OnDeviceSizeInBytes on_device_size_in_bytes=buffer.bytes
Buffer_Device device=buffer.device
Buffer_Memory memory=buffer.memory
Buffer_IsOnCpu is_on_cpu=1
Memory_Kind kind=memory.kind kind_size=memory.kind_size
"""
"""Functions that only read: a result of the arguments, and the path or the number that it is set to."""


def function(name: str) -> Callable[[Callable[[Function, Fields], Value | None]], Routine]:
    """Declare the emitter of a PJRT function; it returns an error, or None for success."""

    def declared(emit: Callable[[Function, Fields], Value | None]) -> Routine:
        def body(f: Function, args: Fields) -> Value:
            return emit(f, args) or null(f)

        return Routine(body, PTR, {"args": abi.arguments(name)}, name=f"PJRT_{name}", exported=True)

    return declared


def pointee(fields: Fields, name: str) -> Fields:
    """Return the struct that a field points to."""
    return Fields(_POINTEES[name], fields[name])


def _getter(line: str) -> Routine:
    name, *assignments = line.split()

    def emit(f: Function, args: Fields) -> None:
        for target, _, path in (assignment.partition("=") for assignment in assignments):
            args[target] = int(path) if path.isdigit() else _follow(args, path)

    return function(name)(emit)


def _follow(args: Fields, path: str) -> Value:
    """Return the value at a path, or the address of its field if it begins with ``&``."""
    *pointers, last = path.removeprefix("&").split(".")
    fields = args
    for name in pointers:
        fields = pointee(fields, name)
    return fields.address(last) if path.startswith("&") else fields[last]


GETTERS: Final = tuple(map(_getter, _GETTERS.strip().splitlines()))
