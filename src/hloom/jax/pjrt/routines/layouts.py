"""PJRT's layouts extension for buffers and default layouts; layouts are never freed."""

from __future__ import annotations

from typing import Final

from hloom.codegen.llvm import PTR, Function, Value
from hloom.codegen.llvm.fields import Fields
from hloom.codegen.llvm.memory import load_element
from hloom.codegen.llvm.routines import State, routine
from hloom.codegen.llvm.structured import is_null
from hloom.jax.pjrt.routines.functions import function, pointee

_LAYOUTS: Final = State("layouts", row_major=PTR)


@routine(exported=True, row_major=PTR)
def pjrt_set_layouts(f: Function, row_major: Value) -> None:
    """Emit a native function that sets the address of a table with the row-major layout's handle by rank."""
    _LAYOUTS(f)["row_major"] = row_major


def _row_major(f: Function, rank: Value) -> Value:
    return load_element(PTR, _LAYOUTS(f)["row_major"], rank)


def layout_of(f: Function, buffer: Fields) -> Value:
    """Emit a load of the handle of a buffer's layout; return the handle.

    In the buffer null stands for row-major; the emitted code replaces it by the handle of the row-major
    layout of the buffer's rank.
    """
    layout = buffer["layout"]
    return is_null(layout).select(_row_major(f, buffer["rank"]), layout)


@function("Layouts_PJRT_Buffer_MemoryLayout")
def memory_layout(f: Function, args: Fields) -> None:
    args["layout"] = layout_of(f, pointee(args, "buffer"))


@function("Layouts_PJRT_Client_GetDefaultLayout")
def default_layout(f: Function, args: Fields) -> None:
    args["layout"] = _row_major(f, args["num_dims"])


@function("Layouts_PJRT_Topology_GetDefaultLayout")
def topology_default_layout(f: Function, args: Fields) -> None:
    args["layout"] = _row_major(f, args["num_dims"])
